"""One line on standard error: how the work goes, or a warning."""

import sys


def tell(message: str, quiet: bool = False) -> None:
    """Say in one line how the work goes."""
    if not quiet:
        print(f"lexppl: {message}", file=sys.stderr, flush=True)


def warn(message: str) -> None:
    """Warn in one line."""
    print(f"lexppl: warning: {message}", file=sys.stderr, flush=True)
