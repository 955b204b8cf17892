"""What a picture is given: refused by name where it is something else."""

from typing import Any


def checked_given(given: Any, kind: type, argument: str, source: str) -> None:
    """Refuse what is not of the kind that a picture is drawn of.

    Args:
        given: what was given.
        kind: what it should be.
        argument: its name.
        source: where one has it from, in code.

    Raises:
        TypeError: saying what it is, and what to give.

    Example:
        >>> checked_given([0.5, 0.4], dict, "history", "result.history of a fit")
        Traceback (most recent call last):
        ...
        TypeError: history must be a dict, result.history of a fit; it is a list
    """
    if not isinstance(given, kind):
        raise TypeError(
            f"{argument} must be a {kind.__name__}, {source}; it is a {type(given).__name__}"
        )
