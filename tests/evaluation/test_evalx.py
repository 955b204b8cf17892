"""Predictors fitted to judge against the laws they should learn, and scores by hand."""

import itertools
import math
import warnings
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.stats import chi2, norm
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lexppl.data import Dataset
from lexppl.evaluation.evalx import (
    EvalX,
    EvalXScores,
    FittedPredictor,
    accuracy_by_size,
    fit_evalx,
    fit_predictor,
)
from lexppl.evaluation.prediction import predictive
from lexppl.inference import CollapseWarning, TrainingOptions
from lexppl.inference.contexts import seeded
from lexppl.models import (
    MLP,
    BernoulliLikelihood,
    CategoricalLikelihood,
    GaussianImputer,
    Grouping,
    NormalLikelihood,
    PoissonLikelihood,
)
from lexppl.models.black_box import black_box
from lexppl.models.imputers.simple import LearnedConstantImputer
from lexppl.models.networks import ScaledOutput
from lexppl.models.selectors import RandomSelector
from tests.evaluation.fitted_by_hand import judge_of, linear
from tests.refusals import refusals, refused

FAILURE = 1e-6
"""Probability that a right program fails one of the z-tests here."""


GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(40, 3, generator=GENERATOR, dtype=torch.float64)
Y = torch.randint(2, (40,), generator=GENERATOR)
MASKS = torch.randint(2, (5, 40, 3), generator=GENERATOR)
WEIGHTS = torch.tensor([1.0, -2.0, 0.5]).double()


# What it learns


@pytest.fixture(scope="module")
def xor_like():
    """Two features in {-1, 1} and P(y = 1 | x) of a table with an interaction, in exact counts."""
    table = {(-1, -1): 0.1, (-1, 1): 0.8, (1, -1): 0.9, (1, 1): 0.4}
    x = torch.tensor([key for key in table for _ in range(500)], dtype=torch.float32)
    y = torch.cat([(torch.arange(500) < 500 * p).long() for p in table.values()])
    return x, y, table


def exact_given(x, table, mask):
    """P(y = 1 | x_S), where hidden features are equally often -1 and 1."""
    found = []
    for row in x.tolist():
        agree = [
            p
            for key, p in table.items()
            if all(not keep or k == v for k, v, keep in zip(key, row, mask, strict=True))
        ]
        found.append(sum(agree) / len(agree))
    return torch.tensor(found)


def test_it_learns_the_law_given_any_part_of_x(xor_like):
    x, y, table = xor_like
    options = {"valid": (x, y), "hidden": (32, 32), "learning_rate": 1e-2, "progress": False}
    judge = fit_evalx((x, y), epochs=40, samples=4, **options)
    full = fit_predictor((x, y), epochs=20, **options)
    places = x.unique(dim=0)
    errors, errors_of_full = [], []
    for mask in itertools.product((0, 1), repeat=2):
        masks = torch.tensor(mask).expand(len(places), 2)
        exact = exact_given(places, table, mask)
        errors.append((judge.predict(places, masks)[0, :, 1] - exact).abs().max())
        errors_of_full.append((full.predict(places * masks)[:, 1] - exact).abs().max())
    assert float(torch.stack(errors).max()) < 0.05
    # A predictor that never saw a hidden feature does not know what 0 stands for.
    assert float(errors_of_full[-1]) < 0.05 and float(torch.stack(errors_of_full).max()) > 0.1


