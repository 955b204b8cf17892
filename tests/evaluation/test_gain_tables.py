"""Tables of gains and gains by strata against formulas, and how their tests do over many tables."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import brentq
from scipy.special import expit, log_expit
from scipy.stats import binom, norm, t, ttest_1samp, ttest_ind
from torch import nn

from lexppl.evaluation import (
    FeatureGroups,
    feature_gains,
    gain_table,
    group_table,
    interaction_table,
)
from lexppl.evaluation.gains import FeatureGains
from lexppl.models import ConstantImputer
from tests.evaluation.test_gains import judge_of

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


def mixture(values):
    """Gains of even mixtures of the predictions with a feature and without it."""
    return np.log((1.0 + np.exp(values)) / 2.0)


def family(values, part, fdr, fwer, level, mixed=False):
    """Mean, ends, p and found of columns, from the definitions."""
    rows, count = values.shape
    means, errors = [], []
    for each in (values, mixture(values)) if mixed else (values,):
        variance = each.var(0, ddof=1) / rows
        if part is not None and len(set(part)) > 1:
            of_parts = np.array([each[part == r].mean(0) for r in sorted(set(part))])
            variance = np.maximum(variance, of_parts.var(0, ddof=1) / len(of_parts))
        means.append(each.mean(0))
        errors.append(np.sqrt(variance))
    means, errors = np.array(means), np.array(errors)
    p = t.sf(means / errors, rows - 1).min(0)
    most = (1 - level) / 2
    alpha = min(fdr / count, most)
    tested = np.where(means.max(0) * rows > 1.0, p, 1.0)
    for k in range(1, count + 1):
        if (tested <= min(fdr * k / count, most)).sum() >= k:
            alpha = min(fdr * k / count, most)
    if fwer is not None:
        alpha = min(fwer / count, most)
    half = t.ppf(1 - alpha, rows - 1) * errors
    ends = {"lower": (means - half).max(0), "upper": (means + half).max(0)}
    return {"gain": means.max(0), **ends, "p": p, "found": tested <= alpha}


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
        expected = family(gains.of_groups.numpy(), part, fdr, half, level, mixed=True)
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


def test_less_than_a_nat_of_all_rows_is_not_found():
    each = np.tile([0.9, 1.1, -0.9, 30.0], 25)[:, None] * np.array([0.0003, 1.0]) + 1e-5
    for scale, found in ((1.0, [True, False]), (20.0, [True, True])):
        table = gain_table(gains_of(each * scale), level=0.8)
        assert (table["lower"] > 0.0).all() and (table["p"] < 0.05).all()
        assert table["found"].tolist() == found


def test_every_entry_may_be_in_a_group_of_several():
    groups = FeatureGroups(("g",), ((0, 1),))
    for size, found in ((0.0, False), (5.0, True)):
        values = np.array([[1.0, -1.0], [1.1, -1.2], [0.9, 1.0]]) + size
        table = gain_table(gains_of(values, groups, values[:, :1] + size - 1.0))
        assert table["found"].tolist() == [found] * 2 and table["found"].dtype == bool


# Error rates

NULLS, TRUE = 16, 4
POINTS, WEIGHTS = np.polynomial.hermite_e.hermegauss(50)
NULL = brentq(lambda mean: WEIGHTS @ mixture(mean + POINTS), -1.0, 0.0)
"""Mean of normal gains of variance 1 at which their mixture gains nothing."""
MEAN = np.r_[np.full(NULLS, NULL), np.full(TRUE, 0.6)]
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
        truth = MEAN.clip(0.0)[[int(name[1:]) for name in table.index]]
        found, above = table["found"].to_numpy(), table["lower"].to_numpy() > truth
        count, false = max(found.sum(), 1), found & (truth == 0)
        missed = (found & above).sum() / count
        each.append([false.sum() / count, false.any(), missed, found[truth > 0].mean()])
    return np.array(each).astype(float).T


def z(values, rate):
    return (values.mean() - rate) / (values.std(ddof=1) / math.sqrt(len(values)))


@pytest.mark.parametrize("fdr", [0.1, 0.2])
def test_false_discoveries_and_false_intervals_have_their_rate(fdr):
    """Of independent tests the rate is that of the nulls' share, where no level caps it."""
    false, _, missed, power = rates(fdr=fdr, level=0.4)
    share = fdr * NULLS / (NULLS + TRUE)
    assert z(false, share) < MOST and z(false, 0.5 * share) > -MOST
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
    random, false = np.random.default_rng(4), {0.1: [], 0.3: []}
    groups = FeatureGroups(tuple("abcdefghijk"), (tuple(range(10)), *((g,) for g in range(10, 20))))
    mean = np.r_[0.8, np.zeros(9), np.full(10, NULL)]
    for _ in range(800):
        values = mean + random.normal(size=(60, 20))
        of_groups = np.c_[0.8 + random.normal(size=60), values[:, 10:]]
        gains = gains_of(values, groups, of_groups)
        for fwer, seen in false.items():
            found = gain_table(gains, fwer=fwer)["found"]
            seen.append(found.drop("x0").any())
    assert z(np.array(false[0.1], float), 0.1) < MOST
    assert z(np.array(false[0.3], float), 0.1) > MOST


