"""Libraries that only an extra brings, imported where they are used."""

import importlib
from typing import Any


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
