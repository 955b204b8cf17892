"""Libraries that are imported where they are used: ArviZ, and those that only an extra brings."""

import importlib
import warnings
from typing import Any


def arviz_library() -> Any:
    """ArviZ, which is slow to import, without the notice of its successor that 0.2x prints."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return importlib.import_module("arviz")


def extra_library(module: str, extra: str) -> Any:
    """A library of an extra, imported; an ImportError names the extra.

    Example:
        >>> extra_library("no_such_library", "compare")
        Traceback (most recent call last):
        ImportError: this needs no_such_library, which cannot be imported (No module named
        'no_such_library'); install the extra that has it: pip install "lexppl[compare]"
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"this needs {module.partition('.')[0]}, which cannot be imported ({error}); install "
            f'the extra that has it: pip install "lexppl[{extra}]"'
        ) from error
