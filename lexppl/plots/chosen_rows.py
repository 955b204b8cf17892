"""Which rows of a posterior a picture shows."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lexppl.argument_checks import int_at_least


def chosen_rows(names: Sequence[Any], rows: int | Sequence[Any]) -> list[int]:
    """Places of rows: an even choice of some number, or those of some names.

    Args:
        names: of all rows.
        rows: how many, or their names.

    Raises:
        TypeError: a single name.
        ValueError: fewer than one, or names that there are not.

    Example:
        >>> chosen_rows(["a", "b", "c", "d", "e"], 3), chosen_rows(["a", "b"], ["b"])
        ([0, 2, 4], [1])
        >>> chosen_rows([10, 11], [3])
        Traceback (most recent call last):
        ...
        ValueError: rows must be names of the posterior's 2 rows, such as 10, 11; [3] are not
    """
    if isinstance(rows, str):
        raise TypeError(f"rows must be a number of rows or a list of names; it is {rows!r}")
    if not isinstance(rows, Sequence | np.ndarray):
        count = min(int_at_least("rows", rows), len(names))
        return [int(i) for i in np.unique(np.linspace(0, len(names) - 1, count).round())]
    places = {str(name): i for i, name in enumerate(names)}
    unknown = [name for name in rows if str(name) not in places]
    if unknown or not len(rows):
        first = ", ".join(map(str, list(names)[:3]))
        raise ValueError(
            f"rows must be names of the posterior's {len(names)} rows, such as {first}; "
            f"{unknown or 'none'} are {'not' if unknown else 'given'}"
        )
    return [places[str(name)] for name in rows]
