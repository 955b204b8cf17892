"""Synthetic sets: formulas against values worked by hand, truth masks, frequencies of labels."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from scipy.stats import norm

from lexppl.choices.data_sets import synthetic_names
from lexppl.data import synthetic
from lexppl.data.synthetic import synthetic_set
from tests.refusals import over, refused

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


def test_seed_decides_and_leaves_the_global_state():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first, again, other = (synthetic("S1", rows=100, seed=s) for s in (4, 4, 5))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.x, again.x)
    assert torch.equal(first.y, again.y)
    assert not torch.equal(first.x, other.x)


def test_a_set_of_ones_own_is_drawn_as_a_named_one():
    named, own = synthetic("Syn4", rows=50, seed=3), synthetic(synthetic_set("Syn4"), 50, seed=3)
    assert torch.equal(named.x, own.x)
    assert torch.equal(named.y, own.y)
    assert (own.name, own.n_entries) == ("Syn4", 11)
    small = replace(synthetic_set("Syn1"), n_features=2)
    assert synthetic(small, rows=20).truth.shape == (20, 2)


def test_refusals():
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
