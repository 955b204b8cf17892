"""Explainers as JSON: parts, rebuilt by the library alone, guides, and fields of a fit."""

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from itertools import zip_longest
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from pyro.infer.autoguide import (
    AutoDelta,
    AutoDiagonalNormal,
    AutoGuide,
    AutoLowRankMultivariateNormal,
    AutoMultivariateNormal,
    AutoNormal,
)
from torch import Tensor, nn

from lexppl.argument_checks import shaped
from lexppl.configured import Configured, made_of, refuse_types
from lexppl.inference import FitResult, NestedIWAE
from lexppl.inference.contexts import keep_parameters_local, program_settings, seeded
from lexppl.inference.posterior.automatic_guides import set_up
from lexppl.inference.posterior.global_draws import SamplerRecord
from lexppl.inference.training.preparation import automatic_guides
from lexppl.inference.training.result import History
from lexppl.inference.training.settings import CompiledSteps
from lexppl.models.priors import prior_from, weight_priors, with_prior, written_class
from lexppl.threads import evaluating

# Where the parts are that a file may name.
ROOMS = ("lexppl.models.", "lexppl.inference.", "lexppl.systems.")


def known_parts() -> Mapping[str, type[nn.Module]]:
    """The library's parts that can describe themselves, by class name."""
    parts: dict[str, type[nn.Module]] = {}
    kinds: list[type] = list(Configured.__subclasses__())
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        name, home = kind.__name__, kind.__module__
        # Not the classes that Pyro makes of these, nor those of a user.
        is_public = getattr(sys.modules.get(home), name, None) is kind and not name.startswith("_")
        if is_public and issubclass(kind, nn.Module) and home.startswith(ROOMS):
            parts[name] = kind
    return MappingProxyType(parts)


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
METADATA = "lexppl"  # Entry of the weights' metadata that has the description
SAMPLER = "sampler"
# Arrays of a fit, one number a replicate.
BY_REPLICATE = {"best_epoch": int, "best_valid": float, "skipped_steps": int}

PARTS = ("models", "guides", "modules", "objective", "history", "compiled", SAMPLER)
FIELDS = tuple(field.name for field in fields(FitResult) if field.name not in PARTS)
"""Of a fit, which JSON holds as they are."""


def fields_of(result: FitResult) -> dict[str, Any]:
    """The fields of a fit as JSON has them."""
    compiled, sampler, objective = result.compiled, result.sampler, result.objective
    described: dict[str, Any] = {name: getattr(result, name) for name in FIELDS}
    described |= {"replicates": result.replicates, "history": vars(result.history)}
    described["compiled"] = None if compiled is None else vars(compiled)
    described[SAMPLER] = None if sampler is None else {**vars(sampler), "sample_stats": {}}
    described["objective"] = None
    if isinstance(objective, NestedIWAE):
        names = ("masks", "imputations", "samples")
        described["objective"] = {name: getattr(objective, name) for name in names}
    return _plain(described)


def fields_from(described: Mapping[str, Any], sample_stats: Mapping[str, Any]) -> dict[str, Any]:
    """What `FitResult` takes besides models and guides, of what :func:`fields_of` returned."""
    count = described["replicates"]
    fields = {name: described[name] for name in FIELDS}
    refuse_types(FitResult, fields)
    for name in (*BY_REPLICATE, "collapse"):
        shaped(name, fields[name], (count,))
    arguments = {n: tuple(v) if isinstance(v, list) else v for n, v in fields.items()}
    arguments |= {name: np.array(fields[name], dtype=kind) for name, kind in BY_REPLICATE.items()}
    arguments["collapse"] = fields["collapse"]
    compiled, sampler, objective = (described[n] for n in ("compiled", SAMPLER, "objective"))
    if compiled is not None:
        arguments["compiled"] = made_of(CompiledSteps, compiled)
    if sampler is not None:
        arguments["sampler"] = made_of(SamplerRecord, {**sampler, "sample_stats": sample_stats})
    if objective is not None:
        masks = objective["masks"]
        arguments["objective"] = NestedIWAE(**{**objective, "masks": masks or math.inf})
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
    return {"objective": None, **arguments, "history": History(**arrays)}


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
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


