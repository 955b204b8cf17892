"""A fitted survival explainer, and a linear Cox model against other libraries' own."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import nn

from lexppl import explain
from lexppl.data import synthetic_survival
from lexppl.evaluation import (
    concordance_index,
    log_hazard_ratio,
    predict_survival,
    predictive,
    predictive_log_likelihood,
    with_baseline,
)
from lexppl.evaluation.survival import breslow_baseline
from lexppl.explanation.reading.masks import masks_of
from lexppl.inference import Enumerate, NestedIWAE, fit
from lexppl.inference.contexts import program_settings
from lexppl.models import CategoricalLikelihood, CoxLikelihood
from lexppl.saving import load, save
from lexppl.systems import lex
from tests.gradients.enumeration import threshold
from tests.refusals import refused
from tests.small_models import explainer

DATA = synthetic_survival(rows=60, seed=1)
X, Y = DATA.x[:, :3].contiguous(), DATA.y
QUICK = {"epochs": 2, "progress": False}


def cox(**options):
    small = {"likelihood": CoxLikelihood(), "hidden": (4,), "predictor_hidden": (4,)}
    return lex(3, classes=None, **{**small, **options})


def small(**options):
    """LEX with Bernoulli masks of three features."""
    model = explainer(likelihood=CoxLikelihood(), outputs=1)
    return fit(model, (X, Y), **{"objective": NestedIWAE(2), **QUICK, **options})


@pytest.fixture(scope="module")
def result():
    return small(epochs=30, learning_rate=2e-2)


@pytest.fixture(scope="module")
def known(result):
    return with_baseline(result, X, Y, masks=200)


def exact(result):
    """Of each of a row's eight masks its probability and its log hazard ratio."""
    every = torch.tensor(list(itertools.product((0.0, 1.0), repeat=3)))
    with torch.no_grad():
        selector = result.model.selector(X)
        prior = selector.log_prob(every.unsqueeze(1))
        f = result.model.predictor.network(every.unsqueeze(1) * X).squeeze(-1)
    return every, prior, f


def test_the_baseline_is_where_the_likelihood_of_all_rows_has_its_maximum():
    """Against a numerical search over all jumps."""
    draw = torch.Generator().manual_seed(0)
    f = torch.randn(3, 7, dtype=torch.float64, generator=draw)
    time = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], dtype=torch.float64)
    event = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0], dtype=torch.float64)

    def loss(log_jumps):
        jumps = np.exp(log_jumps)
        died = event.numpy() == 1
        cumulative = np.cumsum(np.where(died, np.bincount(np.flatnonzero(died), jumps, 7), 0.0))
        steps = np.zeros(7)
        steps[died] = log_jumps
        each = died * (f.numpy() + steps) - np.exp(f.numpy()) * cumulative
        return -np.log(np.exp(each).mean(0)).sum()

    best = minimize(loss, np.log(np.full(4, 0.3)), method="BFGS", options={"gtol": 1e-9})
    ours = breslow_baseline(f, torch.stack([time, event], 1)).cumulative[0]
    assert np.allclose(ours.numpy(), np.cumsum(np.exp(best.x)), rtol=1e-3)
    plain = breslow_baseline(
        f.logsumexp(0, keepdim=True) - math.log(3), torch.stack([time, event], 1)
    )
    assert not np.allclose(plain.cumulative[0].numpy(), ours.numpy(), rtol=2e-2)


@pytest.mark.parametrize("spread, settles", [(1.0, True), (10.0, False)])
def test_a_baseline_that_does_not_settle_is_said(recwarn, spread, settles):
    generator = torch.Generator().manual_seed(0)
    f = spread * torch.randn(40, 500, generator=generator)
    y = torch.stack([torch.rand(500, generator=generator), torch.ones(500)], 1)
    breslow_baseline(f, y)
    assert ["still changes" in str(warning.message) for warning in recwarn] == [True] * (
        not settles
    )


