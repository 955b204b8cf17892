"""Q-FIT's objective at given draws, its closed divergences, and what stays frozen."""

import pytest
import torch
from scipy.integrate import quad
from scipy.special import digamma, gammaln
from scipy.stats import beta as beta_law

from lexppl.distributions import MaskDirichlet
from lexppl.inference.contexts import seeded
from lexppl.models.predictor import table_predictor
from lexppl.systems import q_fit
from lexppl.systems.q_fit import importance_divergence
from tests.gradients.enumeration import threshold, z_scores
from tests.refusals import refused
from tests.systems.discrete import BLACK_BOX, X, Y, gradients_of, stages_of

PRIOR = 0.3


@pytest.fixture
def given():
    with seeded(2):
        return table_predictor(3, 2, (4,)).double()


def divergence_by_hand(alpha):
    """KL(Dir(α) ‖ Dir(α₀)) by its formula, with scipy's functions, for one row."""
    total = alpha.sum()
    value = gammaln(total) - gammaln(alpha).sum() - gammaln(3 * PRIOR) + 3 * gammaln(PRIOR)
    return value + ((alpha - PRIOR) * (digamma(alpha) - digamma(total))).sum()


def log_likelihood(model, rows, y):
    log_p = model.network(rows).log_softmax(-1)
    return (y * log_p).sum() if y.dim() == 2 else log_p[torch.arange(2), y].sum()


@pytest.mark.parametrize("y", [Y, BLACK_BOX], ids=["labels", "black box"])
def test_the_local_objective_is_the_elbo_with_a_divergence_a_row(given, y, monkeypatch):
    shares = torch.tensor([[0.5, 0.2, 0.3], [0.1, 0.8, 0.1]]).double()
    monkeypatch.setattr(MaskDirichlet, "rsample", lambda self, shape=(): shares.unsqueeze(0))
    system = q_fit(3, given, concentration=PRIOR, samples=1, hidden=(4,))
    term = stages_of(system)[0].terms[0]
    alpha = term.model.selector(X).concentration.detach().numpy()
    divergence = sum(divergence_by_hand(row) for row in alpha)
    ours = -term.objective.differentiable_loss(term.model, None, X, y)
    by_hand = float(log_likelihood(given, shares * X, y)) - divergence
    assert float(ours.detach()) == pytest.approx(by_hand, abs=1e-10)


def test_the_point_estimate_is_taken_at_each_rows_own_mean(given):
    system = q_fit(3, given, concentration=PRIOR, point=True, hidden=(4,))
    term = stages_of(system)[0].terms[0]
    distribution = term.model.selector(X)
    divergence = sum(divergence_by_hand(row) for row in distribution.concentration.detach().numpy())
    exact = (
        log_likelihood(given, distribution.mean * X, Y)
        - term.model.penalties[0](distribution, None).sum()
    )
    ours = -term.objective.differentiable_loss(term.model, None, X, Y)
    assert float(ours.detach()) == pytest.approx(float(exact.detach()), abs=1e-10)
    assert float(exact.detach()) == pytest.approx(
        float(log_likelihood(given, distribution.mean * X, Y).detach()) - divergence, abs=1e-10
    )
    selector = term.model.selector
    assert torch.allclose(gradients_of(ours, selector), gradients_of(exact, selector), atol=1e-12)


def test_the_global_objective_has_one_divergence_outside_the_rows(given):
    system = q_fit(3, given, scope="global", point=True, concentration=PRIOR)
    term = stages_of(system)[0].terms[0]
    with torch.no_grad():
        term.guide.logits.copy_(torch.tensor([0.3, -1.0, 1.2]))
        term.guide.log_total.fill_(0.4)
    distribution = term.guide.distribution
    divergence = divergence_by_hand(distribution.concentration.detach().numpy())
    ours = -term.objective.differentiable_loss(term.model, term.guide, X, Y)
    by_hand = float(log_likelihood(given, distribution.mean * X, Y).detach()) - divergence
    assert float(ours.detach()) == pytest.approx(by_hand, abs=1e-10)


