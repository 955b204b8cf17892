"""What stands in the files of an explainer besides its parts: names, and fields by their types."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from torch import Tensor

from lexppl.inference import FitResult, History, NestedIWAE, SamplerRecord
from lexppl.inference.training.settings import CompiledSteps
from lexppl.type_checks import made_of, refuse_types

FORMAT = 6
"""The one that is read."""
WEIGHTS = "weights.safetensors"
DESCRIPTION = "explainer.json"
SAMPLER = "sampler"
WEIGHTS_CHECKSUM = "weights_sha256"

BY_REPLICATE = {"best_epoch": int, "best_valid": float, "skipped_steps": int}
"""Arrays of a fit, one number a replicate."""
FIELDS = (
    *BY_REPLICATE,
    *("collapse", "interrupted", "event_shape", "unit_pixels", "labels", "entry_names"),
    *("feature_names", "class_names", "ended", "seed", "row_weights", "rows", "steps"),
)
"""Of a fit, which JSON holds as they are."""


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
