"""The process: signals, warnings and threads."""

import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from lexppl.cli.terminal.errors import one_line
from lexppl.cli.terminal.output import warn


@contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """Treat the signal of schedulers and `kill` as Ctrl-C."""
    with _handled((signal.SIGTERM,), signal.default_int_handler):
        yield


@contextmanager
def deferred_interrupts(raises: bool = True) -> Iterator[None]:
    """Raise KeyboardInterrupt of a signal in the block at its end, or ignore it."""
    received: list[int] = []
    with _handled((signal.SIGINT, signal.SIGTERM), lambda number, frame: received.append(number)):
        yield
    if received and raises:
        raise KeyboardInterrupt


@contextmanager
def _handled(signals: tuple[signal.Signals, ...], handler: Any) -> Iterator[None]:
    """Handle signals, but those that the program was started to ignore."""
    if threading.current_thread() is not threading.main_thread():
        # Python delivers signals to the main thread only.
        yield
        return
    with ExitStack() as after:
        for number in signals:
            before = signal.getsignal(number)
            if before not in (signal.SIG_IGN, None):
                signal.signal(number, handler)
                after.callback(signal.signal, number, before)
        yield


@contextmanager
def short_warnings() -> Iterator[None]:
    """Print warnings in one line without their place; commands word a collapse themselves."""
    from lexppl.inference import CollapseWarning  # noqa: PLC0415 - loads torch

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        for category in (
            DeprecationWarning,
            PendingDeprecationWarning,
            FutureWarning,
            ResourceWarning,
            CollapseWarning,
        ):
            warnings.simplefilter("ignore", category)
        warnings.showwarning = lambda message, *_: warn(one_line(message))
        yield


@contextmanager
def one_thread(wanted: bool) -> Iterator[None]:
    """Let torch use one thread in the block: with small matrices threads wait for each other."""
    import torch  # noqa: PLC0415 - slow

    before = torch.get_num_threads()
    if wanted:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