@pytest.mark.parametrize("scope", ["global", "local"])
def test_the_divergences_weight_multiplies_it_alone(given, scope):
    def loss(weight):
        system = q_fit(
            3, given, scope=scope, point=True, concentration=PRIOR, kl_weight=weight, hidden=(4,)
        )
        term = stages_of(system)[0].terms[0]
        return float(term.objective.differentiable_loss(term.model, term.guide, X, Y).detach())

    one, half, quarter = loss(1.0), loss(0.5), loss(0.25)
    assert one - half == pytest.approx(2 * (half - quarter), abs=1e-10)
    assert abs(one - half) > 1e-3


@pytest.mark.complete
def test_the_global_gradient_is_unbiased_by_quadrature(given):
    """Two features, so that the importance is one Beta variate."""
    with seeded(4):
        given = table_predictor(2, 2, (4,)).double()
    x = X[:, :2]
    term = stages_of(q_fit(2, given, scope="global", concentration=PRIOR))[0].terms[0]

    def elbo(first, second):
        def integrand(f):
            rows = torch.tensor([f, 1 - f]).double() * x
            with torch.no_grad():
                return float(log_likelihood(given, rows, Y)) * beta_law.pdf(f, first, second)

        alpha = torch.tensor([first, second]).double()
        prior = torch.full((2,), PRIOR).double()
        expected = quad(integrand, 0, 1, limit=200)[0]
        return expected - float(importance_divergence(alpha, prior))

    with torch.no_grad():
        term.guide.logits.copy_(torch.tensor([0.2, -0.3]))
    parameters = [term.guide.logits, term.guide.log_total]
    alpha = term.guide.distribution.concentration.detach()
    slopes, step = [], 1e-4
    for place in range(2):
        ends = []
        for sign in (1, -1):
            moved = alpha.clone()
            moved[place] += sign * step
            ends.append(elbo(*moved.tolist()))
        slopes.append((ends[0] - ends[1]) / (2 * step))
    slope = torch.tensor(slopes).double()
    by_parameter = torch.autograd.grad(term.guide.distribution.concentration @ slope, parameters)
    exact = torch.cat([part.reshape(-1) for part in by_parameter])
    draws, values = [], []
    with seeded(1):
        for _ in range(1500):
            ours = -term.objective.differentiable_loss(term.model, term.guide, x, Y)
            values.append(ours.detach())
            found = torch.autograd.grad(ours, parameters)
            draws.append(torch.cat([part.reshape(-1) for part in found]))
    assert z_scores(torch.stack(draws), exact).abs().max() < threshold(3)
    value = torch.tensor(elbo(*alpha.tolist())).double()
    assert z_scores(torch.stack(values), value).abs() < threshold(3)


def test_divergences_between_explanations_by_quadrature():
    p, q = (2.0, 0.7), (0.9, 1.6)
    ours = importance_divergence(torch.tensor(p).double(), torch.tensor(q).double())

    def integrand(f):
        return beta_law.pdf(f, *p) * (beta_law.logpdf(f, *p) - beta_law.logpdf(f, *q))

    assert float(ours) == pytest.approx(quad(integrand, 0, 1, limit=300)[0], abs=1e-6)


@pytest.mark.smoke
def test_draws_have_the_dirichlets_gradient():
    alpha = torch.tensor([0.4, 1.5]).double().expand(50_000, 2).clone().requires_grad_()
    with seeded(0):
        (MaskDirichlet(alpha).rsample()[:, 0] ** 2).sum().backward()
    exact = torch.tensor([0.4, 1.5]).double().requires_grad_()
    total = exact.sum()
    (exact[0] * (exact[0] + 1) / (total * (total + 1))).backward()
    assert z_scores(alpha.grad, exact.grad).abs().max() < threshold(2)


def test_bad_input_is_refused(given):
    refused(r"scope must be one of .'local', 'global'.; it is 'row'", q_fit, 3, given, scope="row")
    refused("concentration must be a finite number above 0", q_fit, 3, given, concentration=0.0)
    for scope in ("global", "local"):
        with pytest.raises(ValueError, match="kl_weight must be a finite number above 0; it is 0"):
            q_fit(3, given, scope=scope, kl_weight=0.0)
    refused("frozen takes", q_fit, 3, lambda x: x, error=TypeError)
    with pytest.raises(ValueError, match="explanations differ: 3 and 2 entries"):
        importance_divergence(torch.ones(3), torch.ones(2))
    refused("positive concentrations", importance_divergence, torch.zeros(3), torch.ones(3))
