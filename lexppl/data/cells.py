"""The cells of a column: numbers or levels, which levels, and what is refused by name."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from lexppl.data.listing import counted, listed


def level_of(value: object) -> str:
    """Return the name of a categorical value: ``1``, ``1.0`` and ``"1"`` are one level.

    >>> level_of(1.0), level_of("clerk"), level_of(True)
    ('1', 'clerk', 'True')
    """
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value))
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real) and float(value).is_integer():
        return str(int(float(value)))
    return str(value)


def is_numeric(cells: pd.Series) -> bool:
    """Return whether a column holds numbers, or refuse it where it holds neither these nor levels.

    Raises:
        ValueError: dates, durations, complex numbers, lists.
    """
    if isinstance(cells.dtype, pd.CategoricalDtype) or types.is_bool_dtype(cells.dtype):
        return False
    if types.is_complex_dtype(cells.dtype):
        raise ValueError(f"column {cells.name!r} holds complex numbers; give real ones")
    if types.is_numeric_dtype(cells.dtype):
        return True
    inferred = types.infer_dtype(cells, skipna=True)
    if inferred in ("integer", "floating", "mixed-integer-float", "decimal"):
        return True
    if inferred in ("string", "boolean", "mixed-integer", "empty"):
        return False
    if inferred == "mixed" and cells.map(types.is_scalar).all():
        return False
    raise ValueError(
        f"column {cells.name!r} holds values of kind {inferred!r}; expected numbers, words, "
        "categories or booleans: turn it into one of these or leave it out"
    )


def numbers_of(cells: pd.Series) -> NDArray[np.float64]:
    """Return the column as float64.

    Raises:
        ValueError: missing or infinite values, or cells that are no numbers, with an example.
    """
    values = pd.to_numeric(cells, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    absent = cells.isna().to_numpy()
    words = np.isnan(values) & ~absent
    if words.any():
        raise ValueError(
            f"column {cells.name!r} must hold numbers; {int(words.sum())} cells do not, "
            f"such as {cells[words].iloc[0]!r}"
        )
    if absent.any():
        refuse_missing(cells.to_frame())
    if np.isinf(values).any():
        raise ValueError(
            f"column {cells.name!r} must be finite; "
            f"it has {int(np.isinf(values).sum())} infinite values"
        )
    return values


def missing_in(frame: pd.DataFrame) -> dict[str, int]:
    """Return how many values are missing of each column that lacks any.

    >>> missing_in(pd.DataFrame({"age": [30.0, None], "job": ["smith", "clerk"]}))
    {'age': 1}
    """
    counts = frame.isna().sum()
    return {str(name): int(count) for name, count in counts.items() if count}


def refuse_missing(frame: pd.DataFrame) -> None:
    """Raise ``ValueError`` naming the columns with missing values and how many each has."""
    found = missing_in(frame)
    if found:
        raise ValueError(
            f"missing values in {len(found)} of {frame.shape[1]} columns: {counted(found)}; "
            "fill them in, or give drop_missing=True to drop the rows that have any"
        )


def levels_in(cells: pd.Series, every_category: bool = False) -> tuple[str, ...]:
    """Return the levels that occur: in the order of the categories, of numbers, or of words.

    Args:
        cells: the column.
        every_category: of a pandas category also those that no cell has.

    >>> levels_in(pd.Series(["smith", "clerk", None, "smith"]))
    ('clerk', 'smith')
    """
    if isinstance(cells.dtype, pd.CategoricalDtype):
        known = cells.cat if every_category else cells.cat.remove_unused_categories().cat
        values = known.categories.tolist()
        ordered = values if known.ordered else _in_order(values)
    else:
        ordered = _in_order(cells.dropna().unique().tolist())
    return tuple(dict.fromkeys(level_of(value) for value in ordered))


def _in_order(values: list[Any]) -> list[Any]:
    if all(isinstance(value, numbers.Real) for value in values):
        return sorted(values)
    return sorted(values, key=level_of)


def level_index(
    cells: pd.Series, levels: tuple[str, ...], what: str = "level"
) -> NDArray[np.int64]:
    """Return the place of each cell's level among those that are known, shape ``(N,)``.

    Raises:
        ValueError: cells that are missing, or of a level that is not known.

    >>> level_index(pd.Series(["smith", "clerk"]), ("clerk", "smith")).tolist()
    [1, 0]
    """
    refuse_missing(cells.to_frame())
    codes, uniques = pd.factorize(cells)
    position = {level: index for index, level in enumerate(levels)}
    names = [level_of(value) for value in uniques]
    unseen = [name for name in names if name not in position]
    if unseen:
        raise ValueError(
            f"column {cells.name!r} has {what} {listed(unseen)}, not seen in fit; "
            f"known are {listed(levels)}"
        )
    return np.asarray([position[name] for name in names], dtype=np.int64)[codes]
