"""The command line: `lexppl explain`, `evaluate`, `compare`, `change` and `impute`."""

from lexppl.cli.program import main

__all__ = ["main"]
