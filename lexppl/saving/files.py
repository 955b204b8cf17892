"""Fitted explainers written to files and read from them."""

import copy
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pyro.infer.autoguide import AutoGuide
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from lexppl import __version__
from lexppl.inference import FitResult
from lexppl.inference.posterior.global_draws import SampledGuide
from lexppl.inference.pyro_parameters import ProgramFunction, hold_saved, is_program, with_module
from lexppl.inference.replicates import replicate_hyperparameters
from lexppl.inference.training.cross_fitting import CrossFitted
from lexppl.saving.description import (
    AUTOMATIC,
    FORMAT,
    METADATA,
    ROW,
    SAMPLER,
    SITES,
    WEIGHTS,
    describe,
    described_guide,
    fields_from,
    fields_of,
    known_parts,
    own_tensors,
    rebuild,
    rebuilt_guide,
    rows_seen,
    settle_guide,
    sites_in_order,
)
from lexppl.sealed_files import (
    BLANK,
    UnreadableFileError,
    blank,
    checksum_of,
    description_and_seal,
    refuse_changed,
    refused_by_name,
    with_seal,
    write_whole,
)
from lexppl.threads import ONE_THREAD, own_random_state


@ONE_THREAD
def save(result: FitResult, folder: str | Path) -> None:
    """Write a fitted explainer: `weights.safetensors`, whose metadata has the description.

    Use it to explain new rows later, or elsewhere, without another fit. :func:`load` reads the
    folder.

    A model that cannot describe itself is saved by its weights alone, and needs `model=` to be
    loaded. The description has the SHA-256 of the file. It is written aside and then renamed once,
    so that the folder has the earlier explainer or this one at any moment.

    Args:
        result: what `fit` returned.
        folder: made if it is not there.

    Raises:
        TypeError: no result of a fit; a part that holds what is no tensor, such as an estimator.
        OSError: the folder cannot be written.
    """
    if not isinstance(result, FitResult):
        kind = type(result).__name__
        raise TypeError(f"result must be a FitResult (of an estimator its result_); it is a {kind}")
    modules = [m for m in (*result.models, *result.guides) if isinstance(m, nn.Module)]
    for part in (part for module in modules for part in module.modules()):
        if (reason := getattr(part, "cannot_be_saved", None)) is not None:
            raise TypeError(f"this explainer cannot be saved: {reason}")
    write_whole(Path(folder) / WEIGHTS, _content(result))


def _content(result: FitResult) -> bytes:
    """The weights and in their metadata the description, with the checksum of all of it."""
    described = {
        **{"format": FORMAT, "version": __version__},
        "model": _of_module(result.models[0]),
        "guide": _of_module(result.guides[0]),
        "numbers": {"model": _numbers_of(result.models), "guide": _numbers_of(result.guides)},
        **fields_of(result),
    }
    content = to_bytes(_weights(result), {METADATA: blank(described)})
    return _with_checksum(content, BLANK, checksum_of(content))


def _with_checksum(content: bytes, old: str, new: str) -> bytes:
    """A file with another checksum in place of the one in its metadata."""
    end = 8 + int.from_bytes(content[:8], "little")
    return with_seal(content[:end], old.encode(), new.encode()) + content[end:]


def _weights(result: FitResult) -> dict[str, torch.Tensor]:
    weights = {}
    for kind, modules in (("model", result.models), ("guide", result.guides)):
        for r, module in enumerate(modules):
            # Chains are of one program.
            again = r > 0 and module is modules[0]
            if isinstance(module, nn.Module) and not again:
                for name, tensor in module.state_dict().items():
                    weights[f"{kind}.{r}.{name}"] = tensor.detach().clone().contiguous().cpu()
    weights |= {name: row.cpu() for name, row in rows_seen(result.guides[0]).items()}
    if result.sampler is not None:
        for name, values in result.sampler.sample_stats.items():
            weights[f"{SAMPLER}.{name}"] = torch.from_numpy(np.array(values))
    return weights


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
        sites = {SITES: names} if (names := sites_in_order(module)) else {}
        return {"class": type(module).__name__, "why": str(error), **sites}


