"""Tables in parts: statistics of the rows to fit on alone, levels of all rows."""

import numpy as np
import pandas as pd
import pytest
import torch

from lexppl.data import dataset_from_frame, load, read_table
from lexppl.data.divided_table import divided_frame
from lexppl.data.stratification import training_and_validation
from tests.refusals import refused

SHARES = {"valid_share": 0.2, "test_share": 0.2, "seed": 0}


def people(rows=50):
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"age": draw.normal(40, 12, rows), "job": draw.choice(["a", "b"], rows)})
    frame["wage"] = 100.0 + 3.0 * frame.age
    return frame


def rows_of(part, frame):
    return frame.iloc[part.tolist()]


@pytest.mark.smoke
def test_statistics_are_those_of_the_rows_to_fit_on():
    frame = people()
    parts = divided_frame(frame, **SHARES, dtype=torch.float64)
    learned = rows_of(parts.train_rows, frame)
    for name, values in (("age", parts.train.x[:, 0]), ("wage", parts.train.y)):
        assert float(values.mean()) == pytest.approx(0.0, abs=1e-12), name
        assert float(values.std(correction=0)) == pytest.approx(1.0), name
    target = parts.data.encoding.target
    assert (parts.target.level, parts.target_scale) == (target.mean, target.scale)
    assert parts.target.inverse([0.0, 1.0]) == pytest.approx(
        [target.mean, target.mean + target.scale]
    )
    assert target.mean == pytest.approx(learned.wage.mean())
    # What is not learned from moves no statistic.
    other = frame.copy()
    other.loc[[*parts.valid_rows.tolist(), *parts.test_rows.tolist()], ["age", "wage"]] *= 100.0
    again = divided_frame(other, **SHARES, dtype=torch.float64)
    assert again.data.encoding == parts.data.encoding
    assert torch.equal(again.train.x, parts.train.x)


def test_every_row_is_in_one_part_and_the_table_is_as_it_was():
    frame = people()
    frame.loc[3, "age"] = None
    parts = divided_frame(frame, **SHARES, drop_missing=True)
    rows = np.concatenate([parts.train_rows, parts.valid_rows, parts.test_rows])
    assert sorted(rows.tolist()) == list(range(49))
    kept = frame.dropna().drop(columns="wage").reset_index(drop=True)
    pd.testing.assert_frame_equal(parts.table, kept)
    decoded = parts.data.x[:, 0] * parts.data.encoding.columns[0].scale
    np.testing.assert_allclose(decoded + parts.data.encoding.columns[0].mean, kept.age, rtol=1e-5)


def test_a_level_and_a_number_that_only_held_out_rows_have():
    """Neither a refusal nor a NaN: levels are of all rows, and a constant has scale 1."""
    frame = people()
    held_out = divided_frame(frame, **SHARES).test_rows.tolist()
    frame["flag"] = 0.0
    frame.loc[held_out[0], "flag"] = 7.0
    frame.loc[held_out[0], "job"] = "rare"
    frame = frame[["age", "job", "flag", "wage"]]
    parts = divided_frame(frame, **SHARES)
    assert parts.data.feature_names == ("age", "job=a", "job=b", "job=rare", "flag")
    assert parts.data.encoding.columns[2].scale == 1.0
    assert parts.test.x[0].tolist()[1:] == [0.0, 0.0, 1.0, 7.0]
    assert bool(parts.data.x.isfinite().all()) and not parts.train.x[:, 4].any()


def test_parts_that_cannot_be_made():
    with pytest.raises(ValueError, match="each part needs a row; 10 rows give 10 to fit on and 0"):
        divided_frame(people(10), valid_share=0.2, test_share=0.01, seed=0)
    frame = people(10)
    frame["kind"] = ["x", *["y"] * 9]
    with pytest.raises(ValueError, match="class 'x' has no row to fit on"):
        divided_frame(frame, "kind", valid_share=0.2, test_share=0.7, seed=0)
    parts = divided_frame(frame, "kind", valid_share=0.2, test_share=0.2, seed=0)
    assert parts.valid is None and parts.valid_rows is None and len(parts.train) == 8


@pytest.mark.parametrize("share", [None, 0.01, 0.9])
def test_rows_are_all_learned_from_where_none_can_be_set_apart(share):
    strata = np.array([0] * 9 + [1])
    train, valid = training_and_validation(strata, share, seed=0)
    assert valid is None and train.tolist() == list(range(10))


def test_statistics_rows_of_tables_that_are_read(tmp_path):
    frame = people()
    frame.to_csv(tmp_path / "people.csv", index=False)
    options = {"statistics_rows": range(20), "standardise_target": True, "dtype": torch.float64}
    data = read_table(tmp_path / "people.csv", **options)
    assert float(data.x[:20, 0].mean()) == pytest.approx(0.0, abs=1e-12)
    assert data.encoding.target.scale == pytest.approx(frame.wage[:20].std(ddof=0))
    wine = load("wine", statistics_rows=np.arange(100), dtype=torch.float64)
    torch.testing.assert_close(wine.x[:100].std(0, correction=0), torch.ones(13).double())
    for wrong in ([], [50], [-1], [0.5], [[0]]):
        with pytest.raises(ValueError, match="statistics_rows must be places of rows"):
            dataset_from_frame(frame, statistics_rows=wrong)
    with pytest.raises(ValueError, match="must not be given: 'statistics_rows'"):
        dataset_from_frame(frame, encoding=data.encoding, statistics_rows=[0])
    refused(r"statistics_rows is for tables .*'S1' is none", load, "S1", statistics_rows=[0])
