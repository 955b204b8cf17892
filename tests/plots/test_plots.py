"""Pictures show the numbers that they claim to show, and leave matplotlib as it was."""

import io
import re
import warnings

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
from matplotlib.colors import to_rgb

from lexppl.arviz_compatibility import group_of, posterior_of
from lexppl.data import TableEncoding
from lexppl.data.encoding import TargetColumn
from lexppl.evaluation.bayes.calibration import Calibration
from lexppl.evaluation.effects import FeatureEffects, RowSteps
from lexppl.explanation import save_posterior, selection_table
from lexppl.explanation.reading.feature_values import (
    FeatureValues,
    decoded_values,
    feature_values,
    with_gains,
    with_values,
)
from lexppl.explanation.reading.images import image_geometry, with_images
from lexppl.explanation.reading.rows import RowOutcome, row_outcomes, row_spread
from lexppl.inference.training.result import History
from lexppl.plots import (
    plot_beeswarm,
    plot_calibration,
    plot_dependence,
    plot_heatmap,
    plot_history,
    plot_importance,
    plot_row,
    plot_selection_map,
)
from lexppl.plots.images import DARKEST, HIDDEN, STRONGEST, as_colours, tinted
from lexppl.plots.style import BLUE, ORANGE, as_svg, new_figure, plain
from tests.plots.image_posteriors import image_posterior
from tests.refusals import over, refusals, refused


def posterior_from(probability, draws=4, features=None, rows=None):
    """A posterior with these selection probabilities (chain, row, feature)."""
    chains, count, entries = probability.shape
    uniform = np.random.default_rng(0).random((chains, draws, count, entries))
    features = features or [f"x{g + 1}" for g in range(entries)]
    coordinates = {"feature": features, "row": rows or list(range(count))}
    mask = (uniform < probability[:, None]).astype(np.int8)
    stated = (("chain", "row", "feature"), probability, {"site": "mask"})
    return posterior_of(
        {
            "predictions": xr.Dataset(
                {"mask": (("chain", "draw", "row", "feature"), mask)}, coordinates
            ),
            "sample_stats": xr.Dataset({"selection_probability": stated}, coordinates),
        },
        {},
    )


def random_posterior(chains=3, rows=20, features=4):
    return posterior_from(np.random.default_rng(1).random((chains, rows, features)))


def drawn(figure):
    """Render, with every warning an error, and see that there is a picture."""
    with warnings.catch_warnings(action="error"):
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=60)
    assert len(file.getvalue()) > 1000
    return figure.axes[0]


def labelled(axes, start):
    """The one collection whose label starts so."""
    (found,) = [c for c in axes.collections if c.get_label().startswith(start)]
    return found


# Importances


def test_importances_are_those_of_the_table():
    posterior = random_posterior()
    table = selection_table(posterior)
    axes = drawn(plot_importance(posterior))
    means = np.asarray(labelled(axes, "mean").get_offsets())
    np.testing.assert_allclose(means[:, 0], table["selection_probability"])
    assert [label.get_text() for label in axes.get_yticklabels()] == list(table.index)
    ends = np.array([line[:, 0] for line in labelled(axes, "95 %").get_segments()])
    np.testing.assert_allclose(ends, table[["lower", "upper"]].clip(0, 1))


def test_the_legend_names_what_the_interval_is():
    """Of fits to weighted rows it is over rows too."""
    plain, weighted = random_posterior(), random_posterior()
    weighted["predictions"].attrs["row_weights"] = "dirichlet"
    for posterior, what in ((plain, "seeds of the fit"), (weighted, "seeds and rows")):
        labelled(drawn(plot_importance(posterior)), f"95 % t-interval over {what}")


def test_points_of_replicates_stand_in_their_features_line():
    probability = np.random.default_rng(1).random((3, 20, 4))
    posterior = posterior_from(probability)
    order = [["x1", "x2", "x3", "x4"].index(n) for n in selection_table(posterior).index]
    axes = drawn(plot_importance(posterior))
    offsets = np.asarray(labelled(axes, "one replicate").get_offsets()).reshape(3, 4, 2)
    np.testing.assert_allclose(offsets[..., 0], probability.mean(1)[:, order])
    assert (np.abs(offsets[..., 1] - np.arange(4)) < 0.5).all()


