"""Folds in which rows of a group stay together, or that follow each other in time."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from lexppl.data.divided_table import divided_frame
from lexppl.data.stratification import fold_of_times
from tests.refusals import over, refused

ROWS, FOLDS = 60, 5


def frame():
    draw = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=ROWS).strftime("%Y-%m-%d").to_numpy()
    return pd.DataFrame(
        {
            "patient": np.repeat([f"p{n}" for n in range(ROWS // 3)], 3),
            "day": draw.permutation(days),
            "number": draw.permutation(ROWS),
            "dose": draw.normal(size=ROWS),
            "y": np.arange(ROWS) % 2,
        }
    )


def test_rows_of_a_group_are_in_one_fold_and_have_its_number():
    table = frame()
    parts = divided_frame(table, "y", folds=FOLDS, group="patient", seed=1, drop=["day"])
    by_patient = pd.Series(parts.fold).groupby(table["patient"]).nunique()
    assert (by_patient == 1).all() and np.bincount(parts.fold).tolist() == [12] * FOLDS
    assert (pd.factorize(table["patient"])[0] == parts.unit).all()
    assert parts.data.entry_names == ("number", "dose")


@pytest.mark.parametrize("column", ["day", "number"])
def test_folds_follow_each_other_in_time(column):
    table = frame()
    other = {"day", "number"} - {column}
    parts = divided_frame(table, "y", folds=FOLDS, time=column, seed=1, drop=["patient", *other])
    times = pd.Series(table[column]).rank()
    ends = [(times[parts.fold == f].min(), times[parts.fold == f].max()) for f in range(FOLDS)]
    assert all(a[1] < b[0] for a, b in pairwise(ends))
    assert parts.unit is None and parts.data.entry_names == ("dose",)


@over(
    ({"group": "nobody"}, "there is no column 'nobody'; columns: 'gap', 'half'"),
    ({"time": "patient"}, "column 'patient' is no time: it has the cell 'p0'"),
    ({"group": "patient", "time": "day"}, "give one of the two"),
    ({"group": "half"}, "5 folds need as many groups of rows; there are 2"),
    ({"time": "gap"}, "column 'gap' has 1 missing cells: fill or drop them"),
)
def test_other_columns_are_refused_in_a_line(settings, message):
    table = frame()
    table.insert(0, "half", np.arange(ROWS) % 2 == 0)
    table.insert(0, "gap", np.where(np.arange(ROWS) == 3, np.nan, 1.0))
    keep = {} if "time" in settings and settings["time"] == "gap" else {"drop": ["gap"]}
    refused(message, divided_frame, table, "y", folds=FOLDS, seed=1, **keep, **settings)


def test_rows_of_one_time_stay_together():
    years = np.random.default_rng(0).permutation(np.repeat([2020.0, 2021.0, 2022.0], [70, 20, 10]))
    fold = fold_of_times(years, 2)
    assert set(zip(years, fold, strict=True)) == {(2020.0, 0), (2021.0, 1), (2022.0, 1)}
    assert (fold_of_times(years, 3) == years - 2020).all()
    refused("4 folds .* need as many times that differ; there are 3", fold_of_times, years, 4)
    days = np.random.default_rng(0).permutation(np.arange(11.0))
    assert fold_of_times(days, 3)[np.argsort(days)].tolist() == [0] * 4 + [1] * 4 + [2] * 3


def test_times_that_are_equal_or_give_folds_of_one_class_are_refused():
    table = frame()[["number", "dose", "y"]]
    same, late = table.assign(number=3), table.assign(number=table["number"] + ROWS * table["y"])
    for changed, message in (
        (same, "5 folds that follow each other need as many times that differ; there are 1"),
        (late, "fold 1 of 5 by column 'number' has one class at most"),
    ):
        refused(message, divided_frame, changed, "y", folds=FOLDS, seed=1, time="number")
    with_groups = table.assign(number=table["y"] + 2 * (table.index % 10))
    refused(
        "has one class at most", divided_frame, with_groups, "y", folds=9, seed=1, group="number"
    )
    # Of a response there are no classes.
    divided_frame(late, "dose", folds=FOLDS, seed=1, time="number")
