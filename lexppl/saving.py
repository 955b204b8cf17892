"""Fitted explainers as files: weights as safetensors, the description as JSON; loading runs no
code from them."""

import copy
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import nn

import lexppl.inference
import lexppl.models
import lexppl.systems
from lexppl.atomic_output import output_file, write_through
from lexppl.inference import FitResult, History, NestedIWAE, SampledGuide, SamplerRecord
from lexppl.inference.replicates.replicate_hyperparameters import replicate_hyperparameters
from lexppl.inference.training.compiled.record import CompiledSteps
from lexppl.models.priors.families import prior_from
from lexppl.models.priors.with_prior import weight_priors, with_prior, written_class

FORMAT, FORMAT_WITH_NUMBERS, FORMAT_WITH_CHAINS = 1, 2, 3
"""The second has numbers in which replicates differ, the third one program for all chains of a
sampler, which older versions would not read."""
FORMER_NAMES = MappingProxyType({"FullProgram": "UnmaskedPredictor"})
"""Parts as files of before call them."""
WEIGHTS = "weights.safetensors"
DESCRIPTION = "explainer.json"
BOOTSTRAP = "bootstrap"
SAMPLER = "sampler"


def known_parts() -> Mapping[str, type[nn.Module]]:
    """The library's parts that can describe themselves, by class name."""
    found = {}
    rooms = (lexppl.models, lexppl.inference, lexppl.systems)
    for name, part in (item for room in rooms for item in vars(room).items()):
        if isinstance(part, type) and issubclass(part, nn.Module) and hasattr(part, "config"):
            found[name] = part
    return MappingProxyType(found | {old: found[name] for old, name in FORMER_NAMES.items()})


def describe(part: Any, path: str = "model") -> Any:
    """A part as JSON: its class and the arguments that rebuild it, parts within parts.

    Where weights have priors (:func:`lexppl.models.with_prior`), each one's prior stands beside.

    Raises:
        TypeError: something that cannot be described, by its place.

    Example:
        >>> from lexppl.models import MLP
        >>> describe(MLP(2, 1, hidden=(4,), seed=0))["config"]["hidden"]
        [4]
    """
    if isinstance(part, nn.Module):
        priors = weight_priors(part)
        described = _describe(part, path)
        return {"module": described, "prior": priors} if priors else described
    return _describe(part, path)


def _describe(part: Any, path: str) -> Any:
    if isinstance(part, nn.Module):
        config: Callable[[], dict[str, Any]] | None = getattr(part, "config", None)
        if config is None:
            raise TypeError(
                f"{path} is a {type(part).__name__}, which cannot describe itself: make the class "
                "a lexppl.configured.Configured, or give it a method config() that returns its "
                f"constructor's arguments, and load with parts=[{type(part).__name__}]"
            )
        return {
            "part": written_class(part).__name__,
            "config": {k: _describe(v, f"{path}.{k}") for k, v in config().items()},
        }
    if isinstance(part, Mapping):
        return {str(k): _describe(v, f"{path}.{k}") for k, v in part.items()}
    if isinstance(part, list | tuple):
        return [_describe(v, f"{path}[{i}]") for i, v in enumerate(part)]
    if part is None or isinstance(part, bool | int | float | str):
        return part
    if isinstance(part, np.generic):
        return part.item()
    raise TypeError(f"{path} is a {type(part).__name__}, which is neither a part nor JSON")


def rebuild(description: Any, parts: Mapping[str, type[nn.Module]] | None = None) -> Any:
    """A part from its description, with weights yet to be loaded.

    Args:
        description: what :func:`describe` returned.
        parts: the classes that may be built, by name; the library's if None.

    Raises:
        ValueError: a class that is not among the parts, a prior of an unknown distribution.

    Example:
        >>> from lexppl.models import MLP
        >>> rebuild(describe(MLP(2, 1, hidden=(4,), seed=0))).hidden
        (4,)
    """
    parts = known_parts() if parts is None else parts
    if isinstance(description, dict) and set(description) == {"part", "config"}:
        name = description["part"]
        if name not in parts:
            raise ValueError(
                f"the file describes a {name}, which is not among the known parts "
                f"{sorted(parts)}; give its class to load as parts=[{name}]"
            )
        return parts[name](**{k: rebuild(v, parts) for k, v in description["config"].items()})
    if isinstance(description, dict) and set(description) == {"module", "prior"}:
        priors = {name: prior_from(prior) for name, prior in description["prior"].items()}
        return with_prior(rebuild(description["module"], parts), priors)
    if isinstance(description, dict):
        return {k: rebuild(v, parts) for k, v in description.items()}
    if isinstance(description, list):
        return [rebuild(v, parts) for v in description]
    return description