def test_one_replicate_has_neither_interval_nor_points():
    axes = drawn(plot_importance(random_posterior(chains=1)))
    labels = {collection.get_label() for collection in axes.collections}
    assert "one replicate" not in labels
    assert not any(label.startswith("95 %") for label in labels)


def test_only_the_first_features_are_shown_and_long_names_are_cut():
    names = [f"feature number {g} with a name that goes on and on" for g in range(40)]
    posterior = posterior_from(np.random.default_rng(1).random((2, 6, 40)), features=names)
    axes = drawn(plot_importance(posterior, features=10))
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert len(labels) == 10
    assert all(len(label) <= 28 and label.endswith("…") for label in labels)
    assert "10 of 40" in axes.get_title(loc="left")


# Heat map


def test_heat_map_shows_each_row_and_feature_where_its_labels_say():
    probability = np.random.default_rng(1).random((2, 12, 4))
    rows = [f"r{n}" for n in range(12)]
    axes = drawn(plot_heatmap(posterior_from(probability, rows=rows)))
    shown = np.asarray(axes.images[0].get_array())
    mean = probability.mean(0)
    row_labels = [label.get_text() for label in axes.get_yticklabels()]
    feature_labels = [label.get_text() for label in axes.get_xticklabels()]
    assert sorted(row_labels) == sorted(rows)
    for i, row in enumerate(row_labels):
        for j, feature in enumerate(feature_labels):
            assert shown[i, j] == pytest.approx(mean[int(row[1:]), int(feature[1:]) - 1])
    assert list(feature_labels) == list(selection_table(posterior_from(probability)).index)


def test_heat_map_puts_rows_that_are_explained_alike_together():
    kind = np.arange(30) % 2
    probability = np.where(kind[:, None] == 0, [0.9, 0.1], [0.1, 0.9])[None]
    probability = probability + np.random.default_rng(0).normal(0, 0.01, probability.shape)
    shown = np.asarray(drawn(plot_heatmap(posterior_from(probability))).images[0].get_array())
    changes = (np.diff((shown[:, 0] > 0.5).astype(int)) != 0).sum()
    assert changes == 1


@pytest.mark.parametrize(("rows", "features"), [(1, 1), (2, 3), (500, 784)])
def test_heat_map_of_any_size(rows, features):
    figure = plot_heatmap(random_posterior(1, rows, features), rows=200)
    assert drawn(figure).images[0].get_array().shape == (min(rows, 200), features)


@pytest.mark.smoke
def test_heat_map_of_equal_rows():
    drawn(plot_heatmap(posterior_from(np.full((2, 9, 3), 0.5))))


# History


def history_of(valid, stage=None):
    valid = np.asarray(valid, dtype=float)
    stage = np.zeros(len(valid), dtype=int) if stage is None else np.asarray(stage)
    return History(valid - 0.1, valid, stage, np.ones(len(valid)))


def best_epochs(axes):
    marks = [line for line in axes.lines if line.get_color() == ORANGE]
    return [float(epoch) for line in marks for epoch in line.get_xdata()]


def test_best_epochs_are_marked_in_the_last_stage():
    valid = [[0.1, 0.2], [0.9, 0.8], [0.5, 0.6], [0.7, 0.4]]
    assert best_epochs(drawn(plot_history(history_of(valid)))) == [1.0, 1.0]
    axes = drawn(plot_history(history_of(valid, stage=[0, 1, 1, 1])))
    assert best_epochs(axes) == [3.0, 4.0]


def test_history_without_validation_rows_or_with_one_epoch():
    history = History(np.array([[0.5], [0.4]]), np.full((2, 1), np.nan), np.zeros(2), np.ones(2))
    axes = drawn(plot_history(history))
    assert best_epochs(axes) == []
    drawn(plot_history(history_of([[0.3]])))


def test_a_huge_first_loss_does_not_hide_the_rest():
    valid = np.concatenate([[[1000.0]], np.linspace(0.7, 0.4, 200)[:, None]])
    low, high = drawn(plot_history(history_of(valid))).get_ylim()
    assert low < 0.3
    assert 0.7 < high < 2.0


# Mistakes, and matplotlib's state


def settings():
    """All of matplotlib's, but for the backend, which resolves itself when it is looked at."""
    return {name: value for name, value in mpl.rcParams.items() if name != "backend"}


WRONG = {"a posterior": random_posterior(), "a number": 3, "nothing": None}


