"""Tables of gains against their formulas, and how their tests do over many tables."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm, t

from lexppl.evaluation import FeatureGroups, gain_table, group_table
from lexppl.evaluation.gains import FeatureGains

FAILURE = 1e-6
"""Probability that a right program fails one of the tests of chance here."""
NUMBERS = ["gain", "lower", "upper", "p"]


def gains_of(values, groups=None, of_groups=None, part=None):
    names = tuple(f"x{g}" for g in range(values.shape[1]))
    several = None if of_groups is None else torch.as_tensor(of_groups)
    rows = None if part is None else torch.as_tensor(part)
    return FeatureGains(torch.as_tensor(values), names, several, groups, rows)


def random_gains(random):
    """Of some rows and groups, with or without folds, from all null to all strong."""
    rows, entries = int(random.integers(2, 60)), int(random.integers(1, 9))
    owner = random.integers(0, entries, entries)
    members = [tuple(np.flatnonzero(owner == k).tolist()) for k in np.unique(owner)]
    groups = FeatureGroups(tuple(f"g{k}" for k in range(len(members))), tuple(members))
    part = random.integers(0, 4, rows) if random.random() < 0.5 else None

    def drawn(count):
        size = random.choice([0.0, 0.3, 1.0]) * random.random(count)
        shift = 0.0 if part is None else 0.3 * random.normal(size=(4, count))[part]
        return size + shift + random.normal(size=(rows, count))

    return gains_of(drawn(entries), groups, drawn(len(members)), part)


def family(values, part, fdr, fwer, level):
    """Mean, ends, p and found of columns, from the definitions."""
    rows, count = values.shape
    out, variance = {"gain": values.mean(0)}, values.var(0, ddof=1) / rows
    if part is not None and len(set(part)) > 1:
        means = np.array([values[part == r].mean(0) for r in sorted(set(part))])
        variance = np.maximum(variance, means.var(0, ddof=1) / len(means))
    p = t.sf(out["gain"] / np.sqrt(variance), rows - 1)
    most = (1 - level) / 2
    alpha = min(fdr / count, most)
    for k in range(1, count + 1):
        if (p <= min(fdr * k / count, most)).sum() >= k:
            alpha = min(fdr * k / count, most)
    if fwer is not None:
        alpha = min(fwer / count, most)
    half = t.ppf(1 - alpha, rows - 1) * np.sqrt(variance)
    ends = {"lower": out["gain"] - half, "upper": out["gain"] + half}
    return {**out, **ends, "p": p, "found": p <= alpha}


TABLES = 300


@pytest.mark.smoke
def test_tables_are_those_of_the_formulas():
    random, seen, found_in = np.random.default_rng(0), set(), set()
    for _ in range(TABLES):
        gains = random_gains(random)
        part = None if gains.part is None else gains.part.numpy()
        fdr, level = random.choice([0.05, 0.1, 0.5]), random.choice([0.8, 0.9, 0.99])
        fwer = random.choice([None, 0.05, 0.3])
        options = {"fdr": fdr, "fwer": fwer, "level": level}
        several = sum(size for size in map(len, gains.groups.members) if size > 1)
        half = fwer and fwer / 2 if several else fwer
        expected = family(gains.of_groups.numpy(), part, fdr, half, level)
        groups = group_table(gains, **options)
        assert groups["gain"].is_monotonic_decreasing
        order = [gains.groups.names.index(name) for name in groups.index]
        assert groups["members"].tolist() == [len(gains.groups.members[k]) for k in order]
        for column in NUMBERS:
            np.testing.assert_allclose(groups[column], expected[column][order], rtol=1e-7)
        assert groups["found"].tolist() == expected["found"][order].tolist()
        assert groups["found"].equals(groups["lower"] > 0)

        table = gain_table(gains, **options)
        place = [list(groups.index).index(name) for name in table["group"]]
        assert place == sorted(place) and table.index.is_unique
        tested = []
        for name, members in zip(gains.groups.names, gains.groups.members, strict=True):
            own = table[table["group"] == name]
            assert sorted(own.index) == [f"x{g}" for g in members]
            assert own["gain"].is_monotonic_decreasing
            if len(members) == 1:
                columns = [*NUMBERS, "found"]
                assert own.iloc[0][columns].tolist() == groups.loc[name, columns].tolist()
                continue
            np.testing.assert_allclose(
                own["gain"], sorted(gains.gains.numpy()[:, list(members)].mean(0))[::-1]
            )
            if groups.loc[name, "found"]:
                tested += members
                assert own["found"].equals(own["lower"] > 0)
            else:
                assert not own["found"].any()
        if tested:
            share = fwer and half * len(tested) / several
            expected = family(gains.gains.numpy()[:, tested], part, fdr, share, level)
            lines = table.loc[[f"x{g}" for g in tested]]
            for column in NUMBERS:
                np.testing.assert_allclose(lines[column], expected[column], rtol=1e-7)
            assert lines["found"].tolist() == expected["found"].tolist()
        widths = (table["upper"] - table["lower"]).to_numpy() / 2
        values = gains.gains.numpy()[:, [int(name[1:]) for name in table.index]]
        least = t.isf((1 - level) / 2, len(values) - 1) * values.std(0, ddof=1)
        grouped = groups.loc[table["group"], "members"].to_numpy() > 1
        assert (widths[grouped] > least[grouped] / math.sqrt(len(values)) - 1e-9).all()
        assert not (table["found"] & (table["lower"] <= 0)).any()
        seen |= set(np.sign(table["lower"])) | {(fwer, part is None)}
        found_in |= set(zip(grouped.tolist(), table["found"], strict=True))
    assert len(found_in) == 4 and {-1.0, 1.0} <= seen and len(seen) >= 8


def test_of_folds_the_larger_spread_counts():
    values = np.array([[1.0], [2.0], [5.0], [6.0]])
    whole = group_table(gains_of(values)).iloc[0]
    apart = group_table(gains_of(values, part=[0, 0, 1, 1])).iloc[0]
    alike = group_table(gains_of(values, part=[0, 1, 1, 0])).iloc[0]
    one = group_table(gains_of(values, part=[0, 0, 0, 0])).iloc[0]
    assert whole[NUMBERS].tolist() == alike[NUMBERS].tolist() == one[NUMBERS].tolist()
    quantile = t.isf(0.05, 3)
    assert whole["upper"] - whole["gain"] == pytest.approx(quantile * math.sqrt(17 / 3 / 4))
    assert apart["upper"] - apart["gain"] == pytest.approx(quantile * math.sqrt(8 / 2))


def test_what_changes_nothing_is_not_found():
    values = np.zeros((5, 3))
    values[:, 1], values[:, 2] = 0.5, -0.5
    table = gain_table(gains_of(values), 0.9, level=0.01)
    assert table.loc["x0", NUMBERS].tolist() == [0.0, 0.0, 0.0, 0.5]
    assert table["p"].to_dict() == {"x1": 0.0, "x0": 0.5, "x2": 1.0}
    assert table["found"].to_dict() == {"x1": True, "x0": False, "x2": False}


def test_every_entry_may_be_in_a_group_of_several():
    groups = FeatureGroups(("g",), ((0, 1),))
    for size, found in ((0.0, False), (5.0, True)):
        values = np.array([[1.0, -1.0], [1.1, -1.2], [0.9, 1.0]]) + size
        table = gain_table(gains_of(values, groups, values[:, :1] + size - 1.0))
        assert table["found"].tolist() == [found] * 2 and table["found"].dtype == bool


# Error rates

NULLS, TRUE = 16, 4
MEAN = np.r_[np.zeros(NULLS), np.full(TRUE, 0.6)]
PART = np.repeat(np.arange(5), 12)
MOST = norm.isf(FAILURE)


def rates(repeats=1, shift=0.0, part=None, tables=3000, **options):
    """Of many tables of 60 rows and 20 groups, of which 16 have no gain: the share of what is found
    that has none, whether there is any, the share of the intervals found that lie above the truth,
    and the power.

    Args:
        repeats: how often each row stands there.
        shift: spread of what folds differ by.
    """
    random, each = np.random.default_rng(3), []
    for _ in range(tables):
        values = np.repeat(MEAN + random.normal(size=(60 // repeats, len(MEAN))), repeats, 0)
        values += shift * random.normal(size=(5, len(MEAN)))[PART]
        table = group_table(gains_of(values, part=part), **options)
        truth = MEAN[[int(name[1:]) for name in table.index]]
        found, above = table["found"].to_numpy(), table["lower"].to_numpy() > truth
        count, false = max(found.sum(), 1), found & (truth == 0)
        missed = (found & above).sum() / count
        each.append([false.sum() / count, false.any(), missed, found[truth > 0].mean()])
    return np.array(each).astype(float).T


def z(values, rate):
    return (values.mean() - rate) / (values.std(ddof=1) / math.sqrt(len(values)))


@pytest.mark.parametrize("fdr", [0.1, 0.2])
def test_false_discoveries_and_false_intervals_have_their_rate(fdr):
    """Of independent tests the rate is that of the nulls' share exactly, where no level caps it."""
    false, _, missed, power = rates(fdr=fdr, level=0.4)
    assert abs(z(false, fdr * NULLS / (NULLS + TRUE))) < norm.isf(FAILURE / 2)
    assert z(missed, fdr) < MOST and power.mean() > 0.9
    # Rows that are not independent are more than they say.
    false, _, missed, _ = rates(repeats=10, fdr=fdr, tables=300)
    assert z(false, fdr) > MOST and z(missed, fdr) > MOST


