"""Python's warnings as the command line shows them."""

import contextlib
import warnings
from collections.abc import Iterator

from lexppl.cli.terminal.standard_error import warn
from lexppl.inference import CollapseWarning


@contextlib.contextmanager
def short_warnings() -> Iterator[None]:
    """Warnings as one line without their place in the code; of a collapse each command tells in
    its own words."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        for category in (
            DeprecationWarning,
            PendingDeprecationWarning,
            FutureWarning,
            ResourceWarning,
            CollapseWarning,
        ):
            warnings.simplefilter("ignore", category)
        warnings.showwarning = lambda message, *_: warn(" ".join(str(message).split()))
        yield
