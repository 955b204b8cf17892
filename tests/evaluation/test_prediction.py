"""The predictive distribution and its gain over the base rate against enumeration and by hand."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.stats import norm
from sklearn import metrics

from lexppl.evaluation.prediction import (
    BaseRateGain,
    auroc,
    average_precision,
    gain_over_base_rate,
    prediction_scores,
    predictive,
    predictive_log_likelihood,
)
from lexppl.inference import fit
from lexppl.models import NormalLikelihood, PoissonLikelihood
from lexppl.systems import lex
from tests.evaluation.fitted_by_hand import model_of as model_by_hand
from tests.evaluation.fitted_by_hand import result_of as fitted_by_hand
from tests.refusals import refusals, refused

X = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)).double()
LABELS = torch.arange(20) % 4
FAILURE = 1e-6
"""Probability that a right program fails one of the z-tests here."""


result_of = partial(fitted_by_hand, labels=(0, 1, 2, 3))
model_of = partial(model_by_hand, classes=4)


def enumerated(model, value):
    """Mean and variance over all masks of `value(distribution)`, and each mask's probability."""
    probability = torch.sigmoid(model.selector.network.logits.detach())
    mean, square = 0.0, 0.0
    for bits in itertools.product((0.0, 1.0), repeat=3):
        mask = torch.tensor(bits, dtype=torch.float64)
        weight = (mask * probability + (1 - mask) * (1 - probability)).prod()
        with torch.no_grad():
            found = value(model.predictor(torch.where(mask == 1, X, 0.3)))
        mean, square = mean + weight * found, square + weight * found**2
    return mean, square - mean**2


def largest_z(drawn, mean, variance, masks):
    return float(((drawn - mean) / (variance / masks).sqrt()).abs().max())


def limit(tests):
    return float(norm.isf(FAILURE / tests / 2))


def test_the_predictive_is_the_mean_over_masks():
    model = model_of()
    mean, variance = enumerated(model, lambda distribution: distribution.probs)
    drawn = predictive(result_of(model), X, masks=4000, imputations=2, seed=1)
    assert drawn.shape == (1, 20, 4)
    torch.testing.assert_close(drawn.sum(-1), torch.ones(1, 20).double())
    assert largest_z(drawn[0], mean, variance, 4000) < limit(80)
    # Another selector has another mean.
    other = predictive(result_of(model_of((0.3, -0.8, 0.1))), X, masks=4000, seed=1)
    assert largest_z(other[0], mean, variance, 4000) > 2 * limit(80)


def test_the_likelihood_is_the_mean_over_masks_too():
    model = model_of()
    mean, variance = enumerated(model, lambda distribution: distribution.log_prob(LABELS).exp())
    drawn = predictive_log_likelihood(result_of(model), X, LABELS, masks=4000, seed=1)
    assert drawn.shape == (1, 20)
    assert largest_z(drawn[0].exp(), mean, variance, 4000) < limit(20)
    other = predictive_log_likelihood(result_of(model), X, (LABELS + 1) % 4, masks=4000, seed=1)
    assert largest_z(other[0].exp(), mean, variance, 4000) > 2 * limit(20)


@pytest.mark.parametrize("chunk", [100, 1, 7])
def test_a_mask_that_keeps_everything_gives_each_predictor_exactly(chunk, monkeypatch):
    monkeypatch.setattr("lexppl.inference.predictive.LARGEST_TENSOR", 128 * 2 * chunk)
    models = [model_of(k=3, seed=seed) for seed in (0, 1)]
    result = result_of(*models)
    drawn, likely = predictive(result, X, masks=2), predictive_log_likelihood(result, X, LABELS)
    with torch.no_grad():
        for r, model in enumerate(models):
            distribution = model.predictor(X)
            torch.testing.assert_close(drawn[r], distribution.probs)
            torch.testing.assert_close(likely[r], distribution.log_prob(LABELS))


@pytest.mark.parametrize("likelihood", [NormalLikelihood(0.5), PoissonLikelihood()])
def test_responses_have_a_mean_and_a_mixture(likelihood):
    model = model_of(likelihood=likelihood)
    result, y = result_of(model, labels=None), LABELS.double()
    mean, variance = enumerated(model, lambda distribution: distribution.mean)
    drawn = predictive(result, X, masks=4000)
    assert drawn.shape == (1, 20)
    assert largest_z(drawn[0], mean, variance, 4000) < limit(20)
    mean, variance = enumerated(model, lambda distribution: distribution.log_prob(y).exp())
    likely = predictive_log_likelihood(result, X, y, masks=4000)
    assert largest_z(likely[0].exp(), mean, variance, 4000) < limit(20)


