"""Processes that are killed: new interpreters, which share no thread with the tests'."""

import os
import signal
from multiprocessing import get_context


def exit_code_of(work, *args):
    """Exit code of a new interpreter that calls a module's function; −9 where it was killed."""
    process = get_context("spawn").Process(target=work, args=args)
    process.start()
    process.join()
    return process.exitcode


def kill(*_):
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)


def killed_after(calls, given):
    """A function or method that kills its process at the call after so many."""
    left = iter(range(calls))
    return lambda *args: kill() if next(left, None) is None else given(*args)