def test_with_fwer_anything_false_has_its_rate():
    _, anything, _, power = rates(fwer=0.1)
    assert z(anything, 0.1) < MOST and power.mean() > 0.9
    assert z(rates(fdr=0.1)[1], 0.1) > MOST
    assert z(rates(repeats=10, fwer=0.1, tables=300)[1], 0.1) > MOST


def test_fwer_holds_for_groups_and_members_together():
    """A group of a true column and nine nulls is found, and its members are tested as well."""
    random, false = np.random.default_rng(4), {0.1: [], 0.2: []}
    groups = FeatureGroups(tuple("abcdefghijk"), (tuple(range(10)), *((g,) for g in range(10, 20))))
    mean = np.r_[0.8, np.zeros(19)]
    for _ in range(800):
        values = mean + random.normal(size=(60, 20))
        of_groups = np.c_[0.8 + random.normal(size=60), values[:, 10:]]
        gains = gains_of(values, groups, of_groups)
        for fwer, seen in false.items():
            found = gain_table(gains, fwer=fwer)["found"]
            seen.append(found.drop("x0").any())
    assert z(np.array(false[0.1], float), 0.1) < MOST
    assert z(np.array(false[0.2], float), 0.1) > MOST


def test_what_folds_differ_by_is_not_found():
    """Without their folds rows of fits that differ look more sure than they are."""
    assert z(rates(shift=0.2, part=PART)[0], 0.1) < MOST
    assert z(rates(shift=0.2)[0], 0.1) > MOST


@pytest.mark.parametrize(
    ("values", "options", "words"),
    [
        (np.zeros((1, 2)), {}, "two rows or more; there are 1"),
        (np.full((3, 2), np.inf), {}, "gains must be finite"),
        (np.full((3, 2), np.nan), {}, "gains must be finite"),
        *[
            (np.zeros((3, 2)), {name: wrong}, f"{name} must be a share")
            for name in ("fdr", "fwer", "level")
            for wrong in (0.0, 1.0, math.nan)
        ],
    ],
)
def test_bad_tables_are_refused(values, options, words):
    for table in (gain_table, group_table):
        with pytest.raises(ValueError, match=words):
            table(gains_of(values), **options)
