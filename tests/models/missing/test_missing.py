"""Values that are missing, against every mask and every reference row listed by hand."""

import itertools
import math

import pyro.distributions as dist
import pytest
import torch

from lexppl.distributions import KSubset
from lexppl.inference import Enumerate, LeaveOneOut, NestedIWAE
from lexppl.inference.contexts import keep_parameters_local, program_settings, seeded
from lexppl.models import (
    LEX,
    MLP,
    BernoulliSelector,
    CategoricalLikelihood,
    ConstantImputer,
    Grouping,
    KSubsetSelector,
    MarginalImputer,
    MaxConcreteSelector,
    Predictor,
    SizePenalty,
)
from lexppl.models.missing import (
    HiddenByNature,
    LimitedSelector,
    MarkedRows,
    ObservedSelector,
    restricted,
)
from lexppl.tabular.missing_values import completed_rows
from tests.refusals import refused

MARKERS = (-1, 2, 2, 4, 4)
"""Of three values: the first is always there, the others have markers."""
X = torch.tensor(
    [[0.7, -1.2, 0.0, 0.4, 0.0], [0.3, 9.0, 1.0, -0.6, 0.0], [-1.1, 9.0, 1.0, 9.0, 1.0]],
    dtype=torch.float64,
)
"""All there, one missing, two missing; 9 stands in for what is missing."""
OBSERVED = torch.tensor([[1, 1, 1], [1, 0, 1], [1, 0, 0]], dtype=torch.float64)
VALUES = X[:, [0, 1, 3]]
REFERENCE = torch.tensor([[0.2, 1.0, -1.0], [-0.5, 0.1, 2.0]], dtype=torch.float64)


def parts(imputer, k=None):
    network = MLP(3, 3, (4,), seed=0).double()
    selector = BernoulliSelector(network, 0.7) if k is None else KSubsetSelector(network, k)
    predictor = Predictor(MLP(3, 2, (5,), seed=1), CategoricalLikelihood()).double()
    model = LEX(
        ObservedSelector(selector, range(3), MARKERS),
        HiddenByNature(imputer, MARKERS),
        predictor,
        [SizePenalty(0.03)],
    )
    keep_parameters_local(model)
    return model, selector, predictor


def probabilities_by_hand(selector, predictor):
    """p(y | x) of each row: every mask of what is there, every reference row."""
    rows = []
    for values, there in zip(VALUES, OBSERVED, strict=True):
        keep_rate = torch.sigmoid(selector.network(values) + math.log(0.7 / 0.3))
        total = torch.zeros(2, dtype=torch.float64)
        places = [d for d in range(3) if there[d]]
        for bits in itertools.product([0.0, 1.0], repeat=len(places)):
            mask = torch.zeros(3, dtype=torch.float64)
            weight = torch.ones((), dtype=torch.float64)
            for place, bit in zip(places, bits, strict=True):
                mask[place] = bit
                weight = weight * (keep_rate[place] if bit else 1 - keep_rate[place])
            imputed = torch.where(mask.bool(), values, REFERENCE)
            total = total + weight * predictor(imputed).probs.mean(0)
        rows.append(total)
    return torch.stack(rows)


def test_predictions_are_those_of_every_mask_and_every_reference_row():
    model, selector, predictor = parts(MarginalImputer(REFERENCE))
    draws = 40_000
    with torch.no_grad(), seeded(0), program_settings(validate=True):
        expected = probabilities_by_hand(selector, predictor)
        masks = model.selector(X).sample((draws,))
        found = model.predictor(model.imputer(X, masks).sample()).probs
    error = found.std(0) / math.sqrt(draws)
    assert bool(((found.mean(0) - expected).abs() < 4.5 * error + 1e-9).all())
    # A program that took the stand-in for a value would be told.
    with torch.no_grad():
        wrong = predictor(VALUES).probs
    assert bool(((wrong[1:] - expected[1:]).abs() > 20 * error[1:]).any())


