"""Global random states, which the compared libraries draw from, put back when they are done."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from lexppl.argument_checks import int_at_least
from lexppl.inference.contexts import seeded


@contextmanager
def all_seeded(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Draw from a seed inside, whatever generator is used; Python's, numpy's and torch's global
    generators are as before after.

    Args:
        seed: a whole number of at least 0.
        device: whose generator of torch is seeded too.

    Raises:
        ValueError: another seed.

    Example:
        >>> with all_seeded(0):
        ...     first = np.random.rand(2)
        >>> with all_seeded(0):
        ...     bool((np.random.rand(2) == first).all())
        True
    """
    seed = int_at_least("seed", seed, 0)
    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.seed(seed)
    np.random.seed(numpy_seed(seed))  # noqa: NPY002
    try:
        with seeded(seed, device):
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002


def numpy_seed(seed: int) -> int:
    """The seed as numpy's global generator takes it, below 2³²; small seeds stay as they are."""
    return seed % 2**32
