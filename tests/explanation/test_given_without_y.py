"""What is observed without y is given: masks given x, evidence, prior, responses and stores."""

import math

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

from lexppl import explain, prior
from lexppl.arviz_compatibility import group_of
from lexppl.effects import imputation_particles, mask_particles, penalty
from lexppl.evaluation import (
    feature_evidence,
    log_marginal_likelihood,
    predictive,
    predictive_log_likelihood,
)
from lexppl.explanation import explain_to_zarr, open_posterior, selection_table
from tests.evaluation.fitted_by_hand import result_of
from tests.refusals import refused

X = torch.tensor([[0.1], [3.0], [-8.0], [1.2]]).double()
Y = torch.tensor([0.0, 1.0, 0.3, -0.5]).double()
VALUES = torch.tensor([[0.0], [1.0]]).double()
DRAWS = 4000


def program(x, y=None):
    """A mask says that the measurement of x is sound; a price of masks is no part of it."""
    with pyro.plate("data", len(x), dim=-1), mask_particles():
        z = pyro.sample("mask", dist.Bernoulli(torch.full((1,), 0.8).double()).to_event(1))
        spread = torch.where(z == 1, 1.0, 5.0).double()
        pyro.sample("x", dist.Normal(0.0, spread).to_event(1), obs=x)
        pyro.factor("field", 0.4 * z[..., 0])
        penalty("price", 3.0 * z[..., 0])
        pyro.sample("y", dist.Normal(z[..., 0], 1.0), obs=y)


def imputing(x, y=None):
    """The same, with a mean that differs between imputations."""
    with pyro.plate("data", len(x), dim=-1), mask_particles():
        z = pyro.sample("mask", dist.Bernoulli(torch.full((1,), 0.8).double()).to_event(1))
        spread = torch.where(z == 1, 1.0, 5.0).double()
        pyro.sample("x", dist.Normal(0.0, spread).to_event(1), obs=x)
        pyro.factor("field", 0.4 * z[..., 0])
        with imputation_particles():
            t = pyro.sample("t", dist.Normal(torch.zeros(()).double(), 0.1))
            pyro.sample("y", dist.Normal(z[..., 0] + t, 1.0), obs=y)


LOG_PRIOR = torch.tensor([[math.log(0.2)], [math.log(0.8)]]).double()
BEFORE = (
    LOG_PRIOR
    + 0.4 * VALUES
    + dist.Normal(0.0, torch.tensor([[5.0], [1.0]]).double()).log_prob(X[:, 0])
)
LOG_Y = dist.Normal(VALUES, 1.0).log_prob(Y)
GIVEN_X = BEFORE.softmax(0)[1].numpy()
GIVEN_Y = (BEFORE + LOG_Y).softmax(0)[1].numpy()
EVIDENCE = (BEFORE.log_softmax(0) + LOG_Y).logsumexp(0).numpy()


def stats(found, name):
    return group_of(found, "sample_stats")[name].values[0].ravel()


def require_draws(values, chance):
    error = np.sqrt(chance * (1 - chance) / DRAWS)
    assert (abs(values.mean(0) - chance) <= 4 * error + 1e-9).all()


def test_the_rule_is_no_small_matter():
    assert abs(GIVEN_X - 0.8).max() > 0.5 and abs(GIVEN_X - GIVEN_Y).max() > 0.05


@pytest.mark.parametrize("y", [None, Y], ids=["without y", "with y"])
def test_masks_and_responses_given_x(y):
    found = explain(program, X, y, draws=DRAWS, proposals=math.inf)
    np.testing.assert_allclose(stats(found, "selection_probability"), GIVEN_X, atol=1e-6)
    source = group_of(found, "sample_stats")["selection_probability"].attrs["source"]
    assert source == "mean of p(z | x, field), over all masks"
    table = selection_table(found)
    np.testing.assert_allclose(table["selection_probability"], GIVEN_X.mean(), atol=1e-6)
    drawn = group_of(found, "predictions")
    require_draws(drawn["mask"].values[0, ..., 0], GIVEN_X)
    # Responses are of those masks: their mean is E[z | x], their variance 1 + Var(z | x).
    y_drawn = drawn["y"].values[0]
    error = np.sqrt((1 + GIVEN_X * (1 - GIVEN_X)) / DRAWS)
    assert (abs(y_drawn.mean(0) - GIVEN_X) < 4 * error).all()
    if y is None:
        return
    np.testing.assert_allclose(stats(found, "selection_probability_given_y"), GIVEN_Y, atol=1e-6)
    np.testing.assert_allclose(stats(found, "log_evidence"), EVIDENCE, atol=1e-5)
    likelihood = group_of(found, "log_likelihood")["y"].values[0]
    np.testing.assert_allclose(likelihood.mean(0), EVIDENCE, atol=1e-5)
    require_draws(group_of(found, "posterior")["mask"].values[0, ..., 0], GIVEN_Y)
    require_draws(group_of(found, "prior")["mask"].values[0, ..., 0], GIVEN_X)


