"""Numbers and lists as they are typed."""

import argparse
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Literal, TypeVar

from lexppl import argument_checks
from lexppl.choices.settings import AUTO

Number = TypeVar("Number", int, float)


def int_at_least(least: int) -> Callable[[str], int]:
    """A reader of whole numbers from `least` on."""
    check = partial(argument_checks.int_at_least, least=least)
    return lambda text: _read(text, int, check)


def finite_float(
    *, least: float | None = None, above: float | None = None
) -> Callable[[str], float]:
    """A reader of finite numbers, from `least` on or above `above`."""
    check = partial(argument_checks.finite_float, least=least, above=above)
    return lambda text: _read(text, float, check)


def fraction(of: str) -> Callable[[str], float]:
    """A reader of shares strictly between 0 and 1; `of` says of what."""
    check = partial(argument_checks.fraction, of=of)
    return lambda text: _read(text, float, check)


def penalty_or_auto(text: str) -> float | Literal["auto"]:
    """Nats from 0 on, or that they are chosen from the data."""
    if text == AUTO:
        return AUTO
    try:
        return finite_float(least=0.0)(text)
    except argparse.ArgumentTypeError as error:
        message = str(error).replace("; it is", f", or {AUTO}; it is")
        raise argparse.ArgumentTypeError(message) from None


def names(text: str) -> list[str]:
    """Names between commas."""
    return [name.strip() for name in text.split(",")]


def sizes(text: str) -> list[int]:
    """Whole numbers between commas."""
    return [int_at_least(1)(part) for part in text.split(",")]


def rates(text: str) -> list[float]:
    """Shares between commas, strictly between 0 and 1."""
    return [fraction(of="the features")(part.strip()) for part in text.split(",")]


def _read(text: str, number: Callable[[str], Number], check: Callable[..., Number]) -> Number:
    value: Any = text
    # What is no number at all is refused by the check, as it was typed.
    with suppress(ValueError):
        value = number(text)
    try:
        return check("", value)
    except ValueError as error:
        # argparse puts the option's name before the message.
        raise argparse.ArgumentTypeError(str(error).strip()) from None
