"""Imputers against closed forms, by z-scores, with negative controls that must fail."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from scipy import stats
from sklearn.datasets import load_breast_cancer
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.func import grad, vmap

from lexppl.models.imputers.conditional_gaussian import ConditionalGaussianImputer
from lexppl.models.imputers.imputed import Imputed
from lexppl.models.imputers.imputer import Imputer
from lexppl.models.imputers.simple import ConstantImputer, GaussianImputer, MarginalImputer

D = 4


@pytest.fixture(autouse=True)
def _seed_and_defaults() -> Iterator[None]:
    validation = torch.distributions.Distribution._validate_args
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
    torch.distributions.Distribution.set_default_validate_args(validation)


def _covariance(size: int = D, dtype: torch.dtype = torch.float64, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(size, size, generator=generator, dtype=torch.float64)
    return (root @ root.T / size + 0.1 * torch.eye(size)).to(dtype)


def _mean(size: int = D, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.linspace(-1.1, 2.0, size, dtype=dtype)


def _imputers(dtype: torch.dtype = torch.float32, size: int = D) -> dict[str, Imputer]:
    reference = torch.randn(7, size, generator=torch.Generator().manual_seed(3)).to(dtype)
    scale = torch.linspace(0.5, 2.0, size, dtype=dtype)
    return {
        "constant": ConstantImputer(0.25).to(dtype),
        "constant per feature": ConstantImputer(_mean(size, dtype)),
        "standard Gaussian": GaussianImputer().to(dtype),
        "Gaussian": GaussianImputer(_mean(size, dtype), scale),
        "conditional Gaussian": ConditionalGaussianImputer(
            _mean(size, dtype), _covariance(size, dtype)
        ),
        "marginal": MarginalImputer(reference),
    }


NAMES = list(_imputers())
RANDOM = [name for name in NAMES if not name.startswith("constant")]


def _same_bits(left: Tensor, right: Tensor) -> bool:
    integer = {torch.float32: torch.int32, torch.float64: torch.int64}[left.dtype]
    return torch.equal(left.contiguous().view(integer), right.contiguous().view(integer))


# --- kept entries, hidden entries, gradients ------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mode", ["bool", "float", "float with gradient", "no_grad"])
@pytest.mark.parametrize("name", NAMES)
def test_kept_entries_keep_their_bits_and_hidden_ones_are_the_draw(
    name: str, mode: str, dtype: torch.dtype
) -> None:
    imputer = _imputers(dtype)[name]
    x = 1e3 * torch.randn(50, D, dtype=dtype)
    x[0], x[1], x[2] = -0.0, 0.0, torch.finfo(dtype).tiny
    kept = torch.rand(6, 50, D) < 0.5
    keep = kept if mode == "bool" else kept.to(dtype)
    if mode == "float with gradient":
        keep.requires_grad_()
    distribution = imputer(x, keep)
    with torch.set_grad_enabled(mode != "no_grad"):
        torch.manual_seed(5)
        draw = distribution.hidden_distribution.expand(distribution.batch_shape).rsample()
        torch.manual_seed(5)
        imputed = distribution.rsample()
    assert imputed.dtype == dtype
    assert distribution.batch_shape == (6, 50)
    assert distribution.event_shape == (D,)
    everywhere = x.expand(6, 50, D)
    assert _same_bits(imputed.detach()[kept], everywhere[kept])
    assert torch.equal(imputed.detach()[~kept], draw.detach()[~kept])
    # Each hidden entry is replaced, and by something of the imputer's: no distribution here is at
    # x.
    assert (imputed.detach()[~kept] != everywhere[~kept]).all()
    # Arithmetic instead of torch.where is the control that must fail.
    arithmetic = kept * everywhere + (~kept) * torch.randn(6, 50, D, dtype=dtype)
    assert not _same_bits(arithmetic[kept], everywhere[kept])


@pytest.mark.parametrize("name", NAMES)
def test_all_kept_and_all_hidden(name: str) -> None:
    imputer = _imputers()[name]
    x = torch.randn(5, D)
    assert _same_bits(imputer(x, torch.ones(5, D)).rsample(), x)
    assert _same_bits(imputer(x, torch.ones(D, dtype=torch.bool)).rsample(), x)
    torch.manual_seed(1)
    first = imputer(x, torch.zeros(5, D)).rsample()
    torch.manual_seed(1)
    other_rows = imputer(x + 100, torch.zeros(5, D)).rsample()
    assert torch.equal(first, other_rows)  # nothing of x is left
    assert first.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_fractional_keep_interpolates_and_the_gradient_is_x_minus_the_draw(name: str) -> None:
    imputer = _imputers(torch.float64)[name]
    x = torch.randn(5, D, dtype=torch.float64, requires_grad=True)
    keep = torch.rand(3, 5, D, dtype=torch.float64)
    keep[0], keep[1] = 0.0, 1.0
    keep[1, :, 0] = 0.0
    keep.requires_grad_()
    distribution = imputer(x, keep)
    torch.manual_seed(5)
    draw = distribution.hidden_distribution.expand(distribution.batch_shape).rsample()
    torch.manual_seed(5)
    imputed = distribution.rsample()
    torch.testing.assert_close(imputed, draw + keep * (x - draw), rtol=1e-12, atol=1e-12)

    weight = torch.randn_like(imputed)
    (gradient,) = torch.autograd.grad((weight * imputed).sum(), keep, retain_graph=True)
    torch.testing.assert_close(gradient, weight * (x - draw), rtol=1e-12, atol=1e-12)
    assert (gradient[1] != 0).all()  # at exactly 1 as well

    (to_x,) = torch.autograd.grad((weight * imputed).sum(), x, retain_graph=True)
    (reference,) = torch.autograd.grad((weight * (draw + keep * (x - draw))).sum(), x)
    torch.testing.assert_close(to_x, reference, rtol=1e-12, atol=1e-12)

    # The control: torch.where alone has no gradient at 1.
    plain = torch.where(keep == 1, x, torch.lerp(draw.detach(), x, keep))
    (dead,) = torch.autograd.grad(plain.sum(), keep)
    assert (dead[1][:, 1:] == 0).all()


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_gradcheck(name: str, hard: bool) -> None:
    torch.distributions.Distribution.set_default_validate_args(False)  # steps leave [0, 1]
    imputer = _imputers(torch.float64)[name]
    x = torch.randn(3, D, dtype=torch.float64, requires_grad=True)
    keep = torch.tensor(
        [[0.0, 1.0, 0.3, 0.8], [0.0, 0.0, 0.0, 0.0], [1.0, 0.9, 1.0, 1.0]], dtype=torch.float64
    )
    if hard:
        keep = (keep > 0.5).double()
    keep.requires_grad_()

    def draw(x: Tensor, keep: Tensor) -> Tensor:
        torch.manual_seed(2)
        return imputer(x, keep).expand((2, 3)).rsample()

    assert gradcheck(draw, (x, keep))


def test_gradients_reach_the_parameters_of_the_hidden_law() -> None:
    x = torch.randn(3, D, dtype=torch.float64)
    keep = (torch.rand(3, D) < 0.5).double()
    imputer = _imputers(torch.float64)["conditional Gaussian"]

    def draw(mean: Tensor, root: Tensor) -> Tensor:
        torch.manual_seed(2)
        imputer.mean, imputer.covariance = mean, root @ root.T
        return imputer(x, keep).rsample()

    mean = _mean().requires_grad_()
    root = torch.linalg.cholesky(_covariance()).requires_grad_()
    assert gradcheck(draw, (mean, root))

    reference = torch.randn(6, D, dtype=torch.float64)
    marginal = MarginalImputer(reference)
    marginal.reference.requires_grad_()
    marginal(x, keep).rsample().sum().backward()
    assert float(marginal.reference.grad.sum()) == pytest.approx(float((1 - keep).sum()))


def test_sample_carries_no_gradient() -> None:
    keep = torch.zeros(3, D, requires_grad=True)
    assert not GaussianImputer()(torch.randn(3, D), keep).sample().requires_grad


# --- the conditional Gaussian against closed forms ------------------------------------------------


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


def _reference_moments(
    x: np.ndarray, keep: np.ndarray, mean: np.ndarray, covariance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the whole imputed row, fractional entries included."""
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
    hide = 1 - keep
    return keep * x + hide * draw_mean, hide[:, None] * draw_covariance * hide


