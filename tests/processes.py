"""Processes that are killed: forked from an interpreter that shares no thread with the tests'."""

import os
import signal
from multiprocessing import get_context


def server():
    """The context of processes that a new interpreter forks once it has imported the library."""
    context = get_context("forkserver")
    # Torch imports the second at an optimizer's first step, once for each process.
    context.set_forkserver_preload(["lexppl.cli", "lexppl.systems", "torch._dynamo"])
    return context


def exit_code_of(work, *args):
    """Exit code of a process that calls a module's function; −9 where it was killed."""
    process = server().Process(target=work, args=args)
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
