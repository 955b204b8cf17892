"""What a target is: classes or numbers, by its cells and by what was said of it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from lexppl.data.cells import kind_of, levels_in, numbers_of
from lexppl.data.dataset import Task
from lexppl.data.reading.read_rows import Problem, refuse
from lexppl.data.reading.table_checks import comma_problem, many_levels
from lexppl.data.target_column import TargetColumn

MOST_INTEGER_CLASSES = 20


def fitted_target(
    cells: pd.Series, task: Task | None, standardise: bool, rows: NDArray[np.int64] | None
) -> TargetColumn:
    """Return the target's column.

    Args:
        cells: the target, none of them missing.
        task: what was said of it; by the cells where None.
        standardise: a response has the mean and the scale of its values.
        rows: places of those that these are of; all where None.

    Raises:
        ValueError: an unknown task, words or dates for numbers, one value only, too many classes.

    >>> fitted_target(pd.Series(["low", "high"], name="y"), None, False, None).class_names
    ('high', 'low')
    """
    name = str(cells.name)
    if task not in (None, "classification", "regression"):
        raise ValueError(f"task must be 'classification' or 'regression'; it is {task!r}")
    kind = kind_of(cells)
    numeric = kind == "number"
    if kind == "date" and task is None:
        raise ValueError(
            f"target {name!r} holds dates; predict another column, or give task='classification' "
            "if each date is a class"
        )
    if task is None:
        task = "regression" if numeric and not _is_class_code(cells) else "classification"
    if task == "classification":
        if standardise:
            raise ValueError(f"standardise_target is for regression; target {name!r} is of classes")
        levels = levels_in(cells)
        refuse(many_levels(name, levels, len(cells)))
        if len(levels) < 2:
            raise ValueError(
                f"target {name!r} has one class only: every row is {levels[0]!r}; "
                "at least two are needed"
            )
        return TargetColumn(name=name, class_names=levels)
    values = numbers_of(cells)
    if (values == values[0]).all():
        raise ValueError(f"target {name!r} is constant: {values[0]:g}")
    if not standardise:
        return TargetColumn(name=name, class_names=None)
    return TargetColumn.standardised(name, values if rows is None else values[rows])


def _is_class_code(cells: pd.Series) -> bool:
    values = numbers_of(cells)
    integers = types.is_integer_dtype(cells.dtype) or (
        cells.dtype == object and bool((values == np.round(values)).all())
    )
    return integers and len(np.unique(values)) <= MOST_INTEGER_CLASSES


def target_problems(cells: pd.Series, task: Task | None, standardise: bool) -> Iterator[Problem]:
    """Yield what the target has wrong, beside missing values.

    Args:
        cells: the target, those that are not missing.
        task, standardise: as in :func:`fitted_target`.
    """
    if len(cells) == 0:
        yield Problem(f"target {str(cells.name)!r} is always missing")
        return
    commas = None if task == "classification" else comma_problem(cells)
    if commas is not None:
        yield commas
        return
    try:
        fitted_target(cells, task, standardise, None)
    except ValueError as error:
        yield Problem(str(error))
