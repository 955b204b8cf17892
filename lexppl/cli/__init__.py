"""The command line: `lexppl explain` and `lexppl evaluate`."""

from lexppl.cli.program import main

__all__ = ["main"]
