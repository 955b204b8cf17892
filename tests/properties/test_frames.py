"""Frames of any kind of column become the same numbers, or are refused in the words of tables."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lexppl.data import dataset_from_frame, synthetic
from tests.properties.given_tensors import EXAMPLES, LAYOUTS, laid_out

REFUSED = (ValueError, TypeError)
NUMBERS = "float64 float32 int64 int8 uint16 Int64 Float32 int64[pyarrow] double[pyarrow] object"
WORDS = ("object", "string", "category", "string[pyarrow]")
ROWS = 12


def frame_of(numbers, words, index):
    rng = np.random.default_rng(0)
    whole = rng.permutation(ROWS) + 1
    return pd.DataFrame(
        {
            "number": pd.Series(whole).astype(numbers),
            "word": pd.Series(["a", "b", "c", "a"] * (ROWS // 4)).astype(words),
            "y": ["no", "yes"] * (ROWS // 2),
        }
    ).set_axis(index)


INDICES = {
    "counted": range(ROWS),
    "repeated": [7] * ROWS,
    "words": [f"row {n}" for n in range(ROWS)],
    "dates": pd.date_range("2020-01-01", periods=ROWS),
    "two levels": pd.MultiIndex.from_product([[0, 1], range(ROWS // 2)]),
}


@EXAMPLES
@given(st.sampled_from(NUMBERS.split()), st.sampled_from(WORDS), st.sampled_from(sorted(INDICES)))
def test_columns_of_any_type_and_rows_of_any_name(numbers, words, index):
    plain = dataset_from_frame(frame_of("float64", "object", INDICES["counted"]), "y")
    frame = frame_of(numbers, words, INDICES[index])
    kept = frame.copy()
    found = dataset_from_frame(frame, "y")
    assert found.feature_names == plain.feature_names and found.class_names == plain.class_names
    torch.testing.assert_close(found.x, plain.x)
    assert torch.equal(found.y, plain.y) and found.x.dtype == torch.float32
    pd.testing.assert_frame_equal(frame, kept)


ODD = {
    "no rows": lambda frame: frame.iloc[:0],
    "no columns": lambda frame: frame[[]],
    "the target alone": lambda frame: frame[["y"]],
    "one row": lambda frame: frame.iloc[:1],
    "infinite": lambda frame: frame.assign(number=np.inf),
    "complex": lambda frame: frame.assign(number=frame["number"] + 1j),
    "lists": lambda frame: frame.assign(number=[[1, 2]] * ROWS),
    "all missing": lambda frame: frame.assign(number=np.nan),
    "constant": lambda frame: frame.assign(number=1.0),
    "one class": lambda frame: frame.assign(y="yes"),
    "one name twice": lambda frame: pd.concat([frame, frame[["number"]]], axis=1),
    "names of two levels": lambda frame: pd.concat({"one": frame}, axis=1),
    "bytes": lambda frame: frame.assign(word=[b"a", b"b"] * (ROWS // 2)),
    "sparse": lambda frame: frame.assign(number=pd.arrays.SparseArray(frame["number"])),
    "intervals": lambda frame: frame.assign(number=pd.cut(frame["number"], 3)),
    "durations": lambda frame: frame.assign(number=pd.to_timedelta(frame["number"], "D")),
    "truth values": lambda frame: frame.assign(number=frame["number"] > 5),
    "whole numbers as names": lambda frame: frame.rename(columns={"number": 3}),
    "no frame": lambda frame: frame.to_numpy(),
    "a dictionary": lambda frame: frame.to_dict("list"),
}


READ = {"sparse", "truth values", "bytes", "durations", "whole numbers as names", "intervals"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("odd", ODD)
def test_odd_frames_are_read_or_refused(odd):
    frame = ODD[odd](frame_of("float64", "object", INDICES["counted"]))
    try:
        found = dataset_from_frame(frame, "y")
    except REFUSED as refusal:
        assert len(str(refusal)) > 10
        return
    assert odd in READ
    assert found.x.isfinite().all() and len(found.x) == ROWS


@EXAMPLES
@given(st.sampled_from(["S1", "S2", "S3"]), st.integers(1, 40), st.integers(0, 9), LAYOUTS)
def test_synthetic_sets_and_data_sets_of_any_layout(name, rows, seed, layout):
    data = synthetic(name, rows, seed=seed)
    assert data.x.shape == (rows, 11) and data.y.shape == (rows,)
    x, y = laid_out(data.x, layout), laid_out(data.y, layout)
    again = replace(data, x=x, y=y, truth=None, is_part=True)
    assert torch.equal(again.x, data.x) and torch.equal(again.y, data.y)
    assert data.x.isfinite().all() and set(data.y.tolist()) <= {0, 1}
