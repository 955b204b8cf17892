"""Choices of rows, labels and limits that pictures share."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lexppl.argument_checks import int_at_least
from lexppl.data.stratification import evenly

LONGEST_LABEL, NARROW_LABEL = 28, 18


def short(name: Any, longest: int = LONGEST_LABEL) -> str:
    text = str(name)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def chosen_rows(names: Sequence[Any], rows: int | Sequence[Any]) -> list[int]:
    """Places of rows: an even choice of some number, or those of some names."""
    if isinstance(rows, str):
        raise TypeError(f"rows must be a number of rows or a list of names; it is {rows!r}")
    if not isinstance(rows, Sequence | np.ndarray):
        return evenly(len(names), int_at_least("rows", rows)).tolist()
    places = {str(name): i for i, name in enumerate(names)}
    unknown = [name for name in rows if str(name) not in places]
    if unknown or not len(rows):
        first = ", ".join(map(str, list(names)[:3]))
        raise ValueError(
            f"rows must be names of the posterior's {len(names)} rows, such as {first}; "
            f"{unknown or 'none'} are {'not' if unknown else 'given'}"
        )
    return [places[str(name)] for name in rows]


def view(losses: np.ndarray) -> tuple[float, float]:
    """Limits of the axis that leave out a few very large first losses."""
    finite = losses[np.isfinite(losses)]
    if finite.size == 0:
        return 0.0, 1.0
    low, high, typical = finite.min(), finite.max(), np.quantile(finite, 0.98)
    if high - low > 3 * (typical - low) > 0:
        high = typical
    margin = 0.06 * (high - low) or 0.05
    return float(low - margin), float(high + margin)
