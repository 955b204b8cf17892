"""Modes of the masks: which alternatives are listed, and with which weights."""

import numpy as np
import pytest
import torch
import xarray as xr

from lexppl import explain
from lexppl.arviz_compatibility import group_names, group_of, posterior_of
from lexppl.evaluation import Folds
from lexppl.explanation import selection_table
from lexppl.explanation.reading.masks import by_groups
from lexppl.explanation.reading.modes import Alternative, alternatives_of, modes_of, with_modes
from lexppl.inference import fit
from lexppl.systems import lex
from tests.refusals import over

NAMES = ["size", "shape", "texture", "age"]
SIZE, PAIR = [1.0, 0.0, 0.0, 0.9], [0.0, 1.0, 0.9, 0.9]


def posterior(masks, evidence=None, held_out_by=None):
    """Of fits' probabilities `(R, G)`, the same in all rows, or `(R, N, G)`; of folds where rows
    are held out."""
    p = np.asarray(masks)
    p = np.repeat(p[:, None], 40, 1) if p.ndim == 2 else p
    own, dims, names = p, ("row", "feature"), {"feature": NAMES[: p.shape[-1]]}
    stats = {}
    if held_out_by is not None:
        own = p.mean(0, keepdims=True)
        stats["held_out_by"] = ("row", held_out_by)
        stats["fold_selection_probability"] = (("fold", *dims), p)
    stats["selection_probability"] = (("chain", *dims), own, {"site": "mask"})
    if evidence is not None:
        stats["log_evidence"] = (("chain", "row"), evidence)
    mask = (("chain", "draw", *dims), (own > 0.5)[:, None].astype(np.int8))
    groups = {"sample_stats": stats, "predictions": {"mask": mask}}
    return posterior_of({k: xr.Dataset(v, names) for k, v in groups.items()}, {})


def features(posterior):
    return [mode.features for mode in alternatives_of(posterior)]


def test_a_column_or_a_pair_of_columns_are_listed_with_the_shares_of_the_fits():
    found = posterior([SIZE, PAIR, SIZE, PAIR, SIZE])
    modes = modes_of(found)
    np.testing.assert_allclose(modes["mode_weight"], [0.6, 0.4], rtol=1e-12)
    assert modes["mode_of_fit"].values.tolist() == [1, 2, 1, 2, 1]
    of_pair = Alternative(("shape", "texture"), pytest.approx(0.4), 2)
    assert alternatives_of(found) == [Alternative(("size",), pytest.approx(0.6), 3), of_pair]
    by_mode = modes["mode_selection_probability"]
    assert by_mode.dims == ("mode", "row", "feature")
    np.testing.assert_allclose(by_mode.sel(mode=2).mean("row"), PAIR)
    table = selection_table(found)
    assert table.loc["size", "selection_probability"] == pytest.approx(0.6)
    for number, kept in enumerate((SIZE, PAIR), 1):
        np.testing.assert_allclose(table.loc[NAMES, f"mode_{number}"], kept)
    assert table.attrs["mode_weights"] == pytest.approx((0.6, 0.4))


@over(
    [SIZE, SIZE, SIZE],
    [SIZE],
    [[1.0, 0.0, 0.0, 0.9], [1.0, 1.0, 0.9, 0.9]],  # A part of the other
    [[0.5, 0.5, 0.0, 0.9], [0.6, 0.4, 0.0, 0.9]],  # Both keep either in half of the rows
    [[0.9, 0.1, 0.0, 0.0], [0.9, 0.0, 0.1, 0.0]],  # In a tenth of the rows
)
def test_of_fits_that_keep_the_same_or_a_part_of_it_no_alternatives_are_listed(masks):
    found = posterior(masks)
    assert modes_of(found) is None and with_modes(found) is found and not alternatives_of(found)
    assert not any(str(name).startswith("mode") for name in selection_table(found))


def test_by_rows_alternatives_may_hold_in_some_of_them():
    """Where the first rows need size or shape, and the others neither."""
    of_rows = np.zeros((2, 40, 2))
    of_rows[0, :14, 0] = of_rows[1, :14, 1] = 1.0
    assert features(posterior(of_rows)) == [("size",), ("shape",)]
    # The same means, and other rows: neither stands in for the other.
    of_rows[1] = of_rows[1, ::-1]
    assert modes_of(posterior(of_rows)) is None


def weights(count, less, error):
    """w_k ∝ R_k exp(−δ_k² / 2 s_k²)."""
    weight = np.array(count) * np.exp(-0.5 * (np.array(less) / np.array(error)) ** 2)
    return weight / weight.sum()


