"""INVASE, REAL-X, BASE-X and rationale selection are their papers' equations, summed over all
masks; and their own estimators have that gradient."""

import pytest
import torch

from lexppl.inference import REBAR, Enumerate, NestedIWAE, ScoreFunction
from lexppl.inference.contexts import seeded
from lexppl.systems import base_x, invase, rationale, real_x
from tests.gradients.enumeration import threshold, z_scores
from tests.systems.discrete import (
    BLACK_BOX,
    MASKS,
    SIZES,
    X,
    Y,
    gradients_of,
    log_predictions,
    log_selection,
    stages_of,
)

PENALTY = 0.07


def expected_log_likelihood(model, y):
    """Σ_n Σ_s π(s | x_n) log q(y_n | x_n ⊙ s)."""
    return (log_selection(model.selector).exp() * log_predictions(model.predictor, y=y)).sum()


def mean_size(model):
    return torch.sigmoid(model.selector.network(X)).sum()


def joint(model, y):
    """INVASE eq. 5 and BASE-X: the actor's objective."""
    return expected_log_likelihood(model, y) - PENALTY * mean_size(model)


def rationale_cost(model, y):
    """Lei et al. eq. 5, summed over all selections."""
    changes = MASKS.diff(dim=-1).abs().sum(-1, keepdim=True)
    share = log_selection(model.selector).exp()
    regularised = PENALTY * MASKS.sum(-1, keepdim=True) + 2 * PENALTY * changes
    return (share * (log_predictions(model.predictor, y=y) - regularised)).sum()


SYSTEMS = {
    "invase": (lambda: invase(3, classes=2, penalty=PENALTY, **SIZES), joint),
    "base_x": (lambda: base_x(3, classes=2, penalty=PENALTY, **SIZES), joint),
    "real_x": (lambda: real_x(3, classes=2, penalty=PENALTY, **SIZES), joint),
    "rationale": (lambda: rationale(3, classes=2, penalty=PENALTY, **SIZES), rationale_cost),
}


def explaining(name):
    """The term that learns to select."""
    system, equation = SYSTEMS[name]
    term = stages_of(system())[-1].terms[0]
    term.model.eval()  # batch norm by its running statistics, a fixed function as in the equations
    return term, equation


@pytest.mark.smoke
@pytest.mark.parametrize("y", [Y, BLACK_BOX], ids=["labels", "black box"])
@pytest.mark.parametrize("name", SYSTEMS)
def test_the_objective_is_the_papers(name, y):
    term, equation = explaining(name)
    exact = equation(term.model, y)
    ours = -NestedIWAE(1, estimator=Enumerate()).differentiable_loss(term.model, None, X, y)
    assert float(ours.detach()) == pytest.approx(float(exact.detach()), abs=1e-12)
    expected = gradients_of(exact, term.model.selector)
    assert torch.allclose(gradients_of(ours, term.model.selector), expected, atol=1e-12)
    assert term.objective.masks == 1


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("name", SYSTEMS)
def test_its_own_estimator_has_that_gradient(name):
    term, equation = explaining(name)
    exact = gradients_of(equation(term.model, Y), term.model.selector)
    copies, draws = 200, []
    with seeded(1):
        for _ in range(150):
            x, y = X.repeat(copies, 1), Y.repeat(copies)
            loss = term.objective.differentiable_loss(term.model, None, x, y) / copies
            draws.append(gradients_of(-loss, term.model.selector))
    assert z_scores(torch.stack(draws), exact).abs().max() < threshold(4 * len(exact))


def test_a_penalty_that_is_left_out_is_seen():
    term, _ = explaining("base_x")
    ours = -NestedIWAE(1, estimator=Enumerate()).differentiable_loss(term.model, None, X, Y)
    without = expected_log_likelihood(term.model, Y)
    assert abs(float((ours - without).detach())) > 0.01


class AtGivenMasks(ScoreFunction):
    """The score function's term at masks that are given, not drawn."""

    def __init__(self, baseline, masks):
        super().__init__(baseline)
        object.__setattr__(self, "masks", masks)

    def draw(self, site):
        return self.masks.unsqueeze(0)


def test_invase_scores_against_the_baselines_log_likelihood():
    """Eq. 5 at given selections: (log p_critic − log p_base) ∇ log π, and nothing else."""
    actor, baseline = stages_of(SYSTEMS["invase"][0]())[0].terms
    actor.model.eval()
    baseline.model.eval()
    assert isinstance(actor.objective.estimator, ScoreFunction)
    assert actor.objective.estimator.baseline.predictor is baseline.model.predictor
    s = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    given = NestedIWAE(1, estimator=AtGivenMasks(actor.objective.estimator.baseline, s))
    ours = gradients_of(-given.differentiable_loss(actor.model, None, X, Y), actor.model.selector)
    logits = actor.model.selector.network(X)
    rows = torch.arange(2)
    critic = actor.model.predictor.network(X * s).log_softmax(-1)[rows, Y].detach()
    base = baseline.model.predictor.network(X).log_softmax(-1)[rows, Y].detach()
    log_pi = torch.distributions.Bernoulli(logits=logits).log_prob(s).sum(-1)
    by_hand = ((critic - base) * log_pi).sum() - PENALTY * torch.sigmoid(logits).sum()
    assert torch.allclose(ours, gradients_of(by_hand, actor.model.selector), atol=1e-12)
    assert baseline.learns is None
    full = -baseline.objective.differentiable_loss(baseline.model, None, X, Y)
    assert float(full.detach()) == pytest.approx(float(base.sum()), abs=1e-12)


def test_real_xs_predictor_learns_from_masks_that_know_nothing_of_x():
    """θ* of eq. 6: the mean over all masks, each with probability 2^−3."""
    predict, select = (s.terms[0] for s in stages_of(SYSTEMS["real_x"][0]()))
    exact = log_predictions(predict.model.predictor).mean(0).sum()
    ours = -NestedIWAE(1, estimator=Enumerate()).differentiable_loss(predict.model, None, X, Y)
    assert float(ours.detach()) == pytest.approx(float(exact.detach()), abs=1e-12)
    assert list(predict.learns) == [select.model.predictor]
    assert list(select.learns) == [select.model.selector]
    assert isinstance(select.objective.estimator, REBAR)


def test_real_x_alternates_as_the_paper_does():
    (stage,) = stages_of(real_x(3, classes=2, penalty=PENALTY, alternate=True, **SIZES))
    select, predict = stage.terms
    assert list(select.learns) == [select.model.selector]
    assert list(predict.learns) == [select.model.predictor]
