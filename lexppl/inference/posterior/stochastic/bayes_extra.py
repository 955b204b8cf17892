"""The libraries of the `bayes` extra, imported where they are used."""

from __future__ import annotations

import importlib
import warnings
from typing import Any


def bayes_library(module: str = "posteriors") -> Any:
    """Import a library of the `bayes` extra, or say how to get it.

    Args:
        module: its name as Python imports it.

    Raises:
        ImportError: it is not installed, or cannot be imported; the cause is kept.

    Example:
        >>> bayes_library("no_such_library")
        Traceback (most recent call last):
        ImportError: this needs no_such_library, which cannot be imported (No module named
        'no_such_library'); install the extra that has it: pip install "lexppl[bayes]"
    """
    try:
        # Its classes are declared in a way that its own libraries warn of, once each.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"this needs {module.partition('.')[0]}, which cannot be imported ({error}); install "
            'the extra that has it: pip install "lexppl[bayes]"'
        ) from error
