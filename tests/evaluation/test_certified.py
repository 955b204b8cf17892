"""Certificates of masks against closed forms, enumeration and SciPy; controls must fail."""

import itertools
import math

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from scipy.stats import binom, binomtest, norm
from torch import nn

from lexppl.distributions import SequentialMask
from lexppl.evaluation import calibrated_stop, certified_masks
from lexppl.evaluation.certified import THRESHOLDS, _stops, sequential_test
from lexppl.inference import fit
from lexppl.models import (
    LEX,
    BernoulliLikelihood,
    BernoulliSelector,
    ConstantImputer,
    GaussianImputer,
    NormalLikelihood,
    Predictor,
)
from lexppl.models.lex import SequentialLEX
from lexppl.models.selectors import PenaltyConditioned, PenaltyRangeSelector, SequentialSelector
from lexppl.systems import suwr
from tests.evaluation.fitted_by_hand import Fixed, Linear, judge_of, linear, model_of, result_of
from tests.refusals import refusals, refused

WEIGHTS = (2.0, 1.5, 1.0, 0.5, 0.25)


def rows_of(count, columns=5, seed=0):
    return torch.randn(count, columns, generator=torch.Generator().manual_seed(seed)).double()


def ordered(weights=WEIGHTS, likelihood=None, imputer=None):
    """A fit for a range of λ that lets the last entries go first, of logit or mean `w · x`."""
    count = len(weights)
    logits = [float(v) for v in range(count, 0, -1)] + [-0.1] * count + [-0.1] * count
    selector = PenaltyConditioned(BernoulliSelector(Fixed(logits)), 0.005, 0.5)
    likelihood = BernoulliLikelihood() if likelihood is None else likelihood
    imputer = GaussianImputer() if imputer is None else imputer
    model = LEX(selector, imputer, Predictor(Linear(*weights), likelihood)).double().eval()
    return result_of(model, event_shape=(count,))


def share_of(x, within=None, weights=WEIGHTS):
    """a(x, S) of S = the first t of the weights, hidden features N(0, 1), `(G + 1, N)`."""
    w, shares = np.array(weights), []
    for t in range(len(w) + 1):
        shown, spread = x[:, :t].numpy() @ w[:t], math.sqrt((w[t:] ** 2).sum()) or 1e-12
        complete = x.numpy() @ w
        if within is None:
            shares.append(norm.cdf(np.sign(complete) * shown / spread))
        else:
            ends = [norm.cdf((complete + side - shown) / spread) for side in (-within, within)]
            shares.append(ends[1] - ends[0])
    return np.array(shares)


@pytest.mark.smoke
@pytest.mark.parametrize(("share", "error", "most"), [(0.5, 0.1, 14), (0.6, 0.2, 16)])
def test_the_sequential_test_rejects_a_true_hypothesis_as_often_as_it_may(share, error, most):
    """All sequences of successes are listed."""
    test = sequential_test(share, error, most)
    assert len(test) > 1 and test[-1][0] == most

    def rejected(test, until):
        total = 0.0
        for draws in itertools.product((0, 1), repeat=until):
            looks = [sum(draws[:n]) <= c for n, c in test if n <= until]
            total += any(looks) * share ** (until - sum(draws)) * (1 - share) ** sum(draws)
        return total

    for place, (n, c) in enumerate(test):
        assert rejected(test, n) <= error * math.sqrt(n / most) + 1e-12
        more = [*test[:place], (n, c + 1), *test[place + 1 :]]
        assert rejected(more, n) > error * math.sqrt(n / most)


@pytest.mark.smoke
def test_a_single_look_is_the_exact_binomial_test():
    ((n, c),) = sequential_test(0.9, 0.1, 40)
    for failures in range(12):
        tested = binomtest(n - failures, n, 0.9, alternative="greater")
        assert (failures <= c) == (tested.pvalue <= 0.1)


def test_masks_hold_as_often_as_certified_and_are_little_larger_than_the_oracle():
    x = rows_of(1500)
    found, shares = certified_masks(ordered(), x), share_of(x)
    size, at = found["size"].values[0], np.arange(1500)
    false = (shares[size, at] < 0.9).mean()
    assert false <= 0.1 - 3 * math.sqrt(0.09 / 1500)
    oracle = (shares >= 0.9)[::-1].cumprod(0)[::-1].argmax(0)
    assert oracle.mean() < size.mean() <= oracle.mean() + 0.5
    assert int(found.calls.max()) <= 400 and set(found.bound.values.ravel()) == {0.9}
    kept = np.arange(5) < size[:, None]
    np.testing.assert_array_equal(found["mask"].values[0], kept)
    assert found.feature.values.tolist() == ["x1", "x2", "x3", "x4", "x5"]


