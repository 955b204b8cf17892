"""E[z | x] as the masks' distribution states it, against draws."""

import math

import arviz
import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
import xarray as xr
from scipy import stats
from torch import nn

from lexppl.arviz_compatibility import group_of
from lexppl.explanation import explain, save_posterior, selection_table
from lexppl.models import (
    MLP,
    BernoulliSelector,
    KSubsetSelector,
    imputation_particles,
    mask_particles,
    observe,
)
from tests.refusals import refusals
from tests.test_explanation import FAILURE, fitted, lex, rows

SELECTORS = {
    "bernoulli": lambda seed: BernoulliSelector(MLP(3, 3, (4,), seed=seed)),
    "k-subset": lambda seed: KSubsetSelector(MLP(3, 3, (4,), seed=seed), k=2),
}


def replicates(kind: str):
    return fitted(*(lex(SELECTORS[kind](seed)) for seed in (0, 5, 9)))


@pytest.mark.parametrize("kind", SELECTORS)
def test_stated_means_are_those_of_draws(kind):
    """z-scores of the mean of D draws of each row, entry and replicate, and the least and largest
    of all of them against their number."""
    x, _ = rows(40)
    result, draws = replicates(kind), 2000
    stats_of = group_of(explain(result, x, draws=0), "sample_stats")
    exact = stats_of["selection_probability"].values.astype(float)
    mask = group_of(explain(result, x, draws=draws, seed=3), "predictions")["mask"].values
    z = (mask.mean(1) - exact) / np.sqrt(exact * (1 - exact) / draws)
    assert np.abs(z).max() < stats.norm.isf(FAILURE / 2 / z.size)
    # Negative control: another replicate's means are not these draws'.
    other = (mask.mean(1) - exact[[1, 2, 0]]) / np.sqrt(exact * (1 - exact) / draws)
    assert np.abs(other).max() > 10.0


@pytest.mark.parametrize("kind", SELECTORS)
def test_exact_agreement_is_the_limit_of_that_of_draws(kind):
    """Of the draws, within and between are sums over rows: z-scores of both against what the
    probabilities say."""
    x, _ = rows(400)
    result, draws = replicates(kind), 200
    exact = explain(result, x, draws=0)
    p = group_of(exact, "sample_stats")["selection_probability"].values.astype(float)
    mask = group_of(explain(result, x, draws=draws, seed=3), "predictions")["mask"].values
    within = mask.var(1, ddof=1).mean(0)
    between = mask.mean(1).var(0, ddof=1)
    for found, expected in (
        (within, (p * (1 - p)).mean(0)),
        (between, p.var(0, ddof=1) + (p * (1 - p)).mean(0) / draws),
    ):
        error = found - expected
        z = error.mean(0) / (error.std(0, ddof=1) / math.sqrt(len(x)))
        assert np.abs(z).max() < stats.norm.isf(FAILURE / 2 / (2 * z.size))
    w, v = (p * (1 - p)).mean((0, 1)), p.var(0, ddof=1).mean(0)
    table = selection_table(exact).loc[["x1", "x2", "x3"]]
    np.testing.assert_allclose(table["agreement"], w / (w + v), rtol=1e-6)


def test_the_table_rests_on_no_draws():
    x, _ = rows(30)
    result = replicates("bernoulli")
    tables = [selection_table(explain(result, x, draws=d, seed=d)) for d in (0, 2, 50)]
    for table in tables[1:]:
        np.testing.assert_array_equal(table.values, tables[0].values)
        assert list(table.index) == list(tables[0].index)
    # Given y the same masks are ranked, those given x alone.
    y = (x[:, 0] > 0).long()
    given = [explain(result, x, y, draws=d) for d in (50, 60)]
    for posterior in given:
        assert selection_table(posterior).equals(tables[0])


def test_layout_chunks_and_file(tmp_path):
    x, _ = rows(23)
    result = replicates("k-subset")
    posterior = explain(result, x, draws=0, coords={"row": [f"r{i}" for i in range(23)]})
    by_chunks = explain(result, x, draws=0, rows_per_chunk=4)
    means = [
        group_of(p, "sample_stats")["selection_probability"].values for p in (posterior, by_chunks)
    ]
    np.testing.assert_allclose(*means, rtol=1e-5)
    assert group_of(posterior, "predictions")["mask"].shape == (3, 0, 23, 3)
    assert "y" not in group_of(posterior, "predictions")
    assert group_of(posterior, "predictions").attrs["draws"].startswith("none")
    again = arviz.from_netcdf(save_posterior(posterior, tmp_path / "p.nc"))
    for name in ("predictions", "sample_stats", "predictions_constant_data"):
        xr.testing.assert_identical(group_of(again, name), group_of(posterior, name))
    assert selection_table(again).equals(selection_table(posterior))


def test_nothing_is_imputed_or_predicted(monkeypatch):
    """But for four rows of the first replicate, whether they depend on each other and on each
    other's masks, and for one row, twice: its sites, and whether they stay the same."""
    result = replicates("bernoulli")
    called: list[tuple[int, ...]] = []

    def predicted(x):
        called.append(tuple(x.shape))
        return dist.Categorical(logits=torch.zeros(*x.shape[:-1], 2))

    for model in result.models:
        monkeypatch.setattr(model.predictor, "forward", predicted)
    explain(result, rows(5)[0], draws=0)
    assert [shape[-2] for shape in called[-2:]] == [1, 1]
    assert {shape[-2] for shape in called[:-2]} == {4} and len(called) < 20


class Switched(nn.Module):
    """A mask whose distribution depends on a latent of its particle."""

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            switch = pyro.sample("switch", dist.Bernoulli(torch.full((len(x),), 0.5)))
            rates = 0.1 + 0.8 * switch.unsqueeze(-1).expand(*switch.shape, 3)
            mask = pyro.sample("mask", dist.Bernoulli(rates).to_event(1))
            with imputation_particles():
                return observe("y", dist.Bernoulli(logits=(mask * x).sum(-1)), y)


class Unstated(nn.Module):
    """A mask whose values are neither selections nor shares by its distribution."""

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", dist.Normal(x, 1.0).to_event(1))
            with imputation_particles():
                return observe("y", dist.Bernoulli(logits=(mask * x).sum(-1)), y)


test_what_must_be_drawn_is_refused = refusals(
    (lex, {"y": rows(30)[1]}, "masks given y are draws"),
    (Switched, {}, "which depends on another latent: give draws"),
    (Unstated, {}, r"the distribution of the masks \['mask'\] states no mean of selections"),
    (lex, {"draws": -1}, "draws must be a whole number of at least 0; it is -1"),
    of=lambda model, given: explain(fitted(model()), rows(30)[0], **{"draws": 0, **given}),
)