def test_masks_given_times_are_those_of_bayes(result, known):
    draws = 4000
    rows = slice(0, 5)
    posterior = explain(known, X[rows], Y[rows], draws=draws, proposals=5, seed=2)
    drawn = torch.as_tensor(np.asarray(masks_of(posterior, given_y=True)["mask"].values))[0].float()
    every, prior, f = exact(result)
    baseline = known.model.predictor.likelihood.baseline
    reached = baseline.cumulative_at(Y[:, 0])
    log_p = prior + Y[:, 1] * f - f.exp() * reached
    mean = torch.einsum("mr,mg->rg", log_p.softmax(0), every)[rows]
    before = torch.einsum("mr,mg->rg", prior.softmax(0), every)[rows]
    ess = torch.as_tensor(posterior["sample_stats"]["weight_ess"].values[0]).unsqueeze(-1)
    error = (mean * (1 - mean) * (1 / draws + 1 / ess)).sqrt()
    assert float(((drawn.mean(0) - mean).abs() / error).max()) < threshold(15)
    assert float(((before - mean).abs() / error).max()) > 2 * threshold(15)
    evidence = torch.as_tensor(posterior["sample_stats"]["log_evidence"].values[0])
    log_rate = Y[:, 1] * baseline.log_hazard_at(Y[:, 0])
    assert torch.allclose(evidence, ((log_p.logsumexp(0)) + log_rate)[rows], atol=0.05)


def test_survival_curves_are_means_over_masks(result, known):
    times = torch.tensor([0.0, 0.1, 0.4])
    found = predict_survival(known, X[:6], times, masks=4000)
    _, prior, f = exact(result)
    baseline = known.model.predictor.likelihood.baseline
    curve = (-f[..., None].exp() * baseline.cumulative_at(times)).exp()
    mean = (prior.softmax(0)[..., None] * curve).sum(0)[:6]
    spread = (prior.softmax(0)[..., None] * curve.square()).sum(0)[:6] - mean.square()
    error = (spread.clamp(min=1e-12) / 4000).sqrt() + 1e-6
    assert found.shape == (1, 6, 3) and bool((found[..., 0] == 1).all())
    assert float(((found[0] - mean).abs() / error).max()) < threshold(18)
    ratio = log_hazard_ratio(result, X[:6], masks=4000)
    assert torch.allclose(ratio[0], (prior.softmax(0) * f.exp()).sum(0)[:6].log(), atol=0.1)


def test_the_baseline_goes_into_a_file_and_back(known, tmp_path):
    save(known, tmp_path)
    other = load(tmp_path)
    one, two = (predict_survival(r, X[:3], [0.1, 0.3]) for r in (known, other))
    assert torch.equal(one, two)


def test_a_row_has_the_same_likelihood_whatever_stands_beside_it(known):
    options = {"masks": 2000, "seed": 0}
    alone = predictive_log_likelihood(known, X[:1], Y[:1], **options)
    among = predictive_log_likelihood(known, X[:9], Y[:9], **options)[:, :1]
    assert torch.allclose(alone, among, atol=0.1)


def test_a_partial_likelihood_is_of_no_row_alone(result):
    for call in (lambda: explain(result, X, Y), lambda: predictive_log_likelihood(result, X, Y)):
        refused("with_baseline", call)
    refused("no baseline hazard, which survival curves need", predict_survival, result, X, [0.1])
    assert masks_of(explain(result, X, draws=3))["mask"].shape == (1, 3, 60, 3)


def test_masks_of_a_partial_likelihood_are_not_listed_side_by_side(known):
    with pytest.raises(ValueError, match=r"is a partial likelihood.*use LeaveOneOut"):
        small(objective=NestedIWAE(math.inf, estimator=Enumerate()))
    exact_value = NestedIWAE(math.inf, estimator=Enumerate())
    with program_settings(validate=True):
        loss = exact_value.loss(known.model, None, X, Y)
    assert math.isfinite(loss)


def test_survival_times_have_no_mean(known):
    refused("have no mean survival time", predictive, known, X[:3], error=NotImplementedError)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"times": [0.1, 99.0]}, "times must be from 0 to .*; they go from 0.1 to 99"),
        ({"times": [-1.0]}, "times must be from 0"),
        ({"times": 0.5}, r"times must have shape \(T,\)"),
        ({"times": [0.1], "masks": 0}, "masks and imputations must be at least 1"),
    ],
)
def test_times_that_no_row_was_followed_to_are_refused(known, arguments, message):
    refused(message, predict_survival, known, X[:2], **arguments)


