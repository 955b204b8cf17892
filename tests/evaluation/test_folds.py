"""Folds: each row is held out by one replicate, and what is found of it is that replicate's."""

from types import MappingProxyType

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer.autoguide import AutoNormal

from lexppl.arviz_compatibility import group_of
from lexppl.evaluation import Folds, gain_over_base_rate, penalty_path, predictive_log_likelihood
from lexppl.explanation import explain, selection_table
from lexppl.inference import fit
from lexppl.models import LEX, MarginalImputer
from lexppl.systems import lex, suwr
from tests import small_models
from tests.refusals import refused
from tests.small_models import explainer

ROWS, FOLDS = 61, 3
SHORT = {"valid": None, "epochs": 3, "batch_size": 16, "learning_rate": 1e-2, "progress": False}


def table(seed=0, rows=ROWS):
    return small_models.table(rows, seed=seed)


def fitted(x, y, folds, how=MappingProxyType({}), **settings):
    system = lex(3, classes=2, hidden=(4,), predictor_hidden=(4,), **settings)
    return fit(system, (x, y), row_weights=folds.weights, **{**SHORT, **how})


@pytest.fixture(scope="module")
def done():
    x, y = table()
    folds = Folds.of(y, FOLDS, seed=1)
    return fitted(x, y, folds), x, y, folds


def test_each_row_is_held_out_once_and_labels_are_dealt_evenly():
    _, y = table()
    folds = Folds.of(y, FOLDS)
    assert folds.weights.shape == (FOLDS, ROWS)
    assert (folds.weights == 0).sum(0).eq(1).all()
    shares = [torch.bincount(y[folds.rows(r)], minlength=2) for r in range(FOLDS)]
    spread = torch.stack(shares).amax(0) - torch.stack(shares).amin(0)
    assert spread.max() <= 1


def test_a_replicate_learns_nothing_from_the_labels_that_it_holds_out():
    """Bit for bit, with one predictor: two are of halves with their share of every label."""
    x, y = table()
    folds = Folds.of(y, FOLDS)
    other = y.clone()
    other[folds.rows(1)] = 1 - other[folds.rows(1)]
    one, two = (fitted(x, labels, folds, {"folds": 1}) for labels in (y, other))
    for r in range(FOLDS):
        pairs = zip(one.models[r].parameters(), two.models[r].parameters(), strict=True)
        same = all(torch.equal(a, b) for a, b in pairs)
        assert same == (r == 1)


def test_values_are_those_of_the_replicate_that_holds_the_row_out(done):
    result, x, y, folds = done
    said = folds.values(predictive_log_likelihood, result, x, y, masks=5, seed=7)
    assert said.shape == (1, ROWS)
    for r in range(FOLDS):
        rows = folds.rows(r)
        own = predictive_log_likelihood(result.subset([r]), x[rows], y[rows], masks=5, seed=7 + r)
        torch.testing.assert_close(said[:, rows], own, rtol=0, atol=0)


def test_posterior_is_of_one_chain_with_every_fold_beside_it(done):
    result, x, y, folds = done
    names = [f"row {n}" for n in range(ROWS)]
    posterior = folds.posterior(result, x, y, draws=6, held_out=True, coords={"row": names})
    stats = group_of(posterior, "sample_stats")
    assert list(stats["row"].values) == names
    assert stats["fold_selection_probability"].dims == ("fold", "row", "feature")
    every = explain(result, x, draws=0)
    exact = group_of(every, "sample_stats")["selection_probability"].values
    np.testing.assert_allclose(stats["fold_selection_probability"].values, exact, rtol=1e-6)
    own = stats["selection_probability"].values[0]
    place = np.arange(ROWS)
    np.testing.assert_allclose(own, exact[folds.part.numpy(), place], rtol=1e-6)
    for group in ("predictions", "posterior"):
        drawn = group_of(posterior, group)
        shares = drawn["mask"].mean("row", dtype=np.float64)
        np.testing.assert_allclose(drawn["importance"].values, shares.values, rtol=1e-5)
    table = selection_table(posterior)
    np.testing.assert_allclose(table["selection_probability"].sort_index(), own.mean(0), rtol=1e-5)
    agreement = selection_table(every)["agreement"]
    np.testing.assert_allclose(table["agreement"].loc[agreement.index], agreement)
    of_fits = exact.astype(float).mean(1)
    found = table.loc[stats["feature"].values, ["lower", "upper"]]
    ends = np.r_["0,2", of_fits, own.mean(0)]
    np.testing.assert_allclose(found.T, [ends.min(0), ends.max(0)], rtol=1e-5)
    # Fits that keep less of the rows that they have learned from: the estimate stays inside.
    stats["fold_selection_probability"].values[:] *= 0.5
    low = selection_table(posterior)
    assert (low["lower"] < low["upper"]).all()
    np.testing.assert_allclose(low["upper"], low["selection_probability"], rtol=1e-5)


