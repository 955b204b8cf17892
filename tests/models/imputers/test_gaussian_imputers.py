"""Imputers against closed forms, by z-scores, with negative controls that must fail."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from scipy import stats
from sklearn.covariance import LedoitWolf
from torch import Tensor

from lexppl.models.imputers.conditional_gaussian import ConditionalGaussianImputer
from lexppl.models.imputers.imputer import Imputer
from lexppl.models.imputers.simple import ConstantImputer, GaussianImputer, MarginalImputer
from tests.models.imputers.builders import (
    D,
    assert_moments,
    covariance_of,
    imputers,
    largest_z_of,
    mean_of,
)
from tests.refusals import refusals


def _conditional(
    x: np.ndarray, kept: np.ndarray, mean: np.ndarray, covariance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the entries that are not kept, one row, by the textbook."""
    s, h = np.flatnonzero(kept), np.flatnonzero(~kept)
    gain = covariance[np.ix_(h, s)] @ np.linalg.inv(covariance[np.ix_(s, s)])
    return (
        mean[h] + gain @ (x[s] - mean[s]),
        covariance[np.ix_(h, h)] - gain @ covariance[np.ix_(s, h)],
    )


def _moments(x: np.ndarray, keep: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the draws, those against fractional entries included."""
    mean, covariance = mean_of().numpy(), covariance_of().numpy()
    kept = keep > 0.5
    size = len(x)
    draw_mean, draw_covariance = np.zeros(size), np.zeros((size, size))
    h, s = np.flatnonzero(~kept), np.flatnonzero(kept)
    draw_mean[h], draw_covariance[np.ix_(h, h)] = _conditional(x, kept, mean, covariance)
    for d in s:
        others = kept.copy()
        others[d] = False
        position = int((~others[:d]).sum())
        m, c = _conditional(x, others, mean, covariance)
        draw_mean[d], draw_covariance[d, d] = m[position], c[position, position]
    precision = np.linalg.inv(covariance[np.ix_(s, s)])
    scale = 1 / np.diag(precision)
    block = scale[:, None] * precision * scale
    # The variances of the block are the leave-one-out ones: two ways to the same numbers.
    np.testing.assert_allclose(np.diag(block), draw_covariance[s, s], rtol=1e-9)
    draw_covariance[np.ix_(s, s)] = block
    return draw_mean, draw_covariance


HARD_MASKS = np.array(list(itertools.product([0.0, 1.0], repeat=D)))
SOFT_MASKS = np.array(
    [[0.2, 0.9, 0.0, 1.0], [0.7, 0.6, 0.8, 0.9], [0.5, 0.4, 0.1, 0.3], [1.0, 0.75, 0.25, 0.6]]
)


ROWS = torch.randn(2, D, dtype=torch.float64, generator=torch.Generator().manual_seed(9)).numpy()
hard_and_soft = pytest.mark.parametrize("masks", [HARD_MASKS, SOFT_MASKS], ids=["hard", "soft"])


@pytest.mark.smoke
@hard_and_soft
def test_moments_are_the_closed_form_and_draws_have_them(masks: np.ndarray) -> None:
    """Draws fail with probability 1e-6 for a right distribution."""
    imputer = ConditionalGaussianImputer(mean_of(), covariance_of())
    assert_moments(imputer, ROWS, masks, _moments)
    largest, threshold = largest_z_of(imputer, ROWS, masks, _moments)
    assert largest < threshold
    if masks is HARD_MASKS:
        x, keep = torch.from_numpy(ROWS), torch.from_numpy(masks).unsqueeze(1)
        of_bool, distribution = imputer(x, keep.bool()), imputer(x, keep)
        torch.testing.assert_close(of_bool.mean, distribution.mean, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(of_bool.variance, distribution.variance)


class _ConditionalMeanMarginalNoise(ConditionalGaussianImputer):
    """Wrong on purpose: the conditional mean with the marginal spread of each feature."""

    def hidden_distribution(self, x: Tensor, keep: Tensor) -> dist.TorchDistribution:
        mean = super().hidden_distribution(x, keep).mean
        return dist.Normal(mean, self.covariance.diagonal().sqrt()).to_event(1)


@hard_and_soft
@pytest.mark.parametrize(
    "wrong",
    [
        lambda: GaussianImputer(mean_of(), covariance_of().diagonal().sqrt()),
        lambda: ConditionalGaussianImputer(mean_of(), covariance_of().diagonal().diag()),
        lambda: _ConditionalMeanMarginalNoise(mean_of(), covariance_of()),
        lambda: ConditionalGaussianImputer(mean_of(), 1.1 * covariance_of()),
        lambda: ConditionalGaussianImputer(mean_of() + 0.05, covariance_of()),
    ],
    ids=["independent", "diagonal covariance", "wrong spread", "scaled", "shifted"],
)
def test_wrong_laws_fail_the_same_test(wrong: Callable[[], Imputer], masks: np.ndarray) -> None:
    largest, threshold = largest_z_of(wrong(), ROWS, masks, _moments)
    assert largest > threshold


def test_other_laws_have_the_moments_they_state() -> None:
    """Fails with probability 1e-6 for right distributions: mean and variance of each coordinate."""
    x = torch.randn(2, D, dtype=torch.float64)
    keep = torch.tensor([0.0, 1.0, 0.4, 0.0], dtype=torch.float64)
    draws = 20_000
    scores = []
    for name in ("Gaussian", "marginal"):
        distribution = imputers()[name](x, keep)
        sample = distribution.rsample((draws,))
        free = [0, 2, 3]
        z = (sample.mean(0) - distribution.mean) / (distribution.variance / draws).sqrt()
        scores.append(z[:, free].flatten())
        squares = (sample - distribution.mean) ** 2
        z = (squares.mean(0) - distribution.variance) / (squares.var(0) / draws).sqrt()
        scores.append(z[:, free].flatten())
        assert torch.equal(distribution.mean[:, 1], x[:, 1])
        assert (distribution.variance[:, 1] == 0).all()
    flat = torch.cat(scores).abs()
    assert float(flat.max()) < stats.norm.isf(1e-6 / (2 * len(flat)))


def test_marginal_draws_whole_rows_with_equal_chances() -> None:
    """One index a row; a chi-square test of the chances that fails with probability 1e-6."""
    reference = torch.arange(6.0).unsqueeze(-1) + torch.tensor([0.0, 100.0, 200.0])
    imputer = MarginalImputer(reference)
    x = torch.full((2, 3), -1.0)
    keep = torch.tensor([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    sample = imputer(x, keep).expand((6000, 2)).sample()
    assert torch.equal(sample[:, 0, 1], sample[:, 0, 0] + 100)
    assert torch.equal(sample[:, 1, 2], sample[:, 1, 1] + 100)
    first, second = sample[:, 0, 0].long(), sample[:, 1, 1].long() - 100
    for index in (first, second):
        assert stats.chisquare(torch.bincount(index, minlength=6).numpy()).pvalue > 5e-7
    # Rows draw their own index: all 36 pairs equally likely.
    pairs = torch.bincount(6 * first + second, minlength=36).numpy()
    assert stats.chisquare(pairs).pvalue > 5e-7


@pytest.mark.parametrize("as_bool", [False, True])
def test_log_prob_is_the_conditional_density(as_bool: bool) -> None:
    x = torch.randn(3, D, dtype=torch.float64)
    keep = torch.from_numpy(HARD_MASKS).unsqueeze(1).expand(-1, 3, -1)
    distribution = ConditionalGaussianImputer(mean_of(), covariance_of())(
        x, keep.bool() if as_bool else keep
    )
    sample = distribution.rsample((2,))
    log_prob = distribution.log_prob(sample)
    assert log_prob.shape == (2, len(HARD_MASKS), 3)
    for s, i, j in itertools.product(range(2), range(len(HARD_MASKS)), range(3)):
        kept = HARD_MASKS[i] == 1
        expected = 0.0
        if not kept.all():
            mean, covariance = _conditional(
                x[j].numpy(), kept, mean_of().numpy(), covariance_of().numpy()
            )
            block = torch.distributions.MultivariateNormal(
                torch.from_numpy(mean), torch.from_numpy(covariance)
            )
            expected = float(block.log_prob(sample[s, i, j, torch.from_numpy(~kept)]))
        assert float(log_prob[s, i, j]) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_log_prob_of_fractional_masks_is_that_of_the_interpolation() -> None:
    x = torch.randn(1, D, dtype=torch.float64)
    keep = torch.from_numpy(SOFT_MASKS).unsqueeze(1)
    conditional = ConditionalGaussianImputer(mean_of(), covariance_of())(x, keep)
    independent = GaussianImputer(mean_of(), covariance_of().diagonal())(x, keep)
    sample = conditional.rsample()
    for i, mask in enumerate(SOFT_MASKS):
        free = mask < 1
        (mean, covariance), hide = _moments(x[0].numpy(), mask), 1 - mask
        mean, covariance = mask * x[0].numpy() + hide * mean, hide[:, None] * covariance * hide
        block = stats.multivariate_normal(mean[free], covariance[np.ix_(free, free)])
        value = sample[i, 0].numpy()[free]
        assert float(conditional.log_prob(sample)[i, 0]) == pytest.approx(block.logpdf(value))
        entries = stats.norm(
            independent.mean[i, 0].numpy()[free], independent.variance[i, 0].sqrt().numpy()[free]
        )
        assert float(independent.log_prob(sample)[i, 0]) == pytest.approx(
            entries.logpdf(value).sum()
        )


def test_log_prob_of_a_constant_is_a_point_mass() -> None:
    x, keep = torch.randn(5, D), torch.tensor([1.0, 0.0, 0.3, 0.9])
    distribution = ConstantImputer(0.5)(x, keep)
    sample = distribution.sample()
    assert torch.equal(distribution.log_prob(sample), torch.zeros(5))
    sample[2, 1] += 1
    assert torch.equal(
        distribution.log_prob(sample), torch.tensor([0.0, 0.0, -torch.inf, 0.0, 0.0])
    )


def test_gaussian_fit() -> None:
    x = torch.randn(100, 3, dtype=torch.float64) * torch.tensor([1.0, 5.0, 0.0]) + 0.1
    imputer = GaussianImputer.fit(x)
    np.testing.assert_allclose(imputer.mean, x.numpy().mean(0))
    np.testing.assert_allclose(imputer.scale[:2], x.numpy().std(0)[:2])
    # A constant column: tiny, positive, in proportion to the others.
    assert 0 < float(imputer.scale[2]) < 1e-7 * float(imputer.scale[0])
    everywhere_constant = GaussianImputer.fit(torch.ones(5, 2))
    assert (everywhere_constant.scale > 0).all()
    assert (everywhere_constant.scale < 1e-3).all()


def test_conditional_fit_shrinks_correlations_only() -> None:
    units = torch.tensor([1.0, 1e3, 1e-3], dtype=torch.float64)
    plain = torch.randn(60, 3, dtype=torch.float64) @ covariance_of(3)
    imputer = ConditionalGaussianImputer.fit(plain * units)
    rows = plain.numpy()
    np.testing.assert_allclose(imputer.mean, (plain * units).mean(0))
    np.testing.assert_allclose(imputer.covariance.diagonal(), (plain * units).var(0, correction=0))
    correlation = LedoitWolf().fit((rows - rows.mean(0)) / rows.std(0)).covariance_
    scale = np.outer(rows.std(0) * units.numpy(), rows.std(0) * units.numpy())
    np.testing.assert_allclose(imputer.covariance / scale, correlation, rtol=1e-9, atol=1e-12)
    # The units of the features do not matter for what is imputed.
    x, keep = plain[:4], torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)
    without_units = ConditionalGaussianImputer.fit(plain)(x, keep).mean
    torch.testing.assert_close(imputer(x * units, keep).mean / units, without_units)


@pytest.mark.parametrize("size", [2, 50, 300])
def test_rank_one_covariances_are_factorised_in_float32(size: int) -> None:
    scale = torch.logspace(-3, 3, size)
    imputer = ConditionalGaussianImputer(torch.zeros(size), scale[:, None] * scale)
    x = torch.tensor([[1.5], [-0.5]]) * scale
    keep = (torch.rand(4, 1, size) < 0.5).float()
    keep[:, :, 0] = 1
    sample = imputer(x, keep).rsample()
    jitter = (10 * size * torch.finfo(torch.float32).eps) ** 0.5
    assert ((sample - x).abs() / scale < 8 * jitter * 2**0.5).all()


NAN, ZERO, CONDITIONAL = float("nan"), torch.zeros(2), ConditionalGaussianImputer


test_bad_arguments = refusals(
    (lambda: ConstantImputer(NAN), "value must be finite; 1 of its 1"),
    (lambda: ConstantImputer("zero"), TypeError, "value must be a number"),
    (lambda: ConstantImputer(torch.ones(2) * 1j), TypeError, "value must be real"),
    (lambda: GaussianImputer(scale=0.0), "scale must be positive"),
    (lambda: GaussianImputer(scale=[1.0, -1.0]), "smallest value is -1"),
    (lambda: GaussianImputer([0.0], [1.0, 1.0]), "as mean, or be a number"),
    (lambda: GaussianImputer(float("inf")), "mean must be finite"),
    (lambda: MarginalImputer(torch.ones(0, 3)), r"\(N, \*event\), none of them 0"),
    (lambda: MarginalImputer(torch.ones(3)), r"shape \(N, \*event\)"),
    (lambda: MarginalImputer(torch.tensor([[NAN, 1.0]])), "1 of its 2 values"),
    (lambda: CONDITIONAL(torch.eye(2), torch.eye(2)), r"mean must have shape \(D,\)"),
    (lambda: CONDITIONAL(ZERO, torch.eye(3)), r"must have shape \(2, 2\)"),
    (lambda: CONDITIONAL(ZERO, torch.eye(2).double()), TypeError, "of one type"),
    (lambda: CONDITIONAL(ZERO, [[1.0, 0.5], [0.4, 1.0]]), "symmetric; .* by 0.1"),
    (lambda: CONDITIONAL(ZERO, [[1.0, 2.0], [2.0, 1.0]]), "has the eigenvalue -1"),
    (lambda: CONDITIONAL(ZERO, [[1.0, 0.0], [0.0, -1.0]]), "semi-definite"),
    (lambda: CONDITIONAL(ZERO, [[1.0, 0.1], [0.1, 0.0]]), "semi-definite"),
    (lambda: CONDITIONAL(ZERO, [[1.0, NAN], [NAN, 1.0]]), "finite; 2 of its 4"),
    (lambda: CONDITIONAL.fit(torch.randn(5, 2, 2)), r"shape \(B, D\), and GaussianImputer.fit"),
)