def test_a_fit_of_something_else_has_no_baseline():
    labels = fit(lex(3, classes=2, hidden=(4,), folds=1), (X, Y[:, 1].long()), **QUICK)
    refused("LEX has no CoxLikelihood", with_baseline, labels, X, Y)
    refused("'y' must be a survival time", log_hazard_ratio, labels, X)


def test_cross_fitted_replicates_of_weighted_rows():
    how = {"replicates": 2, "row_weights": "dirichlet", "batch_size": 20}
    result = with_baseline(fit(cox(folds=2), (X, Y), **how, **QUICK), X, Y)
    assert predict_survival(result, X[:4], [0.2]).shape == (2, 4, 1)
    posterior = explain(result, X[:4], Y[:4], draws=5)
    assert posterior["log_likelihood"]["y"].shape == (2, 5, 4)


def test_strata_have_a_baseline_each():
    strata = (torch.arange(60) % 3).float().unsqueeze(1)
    y = torch.cat([Y, strata], 1)
    options = {"likelihood": CoxLikelihood(stratified=True)}
    result = with_baseline(fit(cox(**options), (X, y), **QUICK), X, y)
    one, other = (
        predict_survival(result, X[:1], [0.2], stratum=torch.tensor([s])) for s in (0.0, 1.0)
    )
    assert not torch.allclose(one, other)
    refused(r"strata \[0.0, 1.0, 2.0\]: give stratum=", predict_survival, result, X[:1], [0.2])
    with pytest.raises(ValueError, match="give stratum=, one a row"):
        predict_survival(result, X[:1], [0.2], stratum=torch.tensor([5.0]))


@pytest.mark.parametrize("valid", [0.2, None])
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda y: y * torch.tensor([-1.0, 1.0]), "times of y must be positive and finite"),
        (lambda y: y * torch.tensor([1.0, 0.5]), "events of y must be 1, or 0"),
        (lambda y: y * torch.tensor([1.0, 0.0]), "y has no event"),
        (lambda y: y[:, 0], r"y must have shape \(N, 2\)"),
        (lambda y: torch.cat([y, y[:, :1]], 1), r"y must have shape \(N, 2\)"),
    ],
)
def test_rows_that_are_no_survival_times_are_refused_before_any_work(spoil, message, valid):
    refused(f"rows to learn from: {message}", fit, cox(), (X, spoil(Y)), valid=valid, **QUICK)


def test_times_are_not_taken_for_probabilities_of_two_labels():
    """They used to be: each row's labels 0 and 1 weighed by its time and its event."""
    with pytest.raises(ValueError, match=r"CategoricalLikelihood is of labels.*CoxLikelihood\(\)"):
        fit(lex(3, classes=2, hidden=(4,), predictor_hidden=(4,)), (X, Y), **QUICK)


def test_validation_rows_without_an_event_are_refused():
    censored = Y.clone()
    censored[:, 1] = 0.0
    refused("validation rows: y has no event", fit, cox(), (X, Y), valid=(X, censored), **QUICK)


def test_times_and_events_may_be_whole_numbers():
    whole = torch.stack([(10 * Y[:, 0]).ceil().long(), Y[:, 1].long()], 1)
    result = fit(cox(folds=1), (X, whole), **QUICK)
    assert result.labels is None
    same = fit(cox(folds=1), (X, whole.float()), **QUICK)
    assert np.array_equal(result.history.train, same.history.train)


def test_a_likelihood_that_does_not_go_with_the_rest_of_the_factory():
    for arguments, message in (
        ({"classes": 2, "likelihood": CoxLikelihood()}, "responses, which have no classes"),
        ({"classes": None, "likelihood": CategoricalLikelihood()}, "of labels: give classes="),
        ({"classes": None, "likelihood": "cox"}, "likelihood must be a Likelihood.*it is str"),
        (
            {"classes": None, "likelihood": CoxLikelihood(), "predictor": nn.Linear(3, 1)},
            "a given predictor has a likelihood of its own",
        ),
    ):
        refused(message, lex, 3, error=(ValueError, TypeError), **arguments)


