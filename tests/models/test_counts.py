"""Likelihoods of counts and of ordered labels, and Student's t: by their formulas, in fits."""

import math

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from scipy import stats

from lexppl import explain
from lexppl.evaluation import predictive, predictive_log_likelihood
from lexppl.evaluation.prediction import prediction_scores
from lexppl.inference import NestedIWAE, fit
from lexppl.models import (
    MLP,
    CategoricalLikelihood,
    CoxLikelihood,
    HeteroscedasticLikelihood,
    NegativeBinomialLikelihood,
    OrdinalLikelihood,
    PoissonLikelihood,
    Predictor,
    StudentTLikelihood,
    UnmaskedPredictor,
    ZeroInflatedNegativeBinomialLikelihood,
    ZeroInflatedPoissonLikelihood,
)
from lexppl.saving import load, save
from lexppl.systems import lex
from tests.refusals import refused

F64 = torch.float64
COUNTS = torch.tensor([0, 1, 2, 7, 30])
X = torch.randn(80, 3, generator=torch.Generator().manual_seed(0))
Y = torch.poisson((0.5 * X[:, 0] + 0.5).exp(), generator=torch.Generator().manual_seed(1))
LABELS = (X[:, 0] > -0.5).long() + (X[:, 0] > 0.5).long()
QUICK = {"epochs": 2, "progress": False}
EVERY = {
    "poisson": (PoissonLikelihood, Y),
    "negative binomial": (NegativeBinomialLikelihood, Y),
    "zero-inflated": (ZeroInflatedPoissonLikelihood, Y),
    "zero-inflated negative binomial": (ZeroInflatedNegativeBinomialLikelihood, Y),
    "student": (lambda: StudentTLikelihood(5.0, learn_degrees=True), X[:, 0] + X[:, 1]),
    "heteroscedastic": (HeteroscedasticLikelihood, X[:, 0] + X[:, 1]),
    "ordinal": (lambda: OrdinalLikelihood(3), LABELS),
}


@pytest.mark.parametrize("gate", [None, 0.3])
@pytest.mark.parametrize("dispersion", [None, 0.01, 0.5, 3.0])
def test_counts_are_scipys(dispersion, gate):
    """With and without more zeros than the law has, of which a share is `gate`."""
    mean, alpha = 4.2, 0.0
    if dispersion is None:
        likelihood = PoissonLikelihood() if gate is None else ZeroInflatedPoissonLikelihood()
        law = stats.poisson(mean)
    else:
        kinds = NegativeBinomialLikelihood, ZeroInflatedNegativeBinomialLikelihood
        likelihood = kinds[gate is not None](dispersion).to(F64)
        alpha = likelihood.log_dispersion.exp().item()
        law = stats.nbinom(1 / alpha, 1 / (1 + alpha * mean))
    share = gate or 0.0
    outputs = [math.log(mean)] + ([] if gate is None else [math.log(gate / (1 - gate))])
    found = likelihood(torch.tensor([outputs], dtype=F64).expand(5, -1))
    expected = np.where(COUNTS.numpy() == 0, share, 0.0) + (1 - share) * law.pmf(COUNTS.numpy())
    assert np.allclose(found.log_prob(COUNTS).detach().numpy(), np.log(expected), rtol=1e-6)
    every = np.arange(2000)
    first, second = ((1 - share) * (law.pmf(every) * every**power).sum() for power in (1, 2))
    assert float(found.mean[0]) == pytest.approx(first, rel=1e-6)
    assert float(found.variance[0]) == pytest.approx(second - first**2, rel=1e-6)


def test_cumulative_logits():
    likelihood = OrdinalLikelihood(4).to(F64)
    with torch.no_grad():
        likelihood.first.fill_(-1.0)
        likelihood.log_steps.copy_(torch.tensor([0.5, 2.0]).log())
    cutpoints = torch.tensor([-1.0, -0.5, 1.5], dtype=F64)
    assert torch.allclose(likelihood.cutpoints, cutpoints)
    f = torch.tensor([[0.3], [-2.0]], dtype=F64)
    found = likelihood(f).probs.detach()
    assert torch.allclose(found.cumsum(-1)[:, :3], torch.sigmoid(cutpoints - f))
    theirs = dist.OrderedLogistic(f.squeeze(-1), cutpoints)
    assert torch.allclose(found, theirs.probs)
    odds = found.cumsum(-1)[:, :3].logit()
    assert torch.allclose(odds[0] - odds[1], torch.full((3,), -2.3, dtype=F64))


def test_probabilities_too_small_for_a_difference_stay_finite():
    likelihood = OrdinalLikelihood(4)
    f = torch.tensor([[60.0], [-60.0]], requires_grad=True)
    log_prob = likelihood(f).log_prob(torch.tensor([1, 2]))
    theirs = dist.OrderedLogistic(f.squeeze(-1), likelihood.cutpoints, validate_args=False)
    assert bool((log_prob < -50.0).all()) and bool(log_prob.isfinite().all())
    assert bool((theirs.probs.detach()[[0, 1], [1, 2]] == 0).any())
    (gradient,) = torch.autograd.grad(log_prob.sum(), f)
    assert torch.allclose(gradient, torch.tensor([[-1.0], [1.0]]), atol=1e-4)


