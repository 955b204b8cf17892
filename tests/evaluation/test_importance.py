"""First and last against closed forms and quadrature."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import expit, softmax, xlogy
from scipy.stats import binom, chi2, norm, poisson, t, ttest_ind

from lexppl.data import Dataset
from lexppl.evaluation import FeatureGroups, Folds, importance, interaction_table
from lexppl.evaluation.importance import PARAMETER, SHOWN, Importance
from lexppl.models import PoissonLikelihood
from tests.refusals import refusals, refused

GRID, SHARE = np.polynomial.hermite_e.hermegauss(60)
SHARE = SHARE / SHARE.sum()
"""Nodes and weights of a standard normal distribution."""


pytestmark = pytest.mark.usefixtures("three_folds")


def normal(rows, columns, seed=0):
    draw = np.random.default_rng(seed)
    return draw, draw.normal(size=(rows, columns))


def table(x, y):
    return torch.from_numpy(np.asarray(x)).float(), torch.from_numpy(np.asarray(y))


def worth(x, y, seed=0, **how):
    how.setdefault("groups", None)
    return importance(table(x, y), seed=seed, **how).feature_table()


def near(found, name, column, truth, short=0.15):
    """Whether an estimate is within four errors of the truth, or short of it by a share."""
    value, error = found.loc[name, [column, f"{column}_error"]].astype(float)
    assert abs(value - truth) < 4.0 * error + short * truth, (name, column, value, error, truth)


def value_by_quadrature(probabilities, known):
    """V(S) of labels of two standard normal columns, by their probabilities `(n, C)` at points."""
    points = np.meshgrid(GRID, GRID, indexing="ij")
    every = probabilities(*map(np.ravel, points)).reshape(len(GRID), len(GRID), -1)
    mean = every
    for axis, share in enumerate((SHARE[:, None, None], SHARE[None, :, None])):
        if axis not in known:
            mean = (share * mean).sum(axis, keepdims=True)
    return float(SHARE @ xlogy(every, mean).sum(-1) @ SHARE)


def laws_of(probabilities):
    both, none = (value_by_quadrature(probabilities, s) for s in ((0, 1), ()))
    alone = [value_by_quadrature(probabilities, (j,)) for j in (0, 1)]
    return [a - none for a in alone], [both - a for a in alone[::-1]]


def two(logit):
    return np.stack([1.0 - expit(logit), expit(logit)], -1)


LAWS = {
    "each for itself": lambda a, b: two(2.0 * a - 1.2 * b),
    "interaction": lambda a, b: two(2.5 * a * b),
    "three classes": lambda a, b: softmax(np.stack([0.0 * a, 2.0 * a, 1.5 * b], -1), -1),
}


@pytest.mark.parametrize(
    ("law", "are_labels"), [*((law, True) for law in LAWS), ("each for itself", False)]
)
def test_labels_and_their_probabilities_are_worth_what_quadrature_says(law, are_labels):
    draw, x = normal(1200 if are_labels else 800, 3, seed=int(are_labels))
    share = LAWS[law](x[:, 0], x[:, 1])
    y = (share.cumsum(1) < draw.random(len(x))[:, None]).sum(1) if are_labels else share
    found = worth(x, y)
    first, last = laws_of(LAWS[law])
    for place in (0, 1):
        near(found, f"x{place + 1}", "first", first[place])
        near(found, f"x{place + 1}", "last", last[place])
    near(found, "x3", "first", 0.0)
    near(found, "x3", "last", 0.0)
    assert found["found"].sort_index().tolist() == [True, True, False]
    if law == "interaction":
        assert found.loc["x1", "first"] < 0.01
        assert found.loc["x1", "last"] > 0.1


def test_responses_are_worth_the_closed_form():
    draw, x = normal(1000, 3)
    y = 1.0 * x[:, 0] + 0.5 * x[:, 1] + draw.normal(0.0, 0.7, len(x))
    found, total = worth(x, 20.0 * y + 3.0), 1.0 + 0.25 + 0.49
    for name, square in (("x1", 1.0), ("x2", 0.25)):
        near(found, name, "first", 0.5 * math.log(total / (total - square)))
        near(found, name, "last", 0.5 * math.log1p(square / 0.49))
    assert found["found"].sort_index().tolist() == [True, True, False]
    run = importance(table(x, 20.0 * y + 3.0))
    # In the units of y.
    law = -0.5 * math.log(2 * math.pi * math.e * 0.49) - math.log(20.0)
    assert abs(run.full.mean() - law) < 0.1


def test_heavy_tails_are_worth_what_the_law_says():
    draw, x = normal(1000, 2)
    noise = t(4).rvs(len(x), random_state=draw)
    found = worth(x, 2.0 * x[:, 0] + noise)
    many, z = t(4).rvs(200_000, random_state=draw), 2.0 * draw.normal(size=200_000)
    wide = t.fit(z + many, fdf=4)
    law = t(4).logpdf(many).mean() - t.logpdf(z + many, 4, *wide[1:]).mean()
    near(found, "x1", "last", law)
    assert found["found"].to_dict() == {"x1": True, "x2": False}


def test_counts_are_worth_what_the_sum_says():
    draw, x = normal(1000, 2)
    y = draw.poisson(np.exp(0.7 * x[:, 0]))
    found = worth(x, y.astype(float), likelihood=PoissonLikelihood())
    counts = np.arange(60)
    law = poisson.pmf(counts, np.exp(0.7 * GRID)[:, None])
    mean = SHARE @ law
    truth = float(
        SHARE @ (law * (poisson.logpmf(counts, np.exp(0.7 * GRID)[:, None]) - np.log(mean))).sum(1)
    )
    # Without x counts are a mixture, which a negative binomial distribution comes near to.
    near(found, "x1", "last", truth)
    assert found["found"].to_dict() == {"x1": True, "x2": False}


def test_copies_say_all_alone_and_nothing_beyond_each_other():
    draw, x = normal(600, 3)
    x[:, 1] = x[:, 0]
    y = (draw.random(len(x)) < expit(2.0 * x[:, 0])).astype(int)
    found = worth(x, y)
    assert (found.loc[["x1", "x2"], "first"] > 0.1).all()
    assert (found.loc[["x1", "x2"], "last"].abs() < 0.01).all()
    assert found.loc[["x1", "x2"], "found"].all() and not found.loc["x3", "found"]
    groups = FeatureGroups.named({"pair": ["x1", "x2"]}, ["x1", "x2", "x3"])
    run = importance(table(x, y), groups=groups)
    together, members = run.group_table(), run.feature_table()
    assert together.loc["pair", "found"] and together.loc["pair", "last"] > 0.1
    assert not members["found"].any()
    copies = run.stand_ins()
    assert list(copies) == ["pair"] and list(copies["pair"]) == ["x1", "x2"]
    assert sum(copies["pair"].values()) == pytest.approx(1.0)
    assert min(copies["pair"].values()) > 0.4
    # A column that says something beyond its group has no stand-in, and noise stands in for none.
    mixed = FeatureGroups.named({"pair": ["x1", "x3"]}, ["x1", "x2", "x3"])
    assert importance(table(x, y), groups=mixed).stand_ins() == {}


def test_weights_of_copies_are_those_of_the_rows():
    """w ∝ exp(−δ² / 2 (s² + .01²)) by hand; behind by more than two errors it is no stand-in."""
    draw, rows = np.random.default_rng(0), 400
    first = draw.normal(0.3, 0.2, rows)
    groups = FeatureGroups.named({"pair": ["a", "b"]}, ["a", "b"])
    zero, units = np.zeros(rows), np.arange(rows)
    for less, both in ((0.0, True), (0.012, True), (0.05, False)):
        behind = draw.normal(less, 0.05, rows) - 0.0
        behind += less - behind.mean()
        each = np.stack([first, first, first - behind], 1)
        errors = np.zeros((rows, 2))
        found = Importance(
            ("a", "b"),
            groups,
            each,
            np.zeros((rows, 3)),
            zero,
            zero,
            errors,
            units,
            zero + 1.0,
            units // 400,
        ).stand_ins()
        odds = np.exp(-(less**2) / 2 / (behind.var(ddof=1) / rows + 0.01**2))
        if both:
            expected = {"a": 1 / (1 + odds), "b": odds / (1 + odds)}
            assert found["pair"] == pytest.approx(expected, rel=1e-6)
        else:
            assert found == {}


def test_of_a_group_the_member_that_decides_is_found():
    """The member beyond its group is worth ½ log((u + s²) / s²), u the variance of revenue given
    assets; assets follow revenue and are worth nothing."""
    draw = np.random.default_rng(2)
    revenue = draw.normal(8.0, 1.0, 1500)
    assets = revenue + draw.normal(0.1, 0.25, 1500)
    y = revenue + draw.normal(0.0, 0.12, 1500)
    x = np.stack([revenue, assets, draw.normal(size=1500)], 1)
    groups = FeatureGroups.named({"size": ["x1", "x2"]}, ["x1", "x2", "x3"])
    run = importance(table(x, y), groups=groups)
    found = run.feature_table()
    truth = 0.5 * math.log((0.25**2 / (1 + 0.25**2) + 0.12**2) / 0.12**2)
    assert abs(found.loc["x1", "last"] - truth) < 0.1
    assert abs(found.loc["x2", "last"]) < 0.02
    assert found["found"].to_dict() == {"x1": True, "x2": False, "x3": False}
    assert run.group_table()["found"].to_dict() == {"size": True, "x3": False}


@pytest.mark.complete
def test_a_member_that_is_easier_to_learn_from_says_nothing_beyond_the_others():
    """y depends on |x1|, x3; x2 is the square of x1 with noise, which 300 rows are learned from."""
    wrong, names = 0, [f"x{place}" for place in range(1, 9)]
    groups = FeatureGroups.named({"size": ["x1", "x2"]}, names)
    for seed in range(8):
        draw = np.random.default_rng(seed)
        a, b = draw.normal(size=(2, 300))
        square = a**2 + 0.5 * draw.normal(size=300)
        x = np.column_stack([a, square, b, draw.normal(size=(300, 5))])
        y = (draw.random(300) < expit(2.5 * (np.abs(a) - 0.8) - 1.5 * b)).astype(int)
        data = table(x, y)
        folds = Folds.of(data[1], 5, 0)
        feature = importance(data, groups=groups, folds=folds).feature_table()
        wrong += feature.loc["x2", "last_p"] <= 0.1
    assert wrong <= binom.isf(0.01, 8, 0.1)


@pytest.mark.parametrize("pair", [True, False])
def test_noise_beside_one_column_that_decides_is_not_found(pair):
    """What is compared has the same predictors: one column beside noise as both together."""
    _, x = normal(200, 2 + pair, seed=3)
    names = [f"x{d + 1}" for d in range(2 + pair)]
    groups = FeatureGroups.named({"noise": names[1:]}, names)
    found = importance(table(x, (x[:, 0] > 0).astype(int)), groups=groups).group_table()
    assert found["found"].to_dict() == {"x1": True, "noise": False}
    assert abs(found.loc["noise", "last"]) < 0.01


def test_a_switch_among_noise_is_learned():
    """Networks that read noise too have .44 of the branch by a product."""
    draw, x = normal(1500, 9)
    on = x[:, 0] > 0
    p = expit(np.where(on, 3.0 * x[:, 1], 3.0 * x[:, 2] * np.sign(x[:, 3])))
    found = worth(x, (draw.random(len(x)) < p).astype(int))
    for name, without in (("x2", np.where(on, 0.5, p)), ("x3", np.where(on, p, 0.5))):
        law = np.mean(p * np.log(p / without) + (1 - p) * np.log((1 - p) / (1 - without)))
        assert found.loc[name, "last"] > 0.6 * law
    noise = [f"x{d}" for d in range(5, 10)]
    assert not found.loc[noise, "found"].any() and found.loc[noise, "last"].abs().max() < 0.01


def test_noise_is_seldom_found():
    found = []
    for seed in range(8):
        draw, x = normal(120, 3, seed=seed)
        found.append(worth(x, draw.integers(0, 2, len(x)), seed=seed)["found"].any())
    assert sum(found) <= 3  # More have a probability of .005 where each has .1


def test_seeds_and_the_order_of_columns_change_less_than_an_error():
    draw, x = normal(600, 4)
    y = (draw.random(len(x)) < expit(1.5 * x[:, 0] + 2.0 * x[:, 1] * x[:, 2])).astype(int)
    one, other = worth(x, y), worth(x, y, seed=1)
    turned = worth(x[:, ::-1].copy(), y).rename(lambda name: f"x{5 - int(name[1])}")
    for again in (other, turned):
        for column in ("first", "last"):
            change = (one[column] - again.loc[one.index, column]).abs()
            assert (change < 2.0 * one[f"{column}_error"]).all()


def test_weights_are_how_often_rows_count():
    draw, x = normal(900, 2)
    y = (draw.random(900) < expit(3.0 * x[:, 0])).astype(int)
    y[600:] = (draw.random(300) < expit(3.0 * x[600:, 1])).astype(int)
    weight = torch.ones(900)
    weight[600:] = 1e-3
    found = worth(x, y, weight=weight)
    assert found.loc["x1", "last"] > 0.2 and abs(found.loc["x2", "last"]) < 0.02
    assert found["found"].to_dict() == {"x1": True, "x2": False}
    assert worth(x, y).loc["x2", "found"]


def by_hand(first, last, **how):
    first, last = (np.asarray(v, float) for v in (first, last))
    rows, names = len(first), tuple(f"x{d + 1}" for d in range(first.shape[1] // 2))
    rest = {
        "full": np.zeros(rows),
        "none": np.zeros(rows),
        "errors": np.zeros((rows, 1 + len(names))),
        "unit": np.arange(rows),
        "weight": np.ones(rows),
        "fold": np.zeros(rows, int),
    }
    return Importance(names, FeatureGroups.alone(names), first, last, **{**rest, **how})


@pytest.mark.smoke
def test_errors_are_those_of_rows_units_and_a_parameter():
    draw, values = normal(50, 1)
    twice = np.repeat(values, 2, 1)
    table = by_hand(twice, twice).group_table()
    error = math.sqrt(values.var(ddof=1) * 50 + PARAMETER) / 50
    assert table["last_error"].iloc[0] == pytest.approx(error)
    q = t.isf(0.025, 49)
    assert table["first_lower"].iloc[0] == pytest.approx(values.mean() - q * error)
    # At the upper end the variance is larger by its distance, as of a log-likelihood ratio.
    away = table["first_upper"].iloc[0] - values.mean()
    assert away**2 == pytest.approx(q**2 * (error**2 + away / 50))
    # Copies of a row in a unit are one row.
    copies = np.repeat(twice, 3, 0)
    of_units = by_hand(copies, copies, unit=np.repeat(np.arange(50), 3)).group_table()
    ratio = math.sqrt(values.var(ddof=1) * 50 * 9 + PARAMETER) / 150
    assert of_units["last_error"].iloc[0] == pytest.approx(ratio)
    whole = draw.integers(1, 4, 50).astype(float)
    weighed = by_hand(twice, twice, weight=whole / whole.mean()).group_table()
    assert weighed["last"].iloc[0] == pytest.approx(np.average(values[:, 0], weights=whole))


@pytest.mark.smoke
def test_what_one_fold_alone_gains_is_by_chance_of_its_fit():
    """Fits of a fold share their error: a fit that ends in a better minimum gains in all its rows,
    and a gain of one fold in five is one standard error, whatever the number of rows."""
    _, values = normal(2000, 2)
    values, fold = np.tile(0.03 * (values - values.mean(0)), 2), np.arange(2000) % 5
    values += 0.003
    values[:, ::2] += 0.015 * ((fold == 1) - 0.2)[:, None]  # The gain of x1 is that of one fold
    table = by_hand(values, values, fold=fold).group_table().sort_index()
    by_units = by_hand(values, values).group_table().sort_index()
    assert by_units["found"].all() and table["found"].tolist() == [False, True]
    sums = [400 * (values[fold == f, 0].mean() - 0.003) for f in range(5)]
    by_row = 2000 * values[:, 0].var(ddof=1)
    excess = 1.25 * np.square(sums).sum() - chi2.isf(0.05, 4) / 4 * by_row
    ratio = table.loc["x1", "last_error"] / by_units.loc["x1", "last_error"]
    assert ratio == pytest.approx(math.sqrt(1.0 + excess / (by_row + PARAMETER)))
    assert ratio > 2.0


@pytest.mark.smoke
@pytest.mark.parametrize("share", [0.6, 0.8, 1.0, 1.2])
def test_shrunken_fits_vary_more_between_tables(share):
    """Of y ~ N(δ, 1) the fit share · δ has d = share δ y − share² δ² / 2. Where δ̂ is the mean of
    the rows, the total `N δ̂² (share − share² / 2)` has (2 − share) times the spread of rows."""
    delta, z = 0.2, norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    values = share * delta * (delta + z) - (share * delta) ** 2 / 2
    values = np.repeat(values[:, None], 2, 1)
    error = by_hand(values, values).group_table()["last_error"].iloc[0]
    of_rows = math.sqrt((values[:, 0].var(ddof=1) + PARAMETER / len(z)) / len(z))
    assert error / of_rows == pytest.approx(max(1.0, 2.0 - share), rel=0.01)


@pytest.mark.smoke
def test_found_is_either_of_two_tests_by_benjamini_and_hochberg():
    rows = np.random.default_rng(0).normal(size=(400, 1))
    first = np.tile([0.2, 0.0, -0.1, 0.0] * 2, (400, 1)) + 0.3 * rows
    last = np.tile([0.0, 0.2, -0.1, 0.0] * 2, (400, 1)) + 0.3 * rows
    table = by_hand(first, last).group_table().sort_index()
    assert table["found"].tolist() == [True, True, False, False]
    for name in ("x1", "x2", "x3", "x4"):
        expected = min(1.0, 2.0 * min(table.loc[name, ["first_p", "last_p"]]))
        assert table.loc[name, "p"] == pytest.approx(expected)
    # Benjamini and Yekutieli's level of two of four is 1 - .1 / 2, and of family-wise 1 - .1 / 4.
    run = by_hand(first, last)
    wide = run.group_table(level=None).sort_index()
    assert wide["last_upper"].tolist() == pytest.approx(table["last_upper"].tolist())
    narrow = run.group_table(fwer=0.1, level=None).sort_index()
    assert (narrow["last_upper"] > wide["last_upper"]).all()


@pytest.mark.smoke
def test_what_averaging_two_fits_gains_is_no_gain_of_a_column():
    # Two fits of equal error: d has mean 0, and their mixture gains log cosh(d / 2) on each.
    rows, columns = 20_000, 100
    noise = np.random.default_rng(0).normal(0.0, 0.08, (rows, columns))
    last = np.hstack([noise, noise])
    feature = by_hand(np.zeros_like(last), last).feature_table()
    mixture = np.logaddexp(noise, 0.0) - math.log(2.0)
    assert (mixture.mean(0) / mixture.std(0) * math.sqrt(rows) > 2.0).mean() > 0.5
    assert (feature["last_p"] <= 0.05).sum() <= binom.isf(0.001, columns, 0.05)
    # Where fits ignore all columns but x1, whose d has a variance of twice its mean, x1's is less.
    gained = np.zeros((300, 8))
    gained[:, [0, 4]] = norm.ppf((np.arange(300)[:, None] + 0.5) / 300, 0.01, math.sqrt(0.02))
    effect = by_hand(np.zeros_like(gained), gained).group_table().loc["x1"]
    assert effect["last_p"] < 0.9 * t.sf(effect["last"] / effect["last_error"], 299)


@pytest.mark.smoke
def test_what_rows_outside_a_fold_show_is_what_a_table_of_them_shows():
    rows = np.random.default_rng(0).normal(size=(300, 1))
    part = np.arange(300) % 3
    inside = np.where(part > 0, 0.5, -0.1)  # x3 gains in the rows of two folds alone
    last = np.tile([0.1, 0.0, 0.0, 0.0] * 2, (300, 1)) + 0.1 * rows
    last[:, [2, 6]] = inside[:, None] + 0.1 * rows
    run = by_hand(np.full_like(last, -0.01), last, fold=part)
    shown = run.shown_outside()
    assert shown.tolist() == [[True, False, True, False], *[[True, False, False, False]] * 2]
    for fold in range(3):
        outside = np.flatnonzero(part != fold)
        rest = by_hand(run.first[outside], last[outside], fold=part[outside])
        p = rest.group_table().sort_index()["p"]
        assert shown[fold].tolist() == (p <= SHOWN).tolist()
    # What was not measured is not left out.
    last[:, [3, 7]] = np.nan
    assert by_hand(last, last, fold=part).shown_outside()[:, 3].all()


def test_the_same_seed_gives_the_same_bits_and_nothing_global_moves():
    draw, x = normal(120, 2)
    data = table(x, draw.integers(0, 2, 120))
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002 - the global state is what is tested
    before, state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    one, same, other = (importance(data, seed=seed) for seed in (3, 3, 4))
    assert (one.last == same.last).all() and (one.last != other.last).any()
    assert (torch.get_rng_state() == before).all()
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002


def test_entries_of_a_data_set_and_given_folds():
    draw, x = normal(200, 1)
    level = draw.integers(0, 3, 200)
    y = (draw.random(200) < expit(3.0 * (level == 1) - 1.0)).astype(int)
    features = torch.from_numpy(np.hstack([np.eye(3)[level], x])).float()
    names = ("job=a", "job=b", "job=c", "age")
    data = Dataset(
        features, torch.from_numpy(y), names, (0, 0, 0, 1), ("job", "age"), "paid", ("no", "yes")
    )
    folds = Folds(torch.arange(200) // 50, 4)
    run = importance(data, folds=folds)
    assert (run.none[:50] != run.none[50]).any() and len(np.unique(run.none)) <= 8
    assert run.group_table()["found"].to_dict() == {"job": True, "age": False}


def test_rows_of_a_unit_are_in_one_fold_and_count_as_one():
    """Labels of a unit are one draw that its noise column names: rows dealt apart would find it."""
    draw = np.random.default_rng(0)
    unit = np.repeat(np.arange(40), 5)
    x = np.stack([draw.normal(size=40)[unit], draw.normal(size=200)], 1)
    y = draw.integers(0, 2, 40)[unit]
    apart, together = worth(x, y), worth(x, y, unit=torch.from_numpy(unit))
    assert apart.loc["x1", "last"] > 0.1 and apart.loc["x1", "found"]
    assert together.loc["x1", "last"] < 0.05 and not together["found"].any()
    with pytest.raises(ValueError, match="those of a unit in one"):
        worth(x, y, unit=torch.from_numpy(unit), folds=Folds(torch.arange(200) % 5, 5))


X, Y = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 2


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("data", "how", "message"),
    [
        ((X[:, 0], Y), {}, "x must have shape"),
        ((X * torch.nan, Y), {}, "x must be finite"),
        ((X, Y[:19]), {}, r"y must have shape \(20,\), or \(20, C\).*; the shape is \(19,\)"),
        ((X, torch.zeros(20, dtype=torch.long)), {}, "y must vary over rows"),
        ((X, torch.full((20,), 2.0)), {}, "y must vary over rows"),
        ((X, X[:, :2]), {}, "probabilities"),
        ((X, Y), {"weight": torch.zeros(20)}, "weight must be"),
        ((X, Y), {"unit": torch.zeros(20)}, "unit must have two groups or more of the 20 rows"),
        ((X, Y), {"groups": FeatureGroups.alone(["a"])}, "groups must be of 3 entries, not 1"),
        (
            (X, Y),
            {"folds": Folds(torch.arange(18) % 2, 2)},
            "of the 20 rows of data, those of a unit in one; they are of 18",
        ),
        ((X, Y + 0.5), {"likelihood": PoissonLikelihood()}, "is of counts"),
    ],
)
def test_bad_input_is_refused_in_one_line(data, how, message):
    with pytest.raises(ValueError, match=message) as caught:
        importance(data, **how)
    assert "\n" not in str(caught.value)


# Strata


def gains_by(values, **how):
    """The table of `last` of a feature by strata."""
    values = np.asarray(values, float)[:, None]
    gains = by_hand(np.repeat(values, 2, 1), np.repeat(values, 2, 1), **how)
    return lambda by, **settings: interaction_table(gains, "x1", by, **settings)


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
        table = gains_by(random.normal(np.where(by, 0.3, 0.0), np.where(by, 1.0, 0.4)))(
            by, level=0.9
        )
        ends = table[["lower", "upper"]].to_numpy()
        missed[:2] += (ends[:, 0] > [0.0, 0.3]) | (ends[:, 1] < [0.0, 0.3])
        line = table.loc["True"]
        missed[2] += not line["difference_lower"] < 0.3 < line["difference_upper"]
    assert (binom.ppf(1e-5, tables, 0.1) <= missed).all()
    assert (missed <= binom.ppf(1 - 1e-5, tables, 0.1)).all()


def test_rows_of_a_unit_count_as_one_in_strata():
    random = np.random.default_rng(2)
    once, by = random.normal(size=60), np.repeat([0, 1], 30)
    unit = np.arange(60).repeat(10)
    plain = gains_by(once, unit=np.arange(60))(by)
    many = gains_by(once.repeat(10), unit=unit)(by.repeat(10))
    np.testing.assert_allclose(many.drop(columns="rows"), plain.drop(columns="rows"))
    # Few units in a stratum: the spread of their sums there, with one degree of freedom.
    few = gains_by(once, unit=np.array([*([0] * 15 + [1] * 15), *range(2, 32)]))(by)
    sums = (once[:30] - once[:30].mean()).reshape(2, 15).sum(1)
    assert few["standard_error"].iloc[0] == pytest.approx(math.sqrt(2 * (sums**2).sum()) / 30)
    alone = gains_by(once, unit=np.array([*([0] * 30), *range(1, 31)]))(by)
    assert alone.drop(columns=["rows", "gain", "difference"]).isna().all(axis=None)
    assert alone["gain"].iloc[0] == pytest.approx(once[:30].mean())
    # Units with a row in either stratum: what they share is no difference.
    paired = gains_by(np.concatenate([once, once]), unit=np.tile(np.arange(60), 2))
    line = paired(np.repeat([0, 1], 60)).iloc[0]
    assert line["difference_error"] < 1e-12 < line["standard_error"]
    # Whole weights are copies of a row in its unit.
    whole, ends = np.random.default_rng(4).integers(1, 5, 60), ["gain", "lower", "upper"]
    weighed = gains_by(once, weight=whole / whole.mean())(by)
    copied = gains_by(once.repeat(whole), unit=np.arange(60).repeat(whole))(by.repeat(whole))
    np.testing.assert_allclose(weighed[ends], copied[ends])


def test_strata_are_levels_or_intervals_between_quantiles():
    table = gains_by(np.arange(12.0))
    numbers = table(pd.Series(np.arange(12.0) * 10), bins=3)
    assert numbers["rows"].tolist() == [4, 4, 4] and numbers["gain"].tolist() == [1.5, 5.5, 9.5]
    levels = ["x", "y", None, "y", "x", "x", "x", "y", "y", "once", "x", "y"]
    named = table(levels)
    assert named["rows"].to_dict() == {"x": 5, "y": 5}
    assert named.loc["x", "gain"] == np.flatnonzero(np.array(levels) == "x").mean()


test_wrong_strata_are_refused = refusals(
    ("b", [0, 1] * 5, "feature must be one of"),
    ("x1", [0, 1], r"by must have shape \(10,\); the shape is \(2,\)"),
    ("x1", [1] * 10, "two strata of two rows"),
    ("x1", [1] * 9 + [2], "two strata of two rows"),
    of=lambda feature, by: interaction_table(
        by_hand(np.zeros((10, 2)), np.zeros((10, 2))), feature, by
    ),
)


def test_a_column_that_counts_where_another_is_high_gains_there_alone():
    draw, x = normal(1500, 3)
    on = x[:, 1] > 0
    y = (draw.random(len(x)) < expit(2.5 * x[:, 0] * on)).astype(int)
    run = importance(table(x, y))
    by_high, by_noise = (interaction_table(run, "x1", x[:, place]) for place in (1, 2))
    p = expit(2.5 * GRID)
    law = math.log(2.0) + SHARE @ (xlogy(p, p) + xlogy(1 - p, 1 - p))
    assert abs(by_high["gain"].iloc[0]) < 0.02
    short = law - by_high["gain"].iloc[1]
    assert abs(short) < 4.0 * by_high["standard_error"].iloc[1] + 0.15 * law
    assert by_high["difference_lower"].iloc[1] > 0.0
    assert (by_noise["difference"].abs() < 4.0 * by_noise["difference_error"]).all()
    assert by_high["gain"].mean() == pytest.approx(run.feature_table().loc["x1", "last"], abs=1e-3)


def test_groups_that_are_not_measured_are_not_found_and_count_as_tests():
    draw, x = normal(300, 4, seed=1)
    y = (draw.random(len(x)) < expit(2.0 * x[:, 0])).astype(int)
    groups = FeatureGroups.named({"pair": ["x3", "x4"]}, ["x1", "x2", "x3", "x4"])
    every = importance(table(x, y), groups=groups)
    some = importance(table(x, y), groups=groups, measured=["x1", "x2"])
    lines, features = some.group_table(), some.feature_table()
    ends = ["first", "last", "p", "error_without"]
    assert lines.loc["pair", ends].isna().all() and not lines.loc["pair", "found"]
    assert features.loc[["x3", "x4"], "last"].isna().all() and features.index[0] == "x1"
    assert lines["found"].to_dict() == {"x1": True, "x2": False, "pair": False}
    # The level of one of three found is 1 - .1 / 3.
    wide = some.group_table(level=None).loc["x1", "last_lower"]
    assert wide == some.group_table(level=1.0 - 0.1 / 3).loc["x1", "last_lower"]
    assert abs(lines.loc["x1", "last"] - every.group_table().loc["x1", "last"]) < 0.03
    refused("measured must be one of", importance, table(x, y), groups=groups, measured=["x3"])


@pytest.mark.parametrize("kind", ["labels", "probabilities", "response", "count"])
def test_errors_are_of_labels_or_distances_in_the_units_of_y(kind):
    draw, x = normal(600, 2)
    logit = 3.0 * x[:, 0]
    right, how = np.maximum(expit(logit), expit(-logit)).mean(), {}
    if kind == "labels":
        y, error, without = (draw.random(600) < expit(logit)).astype(int), 1.0 - right, 0.5
    elif kind == "probabilities":
        y, error, without = two(logit), 0.0, 0.5
    elif kind == "response":
        y = 100.0 * (x[:, 0] + draw.normal(0.0, 0.5, 600))
        error, without = (100.0 * s * math.sqrt(2.0 / math.pi) for s in (0.5, math.sqrt(1.25)))
    else:
        y, how = (
            draw.poisson(np.exp(1.0 + 0.8 * x[:, 0])).astype(float),
            {"likelihood": PoissonLikelihood()},
        )
        error, without = np.abs(y - np.exp(1.0 + 0.8 * x[:, 0])).mean(), np.abs(y - y.mean()).mean()
    found = importance(table(x, y), **how).group_table()
    assert found.loc["x1", "error"] == pytest.approx(error, abs=0.1 * without)
    assert found.loc["x1", "error_without"] == pytest.approx(without, rel=0.15)
    assert found.loc["x2", "error_without"] == pytest.approx(error, abs=0.1 * without)


def test_a_response_that_is_predicted_without_error_has_its_gains():
    """Of y = x1 + 2 x2, without noise, first_1 is ½ log(5 / 4) and no gain is missing."""
    x = torch.randn(400, 3, generator=torch.Generator().manual_seed(0))
    table = importance((x, x @ torch.tensor([1.0, 2.0, 0.0]))).group_table()
    assert not table.isna().any().any()
    assert table["found"].to_dict() == {"x2": True, "x1": True, "x3": False}
    for name, ratio in (("x1", 5 / 4), ("x2", 5.0)):
        exact, error = math.log(ratio) / 2, table.loc[name, "first_error"]
        assert abs(table.loc[name, "first"] - exact) < 4 * error + 0.02


def test_a_column_that_decides_how_far_responses_spread_says_so_alone():
    """`first = ½ log E[s²] − E[log s]` of `y ~ N(0, s(x)²)` beside one normal for all rows."""
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(1500, 2, generator=draws).sign()
    scale = torch.where(x[:, 0] > 0, 1.5, 0.8)
    found = importance((x, scale * torch.randn(1500, generator=draws))).group_table()
    law = math.log(float(scale.square().mean())) / 2 - float(scale.log().mean())
    for name in ("first", "last"):
        assert abs(found.at["x1", name] - law) < 4 * found.at["x1", f"{name}_error"]
        assert found.at["x1", name] > 0.6 * law
    assert found["found"].to_dict() == {"x1": True, "x2": False}
