"""Pictures show the numbers that they claim to show, and leave matplotlib as it was."""

import io
import subprocess
import sys
import warnings

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr

from lexppl.arviz_compatibility import posterior_of
from lexppl.evaluation import Calibration
from lexppl.explanation import selection_table
from lexppl.inference import History
from lexppl.plots import (
    plot_beeswarm,
    plot_calibration,
    plot_dependence,
    plot_heatmap,
    plot_history,
    plot_importance,
    plot_row,
)
from lexppl.plots.style import ORANGE


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
    with warnings.catch_warnings():
        warnings.simplefilter("error")
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
    for posterior, over in ((plain, "seeds of the fit"), (weighted, "seeds and rows")):
        labelled(drawn(plot_importance(posterior)), f"95 % t-interval over {over}")


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
    return [float(line.get_xdata()[0]) for line in marks]


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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plot_importance(random_posterior(), features=0), "features must be"),
        (lambda: plot_heatmap(random_posterior(), rows=0), "rows must be"),
        (lambda: plot_history(history_of(np.zeros((0, 1)))), "no epochs"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def settings():
    """All of matplotlib's, but for the backend, which resolves itself when it is looked at."""
    return {name: value for name, value in mpl.rcParams.items() if name != "backend"}


def test_global_state_is_left_alone():
    before = settings()
    for figure in (
        plot_importance(random_posterior()),
        plot_heatmap(random_posterior()),
        plot_history(history_of([[0.5], [0.4]])),
    ):
        drawn(figure)
    assert settings() == before


@pytest.mark.complete
def test_pyplot_is_not_imported():
    code = (
        "import sys, numpy as np, lexppl.plots as p; from lexppl.inference import History;"
        "one = np.ones((1, 1)); p.plot_history(History(one, one, np.zeros(1), np.ones(1)));"
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


WRONG = {"a posterior": random_posterior(), "a number": 3, "nothing": None}


@pytest.mark.parametrize("given", WRONG.values(), ids=WRONG)
def test_another_thing_is_refused_with_what_to_give(given):
    named = type(given).__name__
    with pytest.raises(TypeError, match=rf"history.*result\.history of what fit.*is a {named}"):
        plot_history(given)
    with pytest.raises(TypeError, match=rf"steps must be a RowSteps.*is a {named}"):
        plot_row(given)
    for plot in (plot_importance, plot_heatmap, plot_beeswarm, lambda p: plot_dependence(p, "x1")):
        if given is not WRONG["a posterior"]:
            with pytest.raises(TypeError, match=rf"posterior must be.*explain\(\).*is {named}"):
                plot(given)


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


def test_what_is_no_calibration_is_refused():
    with pytest.raises(TypeError, match="what calibration"):
        plot_calibration(np.zeros((5, 1)))
    with pytest.raises(ValueError, match="level"):
        plot_calibration(calibration_of(), level=1.0)
