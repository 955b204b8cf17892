"""Missing values beside their markers, and rare levels in one."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

from lexppl.data import TableEncoding, TableError, dataset_from_frame
from lexppl.data.columns import CategoricalColumn, IndicatorColumn, NumericColumn
from lexppl.data.divided_table import divided_frame
from tests.refusals import refused

FRAME = pd.DataFrame(
    {
        "age": [30.0, None, 50.0, 40.0, None, 40.0],
        "job": ["cook", "king", None, "cook", "cook", "king"],
        "size": [1.0, 2.0, 3.0, 4.0, 5.0, 7.0],
        "y": [0, 1, 1, 0, 1, 0],
    }
)


def test_missing_values_enter_as_nothing_beside_a_marker():
    data = dataset_from_frame(FRAME, "y", hide_missing=True, dtype=torch.float64)
    assert data.feature_names == (
        "age", "age (hidden)", "job=cook", "job=king", "job (hidden)", "size",
    )  # fmt: skip
    assert data.entry_names == ("age", "job", "size") and data.groups == (0, 0, 1, 1, 1, 2)
    assert data.encoding.markers == (1, 1, 4, 4, 4, -1)
    # Statistics are of the four ages that are there: mean 40, variance 50.
    assert data.encoding.columns[0] == NumericColumn("age", 40.0, 50**0.5, gaps=True)
    scale = 50**0.5
    assert data.x[:, 0].tolist() == pytest.approx([-10 / scale, 0, 10 / scale, 0, 0, 0])
    assert data.x[:, 1].tolist() == [0, 1, 0, 0, 1, 0]
    assert data.x[2, 2:5].tolist() == [0, 0, 1] and data.x[0, 2:5].tolist() == [1, 0, 0]
    again = TableEncoding.from_json(json.loads(json.dumps(data.encoding.to_json())))
    assert again == data.encoding
    assert torch.equal(again.encode(FRAME, torch.float64), data.x)
    with pytest.raises(ValueError, match=r"columns that had none in fit: 'size' \(1\)"):
        again.encode(FRAME.assign(size=[None, 1, 2, 3, 4, 5]))


def test_indicators_are_entries_of_their_own():
    data = dataset_from_frame(FRAME, "y", hide_missing=True, missing_indicator=True)
    assert data.entry_names == ("age", "age is missing", "job", "job is missing", "size")
    assert data.encoding.columns[1] == IndicatorColumn("age is missing", of="age")
    place = data.feature_names.index("age is missing")
    assert data.x[:, place].tolist() == [0, 1, 0, 0, 1, 0]
    assert data.encoding.markers[place] == -1
    again = TableEncoding.from_json(json.loads(json.dumps(data.encoding.to_json())))
    assert again == data.encoding and torch.equal(again.encode(FRAME), data.x)


def towns(rows=200):
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"town": draw.choice(list("abcd"), rows), "x": draw.normal(size=rows)})
    frame.loc[:2, "town"] = ["rare", "rarer", "rarest"]
    return frame.assign(y=draw.integers(0, 2, rows))


def test_rare_levels_are_pooled_and_stand_for_unseen_ones():
    data = dataset_from_frame(towns(), "y", rare=5)
    column = data.encoding.columns[0]
    assert column == CategoricalColumn("town", (*"abcd", "other levels"), pooled="other levels")
    assert data.x[:3, :5].tolist() == [[0, 0, 0, 0, 1]] * 3
    again = TableEncoding.from_json(json.loads(json.dumps(data.encoding.to_json())))
    new = again.encode(pd.DataFrame({"town": ["nowhere", "a"], "x": [0.0, 0.0]}))
    assert new[:, :5].tolist() == [[0, 0, 0, 0, 1], [1, 0, 0, 0, 0]]


def test_levels_are_rare_by_the_rows_to_fit_on():
    frame = towns()
    frame.loc[:59, "town"] = "late"
    data = dataset_from_frame(frame, "y", rare=5, statistics_rows=range(60, 200))
    assert "late" not in data.encoding.columns[0].levels
    parts = divided_frame(towns(), "y", valid_share=0.2, test_share=0.2, seed=0, rare=5)
    assert parts.data.encoding.columns[0].pooled == "other levels"


def test_columns_of_rare_levels_alone_are_refused_and_many_levels_are_accepted():
    frame = towns().assign(id=[f"n{i}" for i in range(200)])
    with pytest.raises(TableError, match=r"'id' has no level in 5 rows or more.*drop=\['id'\]"):
        dataset_from_frame(frame, "y", rare=5)
    many = frame.assign(id=[f"n{min(i, 150)}" for i in range(200)])
    assert dataset_from_frame(many, "y", rare=5).encoding.columns[2].levels == (
        "n150",
        "other levels",
    )
    refused("rare must be a whole number of at least 1", dataset_from_frame, towns(), "y", rare=0)


@pytest.mark.smoke
def test_a_black_box_sees_the_table_as_it_was():
    frame = towns().assign(id=[f"n{i}" for i in range(200)])
    frame.loc[5, "x"] = None
    parts = divided_frame(
        frame, "y", valid_share=0.2, test_share=0.2, seed=0, drop=["id"], hide_missing=True
    )
    pd.testing.assert_frame_equal(parts.table, frame.drop(columns="y"))
    assert parts.data.entry_names == ("town", "x")
    gone = divided_frame(
        frame, "y", valid_share=0.2, test_share=0.2, seed=0, drop=["id"], drop_missing=True
    )
    assert len(gone.table) == 199 and "id" in gone.table
