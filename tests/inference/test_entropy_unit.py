"""The entropy of the base rate against numbers worked out by hand."""

import math

import pytest
import torch

from lexppl.inference import annealed, entropy_unit


def nats(*shares):
    return -sum(share * math.log(share) for share in shares)


def test_labels():
    y = torch.tensor([0] * 97 + [1])
    assert entropy_unit(y) == pytest.approx(nats(0.98, 0.02) / math.log(2.0), rel=1e-12)
    assert entropy_unit(y.int()) == entropy_unit(y)
    even = torch.arange(8) % 4
    assert entropy_unit(even) == pytest.approx(2.0, rel=1e-12)
    # A class that no row has counts one row, as every class does.
    assert entropy_unit(torch.tensor([0, 0]), classes=2) == pytest.approx(
        nats(0.75, 0.25) / math.log(2.0)
    )


def test_probabilities_are_of_their_mean():
    p = torch.tensor([[0.9, 0.1], [0.7, 0.3]])
    assert entropy_unit(p) == pytest.approx(nats(2.6 / 4, 1.4 / 4) / math.log(2.0), rel=1e-6)
    assert entropy_unit(torch.eye(2)[torch.tensor([0, 1, 1])]) == pytest.approx(
        entropy_unit(torch.tensor([0, 1, 1]))
    )


def test_a_response_has_none():
    assert entropy_unit(1000.0 * torch.randn(20)) == 1.0


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (torch.zeros(0), "N >= 1"),
        (torch.zeros(3, 2, 2), "it has shape"),
        (torch.zeros(3, dtype=torch.long), "one label only"),
    ],
)
def test_mistakes(y, words):
    with pytest.raises(ValueError, match=words):
        entropy_unit(y)


def test_the_annealing_is_counted_in_it():
    for progress, entropy in ((0.0, 0.03), (0.3, 0.015), (0.6, 0.0)):
        assert annealed(unit=0.3).at(progress).spec.entropy == pytest.approx(entropy)
        assert annealed(unit=0.3).at(progress).spec.penalty == annealed().at(progress).spec.penalty
    with pytest.raises(ValueError, match="unit must be a finite number above 0"):
        annealed(unit=0.0)
