"""What the program ends with."""

FAILED = 1
"""Data or files that do not serve."""
MISUSED = 2
"""A command that cannot be carried out as it was typed."""
INTERRUPTED = 130
"""Ctrl-C."""
