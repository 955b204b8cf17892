"""Dates: which words are some, which day they mean, and the features they become."""

import datetime
import json

import numpy as np
import pandas as pd
import pytest
import torch

from lexppl import ExplainerClassifier
from lexppl.data import TableEncoding, TableError, dataset_from_frame
from lexppl.data.cells import days_of, holds_dates
from lexppl.data.columns import DateColumn
from tests.refusals import over, refused

DAY = (datetime.date(2026, 11, 22) - datetime.date(1970, 1, 1)).days

WORDS = {
    "2026-11-22": DAY,
    "2026/11/22": DAY,
    "2026-11": DAY - 21,
    "2026-11-22T06:00": DAY + 0.25,
    "2026-11-22 06:00:00Z": DAY + 0.25,
    "2026-11-22T06:00:00.000+02:00": DAY + 4 / 24,
    "2026-11-22T06:00:00-0130": DAY + 7.5 / 24,
    "22.11.2026": DAY,
    "22/11/2026 12:00": DAY + 0.5,
    "11/22/2026": DAY,
    "22 Nov 2026": DAY,
    "Nov 22, 2026": DAY,
    "22-nov-2026": DAY,
    "November 22 2026": DAY,
}


@pytest.mark.parametrize("word", WORDS)
def test_words(word):
    cells = pd.Series([word, None, word])
    assert holds_dates(cells)
    order = "monthfirst" if word == "11/22/2026" else "dayfirst"
    days = days_of(cells, order)
    assert days[[0, 2]].tolist() == pytest.approx([WORDS[word]] * 2) and np.isnan(days[1])


@over(
    ["clerk", "smith"],
    ["1.5", "2.5"],
    ["10-12", "12-14"],
    ["May", "June"],
    ["192.168.1.1", "10.0.0.1"],
    ["v2.1.2026x"],
    [20261122, 20261123],
    [1.5, 2.5],
    [None, None],
)
def test_no_dates(cells):
    assert not holds_dates(pd.Series(cells))


def table(dates):
    draw = np.random.default_rng(0)
    return pd.DataFrame({"when": dates, "y": draw.integers(0, 2, len(dates))})


@pytest.mark.smoke
def test_a_column_becomes_a_trend_and_what_recurs_in_one_entry():
    days = pd.date_range("2024-01-01", periods=400, freq="31h")
    data = dataset_from_frame(table(days.astype(str)), "y", dtype=torch.float64)
    assert data.entry_names == ("when",) and set(data.groups) == {0}
    assert data.feature_names == (
        "when",
        *(f"when: {part} {w}" for part in ("month", "weekday", "hour") for w in ("sin", "cos")),
    )
    assert float(data.x[:, 0].mean()) == pytest.approx(0.0, abs=1e-12)
    assert float(data.x[:, 0].std(correction=0)) == pytest.approx(1.0)
    expected = {
        "month": 2 * np.pi * (days.month.to_numpy() - 1) / 12,
        "weekday": 2 * np.pi * days.weekday.to_numpy() / 7,
        "hour": 2 * np.pi * days.hour.to_numpy() / 24,
    }
    for place, angle in enumerate(expected.values()):
        np.testing.assert_allclose(data.x[:, 1 + 2 * place], np.sin(angle), atol=1e-12)
        np.testing.assert_allclose(data.x[:, 2 + 2 * place], np.cos(angle), atol=1e-12)


def test_orders_are_told_by_the_dates_or_by_the_user():
    first = dataset_from_frame(table(["03/04/2026", "22/11/2026"] * 9), "y")
    assert first.encoding.columns[0].order == "dayfirst"
    second = dataset_from_frame(table(["03/04/2026", "11/22/2026"] * 9), "y")
    assert second.encoding.columns[0].order == "monthfirst"
    for order, day in (("dayfirst", 3), ("monthfirst", 4)):
        data = dataset_from_frame(table(["03/04/2026", "05/06/2026"] * 9), "y", dates=order)
        column = data.encoding.columns[0]
        early = datetime.date(2026, 7 - day, day) - datetime.date(1970, 1, 1)
        assert float(data.x[0, 0] * column.scale + column.mean) == pytest.approx(early.days)
    for dates, options, words in (
        (["03/04/2026", "05/06/2026"], {}, "give dates='dayfirst' or dates='monthfirst'"),
        (["13/04/2026", "05/16/2026"], {}, "of both orders"),
        (["13/04/2026", "05/06/2026"], {"dates": "monthfirst"}, "dates='monthfirst', and"),
        (["2026-02-30", "2026-02-01"], {}, "must hold dates; 9 cells do not, such as '2026-02-30'"),
        ([*(f"2026-01-{d}" for d in range(10, 28)), "unknown"], {}, "cells do not, such as 'unk"),
    ):
        every = dates * 9 if len(dates) == 2 else dates
        refused(words, dataset_from_frame, table(every), "y", error=TableError, **options)
    with pytest.raises(ValueError, match=r"dates must be one of .*'dayfirst', 'monthfirst'"):
        dataset_from_frame(table(["2026-01-01", "2026-01-02"]), "y", dates="first")


def test_later_dates_are_read_by_the_same_order_and_statistics():
    frame = table(["03/04/2026", "22/11/2026", None] * 9)
    data = dataset_from_frame(frame, "y", hide_missing=True)
    again = TableEncoding.from_json(json.loads(json.dumps(data.encoding.to_json())))
    assert again == data.encoding and isinstance(again.columns[0], DateColumn)
    new = pd.DataFrame({"when": ["03/04/2026", None, "2026-04-03"]})
    encoded = again.encode(new)
    assert torch.equal(encoded[0], data.x[0]) and torch.equal(encoded[2], encoded[0])
    assert encoded[1].tolist() == [0.0] * (encoded.shape[1] - 1) + [1.0]
    with pytest.raises(ValueError, match="must hold dates; 1 cells do not, such as 'soon'"):
        again.encode(pd.DataFrame({"when": ["soon"]}))


def test_estimators_read_dates_too():
    frame = table(pd.date_range("2024-01-01", periods=40, freq="9D").astype(str))
    explainer = ExplainerClassifier("l2x", k=1, epochs=1, random_state=0)
    explainer.fit(frame[["when"]], frame.y)
    assert list(explainer.result_.entry_names) == ["when"]
    assert isinstance(explainer.encoding_.columns[0], DateColumn)
    assert explainer.predict(pd.DataFrame({"when": ["2024-02-03 10:00"]})).shape == (1,)
    with pytest.raises(ValueError, match=r"do not tell the day.*pandas.to_datetime\(…, dayfirst"):
        explainer.fit(frame.assign(when=["03/04/2026", "05/06/2026"] * 20)[["when"]], frame.y)