def test_a_share_just_below_is_certified_at_most_as_often_as_the_level_allows():
    """One row, x2 = 0, whose a is .899 with x1 alone, 2,000 times: .1 of it are wrong at most, and
    not many less, or the test would throw draws away."""
    x = torch.tensor([[norm.ppf(0.899), 0.0]]).double().expand(2000, 2)
    size = certified_masks(ordered((1.0, 1.0)), x, draws=400)["size"].values[0]
    false = (size < 2).mean()
    assert 0.04 < false < 0.1 + 3 * math.sqrt(0.09 / 2000)
    # The control: the same draws without a certificate, a size whose 12 draws all agree, are wrong
    # far more often.
    assert binom.pmf(12, 12, 0.899) > 0.2


def test_a_response_stays_within_what_is_stated():
    x = rows_of(1000, seed=1)
    result = ordered(likelihood=NormalLikelihood(1.0))
    size = certified_masks(result, x, within=1.0)["size"].values[0]
    shares = share_of(x, 1.0)
    assert (shares[size, np.arange(1000)] < 0.9).mean() < 0.05
    oracle = (shares >= 0.9)[::-1].cumprod(0)[::-1].argmax(0)
    assert oracle.mean() < size.mean() <= oracle.mean() + 0.5


class Noisy(nn.Module):
    """All features with noise, kept or not, as where missing values are drawn."""

    def forward(self, x, keep):
        return dist.Normal(x * keep, 1.0).to_event(1)


def test_what_is_drawn_with_every_entry_kept_is_not_certified_untested():
    result = ordered((1.0, 1.0), imputer=Noisy())
    x = torch.tensor([[0.05, 0.05], [4.0, 4.0]]).double().repeat(50, 1)
    found = certified_masks(result, x)
    unsure, sure = found.bound.values[0, ::2], found.bound.values[0, 1::2]
    assert (unsure == 0).all() and (found["size"].values[0, ::2] == 2).all()
    assert (sure == 0.9).all()


def test_it_depends_on_its_seed_alone_and_is_by_replicate():
    x, result = rows_of(80), ordered()
    both = result_of(result.model, ordered((0.1, 0.1, 0.1, 0.1, 9.0)).model, event_shape=(5,))
    state = torch.get_rng_state()
    found = certified_masks(both, x, seed=3)
    assert found.identical(certified_masks(both, x, seed=3))
    assert torch.equal(state, torch.get_rng_state())
    assert found["size"].dims == ("chain", "row") and found.sizes["chain"] == 2
    # The last entry decides in the second, and goes first.
    assert found["size"].values[1].mean() > 4.5 > found["size"].values[0].mean()


test_bad_input = refusals(
    ({"alpha": 0.0}, r"alpha must be a share in \(0, 1\)"),
    ({"alpha": 1.0}, r"alpha must be a share in \(0, 1\)"),
    ({"level": 1.0}, r"level must be a share in \(0, 1\)"),
    ({"draws": 58}, "draws=58 are too few.*at least 59"),
    ({"draws": 0}, "draws must be a whole number"),
    ({"seed": -1}, "seed must be a whole number"),
    ({"within": 0.5}, "is one of labels: leave within= out"),
    of=lambda options: certified_masks(ordered(), rows_of(4), **options),
)


def test_other_fits_and_rows_are_refused():
    with pytest.raises(ValueError, match="is a number: give within="):
        certified_masks(ordered(likelihood=NormalLikelihood()), rows_of(4))
    with pytest.raises(ValueError, match="x must have 5 features, as in fit; it has 3"):
        certified_masks(ordered(), rows_of(4, 3))
    # Each share of draws would be 0 or 1, and no entry at all enough for half of the rows.
    with pytest.raises(
        ValueError, match=r"where ConstantImputer or boosted trees .* draw no hidden"
    ):
        certified_masks(ordered(imputer=ConstantImputer(0.0)), rows_of(4))
    refused("fitted for one alone", certified_masks, result_of(model_of()), rows_of(4, 3))
    assert certified_masks(ordered(), rows_of(4), draws=59).calls.max() <= 59


# calibrated_stop

JUDGE = judge_of(linear([[0.0] * 5, WEIGHTS]), columns=5)
"""Logit `w · x_S` of what is kept: it is surer than it is right."""


def labels_of(x):
    return (x @ torch.tensor(WEIGHTS).double() > 0).long()


