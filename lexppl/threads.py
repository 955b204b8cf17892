"""One thread at a time where programs run: threads share Pyro's handlers and torch's generators."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

ONE_THREAD = threading.RLock()
"""Held by `fit`, `explain` and all that draws: a call in another thread waits, and gives what it
would give alone. Processes have one each."""


@contextmanager
def own_random_state(
    device: torch.device | str | None = "cpu", enabled: bool = True
) -> Iterator[None]:
    """The default generators of CPU and device (None: of all) are put back after what is drawn
    inside.

    Example:
        >>> before = torch.get_rng_state()
        >>> with own_random_state():
        ...     _ = torch.rand(3)
        >>> torch.equal(torch.get_rng_state(), before)
        True
    """
    devices = None
    if device is not None:
        devices = [device] if torch.device(device).type == "cuda" else []
    with ONE_THREAD, torch.random.fork_rng(devices=devices, enabled=enabled):
        yield