# Of a whole number in a description, and of the places of an image, where the file has fewer
# weights than that.
MOST = 2**24
SHAPES = ("shape", "event_shape")
Given = nn.Module | Callable[[], nn.Module] | None  # A program of the user's own, or what builds it


def _numbers_in(weights: Mapping[str, Tensor]) -> int:
    return sum(tensor.numel() for tensor in weights.values())


def refuse_sizes(config: Any, weights: Mapping[str, Tensor], name: str = "") -> None:
    """Refuse whole numbers that no part of a file of this size can have, before it is built."""
    most = max(MOST, _numbers_in(weights))
    if isinstance(config, int) and abs(config) > most:
        size = str(config) if abs(config) < 10**30 else "a number of more than 30 digits"
        raise ValueError(f"it describes a part with {name} = {size}, which its weights do not fill")
    if isinstance(config, list):
        if name in SHAPES and all(type(side) is int for side in config):
            refuse_sizes(prod(config), weights, f"the product of {name}")
        for part in config:
            refuse_sizes(part, weights, name)
    if isinstance(config, dict):
        for key, part in config.items():
            refuse_sizes(part, weights, key)


class _Bounded(TorchDispatchMode):
    """Refuses to make more numbers, in all, than parts of a file with these weights have."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.left = MOST + 4 * _numbers_in(weights)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        names = {argument.name for argument in func._schema.arguments}
        kwargs = kwargs or {}
        if "device" in names and "self" not in names:
            # On this device tensors have a shape, and no memory.
            self.left -= func(*args, **{**kwargs, "device": "meta"}).numel()
        if self.left < 0:
            raise ValueError("it describes parts of a size that its weights do not fill")
        return func(*args, **kwargs)


@ONE_THREAD
def load(
    folder: str | Path,
    *,
    model: Given = None,
    guide: Given = None,
    parts: Iterable[type[nn.Module]] = (),
) -> FitResult:
    """Read a fitted explainer that :func:`save` wrote; it gives the same explanations.

    Use it in another session, or on another machine, on what :func:`save` wrote there; then explain
    new rows with :func:`lexppl.explain`.

    Nothing in a file is run: its parts are the library's own, or those of `parts`. A checksum is no
    signature, though: who can write the files can write it too.

    Args:
        folder: where it was saved.
        model: for a program of your own, a function that builds it (or one such module).
        guide: the same for its guide, or one of Pyro's classes, as `fit` takes it. Not needed for
            AutoNormal, AutoDiagonalNormal, AutoMultivariateNormal, AutoLowRankMultivariateNormal
            and AutoDelta, which are rebuilt on the model that is loaded.
        parts: classes of your own that the description names.

    Raises:
        FileNotFoundError: no explainer there.
        lexppl.saving.UnreadableFileError: a `ValueError` that names the file: damaged, of another
            format, not of this library, or of parts that are not known.
        ValueError: a model that needs `model=`, weights that are not of the one given, or a model
            whose latents are not, in their order, those that the guide was fitted to.
    """
    path = Path(folder) / WEIGHTS
    if not path.is_file():
        raise FileNotFoundError(f"{folder} has no {WEIGHTS}; it is not a saved explainer")
    content = path.read_bytes()
    described = _described(path, content)
    with refused_by_name(path):
        weights = from_bytes(content)
        stats = {n: t.numpy() for n, t in own_tensors(f"{SAMPLER}.", weights).items()}
        fields = fields_from(described, stats)
        numbers = {kind: list(described["numbers"][kind]) for kind in ("model", "guide")}
    allowed = {**known_parts(), **{part.__name__: part for part in parts}}
    saved = _Saved(path, described, numbers, weights, allowed)
    count = len(fields["best_epoch"])
    if "sampler" not in fields:
        models = [saved.module("model", r, model) for r in range(count)]
        guides = [saved.module("guide", r, guide, models[r]) for r in range(count)]
    else:
        models = [saved.module("model", 0, model)] * count
        with refused_by_name(path):
            draws = [own_tensors(f"guide.{r}.", weights) for r in range(count)]
            guides = [SampledGuide.of_state(tensors) for tensors in draws]
    return FitResult(models=models, guides=guides, **fields)


def _described(path: Path, content: bytes) -> dict[str, Any]:
    """The description in the metadata of the weights; refuses another checksum."""
    with refused_by_name(path):
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        text = header.get("__metadata__", {}).get(METADATA)
        if text is None:
            raise ValueError("it has no description, which save() writes into it")
        described, seal = description_and_seal(path, text, FORMAT)
        refuse_changed(path, checksum_of(_with_checksum(content, seal, BLANK)), seal)
        return described


@dataclass(frozen=True)
class _Saved:
    """What a file holds, and the parts that may be built."""

    path: Path
    described: Mapping[str, Any]
    numbers: Mapping[str, list[Any]]
    weights: Mapping[str, Tensor]
    allowed: Mapping[str, type[nn.Module]]

    def module(self, kind: str, replicate: int, source: Any, program: Any = None) -> Any:
        """The model or guide of a replicate with its weights, or None where there is none."""
        tensors = own_tensors(f"{kind}.{replicate}.", self.weights)
        described = self.described.get(kind)
        if described is None and not tensors:
            return None
        refused = partial(refused_by_name, self.path)
        keys = set(described) if isinstance(described, dict) else set()
        built_by = source.func if isinstance(source, partial) else source
        module: Any
        if isinstance(built_by, type) and issubclass(built_by, AutoGuide):
            module = source(program)
        elif isinstance(source, nn.Module):
            module = copy.deepcopy(source)
        elif source is not None:
            module = ProgramFunction(source) if is_program(source) else with_module(source())
        elif described is None or "class" in keys:
            named = " ".join(str((described or {}).get("class", "module")).split())
            raise ValueError(
                f"the {kind} is a {named}, a program of your own: give {kind}= to load, a function "
                "that builds it"
            )
        else:
            with refused():
                refuse_sizes(described, self.weights)
                if AUTOMATIC in keys:
                    module = rebuilt_guide(described, program, tensors)
                else:
                    # First weights are overwritten, and must not move the global random state.
                    with own_random_state(), _Bounded(self.weights):
                        module = rebuild(described, self.allowed)
                if not isinstance(module, nn.Module):
                    raise ValueError(f"{kind} describes no part, but {module!r}")
        if SITES in keys:
            with refused():
                settle_guide(module, described, program, own_tensors(ROW, self.weights))
        try:
            _put(module, tensors)
        except (RuntimeError, ValueError, TypeError, AttributeError) as error:
            reason = " ".join(str(error).split())
            if source is not None:
                raise ValueError(
                    f"the weights in {self.path.parent} are not those of the {kind} that {kind}= "
                    f"gives: {reason}"
                ) from error
            reason = f"its weights are not those of what it describes: {reason}"
            raise UnreadableFileError(self.path, reason) from error
        with refused():
            for number in self.numbers[kind]:
                _set(module, number["path"], number["name"], number["values"][replicate])
        return module.eval()


def _put(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load weights into a module; refuses weights of another numeric type."""
    folds = {name.split(".")[2] for name in tensors if name.startswith("predictor.predictors.")}
    if folds and not isinstance(predictor := module.get_submodule("predictor"), CrossFitted):
        if len(folds) * _numbers_in(predictor.state_dict()) > _numbers_in(tensors):
            raise ValueError(f"they are too few for predictors of {len(folds)} folds")
        module.predictor = CrossFitted([copy.deepcopy(predictor) for _ in folds])
    hold_saved(module, tensors)
    for name, tensor in module.state_dict().items():
        held = tensors.get(name, tensor)
        both = held.is_floating_point() and tensor.is_floating_point()
        if held.dtype != tensor.dtype and not both:
            raise ValueError(f"{name} is {held.dtype}, and must be {tensor.dtype}")
    module.load_state_dict(tensors, assign=True)


def _set(module: nn.Module, path: str, name: str, value: Any) -> None:
    part = module.get_submodule(path)
    for number in (vars(part).get(name), value):
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ValueError(f"{name!r} is no number of the part {path!r}")
    setattr(part, name, value)
