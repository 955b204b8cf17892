"""k̂ tells guides that cover the posterior from those that do not."""

import math
import warnings

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer.autoguide import AutoDelta, AutoNormal
from pyro.nn import PyroModule, PyroSample

from lexppl.effects import mask_particles
from lexppl.evaluation import guide_check
from lexppl.evaluation.bayes.guide_check import GuideWarning
from lexppl.inference import NestedIWAE, Pathwise, fit
from lexppl.inference.posterior.global_draws import SamplerRecord
from lexppl.models import MLP, CategoricalLikelihood, Predictor
from lexppl.systems import lex, q_fit
from tests.evaluation.bayes.conjugate import Altered, Line, MaskedLine, X, Y, evidence
from tests.refusals import refused

BOUND = NestedIWAE(1, estimator=Pathwise())


def fitted(program, guide, epochs=1, **options):
    options = {"valid": None, "objective": BOUND, **options}
    return fit(program, (X, Y), guide=guide, epochs=epochs, progress=False, **options)


def test_of_the_posterior_itself_all_weights_are_the_evidence():
    check = guide_check(fitted(Line(), Altered()), X, Y)
    assert np.ptp(check.log_weights) < 1e-3
    assert check.log_evidence[0] == pytest.approx(evidence(), abs=1e-3)
    assert check.trusted.all()
    assert check.ess[0] == pytest.approx(1000, rel=1e-3)
    assert check.masks == "all listed"
    assert "covers the posterior" in repr(check)


@pytest.mark.parametrize("how", [{"width": 0.4}, {"shift": 4.0}])
def test_too_narrow_and_misplaced_guides_are_named(how):
    result = fitted(Line(), Altered(**how))
    with pytest.warns(GuideWarning, match="not to be trusted"):
        check = guide_check(result, X, Y)
    assert check.k[0] > 0.7
    assert not check.trusted.any()


@pytest.mark.smoke
def test_the_gap_of_a_wider_guide_is_its_divergence():
    check = guide_check(fitted(Line(), Altered(width=2.0)), X, Y, draws=4000)
    assert check.trusted.all()
    divergence = 2 * (-math.log(2.0) + (4.0 - 1.0) / 2)
    weights = check.log_weights[0]
    error = math.hypot(
        weights.std(),
        np.exp(weights - weights.max()).std() / np.exp(weights - weights.max()).mean(),
    ) / math.sqrt(4000)
    assert abs(check.table["gap"][0] - divergence) < 4 * error


def test_drawn_masks_agree_with_listed_ones_and_are_noted():
    result = fitted(MaskedLine(), Altered())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GuideWarning)
        listed = guide_check(result, X, Y)
        drawn = guide_check(result, X, Y, masks=3000)
    assert drawn.masks == "3000 drawn"
    np.testing.assert_allclose(drawn.log_weights, listed.log_weights, atol=0.5)
    assert abs((drawn.log_weights - listed.log_weights).mean()) < 0.05


class Scaled(PyroModule):
    """A latent above 0, so that an automatic guide has a Jacobian."""

    def __init__(self):
        super().__init__()
        self.sd = PyroSample(dist.LogNormal(0.0, 0.5))

    def forward(self, x, y=None):
        sd = self.sd
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            return pyro.sample("y", dist.Normal(0.0 * x[:, 0], sd), obs=y)


def test_an_automatic_guide_of_a_constrained_latent_has_the_right_density():
    program = Scaled()
    guide = AutoNormal(pyro.poutine.block(program, hide=["mask"]), init_scale=0.2)
    result = fitted(program, guide, epochs=200, learning_rate=0.03)
    check = guide_check(result, X, Y, draws=4000)
    sd = torch.linspace(1e-3, 20, 200_001, dtype=torch.float64)
    log = dist.LogNormal(0.0, 0.5).log_prob(sd)
    log = log + sum(dist.Normal(0.0, sd).log_prob(one) for one in Y.double())
    exact = float(torch.logsumexp(log, 0) + (sd[1] - sd[0]).log())
    weight = np.exp(check.log_weights[0] - check.log_weights[0].max())
    error = weight.std() / weight.mean() / math.sqrt(4000)
    assert abs(check.log_evidence[0] - exact) < 4 * error + 1e-3


def test_the_global_dirichlet_of_q_fit_is_checked_by_replicate():
    given = Predictor(MLP(2, 2, (4,), seed=0), CategoricalLikelihood())
    system = q_fit(2, given, scope="global")
    data = (X, (Y > 0).long())
    result = fit(
        system, data, valid=None, epochs=100, learning_rate=0.1, replicates=2, progress=False
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GuideWarning)
        check = guide_check(result, *data)
    assert check.k.shape == (2,)
    assert np.isfinite(check.log_weights).all()
    assert list(check.table.columns) == ["k", "ess", "bound", "log_evidence", "gap", "trusted"]
    # Both are fits to the same rows, so that both estimate the same evidence.
    assert abs(np.diff(check.log_evidence)[0]) < 0.5


def test_what_cannot_be_checked_is_refused():
    plain = fitted(Line(), Altered())
    refused(r"8 rows of the fit .valid=None.; x has 5", guide_check, plain, X[:5], Y[:5])
    refused("draws", guide_check, plain, X, Y, draws=10)
    labels = (X, (Y > 0).long())
    masks = fit(lex(2, classes=2, k=1, hidden=(4,)), labels, valid=None, epochs=1, progress=False)
    refused("no guide", guide_check, masks, *labels)
    plain.sampler = SamplerRecord("NUTS", are_chains=True)
    refused("draws of NUTS have no density", guide_check, plain, X, Y)
    program = Line()
    point = AutoDelta(pyro.poutine.block(program, hide=["mask"]))
    refused("the guide is a point", guide_check, fitted(program, point), X, Y)
    weighted = fitted(Line(), Altered(), row_weights="dirichlet")
    refused("weights", guide_check, weighted, X, Y)
