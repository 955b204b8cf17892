"""Groups of features, and the dependence by which they are found."""

import re

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import spearmanr

from lexppl.data import TableEncoding
from lexppl.data.encoding import TargetColumn
from lexppl.data.stratification import evenly
from lexppl.evaluation import FeatureGroups
from lexppl.evaluation.feature_groups import DEPENDENCE_ROWS, _title, dependence
from tests.refusals import refused

NAMES = ["age", "width", "height", "job"]


@pytest.fixture
def random():
    return np.random.default_rng(0)


def columns(*each):
    return torch.as_tensor(np.column_stack(each))


def one_hot(levels):
    return [(levels == level).astype(float) for level in np.unique(levels)]


def test_groups_of_a_sorted_table_are_those_of_all_rows(random):
    first = np.sort(random.normal(size=10 * DEPENDENCE_ROWS))
    x = columns(first, first + 0.4 * random.normal(size=len(first)))
    assert FeatureGroups.dependent(x, (0, 1), ("a", "b")).members == ((0, 1),)
    lowest = FeatureGroups.dependent(x[:DEPENDENCE_ROWS], (0, 1), ("a", "b"))
    assert lowest.members == ((0,), (1,))


def of_two(first, second):
    """The dependence of two entries, each of some columns."""
    found = dependence(columns(*first, *second), [0] * len(first) + [1] * len(second))
    assert (found == found.T).all() and (np.diag(found) == 1).all()
    assert ((found >= 0) & (found <= 1)).all()
    return found[0, 1]


@pytest.mark.smoke
@pytest.mark.parametrize(("rows", "most"), [(100, 0.55), (2000, 0.15)])
def test_what_is_independent_hardly_depends(rows, most, random):
    found = []
    for _ in range(100):
        a, b = random.normal(size=(2, rows))
        words = one_hot(random.integers(0, 4, rows))
        found += [of_two([a], [b]), of_two([a], words), of_two(one_hot(b > 0), words)]
    assert max(found) < most and np.mean(found) < 2 / np.sqrt(rows)


def test_of_numbers_it_is_at_least_spearmans_and_of_any_units(random):
    for correlation in np.linspace(-0.99, 0.99, 60):
        a, noise = random.normal(size=(2, 300))
        b = correlation * a + np.sqrt(1 - correlation**2) * noise
        found = of_two([a], [b])
        assert abs(spearmanr(a, b)[0]) - 1e-9 <= found < abs(correlation) + 0.3
        assert of_two([np.exp(a)], [b**3]) == pytest.approx(found, abs=1e-6)


def test_relations_that_are_not_monotone_count(random):
    a, noise = random.normal(size=(2, 1000))
    assert of_two([a], [a**2]) > 0.9 and abs(spearmanr(a, a**2)[0]) < 0.1
    assert of_two([a], [noise**2]) < 0.15


