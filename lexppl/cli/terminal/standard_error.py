"""One line on standard error: how the work goes, or a warning."""

import argparse
import sys
from typing import Literal


def tell(message: str, quiet: bool = False) -> None:
    """Say in one line how the work goes."""
    if not quiet:
        print(f"lexppl: {message}", file=sys.stderr, flush=True)


def warn(message: str) -> None:
    """Warn in one line."""
    print(f"lexppl: warning: {message}", file=sys.stderr, flush=True)


def progress_of(options: argparse.Namespace) -> bool | Literal["lines"]:
    """How the fits of a command show their progress.

    Args:
        options: with `quiet`, and with `epoch_lines` where the command has it.
    """
    if options.quiet:
        return False
    return "lines" if getattr(options, "epoch_lines", False) else True