def test_what_folds_differ_by_is_not_found():
    """Without their folds rows of fits that differ look more sure than they are."""
    assert z(rates(shift=0.25, part=PART)[0], 0.1) < MOST
    assert z(rates(shift=0.25)[0], 0.1) > MOST


def test_the_mixture_finds_more_and_no_more_that_is_false():
    """Labels of log-odds ±δ, predicted as ±δ and noise with the feature, and as even without."""
    random, tables, rows = np.random.default_rng(6), 600, 200

    def found(delta, noise, without=0.0):
        """How often a table finds the feature, and how often the mean of d alone does."""
        side = random.choice([-1.0, 1.0], (tables, rows))
        y = np.where(random.random(side.shape) < expit(delta * side), 1.0, -1.0)
        with_it, none = (size * random.normal(size=side.shape) for size in (noise, without))
        d = log_expit(y * (delta * side + with_it)) - log_expit(y * none)
        ours = [group_table(gains_of(each[:, None]), None)["found"].item() for each in d]
        plain = ttest_1samp(d, 0.0, axis=1, alternative="greater").pvalue < 0.05
        return sum(ours), sum(plain & (d.sum(1) > 1.0))

    most = binom.isf(FAILURE, tables, 0.05)
    assert found(0.0, 0.4)[0] <= most
    ours, plain = found(0.5, 0.4)
    assert ours > plain + 6 * math.sqrt(tables * 0.25)
    # Errors of two different fits are less in their mixture.
    assert found(0.0, 0.8, without=0.8)[0] > most