AUTOMATIC, SITES = "automatic", "sites"
ROW = "guide_row."  # What names of columns begin with, on zeros of which a guide is run
# Classes that a file may name.
REBUILT = (
    *(AutoDelta, AutoDiagonalNormal, AutoNormal),
    *(AutoLowRankMultivariateNormal, AutoMultivariateNormal),
)
KINDS = MappingProxyType({kind.__name__: kind for kind in REBUILT})
# Arguments of theirs, and what they are called afterwards.
SETTINGS = MappingProxyType({"init_scale": "_init_scale", "rank": "rank"})


def described_guide(guide: AutoGuide) -> dict[str, Any]:
    """An automatic guide that has been run as JSON, its sites in the order of its numbers; of
    one that no file can rebuild its class and its sites alone."""
    name, sites = type(guide).__name__, {SITES: sites_in_order(guide)}
    if type(guide) not in REBUILT or guide.create_plates is not None:
        return {"class": name, "why": f"no file rebuilds {name} as it is", **sites}
    held = vars(guide)
    settings = {name: held[called] for name, called in SETTINGS.items() if called in held}
    return {AUTOMATIC: name, "settings": settings, **sites}


def rows_seen(guide: Any) -> dict[str, Tensor]:
    """A row of zeros of each column that a guide's automatic ones were run on, by name."""
    traces = [
        guide_part.prototype_trace
        for guide_part in automatic_guides([guide])
        if guide_part.prototype_trace
    ]
    columns = traces[0].nodes["_INPUT"]["args"] if traces else ()
    return {f"{ROW}{i}": column.new_zeros(1, *column.shape[1:]) for i, column in enumerate(columns)}


def rebuilt_guide(
    described: Mapping[str, Any], program: Any, weights: Mapping[str, Tensor]
) -> AutoGuide:
    """An automatic guide, yet to be run, from what :func:`described_guide` returned."""
    name, settings = described[AUTOMATIC], described["settings"]
    if name not in list(KINDS):
        raise ValueError(f"its guide is a {name!r}, and must be one of {list(KINDS)}")
    rank = settings.get("rank")
    if rank is not None and not any(rank in tensor.shape for tensor in weights.values()):
        raise ValueError(f"its guide is of rank {rank}, which its weights are not")
    return KINDS[name](program, **{name: settings[name] for name in SETTINGS if name in settings})


def settle_guide(guide: Any, described: Any, program: Any, rows: Mapping[str, Tensor]) -> None:
    """Run the automatic guides of a guide that have not been, as `fit` does, and refuse sites
    unlike the file's."""
    saved = described[SITES]
    for automatic in automatic_guides([guide]):
        if automatic.prototype_trace is None:
            keep_parameters_local(program)
            with seeded(0), program_settings(validate=False), evaluating(program):
                set_up(
                    automatic, [program], tuple(torch.cat([rows[n], rows[n]]) for n in sorted(rows))
                )
    sites = sites_in_order(guide)
    for place, (old, new) in enumerate(zip_longest(saved, sites)):
        if old != new:
            raise ValueError(
                f"site {place + 1} of the guide was {_named(old)} and is {_named(new)}, and its "
                "numbers stand in the order of its sites: give the program that was fitted, and a "
                "guide that has not been run"
            )


def sites_in_order(guide: Any) -> list[dict[str, Any]]:
    """The sites of a guide's automatic ones that have been run, as JSON."""
    return [
        {
            "name": name,
            "shape": list(node["value"].shape),
            "event_dim": node["fn"].event_dim,
            "support": " ".join(str(node["fn"].support).split()),
            "plates": [[frame.name, frame.size] for frame in node["cond_indep_stack"]],
        }
        for automatic in automatic_guides([guide])
        if automatic.prototype_trace is not None
        for name, node in automatic.prototype_trace.iter_stochastic_nodes()
    ]


def _named(site: Any) -> str:
    return "none" if site is None else f"{site['name']!r} {tuple(site['shape'])}, {site['support']}"
