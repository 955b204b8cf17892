"""The partial likelihood against risk sets in numpy, and the nested bound of it by enumeration."""

import itertools
import math

import numpy as np
import pyro.distributions as dist
import pytest
import torch

from lexppl.models import CoxLikelihood
from lexppl.models.survival import PartialLikelihood
from tests.refusals import refusals, refused

F64 = torch.float64


def by_hand(f, rows, ties="efron", weights=None):
    """The log partial likelihood, one risk set after another."""
    f, rows = np.asarray(f, float), np.asarray(rows, float)
    time, event = rows[:, 0], rows[:, 1]
    strata = rows[:, 2] if rows.shape[1] > 2 else np.zeros(len(rows))
    weights = np.ones(len(f)) if weights is None else np.asarray(weights, float)
    total = 0.0
    for stratum in np.unique(strata):
        mine = strata == stratum
        for t in np.unique(time[mine & (event == 1)]):
            dead = mine & (time == t) & (event == 1) & (weights > 0)
            if not dead.any():
                continue
            at_risk = (weights * np.exp(f))[mine & (time >= t)].sum()
            of_dead = (weights * np.exp(f))[dead].sum()
            total += (weights * f)[dead].sum()
            for place in range(dead.sum()):
                share = place / dead.sum() if ties == "efron" else 0.0
                total -= weights[dead].mean() * np.log(at_risk - share * of_dead)
    return total


def drawn_rows(count, seed, strata=3, dtype=F64):
    """Rows with many ties, in the least convenient order."""
    draw = np.random.default_rng(seed)
    columns = [draw.integers(1, 6, count), draw.integers(0, 2, count)]
    if strata:
        columns.append(draw.integers(0, strata, count))
    rows = np.stack(columns, 1)
    rows[0, 1] = 1
    return torch.as_tensor(rows, dtype=dtype), torch.as_tensor(3 * draw.normal(size=count)).to(
        dtype
    )


@pytest.mark.parametrize("strata", [0, 3])
@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize("seed", range(10))
def test_summed_over_rows_it_is_the_partial_likelihood(ties, strata, seed):
    rows, f = drawn_rows(3 + 3 * seed, seed, strata)
    found = PartialLikelihood(f, ties, strata > 0).log_prob(rows)
    assert found.shape == f.shape
    assert math.isclose(float(found.sum()), by_hand(f, rows, ties), rel_tol=1e-9, abs_tol=1e-9)


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_its_gradient_is_the_partial_likelihoods(ties):
    rows, f = drawn_rows(12, 1)
    f.requires_grad_()

    def total(g):
        return PartialLikelihood(g, ties, True).log_prob(rows).sum()

    (gradient,) = torch.autograd.grad(total(f), f)
    step = 1e-5
    for place in range(len(f)):
        ends = []
        for sign in (1, -1):
            moved = f.detach().clone()
            moved[place] += sign * step
            ends.append(by_hand(moved, rows, ties))
        assert abs((ends[0] - ends[1]) / (2 * step) - float(gradient[place])) < 1e-6
    assert torch.autograd.gradcheck(total, f)
    assert torch.autograd.gradgradcheck(total, f)


def test_hazard_ratios_of_any_size_and_both_types_of_number():
    rows, f = drawn_rows(40, 2)
    for large in (f * 30, f + 500.0, f - 500.0):
        exact = PartialLikelihood(large, "efron", True).log_prob(rows)
        assert math.isclose(float(exact.sum()), by_hand(large - large.max(), rows), rel_tol=1e-9)
        small = large.float().requires_grad_()
        found = PartialLikelihood(small, "efron", True).log_prob(rows.float())
        assert found.dtype == torch.float32
        assert torch.allclose(found.double(), exact, rtol=1e-3, atol=1e-2)
        found.sum().backward()
        assert bool(small.grad.isfinite().all())


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_weights_are_of_risk_sets_too(ties):
    rows, f = drawn_rows(30, 5)
    weights = torch.as_tensor(np.random.default_rng(5).integers(0, 3, 30), dtype=F64) * 0.7
    f.requires_grad_()
    found = PartialLikelihood(f, ties, True, weights).log_prob(rows)
    total = (weights * found).sum()
    assert math.isclose(
        float(total.detach()), by_hand(f.detach(), rows, ties, weights), rel_tol=1e-9
    )
    (gradient,) = torch.autograd.grad(total, f)
    assert bool(gradient.isfinite().all())
    assert bool((gradient[weights == 0] == 0).all())
    unweighted = (weights * PartialLikelihood(f, ties, True).log_prob(rows)).sum()
    assert abs(float((unweighted - total).detach())) > 0.1


# Several particles

