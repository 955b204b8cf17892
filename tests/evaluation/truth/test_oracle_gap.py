"""The gap to the oracle and its two parts, against distributions written out in full."""

import math
from functools import partial

import pytest
import torch
from torch import nn

from lexppl.data import synthetic
from lexppl.evaluation.truth import Oracle, oracle_gap, oracle_gaps
from lexppl.models import (
    LEX,
    BernoulliLikelihood,
    BernoulliSelector,
    ConstantImputer,
    KSubsetSelector,
    Predictor,
)
from tests.evaluation.fitted_by_hand import Fixed
from tests.evaluation.fitted_by_hand import result_of as fitted_by_hand

WEIGHTS = torch.tensor([2.0, -1.0, 0.5]).double()
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(30, 3, generator=GENERATOR)
Y = torch.randint(2, (30,), generator=GENERATOR)
TRUTH = torch.tensor([1.0, 1.0, 0.0]).expand(30, 3)
MASKS = torch.randint(2, (4, 30, 3), generator=GENERATOR).float()
LIKELY = -torch.rand(30, generator=GENERATOR)


class LinearOracle:
    """`P(y = 1 | x_S) = σ(Σ_{d∈S} w_d x_d)`: a distribution to count with."""

    def probability(self, x, masks):
        return torch.sigmoid((x * masks) @ WEIGHTS.to(x.dtype))


def explainer(shrink=1.0, k=None):
    """An explainer whose predictor is the oracle, or that with smaller weights."""
    layer = nn.Linear(3, 1, bias=False)
    layer.weight = nn.Parameter(shrink * WEIGHTS[None])
    logits = Fixed([0.5, -0.5, 0.0])
    selector = BernoulliSelector(logits) if k is None else KSubsetSelector(logits, k)
    model = LEX(selector, ConstantImputer(0.0), Predictor(layer, BernoulliLikelihood()))
    return model.double().eval()


result_of = partial(fitted_by_hand, labels=(0, 1))


def likely(masks):
    """`p(y | x_S)` by row, written out."""
    one = torch.sigmoid((X.double() * masks.double()) @ WEIGHTS)
    return torch.where(Y == 1, one, 1 - one)


def test_the_parts_are_those_of_the_formula():
    gap = oracle_gap(MASKS, LinearOracle(), X, Y, truth=TRUTH, log_likelihood=LIKELY)
    truth = likely(TRUTH).log()
    own = torch.stack([likely(mask) for mask in MASKS]).mean(0).log()
    assert gap.explainer == pytest.approx(float(LIKELY.double().mean()), abs=1e-12)
    assert gap.oracle_truth == pytest.approx(float(truth.mean()), abs=1e-12)
    assert gap.oracle_own == pytest.approx(float(own.mean()), abs=1e-12)
    assert gap.selection == pytest.approx(float((truth - own).mean()), abs=1e-12)
    assert gap.prediction == pytest.approx(float((own - LIKELY).mean()), abs=1e-12)
    assert gap.total == pytest.approx(gap.selection + gap.prediction, abs=1e-12)
    spread = (truth - LIKELY).std() / math.sqrt(30)
    assert gap.standard_error == pytest.approx(float(spread), abs=1e-12)
    # The mean of log p, in place of the log of the mean, is another number.
    wrong = torch.stack([likely(mask) for mask in MASKS]).log().mean()
    assert abs(gap.oracle_own - float(wrong)) > 0.01


@pytest.mark.parametrize("chunk", [30, 7])
def test_a_perfect_predictor_loses_by_selection_alone(chunk, monkeypatch):
    monkeypatch.setattr("lexppl.inference.predictive.LARGEST_TENSOR", 128 * 20 * chunk)
    result = result_of(explainer())
    (gap,) = oracle_gaps(result, LinearOracle(), X.double(), Y, truth=TRUTH, masks=20)
    assert gap.prediction == pytest.approx(0.0, abs=1e-9)
    assert abs(gap.selection) > 0.01


def test_perfect_masks_leave_the_predictor_to_blame():
    options = {"truth": torch.ones(30, 3), "masks": 3}
    good, poor = oracle_gaps(
        result_of(explainer(k=3), explainer(0.3, k=3)), LinearOracle(), X.double(), Y, **options
    )
    assert good.total == pytest.approx(0.0, abs=1e-9)
    assert poor.selection == pytest.approx(0.0, abs=1e-9)
    assert abs(poor.prediction) > 0.01 and poor.total == pytest.approx(poor.prediction, abs=1e-9)


def test_the_oracle_of_the_synthetic_sets_tells_the_parts_apart():
    data, oracle = synthetic("S3", rows=2000, seed=1), Oracle("S3")
    best = oracle.log_likelihood(data.x, data.y, data.truth)
    options = {"truth": data.truth}
    none = oracle_gap(data.truth, oracle, data.x, data.y, log_likelihood=best, **options)
    assert none.total == pytest.approx(0.0, abs=1e-6)
    assert none.selection == pytest.approx(0.0, abs=1e-12)
    other = 1 - data.truth
    blind = oracle.log_likelihood(data.x, data.y, other)
    lost = oracle_gap(other, oracle, data.x, data.y, log_likelihood=blind, **options)
    assert lost.prediction == pytest.approx(0.0, abs=1e-6)
    assert lost.selection > 10 * lost.standard_error and lost.selection > 0.2


def test_certainty_in_single_precision_is_no_infinity():
    far = torch.full((30, 3), 12.0)
    gap = oracle_gap(
        torch.tensor([1.0, 0.0, 1.0]).expand(30, 3),
        LinearOracle(),
        far,
        torch.zeros(30),
        truth=torch.ones(30, 3),
        log_likelihood=LIKELY,
    )
    assert gap.oracle_own == pytest.approx(-30.0, abs=0.01)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"x": X[0]}, r"x must have shape \(N, D\)"),
        ({"masks": MASKS[..., :2]}, r"\(…, 30, 3\).*is \(4, 30, 2\)"),
        ({"truth": TRUTH[:, :2]}, r"truth must have shape \(30, 3\)"),
        ({"y": Y + 1}, "y must hold 0 and 1 only"),
        ({"log_likelihood": LIKELY[1:]}, "log_likelihood must be nats, one value a row"),
        ({"log_likelihood": LIKELY * float("nan")}, "without NaN"),
    ],
)
def test_bad_questions_are_refused(options, words):
    given = {"masks": MASKS, "x": X, "y": Y, "truth": TRUTH, "log_likelihood": LIKELY, **options}
    with pytest.raises(ValueError, match=words):
        oracle_gap(oracle=LinearOracle(), **given)


def test_a_program_without_the_mask_site_is_refused():
    with pytest.raises(ValueError, match="no mask site 'words'; it has"):
        oracle_gaps(
            result_of(explainer()), LinearOracle(), X.double(), Y, truth=TRUTH, site="words"
        )
