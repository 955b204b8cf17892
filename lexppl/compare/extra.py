"""The libraries of the `compare` extra, imported where they are used."""

from __future__ import annotations

import importlib
from typing import Any


def library(module: str) -> Any:
    """Import a library of the `compare` extra, or say how to get it.

    Args:
        module: its name as Python imports it, such as "shap".

    Raises:
        ImportError: it is not installed, or cannot be imported; the cause is kept.

    Example:
        >>> library("no_such_library")
        Traceback (most recent call last):
        ImportError: this needs no_such_library, which cannot be imported (No module named
        'no_such_library'); install the extra that has it: pip install "lexppl[compare]"
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"this needs {module.partition('.')[0]}, which cannot be imported ({error}); install "
            'the extra that has it: pip install "lexppl[compare]"'
        ) from error
