"""Datasets: what is refused at construction, stratified splits, subsets."""

from __future__ import annotations

import dataclasses
import math
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn import datasets

from lexppl.choices.data_sets import synthetic_names
from lexppl.data import Dataset, SimulatedSurvival, load, synthetic, synthetic_survival
from lexppl.data.named_sets import survival_names
from lexppl.data.stratification import stratified_parts
from lexppl.data.synthetic import synthetic_set
from tests.gradients.enumeration import threshold
from tests.refusals import over, refusals, refused


def parts_of(**changed: Any) -> dict[str, Any]:
    return {
        "x": torch.tensor([[0.1, 1.0, 0.0], [0.7, 0.0, 1.0], [0.3, 0.0, 1.0]]),
        "y": torch.tensor([0, 1, 1]),
        "feature_names": ("age", "job=clerk", "job=smith"),
        "groups": (0, 1, 1),
        "entry_names": ("age", "job"),
        "target_name": "income",
        "class_names": ("low", "high"),
    } | changed


NAN = float("nan")
INF = float("inf")


test_refused = refusals(
    (
        {"x": torch.zeros(0, 3), "y": torch.zeros(0).long()},
        r"x must have shape \(N, D\), none of them 0; the shape is \(\d, \d\)",
    ),
    (
        {"x": torch.zeros(3, 0), "feature_names": (), "groups": ()},
        r"x must have shape \(N, D\), none of them 0; the shape is \(\d, \d\)",
    ),
    ({"x": torch.zeros(3)}, r"x must have shape \(N, D\), none of them 0; the shape is \(3,\)"),
    ({"y": torch.tensor([0, 1])}, r"y must have shape \(3,\).*the shape is \(2,\)"),
    ({"feature_names": ("age", "job")}, r"feature_names must .* \(3,\); the shape is \(2,\)"),
    ({"groups": (0, 1)}, r"groups must have shape \(3,\); the shape is \(2,\)"),
    ({"groups": (0, 2, 2)}, r"groups must use every mask entry 0 to 1.*\[0, 2\]"),
    ({"groups": (0, 0, 0)}, r"groups must use every mask entry 0 to 1.*\[0\]"),
    ({"entry_names": ("a", "a")}, "entry_names must differ.*'a'"),
    ({"feature_names": ("a", "b", "a")}, "feature_names must differ.*'a'"),
    ({"truth": torch.ones(3, 3)}, r"truth must have shape \(3, 2\).*\(3, 3\)"),
    ({"truth": torch.full((3, 2), 0.5)}, "truth must hold 0 and 1 only"),
    (
        {"x": torch.tensor([[NAN, 1.0, 0.0], [NAN, 0.0, NAN], [0.0, 0.0, 1.0]])},
        r"NaN in column 'age' \(2\), 'job=smith' \(1\)",
    ),
    (
        {"x": torch.tensor([[1.0, 1.0, 0.0], [2.0, 0.0, -INF], [0.0, 0.0, 1.0]])},
        r"infinite values in column 'job=smith' \(1\)",
    ),
    (
        {"y": torch.tensor([0.0, NAN, 1.0]), "class_names": None},
        "target 'income', must be finite; 1 of its",
    ),
    ({"y": torch.tensor([0, 1, 2])}, "labels 0 to 1.*it holds 0 to 2"),
    ({"y": torch.tensor([0, 1, -1])}, "labels 0 to 1.*it holds -1 to 1"),
    ({"class_names": ("low",)}, "target 'income' needs at least two classes"),
    ({"y": torch.tensor([1, 1, 1])}, "one class only: every row is 'high'"),
    ({"y": torch.full((3,), 2.5), "class_names": None}, "'income' is constant: 2.5"),
    (
        {"x": torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])},
        "constant columns.*leave out 'age', 'job=smith'",
    ),
    ({"x": torch.zeros(1, 3), "y": torch.tensor([0])}, "one row only"),
    of=lambda changed: Dataset(**parts_of(**changed)),
)


test_refused_types = refusals(
    ({"x": np.zeros((3, 3))}, "x must be a torch.Tensor; it is a ndarray"),
    ({"x": torch.zeros(3, 3).long()}, "x must be floating; it is torch.int64"),
    ({"y": torch.tensor([0.0, 1.0, 1.0])}, "y must be torch.long"),
    ({"class_names": None}, "y must be floating for regression"),
    ({"truth": [[1, 0]]}, "truth must be a torch.Tensor"),
    of=lambda changed: Dataset(**parts_of(**changed)),
    error=TypeError,
)