def risk(stop, x):
    return float((stop.masks(x).label.values != labels_of(x).numpy()).mean())


@pytest.mark.smoke
def test_the_threshold_is_the_last_that_the_exact_binomial_test_accepts():
    x = rows_of(200)
    stop = calibrated_stop(range(5), x, labels_of(x), predictor=JUDGE)
    _, confidence, labels = stop.along(x)
    last = None
    for threshold in THRESHOLDS:
        predicted = labels[_stops(confidence, threshold), np.arange(200)]
        wrong = int((predicted != labels_of(x).numpy()).sum())
        if binomtest(wrong, 200, 0.1, alternative="less").pvalue > 0.1:
            break
        last = (threshold, wrong)
    assert (stop.threshold, stop.errors) == last and stop.rows == 200
    masks = stop.masks(x)
    size = masks["size"].values
    np.testing.assert_array_equal(masks["mask"].values, np.arange(5) < size[:, None])
    assert ((masks.confidence.values >= stop.threshold) | (size == 5)).all()
    assert masks.label.values.tolist() == labels[masks["size"].values, np.arange(200)].tolist()


@pytest.mark.parametrize("by_class", [False, pytest.param(True, marks=pytest.mark.complete)])
def test_the_risk_is_above_epsilon_in_at_most_delta_of_the_calibration_sets(by_class):
    x, sets = rows_of(40_000, seed=9), 150
    truth, risks = labels_of(x).numpy(), []
    at = np.arange(len(x))
    first = calibrated_stop(range(5), x[:200], labels_of(x[:200]), predictor=JUDGE)
    _, confidence, labels = first.along(x)
    for seed in range(sets):
        own = rows_of(500, seed=100 + seed)
        stop = calibrated_stop(range(5), own, labels_of(own), predictor=JUDGE, by_class=by_class)
        predicted = labels[_stops(confidence, stop.threshold), at]
        groups = [predicted == c for c in (0, 1)] if by_class else [at >= 0]
        risks.append(max((predicted != truth)[group].mean() for group in groups))
    above = (np.array(risks) > 0.1).mean()
    assert above <= 0.1 + 2 * math.sqrt(0.09 / sets)
    assert np.mean(risks) > 0.1 - (0.045 if by_class else 0.03)


def test_hidden_values_may_be_redrawn_where_the_order_does_not_read_them():
    """And not where it does: each row's largest terms first, whose errors are hidden."""
    x = rows_of(20_000, seed=4)
    stop = calibrated_stop(range(5), x[:500], labels_of(x[:500]), predictor=JUDGE)
    found = stop.masks(x)
    kept = torch.as_tensor(found["mask"].values).double()
    redrawn = labels_of(kept * x + (1 - kept) * rows_of(20_000, seed=5)).numpy()
    assert abs((found.label.values != redrawn).mean() - risk(stop, x)) < 0.01
    # The control, an order that reads x, calibrated alike.
    place = (x.abs() * torch.tensor(WEIGHTS).double()).argsort(-1, descending=True).argsort(-1)
    masks = (place < torch.arange(6)[:, None, None]).double()
    p = JUDGE.predict(x, masks).numpy()
    confidence, labels, truth = p.max(-1), p.argmax(-1), labels_of(x).numpy()
    rates = []
    for threshold in THRESHOLDS:
        size = _stops(confidence, threshold)
        predicted = labels[size, np.arange(len(x))]
        rates.append((predicted != truth).mean())
        if rates[-1] > 0.08:
            break
    kept = masks[size, np.arange(len(x))]
    redrawn = labels_of(kept * x + (1 - kept) * rows_of(20_000, seed=6)).numpy()
    assert (predicted != redrawn).mean() > rates[-1] + 0.03


def test_rows_of_another_distribution_are_not_covered():
    x = rows_of(40_000, seed=2)
    easy = x[(x[:, 0].abs() > 1.0)][:500]
    stop = calibrated_stop(range(5), easy, labels_of(easy), predictor=JUDGE)
    assert risk(stop, x) > 0.12


class Policy(nn.Module):
    """Entry 1, and then 2 where x1 > 0 and else 3."""

    def forward(self, kept, mask):
        after = torch.where(kept[..., :1] > 0, torch.tensor([0.0, 1, 0]), torch.tensor([0.0, 0, 1]))
        first = torch.tensor([5.0, 0.0, 0.0]).to(after)
        return torch.where(mask[..., :1] == 1, after.to(mask), first.to(mask)), mask.sum(-1)


def stepwise(selector):
    model = SequentialLEX(
        selector, ConstantImputer(0.0), Predictor(Linear(3.0, 1.0, 1.0), BernoulliLikelihood())
    )
    return result_of(model.double().eval())