TIMES = torch.tensor([[2.0, 1.0], [1.0, 1.0], [1.0, 1.0], [3.0, 0.0]], dtype=F64)
RATE = torch.tensor([0.3, 0.6, 0.5, 0.8], dtype=F64)
EFFECT = torch.tensor([1.5, -1.0, 2.0, 0.7], dtype=F64)
"""Of a mask of one entry a row: f is EFFECT where it is kept, else 0."""


def bernoulli(masks):
    return dist.Bernoulli(RATE).log_prob(masks).sum(-1)


def marginal(ties):
    """`log E[PL]` over the masks of all rows."""
    every = torch.tensor(list(itertools.product((0.0, 1.0), repeat=4)), dtype=F64)
    each = torch.tensor([by_hand(m * EFFECT, TIMES, ties) for m in every], dtype=F64)
    return float((bernoulli(every) + each).logsumexp(0))


def expected_bound(masks, ties):
    """The expectation of the bound over the masks of L particles, by enumeration."""
    every = torch.tensor(list(itertools.product((0.0, 1.0), repeat=4)), dtype=F64)
    total = 0.0
    for places in itertools.product(range(len(every)), repeat=masks):
        drawn = every[list(places)]
        rows = PartialLikelihood(drawn * EFFECT, ties).log_prob(TIMES)
        value = (rows.logsumexp(0) - math.log(masks)).sum()
        total += float(bernoulli(drawn).sum().exp() * value)
    return total


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_with_any_number_of_masks_it_is_a_bound_on_the_marginal_partial_likelihood(ties):
    whole = marginal(ties)
    bounds = [expected_bound(masks, ties) for masks in (1, 2)]
    assert all(bound < whole for bound in bounds)


def test_one_mask_is_the_partial_likelihood_of_the_masks_as_drawn():
    every = torch.tensor(list(itertools.product((0.0, 1.0), repeat=4)), dtype=F64)
    each = torch.tensor([by_hand(m * EFFECT, TIMES) for m in every], dtype=F64)
    assert math.isclose(
        expected_bound(1, "efron"), float((bernoulli(every).exp() * each).sum()), rel_tol=1e-9
    )


def test_of_several_models_the_density_is_their_mean():
    rows, f = drawn_rows(9, 8)
    g = f.flip(0)
    both = PartialLikelihood.mean_of([PartialLikelihood(h, "efron", True) for h in (f, g)])
    as_particles = PartialLikelihood(torch.stack([f, g]), "efron", True).log_prob(rows)
    assert torch.allclose(both.log_prob(rows), as_particles.logsumexp(0) - math.log(2))
    halves = [PartialLikelihood(h, "efron", True) for h in (f[:4], f[4:])]
    whole = PartialLikelihood(f, "efron", True)
    assert torch.equal(PartialLikelihood.joined(halves).log_prob(rows), whole.log_prob(rows))


def test_draws_have_the_order_that_the_model_gives_them():
    """Of rows with hazards r, row i is the first with probability r_i / Σ r."""
    f = torch.tensor([0.0, 1.0, -0.5], dtype=F64)
    draws = 20_000
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        times = PartialLikelihood(f).sample((draws,))
    assert times.shape == (draws, 3, 2) and bool((times[..., 1] == 1).all())
    first = torch.bincount(times[..., 0].argmin(1), minlength=3) / draws
    expected = f.softmax(0)
    error = (expected * (1 - expected) / draws).sqrt()
    assert float(((first - expected).abs() / error).max()) < 4.0
    assert float(((first - 1 / 3).abs() / error).max()) > 8.0


test_what_is_no_survival_time_is_refused = refusals(
    ([[1.0, 1.0], [0.0, 1.0]], "times of y must be positive and finite; 1 of 2.*row 1: 0"),
    ([[1.0, 1.0], [math.inf, 1.0]], "positive and finite; 1 of 2 are not.*row 1: inf"),
    ([[1.0, 1.0], [2.0, 0.5]], "events of y must be 1, or 0 of a censored row; 1 of 2"),
    ([[1.0, 0.0], [2.0, 0.0]], "y has no event: all 2 rows are censored"),
    ([[1.0, 1.0, 0.0]], r"y must have shape \(N, 2\), columns time, event"),
    ([1.0, 2.0], r"columns time, event; the shape is \(2,\)"),
    of=lambda y: CoxLikelihood().check_responses(torch.tensor(y)),
)


def test_other_mistakes():
    refused("ties must be one of", CoxLikelihood, "exact")
    refused("columns time, event, stratum", CoxLikelihood(stratified=True).check_responses, TIMES)
    with pytest.raises(ValueError, match="within the support"):
        PartialLikelihood(torch.zeros(1), validate_args=True).log_prob(torch.tensor([[-1.0, 1.0]]))
    with pytest.raises(ValueError, match=r"\(B, 2\), as rows .* observed alike in all particles"):
        PartialLikelihood(torch.zeros(2, 1)).log_prob(torch.ones(2, 1, 2))
    refused("give log_hazard", PartialLikelihood)