def test_masks_of_given_sizes_are_learned_from_alone():
    """Of 8 columns Bernoulli(½) keeps one or none once in 28 draws; here always."""
    generator = torch.Generator().manual_seed(2)
    x = torch.randint(2, (3000, 8), generator=generator).float() * 2 - 1
    y = (torch.rand(3000, generator=generator) < (1.5 * x[:, 0]).sigmoid()).long()
    options = {"valid": None, "hidden": (16,), "learning_rate": 1e-2, "epochs": 20}
    few = [0.5, 0.5] + [0.0] * 7
    judge = fit_evalx((x, y), sizes=few, progress=False, **options)
    law = judge.result.model.selector(x[:5])
    with seeded(0):
        drawn = law.sample((400,))
    assert set(drawn.sum(-1).unique().tolist()) == {0.0, 1.0}
    masks = torch.eye(8)[[0, 1]][:, None].expand(2, 2, 8)
    rows = torch.stack([torch.ones(8), -torch.ones(8)])
    of_first, of_second = judge.predict(rows, masks)[..., 1]
    exact = torch.tensor([1.5, -1.5]).sigmoid()
    assert float((of_first - exact).abs().max()) < 0.1
    assert float((of_second - 0.5).abs().max()) < 0.1
    half = fit_evalx((x, y), progress=False, **options)
    assert half.result.model.selector(x[:5]).mean.unique().tolist() == [0.5]
    with pytest.raises(ValueError, match=r"sizes must be P\(0\), …, P\(8\); they are \[1, 1\]"):
        fit_evalx((x, y), sizes=[1, 1], progress=False, **options)


def test_a_hidden_feature_differs_from_one_at_its_mean():
    """Of a in {-1, 0, 1}, P(y = 1) is .1 at 0, .9 elsewhere and .633 where a is hidden; with 0 in
    its place the two are one input."""
    x = torch.tensor([-1.0, 0.0, 1.0]).repeat_interleave(200)[:, None]
    y = torch.cat([(torch.arange(200) < 200 * p).long() for p in (0.9, 0.1, 0.9)])
    options = {"valid": (x, y), "hidden": (16,), "learning_rate": 1e-2, "progress": False}
    options |= {"batch_size": 50}
    learned = fit_evalx((x, y), imputer=LearnedConstantImputer([2.0]), epochs=60, **options)
    by_zero = fit_evalx((x, y), epochs=2, **options)
    rows, masks = x[::200], torch.tensor([1.0, 0.0])[:, None, None].expand(2, 3, 1)
    kept, hidden = learned.predict(rows, masks)[..., 1]
    assert (kept - torch.tensor([0.9, 0.1, 0.9])).abs().max() < 0.05
    assert (hidden - 1.9 / 3.0).abs().max() < 0.05
    kept, hidden = by_zero.predict(rows, masks)[..., 1]
    assert kept[1] == hidden[1]


def test_masks_that_encode_the_label_buy_nothing():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(4000, 2, generator=generator)
    y = torch.randint(2, (4000,), generator=generator)
    judge = fit_evalx((x[:2000], y[:2000]), hidden=(16,), epochs=20, progress=False)
    encoding = nn.functional.one_hot(y, 2)[2000:]
    scores = judge.scores(x[2000:], y[2000:], encoding)
    assert scores.log_likelihood == pytest.approx(-math.log(2), abs=0.02)

    # A predictor that was trained along with such masks would read the label from them.
    class ReadsMask(nn.Module):
        def forward(self, rows):
            return 10.0 * (rows != 0).to(rows.dtype)

    flattered = judge_of(ReadsMask(), columns=2)
    x, y = x[2000:].double(), y[2000:]
    assert flattered.scores(x, y, encoding).log_likelihood > -0.01


def test_the_same_seed_gives_the_same_bits_and_no_global_state_moves():
    x, y = X.float(), Y
    state = torch.get_rng_state()
    with warnings.catch_warnings():
        # One distribution of masks for every row is no collapse.
        warnings.simplefilter("error", CollapseWarning)
        fits = [fit_evalx((x, y), hidden=(4,), epochs=2, seed=s, progress=False) for s in (0, 0, 1)]
    assert torch.equal(torch.get_rng_state(), state) and fits[0].result.collapse == [None]
    first, again, other = (f.predict(x, MASKS) for f in fits)
    assert torch.equal(first, again) and not torch.equal(first, other)


def by_hand(mask):
    """Accuracy, area and log-likelihood of the linear judge under one draw of the masks."""
    one = torch.sigmoid((X * mask) @ WEIGHTS)
    likely = torch.where(Y == 1, one, 1 - one).log().mean()
    accuracy = ((one > 0.5) == (Y == 1)).double().mean()
    return float(accuracy), roc_auc_score(Y.numpy(), one.numpy()), float(likely)