def expected_gain(selector, predictor, y, k=None):
    """Σ_n E[log Φ(y_n | x̃) − λ‖z‖] by every mask of what is there, with 0 for what is hidden."""
    total = torch.zeros((), dtype=torch.float64)
    for row in range(3):
        logits = selector.network(VALUES[row]) + (math.log(0.7 / 0.3) if k is None else 0.0)
        places = [d for d in range(3) if OBSERVED[row, d]]
        size = None if k is None else min(k, len(places))
        weights, values = [], []
        for bits in itertools.product([0.0, 1.0], repeat=len(places)):
            if size is not None and sum(bits) != size:
                continue
            mask = torch.zeros(3, dtype=torch.float64)
            mask[places] = torch.tensor(bits, dtype=torch.float64)
            weights.append((logits * mask).sum())
            values.append(predictor(mask * VALUES[row]).log_prob(y[row]) - 0.03 * mask.sum())
        total = total + (torch.softmax(torch.stack(weights), 0) * torch.stack(values)).sum()
    return total


@pytest.mark.smoke
def test_the_bound_is_that_of_the_entries_that_are_there():
    """With a constant imputer nothing but masks is random."""
    model, selector, predictor = parts(ConstantImputer(torch.zeros(3, dtype=torch.float64)))
    y = torch.tensor([0, 1, 1])
    with program_settings(validate=True), torch.no_grad():
        expected = expected_gain(selector, predictor, y)
        loss = NestedIWAE(masks=1, estimator=Enumerate())(model, None)(X, y)
    assert float(loss) == pytest.approx(-float(expected), abs=1e-9)


def test_masks_of_k_entries_are_of_those_that_are_there():
    model, selector, predictor = parts(MarginalImputer(REFERENCE), k=2)
    y = torch.tensor([0, 1, 1])
    with torch.no_grad(), seeded(0):
        expected = float(expected_gain(selector, predictor, y, k=2))
        masks = model.selector(X).sample((20_000,))
        each = predictor(masks * VALUES).log_prob(y).sum(-1) - 0.03 * masks.sum((-1, -2))
    assert torch.equal(masks * OBSERVED, masks)
    assert masks.sum(-1).unique(dim=0).tolist() == [[2.0, 2.0, 1.0]]
    assert abs(float(each.mean()) - expected) < 4.5 * float(each.std()) / math.sqrt(len(each))


@pytest.mark.parametrize("k", [None, 2])
def test_gradients_are_finite_and_none_is_of_what_is_missing(k):
    model, selector, _ = parts(MarginalImputer(REFERENCE), k)
    last = [p for p in selector.network.parameters() if p.dim() == 1][-1]
    y = torch.tensor([0, 1, 1])
    with program_settings(validate=True), seeded(0):
        NestedIWAE(masks=3, estimator=LeaveOneOut())(model, None)(X[1:], y[1:]).backward()
        assert all(bool(p.grad.isfinite().all()) for p in model.parameters())
    # The second value is missing in both rows, so that its logit's bias moves nothing.
    assert float(last.grad[1]) == 0.0
    assert float(last.grad[0].abs()) > 0.0 or k == 2


def test_an_entry_of_several_values_is_missing_when_all_are():
    selector = BernoulliSelector(MLP(3, 2, (4,), seed=0).double())
    whole = ObservedSelector(selector, Grouping([0, 1, 1]).groups, MARKERS)
    assert whole.missing(X).tolist() == [[False, False], [False, False], [False, True]]
    with torch.no_grad():
        assert float(whole(X).mean[2, 1]) == 0.0
        assert bool(whole(X).entropy().isfinite().all())


def test_a_row_without_the_k_entries_keeps_those_it_has():
    missing = torch.tensor([[False, False, True], [True, True, False], [True, True, True]])
    logits = torch.tensor([0.3, -0.2, 5.0]).double().expand(3, 3)
    mean = restricted(KSubset(logits, 2), missing).mean
    assert mean[0].tolist() == [1.0, 1.0, 0.0]
    assert mean[1].tolist() == [0.0, 0.0, 1.0]
    assert float(mean[2].sum()) == pytest.approx(1.0)


