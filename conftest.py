"""What all tests share: one thread a process, and an empty parameter store of Pyro's."""

import importlib
import os
import sys
from collections.abc import Iterator

import pytest

# Two processes with two threads each are slower on two cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure() -> None:
    """Import what warns: the process that reads the workers' warnings does so in a thread for each,
    and two that import one package at once may find half of it."""
    importlib.import_module("lexppl.evaluation")


@pytest.fixture(autouse=True)
def empty_parameter_store() -> Iterator[None]:
    """A test that runs a program by itself leaves nothing to one that looks for leavings."""
    yield
    if "pyro" in sys.modules:
        sys.modules["pyro"].clear_param_store()