@pytest.mark.parametrize("given", WRONG.values(), ids=WRONG)
def test_another_thing_is_refused_with_what_to_give(given):
    named = type(given).__name__
    with pytest.raises(TypeError, match=rf"history.*result\.history of what fit.*is a {named}"):
        plot_history(given)
    refused(rf"steps must be a RowSteps.*is a {named}", plot_row, given, error=TypeError)
    for plot in (plot_importance, plot_heatmap, plot_beeswarm, lambda p: plot_dependence(p, "x1")):
        if given is not WRONG["a posterior"]:
            refused(rf"posterior must be.*explain\(\).*is {named}", plot, given, error=TypeError)


def calibration_of(names=("good", "narrow"), count=300):
    """Uniform ranks, and ranks at the ends."""
    generator = np.random.default_rng(0)
    ends = np.where(generator.random((count, 1)) < 0.5, 0, 99)
    ranks = np.concatenate([generator.integers(0, 100, (count, len(names) - 1)), ends], 1)
    none = np.zeros(ranks.shape)
    return Calibration(tuple(names), ranks, 99, none, none, None, "a method")


def test_calibration_shows_what_the_table_says():
    found = calibration_of()
    figure = plot_calibration(found)
    drawn(figure)
    assert [a.get_title() for a in figure.axes] == ["good: consistent", "narrow: too narrow"]
    line = figure.axes[1].lines[-1]
    np.testing.assert_allclose(
        line.get_ydata(), found.uniform.reached(found.ranks[:, 1]) - found.uniform.points
    )
    assert line.get_color() == ORANGE


def test_of_many_quantities_the_least_uniform_are_shown():
    names = [f"q{i}" for i in range(30)] + ["narrow"]
    figure = plot_calibration(calibration_of(names), most=4)
    assert len(figure.axes) == 4
    assert "narrow: too narrow" in [a.get_title() for a in figure.axes]


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


def effects_on(labels, rows=20):
    """Effects of age and job by two fits, of which the first keeps age in every other row and the
    second in none."""
    draw = torch.Generator().manual_seed(3)
    each = torch.randn(2, rows, 2, len(labels) or 1, generator=draw, dtype=torch.float64)
    kept = torch.ones(2, rows, 2)
    kept[0, ::2, 0], kept[1, :, 0] = 0.0, 0.0
    return FeatureEffects(each, kept, ("age", "job"), labels or None)


@pytest.mark.parametrize("labels", [(), ("ill", "well"), ("a", "b", "c")])
def test_effects_against_the_value_are_of_the_rows_that_keep_it(labels):
    effects = effects_on(labels)
    axes = drawn(plot_dependence(posterior(), "age", effects=effects))
    points = [np.ma.getdata(c.get_offsets()) for c in axes.collections]
    shown = range(3) if len(labels) > 2 else [-1]
    assert len(points) == len(shown)
    for places, c in zip(points, shown, strict=True):
        seen = np.isfinite(places).all(1)
        np.testing.assert_array_equal(seen, np.arange(20) % 2 == 1)
        np.testing.assert_array_equal(places[seen, 0], AGES[1::2])
        np.testing.assert_allclose(places[seen, 1], effects.effects[0, 1::2, 0, c])
    named = {0: "mean response", 2: "log-odds of well", 3: "log-odds of each label"}
    assert axes.get_ylabel() == f"effect on the {named[len(labels)]}"
    legends = [text.get_text() for legend in axes.figure.legends for text in legend.get_texts()]
    assert legends == list(labels) * (len(labels) > 2)


def test_effects_of_two_fits_are_weighed_by_the_draws_that_keep_it():
    effects = effects_on(("ill", "well"))
    effects.kept[:, :, 1] = torch.tensor([0.5, 1.0])[:, None]
    axes = drawn(plot_dependence(posterior(), "job", by="age", effects=effects))
    points = np.concatenate([np.ma.getdata(c.get_offsets()) for c in axes.collections])
    heights = points[np.isfinite(points).all(1), 1]
    expected = (effects.effects[0, :, 1, 1] + 2 * effects.effects[1, :, 1, 1]) / 3
    np.testing.assert_allclose(np.sort(heights), np.sort(expected[~np.isnan(JOBS)]))


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


