"""Reading a table: rows of a file, chosen columns, and the error that lists what is wrong."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from lexppl.data.listing import listed


def rows_left(
    frame: pd.DataFrame, target: str, drop_missing: bool, hide_missing: bool
) -> NDArray[np.bool_]:
    """Return which rows are read: all, those without a missing value, or those with a target.

    Args:
        frame: the columns that are read, the target among them.
        target: its name.
        drop_missing, hide_missing: as in :func:`read_table`.

    Raises:
        ValueError: both; no row left.

    >>> frame = pd.DataFrame({"a": [1.0, None, 3.0], "y": [0.0, 1.0, 1.0]})
    >>> rows_left(frame, "y", drop_missing=True, hide_missing=False).tolist()
    [True, False, True]
    """
    if drop_missing and hide_missing:
        raise ValueError(
            "drop_missing=True drops rows with missing values and hide_missing=True keeps them; "
            "give one of the two"
        )
    if not (drop_missing or hide_missing):
        return np.ones(len(frame), dtype=bool)
    judged = frame if drop_missing else frame[[target]]
    left = judged.notna().all(axis=1).to_numpy()
    if not left.any():
        empty = [column for column in judged.columns if judged[column].isna().all()]
        reason = f"; always missing: {listed(empty)}" if empty else ""
        raise ValueError(f"no row is left: each has a missing value{reason}")
    return left


def statistics_places(
    given: Sequence[int] | NDArray[Any] | None, rows: int
) -> NDArray[np.int64] | None:
    """Return the places of the rows that statistics are of; None for all.

    Raises:
        ValueError: what are no places of rows, or none.

    >>> statistics_places([0, 2], 3).tolist()
    [0, 2]
    """
    if given is None:
        return None
    places = np.asarray(given)
    whole = places.ndim == 1 and len(places) > 0 and types.is_integer_dtype(places.dtype)
    if not whole or places.min() < 0 or places.max() >= rows:
        raise ValueError(
            f"statistics_rows must be places of rows, whole numbers from 0 to {rows - 1}, at "
            f"least one; they are {given!r}"
        )
    return places.astype(np.int64)


def chosen_columns(
    columns: Sequence[str],
    target: str | None,
    *,
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
    categorical: Sequence[str] = (),
) -> tuple[list[str], str]:
    """Return the columns to explain by, in the table's order, and the target.

    Args:
        columns: the table's.
        target: the column to predict; the last that is not dropped where ``None``.
        drop: columns that are left out.
        keep: the only columns that are left in beside the target; all where empty.
        categorical: columns whose numbers are codes.

    Raises:
        ValueError: names that are not there, with those near to them, all of them at once; a
            column that is dropped and kept, or is the target and dropped; no column left.

    Example:
        >>> chosen_columns(["id", "age", "y"], None, drop=["id"])
        (['age'], 'y')
        >>> chosen_columns(["id", "age", "y"], None, drop=["ID"])
        Traceback (most recent call last):
        ...
        lexppl.data.reading.read_rows.TableError: drop names 'ID', and there is no such column;
        did you mean 'id'?
    """
    given = {"drop": drop, "keep": keep, "categorical": categorical}
    for option, names in given.items():
        if isinstance(names, str):
            raise ValueError(f"{option} must be a sequence of columns; it is {names!r}")
    if len(columns) < 2:
        raise ValueError(
            f"a table needs a target and at least one other column; it has {listed(columns)}"
        )
    problems = [
        Problem(f"{option} names {name!r}, and there is no such column; {near(name, columns)}")
        for option, names in given.items()
        for name in dict.fromkeys(names)
        if name not in columns
    ]
    left = [name for name in columns if name not in drop]
    if target is None and left:
        target = left[-1]
    if target is None or target not in columns:
        hint = near(str(target), columns)
        problems.append(Problem(f"there is no target column {target!r}; {hint}"))
    refuse(problems)
    for option, names in (("drop", drop), ("categorical", categorical)):
        if target in names:
            raise ValueError(
                f"{option} names {str(target)!r}; no such column is there beside the target"
            )
    both = [name for name in keep if name in drop]
    if both:
        raise ValueError(f"drop and keep both name {listed(both)}; give one of the two")
    features = [name for name in left if name != target and (not keep or name in keep)]
    if not features:
        raise ValueError(f"no column is left beside the target {str(target)!r}")
    unread = [name for name in categorical if name not in features]
    if unread:
        raise ValueError(f"categorical names {listed(unread)}, which are left out")
    return features, str(target)


def near(name: str, columns: Sequence[str]) -> str:
    """Return which columns may have been meant, in words.

    >>> near("agee", ["age", "job"])
    "did you mean 'age'?"
    """
    close = difflib.get_close_matches(name, columns, n=3)
    folded = [known for known in columns if known.casefold() == name.casefold()]
    meant = list(dict.fromkeys([*folded, *close]))
    return f"did you mean {listed(meant)}?" if meant else f"the columns are {listed(columns)}"


@dataclass(frozen=True)
class Problem:
    """One thing that a table has wrong.

    Args:
        text: what it is, with what mends it.
        mend: the arguments that mend it; empty where only another table does.
    """

    text: str
    mend: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))


class TableError(ValueError):
    """A table that cannot be read as it is, with all that is wrong with it.

    Of one problem the message is its text; of several they stand one a line, and the last line
    has the arguments that mend all that arguments can.

    Args:
        problems: at least one.

    Example:
        >>> constant = Problem("'b' is constant", {"drop": ["b"]})
        >>> print(TableError([constant]))
        'b' is constant
        >>> print(TableError([constant, Problem("'id' has 900 levels", {"drop": ["id"]})]))
        the table has 2 problems:
          - 'b' is constant
          - 'id' has 900 levels
        all at once: drop=['b', 'id']
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        if len(self.problems) == 1:
            return self.problems[0].text
        lines = [f"the table has {len(self.problems)} problems:"]
        lines += [f"  - {problem.text}" for problem in self.problems]
        mends = ", ".join(f"{name}={value!r}" for name, value in self.mends.items())
        return "\n".join([*lines, f"all at once: {mends}"] if mends else lines)

    @property
    def mends(self) -> dict[str, object]:
        """The arguments that mend all that arguments can, lists of columns joined."""
        found: dict[str, object] = {}
        for problem in self.problems:
            for name, value in problem.mend.items():
                known = found.get(name)
                if isinstance(known, list) and isinstance(value, list):
                    found[name] = [*known, *(one for one in value if one not in known)]
                else:
                    found.setdefault(name, value)
        return found


def refuse(problems: Iterable[Problem]) -> None:
    """Raise :class:`TableError` where there are any problems.

    >>> refuse([])
    """
    found = list(problems)
    if found:
        raise TableError(found)
