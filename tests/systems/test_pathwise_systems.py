"""L2X, VIBI and MEED are their papers' equations, at the same noise."""

import math

import pytest
import torch

from lexppl.effects import Progress
from lexppl.inference.contexts import seeded
from lexppl.models.predictor import table_predictor
from lexppl.systems import l2x, meed, vibi
from tests.systems.discrete import BLACK_BOX, SIZES, X, Y, gradients_of, stages_of

K, TAU = 2, 0.5


@pytest.fixture
def same_noise(monkeypatch):
    """The Gumbel noise that each distribution draws: the same for all of them, `(k, 1, B, G)`."""
    with seeded(5):
        uniform = torch.rand(K, 1, *X.shape, dtype=torch.float64)
    noise = -(-uniform.log()).log()
    monkeypatch.setattr(
        "lexppl.distributions.relaxed.gumbel", lambda shape, like: noise.reshape(shape)
    )
    return noise.squeeze(1)


def concrete(selector, noise):
    """v of L2X: the largest of k Concrete draws, `(B, G)`."""
    log_p = selector.network(X).log_softmax(-1)
    return ((log_p + noise) / TAU).softmax(-1).amax(0)


def log_q(predictor, rows):
    return predictor.network(rows).log_softmax(-1)


def value_of(term, y):
    return -term.weight * term.objective.differentiable_loss(term.model, None, X, y)


def agree(ours, by_hand, module):
    assert float(ours.detach()) == pytest.approx(float(by_hand.detach()), abs=1e-10)
    assert torch.allclose(gradients_of(ours, module), gradients_of(by_hand, module), atol=1e-10)


@pytest.mark.smoke
@pytest.mark.parametrize("y", [Y, BLACK_BOX], ids=["labels", "black box"])
def test_l2x_is_its_equation_6(same_noise, y):
    term = stages_of(l2x(3, classes=2, k=K, temperature=TAU, **SIZES))[0].terms[0]
    term.model.predictor.eval()  # batch norm by its running statistics
    v = concrete(term.model.selector, same_noise)
    p = y if y.dim() == 2 else torch.nn.functional.one_hot(y, 2)
    by_hand = (p * log_q(term.model.predictor, X * v)).sum()
    agree(value_of(term, y), by_hand, term.model.selector)


def test_vibi_is_its_bound(same_noise):
    beta = 0.3
    system = vibi(3, classes=2, k=K, temperature=TAU, beta=beta, **SIZES)
    term = stages_of(system)[0].terms[0]
    v = concrete(term.model.selector, same_noise)
    p = term.model.selector.network(X).softmax(-1)
    divergence = (p * (p * 3).log()).sum()
    by_hand = (BLACK_BOX * log_q(term.model.predictor, X * v)).sum() - beta * divergence
    agree(value_of(term, BLACK_BOX), by_hand, term.model.selector)
    reverse = -(p * 3).log().mean(-1).sum()
    assert abs(float((reverse - divergence).detach())) > 1e-6


@pytest.fixture
def explained():
    with seeded(2):
        return table_predictor(3, 2, (4,)).double()


@pytest.mark.smoke
def test_meed_is_its_equations(same_noise, explained):
    weight = 0.4
    system = meed(
        3, explained, classes=2, k=K, temperature=TAU, adversary=weight, prior=0.0, **SIZES
    )
    fitting, adversary, fooling = stages_of(system)[0].terms
    selector, seen = fitting.model.selector, fitting.model.predictor
    (left,) = adversary.learns

    def network(x):
        return selector.network.network(torch.cat([x, explained(x).probs.detach()], -1))

    # Eqs. 6 and 11: the selector sees x and the model's output
    assert torch.equal(selector.network(X), network(X))
    v = concrete(selector, same_noise)
    by_hand = (BLACK_BOX * log_q(seen, X * v)).sum()
    agree(value_of(fitting, BLACK_BOX), by_hand, selector.network.network)
    # Eqs. 7 and 12: the adversary alone learns from what is left
    rest = log_q(left, X * (1 - v))
    agree(value_of(adversary, BLACK_BOX), (BLACK_BOX * rest).sum(), left)
    assert list(adversary.learns) == [left]
    # Eqs. 8 and 13: the selector alone is paid for the opposite label
    by_hand = weight * ((1 - BLACK_BOX) * log_q(left, X * (1 - v))).sum()
    agree(value_of(fooling, BLACK_BOX), by_hand, selector.network.network)
    assert list(fooling.learns) == [selector]
    with_labels = weight * log_q(left, X * (1 - v))[torch.arange(2), 1 - Y].sum()
    agree(value_of(fooling, Y), with_labels, selector.network.network)


def test_meeds_prior_fades(same_noise, explained):
    epochs = 4
    system = meed(
        3, explained, classes=2, k=K, temperature=TAU, adversary=0.0, prior_epochs=epochs, **SIZES
    )
    (term,) = stages_of(system)[0].terms
    x = X.clone().requires_grad_()
    certainty = explained(x).logits.log_softmax(-1).amax(-1).sum()
    r = (torch.autograd.grad(certainty, x)[0] * X).abs().softmax(-1)
    z = term.model.selector.network(X).softmax(-1)
    likelihood = (
        BLACK_BOX * log_q(term.model.predictor, X * concrete(term.model.selector, same_noise))
    ).sum()
    for m in range(epochs):
        target = (z.detach() ** m * r) ** (1 / (m + 1))
        target = target / target.sum(-1, keepdim=True)
        cost = (target - z).abs().mean(-1).sum() / (m + 1)
        objective = term.objective.at((m + 0.5) / epochs)
        ours = -objective.differentiable_loss(term.model, None, X, BLACK_BOX)
        assert float(ours.detach()) == pytest.approx(float((likelihood - cost).detach()), abs=1e-10)
        with Progress((m + 0.5) / epochs):
            told = term.model.penalties[0](term.model.selector(X), None, X)
        assert float(told.sum().detach()) == pytest.approx(float(cost.detach()), abs=1e-12)


def test_each_of_meeds_parts_can_be_turned_off(explained):
    def terms(**options):
        return stages_of(meed(3, explained, classes=2, k=K, **SIZES, **options))[0].terms

    assert len(terms()) == 3
    assert len(terms(adversary=0.0)) == 1
    assert not terms(prior=0.0)[0].model.penalties
    assert terms(output_feedback=False)[0].model.selector.network.inputs == 3


def test_after_training_the_entries_of_largest_logit_are_kept():
    term = stages_of(l2x(3, classes=2, k=K, **SIZES))[0].terms[0]
    selector = term.model.selector.eval()
    distribution = selector(X)
    order = selector.network(X).argsort(-1, descending=True)
    assert torch.equal(
        distribution.sample().gather(-1, order), torch.tensor([[1.0, 1.0, 0.0]] * 2).double()
    )
    assert math.isclose(float(distribution.mean.sum()), 2 * K)
