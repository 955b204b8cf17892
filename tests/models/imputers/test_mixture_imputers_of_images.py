"""Mixture imputers of images: the flat row's distribution, brute force on few pixels, and the
memory that hard masks take."""

import itertools

import numpy as np
import pytest
import torch
from sklearn.mixture import GaussianMixture
from torch.utils._python_dispatch import TorchDispatchMode

from lexppl.choices.imputers import IMPUTERS, NOT_OF_IMAGES, OF_PIXELS
from lexppl.models import (
    GaussianMixtureImputer,
    KMeansDataImputer,
    MixtureDataImputer,
    MixtureMeansImputer,
)
from lexppl.models.imputers import imputer_of
from lexppl.models.imputers.mixture import fit_diagonal_mixture, start_by_clusters

EVENT = (2, 1, 2)
C, D = 3, 4


def parts(components=C, event=EVENT, dtype=torch.float64):
    generator = torch.Generator().manual_seed(5)
    weights = torch.rand(components, generator=generator, dtype=dtype) + 0.2
    means = torch.rand(components, *event, generator=generator, dtype=dtype)
    scales = 0.1 + 0.3 * torch.rand(components, *event, generator=generator, dtype=dtype)
    reference = torch.rand(max(9, components), *event, generator=generator, dtype=dtype)
    return weights / weights.sum(), means, scales, reference


def imputers(flat=False, **sizes):
    weights, means, scales, reference = parts(**sizes)
    if flat:
        means, scales, reference = (t.flatten(1) for t in (means, scales, reference))
    return {
        "gaussian-mixture": GaussianMixtureImputer(weights, means, scales),
        "mixture-means": MixtureMeansImputer(weights, means, scales),
        "mixture-data": MixtureDataImputer(weights, means, scales, reference),
        "kmeans-data": KMeansDataImputer(reference[: len(means)], reference),
    }


NAMES = list(imputers())


def masks(kind):
    hard = torch.tensor(list(itertools.product([0.0, 1.0], repeat=D)), dtype=torch.float64)
    soft = torch.rand(16, D, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return {"soft": soft, "hard": hard, "boolean": hard.bool()}[kind].unsqueeze(1)


def rows(event=EVENT, count=2, dtype=torch.float64):
    return torch.rand(count, *event, generator=torch.Generator().manual_seed(1), dtype=dtype)


@pytest.mark.parametrize("kind", ["soft", "hard", "boolean"])
@pytest.mark.parametrize("name", NAMES)
def test_an_image_is_imputed_as_the_row_of_its_pixels(name, kind):
    x, keep = rows(), masks(kind)
    found = []
    for flat, shape in ((True, (D,)), (False, EVENT)):
        distribution = imputers(flat)[name](x.reshape(2, *shape), keep.reshape(16, 1, *shape))
        assert distribution.batch_shape == (16, 2)
        assert distribution.event_shape == shape
        torch.manual_seed(3)
        draws = distribution.expand((5, 16, 2)).rsample()
        found.append([t.flatten(-len(shape)) for t in (draws, distribution.mean)])
        found[-1].append(distribution.variance.flatten(-len(shape)))
        if name == "gaussian-mixture":
            found[-1].append(distribution.log_prob(draws))
    for flat, image in zip(*found, strict=True):
        assert torch.equal(flat, image)


class _Largest(TorchDispatchMode):
    """Numbers of the largest tensor that an operation makes; views make none."""

    def __init__(self):
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        made = operation(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else (made,):
            if isinstance(tensor, torch.Tensor):
                self.numbers = max(self.numbers, tensor.untyped_storage().nbytes() // 4)
        return made


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("name", ["gaussian-mixture", "mixture-data", "kmeans-data"])
def test_memory_of_hard_masks_is_that_of_the_rows_whatever_the_masks(name, soft):
    """Of 8 images of 1,568 pixels and 40 components, half a million; of 4 masks of each, 2."""
    event, components = (1, 28, 56), 40
    imputer = imputers(components=components, event=event, dtype=torch.float32)[name]
    keep = torch.rand(4, 8, *event)
    with _Largest() as largest:
        draws = imputer(rows(event, 8, torch.float32), keep if soft else keep.round()).sample()
    assert draws.isfinite().all()
    assert (largest.numbers > 2 * 8 * 1568 * components) == soft


def images(count=200, event=(1, 4, 4)):
    """Two kinds: bright above, or bright below; the corner is always black."""
    generator = torch.Generator().manual_seed(7)
    kind = torch.rand(count, generator=generator) < 0.4
    x = 0.1 * torch.rand(count, *event, generator=generator)
    half = event[1] // 2
    x[kind, :, :half] += 0.7
    x[~kind, :, half:] += 0.7
    x[..., 0, 0] = 0.0
    return x, kind


@pytest.mark.parametrize("imputer", [GaussianMixtureImputer, MixtureMeansImputer])
def test_what_is_kept_of_an_image_tells_the_rest(imputer):
    x, kind = images()
    fitted = imputer.fit(x, components=2)
    keep = torch.zeros(1, 4, 4)
    keep[:, 0, 1:] = 1
    hidden = fitted(x, keep).sample()[:, :, 2:].mean((1, 2, 3))
    assert ((hidden < 0.4) == kind).all()
    assert fitted.means.shape == (2, 1, 4, 4)
    assert fitted.scales.min() > 0.01  # a black corner that is grey once must not decide
    none = fitted(x, torch.zeros(1, 4, 4)).sample()
    shares = torch.tensor([(none[:, :, 2:].mean((1, 2, 3)) < 0.4).float().mean()])
    assert 0.2 < float(shares) < 0.6


def test_a_least_scale_gives_scikit_learns_mixture_from_clusters():
    x = images()[0].flatten(1).double()
    shares, means, scales = start_by_clusters(x, 3, seed=1, least_scale=0.05)
    expected = GaussianMixture(
        3,
        covariance_type="diag",
        reg_covar=0.05**2,
        max_iter=200,
        weights_init=shares,
        means_init=means,
        precisions_init=scales**-2,
    ).fit(x)
    weights, means, fitted = fit_diagonal_mixture(x, 3, seed=1, least_scale=0.05)
    np.testing.assert_allclose(weights, expected.weights_, atol=1e-6)
    np.testing.assert_allclose(means, expected.means_, atol=1e-6)
    np.testing.assert_allclose(fitted**2, expected.covariances_, atol=1e-6)
    assert np.abs(scales**2 - expected.covariances_).max() > 1e-4  # the control


@pytest.mark.parametrize("name", [n for n in (*IMPUTERS, *OF_PIXELS) if n not in NOT_OF_IMAGES])
def test_each_name_is_an_imputer_of_images(name):
    x = images(60)[0]
    fitted = imputer_of(name, x, seed=0)
    sample = fitted(x, torch.zeros(3, 60, 1, 4, 4)).sample()
    assert sample.shape == (3, 60, 1, 4, 4)
    assert sample.isfinite().all()
