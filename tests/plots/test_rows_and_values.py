"""Swarms, dependences and waterfalls show the numbers that they claim to show."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from lexppl.arviz_compatibility import group_of
from lexppl.data import TableEncoding, TargetColumn
from lexppl.evaluation.revealed import RowSteps
from lexppl.explanation import save_posterior
from lexppl.explanation.reading.feature_values import (
    FeatureValues,
    decoded_values,
    feature_values,
    with_gains,
    with_values,
)
from lexppl.plots import (
    plot_beeswarm,
    plot_dependence,
    plot_heatmap,
    plot_history,
    plot_importance,
    plot_row,
)
from lexppl.plots.rows import waterfall
from lexppl.plots.style import BLUE, ORANGE
from tests.plots.test_plots import drawn, history_of, posterior_from, random_posterior

RANDOM = np.random.default_rng(2)
PROBABILITY = RANDOM.random((3, 20, 2))
AGES = RANDOM.normal(40.0, 10.0, 20)
JOBS = RANDOM.integers(0, 3, 20).astype(float)
VALUES = {
    "age": FeatureValues("age", AGES),
    "job": FeatureValues("job", JOBS, ("cook", "smith", "retired teacher")),
}


def posterior(values=VALUES):
    made = posterior_from(PROBABILITY, features=["age", "job"])
    made["constant_data"] = xr.Dataset(coords={"row": list(range(20))})
    return with_values(made, values) if values else made


# Values and gains beside the rows


def test_values_and_gains_come_back_from_a_file(tmp_path):
    arviz = pytest.importorskip("arviz")
    made = with_gains(posterior(), RANDOM.normal(size=(2, 2)), [4, 19])
    again = arviz.from_netcdf(save_posterior(made, tmp_path / "p.nc"))
    values = feature_values(again)
    np.testing.assert_array_equal(values["age"].numbers, AGES)
    assert [values["job"].text(n) for n in range(20)] == [
        VALUES["job"].levels[int(job)] for job in JOBS
    ]
    first, second = (group_of(p, "sample_stats")["gain"] for p in (made, again))
    np.testing.assert_array_equal(first.values, second.values)
    assert second.dims == ("row", "feature") and np.isfinite(second.values).sum() == 2 * 2
    assert np.isfinite(second.sel(row=[4, 19]).values).all()


def test_values_that_are_missing_are_said_to_be():
    ages = AGES.copy()
    ages[3] = np.nan
    found = feature_values(posterior({"age": FeatureValues("age", ages)}))
    assert found["age"].text(3) == "missing" and set(found) == {"age"}


def test_a_table_without_own_values_has_those_of_x():
    made = posterior(None)
    x = np.column_stack([AGES, np.eye(3)[JOBS.astype(int)]])
    x[5, 1:] = np.nan
    made["constant_data"]["x"] = xr.DataArray(
        x,
        {"row": range(20), "input": ["age", "job=cook", "job=smith", "job=other"]},
        ("row", "input"),
    )
    found = feature_values(made)
    np.testing.assert_array_equal(found["age"].numbers, AGES)
    assert found["job"].levels == ("cook", "smith", "other") and found["job"].text(5) == "missing"
    np.testing.assert_array_equal(np.delete(found["job"].numbers, 5), np.delete(JOBS, 5))


def test_images_have_no_values():
    assert feature_values(random_posterior()) == {}


# Dependence


def test_dependence_is_the_probability_against_the_value():
    axes = drawn(plot_dependence(posterior(), "age"))
    lines, points = axes.collections
    np.testing.assert_allclose(
        np.asarray(points.get_offsets()), np.column_stack([AGES, PROBABILITY.mean(0)[:, 0]])
    )
    spans = np.array([segment[:, 1] for segment in lines.get_segments()])
    each = PROBABILITY[..., 0]
    np.testing.assert_allclose(spans, np.column_stack([each.min(0), each.max(0)]))
    assert axes.get_xlabel() == "age" and axes.get_ylabel() == "selection probability"


@pytest.mark.parametrize("chains", [1, 3])
@pytest.mark.parametrize("by", ["job", "age", [False, True] * 10])
def test_points_of_dependence_have_the_colour_of_their_stratum(by, chains):
    made = posterior_from(PROBABILITY[:chains], features=["age", "job"])
    made["constant_data"] = xr.Dataset(coords={"row": list(range(20))})
    figure = plot_dependence(with_values(made, VALUES), "age", by=by)
    drawn(figure)
    points = {
        c.get_label().split(": ")[-1]: c
        for c in figure.axes[0].collections
        if len(c.get_offsets()) > 1
    }
    if by == "job":
        expected = {name: place == JOBS for place, name in enumerate(VALUES["job"].levels)}
    elif by == "age":
        low = np.median(AGES) >= AGES
        expected = dict(zip(points, (low, ~low), strict=True))
    else:
        expected = {"False": ~np.array(by), "True": np.array(by)}
    assert set(points) == set(expected)
    for name, own in expected.items():
        np.testing.assert_allclose(np.asarray(points[name].get_offsets())[:, 0], AGES[own])
    assert len({tuple(c.get_facecolors()[0]) for c in points.values()}) == len(points)
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert ("range over replicates" in legend) == (chains > 1)
    assert len(legend) == len(points) + (chains > 1)


def test_levels_stand_side_by_side():
    axes = drawn(plot_dependence(posterior(), "job"))
    across = np.asarray(axes.collections[1].get_offsets())[:, 0]
    np.testing.assert_array_equal(np.round(across), JOBS)
    assert [label.get_text() for label in axes.get_xticklabels()] == list(VALUES["job"].levels)


# Swarm


def test_swarm_is_of_gains_where_there_are_any():
    gains = RANDOM.normal(size=(20, 2)) * [1.0, 5.0] + [0.2, 9.0]
    made = with_gains(posterior(), gains, list(range(20)))
    figure = plot_beeswarm(made)
    axes = drawn(figure)
    assert axes.get_xlabel() == "gain in this row, nats"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["job", "age"]
    job, age = axes.collections[:2]
    np.testing.assert_allclose(np.asarray(age.get_offsets())[:, 0], gains[:, 0])
    np.testing.assert_allclose(np.asarray(job.get_offsets())[:, 0], gains[:, 1])
    assert (np.abs(np.asarray(age.get_offsets())[:, 1] - 1.0) < 0.45).all()
    # Low ages are blue, high ones orange, and words grey.
    shade = age.get_facecolors()
    assert tuple(shade[AGES.argmin()][:3]) == pytest.approx(rgb(BLUE))
    assert tuple(shade[AGES.argmax()][:3]) == pytest.approx(rgb(ORANGE))
    assert len(np.unique(job.get_facecolors(), axis=0)) == 1


def rgb(colour):
    return tuple(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))


def test_swarm_is_of_probabilities_else_and_in_the_order_asked_for():
    axes = drawn(plot_beeswarm(posterior(), ["job", "age"]))
    assert axes.get_xlabel() == "selection probability"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["job", "age"]
    points = np.asarray(axes.collections[0].get_offsets())
    np.testing.assert_allclose(points[:, 0], PROBABILITY.mean(0)[:, 1])


def test_points_of_one_place_stand_beside_each_other():
    axes = drawn(plot_beeswarm(posterior_from(np.full((1, 9, 1), 0.5)), 1))
    up = np.asarray(axes.collections[0].get_offsets())[:, 1]
    assert len(np.unique(up.round(6))) == 9


def test_rows_without_a_gain_are_left_out():
    made = with_gains(posterior(), RANDOM.normal(size=(2, 2)), [4, 19])
    assert len(drawn(plot_beeswarm(made)).collections[0].get_offsets()) == 2


# Waterfall

TABLE = pd.DataFrame(
    {
        "step": [0.5, -0.1, 0.02, 0.0],
        "total": [-0.4, -0.5, -0.48, -0.48],
        "spread": np.nan,
        "kept": [1.0, 0.9, 0.5, 0.0],
    },
    index=["age", "job", "height", "shoe"],
)
STEPS = RowSteps(TABLE, -1.0, -0.9, -0.48, "ill")


@pytest.mark.smoke
@pytest.mark.parametrize("features", [1, 2, 3, 4, 9])
def test_bars_stand_end_to_end_and_add_up(features):
    bars = waterfall(STEPS, features)
    ends = bars["start"] + bars["step"]
    np.testing.assert_allclose(ends.iloc[:-1], bars["start"].iloc[1:], atol=1e-12)
    assert ends.iloc[-1] == STEPS.predicted and bars["start"].iloc[0] == STEPS.base
    assert bars["is_level"].tolist() == [True, *[False] * (len(bars) - 2), True]
    assert len(bars) == 3 + min(features, 4) + (features < 4)


def test_waterfall_shows_its_bars():
    axes = drawn(plot_row(STEPS, {"age": "71"}, features=2))
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["base rate", "all hidden", "age = 71", "job", "2 more", "prediction"]
    widths = [bar.get_width() for bar in axes.patches]
    np.testing.assert_allclose(widths, [0.0, 0.1, 0.5, -0.1, 0.02, 0.0], atol=1e-12)
    assert axes.patches[2].get_facecolor()[:3] == pytest.approx(rgb(BLUE))
    assert axes.patches[3].get_facecolor()[:3] == pytest.approx(rgb(ORANGE))
    assert axes.get_xlabel() == "log p(ill), nats"


def test_without_a_base_it_starts_where_all_is_hidden():
    bars = waterfall(RowSteps(TABLE, np.nan, -0.9, -0.48, None), 9)
    assert bars.index[0] == "all hidden" and bars["start"].iloc[0] == -0.9
    drawn(plot_row(RowSteps(TABLE, np.nan, -0.9, -0.48, None)))


# Widths, orders and mistakes


@pytest.mark.complete
def test_pictures_have_the_width_asked_for():
    for figure in (
        plot_importance(random_posterior(), width=3.7),
        plot_heatmap(random_posterior(), width=3.7),
        plot_history(history_of([[0.5], [0.4]]), width=3.7),
        plot_beeswarm(random_posterior(), width=3.7),
        plot_dependence(posterior(), "age", width=3.7),
        plot_row(STEPS, width=3.7),
    ):
        drawn(figure)
        assert figure.get_size_inches()[0] == 3.7


def test_heat_map_in_an_order_of_ones_own():
    axes = drawn(plot_heatmap(random_posterior(), order=["x3", "x1", "x4", "x2"]))
    assert [label.get_text() for label in axes.get_xticklabels()] == ["x3", "x1", "x4", "x2"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plot_heatmap(random_posterior(), order=["x1"]), "order must have each"),
        (lambda: plot_dependence(posterior(), "shoe"), "feature must be one of"),
        (lambda: plot_dependence(random_posterior(), "x1"), "are not known"),
        (lambda: plot_dependence(posterior(), "age", by="shoe"), "'shoe' are not known"),
        (lambda: plot_dependence(posterior(), "age", by=[1, 2]), "each of 20 rows; it has 2"),
        (lambda: plot_dependence(posterior(), "age", rows=0), "rows must be"),
        (lambda: plot_beeswarm(posterior(), 0), "features must be"),
        (lambda: plot_beeswarm(posterior(), ["shoe"]), "features must be names"),
        (lambda: plot_beeswarm(posterior(), []), "features must be names"),
        (lambda: plot_row(STEPS, features=0), "features must be"),
        (lambda: with_gains(posterior(), np.zeros((3, 2)), [1]), "gains must have shape"),
        (lambda: with_gains(posterior(), np.zeros((3, 1, 2)), [1]), "gains must have shape"),
        (lambda: posterior({"age": FeatureValues("age", np.zeros(3))}), "20 rows; there are 3"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# Values of a table's columns


def test_values_are_those_of_the_table_gaps_and_dates_and_all():
    frame = pd.DataFrame(
        {
            "age": [30.0, np.nan, 61.5, 45.0],
            "seen": pd.to_datetime(["2020-02-29", "2021-05-01", None, "2019-12-31"]),
            "job": ["cook", None, "smith", "cook"],
            "size": [0.0, 2.0, 4.0, 8.0],
            "number": [1_000_003.0, 1_000_001.0, 1_000_002.0, 1_000_007.0],
        }
    )
    encoding = TableEncoding.fit(
        frame, TargetColumn("y", ("0", "1")), hide_missing=True, missing_indicator=True
    )
    found = decoded_values(encoding.encode(frame), encoding)
    texts = {name: [values.text(row) for row in range(4)] for name, values in found.items()}
    assert texts["age"] == ["30", "missing", "61.5", "45"]
    assert texts["seen"] == ["2020-02-29", "2021-05-01", "missing", "2019-12-31"]
    assert texts["job"] == ["cook", "missing", "smith", "cook"]
    assert texts["size"] == ["0", "2", "4", "8"]
    assert texts["number"] == ["1000003", "1000001", "1000002", "1000007"]
    assert texts[next(name for name in texts if "age" in name and name != "age")] == [
        "no", "yes", "no", "no"
    ]  # fmt: skip


def test_dates_come_back_as_dates_and_have_their_axis(tmp_path):
    arviz = pytest.importorskip("arviz")
    days = FeatureValues("age", 18_000.0 + 30 * np.arange(20), dates=True)
    again = arviz.from_netcdf(save_posterior(posterior({"age": days}), tmp_path / "p.nc"))
    assert feature_values(again)["age"].text(1) == "2019-05-14"
    axes = drawn(plot_dependence(again, "age"))
    assert any("2020" in label.get_text() for label in axes.get_xticklabels())


def test_levels_that_may_be_missing_are_not_told_from_x_alone():
    made = posterior(None)
    x = np.column_stack([AGES, np.zeros(20), np.eye(3)[JOBS.astype(int)]])
    inputs = ["age", "age (hidden)", "job=cook", "job=smith", "job=other"]
    made["constant_data"]["x"] = xr.DataArray(
        x, {"row": range(20), "input": inputs}, ("row", "input")
    )
    assert set(feature_values(made)) == {"job"}