def test_a_part_may_be_one_row_of_one_class():
    part = Dataset(**parts_of(truth=torch.eye(3)[:, :2])).subset([2])
    assert (len(part), part.y.tolist(), part.truth.tolist()) == (1, [1], [[0.0, 0.0]])
    assert part.is_part
    refused("NaN", dataclasses.replace, part, x=part.x * NAN)


def test_subset_by_integers_booleans_and_slices():
    data = Dataset(**parts_of())
    for index in ([0, 2], torch.tensor([0, 2]), torch.tensor([True, False, True]), slice(0, 3, 2)):
        assert torch.equal(data.subset(index).x, data.x[[0, 2]])
        assert torch.equal(data.subset(index).y, data.y[[0, 2]])
    for nothing in ([], torch.zeros(3, dtype=torch.bool), slice(0, 0)):
        refused(r"at least one row|empty", data.subset, nothing)
    with pytest.raises(IndexError):
        data.subset([3])


def test_split_divides_the_rows_and_the_classes():
    data = load("digits")
    fractions = (0.7, 0.1, 0.2)
    parts = data.split(*fractions, seed=0)
    assert sum(len(part) for part in parts) == len(data)
    rows = torch.cat([part.x for part in parts])
    assert torch.equal(rows.unique(dim=0), data.x.unique(dim=0))
    whole = data.y.bincount(minlength=10)
    for part, fraction in zip(parts, fractions, strict=True):
        assert (part.y.bincount(minlength=10) - fraction * whole).abs().max() < 1
        assert abs(len(part) - fraction * len(data)) < 2


def test_rare_classes_are_seen_in_training():
    strata = np.array([0] * 90 + [1] * 2 + [2] + [3] * 5)
    for seed in range(20):
        train, valid, test = stratified_parts(strata, (0.8, 0.1, 0.1), seed)
        assert set(strata[train]) == {0, 1, 2, 3}
        assert sorted(np.concatenate([train, valid, test])) == list(range(98))
        assert all(abs(len(p) - 98 * f) <= 1 for p, f in ((train, 0.8), (valid, 0.1), (test, 0.1)))


def test_split_deals_rows_uniformly():
    strata = np.zeros(10, dtype=np.int64)
    counts = np.zeros(10)
    for seed in range(2000):
        counts[stratified_parts(strata, (0.7, 0.3), seed)[1]] += 1
    z = (counts - 600) / np.sqrt(2000 * 0.3 * 0.7)
    # Fails by chance with probability below 1e-5 (10 z-scores, bound 5).
    assert np.abs(z).max() < 5


@pytest.mark.parametrize("fractions", [(1.0,), (0.5, 0.6), (0.5, 0.4), (1.5, -0.5), (1.0, 0.0)])
def test_split_refuses_fractions(fractions):
    with pytest.raises(ValueError, match="fractions must be two or more positive numbers"):
        load("wine").split(*fractions, seed=0)


# Shipped sets: shapes, standardisation, names.


@pytest.mark.smoke
def test_values_are_those_of_scikit_learn():
    bunch = datasets.load_breast_cancer()
    data = load("breast_cancer", dtype=torch.float64)
    scale = bunch.data.std(0)
    np.testing.assert_allclose(data.x.numpy(), (bunch.data - bunch.data.mean(0)) / scale)
    assert [data.class_names[label] for label in data.y] == list(bunch.target_names[bunch.target])
    assert data.entry_names == tuple(bunch.feature_names)


def test_digits_keep_the_order_of_classes_and_lose_the_constant_pixels():
    bunch = datasets.load_digits()
    data = load("digits")
    assert data.class_names == tuple("0123456789")
    assert data.y.tolist() == bunch.target.tolist()
    constant = set(np.asarray(bunch.feature_names)[bunch.data.std(0) == 0])
    assert set(bunch.feature_names) - set(data.entry_names) == constant
    assert len(constant) == 3


def test_refusals():
    refused(r"no shipped data set 'iris'.*'breast_cancer'.*'S3'", load, "iris")
    for name in ("wine", "S1"):
        refused("standardise_target is for", load, name, standardise_target=True)


# Sets of survival times: real ones by their published counts, simulated ones by their formulas.


PUBLISHED = {
    "rossi": ("lifelines", 432, 7, 114),
    "gbsg2": ("sksurv", 686, 8, 299),
    "whas500": ("sksurv", 500, 14, 215),
    "veterans_lung_cancer": ("sksurv", 137, 6, 128),
}


