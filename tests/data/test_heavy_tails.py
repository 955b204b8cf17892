"""Numbers with a heavy tail, which enter by asinh or a logarithm; all others enter as they did."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lexppl.data import TableEncoding, dataset_from_frame, load
from lexppl.data.columns import NumericColumn, asinh_of
from lexppl.data.encoding import TargetColumn
from lexppl.data.named_sets import TARGETS
from lexppl.explanation.reading.feature_values import decoded_values

ROWS = 400
DRAW = np.random.default_rng(0)
FAR = DRAW.normal(50.0, 10.0, ROWS)
FAR[[7, 301]] = 1e12
HEAVY = {
    "log-normal": DRAW.lognormal(0.0, 2.0, ROWS),
    "two of 1e12": FAR,
    "Cauchy": 1e4 + DRAW.standard_cauchy(ROWS),
    "zeros and a log-normal": np.where(DRAW.random(ROWS) < 0.8, 0.0, DRAW.lognormal(3, 3, ROWS)),
    "negative": -DRAW.lognormal(5.0, 2.5, ROWS),
    "shifted log-normal": 1e3 + DRAW.lognormal(0.0, 2.0, ROWS),
    "nine powers of ten": 10.0 ** DRAW.uniform(-3.0, 6.0, ROWS),
    "a tenth of -999": np.where(DRAW.random(ROWS) < 0.1, -999.0, DRAW.normal(5.0, 2.0, ROWS)),
    "nearly all of 99999": np.where(DRAW.random(ROWS) < 0.9, 99999.0, DRAW.normal(5, 2, ROWS)),
}
LOGARITHMS = ("log-normal", "nine powers of ten")
RARE = (DRAW.random(ROWS) < 0.02).astype(float)
ORDINARY = {
    "normal": DRAW.normal(1e6, 2.0, ROWS),
    "uniform": DRAW.uniform(-1.0, 1.0, ROWS),
    "exponential": DRAW.exponential(3.0, ROWS),
    "log-normal": DRAW.lognormal(2.0, 0.8, ROWS),
    "Student's t": DRAW.standard_t(3, ROWS),
    "counts": DRAW.poisson(2.0, ROWS),
    "rare counts": DRAW.poisson(0.05, ROWS),
    "rare ones": RARE,
    "zeros and large numbers": np.where(DRAW.random(ROWS) < 0.9, 0.0, DRAW.normal(7e3, 9e2, ROWS)),
    "equal but for rounding": np.where(np.arange(ROWS) % 2, 0.3, 0.1 + 0.2) + RARE,
}
TARGET = TargetColumn("y", ("0", "1"))
Y = np.arange(ROWS) % 2


def fitted(values, **options):
    with warnings.catch_warnings(action="ignore"):
        return TableEncoding.fit(pd.DataFrame({"v": values}), TARGET, **options)


@pytest.mark.parametrize("kind", ORDINARY)
def test_an_ordinary_column_enters_as_before_to_the_last_bit(kind):
    values = ORDINARY[kind].astype(float)
    with warnings.catch_warnings(action="error"):
        encoding = TableEncoding.fit(pd.DataFrame({"v": values}), TARGET)
    (column,) = encoding.columns
    assert encoding.to_json()["columns"] == [
        {"kind": "numeric", "name": "v", "mean": column.mean, "scale": column.scale}
    ]
    assert column.scale == pytest.approx(values.std()) and column.mean == pytest.approx(
        values.mean()
    )
    found = encoding.encode(pd.DataFrame({"v": values}), torch.float64)[:, 0].numpy()
    np.testing.assert_array_equal(found, (values - column.mean) / column.scale)


@pytest.mark.parametrize("name", TARGETS)
def test_no_shipped_set_has_a_heavy_tail(name):
    encoding = load(name).encoding
    assert not any(
        getattr(column, "asinh", None) for column in (*encoding.columns, encoding.target)
    )


@pytest.mark.parametrize("kind", HEAVY)
def test_a_heavy_tail_enters_by_a_standardised_curve_and_comes_back(kind, tmp_path):
    values = HEAVY[kind]
    frame = pd.DataFrame({"v": values, "y": Y})
    curve = "log" if kind in LOGARITHMS else "asinh"
    word = "its logarithm" if curve == "log" else "asinh"
    with pytest.warns(UserWarning, match=rf"column 'v' has a heavy tail, .*: it enters by {word}"):
        data = dataset_from_frame(frame, "y", dtype=torch.float64)
    (column,) = data.encoding.columns
    assert column.curve == curve
    centre, spread = column.asinh
    of_asinh = np.arcsinh((values - centre) / spread)
    x = data.x[:, 0].numpy()
    np.testing.assert_allclose(x, (of_asinh - of_asinh.mean()) / of_asinh.std(), atol=1e-9)
    # Values that recur little have a scale of their own size, and none is far.
    bulk = x[~pd.Series(values).isin([0.0, -999.0, 99999.0])]
    assert np.ptp(np.quantile(bulk, [0.25, 0.75])) > 0.3 and np.abs(x).max() < 15.0
    data.encoding.save(tmp_path / "encoding.json")
    again = TableEncoding.load(tmp_path / "encoding.json")
    assert again == data.encoding and torch.equal(again.encode(frame[["v"]], torch.float64), data.x)
    for dtype in (torch.float32, torch.float64):
        back = decoded_values(again.encode(frame[["v"]], dtype), again)["v"].numbers
        unit = column.scale * np.hypot(values - centre, spread)
        assert (np.abs(back - values) <= 2e-5 * unit).all()
    assert back[values == 1e12].tolist() == [1e12] * int((values == 1e12).sum())


@pytest.mark.parametrize("deviation", [1.5, 2.0, 3.0])
def test_a_log_normal_column_enters_as_its_logarithm(deviation):
    """Whose quantiles are then those of a normal column, .01 to .99 at ±2.33."""
    logarithm = np.random.default_rng(4).normal(18.0, deviation, 4000)
    encoding = fitted(np.exp(logarithm))
    x = encoding.encode(pd.DataFrame({"v": np.exp(logarithm)}), torch.float64)[:, 0].numpy()
    exact = (logarithm - logarithm.mean()) / logarithm.std()
    np.testing.assert_allclose(x, exact, atol=2e-2)
    assert np.abs(fitted(np.expm1(logarithm)).encode(pd.DataFrame({"v": [0.0]})).numpy()) < 10.0


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
@pytest.mark.parametrize("far", ["2099-12-31", "1900-01-01", "2262-01-01"])
def test_dates_beside_an_open_end_keep_their_scale(share, far):
    draw = np.random.default_rng(5)
    dates = pd.Series(draw.choice(pd.date_range("2022-01-01", "2023-12-31"), 600))
    is_open = draw.random(600) < share
    frame = pd.DataFrame({"v": dates.mask(is_open, pd.Timestamp(far))})
    with pytest.warns(
        UserWarning, match=rf"column 'v' has a heavy tail, .*{far}.* enters by asinh"
    ):
        encoding = TableEncoding.fit(frame, TARGET)
    x = encoding.encode(frame, torch.float64)[:, 0].numpy()
    assert x[~is_open].std() > 0.15
    # The order of days is kept, and days come back.
    assert np.corrcoef(pd.Series(x).rank(), frame["v"].rank())[0, 1] > 1.0 - 1e-12
    values = decoded_values(encoding.encode(frame), encoding)["v"]
    days = pd.to_datetime([values.text(row) for row in range(600)])
    assert np.abs((days - frame["v"]).dt.days[~is_open]).max() <= 1
    assert TableEncoding.from_json(encoding.to_json()) == encoding


NUMBERS, SPREADS = st.floats(-1e9, 1e9), st.floats(1e-3, 1e6)


@settings(deadline=None)
@given(
    NUMBERS, st.floats(1e-3, 1e6), st.floats(-30.0, 30.0), st.floats(0.1, 10.0), NUMBERS, NUMBERS
)
def test_the_map_is_monotone_and_its_inverse_brings_values_back(centre, spread, mean, scale, v, w):
    for asinh in (None, (centre, spread)):
        column = NumericColumn("v", mean, scale, asinh=asinh)
        values = np.array([v, w])
        feature = column.standardised(values)
        assert (feature[0] <= feature[1]) == (v <= w) or np.isclose(*feature)
        unit = scale if asinh is None else scale * np.hypot(values - centre, spread)
        size = 1e-9 * (np.abs(values) + abs(centre) + abs(mean))
        assert (np.abs(column.original(feature) - values) <= 1e-5 * unit + size).all()
        np.testing.assert_allclose(column.slope(feature), unit, rtol=1e-6)


def test_a_row_counts_as_often_as_its_weight_and_a_gap_for_nothing():
    values, draw = HEAVY["log-normal"], np.random.default_rng(1)
    times = draw.integers(0, 4, ROWS)
    weighted = fitted(values, statistics_weights=times.astype(float)).columns[0]
    repeated = fitted(np.repeat(values, times)).columns[0]
    assert weighted.asinh == repeated.asinh
    assert (weighted.mean, weighted.scale) == pytest.approx((repeated.mean, repeated.scale))
    gaps = np.concatenate([values, np.full(30, np.nan)])
    encoding = fitted(gaps, hide_missing=True)
    whole = fitted(values).columns[0]
    assert encoding.columns[0].asinh == whole.asinh
    assert encoding.columns[0].mean == pytest.approx(whole.mean)
    frame = pd.DataFrame({"v": gaps})
    assert encoding.encode(frame)[-30:].tolist() == [[0.0, 1.0]] * 30
    assert np.isnan(decoded_values(encoding.encode(frame), encoding)["v"].numbers[-30:]).all()


def test_the_rows_that_statistics_are_of_decide():
    rows = np.setdiff1d(np.arange(ROWS), [7, 301])
    assert fitted(FAR).columns[0].asinh is not None
    assert fitted(FAR, statistics_rows=rows).columns[0].asinh is None
    assert asinh_of(np.full(5, 3.0)) is None
    assert asinh_of(np.full(5, np.nan)) is None and asinh_of(np.zeros(5)) is None


@pytest.mark.parametrize("power", [-1000, -950, 950])
def test_columns_as_small_or_large_as_numbers_can_be_are_standardised(power):
    """Of the same values times a power of two every digit is the same."""
    values = np.random.default_rng(3).normal(2.0, size=ROWS)
    usual, extreme = fitted(values), fitted(np.ldexp(values, power))
    assert extreme.columns[0].scale == np.ldexp(usual.columns[0].scale, power)
    own = pd.DataFrame({"v": values})
    x = extreme.encode(np.ldexp(own, power), torch.float64)
    assert torch.equal(x, usual.encode(own, torch.float64))
    assert x.std(correction=0).item() == pytest.approx(1.0)
    back = np.ldexp(extreme.columns[0].original(x[:, 0].numpy()), -power)
    np.testing.assert_allclose(back, values, atol=1e-5)
    heavy = fitted(np.ldexp(FAR, power)).columns[0]
    assert heavy.asinh == tuple(np.ldexp(fitted(FAR).columns[0].asinh, power))


@pytest.mark.parametrize("kind", HEAVY)
def test_a_response_with_a_heavy_tail_enters_by_the_same_curve(kind):
    values = HEAVY[kind]
    frame = pd.DataFrame({"v": np.arange(ROWS), "y": values})
    with pytest.warns(UserWarning, match="response 'y' has a heavy tail"):
        data = dataset_from_frame(frame, "y", standardise_target=True, dtype=torch.float64)
    target, (column,) = data.encoding.target, fitted(values).columns
    assert (target.asinh, target.mean, target.scale) == (column.asinh, column.mean, column.scale)
    assert data.target_name == f"{column.curve}(y)"
    np.testing.assert_allclose(target.decode(data.y).numpy(), values, rtol=1e-6, atol=1e-6)
    assert TableEncoding.from_json(data.encoding.to_json()) == data.encoding
    ordinary = TargetColumn.of_responses("y", ORDINARY["normal"])
    assert ordinary.curve is None and ordinary.label == "y"
    assert "asinh" not in TableEncoding((), ordinary).to_json()["target"]
