"""Settings and random states that a fit needs, put back when it is done."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyro
import torch
from pyro.nn import PyroModule
from pyro.poutine.messenger import Messenger


@contextmanager
def seeded(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Draw from a seed inside; the default generators of CPU and device are as before after.

    Example:
        >>> import torch
        >>> with seeded(0):
        ...     first = torch.randn(3)
        >>> with seeded(0):
        ...     torch.equal(first, torch.randn(3))
        True
    """
    device = torch.device(device)
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


@contextmanager
def program_settings(validate: bool) -> Iterator[None]:
    """Pyro's argument checks on or off, parameters local to their modules, and no denormal numbers,
    until the end."""
    with (
        pyro.validation_enabled(validate),
        pyro.settings.context(module_local_params=True),
        flushed_denormals(),
    ):
        yield


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Let numbers too small for full precision be zero inside, where the processor can.

    As a fit goes on, weights and moments decay to such numbers, and matrix products of them made
    its steps more than twice as slow.

    Example:
        >>> with flushed_denormals():
        ...     pass
    """
    smallest = torch.tensor(torch.finfo(torch.float64).tiny, dtype=torch.float64)
    before = bool(smallest / 2 == 0)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def keep_parameters_local(module: torch.nn.Module) -> None:
    """Let Pyro modules that were built with shared parameters be run with local ones.

    Pyro prepares a module for local parameters only if the setting is on when it is built.
    """
    for part in module.modules():
        if isinstance(part, PyroModule):
            context = part._pyro_context
            if not hasattr(context, "param_state"):
                context.param_state = {"params": {}, "constraints": {}}


class MiniBatch(Messenger):
    """Scale the rows of a mini-batch up to the data set: `N/B` for plates at dimension −1.

    A plate that the program itself subsamples has its scale already, and is left alone.

    Args:
        rows: N, the rows of the data set.
        batch: B, the rows of the mini-batch.
    """

    def __init__(self, rows: int, batch: int) -> None:
        super().__init__()
        self._batch = batch
        self._factor = rows / batch

    def _pyro_sample(self, msg: Any) -> None:
        for plate in msg["cond_indep_stack"]:
            if plate.dim == -1 and plate.size == self._batch and plate.full_size == self._batch:
                msg["scale"] = msg["scale"] * self._factor
