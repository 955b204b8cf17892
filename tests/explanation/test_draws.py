"""What readers take from runs of a fit, against predictions, gains and closed forms."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer.autoguide import AutoNormal
from pyro.nn import PyroModule

from lexppl import fit
from lexppl.effects import imputation_particles, mask_particles
from lexppl.evaluation import Folds, predictive, predictive_log_likelihood
from lexppl.explanation import draws, read_log_likelihood, read_mask, read_prediction
from lexppl.systems import lex
from tests.refusals import over, refused

ROWS = 60


@pytest.fixture(scope="module")
def rows():
    x = torch.randn(ROWS, 3, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0] + 0.3 * x[:, 1] > 0).long()


@pytest.fixture(scope="module")
def result(rows):
    system = lex(3, classes=2, hidden=(4,), predictor_hidden=(4,), penalty=0.02)
    return fit(system, rows, epochs=3, replicates=2, progress=False)


EVERY = {"mask": read_mask, "p": read_prediction, "log": read_log_likelihood}


def test_it_is_predictive_and_its_log_likelihood(result, rows):
    x, y = rows
    found = draws(result, x, y, read=EVERY, draws=40, imputations=3)
    alone = draws(result, x, read={"p": read_prediction}, draws=40, imputations=3)
    assert dict(found.sizes) == {
        "chain": 2, "draw": 40, "row": ROWS, "feature": 3, "class": 2
    }  # fmt: skip
    assert found.feature.values.tolist() == ["x1", "x2", "x3"]
    np.testing.assert_allclose(
        alone.p.mean("draw"), predictive(result, x, masks=40, imputations=3), atol=1e-6
    )
    scores = predictive_log_likelihood(result, x, y, masks=40, imputations=3)
    np.testing.assert_allclose(np.log(np.exp(found.log).mean("draw")), scores, atol=1e-6)
    # Of one imputation the two readers agree: log p(y | x, z) is that of the prediction.
    one = draws(result, x, y, read=EVERY, draws=20)
    chosen = one.p.values[..., np.arange(ROWS), y.numpy()]
    np.testing.assert_allclose(np.log(chosen), one.log, atol=1e-5)
    assert not np.allclose(one.p.mean("draw").values, one.p.values[:, 0]), "draws differ"


def test_masks_are_forced_in_each_chain(result, rows):
    x, _ = rows
    kept = draws(result, x, read={"mask": read_mask}, draws=7).mask
    again = draws(result, x, masks=kept, read=EVERY | {"log": read_mask}).mask
    np.testing.assert_array_equal(again, kept)
    by_row_last = kept.transpose("feature", "row", "draw", "chain")
    moved = draws(result, x, masks=by_row_last.transpose(..., "feature"), read={"m": read_mask}).m
    np.testing.assert_array_equal(moved, kept)
    none = draws(result, x, masks=torch.zeros(1, ROWS, 3), read={"mask": read_mask}).mask
    assert none.shape == (2, 1, ROWS, 3) and not none.any()


class Hierarchy(PyroModule):
    """z_g ~ Bernoulli(¼), y ~ N(slope + Σ z x, 1), with a posterior of the slope."""

    def forward(self, x, y=None):
        slope = pyro.sample("slope", dist.Normal(torch.zeros(()).to(x), 1.0))
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            z = pyro.sample("mask", dist.Bernoulli(torch.full((3,), 0.25).to(x)).to_event(1))
            with imputation_particles():
                pyro.sample("y", dist.Normal(slope + (z * x).sum(-1), 1.0), obs=y)


def test_latents_that_rows_share_have_a_run_for_each_draw(rows):
    x, _ = rows
    y = x[:, 0]
    result = fit(Hierarchy, (x, y), guide=AutoNormal, epochs=3, progress=False)

    def slope(run):
        return run.sites["slope"].value.reshape(1, 1).expand(1, len(run.arguments[0]))

    read = {"slope": slope, "mask": read_mask, "p": read_prediction, "log": read_log_likelihood}
    found = draws(result, x, y, read=read, draws=30)
    assert (found.slope == found.slope.isel(row=0)).all()
    assert len(np.unique(found.slope.isel(row=0))) == 30
    mean = found.slope + (found.mask * x.numpy()).sum("feature")
    np.testing.assert_allclose(found.p, mean, atol=1e-5)
    exact = dist.Normal(torch.tensor(mean.values), 1.0).log_prob(y.double())
    np.testing.assert_allclose(found.log, exact, atol=1e-5)
    alone = draws(result, x, read={"p": read_prediction}, draws=30)
    np.testing.assert_allclose(alone.p.mean("draw"), predictive(result, x, masks=30), atol=1e-6)
    # With masks forced the mean is a function of the slopes alone.
    masks = torch.ones(30, ROWS, 3)
    forced = draws(result, x, read={"p": read_prediction, "slope": slope}, masks=masks)
    np.testing.assert_allclose(
        forced.p - forced.slope, np.broadcast_to(x.sum(-1), (1, 30, ROWS)), atol=1e-5
    )


def test_each_fold_is_read_from_the_fit_that_holds_it_out(rows):
    x, y = rows
    folds = Folds.of(y, 3)
    system = lex(3, classes=2, hidden=(4,), predictor_hidden=(4,))
    result = fit(system, rows, valid=None, row_weights=folds.weights, epochs=2, progress=False)
    found = draws(result, x, y, read=EVERY, draws=25, folds=folds)
    assert found.sizes["chain"] == 1 and found.row.values.tolist() == list(range(ROWS))
    wanted = folds.values(predictive, result, x, masks=25, seed=0)
    alone = draws(result, x, read={"p": read_prediction}, draws=25, folds=folds)
    np.testing.assert_allclose(alone.p.mean("draw"), wanted, atol=1e-6)
    same = draws(result, x, masks=found.mask, read={"mask": read_mask}, folds=folds).mask
    np.testing.assert_array_equal(same, found.mask)


def test_a_reader_of_its_own_names_its_dims(result, rows):
    x, _ = rows

    def size(run):
        return read_mask(run).sum(-1)

    def both(run):
        return torch.stack([size(run), 3 - size(run)], -1)

    read = {"size": size, "both": both}
    found = draws(result, x, read=read, draws=5, dims={"both": ["kept_or_hidden"]})
    assert found["size"].dims == ("chain", "draw", "row")
    assert found["both"].dims == ("chain", "draw", "row", "kept_or_hidden")
    np.testing.assert_array_equal(found["both"].isel(kept_or_hidden=0), found["size"])
    assert draws(result, x, read={"both": both}, draws=2)["both"].dims[-1] == "both_dim_0"


@over(
    ({"draws": 0}, "draws"),
    ({"imputations": 0}, "imputations"),
    ({"seed": -1}, "seed"),
    ({"masks": torch.ones(2, ROWS - 1, 3)}, r"shape \(D, 60, 3\)"),
    ({"masks": torch.ones(3, 2, ROWS, 3)}, r"or \(2, D, 60, 3\); the shape is \(3, 2, 60, 3\)"),
    ({"masks": torch.ones(2, ROWS, 4)}, r"shape \(D, 60, 3\)"),
    ({"masks": torch.ones(ROWS, 3)}, r"shape \(D, 60, 3\)"),
    ({"masks": torch.full((2, ROWS, 3), 0.5)}, "0 and 1 only"),
    ({"read": {}}, "read"),
    ({"read": {"score": read_log_likelihood}}, "y"),
    ({"dims": {"other": ["a"]}}, "dims"),
)
def test_bad_input_is_refused_in_one_line(words, message, result, rows):
    words = {"read": {"mask": read_mask}, **words}
    caught = refused(message, draws, result, rows[0], error=(ValueError, TypeError), **words)
    assert "\n" not in str(caught)


def test_other_rows_than_those_of_the_fit_are_refused(result, rows):
    assert "\n" not in str(refused("3 features", draws, result, rows[0][:, :2], read=EVERY))