def test_probabilities_as_y_are_averaged_over():
    model = model_of(k=3)
    y = torch.softmax(torch.randn(20, 4, generator=torch.Generator().manual_seed(1)), 1).double()
    y[0] = torch.tensor([1.0, 0.0, 0.0, 0.0])
    with torch.no_grad():
        expected = (y * model.predictor(X).probs.log()).sum(1)
    result = result_of(model)
    torch.testing.assert_close(predictive_log_likelihood(result, X, y)[0], expected)
    # What is impossible and has no weight counts nothing.
    with torch.no_grad():
        model.predictor.network.layers[-1].bias[1] = -1e4
    likely = predictive_log_likelihood(result, X, y)[0]
    assert bool(likely[0].isfinite()) and float(likely[1]) < -100


def test_the_seed_decides_and_global_random_state_is_left():
    result = result_of(model_of())
    torch.manual_seed(3)
    state = torch.get_rng_state()
    first = predictive(result, X, masks=5, seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(predictive(result, X, masks=5, seed=1), first)
    assert not torch.equal(predictive(result, X, masks=5, seed=2), first)


test_bad_questions_are_refused = refusals(
    ({"x": X[:, :2]}, "x must have 3 features, as in fit; it has 2"),
    ({"x": X / 0}, "x must be finite"),
    ({"x": X[:0]}, "x has no rows"),
    ({"masks": 0}, "masks and imputations must be at least 1"),
    ({"masks": -1, "imputations": -1}, "masks must be a whole number"),
    ({"site": "label"}, "no sample site 'label'; it has"),
    of=lambda options: predictive(**{"result": result_of(model_of()), "x": X, **options}),
)


PROBABILITIES = torch.softmax(torch.randn(200, 3, generator=torch.Generator().manual_seed(2)), 1)
THREE = torch.randint(3, (200,), generator=torch.Generator().manual_seed(3))


@pytest.mark.smoke
def test_scores_of_labels_are_those_of_scikit_learn():
    p, y = PROBABILITIES.double().numpy(), THREE.numpy()
    p = p / p.sum(1, keepdims=True)
    scores = prediction_scores(PROBABILITIES, THREE)
    assert scores.accuracy == pytest.approx(metrics.accuracy_score(y, p.argmax(1)), abs=1e-12)
    assert scores.auroc == pytest.approx(
        metrics.roc_auc_score(y, p, multi_class="ovr", average="macro"), abs=1e-12
    )
    assert scores.log_likelihood == pytest.approx(-metrics.log_loss(y, p), abs=1e-6)
    assert (scores.rmse, scores.r2) == (None, None)


def test_the_area_is_of_the_second_class_or_over_those_that_rows_have():
    two = PROBABILITIES[:, :2] / PROBABILITIES[:, :2].sum(1, keepdim=True)
    y = THREE.clamp(max=1)
    expected = metrics.roc_auc_score(y.numpy(), two[:, 1].numpy())
    assert auroc(two, y) == pytest.approx(expected, abs=1e-12)
    parts = [metrics.roc_auc_score((y == c).numpy(), PROBABILITIES[:, c].numpy()) for c in range(2)]
    assert auroc(PROBABILITIES, y) == pytest.approx(np.mean(parts), abs=1e-12)
    assert math.isnan(auroc(PROBABILITIES, torch.zeros(200, dtype=torch.long)))


def test_scores_of_responses_are_those_of_scikit_learn():
    generator = torch.Generator().manual_seed(4)
    y = torch.randn(50, generator=generator)
    means = y + 0.5 * torch.randn(50, generator=generator)
    likely = torch.randn(50, generator=generator)
    scores = prediction_scores(means, y, log_likelihood=likely)
    squared = metrics.mean_squared_error(y.double(), means.double())
    assert scores.rmse == pytest.approx(math.sqrt(squared), abs=1e-12)
    assert scores.r2 == pytest.approx(metrics.r2_score(y.double(), means.double()), abs=1e-12)
    assert scores.log_likelihood == pytest.approx(float(likely.double().mean()), abs=1e-12)
    assert (scores.accuracy, scores.auroc) == (None, None)
    assert prediction_scores(means, y).log_likelihood is None
    assert math.isnan(prediction_scores(means, torch.ones(50)).r2)


test_bad_scores_are_refused = refusals(
    (PROBABILITIES, THREE[:0], {}, r"y must have shape \(N,\), none of them 0; .* \(0,\)"),
    (PROBABILITIES[1:], THREE, {}, r"must have shape \(200, C\).*; the shape is \(199, 3\)"),
    (PROBABILITIES[None], THREE, {}, r"one replicate.*\(1, 200, 3\)"),
    (PROBABILITIES[:, 0], THREE.float()[1:], {}, r"shape \(199,\), means where y holds responses"),
    (PROBABILITIES, THREE.float(), {}, "labels have an integer type"),
    (PROBABILITIES * 2, THREE, {}, "each row summing to 1"),
    (PROBABILITIES, THREE + 1, {}, "y must hold 0 to 2, not 1 to 3"),
    (PROBABILITIES / 0, THREE, {}, "^predictions must be finite; "),
    (THREE.float(), THREE / 0.0, {}, "^y must be finite; "),
    (PROBABILITIES, THREE, {"log_likelihood": torch.zeros(3)}, r"log_likelihood .* \(200,\)"),
    of=lambda predictions, y, options: prediction_scores(predictions, y, **options),
)


def test_average_precision_is_of_the_rarer_label_and_the_mean_over_several():
    random = np.random.default_rng(0)
    p = torch.from_numpy(random.dirichlet(np.ones(3), 50))
    y = torch.from_numpy(random.integers(0, 3, 50))
    each = [metrics.average_precision_score((y == c).numpy(), p[:, c].numpy()) for c in range(3)]
    assert average_precision(p, y) == pytest.approx(np.mean(each))
    assert prediction_scores(p, y).average_precision == pytest.approx(np.mean(each))
    two = torch.stack([p[:, 0], 1 - p[:, 0]], 1)
    rare = (torch.arange(50) >= 5).long()
    expected = metrics.average_precision_score((rare == 0).numpy(), p[:, 0].numpy())
    assert average_precision(two, rare) == pytest.approx(expected)
    assert average_precision(two.flip(1), 1 - rare) == pytest.approx(expected)
    assert average_precision(torch.full((50, 2), 0.5), rare) == pytest.approx(0.1)
    assert math.isnan(average_precision(two, torch.zeros(50, dtype=torch.long)))


ROWS = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
SIGNS = (ROWS[:, 0] > 0).long()
RESPONSE = ROWS[:, 0] - 0.5 * ROWS[:, 1]
SMALL = {"k": 1, "hidden": (6,), "predictor_hidden": (6,)}
QUICK = {"epochs": 4, "batch_size": 50, "replicates": 2, "progress": False}


@pytest.mark.parametrize("kind", ["labels", "responses", "probabilities"])
def test_it_is_its_formula(kind):
    y = {"labels": SIGNS, "responses": RESPONSE}.get(kind)
    if kind == "probabilities":
        p = torch.sigmoid(ROWS[:, :1])
        y = torch.cat([1 - p, p], 1)
    classes = None if kind == "responses" else 2
    result = fit(lex(3, classes=classes, **SMALL), (ROWS[:200], y[:200]), **QUICK)
    found = gain_over_base_rate(result, y[:200], ROWS[200:], y[200:], masks=10, seed=3)
    own = predictive_log_likelihood(result, ROWS[200:], y[200:], masks=10, seed=3).numpy().mean(0)
    train, held = y[:200].numpy(), y[200:].numpy()
    if kind == "labels":
        share = (np.bincount(train) + 1) / 202
        base = np.log(share)[held]
    elif kind == "responses":
        base = stats.norm(train.mean(), train.std(ddof=1)).logpdf(held)
    else:
        base = held @ np.log((train.sum(0) + 1) / 202)
    gained = own - base
    assert found.nats == pytest.approx(gained.mean(), rel=1e-5)
    assert found.error == pytest.approx(stats.sem(gained), rel=1e-5)
    assert found.rows == 100


@pytest.mark.complete
def test_labels_of_noise_are_not_learned():
    """Of fits to labels that x says nothing of, about one in forty may look learned."""
    shown = []
    for seed in range(8):
        draws = torch.Generator().manual_seed(seed)
        y = torch.randint(2, (300,), generator=draws)
        result = fit(lex(3, classes=2, **SMALL), (ROWS[:200], y[:200]), **QUICK, seed=seed)
        shown.append(gain_over_base_rate(result, y[:200], ROWS[200:], y[200:], masks=10).shown)
    assert sum(shown) <= 2
    learned = fit(
        lex(3, classes=2, **SMALL),
        (ROWS[:200], SIGNS[:200]),
        **{**QUICK, "epochs": 30, "learning_rate": 1e-2},
    )
    assert gain_over_base_rate(learned, SIGNS[:200], ROWS[200:], SIGNS[200:]).shown


@pytest.mark.smoke
def test_one_row_shows_nothing():
    result = fit(lex(3, classes=2, **SMALL), (ROWS[:200], SIGNS[:200]), **QUICK)
    found = gain_over_base_rate(result, SIGNS[:200], ROWS[:1], SIGNS[:1])
    assert math.isnan(found.error)
    assert not found.shown
    assert BaseRateGain(0.3, 0.1, 50).shown
    assert not BaseRateGain(0.3, 0.2, 50).shown


def test_another_kind_of_y_is_refused():
    result = fit(lex(3, classes=2, **SMALL), (ROWS[:200], SIGNS[:200]), **QUICK)
    refused("of one kind", gain_over_base_rate, result, SIGNS[:200], ROWS[200:], RESPONSE[200:])
