"""A seed and Pyro's own validation before each test of imputers."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _seed_and_validation() -> Iterator[None]:
    validation = torch.distributions.Distribution._validate_args
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
    torch.distributions.Distribution.set_default_validate_args(validation)