@pytest.mark.parametrize(
    ("values", "options", "words"),
    [
        (np.zeros((1, 2)), {}, "two rows or more; there are 1"),
        (np.full((3, 2), np.inf), {}, "gains must be finite"),
        (np.array([[0.0, math.nan], [0.0, 1.0]]), {}, "gains must be finite"),
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


SLOPE, ROWS = 2.0, 4000


class Law(nn.Module):
    """Logits of y from a = ±1 and b = ±1, where b = ±1 switches a off or not; x hidden is 0."""

    def __init__(self, only_where_b):
        super().__init__()
        self.only_where_b = only_where_b
        self.slope = nn.Parameter(torch.tensor(SLOPE).double())

    def forward(self, x):
        on = (x[..., 1] > 0).to(x) if self.only_where_b else torch.ones_like(x[..., 1])
        logit = self.slope * x[..., 0] * on
        return torch.stack([-logit / 2, logit / 2], -1)


def drawn_rows(law, seed):
    """a, b and a column that y does not depend on, and y from the law."""
    x = torch.from_numpy(np.random.default_rng(seed).choice([-1.0, 1.0], (ROWS, 3)))
    with torch.no_grad():
        p = law(x)[:, 1].sub(law(x)[:, 0]).sigmoid().numpy()
    return x, torch.from_numpy((np.random.default_rng(seed + 1).random(ROWS) < p).astype(int))


def gains_by(values, **options):
    """The table of gains of one feature."""
    gains = FeatureGains(torch.as_tensor(np.asarray(values))[:, None], ("a",), **options)
    return lambda by, **settings: interaction_table(gains, "a", by, **settings)


P = 1 / (1 + math.exp(-SLOPE))
INFORMATION = math.log(2) + P * math.log(P) + (1 - P) * math.log(1 - P)
"""I(y; a | b) where a matters: log 2 less the entropy of y given a."""


@pytest.mark.smoke
@pytest.mark.parametrize("only_where_b", [True, False])
def test_gains_of_strata_are_the_information_of_the_law(only_where_b):
    law = Law(only_where_b)
    x, y = drawn_rows(law, 5)
    judge = judge_of(law, imputer=ConstantImputer(0.0), columns=3, labels=(0, 1))
    gains = feature_gains(judge, x, y)
    by_b = interaction_table(gains, "x1", x[:, 1])
    low = 0.0 if only_where_b else INFORMATION
    z = (by_b["gain"] - [low, INFORMATION]) / by_b["standard_error"].clip(lower=1e-12)
    assert by_b.index.tolist() == ["-1.0", "1.0"] and z.abs().max() < 4
    matters_more = by_b["difference_lower"].iloc[1] > 0
    assert matters_more == only_where_b
    # By a column that says nothing of a's role there is no difference.
    by_noise = interaction_table(gains, "x1", x[:, 2])
    assert (by_noise["difference"].abs() < 4 * by_noise["difference_error"]).all()
    assert not interaction_table(gains, "x3", x[:, 1])["gain"].abs().max() > 1e-12


def test_errors_are_those_of_each_stratum_and_welchs():
    random = np.random.default_rng(0)
    values, by = random.normal(size=70), np.repeat(["u", "v", "w"], [40, 20, 10])
    table = gains_by(values)(by, level=0.8)
    for s in "uvw":
        own, rest = values[by == s], values[by != s]
        line, test = table.loc[s], ttest_ind(own, rest, equal_var=False)
        assert line["rows"] == len(own) and line["gain"] == pytest.approx(own.mean())
        assert line["standard_error"] == pytest.approx(own.std(ddof=1) / math.sqrt(len(own)))
        assert line["difference"] / line["difference_error"] == pytest.approx(test.statistic)


def test_intervals_cover_the_truth_at_their_level():
    random, tables = np.random.default_rng(1), 400
    missed = np.zeros(3)
    for _ in range(tables):
        by = np.arange(80) < 25
        table = gains_by(random.normal(np.where(by, 0.3, 0.0), np.where(by, 1.0, 0.4)))(by)
        ends = table[["lower", "upper"]].to_numpy()
        missed[:2] += (ends[:, 0] > [0.0, 0.3]) | (ends[:, 1] < [0.0, 0.3])
        line = table.loc["True"]
        missed[2] += not line["difference_lower"] < 0.3 < line["difference_upper"]
    assert (binom.ppf(1e-5, tables, 0.1) <= missed).all()
    assert (missed <= binom.ppf(1 - 1e-5, tables, 0.1)).all()


def test_rows_of_a_unit_count_as_one_and_folds_add_their_spread():
    random = np.random.default_rng(2)
    once, by = random.normal(size=60), np.repeat([0, 1], 30)
    unit = torch.arange(60).repeat_interleave(10)
    plain = gains_by(once, unit=torch.arange(60))(by)
    many = gains_by(once.repeat(10), unit=unit)(by.repeat(10))
    np.testing.assert_allclose(many.drop(columns="rows"), plain.drop(columns="rows"))
    # Few units in a stratum: the spread of their sums there, with one degree of freedom.
    few = gains_by(once, unit=torch.tensor([*([0] * 15 + [1] * 15), *range(2, 32)]))(by)
    sums = (once[:30] - once[:30].mean()).reshape(2, 15).sum(1)
    assert few["standard_error"].iloc[0] == pytest.approx(math.sqrt(2 * (sums**2).sum()) / 30)
    alone = gains_by(once, unit=torch.tensor([*([0] * 30), *range(1, 31)]))(by)
    assert alone.drop(columns=["rows", "gain", "difference"]).isna().all(axis=None)
    assert alone["gain"].iloc[0] == pytest.approx(once[:30].mean())
    # Units with a row in either stratum: what they share is no difference.
    paired = gains_by(np.concatenate([once, once]), unit=torch.arange(60).repeat(2))
    line = paired(np.repeat([0, 1], 60)).iloc[0]
    assert line["difference_error"] < 1e-12 < line["standard_error"]
    part = torch.arange(60) % 3
    shifted = gains_by(once + 5.0 * part.numpy(), part=part)(by)
    assert (shifted["standard_error"] > 2.0).all() and (plain["standard_error"] < 0.5).all()


def test_whole_weights_have_the_intervals_of_copies_in_one_unit():
    random = np.random.default_rng(4)
    once, errors = (
        torch.tensor(random.normal(0.2, 1.0, (40, 2))),
        torch.tensor(random.random((40, 3))),
    )
    times, part = torch.tensor(random.integers(1, 5, 40)), torch.arange(40) % 4
    by = np.repeat([0, 1], 20)
    for folds in (None, part):
        weighted = FeatureGains(once, ("a", "b"), part=folds, errors=errors, weight=times)
        scaled = replace(weighted, weight=times * 0.01)
        many = FeatureGains(
            once.repeat_interleave(times, 0),
            ("a", "b"),
            part=None if folds is None else folds.repeat_interleave(times),
            errors=errors.repeat_interleave(times, 0),
            unit=torch.arange(40).repeat_interleave(times),
        )
        tables = [
            group_table(each, None).drop(columns="found") for each in (weighted, scaled, many)
        ]
        pd.testing.assert_frame_equal(tables[0], tables[1])
        pd.testing.assert_frame_equal(tables[0], tables[2])
        strata = [
            interaction_table(each, "a", given).drop(columns="rows")
            for each, given in ((weighted, by), (many, by.repeat(times)))
        ]
        pd.testing.assert_frame_equal(*strata)
    found = group_table(weighted.where(torch.arange(30)), None)
    each = once[:30, 0].numpy()
    expected = max(np.average(v, weights=times[:30]) for v in (each, mixture(each)))
    assert found.loc["a", "gain"] == pytest.approx(expected)


def test_weighted_intervals_cover_the_weighted_mean_at_their_level():
    """Rows are seen in inverse proportion to their weight."""
    random, tables, missed = np.random.default_rng(5), 400, 0
    for _ in range(tables):
        rare = random.random(300) < 0.2
        values = torch.tensor(random.normal(np.where(rare, 1.0, 0.0), 1.0))[:, None]
        gains = FeatureGains(values, ("a",), weight=torch.tensor(np.where(rare, 4.0, 1.0)))
        line = gain_table(gains, None).loc["a"]
        missed += not line["lower"] < 0.5 < line["upper"]
    assert binom.ppf(1e-5, tables, 0.1) <= missed <= binom.ppf(1 - 1e-5, tables, 0.1)


@pytest.mark.parametrize("weight", [[1.0, 0.0], [1.0, math.nan], [1.0], [math.inf, 1.0]])
def test_wrong_weights_are_refused(weight):
    gains = FeatureGains(torch.zeros(2, 1), ("a",), weight=torch.tensor(weight))
    with pytest.raises(ValueError, match="weight must be finite numbers above 0"):
        gain_table(gains)


def test_strata_are_levels_or_intervals_between_quantiles():
    table = gains_by(np.arange(12.0))
    numbers = table(pd.Series(np.arange(12.0) * 10), bins=3)
    assert numbers["rows"].tolist() == [4, 4, 4] and numbers["gain"].tolist() == [1.5, 5.5, 9.5]
    levels = ["x", "y", None, "y", "x", "x", "x", "y", "y", "once", "x", "y"]
    named = table(levels)
    assert named["rows"].to_dict() == {"x": 5, "y": 5}
    assert named.loc["x", "gain"] == np.flatnonzero(np.array(levels) == "x").mean()


def test_groups_have_gains_by_strata_too():
    values = torch.arange(8.0).double()
    groups = FeatureGroups(("pair",), ((0, 1),))
    gains = FeatureGains(torch.zeros(8, 2), ("a", "b"), values[:, None], groups)
    assert interaction_table(gains, "pair", [0, 1] * 4)["gain"].tolist() == [3.0, 4.0]


@pytest.mark.parametrize(
    ("feature", "by", "message"),
    [
        ("b", [0, 1] * 5, "feature must be one of"),
        ("a", [0, 1], r"by must have shape \(10,\); the shape is \(2,\)"),
        ("a", [1] * 10, "two strata of two rows"),
        ("a", [1] * 9 + [2], "two strata of two rows"),
    ],
)
def test_wrong_strata_are_refused(feature, by, message):
    gains = FeatureGains(torch.zeros(10, 1), ("a",))
    with pytest.raises(ValueError, match=message):
        interaction_table(gains, feature, by)
