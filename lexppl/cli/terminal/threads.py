"""How many threads torch may use."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread(wanted: bool) -> Iterator[None]:
    """One thread inside, if wanted; as many as before after.

    Small matrices gain nothing from a second thread, and threads that wait for each other on a
    busy machine make a fit up to nine times slower.

    Example:
        >>> before = torch.get_num_threads()
        >>> with one_thread(True):
        ...     torch.get_num_threads()
        1
        >>> torch.get_num_threads() == before
        True
    """
    before = torch.get_num_threads()
    if wanted:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
