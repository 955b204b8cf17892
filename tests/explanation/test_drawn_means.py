"""E[z | x, θ] by draw of θ, and the posterior intervals and r̂ of selections that follow."""

import sys

import arviz
import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy.stats import norm, t

from lexppl import explain
from lexppl.arviz_compatibility import group_of
from lexppl.effects import mask_particles
from lexppl.explanation import selection_table
from lexppl.explanation.reading.masks import masks_of
from lexppl.inference import fit
from lexppl.inference.posterior.global_draws import GlobalDraws, SamplerRecord
from lexppl.systems import lex
from tests.refusals import refused

X = torch.randn(6, 2, generator=torch.Generator().manual_seed(0)).double()
Y = (X[:, 0] > 0).double()
SAMPLES = torch.randn(2, 40, 2, generator=torch.Generator().manual_seed(1)).double()


class Shifted(pyro.nn.PyroModule):
    """Keeps feature g of row n with probability σ(x_ng + θ_g)."""

    def forward(self, x, y=None):
        shift = pyro.sample("shift", dist.Normal(x.new_zeros(2), 1.0).to_event(1))
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", dist.Bernoulli(logits=x + shift).to_event(1))
            return pyro.sample("y", dist.Bernoulli(logits=(mask * x).sum(-1)), obs=y)


def exact():
    """(chain, draw, row, feature)."""
    return torch.sigmoid(X + SAMPLES[:, :, None]).numpy()


class Given:
    """An inference that has its draws already."""

    def run(self, model, rows, *, seed, progress):
        return GlobalDraws({"shift": SAMPLES}, SamplerRecord("given", are_chains=True), model)


def explained(**more):
    result = fit(Shifted(), (X, Y), inference=Given(), progress=False)
    return explain(result, X, **more)


@pytest.mark.smoke
@pytest.mark.filterwarnings("ignore::lexppl.inference.posterior.global_draws.SamplerWarning")
@pytest.mark.parametrize("with_y", [False, True])
def test_they_are_those_of_each_draw(with_y):
    posterior = explained(y=Y) if with_y else explained()
    by_row = group_of(posterior, "predictions")["mask_mean"]
    assert by_row.dims == ("chain", "draw", "row", "feature")
    np.testing.assert_allclose(by_row.values, exact(), rtol=1e-6)
    group = group_of(posterior, "posterior")
    assert not any("row" in values.dims for values in group.values())
    np.testing.assert_allclose(group["mask_mean_over_rows"].values, exact().mean(2), rtol=1e-6)
    # The draws of θ beside them are the same ones, in the same order.
    np.testing.assert_array_equal(group["shift"].values, SAMPLES.numpy())
    assert not np.allclose(exact()[:, ::-1], exact())
    # They are no masks: those given y are there where y was given alone.
    if with_y:
        assert masks_of(posterior, given_y=True)["mask"].dtype == np.int8
    else:
        refused("no masks given y", masks_of, posterior, given_y=True)
    summary = arviz.summary(posterior, var_names=["mask_mean_over_rows"], round_to="none")
    np.testing.assert_allclose(summary["mean"], exact().mean((0, 1, 2)), rtol=1e-6)


@pytest.mark.filterwarnings("ignore::lexppl.inference.posterior.global_draws.SamplerWarning")
def test_the_interval_is_the_posteriors_and_r_hat_that_of_chains():
    posterior = explained()
    drawn = exact().mean(2)
    for level in (0.9, 0.95):
        table = selection_table(posterior, level=level).sort_index()
        low, high = (1 - level) / 2, (1 + level) / 2
        np.testing.assert_allclose(
            table[["lower", "upper"]].values.T,
            np.quantile(drawn.reshape(-1, 2), [low, high], axis=0),
            rtol=1e-6,
        )
    assert "agreement" not in table
    own = group_of(posterior, "posterior")["mask_mean_over_rows"]
    expected = arviz.rhat(own.to_dataset(name="a"))["a"].values
    np.testing.assert_allclose(table["r_hat"], expected, rtol=1e-6)
    # The control: chains of which one stands elsewhere are told.
    apart = SAMPLES.clone()
    apart[1] += 3.0
    moved = explain(Shifted(), X, samples={"shift": apart})
    still = explain(Shifted(), X, samples={"shift": SAMPLES})
    width = [np.ptp(selection_table(one)[["lower", "upper"]].values, 1) for one in (moved, still)]
    assert (width[0] > width[1]).all()


@pytest.mark.filterwarnings("ignore::lexppl.inference.posterior.global_draws.SamplerWarning")
def test_of_many_numbers_the_mean_over_rows_is_left_which_says_so(monkeypatch):
    monkeypatch.setattr(sys.modules["lexppl.explanation.posterior_arrays"], "MOST_NUMBERS", 959)
    group = group_of(explained(), "posterior")
    assert "mask_mean" not in group_of(explained(), "predictions")
    np.testing.assert_allclose(group["mask_mean_over_rows"].values, exact().mean(2), rtol=1e-6)
    told = group["mask_mean_over_rows"].attrs["description"]
    assert "left out: it has more than 959 numbers" in told and "explain fewer rows" in told
    monkeypatch.setattr(sys.modules["lexppl.explanation.posterior_arrays"], "MOST_NUMBERS", 960)
    assert "mask_mean" in group_of(explained(), "predictions")


def test_of_fits_without_priors_nothing_is_drawn_and_levels_are_students():
    small = lex(2, classes=2, k=1, hidden=(4,), predictor_hidden=(4,))
    result = fit(small, (X.float(), Y.long()), epochs=2, replicates=3, valid=None, progress=False)
    posterior = explain(result, X.float(), draws=0)
    tables = {level: selection_table(posterior, level=level) for level in (0.5, 0.95)}
    usual = selection_table(posterior)
    assert tables[0.95].equals(usual) and "agreement" in usual
    half = [(one["upper"] - one["lower"]).values / 2 for one in (tables[0.5], usual)]
    inside = (usual["lower"] > 0) & (usual["upper"] < 1)
    ratio = t.ppf(0.75, 2) / t.ppf(0.975, 2)
    np.testing.assert_allclose((half[0] / half[1])[inside], ratio, rtol=1e-6)
    assert abs(ratio - norm.ppf(0.75) / norm.ppf(0.975)) > 0.1
    refused("level", selection_table, posterior, level=95)
