"""Which columns of a table are read: the target, and those that are dropped or kept by name."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from lexppl.data.listing import listed
from lexppl.data.reading.table_error import Problem, refuse


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
        lexppl.data.reading.table_error.TableError: drop names 'ID', and there is no such column;
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