def test_masks_whose_mean_no_distribution_states_are_drawn_by_every_fold(done):
    _, x, y, folds = done
    system = suwr(3, classes=2, hidden=(4,), predictor_hidden=(4,))
    result = fit(system, (x, y), row_weights=folds.weights, **SHORT)
    stats = group_of(folds.posterior(result, x, y, draws=4, seed=5), "sample_stats")
    for r in range(FOLDS):
        rows = folds.rows(r)
        own = group_of(explain(result, x[rows], draws=4, seed=5 + r), "sample_stats")["mask_mean"]
        assert own.attrs["source"] == "mean of the draws"
        found = stats["fold_mask_mean"].sel(row=rows.numpy())
        np.testing.assert_array_equal(found.values, own.values)


def test_folds_have_draws_of_their_own(done):
    """With one seed for all, masks of different folds' rows would be drawn by the same numbers."""
    result, x, _, folds = done
    seeds = []

    def noted(*args, seed, draws, **settings):
        seeds.extend([seed] * (draws > 0))
        return explain(*args, seed=seed, draws=draws, **settings)

    folds.posterior(result, x, draws=2, explain=noted)
    folds.posterior(result, x, draws=2, seed=7, explain=noted)
    assert seeds == [0, 1, 2, 7, 8, 9]


def test_a_path_judges_each_row_by_the_fit_that_holds_it_out():
    x, y = table()
    folds = Folds.of(y, FOLDS)
    result = fitted(x, y, folds, penalty=(0.01, 0.04))
    path = penalty_path(result, x, y, penalties=[0.01, 0.04], masks=5, folds=folds)
    at = result.at(0.04)
    own = folds.values(predictive_log_likelihood, at, x, y, masks=5)
    said = [
        predictive_log_likelihood(at.subset([r]), x[folds.rows(r)], y[folds.rows(r)], masks=5)
        for r in range(FOLDS)
    ]
    mean = torch.cat(said, 1).double().mean()
    assert path.table["log_likelihood"].iloc[1] == pytest.approx(float(mean))
    assert own.shape == (1, ROWS)
    gained = gain_over_base_rate(at, y, x, y, masks=5, folds=folds)
    assert gained.rows == ROWS


def test_what_a_fit_remembers_of_its_rows_gains_there_and_not_where_they_are_held_out():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(120, 30, generator=generator)
    y = torch.randint(2, (120,), generator=generator)
    folds = Folds.of(y, FOLDS)
    model = explainer(imputer=MarginalImputer(x), features=30, hidden=(64,))
    settings = {**SHORT, "epochs": 40, "folds": 1}
    result = fit(model, (x, y), row_weights=folds.weights, **settings)
    inside = predictive_log_likelihood(result.subset([0]), x, y, masks=20)[0]
    held_out = folds.values(predictive_log_likelihood, result, x, y, masks=20)[0]
    seen = inside[folds.part != 0].double()
    errors = [v.std() / len(v) ** 0.5 for v in (seen, held_out.double())]
    difference = seen.mean() - held_out.double().mean()
    assert difference > 5.0 * torch.hypot(*errors)
    assert held_out.double().mean() < -0.69


def test_refusals(done):
    result, x, y, _ = done
    refused(r"2 or more|at least 2", Folds.of, y, 1)
    refused("as many rows; there are 2", Folds.of, y[:2], 3)
    refused("from 0 to 2", Folds, torch.tensor([0, 3]), 3)
    with pytest.raises(ValueError, match="4 folds need as many replicates, not 3"):
        Folds.of(y, 4).values(predictive_log_likelihood, result, x, y)
    for rows in ((x[1:], y[1:]), (x, y[1:]), (torch.cat([x, x]), torch.cat([y, y]))):
        with pytest.raises(ValueError, match=r"folds of 61 rows; there are (60|122)"):
            Folds.of(y, 3).values(predictive_log_likelihood, result, *rows)


def test_what_rows_share_has_no_posterior_by_fold():
    class Shared(LEX):
        def forward(self, x, y=None):
            pyro.sample("rate", dist.Beta(1.0, 1.0))
            return super().forward(x, y)

    x, y = table()
    folds = Folds.of(y, FOLDS)
    result = fit(
        explainer(program=Shared), (x, y), guide=AutoNormal, row_weights=folds.weights, **SHORT
    )
    refused("'rate' of 'posterior' is of all rows: explain", folds.posterior, result, x, draws=4)
