"""Masks in a plate of features, coins of a loop, and `pyro.deterministic` values, by name."""

import math

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

from lexppl import explain
from lexppl.arviz_compatibility import group_of
from lexppl.effects import mask_particles
from lexppl.explanation import explain_to_zarr, open_posterior, selection_table
from tests.evaluation.fitted_by_hand import result_of

X = torch.tensor([[1.0, 2.0, -1.0], [0.5, -1.0, 3.0], [2.0, 0.0, 1.0]]).double()
Y = torch.tensor([1.5, 0.5, 1.0]).double()
WEIGHTS = torch.tensor([1.0, 0.3, -0.5]).double()


def coin(chance, entries=None):
    shape = () if entries is None else (entries,)
    law = dist.Bernoulli(torch.full(shape, chance).double())
    return law if entries is None else law.to_event(1)


def features(x, y=None):
    """The form of PyMC and NumPyro: a coin of each feature in a plate of its own."""
    with mask_particles():
        with pyro.plate("features", 3, dim=-1):
            z = pyro.sample("mask", coin(0.3))
        with pyro.plate("data", len(x), dim=-1):
            mean = pyro.deterministic("mean", (z.unsqueeze(-2) * WEIGHTS * x).sum(-1), event_dim=0)
            pyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def test_a_plate_of_features_has_its_own_dimension_and_names():
    """Its numbers are those of `tests/programs/test_posteriors.py`."""
    names = ["age", "dose", "sex"]
    found = explain(features, X, Y, draws=30, proposals=math.inf, coords={"features": names})
    stats = group_of(found, "sample_stats")
    for suffix in ("", "_given_y"):
        array = stats[f"selection_probability{suffix}"]
        assert array.dims == ("chain", "features")
        assert array["features"].values.tolist() == names
    table = selection_table(found)
    assert sorted(table.index) == names
    ranked = sorted(stats["selection_probability_given_y"].values[0], reverse=True)
    np.testing.assert_allclose(table["selection_probability_given_y"], ranked, atol=1e-6)
    alone = selection_table(explain(features, X, draws=2))
    np.testing.assert_allclose(alone["selection_probability"], 0.3, atol=1e-6)
    assert group_of(found, "posterior")["mask"].dims == ("chain", "draw", "features")
    with pytest.raises(ValueError, match="3 names; there are 2"):
        explain(features, X, Y, draws=2, coords={"features": ["age", "dose"]})


def test_a_named_value_of_rows_stands_beside_the_masks_that_it_is_of():
    found = explain(features, X, Y, draws=50, proposals=math.inf)
    for group in ("predictions", "posterior", "posterior_of_rows"):
        if group not in dir(found) and group == "posterior_of_rows":
            continue
        drawn = group_of(found, group)
        if "mean" not in drawn:
            continue
        assert drawn["mean"].dims == ("chain", "draw", "row")
        wanted = (drawn["mask"].values * WEIGHTS.numpy()) @ X.T.numpy()
        np.testing.assert_allclose(drawn["mean"].values, wanted, atol=1e-6)
    assert "mean" in group_of(found, "predictions")


def chain(x, y=None):
    """z_1, then z_2 and z_3 that stay as they are with probability .9."""
    kept = []
    with pyro.plate("data", len(x), dim=-1), mask_particles():
        for t in pyro.markov(range(3)):
            law = coin(0.3) if t == 0 else dist.Bernoulli(0.1 + 0.8 * kept[-1])
            kept.append(pyro.sample(f"z_{t + 1}", law))
        pyro.deterministic("all", kept[0] * kept[1] * kept[2], event_dim=0)
        pair = torch.stack([kept[0].expand_as(kept[1]), kept[1]], -1)
        pyro.deterministic("pair", pair, event_dim=1)
        mean = sum(z * column for z, column in zip(kept, x.T, strict=True))
        pyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def test_coins_of_a_loop_are_masks_of_rows():
    """Their numbers are those of `tests/programs/test_posteriors.py`."""
    found = explain(chain, X, Y, draws=40, proposals=math.inf)
    stats = group_of(found, "sample_stats")
    for given_y in (False, True):
        for t, name in enumerate(("", "z_2_", "z_3_")):
            array = stats[f"{name}selection_probability" + "_given_y" * given_y]
            assert array.attrs["site"] == f"z_{t + 1}"
        group = group_of(found, "posterior" if given_y else "predictions")
        product = group["z_1"].values * group["z_2"].values * group["z_3"].values
        np.testing.assert_array_equal(group["all"].values, product[..., 0])
        assert group["pair"].dims == ("chain", "draw", "row", "pair_dim_0")
        np.testing.assert_array_equal(group["pair"].values[..., 1], group["z_2"].values[..., 0])
    table = selection_table(found)
    assert len(table) == 1, "the first site is ranked"
    np.testing.assert_allclose(table["selection_probability"], 0.3, atol=0.03)


def of_rows(x):
    """The groups of rows."""
    return (x[:, 0] > 0.9).long()


def test_named_values_of_all_rows_of_groups_and_of_events():
    def program(x, y=None):
        with mask_particles():
            gate = pyro.sample("gate", coin(0.4, 2))
            both = pyro.deterministic("both", gate.prod(-1), event_dim=0)
            pyro.deterministic("turned", 1 - gate, event_dim=1)
            with pyro.plate("groups", 2, dim=-1):
                z = pyro.sample("mask", coin(0.5, 3))
                active = pyro.deterministic("active", both * z.sum(-1), event_dim=0)
            with pyro.plate("data", len(x), dim=-1):
                mean = pyro.deterministic("mean", active[..., of_rows(x)], event_dim=0)
                pyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    for y in (None, Y):
        found = explain(program, X, y, draws=60, proposals=math.inf)
        group = group_of(found, "predictions" if y is None else "posterior")
        both = group["gate"].values.prod(-1)
        np.testing.assert_array_equal(group["both"].values, both)
        assert group["turned"].dims[:2] == ("chain", "draw") and group["turned"].shape[2:] == (2,)
        np.testing.assert_array_equal(group["turned"].values, 1 - group["gate"].values)
        assert group["active"].dims == ("chain", "draw", "groups")
        active = both[..., None] * group["mask"].values.sum(-1)
        np.testing.assert_array_equal(group["active"].values, active)
        np.testing.assert_array_equal(group["mean"].values, active[..., of_rows(X)])


def test_named_values_are_written_with_the_rows(tmp_path):
    x = X.repeat(350, 1)
    result = result_of(chain)
    explain_to_zarr(result, x, tmp_path / "store", draws=20, progress=False)
    stored = group_of(open_posterior(tmp_path / "store"), "predictions")
    once = group_of(explain(result, x, draws=20), "predictions")
    assert stored["all"].dims == ("chain", "draw", "row")
    for name in ("all", "pair", "z_2"):
        assert stored[name].shape == once[name].shape
        np.testing.assert_array_equal(
            stored[name].values[:, :, :1000], once[name].values[:, :, :1000]
        )
    product = stored["z_1"].values * stored["z_2"].values * stored["z_3"].values
    np.testing.assert_array_equal(stored["all"].values, product[..., 0])
