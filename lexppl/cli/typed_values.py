"""Numbers and lists as they are typed."""

import argparse
import math
from collections.abc import Callable


def whole(least: int) -> Callable[[str], int]:
    """A reader of whole numbers from `least` on."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(
                f"must be a whole number of at least {least}; it is {text!r}"
            )
        return value

    return read


def _number(text: str, expected: str, fits: Callable[[float], bool]) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and fits(value)):
        raise argparse.ArgumentTypeError(f"must be {expected}; it is {text!r}")
    return value


def positive(text: str) -> float:
    """A number above 0."""
    return _number(text, "a number above 0", lambda value: value > 0.0)


def at_least_zero(text: str) -> float:
    """A finite number from 0 on."""
    return _number(text, "a finite number of at least 0", lambda value: value >= 0.0)


def share(text: str) -> float:
    """A share strictly between 0 and 1."""
    return _number(text, "a share of the rows between 0 and 1", lambda value: 0.0 < value < 1.0)


def names(text: str) -> list[str]:
    """Names between commas."""
    return [name.strip() for name in text.split(",")]


def sizes(text: str) -> list[int]:
    """Whole numbers between commas."""
    return [whole(1)(part) for part in text.split(",")]
