"""Datasets: what is refused at construction, stratified splits, subsets."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from lexppl.data import Dataset, load
from lexppl.data.stratification import stratified_parts
from tests.refusals import refusals, refused


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


def test_split_by_seed():
    data = load("diabetes")
    torch.manual_seed(0)
    before = torch.get_rng_state()
    numpy_before = np.random.get_state()[1].copy()  # noqa: NPY002
    first, again, other = (data.split(0.8, 0.2, seed=s)[1].x for s in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert (np.random.get_state()[1] == numpy_before).all()  # noqa: NPY002
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert len(first) in (88, 89)


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
