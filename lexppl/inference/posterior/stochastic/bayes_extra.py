"""The libraries of the `bayes` extra, imported where they are used."""

import warnings
from typing import Any

from lexppl.extras import extra_library


def bayes_library(module: str = "posteriors") -> Any:
    """Import a library of the `bayes` extra, or say how to get it.

    Args:
        module: its name as Python imports it.

    Raises:
        ImportError: as :func:`lexppl.extras.extra_library`.

    Example:
        >>> bayes_library("json").dumps([1])
        '[1]'
    """
    # Its classes are declared in a way that its own libraries warn of, once each.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return extra_library(module, "bayes")