@pytest.mark.parametrize("chunk", [40, 7])
def test_scores_of_labels_are_means_over_the_draws(chunk, monkeypatch):
    monkeypatch.setattr("lexppl.inference.predictive.LARGEST_TENSOR", 128 * len(MASKS) * chunk)
    judge = judge_of(linear(WEIGHTS), likelihood=BernoulliLikelihood())
    scores = judge.scores(X, Y, MASKS)
    expected = np.mean([by_hand(mask) for mask in MASKS], 0)
    found = (scores.accuracy, scores.auroc, scores.log_likelihood)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    assert (scores.rmse, scores.r2) == (None, None)
    assert scores.mean_size == pytest.approx(float(MASKS.double().sum(-1).mean()), abs=1e-12)
    one = judge.scores(X, Y, MASKS[0])
    np.testing.assert_allclose((one.accuracy, one.auroc, one.log_likelihood), by_hand(MASKS[0]))


def test_scores_of_responses_are_means_over_the_draws():
    judge = judge_of(linear(WEIGHTS), likelihood=NormalLikelihood(0.7), labels=None)
    y = X @ WEIGHTS + 0.3
    scores = judge.scores(X, y, MASKS)
    means = torch.stack([(X * mask) @ WEIGHTS for mask in MASKS])
    squares = (means - y).square().mean(1)
    likely = torch.distributions.Normal(means, 0.7).log_prob(y).mean()
    assert scores.rmse == pytest.approx(float(squares.sqrt().mean()), abs=1e-7)
    assert scores.r2 == pytest.approx(float((1 - squares / y.var(correction=0)).mean()), abs=1e-7)
    assert scores.log_likelihood == pytest.approx(float(likely), abs=1e-6)
    assert (scores.accuracy, scores.auroc) == (None, None)


def test_what_is_hidden_is_not_read_and_groups_hide_together():
    grouping = Grouping([0, 1, 1, 2])
    network = MLP(4, 3, (8,), seed=0)
    judge = judge_of(network, labels=(0, 1, 2), grouping=grouping, columns=4)
    x = torch.randn(10, 4, generator=torch.Generator().manual_seed(2)).double()
    masks = torch.tensor([1, 0, 1]).expand(10, 3)
    before = judge.predict(x, masks)
    assert before.shape == (1, 10, 3)
    torch.testing.assert_close(before.sum(-1), torch.ones(1, 10).double())
    for feature, read in ((0, True), (1, False), (2, False), (3, True)):
        other = x.clone()
        other[:, feature] += 5.0
        assert torch.equal(judge.predict(other, masks), before) is not read


def test_random_imputations_are_averaged():
    given = {"likelihood": NormalLikelihood(), "imputer": GaussianImputer(2.0, 1.0)}
    judge = judge_of(linear(WEIGHTS), labels=None, **given)
    found = judge.predict(X, MASKS, imputations=4000, seed=1)
    expected = torch.where(MASKS == 1, X, 2.0) @ WEIGHTS
    deviation = ((1 - MASKS.double()) @ WEIGHTS.square()).sqrt() / math.sqrt(4000)
    z = ((found - expected) / deviation)[deviation > 0].abs().max()
    limit = float(norm.isf(FAILURE / 200 / 2))
    assert float(z) < limit
    wrong = torch.where(MASKS == 1, X, 1.8) @ WEIGHTS
    assert float(((found - wrong) / deviation)[deviation > 0].abs().max()) > 2 * limit


def test_data_sets_bring_their_groups_and_classes():
    data = Dataset(
        x=torch.tensor([[0.1, 1.0, 0.0], [0.7, 0.0, 1.0], [0.3, 0.0, 1.0], [0.2, 1.0, 0.0]]),
        y=torch.tensor([0, 1, 1, 0]),
        feature_names=("age", "job=clerk", "job=smith"),
        groups=(0, 1, 1),
        entry_names=("age", "job"),
        target_name="income",
        class_names=("low", "high", "none of these rows"),
    )
    judge = fit_evalx(data, valid=None, hidden=(4,), epochs=1, progress=False)
    assert judge.entries == 2
    assert judge.predict(data.x, torch.ones(4, 2)).shape == (1, 4, 3)
    assert fit_predictor(data, valid=None, hidden=(4,), epochs=1, progress=False).predict(
        data.x
    ).shape == (4, 3)


