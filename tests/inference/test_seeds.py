"""Seeds: the same numbers as torch's own, and nothing left behind where there is no accelerator."""

import numpy as np
import pytest
import torch

from lexppl.inference import contexts
from lexppl.inference.contexts import has_accelerator, seed_generators, seeded


@pytest.mark.parametrize("seed", [0, 7, -1, 2**63 - 1, np.int64(5)])
def test_numbers_are_those_of_torchs_own_seed(seed):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        expected = torch.randn(5)
        seed_generators(seed)
        assert torch.equal(torch.randn(5), expected)


@pytest.mark.skipif(has_accelerator(), reason="its generators are seeded too")
def test_nothing_is_kept_for_an_accelerator_that_is_not_there(monkeypatch):
    kept = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", kept.append)
    with seeded(3):
        assert torch.initial_seed() == 3 and kept == []
        torch.manual_seed(4)
        assert kept == [4]


def test_an_accelerator_that_is_there_is_seeded_too(monkeypatch):
    seeds = []
    monkeypatch.setattr(contexts, "has_accelerator", lambda: True)
    monkeypatch.setattr(torch, "manual_seed", seeds.append)
    with seeded(3):
        assert seeds == [3]