HARD_MASKS = np.array(list(itertools.product([0.0, 1.0], repeat=D)))
SOFT_MASKS = np.array(
    [[0.2, 0.9, 0.0, 1.0], [0.7, 0.6, 0.8, 0.9], [0.5, 0.4, 0.1, 0.3], [1.0, 0.75, 0.25, 0.6]]
)


@pytest.mark.parametrize("masks", [HARD_MASKS, SOFT_MASKS], ids=["hard", "soft"])
def test_mean_and_covariance_are_the_closed_form(masks: np.ndarray) -> None:
    x = torch.randn(3, D, dtype=torch.float64)
    keep = torch.from_numpy(masks).unsqueeze(1).expand(-1, 3, -1)
    imputer = ConditionalGaussianImputer(_mean(), _covariance())
    distribution = imputer(x, keep)
    for i, j in itertools.product(range(len(masks)), range(3)):
        mean, covariance = _reference_moments(
            x[j].numpy(), masks[i], _mean().numpy(), _covariance().numpy()
        )
        np.testing.assert_allclose(distribution.mean[i, j], mean, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(
            distribution.covariance_matrix[i, j], covariance, rtol=1e-9, atol=1e-10
        )
        np.testing.assert_allclose(
            distribution.variance[i, j], np.diag(covariance), rtol=1e-9, atol=1e-10
        )
    if masks is HARD_MASKS:
        of_bool = imputer(x, keep.bool())
        torch.testing.assert_close(of_bool.mean, distribution.mean, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(of_bool.covariance_matrix, distribution.covariance_matrix)


def _largest_z(imputer: Imputer, masks: np.ndarray, draws: int = 20_000) -> tuple[float, float]:
    """The largest z-score of the draws' means and covariances against the closed form.

    Also the threshold that it passes with probability 1e-6 when the distribution is right
    (Bonferroni over all coordinates).
    """
    x = torch.randn(2, D, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    keep = torch.from_numpy(masks).unsqueeze(1)
    distribution = imputer(x, keep)
    sample = distribution.expand((draws, len(masks), 2)).rsample().numpy()
    scores = []
    for i, j in itertools.product(range(len(masks)), range(2)):
        mean, covariance = _reference_moments(
            x[j].numpy(), masks[i], _mean().numpy(), _covariance().numpy()
        )
        variance = np.diag(covariance)
        free = variance > 1e-12
        deviation = sample[:, i, j] - mean
        assert np.abs(deviation[:, ~free]).max(initial=0) < 1e-9
        scores.append(deviation[:, free].mean(0) / np.sqrt(variance[free] / draws))
        # Var of the mean product of two centred Gaussians: (c_ij^2 + c_ii c_jj) / draws.
        spread = np.sqrt((covariance**2 + np.outer(variance, variance)) / draws)
        z = deviation.T @ deviation / draws - covariance
        rows, columns = np.nonzero(np.triu(np.outer(free, free)))
        scores.append(z[rows, columns] / spread[rows, columns])
    flat = np.abs(np.concatenate(scores))
    return float(flat.max()), float(stats.norm.isf(1e-6 / (2 * len(flat))))


@pytest.mark.smoke
@pytest.mark.parametrize("masks", [HARD_MASKS, SOFT_MASKS], ids=["hard", "soft"])
def test_conditional_draws_match_the_closed_form(masks: np.ndarray) -> None:
    """Fails with probability 1e-6 for a right distribution."""
    largest, threshold = _largest_z(ConditionalGaussianImputer(_mean(), _covariance()), masks)
    assert largest < threshold


class _ConditionalMeanMarginalNoise(ConditionalGaussianImputer):
    """Wrong on purpose: the conditional mean with the marginal spread of each feature."""

    def hidden_distribution(self, x: Tensor, keep: Tensor) -> dist.TorchDistribution:
        mean = super().hidden_distribution(x, keep).mean
        return dist.Normal(mean, self.covariance.diagonal().sqrt()).to_event(1)


@pytest.mark.parametrize("masks", [HARD_MASKS, SOFT_MASKS], ids=["hard", "soft"])
@pytest.mark.parametrize(
    "wrong",
    [
        lambda: GaussianImputer(_mean(), _covariance().diagonal().sqrt()),
        lambda: ConditionalGaussianImputer(_mean(), _covariance().diagonal().diag()),
        lambda: _ConditionalMeanMarginalNoise(_mean(), _covariance()),
        lambda: ConditionalGaussianImputer(_mean(), 1.1 * _covariance()),
        lambda: ConditionalGaussianImputer(_mean() + 0.05, _covariance()),
    ],
    ids=["independent", "diagonal covariance", "wrong spread", "scaled", "shifted"],
)
def test_wrong_laws_fail_the_same_test(wrong: Callable[[], Imputer], masks: np.ndarray) -> None:
    largest, threshold = _largest_z(wrong(), masks)
    assert largest > threshold


def test_other_laws_have_the_moments_they_state() -> None:
    """Fails with probability 1e-6 for right distributions: mean and variance of each coordinate."""
    x = torch.randn(2, D, dtype=torch.float64)
    keep = torch.tensor([0.0, 1.0, 0.4, 0.0], dtype=torch.float64)
    draws = 20_000
    scores = []
    for name in ("standard Gaussian", "Gaussian", "marginal"):
        distribution = _imputers(torch.float64)[name](x, keep)
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


# --- densities ------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_bool", [False, True])
def test_log_prob_is_the_conditional_density(as_bool: bool) -> None:
    x = torch.randn(3, D, dtype=torch.float64)
    keep = torch.from_numpy(HARD_MASKS).unsqueeze(1).expand(-1, 3, -1)
    distribution = ConditionalGaussianImputer(_mean(), _covariance())(
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
                x[j].numpy(), kept, _mean().numpy(), _covariance().numpy()
            )
            block = torch.distributions.MultivariateNormal(
                torch.from_numpy(mean), torch.from_numpy(covariance)
            )
            expected = float(block.log_prob(sample[s, i, j, torch.from_numpy(~kept)]))
        assert float(log_prob[s, i, j]) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_log_prob_of_fractional_masks_is_that_of_the_interpolation() -> None:
    x = torch.randn(1, D, dtype=torch.float64)
    keep = torch.from_numpy(SOFT_MASKS).unsqueeze(1)
    conditional = ConditionalGaussianImputer(_mean(), _covariance())(x, keep)
    independent = GaussianImputer(_mean(), _covariance().diagonal())(x, keep)
    sample = conditional.rsample()
    for i, mask in enumerate(SOFT_MASKS):
        free = mask < 1
        mean, covariance = _reference_moments(
            x[0].numpy(), mask, _mean().numpy(), _covariance().numpy()
        )
        block = stats.multivariate_normal(mean[free], covariance[np.ix_(free, free)])
        value = sample[i, 0].numpy()[free]
        assert float(conditional.log_prob(sample)[i, 0]) == pytest.approx(block.logpdf(value))
        entries = stats.norm(
            independent.mean[i, 0].numpy()[free], independent.variance[i, 0].sqrt().numpy()[free]
        )
        assert float(independent.log_prob(sample)[i, 0]) == pytest.approx(
            entries.logpdf(value).sum()
        )


def test_log_prob_of_independent_entries_sums_the_hidden_ones() -> None:
    x, keep = torch.randn(5, D), (torch.rand(3, 5, D) < 0.5).float()
    imputer = _imputers()["Gaussian"]
    distribution = imputer(x, keep)
    sample = distribution.expand((2, 3, 5)).sample()
    entries = dist.Normal(imputer.mean, imputer.scale).log_prob(sample)
    expected = (entries * (1 - keep)).sum(-1)
    torch.testing.assert_close(distribution.log_prob(sample), expected)
    torch.testing.assert_close(distribution.expand((2, 3, 5)).log_prob(sample), expected)


def test_log_prob_is_minus_infinity_where_a_kept_entry_changed() -> None:
    x, keep = torch.randn(5, D), torch.tensor([1.0, 0.0, 0.0, 0.0])
    for name in NAMES:
        if name == "marginal":
            continue
        distribution = _imputers()[name](x, keep)
        sample = distribution.sample()
        assert distribution.log_prob(sample).isfinite().all()
        sample[0, 0] += 1
        assert distribution.log_prob(sample)[0] == -torch.inf
        assert distribution.log_prob(sample)[1:].isfinite().all()


def test_log_prob_of_a_constant_is_a_point_mass() -> None:
    x, keep = torch.randn(5, D), torch.tensor([1.0, 0.0, 0.3, 0.9])
    distribution = ConstantImputer(0.5)(x, keep)
    sample = distribution.sample()
    assert torch.equal(distribution.log_prob(sample), torch.zeros(5))
    sample[2, 1] += 1
    assert torch.equal(
        distribution.log_prob(sample), torch.tensor([0.0, 0.0, -torch.inf, 0.0, 0.0])
    )


def test_laws_without_a_density_say_why() -> None:
    x, keep = torch.randn(5, D), torch.zeros(D)
    distribution = _imputers()["marginal"](x, keep)
    with pytest.raises(NotImplementedError, match="point masses"):
        distribution.log_prob(distribution.sample())
    with pytest.raises(NotImplementedError, match="point masses"):
        distribution.hidden_distribution.log_prob(distribution.sample())
    with pytest.raises(NotImplementedError, match="has no covariance_matrix"):
        _ = distribution.covariance_matrix
    joint = Imputed(x, keep, dist.MultivariateNormal(torch.zeros(D), torch.eye(D)))
    with pytest.raises(NotImplementedError, match="does not factorise"):
        joint.log_prob(joint.sample())
    conditional = _imputers()["conditional Gaussian"]
    with pytest.raises(NotImplementedError, match="are points"):
        conditional.hidden_distribution(x, keep.bool()).log_prob(x)


def test_the_hidden_law_itself_has_the_density_of_its_draws() -> None:
    """One-dimensional quadrature over an entry of S: the leave-one-out density integrates to 1."""
    imputer = ConditionalGaussianImputer(torch.zeros(1).double(), torch.eye(1).double() * 2)
    distribution = imputer.hidden_distribution(torch.zeros(1, 1).double(), torch.ones(1).double())
    grid = torch.linspace(-15, 15, 3001, dtype=torch.float64).reshape(-1, 1, 1)
    integral = torch.trapezoid(distribution.log_prob(grid).exp(), grid[..., 0], dim=0)
    assert float(integral) == pytest.approx(1, abs=1e-9)


# --- Pyro, plates, expand, vmap -------------------------------------------------------------------


@pytest.mark.parametrize("masks,imputations", [(1, 1), (3, 1), (1, 2), (3, 2)])
@pytest.mark.parametrize("name", NAMES)
def test_inside_plates(name: str, masks: int, imputations: int) -> None:
    imputer = _imputers()[name]
    x = torch.randn(5, D)

    def program() -> Tensor:
        with pyro.plate("data", 5, dim=-1), pyro.plate("masks", masks, dim=-2):
            keep = pyro.sample("mask", dist.Bernoulli(torch.full((5, D), 0.5)).to_event(1))
            with pyro.plate("imputations", imputations, dim=-3):
                return pyro.sample("x_imputed", imputer(x, keep))

    trace = poutine.trace(program).get_trace()
    imputed, keep = trace.nodes["x_imputed"]["value"], trace.nodes["mask"]["value"]
    assert imputed.shape == (imputations, masks, 5, D)
    assert trace.nodes["x_imputed"]["fn"].batch_shape == (imputations, masks, 5)
    kept = keep.expand(imputations, masks, 5, D) == 1
    assert _same_bits(imputed[kept], x.expand_as(imputed)[kept])
    if name != "marginal":
        trace.compute_log_prob()
        assert trace.nodes["x_imputed"]["log_prob"].shape == (imputations, masks, 5)
    if name in RANDOM and imputations == 2:
        hidden = ~kept[0]
        repeated = (imputed[0] == imputed[1])[hidden].double().mean()
        # Seven reference rows coincide by chance one time in seven; continuous distributions never.
        assert repeated < (0.6 if name == "marginal" else 1e-3)


@pytest.mark.parametrize("name", RANDOM)
def test_draws_are_independent_over_the_new_dimensions(name: str) -> None:
    """Correlation of two imputations of one mask; fails with probability 1e-6."""
    imputer = _imputers(torch.float64)[name]
    distribution = imputer(torch.randn(1, D, dtype=torch.float64), torch.zeros(1, 1, D).double())
    draws = 20_000
    sample = distribution.expand((2, draws, 1)).rsample()[:, :, 0]
    standard = (sample - sample.mean(1, keepdim=True)) / sample.std(1, keepdim=True)
    z = draws**0.5 * (standard[0] * standard[1]).mean(0)
    assert float(z.abs().max()) < stats.norm.isf(1e-6 / (2 * D))
    shared = draws**0.5 * (standard[0] * standard[0]).mean(0)  # the control: one draw, twice
    assert float(shared.abs().min()) > stats.norm.isf(1e-6 / (2 * D))


def test_expanding_shares_the_factorisation(monkeypatch: pytest.MonkeyPatch) -> None:
    distribution = _imputers()["conditional Gaussian"](torch.randn(5, D), torch.zeros(3, 5, D))

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a factorisation was computed again")

    monkeypatch.setattr(torch.linalg, "cholesky_ex", refuse)
    monkeypatch.setattr(torch, "cholesky_inverse", refuse)
    assert distribution.expand((4, 3, 5)).expand((2, 4, 3, 5)).rsample().shape == (2, 4, 3, 5, D)
    assert distribution.expand((4, 3, 5)).mean.shape == (4, 3, 5, D)
    with pytest.raises(AssertionError, match="computed again"):
        _imputers()["conditional Gaussian"](torch.randn(5, D), torch.zeros(3, 5, D))


def test_a_mask_shared_by_all_rows_is_factorised_once() -> None:
    imputer = _imputers(torch.float64)["conditional Gaussian"]
    x = torch.randn(6, D, dtype=torch.float64)
    keep = (torch.rand(3, 1, D) < 0.5).double()
    shared = imputer(x, keep)
    assert shared.hidden_distribution._cholesky.shape == (3, 1, D, D)
    own = imputer(x, keep.expand(3, 6, D).contiguous())
    assert shared.batch_shape == own.batch_shape == (3, 6)
    torch.manual_seed(1)
    first = shared.expand((2, 3, 6)).rsample()
    torch.manual_seed(1)
    second = own.expand((2, 3, 6)).rsample()
    torch.testing.assert_close(first, second, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(shared.log_prob(first), own.log_prob(first))


@pytest.mark.parametrize("name", NAMES)
def test_vmap(name: str) -> None:
    torch.distributions.Distribution.set_default_validate_args(False)
    imputer = _imputers(torch.float64)[name]
    x = torch.randn(5, D, dtype=torch.float64)
    keep = torch.rand(3, 4, 5, D, dtype=torch.float64)
    keep[..., 0], keep[..., 1] = 0.0, 1.0

    def draw(keep: Tensor) -> Tensor:
        return imputer(x, keep).expand((2, 4, 5)).rsample()

    def draw_of_row_major(x: Tensor, keep: Tensor) -> Tensor:
        return imputer(x, keep).rsample()

    sample = vmap(draw, randomness="different")(keep)
    assert sample.shape == (3, 2, 4, 5, D)
    assert torch.equal(sample[..., 1], x[:, 1].expand(3, 2, 4, 5))
    if name in RANDOM:
        same_mask = vmap(draw, randomness="different")(keep[:1].expand_as(keep))
        assert not torch.equal(same_mask[0], same_mask[1])
    rows = vmap(draw_of_row_major, in_dims=(None, 0), randomness="different")
    assert rows(x, keep).shape == (3, 4, 5, D)
    both = vmap(draw_of_row_major, randomness="different")
    assert both(x.expand(3, 5, D) + 0, keep).shape == (3, 4, 5, D)

    # Inside vmap a tensor's requires_grad reads False: the gradient at exactly 1 must survive.
    gradient = grad(lambda keep: vmap(draw, randomness="different")(keep).sum())(keep)
    assert (gradient != 0).all()
    leaf = keep.clone().requires_grad_()
    vmap(draw, randomness="different")(leaf).sum().backward()
    assert (leaf.grad != 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_bits(name: str) -> None:
    imputer = _imputers()[name]
    x, keep = torch.randn(5, D), (torch.rand(3, 5, D) < 0.5).float()
    draws = []
    for seed in (4, 4, 5):
        torch.manual_seed(seed)
        draws.append(imputer(x, keep).rsample())
    assert _same_bits(draws[0], draws[1])
    assert _same_bits(draws[0], draws[2]) == name.startswith("constant")


def test_any_pyro_law_may_say_what_is_hidden() -> None:
    x, keep = torch.randn(5, D), torch.tensor([1.0, 0.0, 1.0, 0.0])
    discrete = Imputed(x, keep, dist.Poisson(torch.full((D,), 9.0)).to_event(1))
    assert not discrete.has_rsample
    sample = discrete.sample()
    assert torch.equal(sample[:, 1], sample[:, 1].round())
    assert torch.equal(sample[:, 0], x[:, 0])


@pytest.mark.parametrize("name", ["constant", "standard Gaussian", "images", "marginal"])
def test_images(name: str) -> None:
    event = (2, 3, 4)
    imputer: Imputer = {
        "constant": ConstantImputer(),
        "standard Gaussian": GaussianImputer(),
        "images": GaussianImputer.fit(torch.randn(10, *event)),
        "marginal": MarginalImputer(torch.randn(10, *event)),
    }[name]
    x = torch.randn(5, *event)
    keep = (torch.rand(3, 5, 1, 3, 4) < 0.5).float()  # one mask for all channels
    distribution = imputer(x, keep)
    assert distribution.batch_shape == (3, 5)
    assert distribution.event_shape == event
    sample = distribution.expand((2, 3, 5)).rsample()
    assert sample.shape == (2, 3, 5, *event)
    kept = (keep == 1).expand_as(sample)
    assert _same_bits(sample[kept], x.expand_as(sample)[kept])
    assert distribution.mean.shape == (3, 5, *event)
    if name != "marginal":
        assert distribution.log_prob(sample).shape == (2, 3, 5)


# --- fitting, degenerate covariances, float32 -----------------------------------------------------


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


@pytest.mark.parametrize("shrinkage", ["ledoit-wolf", "oas", 0.3, 0])
def test_conditional_fit_shrinks_correlations_only(shrinkage: str | float) -> None:
    from sklearn.covariance import OAS, LedoitWolf

    units = torch.tensor([1.0, 1e3, 1e-3], dtype=torch.float64)
    plain = torch.randn(60, 3, dtype=torch.float64) @ _covariance(3)
    imputer = ConditionalGaussianImputer.fit(plain * units, shrinkage)
    rows = plain.numpy()
    np.testing.assert_allclose(imputer.mean, (plain * units).mean(0))
    np.testing.assert_allclose(imputer.covariance.diagonal(), (plain * units).var(0, correction=0))
    standardised = (rows - rows.mean(0)) / rows.std(0)
    correlation = np.corrcoef(rows.T)
    if shrinkage == "ledoit-wolf":
        correlation = LedoitWolf().fit(standardised).covariance_
    elif shrinkage == "oas":
        correlation = OAS().fit(standardised).covariance_
    else:
        correlation = (1 - float(shrinkage)) * correlation + float(shrinkage) * np.eye(3)
    scale = rows.std(0) * units.numpy()
    np.testing.assert_allclose(
        imputer.covariance / np.outer(scale, scale), correlation, rtol=1e-9, atol=1e-12
    )
    # The units of the features do not matter for what is imputed.
    x, keep = plain[:4], torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)
    without_units = ConditionalGaussianImputer.fit(plain, shrinkage)(x, keep).mean
    torch.testing.assert_close(imputer(x * units, keep).mean / units, without_units)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shrinkage", [0, "ledoit-wolf"])
def test_one_hot_and_constant_columns(dtype: torch.dtype, shrinkage: str | float) -> None:
    category = torch.randint(3, (400,))
    one_hot = torch.nn.functional.one_hot(category, 4).to(dtype)  # the last never occurs
    number = torch.randn(400, 1, dtype=dtype)
    x = torch.cat([one_hot, number, 1e4 * number, torch.full((400, 1), 0.1, dtype=dtype)], 1)
    size = x.shape[1]
    imputer = ConditionalGaussianImputer.fit(x, shrinkage)
    masks = torch.tensor(list(itertools.product([0.0, 1.0], repeat=size)), dtype=dtype)
    distribution = imputer(x[:8], masks.unsqueeze(1))
    sample = distribution.expand((3, *distribution.batch_shape)).rsample()
    assert sample.isfinite().all()
    assert distribution.mean.isfinite().all()
    assert distribution.log_prob(sample).isfinite().all()
    assert (distribution.variance >= 0).all()
    spread = x.std(0, correction=0)
    # What never varied is imputed as it was, near enough not to matter.
    noise = 8 * (10 * size * torch.finfo(dtype).eps) ** 0.5 * spread[spread > 1e-3].min()
    assert (sample[..., 3].abs() < noise).all()
    assert ((sample[..., 6] - 0.1).abs() < noise).all()
    if shrinkage == 0:
        # Two categories kept tell the third, a number kept tells its multiple: the sum's
        # jitter is that of its terms, 8 standard deviations of it are allowed.
        keep = torch.tensor([1, 1, 0, 0, 1, 0, 0], dtype=dtype)
        sample = imputer(x, keep).rsample()
        jitter = (10 * size * torch.finfo(dtype).eps) ** 0.5
        assert ((sample[:, 2] - x[:, 2]).abs() < 8 * jitter * 3**0.5 * spread[2]).all()
        assert ((sample[:, 5] - x[:, 5]).abs() < 8 * jitter * 3**0.5 * spread[5]).all()


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


def test_float32_agrees_with_float64_on_real_correlated_features() -> None:
    """The conditional means of breast cancer's 30 features, in standard deviations."""
    x = torch.from_numpy(load_breast_cancer().data)
    single = ConditionalGaussianImputer.fit(x.float(), shrinkage=0)
    jitter = 10 * 30 * torch.finfo(torch.float32).eps
    covariance = single.covariance.double()
    covariance = covariance + jitter * covariance.diagonal().diag()
    double = ConditionalGaussianImputer(single.mean.double(), covariance)
    keep = (torch.rand(3, len(x), 30) < 0.5).float()
    of_single, of_double = single(x.float(), keep), double(x, keep.double())
    spread = x.std(0)
    error = (of_single.mean - of_double.mean).abs() / spread
    assert float(error.max()) < 1e-3
    # Variances, in shares of the marginal ones.
    error = (of_single.variance - of_double.variance).abs() / spread**2
    assert float(error.max()) < 5e-5


# --- saving ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NAMES)
def test_configuration_and_state_rebuild_the_imputer(name: str, dtype: torch.dtype) -> None:
    imputer = _imputers(dtype)[name]
    config = json.loads(json.dumps(imputer.config()))
    rebuilt = type(imputer)(**config)
    x, keep = torch.randn(5, D, dtype=dtype), torch.zeros(5, D, dtype=dtype)
    assert all(buffer.isnan().all() for buffer in rebuilt.buffers())
    rebuilt.load_state_dict(imputer.state_dict())
    assert rebuilt.config() == imputer.config()
    torch.manual_seed(1)
    first = imputer(x, keep).rsample()
    torch.manual_seed(1)
    assert _same_bits(first, rebuilt(x, keep).rsample())
    assert not list(imputer.parameters())


def test_imputers_are_modules_and_take_arrays() -> None:
    assert all(isinstance(imputer, nn.Module) for imputer in _imputers().values())
    assert ConstantImputer([1, 2]).value.dtype == torch.float32
    assert ConstantImputer(np.zeros(2)).value.dtype == torch.float64
    assert "reference=(7, 4)" in repr(_imputers()["marginal"])
    value = torch.zeros(2)
    imputer = ConstantImputer(value)
    value += 1  # a buffer of its own
    assert torch.equal(imputer.value, torch.zeros(2))


# --- bad input ------------------------------------------------------------------------------------

NAN = float("nan")


@pytest.mark.parametrize(
    "build,error,message",
    [
        (lambda: ConstantImputer(NAN), ValueError, "value must be finite; 1 of its 1"),
        (lambda: ConstantImputer("zero"), TypeError, "value must be a number"),
        (lambda: ConstantImputer({"size": [2]}), ValueError, "given as a mapping"),
        (lambda: ConstantImputer({"shape": "?"}), ValueError, "given as a mapping"),
        (lambda: ConstantImputer({"dtype": "float32"}), ValueError, "given as a mapping"),
        (lambda: ConstantImputer({"shape": [2], "dtype": "nn"}), ValueError, "given as a mapping"),
        (lambda: ConstantImputer(torch.ones(2) * 1j), TypeError, "value must be real"),
        (lambda: GaussianImputer(scale=0.0), ValueError, "scale must be positive"),
        (lambda: GaussianImputer(scale=[1.0, -1.0]), ValueError, "smallest value is -1"),
        (lambda: GaussianImputer([0.0], [1.0, 1.0]), ValueError, "the same shape"),
        (lambda: GaussianImputer(float("inf")), ValueError, "mean must be finite"),
        (lambda: GaussianImputer.fit(torch.ones(1, 3)), ValueError, "at least 2 rows"),
        (lambda: GaussianImputer.fit(torch.ones(3)), ValueError, r"shape \(B, \*event\)"),
        (lambda: GaussianImputer.fit(torch.ones(3, 2).long()), TypeError, "floating-point"),
        (lambda: GaussianImputer.fit(np.ones((3, 2))), TypeError, "it is ndarray"),
        (lambda: GaussianImputer.fit(torch.full((3, 2), NAN)), ValueError, "6 of its 6 values"),
        (lambda: MarginalImputer(torch.ones(0, 3)), ValueError, "at least one row"),
        (lambda: MarginalImputer(torch.ones(3)), ValueError, r"shape \(N, \*event\)"),
        (lambda: MarginalImputer(torch.tensor([[NAN, 1.0]])), ValueError, "1 of its 2 values"),
        (
            lambda: ConditionalGaussianImputer(torch.zeros(2, 2), torch.eye(2)),
            ValueError,
            r"mean must have shape \(D,\)",
        ),
        (
            lambda: ConditionalGaussianImputer(torch.zeros(2), torch.eye(3)),
            ValueError,
            r"covariance must have shape \(2, 2\)",
        ),
        (
            lambda: ConditionalGaussianImputer(torch.zeros(2), torch.eye(2).double()),
            TypeError,
            "of one type",
        ),
        (
            lambda: ConditionalGaussianImputer(torch.zeros(2), [[1.0, 0.5], [0.4, 1.0]]),
            ValueError,
            "must be symmetric; entries that should be equal differ by 0.1",
        ),
        (
            lambda: ConditionalGaussianImputer(torch.zeros(2), [[1.0, 2.0], [2.0, 1.0]]),
            ValueError,
            "has the eigenvalue -1",
        ),
        (
            lambda: ConditionalGaussianImputer(torch.zeros(2), [[1.0, 0.0], [0.0, -1.0]]),
            ValueError,
            "positive semi-definite",
        ),
        (
            lambda: ConditionalGaussianImputer(torch.zeros(2), [[1.0, 0.1], [0.1, 0.0]]),
            ValueError,
            "positive semi-definite",
        ),
        (
            lambda: ConditionalGaussianImputer(torch.zeros(2), [[1.0, NAN], [NAN, 1.0]]),
            ValueError,
            "covariance must be finite; 2 of its 4",
        ),
        (
            lambda: ConditionalGaussianImputer.fit(torch.randn(5, 2), "lasso"),
            ValueError,
            "shrinkage must be",
        ),
        (
            lambda: ConditionalGaussianImputer.fit(torch.randn(5, 2), 1.5),
            ValueError,
            "it is 1.5",
        ),
        (
            lambda: ConditionalGaussianImputer.fit(torch.randn(5, 2, 2)),
            ValueError,
            "must be a table",
        ),
    ],
)
def test_bad_arguments(build: Callable[[], Imputer], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        build()


@pytest.mark.parametrize("name", NAMES)
def test_bad_rows_and_masks(name: str) -> None:
    imputer = _imputers()[name]
    x = torch.randn(5, D)
    with pytest.raises(TypeError, match=r"x is torch.float64 and the imputer's .* is torch.float3"):
        imputer(x.double(), torch.ones(5, D))
    with pytest.raises(ValueError, match="keep must have shape"):
        imputer(x, torch.ones(5, D + 1))
    with pytest.raises(ValueError, match="keep must have shape"):
        imputer(x, torch.ones(3, 4, D))
    with pytest.raises(ValueError, match="x must have shape"):
        imputer(x[0], torch.ones(D))
    if imputer.event_shape is not None:
        with pytest.raises(ValueError, match=r"x must have shape \(B, 4\); it has shape \(5, 5\)"):
            imputer(torch.randn(5, D + 1), torch.ones(5, D + 1))
    torch.distributions.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError, match="parameter keep"):
        imputer(x, torch.full((5, D), 1.5))
    x[0, 0] = NAN
    with pytest.raises(ValueError, match="parameter x"):
        imputer(x, torch.ones(5, D))


def test_bad_parts_of_the_imputed_law() -> None:
    x, keep = torch.randn(5, D), torch.ones(5, D)
    with pytest.raises(ValueError, match="x must end in the event shape"):
        Imputed(x, keep, dist.Normal(torch.zeros(3), 1).to_event(1))
    with pytest.raises(ValueError, match="must broadcast together"):
        Imputed(x, torch.ones(5, 3), dist.Normal(torch.zeros(D), 1).to_event(1))
    with pytest.raises(ValueError, match="keep must have an entry for each feature"):
        Imputed(torch.randn(5, 1), keep, dist.Normal(torch.zeros(1), 1).to_event(1))
    with pytest.raises(NotImplementedError, match="must define hidden_distribution"):
        Imputer()(x, keep)
