"""Baselines drawn from an imputer, against the distribution that they should have."""

import pytest
import torch
from captum.attr import FeatureAblation, GradientShap
from scipy.stats import norm
from torch import nn

from lexppl.compare import conditional_baselines, unconditional_baselines
from lexppl.models import Grouping
from lexppl.models.imputers.simple import GaussianImputer, MarginalImputer
from tests.compare.gaussian import (
    COVARIANCE,
    FAILURE,
    MEAN,
    ROWS,
    WEIGHTS,
    conditional_mean,
    gaussian,
)

X, SLOPES = torch.from_numpy(ROWS), torch.from_numpy(WEIGHTS)[None]


def linear():
    network = nn.Linear(3, 1, bias=False, dtype=torch.float64)
    network.weight.data.copy_(SLOPES)
    return network


def test_nothing_kept_gives_the_whole_law():
    draws = unconditional_baselines(gaussian(), X, draws=4000)
    assert draws.shape == (4000, 3)
    of_other = unconditional_baselines(gaussian(), X[1:], draws=5)
    assert torch.equal(of_other, unconditional_baselines(gaussian(), X[:1], draws=5))
    image = torch.zeros(2, 1, 4, 4)
    assert unconditional_baselines(GaussianImputer(), image, draws=3).shape == (3, 1, 4, 4)
    z = (draws.mean(0) - MEAN) / (COVARIANCE.diagonal() / 4000).sqrt()
    products = (draws - MEAN)[:, :, None] * (draws - MEAN)[:, None]
    z_products = (products.mean(0) - COVARIANCE) / (products.std(0) / 4000**0.5)
    limit = norm.isf(FAILURE / 18)
    assert float(z.abs().max()) < limit and float(z_products.abs().max()) < limit
    independent = (products.mean(0) - torch.eye(3)) / (products.std(0) / 4000**0.5)
    assert float(independent[0, 1].abs()) > 2 * limit


def test_gradient_shap_of_a_linear_model():
    # One baseline, so that Captum's own choice among baselines has nothing to choose.
    baseline = unconditional_baselines(gaussian(), X, draws=1)
    found = GradientShap(linear()).attribute(X, baseline, n_samples=3)
    torch.testing.assert_close(found, SLOPES * (X - baseline))
    reference = unconditional_baselines(MarginalImputer(X), X, draws=50)
    assert bool((reference[:, None] == X).all(-1).any(-1).all())


def mean_of(row, hidden):
    kept = [d for d in range(3) if d not in hidden]
    return torch.from_numpy(conditional_mean(row.numpy(), kept))[hidden]


def z_of_ablation(attributions, expected):
    error = attributions.std(0) / len(attributions) ** 0.5
    return ((attributions.mean(0) - expected) / error).abs()


def test_ablation_of_one_feature_is_conditional():
    baselines = conditional_baselines(gaussian(), X, draws=400)
    assert baselines.shape == (400, 2, 3)
    method = FeatureAblation(linear())
    found = torch.stack([method.attribute(X, b) for b in baselines])
    mean = torch.stack([torch.cat([mean_of(r, [d]) for d in range(3)]) for r in X])
    limit = norm.isf(FAILURE / 12)
    assert float(z_of_ablation(found, SLOPES * (X - mean)).max()) < limit
    assert float(z_of_ablation(found, SLOPES * (X - MEAN)).max()) > 5 * limit


def test_ablation_of_a_group_is_conditional_on_the_others():
    grouping = Grouping([0, 1, 0])
    baselines = conditional_baselines(gaussian(), X, draws=400, grouping=grouping)
    method = FeatureAblation(linear())
    found = torch.stack(
        [method.attribute(X, b, feature_mask=grouping.index[None]) for b in baselines]
    )
    pair = torch.stack([mean_of(r, [0, 2]) for r in X])
    of_pair = ((X[:, [0, 2]] - pair) * SLOPES[0, [0, 2]]).sum(1)
    of_single = (X[:, 1] - torch.cat([mean_of(r, [1]) for r in X])) * SLOPES[0, 1]
    limit = norm.isf(FAILURE / 8)
    assert float(z_of_ablation(found[..., 0], of_pair).max()) < limit
    assert float(z_of_ablation(found[..., 1], of_single).max()) < limit
    # The two columns of the group are drawn together.
    centred = baselines[:, 0][:, [0, 2]] - baselines[:, 0][:, [0, 2]].mean(0)
    own = COVARIANCE[[0, 2]][:, [0, 2]]
    cross = COVARIANCE[[0, 2], 1]
    expected = (own - torch.outer(cross, cross) / COVARIANCE[1, 1])[0, 1]
    product = centred[:, 0] * centred[:, 1]
    assert abs(float((product.mean() - expected) / (product.std() / 20))) < limit


@pytest.mark.smoke
def test_seeds():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    for draw in (unconditional_baselines, conditional_baselines):
        assert torch.equal(draw(gaussian(), X, seed=1), draw(gaussian(), X, seed=1))
        assert not torch.equal(draw(gaussian(), X, seed=1), draw(gaussian(), X, seed=2))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("draw", [unconditional_baselines, conditional_baselines])
@pytest.mark.parametrize(
    ("imputer", "x", "options", "words"),
    [
        (X, X, {}, "imputer must be an Imputer"),
        (gaussian(), [[1.0, 2.0, 3.0]], {}, "floating-point tensor .*; it is list"),
        (gaussian(), X, {"draws": 0}, "draws must be"),
        (gaussian(), X, {"seed": None}, "seed must be"),
        (gaussian(), X[:0], {}, "B >= 1"),
        (gaussian(), X[:, :2], {}, "x must have shape"),
    ],
)
def test_refused_inputs(draw, imputer, x, options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        draw(imputer, x, **options)
    with pytest.raises(ValueError, match="grouping is of 2 features; x has 3"):
        conditional_baselines(gaussian(), X, grouping=Grouping([0, 1]))
