"""Ctrl-C, and what schedulers send in its place."""

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

ENDING = (signal.SIGINT, signal.SIGTERM)
"""Signals that ask the program to end."""


@contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """Let the signal by which schedulers and `kill` end a program be as Ctrl-C, so that what there
    is is written and nothing is left half done."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handled((signal.SIGTERM,), interrupt):
        yield


@contextmanager
def deferred_interrupts(raises: bool = True) -> Iterator[None]:
    """Ctrl-C inside is heard at the end.

    Args:
        raises: whether it is heard at all.

    Raises:
        KeyboardInterrupt: at the end, where there was one.
    """
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        heard.append(number)

    with _handled(ENDING, hear):
        yield
    if heard and raises:
        raise KeyboardInterrupt


@contextmanager
def _handled(signals: tuple[signal.Signals, ...], handler: Any) -> Iterator[None]:
    """Signals as a handler takes them, inside; but for those that the program was started to
    ignore."""
    if threading.current_thread() is not threading.main_thread():
        # Python tells signals to the main thread alone.
        yield
        return
    with ExitStack() as after:
        for number in signals:
            before = signal.getsignal(number)
            if before not in (signal.SIG_IGN, None):
                signal.signal(number, handler)
                after.callback(signal.signal, number, before)
        yield