def test_weights_are_the_shares_of_fits_times_the_likelihood_ratio_of_being_as_good():
    random = np.random.default_rng(0)
    evidence = random.normal(size=(1, 40)) + 0.05 * random.normal(size=(3, 40))
    masks = [SIZE, PAIR, SIZE]
    of_modes = np.stack([evidence[[0, 2]].mean(0), evidence[1]])
    for shift in (0.0, 0.012, -0.02):
        of_modes[1] = evidence[1] - evidence[1].mean() + of_modes[0].mean() + shift
        evidence[1] = of_modes[1]
        best = int(shift > 0)
        change = of_modes[best] - of_modes
        error = np.sqrt(change.var(1, ddof=1) / 40 + 0.01**2)
        modes = modes_of(posterior(masks, evidence))
        expected = weights([2, 1], change.mean(1), error)
        np.testing.assert_allclose(modes["mode_weight"], expected, rtol=1e-9)
        np.testing.assert_allclose(modes["mode_log_likelihood"], of_modes.mean(1))
    evidence[1] -= 1.0
    assert modes_of(posterior(masks, evidence)) is None


def test_in_folds_a_mode_is_judged_by_the_rows_that_its_fits_hold_out():
    random = np.random.default_rng(1)
    part, evidence = np.arange(40) % 4, random.normal(size=(1, 40))
    masks = [PAIR, SIZE, PAIR, PAIR]
    each = [evidence[0, part != 1], evidence[0, part == 1]]
    mean = np.array([values.mean() for values in each])
    variance = np.array([values.var(ddof=1) / len(values) for values in each])
    error = np.sqrt(variance + variance[mean.argmax()] + 0.01**2)
    modes = modes_of(posterior(masks, evidence, part))
    expected = weights([3, 1], mean.max() - mean, error)
    np.testing.assert_allclose(modes["mode_weight"], np.sort(expected)[::-1], rtol=1e-9)
    assert sorted(modes["mode_of_fit"].values.tolist()) == sorted([1, 2, 1, 1])


def test_they_stand_in_arviz_data_and_in_groups():
    found = with_modes(posterior([SIZE, PAIR, SIZE]))
    assert "mode_weight" in group_of(found, "sample_stats")
    assert set(group_names(found)) == {"sample_stats", "predictions"}
    groups = {"look": ["shape", "texture"], "size": ["size"], "age": ["age"]}
    by_group = by_groups(found, groups)
    kept = group_of(by_group, "sample_stats")["mode_selection_probability"]
    np.testing.assert_allclose(kept.sel(mode=2, feature="look"), 1.0)
    assert features(by_group) == [("size",), ("look",)]
    # Members of one group that stand in for each other are no alternatives of groups.
    every = by_groups(found, {"any": NAMES[:3], "age": ["age"]})
    assert modes_of(every) is None


@pytest.mark.complete
@pytest.mark.parametrize("copies", [True, False])
def test_of_two_copies_each_fit_keeps_one(copies):
    """One of three or four columns is kept; held-out rows have the weights of the formula."""
    generator = torch.Generator().manual_seed(0)
    a, noise = torch.randn(400, generator=generator), torch.randn(400, 2, generator=generator)
    y = torch.bernoulli(torch.sigmoid(3 * a), generator=generator).long()
    x = torch.stack([a, *[a] * copies, *noise.T], 1)
    small = {"classes": 2, "k": 1, "hidden": (16,), "predictor_hidden": (16,)}
    steps = {"epochs": 60, "learning_rate": 0.02, "batch_size": 50, "progress": False}
    result = fit(lex(x.shape[1], **small), (x[:300], y[:300]), replicates=5, **steps)
    found = explain(result, x[300:], y[300:], draws=10, held_out=True)
    modes = modes_of(found)
    if not copies:
        assert modes is None
        return
    assert sorted(features(found)) == [("x1",), ("x2",)]
    evidence = group_of(found, "sample_stats")["log_evidence"].values
    of_fit = modes["mode_of_fit"].values
    by_mode = [evidence[of_fit == k].mean(0) for k in (1, 2)]
    better = int(by_mode[1].mean() > by_mode[0].mean())
    change = by_mode[better] - by_mode[1 - better]
    odds = np.exp(-0.5 * change.mean() ** 2 / (change.var(ddof=1) / 100 + 0.01**2))
    count = [(of_fit == k).sum() * (odds if k - 1 != better else 1.0) for k in (1, 2)]
    np.testing.assert_allclose(modes["mode_weight"], np.array(count) / sum(count), rtol=1e-4)


def test_folds_say_which_fit_holds_each_row_out():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, 2, generator=generator)
    y, folds = (x[:, 0] > 0).long(), Folds(torch.arange(30) % 3, 3)
    system = lex(2, classes=2, hidden=(4,), predictor_hidden=(4,))
    how = {"valid": None, "row_weights": folds.weights, "epochs": 2, "progress": False}
    found = folds.posterior(fit(system, (x, y), **how), x, y, draws=4)
    held = group_of(found, "sample_stats")["held_out_by"].values
    np.testing.assert_array_equal(held, np.arange(30) % 3)