def test_points_of_a_swarm_at_one_place_stand_by_value():
    made = with_gains(posterior(), np.zeros((20, 2)), list(range(20)))
    age = next(c for c in drawn(plot_beeswarm(made, ["age"])).collections if len(c.get_offsets()))
    down = np.asarray(age.get_offsets())[:, 1]
    assert len(np.unique(down)) == 20 and np.abs(down.mean()) < 1e-9
    assert (np.diff(AGES[np.argsort(-down, kind="stable")]) >= 0).all()


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
    bars = STEPS.bars(features)
    ends = bars["start"] + bars["step"]
    np.testing.assert_allclose(ends.iloc[:-1], bars["start"].iloc[1:], atol=1e-12)
    assert ends.iloc[-1] == STEPS.predicted and bars["start"].iloc[0] == STEPS.base
    assert bars["is_level"].tolist() == [True, *[False] * (len(bars) - 2), True]
    assert len(bars) == 3 + min(features, 3) + (features < 3)  # No draw keeps the shoe.


def test_waterfall_shows_its_bars():
    axes = drawn(plot_row(STEPS, {"age": "71"}, features=2))
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["base rate", "all hidden", "age = 71", "job", "1 more", "prediction"]
    widths = [bar.get_width() for bar in axes.patches]
    np.testing.assert_allclose(widths, [0.0, 0.1, 0.5, -0.1, 0.02, 0.0], atol=1e-12)
    assert axes.patches[2].get_facecolor()[:3] == pytest.approx(rgb(BLUE))
    assert axes.patches[3].get_facecolor()[:3] == pytest.approx(rgb(ORANGE))
    assert axes.get_xlabel() == "log p(ill), nats"


def test_without_a_base_it_starts_where_all_is_hidden():
    bars = RowSteps(TABLE, np.nan, -0.9, -0.48, None).bars(9)
    assert bars.index[0] == "all hidden" and bars["start"].iloc[0] == -0.9
    drawn(plot_row(RowSteps(TABLE, np.nan, -0.9, -0.48, None)))


# Widths, orders and mistakes


@over(
    lambda width: plot_importance(random_posterior(), width=width),
    lambda width: plot_heatmap(random_posterior(), width=width),
    lambda width: plot_history(history_of([[0.5], [0.4]]), width=width),
    lambda width: plot_beeswarm(random_posterior(), width=width),
    lambda width: plot_dependence(posterior(), "age", width=width),
    lambda width: plot_row(STEPS, width=width),
)
def test_a_picture_has_the_width_asked_for_and_leaves_matplotlib_as_it_was(plot):
    before = settings()
    figure = plot(3.7)
    drawn(figure)
    assert figure.get_size_inches()[0] == 3.7 and settings() == before


def test_heat_map_in_an_order_of_ones_own():
    axes = drawn(plot_heatmap(random_posterior(), order=["x3", "x1", "x4", "x2"]))
    assert [label.get_text() for label in axes.get_xticklabels()] == ["x3", "x1", "x4", "x2"]


test_mistakes_are_named = refusals(
    (lambda: plot_importance(random_posterior(), features=0), "features must be"),
    (lambda: plot_heatmap(random_posterior(), rows=0), "rows must be"),
    (lambda: plot_history(history_of(np.zeros((0, 1)))), "no epochs"),
    (lambda: plot_calibration(np.zeros((5, 1))), TypeError, "what calibration"),
    (lambda: plot_calibration(calibration_of(), level=1.0), "level"),
    (lambda: plot_heatmap(random_posterior(), order=["x1"]), "order must have each"),
    (lambda: plot_dependence(posterior(), "shoe"), "feature must be one of"),
    (lambda: plot_dependence(random_posterior(), "x1"), "are not known"),
    (lambda: plot_dependence(posterior(), "age", by="shoe"), "'shoe' are not known"),
    (
        lambda: plot_dependence(posterior(), "age", by=[1, 2]),
        r"by must have shape \(20,\); the shape is \(2,\)",
    ),
    (lambda: plot_dependence(posterior(), "age", rows=0), "rows must be"),
    (
        lambda: plot_dependence(posterior(), "age", effects=effects_on((), rows=7)),
        r"effects must have shape \(20, 1\)",
    ),
    (
        lambda: plot_dependence(posterior(), "age", by="job", effects=effects_on(("a", "b", "c"))),
        "leave out by=",
    ),
    (lambda: plot_beeswarm(posterior(), 0), "features must be"),
    (lambda: plot_beeswarm(posterior(), ["shoe"]), "features must be names"),
    (lambda: plot_beeswarm(posterior(), []), "features must be names"),
    (lambda: plot_row(STEPS, features=0), "features must be"),
    (lambda: with_gains(posterior(), np.zeros((3, 2)), [1]), "gains must have shape"),
    (lambda: with_gains(posterior(), np.zeros((3, 1, 2)), [1]), "gains must have shape"),
    (
        lambda: posterior({"age": FeatureValues("age", np.zeros(3))}),
        r"'age' .* \(20,\); the shape is \(3,\)",
    ),
)


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