def test_a_policy_is_followed_by_its_likeliest_choices():
    x = rows_of(300, 3)
    y = (x @ torch.tensor([3.0, 1.0, 1.0]).double() > 0).long()
    stop = calibrated_stop(stepwise(SequentialSelector(Policy(), 3)), x, y, epsilon=0.05)
    place, confidence, labels = stop.along(x)
    up = (x[:, 0] > 0).numpy()
    np.testing.assert_array_equal(place[up], np.tile([0, 1, 2], (up.sum(), 1)))
    np.testing.assert_array_equal(place[~up], np.tile([0, 2, 1], ((~up).sum(), 1)))
    assert confidence.shape == (4, 300) and (labels[-1] == y.numpy()).all()
    short = calibrated_stop(stepwise(SequentialSelector(Policy(), 3, most=2)), x, y, epsilon=0.2)
    assert short.along(x)[1].shape == (3, 300)


@pytest.mark.filterwarnings("ignore")
def test_a_fit_of_suwr_is_an_order():
    x = rows_of(400, 3).float()
    y = (x[:, 0] > 0).long()
    options = {"epochs": 30, "batch_size": 50, "learning_rate": 1e-2, "progress": False}
    system = suwr(3, classes=2, hidden=(8,), predictor_hidden=(8,))
    result = fit(system, (x[:200], y[:200]), **options)
    stop = calibrated_stop(result, x[200:], y[200:], epsilon=0.3)
    assert float((stop.masks(x).label.values != y.numpy()).mean()) < 0.35


class ReadsAll(PenaltyRangeSelector):
    """Whose context is a value of the row."""

    def forward(self, x):
        policy = lambda kept, mask, context: (mask * 0 + context, mask.sum(-1))  # noqa: E731
        return SequentialMask(policy, x, 3, context=x[:, :1])


@pytest.mark.parametrize(
    ("result", "name"),
    [
        (result_of(model_of()), "BernoulliSelector"),
        (ordered((1.0, 2.0, 3.0)), "PenaltyConditioned"),
        (stepwise(ReadsAll(0.1, 0.2)), "ReadsAll"),
    ],
)
def test_a_law_that_reads_hidden_values_is_refused_by_name(result, name):
    with pytest.raises(ValueError, match=f"^{name} chooses masks by more of x than it keeps"):
        calibrated_stop(result, rows_of(60, 3), torch.zeros(60).long())


def stopped(changes):
    changes = {"order": range(5), "predictor": JUDGE, "rows": 100, **changes}
    x = rows_of(changes.pop("rows"))
    y = changes.pop("y", 1 - labels_of(x) if changes.pop("wrong", False) else labels_of(x))
    calibrated_stop(changes.pop("order"), x, y, **changes)


test_bad_input_of_a_stop = refusals(
    ({"epsilon": 0.0}, r"epsilon must be a share in \(0, 1\)"),
    ({"delta": 1.0}, r"delta must be a share in \(0, 1\)"),
    ({"rows": 21}, r"x has 21 calibration rows, too few: .* at least 22, log δ"),
    ({"rows": 40, "by_class": True}, r"label \d is predicted in \d+ calibr"),
    ({"wrong": True}, "rows are predicted otherwise than y, too many for ε = 0.1"),
    ({"order": [0, 0]}, "order must be of different entries"),
    ({"order": []}, "order must be of different entries, at least one"),
    ({"order": [0, 5]}, "order must be a whole number from 0 to 4"),
    ({"order": np.zeros((4, 5), int)}, "an order for each row as of FitResult.ord"),
    ({"predictor": None}, TypeError, "give predictor=, as fit_evalx's or a fit"),
    ({"y": torch.zeros(100, 2).double() + 0.5}, r"y must hold labels \(N,\)"),
    ({"y": torch.full((100,), 7)}, "labels"),
    ({"y": None}, r"y must hold labels \(N,\)"),
    of=stopped,
)


def test_one_more_row_is_enough():
    """22 rows of no error: .9²² < .1."""
    x = rows_of(22)
    assert calibrated_stop([0, 1, 2, 3, 4], x, labels_of(x), predictor=JUDGE).errors == 0


def test_responses_have_no_errors_to_count():
    judge = judge_of(linear([WEIGHTS]), likelihood=NormalLikelihood(1.0), columns=5, labels=None)
    with pytest.raises(ValueError, match="of a predictor of labels"):
        calibrated_stop(range(5), rows_of(30), rows_of(30)[:, 0], predictor=judge)
