"""The libraries of the `compare` extra, imported where they are used."""

from typing import Any

from lexppl.extras import extra_library


def library(module: str) -> Any:
    """Import a library of the `compare` extra, or say how to get it.

    Args:
        module: its name as Python imports it, such as "shap".

    Raises:
        ImportError: as :func:`lexppl.extras.extra_library`.

    Example:
        >>> library("json").dumps([1])
        '[1]'
    """
    return extra_library(module, "compare")
