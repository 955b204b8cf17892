"""Oracles against quadrature and simulation, and figures of selection by hand."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import integrate
from scipy.special import expit
from scipy.stats import chi2, norm
from sklearn import metrics
from torch import nn

from lexppl.data import synthetic
from lexppl.data.synthetic import synthetic_set
from lexppl.evaluation.mask_scores import SelectionScores, selection_scores
from lexppl.evaluation.oracle import Oracle, oracle_gap, oracle_gaps
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
from tests.refusals import refusals, refused


@functools.cache
def oracle_of(name: str, constant: str = "l2x-code") -> Oracle:
    return Oracle(synthetic_set(name, constant))


def standard_rows(rows: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 11, dtype=torch.float64, generator=generator)


def hiding(x: torch.Tensor, *features: int) -> torch.Tensor:
    mask = torch.ones_like(x)
    mask[:, list(features)] = 0
    return mask


# f_C written out a second time, with its own quadrature.
TERMS: dict[str, list[Callable[[Any], Any]]] = {
    "l2x-code": [lambda z: -10 * np.sin(0.2 * z), np.abs, lambda z: z, lambda z: np.exp(-z)],
    "l2x-paper": [
        lambda z: -100 * np.sin(2 * z),
        lambda z: 2 * np.abs(z),
        lambda z: z,
        lambda z: np.exp(-z),
    ],
}
CONSTANT = {"l2x-code": -2.4, "l2x-paper": 0.0}
Rule = tuple[NDArray[np.float64], NDArray[np.float64]]


def panels(low: float, high: float, count: int) -> Rule:
    """Return Gauss–Legendre nodes and weights of the standard normal distribution on [low,
    high]."""
    nodes, weights = np.polynomial.legendre.leggauss(8)
    half = (high - low) / count / 2
    places = (low + half + 2 * half * np.arange(count)[:, None] + half * nodes).ravel()
    return places, np.tile(half * weights, count) * norm.pdf(places)


def trapezoid(spacing: float) -> Rule:
    """Return equidistant nodes: exponentially exact for analytic terms of moderate slope."""
    places = np.arange(-8.5, 8.5, spacing)
    return places, spacing * norm.pdf(places)


def rule(constant: str, term: int) -> Rule:
    if term == 0:
        return trapezoid(0.3) if constant == "l2x-code" else trapezoid(0.002)
    if term == 1:
        places, weights = panels(0, 8.5, 5)
        return places, 2 * weights
    if term == 2:
        return trapezoid(0.4)
    return panels(-8.5, 8.5, 60 if constant == "l2x-code" else 500)


def brute_force_sum(constant: str, row: NDArray[np.float64], hidden: tuple[int, ...]) -> float:
    """Return E σ(−log f_C) over the hidden terms on a full tensor grid."""
    kept = CONSTANT[constant] + sum(
        TERMS[constant][j](row[6 + j]) for j in range(4) if j not in hidden
    )
    total, weight = np.zeros(1), np.ones(1)
    for j in hidden[1:]:
        places, masses = rule(constant, j)
        total = np.add.outer(total, TERMS[constant][j](places)).ravel()
        weight = np.multiply.outer(weight, masses).ravel()
    # The first hidden term in a loop, so that the grid fits into memory.
    places, masses = rule(constant, hidden[0]) if hidden else (np.zeros(1), np.ones(1))
    first = TERMS[constant][hidden[0]](places) if hidden else np.zeros(1)
    inner = [weight @ expit(-(kept + shift + total)) for shift in first]
    return float(masses @ np.array(inner))


HIDDEN_SETS = [c for size in range(5) for c in itertools.combinations(range(4), size)]


STEEP = [(0,), (1,), (3,), (0, 1), (0, 3), (1, 3), (1, 2, 3)]


@pytest.mark.parametrize(
    ("constant", "hidden"),
    [("l2x-code", hidden) for hidden in HIDDEN_SETS]
    + [pytest.param("l2x-paper", hidden, marks=pytest.mark.complete) for hidden in STEEP],
)
def test_every_pattern_of_f_c_by_brute_force(constant: str, hidden: tuple[int, ...]) -> None:
    x = standard_rows(4, seed=1)
    p = oracle_of("Syn3", constant).probability(x, hiding(x, *(6 + j for j in hidden)))
    for n in range(1 if len(hidden) == 4 else 4):
        expected = brute_force_sum(constant, x[n].numpy(), hidden)
        assert float(p[n]) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("hidden", [1, 2, 3, 4])
def test_f_b_is_an_integral_over_chi_square(hidden: int) -> None:
    x = standard_rows(4, seed=3)
    for chosen in itertools.combinations((2, 3, 4, 5), hidden):
        p = oracle_of("Syn2").probability(x, hiding(x, *chosen))
        for n in range(4):
            kept = float(sum(x[n, j] ** 2 for j in (2, 3, 4, 5) if j not in chosen)) - 4
            # t = r² takes away the singular density of one degree of freedom at 0.
            expected, _ = integrate.quad(
                lambda r, s=kept: 2 * r * chi2.pdf(r * r, hidden) * expit(-(s + r * r)),
                0,
                12,
                epsabs=1e-12,
                limit=200,
            )
            assert float(p[n]) == pytest.approx(expected, abs=1e-8)


def test_f_a_is_a_half_unless_both_are_kept() -> None:
    x = standard_rows(50)
    oracle = oracle_of("Syn1")
    for hidden in ((0,), (1,), (0, 1)):
        assert (oracle.probability(x, hiding(x, *hidden)) == 0.5).all()
    torch.testing.assert_close(
        oracle.probability(x, hiding(x, 10, 5)), torch.sigmoid(-x[:, 0] * x[:, 1])
    )
    value, _ = integrate.quad(lambda z: norm.pdf(z) * expit(-1.7 * z), -12, 12, epsabs=1e-13)
    assert value == pytest.approx(0.5, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "constant"),
    [(name, "l2x-code") for name in ("Syn1", "Syn2", "Syn3", "S1", "S2", "S3")]
    + [pytest.param("Syn3", "l2x-paper", marks=pytest.mark.complete)],
)
def test_everything_kept_is_the_law_itself(name: str, constant: str) -> None:
    x = standard_rows(200, seed=4)
    oracle = oracle_of(name, constant)
    for masks in (torch.ones_like(x), oracle.distribution.truth(x)):
        torch.testing.assert_close(
            oracle.probability(x, masks), oracle.distribution.probability(x), rtol=1e-9, atol=0
        )


def test_a_hidden_control_mixes_the_branches_half_and_half() -> None:
    x = standard_rows(200, seed=5)
    generator = torch.Generator().manual_seed(0)
    masks = (torch.rand(3, 200, 11, generator=generator) < 0.5).double()
    masks[..., 10] = 0
    mixed = oracle_of("S3").probability(x, masks)
    ends = [oracle_of(name).probability(x, masks) for name in ("Syn2", "Syn3")]
    torch.testing.assert_close(mixed, (ends[0] + ends[1]) / 2, rtol=1e-12, atol=0)
    masks[..., 10] = 1
    chosen = torch.where(x[:, 10] < 0, ends[0], ends[1])
    torch.testing.assert_close(oracle_of("S3").probability(x, masks), chosen, rtol=1e-12, atol=0)


def test_log_likelihood_is_the_mean_over_draws() -> None:
    data = synthetic("S3", rows=300, seed=1, dtype=torch.float64)
    generator = torch.Generator().manual_seed(3)
    masks = (torch.rand(5, 300, 11, generator=generator) < 0.5).double()
    oracle = oracle_of("S3")
    p = oracle.probability(data.x, masks)
    expected = torch.where(data.y == 1, p, 1 - p).log().mean(0)
    torch.testing.assert_close(oracle.log_likelihood(data.x, data.y, masks), expected)
    assert oracle.log_likelihood(data.x, data.y, masks[0]).shape == (300,)


def test_small_probabilities_keep_their_logarithm() -> None:
    x = torch.zeros(1, 11, dtype=torch.float64)
    x[0, 2] = 20.0
    value = oracle_of("Syn2").log_likelihood(x, torch.tensor([1]), torch.ones_like(x))
    assert float(value) == pytest.approx(-396, rel=1e-12)
    # With x4, x5, x6 hidden, far out: log E e^{−(396 + χ²₃)} = −396 − 1.5 log 3.
    value = oracle_of("Syn2").log_likelihood(x, torch.tensor([1]), hiding(x, 3, 4, 5))
    assert float(value) == pytest.approx(-396 - 1.5 * math.log(3), rel=1e-10)


def test_full_scores_of_s3() -> None:
    data = synthetic("S3", rows=10_000, seed=0)
    scores = oracle_of("S3").full(data.x, data.y)
    p = synthetic_set("S3").probability(data.x.double())
    expected = torch.where(data.y == 1, p, 1 - p)
    assert scores.log_likelihood == pytest.approx(float(expected.log().mean()), abs=1e-9)
    assert scores.accuracy == pytest.approx(float((expected > 0.5).double().mean()))
    # The published level: −0.382 and 0.825 on another draw of 10,000 rows.
    assert scores.log_likelihood == pytest.approx(-0.382, abs=0.02)
    assert scores.accuracy == pytest.approx(0.825, abs=0.015)


@pytest.mark.smoke
def test_best_is_the_largest_over_all_masks() -> None:
    x = standard_rows(20, seed=10)
    oracle = oracle_of("S1")
    p = oracle.distribution.probability(x)
    for k in (0, 1, 3, 11):
        masks, value = oracle.best(x, k)
        assert (masks.sum(-1) == k).all()
        candidates = []
        for kept in itertools.combinations(range(11), k):
            q = oracle.probability(x, hiding(x, *(d for d in range(11) if d not in kept)))
            candidates.append(p * q.log() + (1 - p) * (1 - q).log())
        torch.testing.assert_close(value, torch.stack(candidates).amax(0))
        q = oracle.probability(x, masks)
        torch.testing.assert_close(value, p * q.log() + (1 - p) * (1 - q).log())


def test_best_in_blocks_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x = standard_rows(30, seed=11)
    masks, value = oracle_of("S3").best(x, 4)
    monkeypatch.setattr("lexppl.evaluation.oracle._BLOCK", 100)
    again, same = oracle_of("S3").best(x, 4)
    assert torch.equal(masks, again)
    assert torch.equal(value, same)


def test_types_and_bits() -> None:
    data = synthetic("S2", rows=100)
    masks = (torch.rand(4, 100, 11, generator=torch.Generator().manual_seed(0)) < 0.5).float()
    single = oracle_of("S2").probability(data.x, masks)
    double = oracle_of("S2").probability(data.x.double(), masks.bool())
    assert (single.dtype, double.dtype) == (torch.float32, torch.float64)
    assert torch.equal(single, double.float())


ZEROS = torch.zeros(2, 11)


test_refused = refusals(
    (lambda o: o.probability(ZEROS[:, :10], ZEROS), r"x must have shape \(N, 11\).*\(2, 10\)"),
    (lambda o: o.probability(ZEROS, ZEROS[:1]), r"masks must have shape \(…, 2, 11\).*\(1, 11\)"),
    (lambda o: o.probability(ZEROS, ZEROS + 0.5), "masks must hold 0 and 1 only"),
    (lambda o: o.probability(ZEROS * math.nan, ZEROS), r"finite; 22 of its \d+ values"),
    (lambda o: o.log_likelihood(ZEROS, torch.zeros(3), ZEROS), r"y must have shape \(2,\).*\(3,\)"),
    (lambda o: o.log_likelihood(ZEROS, torch.tensor([1, 2]), ZEROS), "y must hold 0 and 1 only"),
    (lambda o: o.full(ZEROS, torch.zeros(2, 1)), r"y must have shape \(2,\)"),
    (lambda o: o.best(ZEROS, 12), "k must be a whole number from 0 to 11, the features; it is 12"),
    of=lambda call: call(oracle_of("S1")),
)


def test_unknown_laws() -> None:
    refused(r"name of a synthetic set must be one of .* it is 'S9'", Oracle, "S9")
    strange = dataclasses.replace(synthetic_set("Syn1"), branches=("f",))
    refused("ProductBranch or AdditiveBranch; str", Oracle, strange, error=TypeError)


WEIGHTS = torch.tensor([2.0, -1.0, 0.5]).double()
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(30, 3, generator=GENERATOR)
Y = torch.randint(2, (30,), generator=GENERATOR)
RELEVANT = torch.tensor([1.0, 1.0, 0.0]).expand(30, 3)
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
    gap = oracle_gap(MASKS, LinearOracle(), X, Y, truth=RELEVANT, log_likelihood=LIKELY)
    truth = likely(RELEVANT).log()
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
    (gap,) = oracle_gaps(result, LinearOracle(), X.double(), Y, truth=RELEVANT, masks=20)
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


test_bad_questions_are_refused = refusals(
    ({"x": X[0]}, r"x must have shape \(N, D\)"),
    ({"masks": MASKS[..., :2]}, r"\(…, 30, 3\).*is \(4, 30, 2\)"),
    ({"truth": RELEVANT[:, :2]}, r"truth must have shape \(30, 3\)"),
    ({"y": Y + 1}, "y must hold 0 and 1 only"),
    ({"log_likelihood": LIKELY[1:]}, "log_likelihood must be nats, one value a row"),
    ({"log_likelihood": LIKELY * float("nan")}, "without NaN"),
    of=lambda options: oracle_gap(
        oracle=LinearOracle(),
        **{"masks": MASKS, "x": X, "y": Y, "truth": RELEVANT, "log_likelihood": LIKELY, **options},
    ),
)


def test_a_program_without_the_mask_site_is_refused():
    with pytest.raises(ValueError, match="no site 'words'; it has"):
        oracle_gaps(
            result_of(explainer()), LinearOracle(), X.double(), Y, truth=RELEVANT, site="words"
        )


TRUTH = torch.tensor([[1, 1, 0, 0, 0], [0, 0, 1, 1, 1]])
DRAWS = torch.tensor(
    [
        [[1, 1, 0, 0, 0], [0, 0, 1, 0, 0]],
        [[1, 0, 1, 1, 0], [1, 1, 0, 0, 0]],
        [[0, 0, 0, 0, 0], [1, 1, 1, 1, 1]],
    ]
)


def test_by_hand() -> None:
    scores = selection_scores(DRAWS, TRUTH, control=2)
    assert scores.tpr == pytest.approx((1 + 1 / 3 + 1 / 2 + 0 + 0 + 1) / 6)
    assert scores.fpr == pytest.approx((0 + 0 + 2 / 3 + 1 + 0 + 1) / 6)
    assert scores.fdr == pytest.approx((0 + 0 + 2 / 3 + 1 + 1 + 2 / 5) / 6)
    assert scores.precision == pytest.approx(1 - scores.fdr)
    assert scores.control_flow == pytest.approx(3 / 6)
    assert scores.mean_size == pytest.approx((2 + 1 + 3 + 2 + 0 + 5) / 6)
    assert scores.empty == pytest.approx(1 / 6)
    generous = selection_scores(DRAWS, TRUTH, empty_fdr=0.0)
    assert generous.fdr == pytest.approx((0 + 0 + 2 / 3 + 1 + 0 + 2 / 5) / 6)
    assert selection_scores(torch.tensor([[1, 0]]), torch.tensor([[1, 1]])).fpr == 0


@pytest.mark.smoke
@pytest.mark.parametrize("seed", range(2))
def test_against_scikit_learn(seed: int) -> None:
    generator = np.random.default_rng(seed)
    draws, rows, entries = 7, 13, 6
    masks = generator.random((draws, rows, entries)) < generator.random()
    truth = generator.random((rows, entries)) < 0.5
    truth[:, 0] = True
    truth[:, 1] = False
    scores = selection_scores(torch.from_numpy(masks), torch.from_numpy(truth))
    pairs = [(truth[n], masks[d, n]) for d, n in itertools.product(range(draws), range(rows))]
    recall = [metrics.recall_score(t, z) for t, z in pairs]
    precision = [metrics.precision_score(t, z, zero_division=0) for t, z in pairs]
    false_positive = [1 - metrics.recall_score(~t, ~z) for t, z in pairs]
    assert scores.tpr == pytest.approx(np.mean(recall), abs=1e-12)
    assert scores.precision == pytest.approx(np.mean(precision), abs=1e-12)
    assert scores.fpr == pytest.approx(np.mean(false_positive), abs=1e-12)
    pooled = metrics.matthews_corrcoef(np.tile(truth, (draws, 1, 1)).ravel(), masks.ravel())
    assert scores.mcc == pytest.approx(pooled, abs=1e-12)


def test_a_mean_over_rows_is_not_a_pooled_ratio() -> None:
    scores = selection_scores(DRAWS, TRUTH)
    precision = metrics.precision_score(TRUTH.expand(3, 2, 5).ravel(), DRAWS.ravel())
    assert abs(scores.precision - precision) > 0.01


PERFECT = SelectionScores(1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 5.0, 0.0)


def test_limits() -> None:
    truth = synthetic("S3", rows=500).truth
    assert selection_scores(truth, truth, control=10) == PERFECT
    everything = selection_scores(torch.ones_like(truth), truth, control=10)
    assert (everything.tpr, everything.fpr, everything.mcc) == (1, 1, 0)
    assert everything.fdr == pytest.approx(6 / 11)
    nothing = selection_scores(torch.zeros_like(truth), truth, control=10)
    assert (nothing.tpr, nothing.fpr, nothing.fdr, nothing.mcc) == (0, 0, 1, 0)
    assert (nothing.control_flow, nothing.mean_size, nothing.empty) == (0, 0, 1)
    assert selection_scores(1 - truth, truth).mcc == pytest.approx(-1)


def test_one_draw_and_every_type() -> None:
    one = selection_scores(DRAWS[1], TRUTH)
    assert one == selection_scores(DRAWS[1:2].bool(), TRUTH.double())
    assert one == selection_scores(DRAWS[1:2].half(), TRUTH.bool())
    assert one.control_flow is None


test_wrong_masks_are_refused = refusals(
    ({"masks": DRAWS[..., :4]}, r"masks must have shape \(…, 2, 5\).*\(3, 2, 4\)"),
    ({"masks": DRAWS[:0]}, r"shape is \(0, 2, 5\)"),
    ({"masks": DRAWS * float("nan")}, "masks must hold 0 and 1 only"),
    ({"truth": TRUTH[0]}, r"truth must have shape \(N, G\)"),
    ({"truth": TRUTH * 2}, "truth must hold 0 and 1 only"),
    ({"truth": TRUTH * torch.tensor([[1], [0]])}, "relevant entry a row; 1 of 2 have none"),
    ({"control": 5}, "control must be .* from 0 to 4, the mask entries; it is 5"),
    ({"empty_fdr": 2.0}, r"empty_fdr must be a share in \[0, 1\]; it is 2"),
    of=lambda changed: selection_scores(**{"masks": DRAWS, "truth": TRUTH} | changed),
)
