"""Seeds: the same numbers as torch's own, and nothing left behind where there is no accelerator."""

import numpy as np
import pytest
import torch

from lexppl.inference.contexts import seed_generators, seeded

IS_THERE = hasattr(torch, "accelerator") and torch.accelerator.is_available()


@pytest.mark.parametrize("seed", [0, 7, -1, 2**63 - 1, np.int64(5)])
def test_numbers_are_those_of_torchs_own_seed(seed):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        expected = torch.randn(5)
        seed_generators(seed)
        assert torch.equal(torch.randn(5), expected)


@pytest.mark.skipif(IS_THERE, reason="its generators are seeded too")
def test_accelerators_are_seeded_where_there_are_some(monkeypatch):
    seeds = []
    monkeypatch.setattr(torch, "manual_seed", seeds.append)
    with seeded(3):
        assert torch.initial_seed() == 3 and seeds == []
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    with seeded(3):
        assert seeds == [3]
