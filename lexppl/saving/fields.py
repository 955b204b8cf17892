"""The fields of a description besides the parts: each of its type, or refused by its name."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lexppl.inference import History, NestedIWAE
from lexppl.inference.training.rows.row_weights import DIRICHLET, GIVEN
from lexppl.inference.training.settings import CompiledSteps
from lexppl.saving.layout import SAMPLER

WEIGHTINGS = (DIRICHLET, GIVEN)


@dataclass(frozen=True)
class Number:
    """A number of a part that differs between replicates, such as λ or k.

    Args:
        path: of the part in its model.
        name: of the number in its part.
        values: by replicate.
    """

    path: str
    name: str
    values: tuple[float, ...]


def result_fields(described: Mapping[str, Any]) -> dict[str, Any]:
    """What :class:`lexppl.inference.FitResult` takes that is neither a part nor of the sampler.

    Args:
        described: the description.

    Raises:
        ValueError: a field that is missing or of another type or length.
    """
    replicates = _read(described, "replicates", _is_count, "a whole number of at least 1")
    _read(described, "version", _is_text, "a name")
    names = _or_none(_list_of(_is_text))
    best_epoch = _read(described, "best_epoch", _list_of(_is_index), "a list of epochs")
    best_valid = _read(described, "best_valid", _list_of(_is_number_or_none), "a list of numbers")
    collapse = _read(described, "collapse", _list_of(_or_none(_is_text)), "a list of names or null")
    for name, values in (
        ("best_epoch", best_epoch),
        ("best_valid", best_valid),
        ("collapse", collapse),
    ):
        if len(values) != replicates:
            raise ValueError(
                f"{name} must have an entry for each of {replicates} replicates; it has "
                f"{len(values)}"
            )
    return {
        "objective": _objective(described),
        "history": _history(described, replicates),
        "best_epoch": np.array(best_epoch, dtype=int),
        "best_valid": np.array(best_valid, dtype=float),
        "collapse": collapse,
        "interrupted": _read(described, "interrupted", _is_flag, "true or false"),
        "event_shape": tuple(
            _read(described, "event_shape", _list_of(_is_count), "a list of sizes")
        ),
        "unit_pixels": _read(described, "unit_pixels", _is_flag, "true or false"),
        "labels": _tuple(
            _read(described, "labels", _or_none(_are_labels), "a list of different numbers or null")
        ),
        "skipped_steps": _skipped(described, replicates),
        "ended": _read(described, "ended", _or_none(_is_text), "words or null"),
        "seed": _read(described, "seed", _is_index, "a whole number of at least 0"),
        **{
            name: _tuple(_read(described, name, names, "a list of names or null"))
            for name in ("entry_names", "feature_names", "class_names")
        },
        "row_weights": _read(described, "row_weights", _is_weighting, f"one of {WEIGHTINGS}"),
        "compiled": _compiled(described),
        "rows": _tuple(_read(described, "rows", _or_none(_is_pair), "two counts or null")),
        "steps": _read(described, "steps", _or_none(_is_index), "a count or null"),
    }


def numbers_of(described: Mapping[str, Any], kind: str, replicates: int) -> list[Number]:
    """The numbers of models or guides that differ between replicates.

    Args:
        described: the description.
        kind: "model" or "guide".
        replicates: R.

    Raises:
        ValueError: another form.
    """
    every = _read(described, "numbers", _is_mapping, "numbers by model and guide")
    found = []
    for number in _read(every, kind, _list_of(_is_mapping), "a list"):
        values = _read(number, "values", _list_of(_is_number), "a list of numbers")
        if len(values) != replicates:
            raise ValueError(f"values must be {replicates}, one a replicate; they are {values}")
        path = _read(number, "path", _is_text, "a name")
        found.append(Number(path, _read(number, "name", _is_text, "a name"), tuple(values)))
    return found


def sampler_fields(described: Mapping[str, Any]) -> dict[str, Any] | None:
    """What :class:`lexppl.inference.SamplerRecord` takes besides the statistics of the draws.

    Args:
        described: the description.

    Raises:
        ValueError: another form.
    """
    held = _read(described, SAMPLER, _or_none(_is_mapping), "a description or null")
    if held is None:
        return None
    number = _or_none(_is_number)
    return {
        "name": _read(held, "name", _is_text, "a name"),
        "are_chains": _read(held, "are_chains", _is_flag, "true or false"),
        "note": _read(held, "note", _or_none(_is_text), "words or null"),
        "r_hat": _read(held, "r_hat", number, "a number or null"),
        "ess": _read(held, "ess", number, "a number or null"),
    }


def _objective(described: Mapping[str, Any]) -> NestedIWAE | None:
    held = _read(described, "objective", _or_none(_is_mapping), "a description or null")
    if held is None:
        return None
    masks = _read(held, "masks", _or_none(_is_count), "a count or null")
    return NestedIWAE(
        math.inf if masks is None else masks,
        _read(held, "imputations", _is_count, "a count"),
        samples=_read(held, "samples", _is_count, "a count"),
    )


def _skipped(described: Mapping[str, Any], replicates: int) -> NDArray[np.int64]:
    counts = _read(described, "skipped_steps", _list_of(_is_index), "a list of counts")
    if len(counts) != replicates:
        raise ValueError(f"skipped_steps must be {replicates} counts; they are {len(counts)}")
    return np.array(counts, dtype=int)


def _compiled(described: Mapping[str, Any]) -> CompiledSteps | None:
    held = _read(described, "compiled", _or_none(_is_mapping), "a description or null")
    if held is None:
        return None
    counts = {
        name: _read(held, name, _is_index, "a count") for name in ("compiled", "traced", "eager")
    }
    reasons = _read(held, "reasons", _list_of(_is_text), "a list of words")
    return CompiledSteps(
        _read(held, "backend", _is_text, "a name"), **counts, reasons=tuple(reasons)
    )


def _history(described: Mapping[str, Any], replicates: int) -> History:
    held = _read(described, "history", _is_mapping, "four lists by name")
    by_epoch = _list_of(_is_number_or_none)
    stage = _read(held, "stage", _list_of(_is_index), "a list of whole numbers")
    seconds = _read(held, "seconds", by_epoch, "a list of numbers")
    losses: dict[str, NDArray[np.float64]] = {}
    for name in ("train", "valid"):
        rows = _read(held, name, _list_of(by_epoch), "a list of lists of numbers")
        if len(rows) != len(stage) or any(len(row) != replicates for row in rows):
            raise ValueError(f"{name} must be a list of {replicates} numbers for each epoch")
        losses[name] = np.array(rows, dtype=float)
    if len(seconds) != len(stage):
        raise ValueError(f"seconds must have one number for each of {len(stage)} epochs")
    return History(stage=np.array(stage, dtype=int), seconds=np.array(seconds, float), **losses)


def _read(
    described: Mapping[str, Any],
    name: str,
    fits: Callable[[Any], bool],
    expected: str,
) -> Any:
    if name not in described:
        raise ValueError(f"it has no {name}")
    value = described[name]
    if not fits(value):
        raise ValueError(f"{name} must be {expected}; it is {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    held = repr(value)
    return held if len(held) <= 60 else f"{held[:59]}…"


def _list_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(fits, value))


def _or_none(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or fits(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_mapping(value: Any) -> bool:
    return isinstance(value, dict)


def _is_weighting(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value in WEIGHTINGS)


def _is_whole(value: Any) -> bool:
    return type(value) is int and abs(value) < 2**64


def _is_index(value: Any) -> bool:
    return _is_whole(value) and value >= 0


def _is_count(value: Any) -> bool:
    return type(value) is int and 1 <= value < 2**31


def _is_number(value: Any) -> bool:
    return _is_whole(value) or isinstance(value, float)


def _are_labels(value: Any) -> bool:
    fits = isinstance(value, list) and all(isinstance(v, bool) or _is_number(v) for v in value)
    return fits and len(set(map(type, value))) < 2 and len(set(value)) == len(value)


def _is_number_or_none(value: Any) -> bool:
    return value is None or _is_number(value)


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_index, value))


def _tuple(value: list[Any] | None) -> tuple[Any, ...] | None:
    return None if value is None else tuple(value)
