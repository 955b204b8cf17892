"""Pictures of images and texts show the masks that they claim to show, where they are."""

import numpy as np
import pytest
import xarray as xr
from matplotlib.colors import to_rgb

from lexppl.arviz_compatibility import group_of, posterior_of
from lexppl.explanation import save_posterior
from lexppl.explanation.reading.images import image_geometry, with_images
from lexppl.explanation.reading.rows import RowOutcome, row_outcomes, row_spread
from lexppl.plots import plot_selection_map
from lexppl.plots.images import DARKEST, HIDDEN, STRONGEST, as_colours, tinted
from lexppl.plots.style import BLUE, ORANGE
from tests.plots.image_posteriors import image_posterior
from tests.plots.test_plots import drawn, random_posterior
from tests.refusals import over, refusals, refused

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
