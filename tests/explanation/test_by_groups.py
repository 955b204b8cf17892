"""A posterior of masks by groups of features."""

import numpy as np
import pytest
import xarray as xr

from lexppl.arviz_compatibility import group_names, group_of, posterior_of
from lexppl.explanation import explain, selection_table
from lexppl.explanation.reading.masks import by_groups, mask_means, masks_of
from tests.refusals import over, refused
from tests.test_explanation import fitted, lex, rows

NAMES = ["width", "height", "age"]
GROUPS = {"old": ["age"], "size": ["height", "width"]}
CHAINS, DRAWS, ROWS = 2, 4, 5
FOLDS = 3


def posterior(random, kind="selection"):
    """Masks, their probabilities by chain and by fold, gains, predictions and values."""
    mask = random.integers(0, 2, (CHAINS, DRAWS, ROWS, 3)).astype(np.int8)
    of_rows, names = ("chain", "row", "feature"), {"feature": NAMES}
    stats = {
        "selection_probability": (of_rows, random.random((CHAINS, ROWS, 3)), {"site": "mask"}),
        "fold_selection_probability": (("fold", "row", "feature"), random.random((FOLDS, ROWS, 3))),
        "gain": (("row", "feature"), random.normal(size=(ROWS, 3))),
        "energy": (("chain", "draw"), random.normal(size=(CHAINS, DRAWS))),
    }
    predictions = {
        "mask": (("chain", "draw", "row", "feature"), mask, {"kind": kind}),
        "importance": (("chain", "draw", "feature"), mask.mean(2), {"units": "share"}),
        "y": (("chain", "draw", "row"), random.normal(size=(CHAINS, DRAWS, ROWS))),
    }
    groups = {"sample_stats": stats, "predictions": predictions}
    return posterior_of({k: xr.Dataset(v, names) for k, v in groups.items()}, {"seed": 1})


@pytest.fixture
def random():
    return np.random.default_rng(0)


def test_a_group_is_kept_where_a_member_is(random):
    whole = posterior(random)
    found = by_groups(whole, GROUPS)
    mask, grouped = (masks_of(p)["mask"].values for p in (whole, found))
    np.testing.assert_array_equal(grouped[..., 0], mask[..., 2])
    np.testing.assert_array_equal(grouped[..., 1], mask[..., 0] | mask[..., 1])
    assert grouped.dtype == np.int8
    for name in ("selection_probability", "fold_selection_probability"):
        p, q = (group_of(one, "sample_stats")[name] for one in (whole, found))
        assert q.dims == p.dims and q.attrs == p.attrs
        expected = np.stack([p[..., 2], 1 - (1 - p[..., 0]) * (1 - p[..., 1])], -1)
        np.testing.assert_allclose(q.values, expected, rtol=1e-12)
        assert list(q["feature"].values) == ["old", "size"]
    share = group_of(found, "predictions")["importance"]
    np.testing.assert_allclose(share.values, grouped.mean(2))
    assert share.attrs["units"] == "share"


def test_what_is_not_of_masks_is_left_out_and_predictions_stay(random):
    whole = posterior(random)
    before = {name: group_of(whole, name).copy(deep=True) for name in group_names(whole)}
    found = by_groups(whole, GROUPS)
    assert "gain" not in group_of(found, "sample_stats")
    for group, name in (("predictions", "y"), ("sample_stats", "energy")):
        xr.testing.assert_identical(group_of(found, group)[name], before[group][name])
    assert found.attrs["seed"] == 1
    for name, values in before.items():
        xr.testing.assert_identical(group_of(whole, name), values)


@pytest.mark.parametrize("draws", [0, 4000])
def test_of_a_fit_the_probability_is_the_share_of_the_draws(draws):
    """Entries are independent given x; of no draws there are the probabilities alone."""
    x, y = rows(6)
    names = ["x1", "x2", "x3"]
    found = by_groups(explain(fitted(lex()), x, y if draws else None, draws=draws), {"all": names})
    p = mask_means(found).values[0, :, 0]
    each = mask_means(explain(fitted(lex()), x, draws=0)).values[0]
    np.testing.assert_allclose(p, 1 - (1 - each).prod(1), rtol=1e-5)
    if draws:
        kept = masks_of(found)["mask"].values[0, ..., 0].mean(0)
        assert (np.abs(kept - p) < 5 * np.sqrt(p * (1 - p) / draws)).all()


def test_masks_of_numbers_whose_mean_no_distribution_states(random):
    """As those of MEED: draws of 0 and 1 in floating point, and the means of the draws."""
    whole = posterior(random)
    stats, predictions = (group_of(whole, name) for name in ("sample_stats", "predictions"))
    mask = predictions["mask"].astype(np.float32).drop_attrs()
    mean = mask.mean("draw").assign_attrs(site="mask", source="mean of the draws")
    mean = mean.transpose("chain", "row", "feature")
    shown = stats[["gain"]].assign(mask_mean=mean, energy=stats["energy"])
    drawn = {"sample_stats": shown, "predictions": predictions.assign(mask=mask)}
    found = by_groups(posterior_of(drawn, {}), GROUPS)
    values = mask.values
    expected = np.stack([values[..., 2], np.maximum(values[..., 0], values[..., 1])], -1)
    np.testing.assert_array_equal(masks_of(found)["mask"].values, expected)
    p, q = mean.values, mask_means(found).values
    np.testing.assert_allclose(q[..., 1], 1 - (1 - p[..., 0]) * (1 - p[..., 1]), rtol=1e-6)
    assert sorted(selection_table(found).index) == ["old", "size"]


@over(
    {"size": ["width", "height"]},
    {"size": ["width", "height", "age"], "old": ["age"]},
    {"size": ["width", "height", "age", "job"]},
    {},
)
def test_groups_that_are_no_partition_are_refused(groups, random):
    with pytest.raises(ValueError, match=r"groups must have each of \['width', 'height', 'age'\]"):
        by_groups(posterior(random), groups)


@pytest.mark.parametrize("kind", ["share", "strength", "attribution"])
def test_masks_that_do_not_select_are_refused(random, kind):
    refused("these masks do not select", by_groups, posterior(random, kind), GROUPS)