@pytest.mark.complete
def test_responses_far_from_zero_are_learned():
    x = torch.randn(400, 2, generator=torch.Generator().manual_seed(3))
    y = 1000.0 + 50.0 * x[:, 0]
    options = {"hidden": (16,), "epochs": 60, "batch_size": 40, "learning_rate": 1e-2}
    judge = fit_evalx((x[:300], y[:300]), progress=False, **options)
    full = fit_predictor((x[:300], y[:300]), progress=False, **options)
    assert judge.scores(x[300:], y[300:], torch.tensor([[1, 0]]).expand(100, 2)).r2 > 0.9
    assert abs(judge.scores(x[300:], y[300:], torch.tensor([[0, 1]]).expand(100, 2)).r2) < 0.2
    scores = full.scores(x[300:], y[300:])
    assert scores.r2 > 0.95 and scores.accuracy is None
    assert scores.log_likelihood > -5.0


def test_a_black_boxs_probabilities_are_learned():
    p = torch.sigmoid(3.0 * X[:, :1])
    y = torch.cat([1 - p, p], 1)
    options = {"valid": None, "hidden": (8,), "epochs": 150, "training": TrainingOptions()}
    judge = fit_evalx((X, y), learning_rate=1e-2, samples=8, progress=False, **options)
    found = judge.predict(X, torch.tensor([[1, 0, 0]]).expand(40, 3))[0]
    assert float((found - y).abs().max()) < 0.1


def test_another_likelihood_can_be_given():
    y = torch.poisson(torch.exp(0.5 * X[:, 0]), generator=torch.Generator().manual_seed(0))
    given = {"likelihood": PoissonLikelihood(), "hidden": (4,), "epochs": 1, "progress": False}
    assert bool((fit_evalx((X, y), **given).predict(X, MASKS) > 0).all())


# Mistakes

JUDGE = judge_of(linear(WEIGHTS), likelihood=BernoulliLikelihood())


test_bad_questions_are_refused = refusals(
    ({"masks": MASKS[..., :2]}, r"\(…, 40, 3\).*is \(5, 40, 2\)"),
    ({"masks": MASKS[:0]}, r"is \(0, 40, 3\)"),
    ({"masks": MASKS / 0.0}, "masks must hold 0 and 1 only"),
    ({"x": X[:, :2]}, "x must have 3 features, as in fit; it has 2"),
    ({"y": Y + 1}, "labels must be 0 … 1 for classes=2; y has 2"),
    ({"y": Y[1:]}, r"y must have shape \(40,\); the shape is \(39,\)"),
    ({"y": torch.eye(40)}, r"y must have shape \(40,\); the shape is \(40, 40\)"),
    ({"imputations": 0}, "at least 1"),
    of=lambda options: JUDGE.scores(**{"x": X, "y": Y, "masks": MASKS, **options}),
)


def test_a_program_without_the_mask_is_refused():
    full = fit_predictor((X, Y), hidden=(4,), epochs=1, progress=False)
    refused("needs a site 'mask'", EvalX(full.result, 3).predict, X, MASKS)


LOADER = DataLoader(TensorDataset(X, Y), batch_size=8)


test_bad_training_data_are_refused = refusals(
    ((X, Y), {"samples": 1}, "samples must be a whole number of at least 2"),
    (X, {}, "it has no y"),
    ((X, Y[1:]), {}, "as many rows"),
    ((X / 0, Y), {}, "x of train must be finite"),
    ((X, Y * 0), {}, "one class only"),
    ((X.reshape(40, 3, 1), Y), {}, r"rows of shape \(3, 1\) need grouping="),
    (LOADER, {}, "a loader states no classes"),
    ("data.csv", {}, TypeError, "must be a data set with x and y"),
    of=lambda train, options: fit_evalx(train, epochs=1, progress=False, **options),
)


def test_a_loader_with_its_network_will_do():
    given = {"network": MLP(3, 2, (4,), seed=0).double(), "likelihood": CategoricalLikelihood()}
    judge = fit_evalx(LOADER, valid=None, epochs=1, progress=False, **given)
    assert judge.predict(X, MASKS).shape == (5, 40, 2)


