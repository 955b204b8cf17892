"""Explainers as JSON: parts, rebuilt by the library's own classes alone, and fields of a fit."""

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

import numpy as np
from torch import Tensor, nn

from lexppl.configured import Configured, made_of, refuse_types
from lexppl.inference import FitResult, NestedIWAE
from lexppl.inference.posterior.global_draws import SamplerRecord
from lexppl.inference.training.result import History
from lexppl.inference.training.settings import CompiledSteps
from lexppl.models.priors.with_prior import prior_from, weight_priors, with_prior, written_class

# Where the parts are that a file may name.
ROOMS = ("lexppl.models.", "lexppl.inference.", "lexppl.systems.")


def known_parts() -> Mapping[str, type[nn.Module]]:
    """The library's parts that can describe themselves, by class name."""
    found: dict[str, type[nn.Module]] = {}
    kinds: list[type] = list(Configured.__subclasses__())
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        name, home = kind.__name__, kind.__module__
        # Not the classes that Pyro makes of these, nor those of a user.
        own = getattr(sys.modules.get(home), name, None) is kind and not name.startswith("_")
        if own and issubclass(kind, nn.Module) and home.startswith(ROOMS):
            found[name] = kind
    return MappingProxyType(found)


def describe(part: Any, path: str = "model") -> Any:
    """A part as JSON: its class and the arguments that rebuild it, parts within parts, with the
    prior of weights that have one (:func:`lexppl.models.with_prior`).

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
    """A part from what :func:`describe` returned, with weights yet to be loaded.

    Args:
        parts: the classes that may be built, by name; the library's if None.

    Raises:
        ValueError: a class that is not among the parts, an argument that no description has or
            of another type, a prior of an unknown distribution.

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
                f"the file describes a {name}, which is not among the known parts: give its class "
                f"to load as parts=[{name}]; known are {sorted(parts)}"
            )
        _refuse_beginnings(parts[name], description["config"])
        config = {k: rebuild(v, parts) for k, v in description["config"].items()}
        refuse_types(parts[name], config)
        return parts[name](**config)
    if isinstance(description, dict) and set(description) == {"module", "prior"}:
        priors = {name: prior_from(prior) for name, prior in description["prior"].items()}
        return with_prior(rebuild(description["module"], parts), priors)
    if isinstance(description, dict):
        return {k: rebuild(v, parts) for k, v in description.items()}
    if isinstance(description, list):
        return [rebuild(v, parts) for v in description]
    return description


def _refuse_beginnings(part: type[nn.Module], config: Mapping[str, Any]) -> None:
    """Refuse arguments that say how first weights are made: one of them fetches files."""
    kept_out = {name for kind in part.__mro__ for name in vars(kind).get("not_described", ())}
    text = sorted(kept_out & set(config))
    if text:
        raise ValueError(f"the file gives {text[0]} of a {part.__name__}, which no file has")


FORMAT = 6  # The one that is read
WEIGHTS = "weights.safetensors"
DESCRIPTION = "explainer.json"
SAMPLER = "sampler"
WEIGHTS_CHECKSUM = "weights_sha256"
# Arrays of a fit, one number a replicate.
BY_REPLICATE = {"best_epoch": int, "best_valid": float, "skipped_steps": int}

# Of a fit, which JSON holds as they are.
FIELDS = (
    *BY_REPLICATE,
    *("collapse", "interrupted", "event_shape", "unit_pixels", "labels", "entry_names"),
    *("feature_names", "class_names", "ended", "seed", "row_weights", "rows", "steps"),
)


def fields_of(result: FitResult) -> dict[str, Any]:
    """The fields of a fit as JSON has them."""
    compiled, sampler, objective = result.compiled, result.sampler, result.objective
    described: dict[str, Any] = {name: getattr(result, name) for name in FIELDS}
    described |= {
        "replicates": result.replicates,
        "history": vars(result.history),
        "compiled": None if compiled is None else asdict(compiled),
        SAMPLER: None if sampler is None else {**asdict(sampler), "sample_stats": {}},
        "objective": None,
    }
    if isinstance(objective, NestedIWAE):
        names = ("masks", "imputations", "samples")
        described["objective"] = {name: getattr(objective, name) for name in names}
    plain: dict[str, Any] = _plain(described)
    return plain


def fields_from(described: Mapping[str, Any], sample_stats: Mapping[str, Any]) -> dict[str, Any]:
    """What `FitResult` takes besides models and guides, of what :func:`fields_of` returned."""
    count = described["replicates"]
    fields = {name: described[name] for name in FIELDS}
    refuse_types(FitResult, fields)
    for name in (*BY_REPLICATE, "collapse"):
        if len(fields[name]) != count:
            raise ValueError(f"{name} must have an entry for each of {count} replicates")
    found = {n: tuple(v) if isinstance(v, list) else v for n, v in fields.items()}
    found |= {name: np.array(fields[name], dtype=kind) for name, kind in BY_REPLICATE.items()}
    found["collapse"] = fields["collapse"]
    compiled, sampler, objective = (described[n] for n in ("compiled", SAMPLER, "objective"))
    if compiled is not None:
        found["compiled"] = made_of(CompiledSteps, compiled)
    if sampler is not None:
        found["sampler"] = made_of(SamplerRecord, {**sampler, "sample_stats": sample_stats})
    if objective is not None:
        masks = objective["masks"]
        found["objective"] = NestedIWAE(**{**objective, "masks": masks or math.inf})
    history = described["history"]
    refuse_types(History, history)
    epochs = len(history["stage"])
    shapes = {"train": (epochs, count), "valid": (epochs, count)}
    arrays = {
        name: np.array(values, dtype=int if name == "stage" else float).reshape(
            shapes.get(name, (epochs,))
        )
        for name, values in history.items()
    }
    return {"objective": None, **found, "history": History(**arrays)}


def own_tensors(beginning: str, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of a file whose names begin so, by the rest of their names."""
    return {
        name.removeprefix(beginning): tensor
        for name, tensor in weights.items()
        if name.startswith(beginning)
    }


def _plain(value: Any) -> Any:
    """As JSON has it, which knows no NaN and no infinity: null stands in their place."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
