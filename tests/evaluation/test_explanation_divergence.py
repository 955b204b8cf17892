"""The divergence between two Q-FIT explanations: its formula, its error, its control."""

import math

import pytest
import torch
from scipy.special import digamma, gammaln

from lexppl.evaluation import explanation_divergence
from lexppl.inference import fit
from lexppl.inference.contexts import seeded
from lexppl.models.predictor import table_predictor
from lexppl.systems import lex, q_fit
from tests.refusals import refused

X = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
ROWS = (X, (X[:, 0] > 0).long())


@pytest.fixture(scope="module")
def given():
    with seeded(0):
        return table_predictor(3, 2, (4,))


@pytest.fixture(scope="module")
def explained(given):
    """Four replicates of a global explanation, of one epoch."""
    return fit(
        q_fit(3, given, scope="global"), ROWS, valid=None, epochs=1, replicates=4, progress=False
    )


def at(result, centre, spread, seed, total=200.0):
    """The same result with replicates scattered about a centre."""
    other = result.subset(range(result.replicates))
    generator = torch.Generator().manual_seed(seed)
    guides = []
    for guide in other.guides:
        own = type(guide)(guide.entries)
        with torch.no_grad():
            own.logits.copy_(torch.tensor(centre) + spread * torch.randn(3, generator=generator))
            own.log_total.fill_(math.log(total))
        guides.append(own)
    other.guides = guides
    return other


def divergence_by_hand(alpha, other):
    total, of_other = alpha.sum(), other.sum()
    value = gammaln(total) - gammaln(alpha).sum() - gammaln(of_other) + gammaln(other).sum()
    return value + ((alpha - other) * (digamma(alpha) - digamma(total))).sum()


def alphas(result):
    return [guide.distribution.concentration.detach().double().numpy() for guide in result.guides]


@pytest.mark.smoke
def test_it_is_the_mean_over_pairs_by_hand(explained):
    first, second = at(explained, [1.0, 0.0, 0.0], 0.1, 0), at(explained, [0.0, 0.5, 0.0], 0.1, 1)
    found = explanation_divergence(first, second)
    a, b = alphas(first), alphas(second)
    between = sum(divergence_by_hand(p, q) for p in a for q in b) / 16
    own = [
        sum(divergence_by_hand(p, q) for i, p in enumerate(s) for j, q in enumerate(s) if i != j)
        for s in (a, b)
    ]
    noise = sum(own) / 2 / 12
    assert found.nats == pytest.approx(between, rel=1e-6)
    assert found.noise == pytest.approx(noise, rel=1e-6)
    assert found.excess == pytest.approx(between - noise, rel=1e-6)
    assert found.excess > 5 * found.excess_error


def test_two_explanations_of_one_model_are_as_far_apart_as_replicates_are(explained):
    """The control, over 200 pairs of the same law: z-scores of the excess about 0."""

    def replicates(seed):
        return at(explained, [0.3, 0.0, 0.0], 0.1, seed)

    found = [explanation_divergence(replicates(2 * s), replicates(2 * s + 1)) for s in range(200)]
    excess = torch.tensor([one.excess for one in found])
    assert abs(float(excess.mean() / excess.std() * len(excess) ** 0.5)) < 4.5
    # The jackknife overstates the error a little, and is never far below the spread itself.
    stated = torch.tensor([one.excess_error for one in found]).square().mean().sqrt()
    assert 0.7 < float(stated / excess.std()) < 2.0
    shifted = explanation_divergence(
        at(explained, [0.3, 0.0, 0.0], 0.03, 0), at(explained, [1.0, 0.0, 0.0], 0.03, 1)
    )
    assert shifted.excess > 5 * shifted.excess_error


def test_a_local_explanation_is_averaged_over_rows(given):
    result = fit(
        q_fit(3, given, hidden=(4,)), ROWS, valid=None, epochs=1, replicates=3, progress=False
    )
    found = explanation_divergence(result, result, X[:5])
    each = [model.selector(X[:5]).concentration.detach().double() for model in result.models]
    by_hand = [
        divergence_by_hand(p.numpy(), q.numpy())
        for first in each
        for second in each
        for p, q in zip(first, second, strict=True)
    ]
    assert found.nats == pytest.approx(sum(by_hand) / len(by_hand), rel=1e-5)
    refused("by row needs x", explanation_divergence, result, result)


def test_bad_input_is_refused(explained):
    refused("other has 2 replicate", explanation_divergence, explained, explained.subset(range(2)))
    masks = fit(
        lex(3, classes=2, k=1, hidden=(4,), predictor_hidden=(4,), folds=1),
        ROWS, epochs=1, replicates=3, progress=False,
    )  # fmt: skip
    refused("Dirichlet explanations", explanation_divergence, masks, explained, X, error=TypeError)
