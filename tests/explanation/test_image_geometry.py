"""What explain() says of images: their pixels, and which entry each pixel has."""

import arviz as az
import numpy as np
import pyro
import pytest
import torch
from matplotlib.colors import to_rgb
from pyro.nn import PyroModule
from torch import nn

from lexppl.arviz_compatibility import group_of
from lexppl.effects import imputation_particles, mask_particles
from lexppl.evaluation.imputation import imputed_samples
from lexppl.explanation import explain, save_posterior
from lexppl.explanation.reading.images import feature_map_of, image_geometry
from lexppl.models import (
    MLP,
    CategoricalLikelihood,
    ConstantImputer,
    GaussianImputer,
    Grouping,
    KSubsetSelector,
    Predictor,
    flat_images,
)
from lexppl.models import images as images_of
from lexppl.plots import plot_imputed, plot_selection_map
from lexppl.plots.images import HIDDEN
from lexppl.systems import lex
from tests.plots.test_plots import drawn
from tests.refusals import over, refused

SHAPE = (2, 4, 6)
QUARTERS = (np.arange(4)[:, None] // 2 * 2 + np.arange(6)[None] // 3).ravel().tolist()


class ImageProgram(PyroModule):
    """Images whose pixels share an entry of the mask as `groups` say."""

    def __init__(self, shape=SHAPE, groups=None, imputer=None, k=2):
        super().__init__()
        size = int(np.prod(shape))
        self.shape = shape
        self.grouping = None if groups is None else Grouping(groups)
        entries = size if groups is None else self.grouping.entries
        self.selector = KSubsetSelector(nn.Sequential(nn.Flatten(), MLP(size, entries, seed=0)), k)
        self.imputer = ConstantImputer() if imputer is None else imputer
        network = nn.Sequential(nn.Flatten(), MLP(size, 2, seed=1))
        self.predictor = Predictor(network, CategoricalLikelihood(), event_dim=3)

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", self.selector(x))
            keep = mask if self.grouping is None else self.grouping(mask)
            if keep.shape[-1] == self.shape[1] * self.shape[2]:
                keep = keep.reshape(*keep.shape[:-1], 1, *self.shape[1:])
                keep = keep.expand(*keep.shape[:-3], *self.shape)
            keep = keep.reshape(*keep.shape[: mask.dim() - 1], *self.shape)
            with imputation_particles():
                imputed = pyro.sample("x_imputed", self.imputer(x, keep))
                return pyro.sample("y", self.predictor(imputed), obs=y)


def images(rows=6, shape=SHAPE):
    return torch.rand(rows, *shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("draws", [0, 5])
def test_a_posterior_of_images_has_them_and_their_entries(tmp_path, draws):
    x = images()
    posterior = explain(ImageProgram(groups=QUARTERS), x, draws=draws, rows_per_chunk=4)
    again = az.from_netcdf(save_posterior(posterior, tmp_path / "p.nc"))
    constant = group_of(again, "predictions_constant_data")
    assert constant["x"].dims == ("row", "channel", "height", "width")
    np.testing.assert_array_equal(constant["x"].values, x.numpy())
    np.testing.assert_array_equal(constant["feature_map"], np.reshape(QUARTERS, (4, 6)))
    assert all(v.dtype != object for v in constant.variables.values())
    drawn(plot_selection_map(again, rows=2))
    with pytest.raises(ValueError, match=r"coords names \['input'\]; dimensions to name are"):
        explain(ImageProgram(groups=QUARTERS), x, draws=draws, coords={"input": ["a"]})


@pytest.mark.smoke
@pytest.mark.parametrize("system", [images_of, flat_images])
def test_the_architectures_of_images_tell_their_entries(system):
    segments = np.arange(64).reshape(8, 8) // 20
    for grouping in (Grouping.patches((3, 8, 8), 3), Grouping.superpixels(segments, channels=3)):
        architecture = system((3, 8, 8), grouping=grouping)
        posterior = explain(
            lex(architecture, classes=2, k=1).program(), images(2, (3, 8, 8)), draws=2
        )
        places = image_geometry(posterior).feature_map
        np.testing.assert_array_equal(places, np.reshape(grouping.groups, (8, 8)))
        names = group_of(posterior, "predictions")["feature"].values
        assert names[places[-1, -1]] == grouping.names[-1] and places[-1, -1] == len(names) - 1
    assert Grouping.patches((3, 8, 8), 3).names[-1] == "r3 c3"


def test_entries_that_are_values_have_a_map_for_each_channel():
    posterior = explain(ImageProgram(), images(), draws=2)
    expected = np.arange(48).reshape(SHAPE)
    np.testing.assert_array_equal(image_geometry(posterior).feature_map, expected)


def test_entries_that_are_no_pixels_have_no_map():
    class Halves(ImageProgram):
        """Entries that only the program knows."""

        def forward(self, x, y=None):
            with pyro.plate("data", len(x), dim=-1), mask_particles():
                mask = pyro.sample("mask", self.selector(x))
                keep = mask.repeat_interleave(24, -1).reshape(*mask.shape[:-1], *self.shape)
                with imputation_particles():
                    imputed = pyro.sample("x_imputed", self.imputer(x, keep))
                    return pyro.sample("y", self.predictor(imputed), obs=y)

    program = Halves(groups=[0, 1] * 24, k=1)
    program.grouping = None
    posterior = explain(program, images(), draws=2)
    refused("does not say which pixels", image_geometry, posterior)
    assert "x" in group_of(posterior, "predictions_constant_data")
    refused("which pixels its mask entries are", plot_selection_map, posterior)


@over(([0, 1, 1], 2), ([0.0] * 24, 2), ([-1, *range(23)], 24))
def test_groups_that_are_not_of_pixels_make_no_map(groups, entries):
    assert feature_map_of((1, 4, 6), entries, groups) is None


# Imputed samples


def test_what_is_kept_stays_and_what_is_hidden_is_drawn():
    x = images()
    program = ImageProgram(groups=QUARTERS, imputer=GaussianImputer())
    masks = np.eye(4)[[0, 1, 2, 3, 0, 1]]
    found = imputed_samples(program, x, masks, samples=3, seed=5)
    keep = np.broadcast_to(masks[:, np.array(QUARTERS)].reshape(6, 1, 4, 6), (6, *SHAPE))
    np.testing.assert_array_equal(found.keep, keep)
    kept = np.broadcast_to((keep == 1)[:, None], found.samples.shape)
    np.testing.assert_array_equal(found.samples[kept], np.repeat(x.numpy()[:, None], 3, 1)[kept])
    hidden = found.samples[~kept]
    # 6 · 3 · 36 standard normal draws; six standard errors.
    assert abs(hidden.mean()) < 6 / np.sqrt(hidden.size)
    assert abs(hidden.std() - 1) < 6 / np.sqrt(2 * hidden.size)


@pytest.mark.parametrize("samples", [1, 4])
def test_masks_that_are_not_given_are_drawn(samples):
    found = imputed_samples(ImageProgram(groups=QUARTERS), images(), samples=samples)
    assert found.masks.shape == (6, 4) and (found.masks.sum(1) == 2).all()
    assert found.samples.shape == (6, samples, *SHAPE)


def test_the_figure_has_the_row_what_is_kept_and_the_samples():
    x = images(3, (1, 4, 6))
    program = ImageProgram((1, 4, 6), QUARTERS)
    figure = plot_imputed(program, x, np.eye(4)[:3], samples=2, row_names=["a", "b", "c"])
    drawn(figure)
    assert [axes.get_title() for axes in figure.axes[:4]] == ["image", "kept", *["imputed"] * 2]
    shown = [np.asarray(axes.images[0].get_array()) for axes in figure.axes]
    np.testing.assert_allclose(shown[4][..., 0], x[1, 0], atol=1e-6)
    lilac = np.isclose(shown[5], to_rgb(HIDDEN)).all(-1)
    np.testing.assert_array_equal(lilac, np.reshape(QUARTERS, (4, 6)) != 1)
    np.testing.assert_allclose(shown[6][..., 0], np.where(lilac, 0.0, x[1, 0]), atol=1e-6)


def test_a_program_that_imputes_nothing_is_refused():
    class NoImputer(ImageProgram):
        def forward(self, x, y=None):
            with pyro.plate("data", len(x), dim=-1), mask_particles():
                pyro.sample("mask", self.selector(x))
                with imputation_particles():
                    return pyro.sample("y", self.predictor(x), obs=y)

    refused("imputes nothing at 'x_imputed'", imputed_samples, NoImputer(groups=QUARTERS), images())