def test_an_svg_has_the_text_the_colours_and_no_name_of_another():
    pages = []
    for label in ("nats <b>", "gain"):
        figure, axes = new_figure(4.0, 3.0)
        axes.plot([0.0, 1.0, 2.0], [0.0, np.nan, 1.0], "o-", color=BLUE)
        axes.set_xlabel(label)
        plain(axes, grid="y")
        pages.append(as_svg(figure, f'likelihood against "{label}"'))
        assert figure.number not in mpl.pyplot.get_fignums()
    first, second = map(str, pages)
    assert first.startswith(
        '<svg class="chart" role="img" aria-label="likelihood against &#34;nats'
    )
    assert "<b>" not in first and ">nats &lt;b&gt;</text>" in first and "nan" not in first
    assert "var(--up)" in first and "var(--line)" in first and BLUE.lower() not in first
    names = [set(re.findall(r'id="([^"]+)"', page)) for page in (first, second)]
    assert names[0] and not names[0] & names[1]
    assert mpl.rcParams["svg.fonttype"] == "path"


# Pictures of images and texts show the masks that they claim to show, where they are.


SHAPE = (1, 4, 6)
PATCHES = (np.arange(4)[:, None] // 2 * 2 + np.arange(6)[None] // 3).ravel().tolist()


def pixels(axes):
    (image,) = axes.images
    return np.asarray(image.get_array())


def panels(figure, columns):
    """By line and column; colour bars stand after them."""
    count = sum(bool(axes.images) for axes in figure.axes)
    return [figure.axes[i : i + columns] for i in range(0, count, columns)]


@pytest.mark.parametrize("shape", [SHAPE, (3, 4, 6), (2, 4, 6)])
@pytest.mark.parametrize("groups", [None, PATCHES], ids=["pixels", "patches"])
def test_each_pixel_has_the_tint_of_its_entry(shape, groups):
    posterior = image_posterior(shape, groups)
    figure = plot_selection_map(posterior, rows=[13, 10], draws=2)
    drawn(figure)
    p = group_of(posterior, "sample_stats")["selection_probability"].values.mean(0)
    x = group_of(posterior, "constant_data")["x"].values
    for line, place in zip(panels(figure, 5), (3, 0), strict=True):
        entry = np.arange(24) if groups is None else np.array(PATCHES)
        strength = STRONGEST * p[place][entry].reshape(4, 6, 1)
        grey = DARKEST + (1 - DARKEST) * x[place].mean(0)[..., None]
        expected = (1 - strength) * grey + strength * np.array(to_rgb(BLUE))
        np.testing.assert_allclose(pixels(line[1]), expected, atol=1e-12)
        shown = x[place].transpose(1, 2, 0) if shape[0] == 3 else x[place].mean(0)[..., None]
        np.testing.assert_allclose(pixels(line[0]), np.broadcast_to(shown, (4, 6, 3)), atol=1e-12)


def test_the_second_panel_is_the_intervals_width_and_draws_hide_what_they_hide():
    posterior = image_posterior(groups=PATCHES)
    figure = plot_selection_map(posterior, rows=[12], draws=3)
    p = group_of(posterior, "sample_stats")["selection_probability"].values[:, 2]
    half = 4.302652729911275 * p.std(0, ddof=1) / np.sqrt(3)
    wide = (p.mean(0) + half).clip(0, 1) - (p.mean(0) - half).clip(0, 1)
    (line,) = panels(figure, 6)
    np.testing.assert_allclose(pixels(line[2]), wide[np.array(PATCHES)].reshape(4, 6))
    masks = group_of(posterior, "predictions")["mask"].values
    for chain in range(3):
        hidden = (masks[chain, 0, 2][np.array(PATCHES)] == 0).reshape(4, 6)
        lilac = np.isclose(pixels(line[3 + chain]), to_rgb(HIDDEN)).all(-1)
        np.testing.assert_array_equal(lilac, hidden)
        assert hidden.any() and not hidden.all()


def test_channels_with_entries_of_their_own_are_averaged():
    posterior = image_posterior((3, 2, 2), list(range(12)))
    geometry = image_geometry(posterior)
    assert geometry.feature_map.shape == (3, 2, 2)
    values = np.arange(12.0)
    np.testing.assert_allclose(geometry.on_pixels(values), [[4.0, 5.0], [6.0, 7.0]])


def test_attributions_are_blue_above_zero_and_orange_below():
    values = np.zeros((2, 5, 24))
    values[:, :, 0], values[:, :, 1] = 2.0, -1.0
    posterior = image_posterior(chains=2, attribution=values)
    figure = plot_selection_map(posterior, rows=1)
    shown = pixels(panels(figure, 6)[0][1])
    grey = DARKEST + (1 - DARKEST) * group_of(posterior, "constant_data")["x"].values[0, 0]
    for column, hue, strength in ((0, BLUE, STRONGEST), (1, ORANGE, STRONGEST / 2)):
        mixed = (1 - strength) * grey[0, column] + strength * np.array(to_rgb(hue))
        np.testing.assert_allclose(shown[0, column], mixed, atol=1e-12)
    np.testing.assert_allclose(shown[1], np.repeat(grey[1][:, None], 3, 1), atol=1e-12)
    assert figure.axes[-2].get_xlim() == (-2.0, 2.0)


def test_a_single_fit_says_how_far_its_draws_scatter():
    posterior = image_posterior(chains=1)
    p = group_of(posterior, "sample_stats")["selection_probability"].values[0]
    spread = row_spread(posterior, [1, 4])
    np.testing.assert_allclose(spread.values, np.sqrt(p * (1 - p))[[1, 4]])
    assert "sd" in spread.label
    drawn(plot_selection_map(posterior))


def test_chains_of_a_sampler_are_draws_and_no_replicates():
    posterior = image_posterior(chains=2)
    groups = {n: group_of(posterior, n) for n in ("sample_stats", "constant_data")}
    masks = group_of(posterior, "predictions").assign_attrs(chains="Markov chains")
    spread = row_spread(posterior_of({**groups, "predictions": masks}, {}), [1, 4])
    p = groups["sample_stats"]["selection_probability"].values.mean(0)[[1, 4]]
    np.testing.assert_allclose(spread.values, np.sqrt(p * (1 - p)))
    assert spread.meaning == "the standard deviation of a draw of the mask"
    assert "2 replicates" in row_spread(posterior, [1, 4]).meaning


def test_the_interval_of_folds_is_of_their_fits():
    posterior = image_posterior(chains=1)
    fits = np.random.default_rng(5).random((4, 5, 24))
    stats = group_of(posterior, "sample_stats").assign(
        fold_selection_probability=(("fold", "row", "feature"), fits)
    )
    groups = {n: group_of(posterior, n) for n in ("predictions", "constant_data")}
    wide = row_spread(posterior_of({**groups, "sample_stats": stats}, {})).values
    middle = stats["selection_probability"].values[0]
    half = 3.182446305284263 * fits.std(0, ddof=1)
    np.testing.assert_allclose(wide, (middle + half).clip(0, 1) - (middle - half).clip(0, 1))


def test_images_come_back_from_a_file_and_need_no_lexppl(tmp_path):
    arviz = pytest.importorskip("arviz")
    posterior = image_posterior((3, 4, 6), PATCHES)
    again = arviz.from_netcdf(save_posterior(posterior, tmp_path / "p.nc"))
    places = again["constant_data"]["feature_map"]
    maps = again["sample_stats"]["selection_probability"].mean("chain").isel(feature=places)
    assert maps.dims == ("row", "height", "width")
    p = group_of(posterior, "sample_stats")["selection_probability"].values.mean(0)
    np.testing.assert_allclose(maps[2, 3, 5], p[2, 3])
    np.testing.assert_array_equal(
        image_geometry(again).images, group_of(posterior, "constant_data")["x"].values
    )


def test_flat_rows_become_images_when_told(tmp_path):
    arviz = pytest.importorskip("arviz")
    posterior = random_posterior(features=8)
    x = np.random.default_rng(0).random((20, 8))
    constant = xr.Dataset({"x": (("row", "input"), x)}, {"row": range(20)})
    groups = {n: group_of(posterior, n) for n in ("predictions", "sample_stats")}
    posterior = posterior_of({**groups, "constant_data": constant}, {})
    refused(r"with_images\(posterior, \(C, H, W\)\)", plot_selection_map, posterior)
    with_images(posterior, (1, 2, 4))
    again = arviz.from_netcdf(save_posterior(posterior, tmp_path / "p.nc"))
    np.testing.assert_array_equal(image_geometry(again).images, x.reshape(20, 1, 2, 4))
    drawn(plot_selection_map(again))
    # What tables are read by is there as it was.
    np.testing.assert_array_equal(group_of(again, "constant_data")["x"].values, x)


@over(
    ((1, 3, 4), None, r"12 values; a row of x has shape \(8,\)"),
    ((2, 4), None, r"shape must be \(C, H, W\)"),
    ((1, 2, 4), [0] * 8, "be of the posterior's 8 entries"),
    ((1, 2, 4), [-1, *range(1, 8)], "be of the posterior's 8 entries"),
    ((2, 2, 2), [0, 1, 2], "there are 3"),
)
def test_images_that_the_rows_are_not_are_refused(shape, groups, message):
    posterior = random_posterior(features=8)
    constant = xr.Dataset({"x": (("row", "input"), np.zeros((20, 8)))})
    every = {n: group_of(posterior, n) for n in ("predictions", "sample_stats")}
    with pytest.raises(ValueError, match=message):
        with_images(posterior_of({**every, "constant_data": constant}, {}), shape, groups)


def test_values_beyond_the_unit_interval_are_put_on_it():
    x = np.array([[[[-2.0, 0.0, 2.0]]]])
    np.testing.assert_allclose(as_colours(x)[0, 0, :, 0], [0.0, 0.5, 1.0])
    np.testing.assert_allclose(as_colours(x.clip(0, 1))[0, 0, :, 0], [0.0, 0.0, 1.0])


def test_no_value_leaves_the_image_in_light_grey():
    grey = np.full((2, 2, 3), 0.5)
    expected = DARKEST + (1 - DARKEST) * 0.5
    np.testing.assert_allclose(tinted(grey, np.zeros((2, 2)), 1.0), expected)


test_rows_that_there_are_not_are_refused = refusals(
    ([99], ValueError, r"names of the posterior's 5 rows, such as 10, 11, 12; \[99\]"),
    ([], ValueError, "none are given"),
    (0, ValueError, "rows must be"),
    ("10", TypeError, "a list of names"),
    of=lambda rows: plot_selection_map(image_posterior(), rows=rows),
)


def test_all_draws_there_are_and_no_more():
    figure = plot_selection_map(image_posterior(chains=1, draws=2), rows=1, draws=9)
    assert len(panels(figure, 5)) == 1
    drawn(plot_selection_map(image_posterior(), draws=0))


# What is predicted


def test_lines_say_what_the_row_is_and_what_is_predicted():
    posterior = image_posterior()
    told = [outcome.lines() for outcome in row_outcomes(posterior)]
    assert told[0] == ["is cat", "pred. dog, 80 %"] and told[1] == ["is dog", "pred. dog, 80 %"]
    axes = plot_selection_map(posterior, rows=[11]).axes[0]
    assert axes.get_ylabel() == "row 11\nis dog\npred. dog, 80 %"


def test_labels_are_names_as_text_and_places_as_numbers():
    posterior = image_posterior(classes=("1", "0"))
    assert [o.observed for o in row_outcomes(posterior)] == ["1", "0", "1", "0", "1"]
    named = row_outcomes(posterior, ["0", "0", "1", "1", "0"])
    assert [o.observed for o in named] == ["0", "0", "1", "1", "0"]
    assert named[0].right
    refused(r"places 0 … 1; it has \['2'\]", row_outcomes, posterior, [0, 1, 2, 0, 1])
    refused("5 rows; there are 2", row_outcomes, posterior, [0, 1])


def test_a_response_is_neither_right_nor_wrong():
    assert RowOutcome("1.5", "1.4").right is None
    assert RowOutcome("a", "a", 0.6).right and not RowOutcome("a", "b", 0.6).right