@pytest.mark.parametrize("k", [None, 2])
def test_entries_left_out_are_never_kept_and_the_rest_is_the_law_given_so(k):
    network = MLP(3, 3, (4,), seed=0).double()
    selector = BernoulliSelector(network) if k is None else KSubsetSelector(network, k)
    law, limited = selector(VALUES), LimitedSelector(selector, [False, True, False])(VALUES)
    masks = torch.tensor(list(itertools.product([0.0, 1.0], repeat=3)), dtype=torch.float64)
    masks = masks if k is None else masks[masks.sum(-1) == k]
    rows = masks.unsqueeze(1).expand(-1, len(VALUES), -1)
    there = (masks[:, 1] == 0).unsqueeze(-1)
    given = torch.where(there, law.log_prob(rows).exp(), 0.0)
    torch.testing.assert_close(limited.log_prob(rows).exp(), given / given.sum(0))


def test_other_masks_are_refused_by_name():
    selector = ObservedSelector(MaxConcreteSelector(MLP(3, 3, seed=0), 1), range(3), MARKERS)
    refused(r"missing values are known to.*MaxConcrete", selector, X.float(), error=TypeError)
    with pytest.raises(ValueError, match=r"groups must have shape \(3,\)"):
        ObservedSelector(BernoulliSelector(MLP(3, 3)), [0, 1], MARKERS)
    refused("place of a feature that marks itself", MarkedRows, [1, -1])
    refused("none is a value", MarkedRows, [0, 1])
    refused(r"x must have shape \(…, 5\)", MarkedRows(MARKERS).values, torch.zeros(2, 3))


def test_completed_rows_take_an_entry_from_one_row_that_has_it():
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(4000, 3, generator=draw)
    x[:, 2] = x[:, 1] + 10.0
    observed = torch.ones(4000, 3)
    gone = torch.rand(4000, generator=draw) < 0.3
    observed[gone, 1:] = 0.0
    x[gone, 1:] = 99.0
    filled = completed_rows(x, observed, [0, 1, 1], seed=0)
    assert torch.equal(filled[:, 0], x[:, 0]) and torch.equal(filled[~gone], x[~gone])
    assert torch.allclose(filled[gone, 2], filled[gone, 1] + 10.0)
    assert set(filled[gone, 1].tolist()) <= set(x[~gone, 1].tolist())
    error = float(x[~gone, 1].std()) / math.sqrt(4000 * 0.3)
    assert abs(float(filled[gone, 1].mean() - x[~gone, 1].mean())) < 4 * error
    with pytest.raises(ValueError, match="entry 1 is missing in all"):
        completed_rows(x, torch.tensor([1.0, 0.0, 0.0]).expand(4000, 3), [0, 1, 1], seed=0)


def test_bernoulli_probabilities_of_what_is_missing_are_exactly_zero_in_every_type():
    for kind in (torch.float32, torch.float64):
        law = restricted(
            dist.Bernoulli(logits=torch.tensor([[40.0, 0.0]], dtype=kind)).to_event(1),
            torch.tensor([[True, False]]),
        )
        assert float(law.mean[0, 0]) == 0.0
        assert bool(law.log_prob(torch.tensor([[1.0, 0.0]], dtype=kind)).isfinite())


def test_what_stands_in_is_never_seen_by_the_imputer_and_markers_are_nowhere():
    imputer = HiddenByNature(MarginalImputer(REFERENCE), MARKERS)
    other = X.clone()
    other[1, 1] = -77.0
    with seeded(0):
        first = imputer(X, torch.ones(3, dtype=torch.float64)).sample((5,))
    with seeded(0):
        second = imputer(other, torch.ones(3, dtype=torch.float64)).sample((5,))
    assert torch.equal(first, second)
    assert torch.equal(first[:, 0], VALUES[0].expand(5, 3))
    assert set(first[:, 1, 1].tolist()) <= set(REFERENCE[:, 1].tolist())