def test_bad_parts_are_refused():
    refused("entries must be a whole number of at least 1", RandomSelector, 0)
    refused(r"rate must be a share .* in \[0, 1\]; it is 1.5", RandomSelector, 2, 1.5)
    refused("scale must be a finite number above 0", ScaledOutput, nn.Identity(), 0.0, 0.0)


@pytest.mark.smoke
def test_it_scores_as_its_law_says():
    full = FittedPredictor(fit_predictor((X, Y), hidden=(4,), epochs=1, progress=False).result)
    with torch.no_grad():
        distribution = full.predictor(X)
    torch.testing.assert_close(full.predict(X), distribution.probs)
    scores = full.scores(X, Y)
    assert scores.log_likelihood == pytest.approx(float(distribution.log_prob(Y).mean()), abs=1e-12)
    assert scores.accuracy == pytest.approx(
        float((distribution.probs.argmax(1) == Y).double().mean())
    )
    torch.testing.assert_close(black_box(full.predictor).targets(X), distribution.probs)


def test_it_finds_logistic_coefficients():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(4000, 2, generator=generator).double()
    truth = torch.tensor([1.0, -0.5]).double()
    y = (torch.rand(4000, generator=generator) < torch.sigmoid(x @ truth)).long()
    full = fit_predictor(
        (x, y), valid=None, hidden=(), epochs=150, learning_rate=1e-2, weight_decay=0.0,
        training=TrainingOptions(patience=None), batch_size=4000, progress=False,
    )  # fmt: skip
    weight = full.predictor.network.layers[0].weight.detach()
    found = weight[1] - weight[0]
    p = torch.sigmoid(x @ truth)
    information = (x * (p * (1 - p))[:, None]).T @ x
    # Wald's statistic, with the intercept fitted beside, which is independent of the slopes here.
    statistic = float((found - truth) @ information @ (found - truth))
    assert statistic < chi2.isf(1e-6, 2)
    assert float((found - 2 * truth) @ information @ (found - 2 * truth)) > chi2.isf(1e-6, 2)


def test_of_several_replicates_the_best_predicts():
    full = fit_predictor((X, Y), hidden=(4,), epochs=2, replicates=3, progress=False)
    each = predictive(full.result, X, masks=1)
    assert each.shape == (3, 40, 2)
    assert torch.equal(full.predict(X), each[int(np.argmin(full.result.best_valid))])
    assert not torch.equal(each[0], each[1])


test_bad_training_is_refused = refusals(
    (X, {}, "it has no y"),
    ((X / 0, Y), {}, "x of train must be finite"),
    ((X.reshape(40, 3, 1), Y), {}, "need a network="),
    ((X, Y), {"replicates": 0}, "replicates must be a whole number"),
    ((X, Y), {"stages": []}, "either a model or stages"),
    of=lambda train, options: fit_predictor(train, **{"epochs": 1, "progress": False, **options}),
)


FOUR_GENERATOR = torch.Generator().manual_seed(0)
FOUR = torch.randn(400, 4, generator=FOUR_GENERATOR, dtype=torch.float64)
FOUR_WEIGHTS = torch.tensor([3.0, -2.0, 1.0, 0.0]).double()
FOUR_Y = (FOUR @ FOUR_WEIGHTS > 0).long()
RANKING = (FOUR * FOUR_WEIGHTS).abs()


class Recorder:
    """A judge that keeps the masks it is given."""

    entries = 4

    def __init__(self):
        self.masks = []

    def scores(self, x, y, masks, **options):
        self.masks.append(masks)
        return EvalXScores(accuracy=0.5, auroc=0.5, log_likelihood=-1.0, mean_size=1.0)


LABELS = judge_of(linear(FOUR_WEIGHTS), likelihood=BernoulliLikelihood(), columns=4)


def accuracy_by_hand(k):
    """Accuracy of the linear judge where each row keeps its k largest."""
    kept = torch.zeros_like(FOUR)
    for row, order in enumerate(np.argsort(-RANKING.numpy(), axis=1)):
        kept[row, order[:k]] = 1.0
    return float(((FOUR * kept) @ FOUR_WEIGHTS > 0).eq(FOUR_Y == 1).double().mean())