@pytest.mark.parametrize("name", survival_names())
def test_real_sets_have_their_rows_and_events(name):
    library, rows, entries, events = PUBLISHED[name]
    pytest.importorskip(library)
    data = load(name, dtype=torch.float64)
    assert (len(data), data.n_entries, int(data.y[:, 1].sum())) == (rows, entries, events)
    assert data.task == "survival" and data.y.shape == (rows, 2)
    assert data.y.dtype == torch.float64 and bool((data.y[:, 0] > 0).all())
    assert f"survival times with {events} events" in repr(data)


@pytest.mark.parametrize("module", ["lifelines.datasets", "sksurv.datasets"])
def test_a_missing_library_is_told_in_one_line(module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    name = "rossi" if "lifelines" in module else "gbsg2"
    error = refused(r'pip install "lexppl\[survival\]"', load, name, error=ImportError)
    assert "\n" not in str(error)


def test_names_and_arguments_that_do_not_go():
    refused(r"no shipped data set 'rosi'.*'rossi'", load, "rosi")
    refused("'rossi' is none", load, "rossi", standardise_target=True)
    refused("rows must be a whole number", synthetic_survival, rows=0)
    refused("censored must be", SimulatedSurvival, censored=1.0)
    refused("shape must be", SimulatedSurvival, shape=0.0)
    with pytest.raises(ValueError, match=r"y must have shape \(3,\), or \(3, 2\), or \(3, 3\)"):
        Dataset(torch.ones(3, 1), torch.ones(3, 4), ("a",), (0,), ("a",), "t", is_part=True)


@pytest.mark.smoke
@pytest.mark.parametrize("shape", [1.0, 2.0])
def test_simulated_times_follow_their_hazard(shape):
    """exp(−H(T)) is uniform: its first two moments, and those under another shape."""
    distribution = SimulatedSurvival(shape=shape, scale=3.0, censored=0.0)
    data = synthetic_survival(20_000, 5, distribution=distribution, dtype=torch.float64)
    assert bool((data.y[:, 1] == 1).all())

    def z(of):
        u = of.survival(data.x, data.y[:, 0])
        first = (u.mean() - 1 / 2) / math.sqrt(1 / 12 / len(u))
        second = (u.square().mean() - 1 / 3) / math.sqrt(4 / 45 / len(u))
        return max(abs(float(first)), abs(float(second)))

    assert z(distribution) < threshold(2)
    assert z(SimulatedSurvival(shape=1.2 * shape, scale=3.0)) > 2 * threshold(2)


@pytest.mark.parametrize("censored", [0.2, 0.6])
def test_as_many_are_censored_as_was_asked(censored):
    distribution = SimulatedSurvival(censored=censored)
    data = synthetic_survival(20_000, 6, distribution=distribution)
    error = math.sqrt(censored * (1 - censored) / 20_000)
    # The end of censoring is itself set on draws.
    assert abs(1 - float(data.y[:, 1].mean()) - censored) < 5 * error


def test_the_switch_says_what_is_relevant():
    distribution = SimulatedSurvival()
    data = synthetic_survival(200, 7, dtype=torch.float64)
    x = data.x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(distribution.log_hazard(x).sum(), x)
    relevant = data.truth.clone()
    relevant[:, 6] = 0
    assert torch.equal((slope != 0).double(), relevant)
    moved = data.x.clone()
    moved[:, 6] *= -1
    changed = distribution.log_hazard(moved) != distribution.log_hazard(data.x)
    assert bool(changed.all())


# Synthetic sets: formulas against values worked by hand, truth masks, frequencies of labels.


ROW = [0.5, -1.5, 0.1, -0.2, 0.3, -0.4, 1.2, -0.7, 0.9, -1.1, 0.0]

LOG_F_A = 0.5 * -1.5
LOG_F_B = 0.1**2 + 0.2**2 + 0.3**2 + 0.4**2 - 4
LOG_F_C = {
    "l2x-code": -10 * math.sin(0.2 * 1.2) + 0.7 + 0.9 + math.exp(1.1) - 2.4,
    "l2x-paper": -100 * math.sin(2 * 1.2) + 2 * 0.7 + 0.9 + math.exp(1.1),
    "q-fit-code": -100 * math.sin(0.2 * 1.2) + 0.7 + 0.9 + math.exp(1.1) - 2.4,
}


def row_with_control(control):
    return torch.tensor([[*ROW[:10], control]], dtype=torch.float64)


@pytest.mark.parametrize("constant", list(LOG_F_C))
@over(
    ("Syn1", "A", "A"),
    ("Syn2", "B", "B"),
    ("Syn3", "C", "C"),
    ("Syn4", "A", "B"),
    ("Syn5", "A", "C"),
    ("Syn6", "B", "C"),
)
def test_probability_is_the_formula(name, below, above, constant):
    expected = {"A": LOG_F_A, "B": LOG_F_B, "C": LOG_F_C[constant]}
    distribution = synthetic_set(name, constant)
    for control, branch in ((-0.3, below), (0.3, above), (0.0, above)):
        p = distribution.probability(row_with_control(control))
        torch.testing.assert_close(
            p, torch.tensor([1 / (1 + math.exp(expected[branch]))], dtype=torch.float64)
        )


@over(
    ("Syn1", {0, 1}, {0, 1}),
    ("Syn2", {2, 3, 4, 5}, {2, 3, 4, 5}),
    ("Syn3", {6, 7, 8, 9}, {6, 7, 8, 9}),
    ("S1", {0, 1, 10}, {2, 3, 4, 5, 10}),
    ("S2", {0, 1, 10}, {6, 7, 8, 9, 10}),
    ("S3", {2, 3, 4, 5, 10}, {6, 7, 8, 9, 10}),
)
def test_truth_is_the_branch_and_the_control(name, below, above):
    distribution = synthetic_set(name)
    for control, expected in ((-1.0, below), (1.0, above)):
        truth = distribution.truth(row_with_control(control))
        assert set(truth[0].nonzero().flatten().tolist()) == expected


def label_z(name):
    """Return the largest z-score of Σ w(x) (y − P(y=1|x)) for weights that differ by branch."""
    data = synthetic(name, rows=40_000, seed=11, dtype=torch.float64)
    p = synthetic_set(name).probability(data.x)
    scores = []
    for weight in (torch.ones_like(p), (data.x[:, 10] < 0).double(), data.x[:, 0] * data.x[:, 1]):
        deviation = (weight * (data.y - p)).sum()
        scores.append(abs(float(deviation / (weight**2 * p * (1 - p)).sum().sqrt())))
    return max(scores)


# 18 z-scores over the six sets; fails by chance with probability below 1e-5.
BOUND = norm.isf(1e-5 / 18 / 2)


@pytest.mark.smoke
@pytest.mark.parametrize("name", synthetic_names()[:6])
def test_labels_follow_the_law(name):
    assert label_z(name) < BOUND


def test_features_are_standard_normal_and_independent():
    x = synthetic("S3", rows=40_000, seed=3, dtype=torch.float64).x
    n = len(x)
    bound = norm.isf(1e-5 / (11 + 66) / 2)
    assert (x.mean(0) * n**0.5).abs().max() < bound
    second = x.T @ x / n - torch.eye(11, dtype=torch.float64)
    sd = (1 + torch.eye(11, dtype=torch.float64)) ** 0.5
    assert (second / sd * n**0.5).abs().max() < bound


def test_a_set_of_ones_own_is_drawn_as_a_named_one():
    named, own = synthetic("Syn4", rows=50, seed=3), synthetic(synthetic_set("Syn4"), 50, seed=3)
    assert torch.equal(named.x, own.x)
    assert torch.equal(named.y, own.y)
    assert (own.name, own.n_entries) == ("Syn4", 11)
    small = replace(synthetic_set("Syn1"), n_features=2)
    assert synthetic(small, rows=20).truth.shape == (20, 2)


def test_refused_synthetic_sets():
    refused(r"name of a synthetic set must be one of .*'Syn1'.*'S3'.* it is 'S7'", synthetic, "S7")
    known = "'l2x-code', 'l2x-paper', 'q-fit-code'"
    refused(rf"constant must be one of \[{known}\]; it is 'x'", synthetic_set, "Syn1", constant="x")
    refused("rows must be a whole number of at least 1; it is 0", synthetic, "S1", rows=0)
    refused(
        r"x must have shape \(…, 11\); the shape is \(3, 10\)",
        synthetic_set("S1").probability,
        torch.zeros(3, 10),
    )


@pytest.mark.parametrize("name", ["Syn1", "Syn3", "S3"])
def test_the_likelier_labels_are_of_the_same_rows(name):
    drawn, likely = (synthetic(name, 2000, 3, likeliest=likeliest) for likeliest in (False, True))
    assert torch.equal(drawn.x, likely.x)
    assert torch.equal(drawn.truth, likely.truth)
    p = synthetic_set(name).probability(likely.x.double())
    assert torch.equal(likely.y, (p > 0.5).long())
    assert not torch.equal(likely.y, drawn.y)
