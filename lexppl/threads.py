"""State that threads share, held and put back: Pyro's handlers, generators and modules' modes."""

import os
import random
import threading
from collections.abc import Iterator
from contextlib import ContextDecorator, contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn


class ThreadLock(ContextDecorator):
    """A lock of one process, which the thread that holds it can take again; also a decorator.

    A process forked while another thread holds it has that call's handlers, modes and λ, half
    changed, and no thread that puts them back: there, to take the lock is an error.

    Raises:
        RuntimeError: in such a process.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._forked_while_held = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def __enter__(self) -> None:
        if self._forked_while_held:
            raise RuntimeError(
                "this process was forked while another thread was in fit or explain, and "
                "has the handlers, modes and λ of that call: fork before such calls, or start the "
                "process by multiprocessing.get_context('spawn')"
            )
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def _after_fork(self) -> None:
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._forked_while_held = True


ONE_THREAD = ThreadLock()
"""Held by `fit`, `explain` and all that draws: a call in another thread waits, and gives what it
would give alone. Processes have one each."""


@contextmanager
def own_random_state(
    device: torch.device | str | None = "cpu", enabled: bool = True
) -> Iterator[None]:
    """The default generators of CPU and device (None: of all), of NumPy and of Python are put back
    after what is drawn inside.

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
        states = np.random.get_state(), random.getstate()  # noqa: NPY002
        try:
            yield
        finally:
            if enabled:
                np.random.set_state(states[0])  # noqa: NPY002
                random.setstate(states[1])


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Evaluation mode inside; each part's own mode is put back. A function has no parts."""
    with ONE_THREAD:
        parts = model.modules() if isinstance(model, nn.Module) else ()
        # Frozen modules have no mode, and exported ones no `eval`.
        modes = [(part, part.training) for part in parts if hasattr(part, "training")]
        for part, _ in modes:
            part.training = False
        try:
            yield
        finally:
            for part, mode in modes:
                part.training = mode