def test_by_proposals_it_is_the_same():
    found = explain(program, X, Y, draws=DRAWS, proposals=8)
    for name, wanted in (("", GIVEN_X), ("_given_y", GIVEN_Y)):
        near = stats(found, "selection_probability" + name)
        # Weighted proposals from the prior: the variance of a self-normalised mean.
        assert (abs(near - wanted) < 0.02).all()
    assert (abs(stats(found, "log_evidence") - EVIDENCE) < 0.05).all()


def test_evidence_and_a_table_of_features_are_given_it():
    found = log_marginal_likelihood(program, X, Y)
    assert found.log == pytest.approx(EVIDENCE.sum(), abs=1e-8)
    table = feature_evidence(program, X, Y)
    assert table["prior"][0] == pytest.approx(GIVEN_X.mean(), abs=1e-8)
    assert table["posterior"][0] == pytest.approx(GIVEN_Y.mean(), abs=1e-8)


def test_the_prior_is_given_it():
    found = prior(program, X, draws=DRAWS)
    drawn = group_of(found, "prior")["mask"].values[0, ..., 0]
    require_draws(drawn, GIVEN_X)


def test_predictions_are_given_it():
    result = result_of(program, event_shape=(1,))
    mean = predictive(result, X, masks=DRAWS)[0].numpy()
    imputed = predictive(result_of(imputing, event_shape=(1,)), X, masks=DRAWS, imputations=3)
    assert (abs(imputed[0].numpy() - mean) < 0.1).all()
    # Of proposals from the prior, whose effective number is a fourth of DRAWS at least here.
    assert (abs(mean - GIVEN_X) < 4 * np.sqrt(GIVEN_X * (1 - GIVEN_X) * 4 / DRAWS) + 1e-6).all()
    score = predictive_log_likelihood(result, X, Y, masks=DRAWS)[0].numpy()
    assert (abs(score - EVIDENCE) < 0.05).all()
    assert (abs(score - (BEFORE + LOG_Y).logsumexp(0).numpy()) > 0.3).all(), "the control"


def test_a_store_has_it(tmp_path):
    options = {"draws": 5, "proposals": math.inf, "progress": False}
    result = result_of(program, event_shape=(1,))
    explain_to_zarr(result, (X, Y), tmp_path / "store", with_y=True, **options)
    stored = open_posterior(tmp_path / "store")
    np.testing.assert_allclose(stats(stored, "selection_probability"), GIVEN_X, atol=1e-6)
    np.testing.assert_allclose(stats(stored, "selection_probability_given_y"), GIVEN_Y, atol=1e-6)
    np.testing.assert_allclose(stats(stored, "log_evidence"), EVIDENCE, atol=1e-5)


def test_no_draws_have_no_such_mean():
    error = refused("observed without y", explain, program, X, draws=0)
    assert "'x'" in str(error) or "field" in str(error)


def test_a_factor_that_reads_y_is_refused_where_few_masks_show_it():
    def of_y(x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            z = pyro.sample("mask", dist.Bernoulli(torch.full((1,), 1e-3).double()).to_event(1))
            pyro.factor("field", z[..., 0] * (1.0 if y is None else y))
            pyro.sample("y", dist.Normal(z[..., 0], 1.0), obs=y)

    for call in (explain, log_marginal_likelihood, feature_evidence):
        assert "its density changes with y" in str(refused("'field'", call, of_y, X, Y))
