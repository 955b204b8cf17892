"""A fitted explainer to files."""

from collections.abc import Iterator
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pyro.infer.autoguide import AutoGuide
from safetensors.torch import save as to_bytes
from torch import nn

from lexppl.inference import FitResult
from lexppl.inference.replicates import replicate_hyperparameters
from lexppl.saving.automatic_guides import described_guide, rows_seen
from lexppl.saving.description import describe
from lexppl.saving.layout import (
    DESCRIPTION,
    FORMAT,
    SAMPLER,
    WEIGHTS,
    WEIGHTS_CHECKSUM,
    fields_of,
)
from lexppl.sealed_files import checksum_of, output_file, sealed, write_through


def save(result: FitResult, folder: str | Path) -> None:
    """Write a fitted explainer: `weights.safetensors` and `explainer.json`.

    A model that cannot describe itself is saved by its weights alone, and needs `model=` to be
    loaded. Pyro's automatic guides are saved by class, settings and sites; chains of a sampler are
    draws of the one program, saved once. The description has the SHA-256 of the weights and its
    own, by which :func:`load` knows files that were damaged. All files are written aside and then
    renamed, so that a failure leaves what was there before.

    Args:
        result: what `fit` returned.
        folder: made if it is not there.

    Raises:
        TypeError: a part that holds what is no tensor, such as an estimator.
        OSError: the folder cannot be written.
    """
    for module in (*result.models, *result.guides):
        _refuse_unsaved(module)
    with ExitStack() as written:
        for path, content in _files(result, Path(folder)):
            write_through(written.enter_context(output_file(path, overwrite=True)), content)


def _files(result: FitResult, folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Each file and what it shall hold; the description comes after the weights, whose checksum it
    has."""
    weights = to_bytes(_weights(result))
    yield folder / WEIGHTS, weights
    described = {
        "format": FORMAT,
        "version": version("lexppl"),
        WEIGHTS_CHECKSUM: checksum_of(weights),
        **_described(result),
    }
    yield folder / DESCRIPTION, sealed(described).encode()


def _weights(result: FitResult) -> dict[str, torch.Tensor]:
    weights = {}
    for kind, modules in (("model", result.models), ("guide", result.guides)):
        for r, module in enumerate(modules):
            # Chains are of one program.
            again = r > 0 and module is modules[0]
            if isinstance(module, nn.Module) and not again:
                for name, tensor in module.state_dict().items():
                    weights[f"{kind}.{r}.{name}"] = tensor.detach().clone().contiguous().cpu()
    if isinstance(result.guides[0], AutoGuide):
        weights |= {name: row.cpu() for name, row in rows_seen(result.guides[0]).items()}
    if result.sampler is not None:
        for name, values in result.sampler.sample_stats.items():
            weights[f"{SAMPLER}.{name}"] = torch.from_numpy(np.array(values))
    return weights


def _described(result: FitResult) -> dict[str, Any]:
    return {
        "model": _of_module(result.models[0]),
        "guide": _of_module(result.guides[0]),
        "numbers": {"model": _numbers_of(result.models), "guide": _numbers_of(result.guides)},
        **fields_of(result),
    }


def _refuse_unsaved(module: Any) -> None:
    parts = module.modules() if isinstance(module, nn.Module) else ()
    for part in parts:
        reason = getattr(part, "cannot_be_saved", None)
        if reason is not None:
            raise TypeError(f"this explainer cannot be saved: {reason}")


def _numbers_of(modules: list[Any]) -> list[dict[str, Any]]:
    """The numbers in which replicates differ, λ or k, which one description cannot hold."""
    if not all(isinstance(module, nn.Module) for module in modules):
        return []
    try:
        numbers = replicate_hyperparameters(modules)
    except ValueError:
        # Programs of one's own may carry what is no setting, such as the time they were built.
        return []
    return [{"path": n.path, "name": n.attribute, "values": list(n.values)} for n in numbers]


def _of_module(module: Any) -> Any:
    if not isinstance(module, nn.Module):
        return None
    if isinstance(module, AutoGuide):
        return described_guide(module)
    try:
        return describe(module)
    except TypeError as error:
        return {"class": type(module).__name__, "why": str(error)}