def save(result: FitResult, folder: str | Path) -> None:
    """Write a fitted explainer: `weights.safetensors` and `explainer.json`.

    A model that cannot describe itself is saved by its weights alone, and needs `model=` to be
    loaded. Its bootstrap, if there is one, is saved alike in a folder below; chains of a sampler
    are draws of the one program, saved once. Each file is written
    aside and then renamed, so that a failure leaves no half of one.

    Args:
        result: what `fit` returned.
        folder: made if it is not there.

    Raises:
        TypeError: a part that holds what is no tensor, such as an estimator.
        OSError: the folder cannot be written.
    """
    folder = Path(folder)
    for module in (*result.models, *result.guides):
        _refuse_unsaved(module)
    weights = {}
    for kind, modules in (("model", result.models), ("guide", result.guides)):
        for r, module in enumerate(modules):
            # Chains are of one program.
            again = r > 0 and module is modules[0]
            if isinstance(module, nn.Module) and not again:
                for name, tensor in module.state_dict().items():
                    weights[f"{kind}.{r}.{name}"] = tensor.detach().clone().contiguous().cpu()
    if result.sampler is not None:
        for name, values in result.sampler.sample_stats.items():
            weights[f"{SAMPLER}.{name}"] = torch.from_numpy(np.array(values))
    numbers = {"model": _numbers_of(result.models), "guide": _numbers_of(result.guides)}
    description = {
        "format": _format(result, numbers),
        "version": version("lexppl"),
        "replicates": result.replicates,
        "model": _described(result.models[0]),
        "guide": _described(result.guides[0]),
        "numbers": numbers,
        "objective": _objective(result.objective),
        "event_shape": list(result.event_shape),
        "labels": None if result.labels is None else list(result.labels),
        "entry_names": None if result.entry_names is None else list(result.entry_names),
        "feature_names": None if result.feature_names is None else list(result.feature_names),
        "class_names": None if result.class_names is None else list(result.class_names),
        "best_epoch": result.best_epoch.tolist(),
        "best_valid": [_number(v) for v in result.best_valid.tolist()],
        "collapse": result.collapse,
        "interrupted": result.interrupted,
        "seed": result.seed,
        "row_weights": result.row_weights,
        "bootstrap": result.bootstrap is not None,
        SAMPLER: _sampler(result.sampler),
        "compiled": None if result.compiled is None else result.compiled.as_json(),
        "rows": None if result.rows is None else list(result.rows),
        "history": {
            name: np.where(np.isfinite(values), values, np.nan).tolist()
            for name, values in vars(result.history).items()
        },
    }
    text = json.dumps(_finite(description), indent=1)
    with (
        output_file(folder / DESCRIPTION, overwrite=True) as described,
        output_file(folder / WEIGHTS, overwrite=True) as weighed,
    ):
        write_through(weighed, to_bytes(weights))
        write_through(described, text.encode())
    if result.bootstrap is not None:
        save(result.bootstrap, folder / BOOTSTRAP)


def load(
    folder: str | Path,
    *,
    model: nn.Module | Callable[[], nn.Module] | None = None,
    guide: nn.Module | Callable[[], nn.Module] | None = None,
    parts: Iterable[type[nn.Module]] = (),
) -> FitResult:
    """Read a fitted explainer that :func:`save` wrote; it gives the same explanations.

    Args:
        folder: where it was saved.
        model: for a program of your own, a function that builds it (or one such module).
        guide: the same for its guide.
        parts: classes of your own that the description names.

    Raises:
        FileNotFoundError: no explainer there.
        ValueError: files that are not of this library or of another format, or a model that needs
            `model=`.
    """
    folder = Path(folder)
    for name in (WEIGHTS, DESCRIPTION):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} has no {name}; it is not a saved explainer")
    try:
        description = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{folder / DESCRIPTION} is not JSON: {error}") from error
    known = (FORMAT, FORMAT_WITH_NUMBERS, FORMAT_WITH_CHAINS)
    if not isinstance(description, dict) or description.get("format") not in known:
        raise ValueError(
            f"{folder / DESCRIPTION} is not of the formats {known}, which this version reads"
        )
    weights = load_file(folder / WEIGHTS)
    allowed = {**known_parts(), **{part.__name__: part for part in parts}}
    count = int(description["replicates"])
    sampler = _sampler_from(description.get(SAMPLER), weights)
    if sampler is None:
        models = [_restored("model", r, description, model, allowed, weights) for r in range(count)]
        guides = [_restored("guide", r, description, guide, allowed, weights) for r in range(count)]
    else:
        models = [_restored("model", 0, description, model, allowed, weights)] * count
        guides = [SampledGuide.of_state(_own(f"guide.{r}.", weights)) for r in range(count)]
    history = {k: np.array(v, dtype=float) for k, v in description["history"].items()}
    history["stage"] = history["stage"].astype(int)
    bootstrap = None
    if description.get("bootstrap"):
        bootstrap = load(folder / BOOTSTRAP, model=model, guide=guide, parts=parts)
    return FitResult(
        models=models,
        guides=guides,
        objective=None if description["objective"] is None else _objective_from(description),
        history=History(**history),
        best_epoch=np.array(description["best_epoch"]),
        best_valid=np.array(description["best_valid"], dtype=float),
        collapse=description["collapse"],
        interrupted=description["interrupted"],
        event_shape=tuple(description["event_shape"]),
        labels=_tuple(description["labels"]),
        seed=description["seed"],
        entry_names=_tuple(description["entry_names"]),
        feature_names=_tuple(description["feature_names"]),
        class_names=_tuple(description["class_names"]),
        row_weights=description.get("row_weights"),
        bootstrap=bootstrap,
        rows=_tuple(description.get("rows")),
        sampler=sampler,
        compiled=_compiled(description.get("compiled")),
    )


