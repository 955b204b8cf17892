"""Gains against enumeration and closed forms."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import norm
from torch import nn

from lexppl.evaluation import (
    FeatureGroups,
    Folds,
    feature_gains,
    gain_table,
    group_table,
)
from lexppl.evaluation.gains import _log_mean
from lexppl.models import (
    ConstantImputer,
    GaussianImputer,
    Grouping,
    HeteroscedasticLikelihood,
    NormalLikelihood,
)
from tests.evaluation.fitted_by_hand import judge_of, linear

FILL, SCALE = 0.25, 1.0  # exact in single precision, in which they are given
N, C = 7, 3
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(N, 4))
WEIGHTS = RANDOM.normal(0.0, 1.5, (2, C, 4))
MASKS = RANDOM.integers(0, 2, (3, N, 4)).astype(float)
Y = {
    "labels": np.arange(N) % C,
    "probabilities": RANDOM.dirichlet(np.ones(C), N),
    "normal": RANDOM.normal(size=N),
}
GROUPS = FeatureGroups(("pair", "b", "d"), ((0, 2), (1,), (3,)))


def linear_judge(weights, kind="labels", **options):
    options = {"columns": 4, "imputer": ConstantImputer(FILL), "labels": tuple(range(C)), **options}
    if kind == "normal":
        options |= {"labels": None, "likelihood": NormalLikelihood(SCALE)}
        return judge_of(*(linear(one[:1]) for one in weights), **options)
    return judge_of(*map(linear, weights), **options)


def density(weights, filled, y, kind):
    """p(y | filled) of one row, or of each class where y holds probabilities."""
    outputs = weights @ filled
    if kind == "normal":
        return norm.pdf(y, outputs[0], SCALE)
    p = np.exp(outputs) / np.exp(outputs).sum()
    return p if kind == "probabilities" else p[y]


def log_mean(weights, y, kind, masks, n, columns):
    """log 1/L Σ_l p(y_n | x_n with what mask l hides filled), over all judges."""
    each = [
        density(one, np.where(mask[columns] == 1, X[n], FILL), y[n], kind)
        for one in weights
        for mask in masks
    ]
    mean = np.log(np.mean(each, axis=0))
    return float(y[n] @ mean) if kind == "probabilities" else float(mean)


def written_out(weights, y, kind, masks, groups, columns=(0, 1, 2, 3)):
    """Gains of entries and of groups, row by row and mask by mask."""
    entries = masks.shape[2]
    single, together = np.zeros((N, entries)), np.zeros((N, len(groups)))
    for n in range(N):
        drawn = masks[:, n].tolist()

        def value(some, n=n):
            return log_mean(weights, y, kind, np.array(some), n, list(columns))

        for k, group in enumerate(groups):
            without = [[0 if g in group else m[g] for g in range(entries)] for m in drawn]
            together[n, k] = value(drawn) - value(without)
            # Of a member the rest of the group is known in the draws that keep any of it.
            full = [
                [max(m[j] for j in group) if g in group else m[g] for g in range(entries)]
                for m in drawn
            ]
            for j in group:
                less = [[0 if g == j else m[g] for g in range(entries)] for m in full]
                single[n, j] = value(full) - value(less)
    return single, together


def tensors(*arrays):
    return [torch.as_tensor(array) for array in arrays]


@pytest.mark.smoke
@pytest.mark.parametrize("kind", Y)
@pytest.mark.parametrize("judges", [1, 2])
def test_gains_are_those_written_out(kind, judges):
    weights, y = WEIGHTS[:judges], Y[kind]
    judge = linear_judge(weights, kind)
    found = feature_gains(judge, *tensors(X, y, MASKS), groups=GROUPS)
    single, together = written_out(weights, y, kind, MASKS, GROUPS.members)
    np.testing.assert_allclose(found.gains, single, atol=1e-12)
    np.testing.assert_allclose(found.of_groups, together, atol=1e-12)
    assert found.groups is GROUPS and found.part is None
    # Other arithmetic is another number: single draws, members left out of given masks.
    each = [feature_gains(judge, *tensors(X, y, m)).gains for m in MASKS]
    assert (torch.stack(each).mean(0) - found.gains).abs().max() > 1e-2
    alone = feature_gains(judge, *tensors(X, y, MASKS))
    single, _ = written_out(weights, y, kind, MASKS, [[0], [1], [2], [3]])
    np.testing.assert_allclose(alone.gains, single, atol=1e-12)
    assert alone.of_groups is None and alone.groups is None
    none = feature_gains(judge, *tensors(X, y)).gains
    ones = feature_gains(judge, *tensors(X, y, np.ones((5, N, 4)))).gains
    torch.testing.assert_close(none, ones)
    assert (alone.gains - found.gains)[:, [0, 2]].abs().max() > 1e-2


@pytest.mark.parametrize("kind", Y)
def test_an_entry_of_a_grouping_is_its_columns(kind):
    columns, masks = [0, 1, 2, 1], MASKS[..., :3]
    judge = linear_judge(WEIGHTS[:1], kind, grouping=Grouping(columns, ["a", "b", "c"]))
    groups = FeatureGroups(("one", "two"), ((0,), (1, 2)))
    found = feature_gains(judge, *tensors(X, Y[kind], masks), groups=groups)
    single, together = written_out(WEIGHTS[:1], Y[kind], kind, masks, groups.members, columns)
    np.testing.assert_allclose(found.gains, single, atol=1e-12)
    np.testing.assert_allclose(found.of_groups, together, atol=1e-12)
    assert found.entry_names == ("a", "b", "c")


class Conditional(nn.Module):
    """The true N(mean, scale) of y = w · x + e given the entries that are not the filling, where x
    is normal with a covariance."""

    def __init__(self, weights, covariance, noise, fill=1e3):
        super().__init__()
        self.weights, self.covariance, self.noise, self.fill = weights, covariance, noise, fill
        self.slope = nn.Parameter(torch.zeros(()))

    def given(self, kept):
        """Weights of the kept entries, and the variance of y given them."""
        covariance, kept = self.covariance, list(kept)
        along = covariance @ self.weights
        weights = np.linalg.pinv(covariance[np.ix_(kept, kept)]) @ along[kept]
        return weights, self.weights @ along + self.noise**2 - weights @ along[kept]

    def forward(self, x):
        flat, out = x.detach().reshape(-1, x.shape[-1]).numpy(), []
        for row in flat:
            kept = np.flatnonzero(row != self.fill)
            weights, variance = self.given(kept)
            out.append([weights @ row[kept], math.log(variance)])
        return torch.tensor(out).reshape(*x.shape[:-1], 2) + self.slope * 0


def sampled(weights, covariance, noise, rows):
    random = np.random.default_rng(1)
    x = random.multivariate_normal(np.zeros(len(weights)), covariance, rows, method="svd")
    return x, x @ weights + random.normal(0.0, noise, rows)


def conditional_judge(law):
    return judge_of(
        law,
        likelihood=HeteroscedasticLikelihood(),
        imputer=ConstantImputer(law.fill),
        columns=len(law.weights),
        labels=None,
    )


def information(law, without):
    """I(y; x_S | rest) in nats, in closed form."""
    every = range(len(law.weights))
    rest = law.given([j for j in every if j not in without])[1]
    return 0.5 * math.log(rest / law.given(every)[1])


@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_the_mean_gain_of_the_law_is_the_conditional_mutual_information(correlation):
    covariance = np.eye(3)
    covariance[0, 1] = covariance[1, 0] = correlation
    law = Conditional(np.array([1.0, 0.5, 0.0]), covariance, 0.3)
    x, y = sampled(law.weights, covariance, law.noise, 3000)
    groups = FeatureGroups(("pair", "null"), ((0, 1), (2,)))
    found = feature_gains(conditional_judge(law), *tensors(x, y), groups=groups)
    exact = [information(law, {j}) for j in range(3)] + [information(law, {0, 1})]
    each = torch.cat([found.gains, found.of_groups[:, :1]], 1).numpy()
    assert np.abs(each[:, 2]).max() < 1e-12 and exact[2] == pytest.approx(0.0, abs=1e-12)
    error = each[:, [0, 1, 3]].std(0) / math.sqrt(len(x))
    z = (each[:, [0, 1, 3]].mean(0) - np.array(exact)[[0, 1, 3]]) / error
    assert np.abs(z).max() < 4
    wrong = information(law, {0}) if correlation else information(law, {0, 1})
    assert abs(each[:, 1].mean() - wrong) > 4 * error[1]


def test_each_of_two_copies_is_worth_nothing_and_their_group_is():
    covariance = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    law = Conditional(np.array([1.0, 0.0, 0.4]), covariance, 0.3)
    x, y = sampled(law.weights, covariance, law.noise, 2000)
    # The covariance's root has them alike to 1e-8.
    x[:, 1] = x[:, 0]
    groups = FeatureGroups(("copies", "c"), ((0, 1), (2,)))
    found = feature_gains(conditional_judge(law), *tensors(x, y), groups=groups)
    assert found.gains[:, :2].abs().max() < 1e-6
    table, members = group_table(found), gain_table(found)
    assert table["found"].all() and table.loc["copies", "gain"] == pytest.approx(
        information(law, {0, 1}), abs=4 * float(found.of_groups[:, 0].std()) / math.sqrt(2000)
    )
    assert members["found"].to_dict() == {"x1": False, "x2": False, "x3": True}


def test_both_sides_have_the_same_imputations_and_the_seed_decides():
    unread = WEIGHTS[:1].copy()
    unread[..., 1] = 0.0
    judge, (x, y, masks) = (
        linear_judge(unread, imputer=GaussianImputer()),
        tensors(X, Y["labels"], MASKS),
    )
    torch.manual_seed(3)
    state = torch.get_rng_state()
    found, again, other = (
        feature_gains(judge, x, y, masks, imputations=3, seed=seed).gains for seed in (1, 1, 2)
    )
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(found, again) and not torch.equal(found, other)
    assert found[:, 1].abs().max() < 1e-12 and found[:, [0, 2, 3]].abs().min() > 0


def test_each_row_is_judged_by_the_replicate_that_holds_it_out():
    weights = np.concatenate([WEIGHTS, WEIGHTS[:1] + 1.0])
    x, y, masks = tensors(X, Y["labels"], MASKS)
    folds = Folds(torch.tensor([2, 0, 1, 0, 2, 1, 0]), 3)
    options = {"groups": GROUPS, "folds": folds}
    found = feature_gains(linear_judge(weights), x, y, masks, **options)
    assert torch.equal(found.part, folds.part)
    for r in range(3):
        single, together = written_out(weights[[r]], Y["labels"], "labels", MASKS, GROUPS.members)
        rows = folds.rows(r)
        np.testing.assert_allclose(found.gains[rows], single[rows], atol=1e-12)
        np.testing.assert_allclose(found.of_groups[rows], together[rows], atol=1e-12)
    weights[1] += 0.5
    moved = feature_gains(linear_judge(weights), x, y, masks, **options)
    changed = (moved.gains != found.gains).any(1)
    assert torch.equal(changed, folds.part == 1)
    with pytest.raises(ValueError, match="3 folds need as many replicates, not 2"):
        feature_gains(linear_judge(WEIGHTS), x, y, masks, folds=folds)
    with pytest.raises(ValueError, match="folds of 6 rows; there are 7"):
        feature_gains(linear_judge(weights), x, y, masks, folds=folds.take(slice(6)))


class Impossible(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.value = nn.Parameter(torch.tensor(value).double())

    def forward(self, x):
        return torch.where(x[..., :1] > 0, self.value, 0.0) * x.new_tensor([0.0, 0.0, 1.0]).abs()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_has_no_finite_likelihood_has_no_gain(value):
    judge, y = judge_of(Impossible(value), columns=4, labels=None), torch.arange(N) % C
    with pytest.raises(FloatingPointError, match=r"NaN or infinite in \d of 7 rows"):
        feature_gains(judge, torch.as_tensor(np.abs(X)), y)


P = torch.as_tensor(Y["probabilities"])
REFUSED = {
    "groups of other entries": ({"groups": FeatureGroups(("a",), ((0, 1, 2),))}, "be of 4 entries"),
    "no probabilities": ({"y": P[:, :2]}, r"shape \(N, 3\) for classes=3"),
    "classes": ({"y": P[:, :2] / P[:, :2].sum(-1, keepdim=True)}, r"shape \(N, 3\) for classes=3"),
    "one class": ({"y": torch.ones(N, 1).double()}, r"give y\[:, 0\]"),
    "names": ({"entry_names": ["a"]}, "entry_names must be 4 names"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_gain_is_refused(case):
    options, words = REFUSED[case]
    given = {"x": torch.as_tensor(X), "y": torch.as_tensor(Y["labels"]), **options}
    with pytest.raises(ValueError, match=words):
        feature_gains(linear_judge(WEIGHTS), **given)


def test_the_logarithm_of_a_mean_of_few_draws_has_no_first_order_bias():
    """Of 4 draws of exp(U), U uniform: E log(mean) is too low by about var/(2 · 4 · mean²)."""
    each = torch.rand(1, 4, 200_000, generator=torch.Generator().manual_seed(0)).double()
    truth = math.log(math.e - 1.0)
    plain = each[:, :3].logsumexp((0, 1)) - math.log(3.0)
    torch.testing.assert_close(_log_mean(each[:, :3]), plain)
    found = _log_mean(each)
    error = float(found.std()) / math.sqrt(found.numel())
    bias = float((each.logsumexp((0, 1)) - math.log(4.0)).mean()) - truth
    assert bias < -20 * error and abs(float(found.mean()) - truth) < 0.1 * abs(bias)
    # A half without support leaves the plain mean.
    each[:, :2, 0] = -math.inf
    assert _log_mean(each)[0] == pytest.approx(each[0, 2:, 0].logsumexp(0).item() - math.log(4.0))


def test_a_judge_that_predicts_worse_than_the_explainer_has_no_gains():
    """By more than two standard errors of the rows' differences, weights and folds included."""
    judge, itself = linear_judge(WEIGHTS[:1]), replace(linear_judge(WEIGHTS[1:2]), name=None)
    y, drawn = Y["labels"], tensors(X, Y["labels"], MASKS)
    every = [0, 1, 2, 3]
    own = torch.tensor(
        [log_mean(WEIGHTS[:1], y, "labels", MASKS[:, n], n, every) for n in range(N)]
    )
    plain = feature_gains(judge, *drawn, groups=GROUPS)
    more = torch.linspace(-1.0, 1.0, N, dtype=torch.float64)
    error = float(more.std()) / math.sqrt(N)
    # Groups and their members, by one judge or by two.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for known in (
            feature_gains(judge, *drawn, groups=GROUPS, explainer=own + more + 1.9 * error),
            feature_gains(replace(judge, name=None), *drawn, groups=GROUPS, explainer=own + 9.0),
        ):
            torch.testing.assert_close(known.gains, plain.gains)
            torch.testing.assert_close(known.of_groups, plain.of_groups)
    behind = {"explainer": own + more + 2.1 * error, "groups": GROUPS}
    said = (
        f"EVAL-X predicts worse than the explainer, by {2.1 * error:.3f} ± {error:.3f} nats a row"
    )
    with pytest.warns(UserWarning, match=f"{said}: what features gain is not known"):
        none = feature_gains(judge, *drawn, **behind)
    assert none.of_groups.isnan().all() and none.gains.isnan().all() and none.errors.isnan().all()
    for table in (group_table(none), gain_table(none)):
        assert table["gain"].isna().all() and not table["found"].any()
    with pytest.warns(UserWarning, match="the explainer itself judges groups in its place"):
        by_itself = feature_gains(judge, *drawn, itself=itself, **behind)
    assert by_itself.judge is None and plain.judge == "EVAL-X"
    expected = feature_gains(itself, *drawn, groups=GROUPS)
    torch.testing.assert_close(by_itself.of_groups, expected.of_groups)
    several = [g for group in GROUPS.members if len(group) > 1 for g in group]
    assert by_itself.gains[:, several].isnan().all()
    table = gain_table(by_itself)
    alone = ~table["group"].duplicated(keep=False)
    assert table["gain"].notna().equals(alone) and not table["found"][~alone].any()
    known = gain_table(expected).loc[table.index[alone]]
    pd.testing.assert_frame_equal(table[alone], known)
    # Of rows that count more the difference is another.
    weight = torch.where(more > 0, 1e-6, 1.0)
    weighted = feature_gains(judge, *drawn, weight=weight, **behind)
    torch.testing.assert_close(weighted.of_groups, plain.of_groups)