def test_cutpoints_start_at_labels_as_frequent_as_each_other():
    for classes in (2, 3, 7):
        likelihood = OrdinalLikelihood(classes)
        start = likelihood.cutpoints.detach().clone()
        assert torch.allclose(
            likelihood(torch.zeros(1, 1)).probs, torch.tensor(1.0 / classes), atol=1e-6
        )
        with torch.no_grad():
            likelihood.first.add_(1.0)
        likelihood.reset_parameters()
        assert torch.equal(likelihood.cutpoints, start)


@pytest.mark.complete(but=5)
@pytest.mark.parametrize("folds", [1, 2])
@pytest.mark.parametrize("name", EVERY)
def test_each_goes_through_a_fit_and_what_follows(name, folds, tmp_path):
    make, y = EVERY[name]
    classes = 3 if name == "ordinal" else None
    sizes = {"hidden": (4,), "predictor_hidden": (4,), "folds": folds}
    model = lex(3, classes=classes, likelihood=make(), **sizes)
    result = fit(model, (X, y), replicates=2, batch_size=40, **QUICK)
    predicted = predictive(result, X[:5], masks=4)
    assert predicted.shape == ((2, 5) if classes is None else (2, 5, 3))
    likelihood = predictive_log_likelihood(result, X[:5], y[:5], masks=4)
    assert bool(likelihood.isfinite().all())
    scores = prediction_scores(predicted[0], y[:5], log_likelihood=likelihood[0])
    assert (scores.rmse is None) == (classes is not None)
    posterior = explain(result, X[:5], y[:5], draws=3)
    assert posterior["posterior_predictive"]["y"].shape == (2, 3, 5)
    assert ("y_probability" in posterior["posterior_predictive"]) == (classes is not None)
    save(result, tmp_path)
    again = predictive(load(tmp_path), X[:5], masks=4)
    assert torch.equal(again, predicted)


@pytest.mark.parametrize("make", [make for make, y in EVERY.values() if y is Y])
@pytest.mark.parametrize(
    ("spoil", "found"), [(lambda y: y - 5.0, "not, the first in row"), (lambda y: y + 0.5, "0.5")]
)
def test_what_is_no_count_is_refused_before_any_work(make, spoil, found):
    model = lex(3, classes=None, likelihood=make(), hidden=(4,), predictor_hidden=(4,))
    with pytest.raises(ValueError, match=f"rows to learn from: {make.__name__} is of counts.*"):
        fit(model, (X, spoil(Y)), **QUICK)
    refused(found, make().check_responses, spoil(Y))
    refused(r"shape \(N,\)", make().check_responses, Y.unsqueeze(1))


def test_counts_of_a_whole_type_are_no_labels():
    """They used to be: a count that the fit had not seen was refused as a label."""
    model = UnmaskedPredictor(Predictor(MLP(3, 1, (4,), seed=0), PoissonLikelihood()))
    result = fit(model, (X, Y.long()), objective=NestedIWAE(1), **QUICK)
    assert result.labels is None
    unseen = torch.full((2,), int(Y.max()) + 3)
    assert predictive_log_likelihood(result, X[:2], unseen).shape == (1, 2)
    refused("is of counts", predictive_log_likelihood, result, X[:2], unseen - 100)


def test_a_fit_says_what_its_responses_are():
    times = torch.stack([X[:, 0].abs() + 0.1, (X[:, 1] > 0).float()], 1)
    black_box = torch.softmax(X[:, :2], -1)
    for made, y, told in (
        (PoissonLikelihood(), Y, "counts"),
        (CoxLikelihood(), times, "survival times, and whether the event happened then"),
        (HeteroscedasticLikelihood(), X[:, 0], "responses"),
        (CategoricalLikelihood(), black_box, "probabilities of labels"),
    ):
        model = UnmaskedPredictor(Predictor(MLP(3, made.outputs or 2, (4,), seed=0), made))
        result = fit(model, (X, y), objective=NestedIWAE(1), **QUICK)
        assert result.summarised().lines["y"] == told


@pytest.mark.parametrize("wrong", [3, -1])
def test_labels_beyond_the_ordered_ones_are_refused(wrong):
    y = LABELS.clone()
    y[7] = wrong
    model = lex(3, classes=3, likelihood=OrdinalLikelihood(3), hidden=(4,), predictor_hidden=(4,))
    with pytest.raises(
        ValueError, match=f"train: labels must be 0 … 2 for classes=3; y has {wrong} in row 7$"
    ):
        fit(model, (X, y), valid=None, **QUICK)
    with pytest.raises(ValueError, match=r"\(N, 3\), labels, or their probabilities for classes=3"):
        OrdinalLikelihood(3).check_responses(torch.full((80, 4), 0.25))


def test_other_mistakes():
    refused("of 3 classes, and classes is 4", lex, 3, classes=4, likelihood=OrdinalLikelihood(3))
    for wrong in (
        lambda: NegativeBinomialLikelihood(0.0),
        lambda: StudentTLikelihood(-1.0),
        lambda: OrdinalLikelihood(1),
    ):
        refused("must be", wrong)