def _compiled(told: Any) -> CompiledSteps | None:
    return None if told is None else CompiledSteps.from_json(told)


def _refuse_unsaved(module: Any) -> None:
    parts = module.modules() if isinstance(module, nn.Module) else ()
    for part in parts:
        reason = getattr(part, "cannot_be_saved", None)
        if reason is not None:
            raise TypeError(f"this explainer cannot be saved: {reason}")


def _format(result: FitResult, numbers: Mapping[str, list[Any]]) -> int:
    if result.sampler is not None:
        return FORMAT_WITH_CHAINS
    return FORMAT_WITH_NUMBERS if any(numbers.values()) else FORMAT


def _own(beginning: str, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors of a file whose names begin so, by the rest of their names."""
    return {
        name.removeprefix(beginning): tensor
        for name, tensor in weights.items()
        if name.startswith(beginning)
    }


def _sampler(record: SamplerRecord | None) -> dict[str, Any] | None:
    if record is None:
        return None
    told = asdict(record)
    del told["sample_stats"]
    return told


def _sampler_from(told: Any, weights: Mapping[str, torch.Tensor]) -> SamplerRecord | None:
    if told is None:
        return None
    stats = _own(f"{SAMPLER}.", weights)
    return SamplerRecord(**told, sample_stats={name: t.numpy() for name, t in stats.items()})


def _restored(
    kind: str, replicate: int, description: Any, given: Any, allowed: Any, weights: Any
) -> nn.Module | None:
    own = _own(f"{kind}.{replicate}.", weights)
    described = description[kind]
    if described is None and not own:
        return None
    if given is not None:
        module = given() if not isinstance(given, nn.Module) else copy.deepcopy(given)
    elif described is not None and "class" not in described:
        # What modules draw as initial weights is overwritten, and must not move the global state.
        with torch.random.fork_rng(devices=[]):
            module = rebuild(described, allowed)
    else:
        named = described["class"] if described else "module"
        raise ValueError(
            f"the {kind} is a {named}, a program of your own: give {kind}= to load, a function "
            "that builds it"
        )
    module.load_state_dict(own, assign=True)
    for number in description.get("numbers", {}).get(kind, []):
        setattr(module.get_submodule(number["path"]), number["name"], number["values"][replicate])
    restored: nn.Module = module.eval()
    return restored


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


def _described(module: Any) -> Any:
    if not isinstance(module, nn.Module):
        return None
    try:
        return describe(module)
    except TypeError as error:
        return {"class": type(module).__name__, "why": str(error)}


def _objective(objective: Any) -> Any:
    if not isinstance(objective, NestedIWAE):
        return None
    return {
        "masks": None if math.isinf(objective.masks) else objective.masks,
        "imputations": objective.imputations,
        "samples": objective.samples,
    }


def _objective_from(description: Any) -> NestedIWAE:
    described = description["objective"]
    masks = math.inf if described["masks"] is None else described["masks"]
    return NestedIWAE(masks, described["imputations"], samples=described["samples"])


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _finite(value: Any) -> Any:
    """JSON has no NaN: put null in its place."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return _number(value) if isinstance(value, float) else value


def _tuple(value: list[Any] | None) -> tuple[Any, ...] | None:
    return None if value is None else tuple(value)
