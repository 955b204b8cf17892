"""scikit-learn's `random_state` as a seed."""

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

LARGEST_SEED = 2**31 - 1


def seed_of(random_state: Any) -> int:
    """A number is the seed; a generator draws one; None takes one from the system.

    NumPy's global random state is neither read nor moved, also with None.

    Raises:
        ValueError: none of these.

    Example:
        >>> seed_of(3), 0 <= seed_of(None) < 2**31
        (3, True)
    """
    if random_state is None:
        return int(np.random.default_rng().integers(LARGEST_SEED))
    if random_state is np.random:
        raise ValueError("random_state must not be numpy's global one; give a number or None")
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(LARGEST_SEED))
    generator = check_random_state(random_state)
    if isinstance(random_state, np.random.RandomState):
        return int(generator.randint(LARGEST_SEED))
    return int(random_state)