F64 = torch.float64


def fitted(x, y, ties, stratified=False):
    """Coefficients at the maximum of the partial likelihood, and its value there."""
    line = nn.Linear(x.shape[1], 1, bias=False, dtype=F64)
    nn.init.zeros_(line.weight)
    likelihood = CoxLikelihood(ties, stratified)
    optimizer = torch.optim.LBFGS(
        line.parameters(), max_iter=200, tolerance_grad=1e-9, line_search_fn="strong_wolfe"
    )

    def loss():
        optimizer.zero_grad()
        value = -likelihood(line(x)).log_prob(y).sum()
        value.backward()
        return value

    optimizer.step(loss)
    return line.weight.detach()[0], -float(loss().detach())


def tied(seed=0, rows=150):
    """Rows with many ties and three strata."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(rows, 3))
    waited = draw.exponential(size=rows) * np.exp(-x @ [0.8, -0.5, 0.0])
    censoring = draw.exponential(size=rows) * 2
    time = np.ceil(4 * np.minimum(waited, censoring))
    columns = [time, waited <= censoring, draw.integers(0, 3, rows)]
    return torch.as_tensor(x), torch.as_tensor(np.stack(columns, 1).astype(float))


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_coefficients_are_those_of_scikit_survival(ties):
    linear_model = pytest.importorskip("sksurv.linear_model")
    from sksurv.util import Surv

    x, y = tied()
    labels = Surv.from_arrays(y[:, 1].numpy() == 1, y[:, 0].numpy())
    theirs = linear_model.CoxPHSurvivalAnalysis(ties=ties, tol=1e-12).fit(x.numpy(), labels)
    ours, _ = fitted(x, y[:, :2], ties)
    assert np.abs(ours.numpy() - theirs.coef_).max() < 1e-4
    other, _ = fitted(x, y[:, :2], "breslow" if ties == "efron" else "efron")
    assert np.abs(other.numpy() - theirs.coef_).max() > 1e-2


@pytest.mark.smoke
def test_the_baseline_is_breslows():
    linear_model = pytest.importorskip("sksurv.linear_model")
    from sksurv.util import Surv

    x, y = tied()
    labels = Surv.from_arrays(y[:, 1].numpy() == 1, y[:, 0].numpy())
    theirs = linear_model.CoxPHSurvivalAnalysis(ties="breslow").fit(x.numpy(), labels)
    f = torch.as_tensor(theirs.predict(x.numpy()))
    ours = breslow_baseline(f.unsqueeze(0), y[:, :2], "breslow")
    # Theirs is of the mean row where features are centred: predictions say which.
    curve = theirs.predict_cumulative_hazard_function(x[:1].numpy())[0]
    at = ours.times[0]
    assert np.allclose(ours.cumulative[0].numpy() * f[0].exp().item(), curve(at.numpy()), rtol=1e-8)
    efron = breslow_baseline(f.unsqueeze(0), y[:, :2], "efron")
    assert bool((efron.cumulative > ours.cumulative).all())


def test_concordance_by_hand_and_what_is_refused():
    pytest.importorskip("sksurv")
    y = torch.tensor([[1.0, 1.0], [2.0, 0.0], [3.0, 1.0], [4.0, 1.0]])
    assert concordance_index(torch.tensor([4.0, 1.0, 2.0, 3.0]), y) == pytest.approx(3 / 4)
    assert concordance_index(torch.zeros(4), y) == 0.5
    with pytest.raises(ValueError, match="no two rows of y can be compared"):
        concordance_index(torch.zeros(2), y[1:2].expand(2, 2))
    refused(r"risk must have shape \(N,\)", concordance_index, torch.zeros(4, 1), y)
    refused("risk must be finite", concordance_index, torch.tensor([0.0, 1.0, torch.nan, 1.0]), y)