def test_each_row_keeps_its_highest():
    sizes, found = accuracy_by_size(LABELS, RANKING, FOUR, FOUR_Y)
    assert sizes == (1, 2, 3, 4)
    np.testing.assert_allclose(found, [accuracy_by_hand(k) for k in sizes], rtol=0, atol=1e-12)
    assert found[0] > 0.8 and found[-1] == 1.0
    chosen, again = accuracy_by_size(LABELS, RANKING, FOUR, FOUR_Y, sizes=[3, 0])
    assert chosen == (3, 0) and again[0] == found[2]
    assert again[1] == pytest.approx(float((FOUR_Y == 0).double().mean()))


@pytest.mark.smoke
def test_a_ranking_is_above_chance_and_its_opposite_below():
    _, found = accuracy_by_size(LABELS, RANKING, FOUR, FOUR_Y)
    _, chance = accuracy_by_size(LABELS, None, FOUR, FOUR_Y, random_ranking=True)
    _, opposite = accuracy_by_size(LABELS, -RANKING, FOUR, FOUR_Y)
    options = {"random_ranking": True, "seed": 1}
    assert accuracy_by_size(LABELS, None, FOUR, FOUR_Y, **options)[1] != chance
    for k in range(3):
        assert found[k] > chance[k] + 0.05
        assert opposite[k] < chance[k] - 0.02
    assert found[3] == chance[3] == opposite[3]


def test_of_equal_entries_the_first_is_kept():
    judge = Recorder()
    accuracy_by_size(
        judge, torch.tensor([[0.5, 1.0, 0.5, 0.5]]).expand(400, 4), FOUR, FOUR_Y, [1, 2, 3]
    )
    kept = [[0, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]]
    for masks, expected in zip(judge.masks, kept, strict=True):
        assert bool((masks.long() == torch.tensor(expected)).all())


def test_responses_have_their_share_of_variance():
    given = {"likelihood": NormalLikelihood(), "labels": None}
    judge = judge_of(linear(FOUR_WEIGHTS), columns=4, **given)
    y = FOUR @ FOUR_WEIGHTS
    sizes, found = accuracy_by_size(judge, FOUR_WEIGHTS.abs().expand(400, 4), FOUR, y)
    for k in sizes:
        left = (FOUR[:, k:] @ FOUR_WEIGHTS[k:]).square().sum() / (y - y.mean()).square().sum()
        assert found[k - 1] == pytest.approx(float(1 - left), abs=1e-9)


def test_a_random_ranking_keeps_each_entry_as_often():
    judge = Recorder()
    accuracy_by_size(judge, RANKING, FOUR, FOUR_Y, random_ranking=True)
    for k, (smaller, larger) in enumerate(pairwise([torch.zeros(400, 4), *judge.masks])):
        assert bool((larger.sum(1) == k + 1).all())
        assert bool((larger.long() >= smaller.long()).all())
    counts = judge.masks[0].sum(0).double()
    assert float(((counts - 100) ** 2 / 100).sum()) < chi2.isf(1e-6, 3)
    by_rank = Recorder()
    accuracy_by_size(by_rank, FOUR_WEIGHTS.expand(400, 4), FOUR, FOUR_Y)
    counts = by_rank.masks[0].sum(0).double()
    assert float(((counts - 100) ** 2 / 100).sum()) > chi2.isf(1e-6, 3)


test_bad_rankings_are_refused = refusals(
    ({"ranking": None}, r"give a ranking \(N, G\), or random_ranking=True"),
    ({"ranking": RANKING[:, :3]}, r"\(400, 4\).*\(400, 3\)"),
    ({"ranking": RANKING * float("nan")}, "or NaN"),
    ({"sizes": []}, "sizes must have at least one"),
    ({"sizes": [1, 5]}, "sizes must be a whole number from 0 to 4, the mask entries; it is 5"),
    ({"y": FOUR_Y[1:]}, r"y must have shape \(400,\); the shape is \(399,\)"),
    of=lambda options: accuracy_by_size(
        **{"evalx": LABELS, "ranking": RANKING, "x": FOUR, "y": FOUR_Y, **options}
    ),
)
