"""The command line: `lexppl explain`, `evaluate`, `compare` and `impute`."""

from lexppl.cli.program import main

__all__ = ["main"]
