"""Checks of numbers that arguments are: whole ones, finite ones, shares.

Each takes numpy's numbers too, never a boolean, and returns a plain number of Python; finite ones
and shares may be tensors or arrays without dimensions. A message names the argument, what was
expected and what was given.
"""

import math
from numbers import Integral, Real
from typing import Any


def int_at_least(name: str, value: Any, least: int = 1, *, note: str = "") -> int:
    """A whole number from `least` on; a seed is one of at least 0.

    Args:
        name: of the argument.
        value: what was given.
        least: the smallest that will do.
        note: what the message says of the range, as "or None for a response".

    Raises:
        ValueError: anything else.

    Example:
        >>> int_at_least("epochs", 0)
        Traceback (most recent call last):
        ...
        ValueError: epochs must be a whole number of at least 1; it is 0
    """
    if _is_int(value) and value >= least:
        return int(value)
    raise ValueError(
        f"{name} must be a whole number of at least {least}{_noted(note)}; it is {value!r}"
    )


def int_between(name: str, value: Any, least: int, most: int, *, note: str = "") -> int:
    """A whole number from `least` to `most`, both included.

    Args:
        name: of the argument.
        value: what was given.
        least, most: the ends of the range.
        note: what the message says of the range, as "the mask entries".

    Raises:
        ValueError: anything else.

    Example:
        >>> int_between("k", 4, 1, 3, note="the features")
        Traceback (most recent call last):
        ...
        ValueError: k must be a whole number from 1 to 3, the features; it is 4
    """
    if _is_int(value) and least <= value <= most:
        return int(value)
    raise ValueError(
        f"{name} must be a whole number from {least} to {most}{_noted(note)}; it is {value!r}"
    )


def finite_float(
    name: str, value: Any, *, least: float | None = None, above: float | None = None
) -> float:
    """A finite number, from `least` on or above `above` where one of them is given.

    Args:
        name: of the argument.
        value: what was given.
        least: the smallest that will do.
        above: what it must exceed.

    Raises:
        ValueError: anything else.

    Example:
        >>> finite_float("weight", 2, least=0.0)
        2.0
        >>> finite_float("temperature", 0.0, above=0.0)
        Traceback (most recent call last):
        ...
        ValueError: temperature must be a finite number above 0; it is 0.0
    """
    number = _real(value)
    fits = math.isfinite(number) and (least is None or number >= least)
    if fits and (above is None or number > above):
        return number
    expected = "" if least is None else f" of at least {least:g}"
    expected += "" if above is None else f" above {above:g}"
    raise ValueError(f"{name} must be a finite number{expected}; it is {value!r}")


def fraction(
    name: str, value: Any, *, of: str = "", zero: bool = False, one: bool = False, note: str = ""
) -> float:
    """A share strictly between 0 and 1, or one of the ends where that is allowed.

    Args:
        name: of the argument.
        value: what was given.
        of: what it is a share of, as the message says it, as "the rows".
        zero: whether 0 will do.
        one: whether 1 will do.
        note: what the message says of the range, as "or None".

    Raises:
        ValueError: anything else.

    Example:
        >>> fraction("valid", 1.0, of="the rows")
        Traceback (most recent call last):
        ...
        ValueError: valid must be a share of the rows in (0, 1); it is 1.0
    """
    share = _real(value)
    if 0 < share < 1 or (zero and share == 0) or (one and share == 1):
        return share
    whole = f" of {of}" if of else ""
    ends = f"{'[' if zero else '('}0, 1{']' if one else ')'}"
    raise ValueError(f"{name} must be a share{whole} in {ends}{_noted(note)}; it is {value!r}")


def _is_int(value: Any) -> bool:
    # The type itself is asked first: abstract classes are slow, and steps of a fit pass here.
    return type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))


def _real(value: Any) -> float:
    """The number, or NaN for what is none."""
    if getattr(value, "shape", None) == ():
        value = value.item()
    return float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan


def _noted(note: str) -> str:
    return f", {note}" if note else ""