def test_a_category_may_be_a_function_of_a_number_and_of_a_category(random):
    a = random.normal(size=1500)
    parts = np.digitize(a, [-1, 0, 1])
    assert of_two([a], one_hot(parts)) > 0.9
    assert of_two([a], one_hot(random.permutation(parts))) < 0.15
    country, other = random.integers(0, 6, (2, 1500))
    assert of_two(one_hot(country), one_hot(country // 2)) == pytest.approx(1.0)
    assert of_two(one_hot(country), one_hot(other)) < 0.15
    # Goodman and Kruskal's τ by the counts: the larger of both ways, with its free parameters.
    blurred, taus = np.where(random.random(1500) < 0.5, country, other), []
    counts = pd.crosstab(country, blurred).to_numpy() / 1500
    for p in (counts, counts.T):
        within = 1 - (p**2 / p.sum(1)[:, None]).sum()
        taus.append(1 - within / 1494 / ((1 - (p.sum(0) ** 2).sum()) / 1499))
    assert of_two(one_hot(country), one_hot(blurred)) == pytest.approx(np.sqrt(max(taus)))


def test_what_is_constant_depends_on_nothing(random):
    a = random.normal(size=200)
    for constant in ([np.full(200, 3.0)], [np.zeros(200), np.ones(200)]):
        assert of_two([a], constant) == of_two(constant, one_hot(a > 0)) == 0.0
        assert of_two(constant, constant) == 0.0


def test_few_rows_and_more_than_are_read(random):
    for rows in (1, 2, 3):
        assert np.isfinite(dependence(columns(*random.normal(size=(3, rows))), [0, 1, 2])).all()
    x = columns(*random.normal(size=(2, 2 * DEPENDENCE_ROWS)))
    read = evenly(len(x), DEPENDENCE_ROWS)
    unread = np.setdiff1d(np.arange(len(x)), read)
    x[unread, 1] = x[unread, 0]
    assert (dependence(x, [0, 1]) == dependence(x[read], [0, 1])).all()


def test_a_value_and_its_missing_marker_are_one_entry(random):
    a, b = random.normal(size=(2, 400))
    table, missing = pd.DataFrame({"a": a, "b": b, "copy": a + 0.01 * b}), random.random(400) < 0.1
    for gaps in (["a"], ["a", "copy"]):
        table.loc[missing, gaps] = np.nan
        encoding = TableEncoding.fit(table, TargetColumn("y", ("0", "1")), hide_missing=True)
        x, entries = torch.as_tensor(encoding.encode(table)), encoding.groups
        assert len(entries) == x.shape[1] == 3 + len(gaps)
        assert FeatureGroups.dependent(x, entries, table.columns).members == ((0, 2), (1,))


def test_missing_values_do_not_hide_that_columns_depend(random):
    """Near copies of which each lacks other rows are one group; by their markers they were not."""
    a, b, noise = random.normal(size=(3, 600))
    word = np.where(a > 0, "high", "low").astype(object)
    table = pd.DataFrame({"a": a, "b": b, "copy": a + 0.01 * noise, "word": word})
    for column in table.columns:
        table.loc[random.random(600) < 0.2, column] = None if column == "word" else np.nan
    encoding = TableEncoding.fit(table, TargetColumn("y", ("0", "1")), hide_missing=True)
    x, entries, markers = torch.as_tensor(encoding.encode(table)), encoding.groups, encoding.markers
    found = dependence(x, entries, markers)
    assert found[0, 2] > 0.95 and found[0, 3] > 0.8 and found[0, 1] < 0.25
    assert dependence(x, entries)[0, 2] < 0.7
    # Of two columns it is that of the rows in which both are there.
    both = table[["a", "copy"]].dropna()
    alone = dependence(columns(both["a"], both["copy"]), [0, 1])[0, 1]
    assert found[0, 2] == pytest.approx(alone, abs=0.02)
    groups = FeatureGroups.dependent(x, entries, table.columns, markers=markers)
    assert groups.members == ((0, 2, 3), (1,))


def test_groups_by_name_and_alone():
    found = FeatureGroups.named({"size": ["height", "width"]}, NAMES)
    assert found.names == ("size", "age", "job") and found.members == ((2, 1), (0,), (3,))
    assert found.of_entries().tolist() == [1, 0, 0, 2]
    alone = FeatureGroups(tuple(NAMES), ((0,), (1,), (2,), (3,)))
    assert FeatureGroups.alone(NAMES) == FeatureGroups.named({}, NAMES) == alone
    # A group may be called as a member of it.
    assert FeatureGroups.named({"age": ["job", "age"]}, NAMES).names == ("age", "width", "height")


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ({"size": ["weight"]}, "'size' has the column 'weight', which the data does not have"),
        ({"a": ["age"], "b": ["age"]}, "'b' has the column 'age', which is in the group 'a' too"),
        ({"a": ["age", "age"]}, "is in the group 'a' too: leave it in one"),
        ({"job": ["age"]}, "as many different names, which no column outside them has"),
        *[({"a": wrong}, "must be a list of columns") for wrong in ("age", [], 3, None, {"b": 1})],
        ((("a", "b"), ((0,), (0, 1))), "each of 0 to 2 once, not [0, 0, 1]"),
        ((("a",), ((1,),)), "each of 0 to 0 once, not [1]"),
        ((("a", "b"), ((0,), ())), "each of 0 to"),
        ((("a",), ((0,), (1,))), "2 groups need as many different names"),
        ((("a", "a"), ((0,), (1,))), "2 groups need as many different names"),
    ],
)
def test_groups_are_a_partition_of_the_columns_that_there_are(groups, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        FeatureGroups(*groups) if isinstance(groups, tuple) else FeatureGroups.named(groups, NAMES)


def test_what_depends_is_one_group_called_by_the_words_of_its_members(random):
    a, b, noise = random.normal(size=(3, 500))
    x = columns(a + 0.4 * b, noise, a, a - 0.4 * b)
    found = FeatureGroups.dependent(x, range(4), ["p", "q", "middle", "r"])
    assert found.members == ((0, 2, 3), (1,)) and found.names == ("p / middle / r", "q")
    assert FeatureGroups.dependent(x, range(4), NAMES, 0.999) == FeatureGroups.alone(NAMES)
    assert len(FeatureGroups.dependent(x, range(4), NAMES, 0.001).members) < 3
    assert FeatureGroups.dependent(x[:, :1], [0], ["a"]) == FeatureGroups.alone(["a"])
    refused("cut must be a share", FeatureGroups.dependent, x, range(4), NAMES, 1.0)
    # Names of groups are unique, whatever columns are called.
    found = FeatureGroups.dependent(x[:, [2, 2, 1]], range(3), ["a", "b", "a / b"])
    assert found.members == ((0, 1), (2,)) and found.names == ("a (+1)", "a / b")
    found = FeatureGroups.dependent(x[:, [2, 2, 1]], range(3), ["of a 1", "of a 2", "of"])
    assert found.names == ("of a", "of")


OUTSIDE = [f"{how} {what}" for how in ("mean", "worst") for what in ("age", "height", "texture")]


@pytest.mark.parametrize(
    ("members", "outside", "title"),
    [
        (["mean radius", "worst area", "worst radius"], OUTSIDE, "radius / area"),
        (["mean texture", "worst texture"], [*OUTSIDE[:2], "texture error"], "texture"),
        (["capital-gain", "capital-loss"], ["age"], "capital"),
        (["education", "education-num"], ["age"], "education"),
        (["x1", "x2", "x3", "x4"], ["x5"], "x2 (+3)"),
        (["pixel 1", "pixel 2"], ["pixel 3", "pixel 4", "pixel 5"], "pixel 1 / pixel 2"),
        (["1", "2"], ["3"], "2 (+1)"),
        ([f"{letter * 30} a" for letter in "pq"], [], "a"),
        (["p" * 30, "q" * 30], [], "q" * 30 + " (+1)"),
        (["a"], ["b"], "a"),
    ],
)
def test_a_group_is_named_by_words_of_its_own(members, outside, title):
    assert _title(members, outside, members[len(members) > 1]) == title
