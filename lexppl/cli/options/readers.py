"""Options by their texts, and readers of their values."""

import argparse
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any

from lexppl.argument_checks import fraction, int_at_least, near

Options = dict[str, dict[str, Any]]  # Arguments of argparse's `add_argument` by flag
NONE: Mapping[str, Any] = MappingProxyType({})


def number(check: Callable[[str, Any], Any]) -> Callable[[str], Any]:
    """A reader of numbers by a check."""

    def read(text: str) -> Any:
        value: Any = text
        # What is no number at all is refused by the check, as it was typed.
        for kind in (float, int):
            with suppress(ValueError):
                value = kind(text)
        try:
            return check("", value)
        except ValueError as error:
            # argparse puts the option's name before the message.
            raise argparse.ArgumentTypeError(str(error).strip()) from None

    return read


def whole(least: int) -> Callable[[str], int]:
    """A reader of whole numbers from `least` on."""
    return number(partial(int_at_least, least=least))


def share(of: str) -> Callable[[str], float]:
    """A reader of shares strictly between 0 and 1, of a named whole."""
    return number(partial(fraction, of=of))


def several(read: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """A reader of values between commas."""
    return lambda text: [read(part.strip()) for part in text.split(",")]


def names_of(text: str, item: str, known: Collection[str]) -> list[str]:
    """Names between commas, known and different.

    Raises:
        ArgumentTypeError: no name, an unknown one, or one twice.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        fault = f"{', '.join(unknown)} given; {near(unknown[0], known, 'names')}" if unknown else ""
        fault = fault or f"none given, of {', '.join(known)}"
        raise argparse.ArgumentTypeError(f"takes names separated by commas; {fault}")
    if len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(f"names {item} twice: {text}")
    return names


def sections(text: str, **words: Any) -> dict[str, str]:
    """Sections of a text by their titles, which stand between brackets on a line of their own, with
    words in place of their names between braces."""
    _, *parts = re.split(r"^\[(.+)\]\n", text.format(**words), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def options_of(
    texts: str, arguments: Mapping[str, Mapping[str, Any]], usual: Mapping[str, object] = NONE
) -> Options:
    """Options by their texts, with further arguments of some.

    Args:
        texts: a flag and the name of its value, or its choices between brackets, at a line's begin,
            two spaces, its help. A value named by one letter is a whole number from 1 on; an option
            without a value or further arguments is a switch.
        arguments: of `add_argument`, by the option's name.
        usual: defaults in words that take the place of the texts', by the option's name.
    """
    options: Options = {}
    for block in re.split(r"\n(?=\S)", texts.strip()):
        typed, _, text = block.partition("  ")
        flag, _, value = typed.partition(" ")
        name, text = flag.strip("-").replace("-", "_").lower(), " ".join(text.split())
        if name in usual:
            text = f"{text.partition(' (default: ')[0]} (default: {usual[name]})"
        option: dict[str, Any] = {"help": text}
        if value.startswith("["):
            option["choices"] = tuple(value[1:-1].split())
        elif value:
            option |= {"metavar": value, "type": whole(1) if len(value) == 1 else None}
        elif name not in arguments and flag.startswith("-"):
            option["action"] = "store_true"
        options[flag] = option | dict(arguments.get(name, NONE))
    return options


def with_meanings(names: Mapping[str, str], between: str = ", ") -> str:
    """Names with their meanings."""
    return "; ".join(f"{name}{between}{meaning}" for name, meaning in names.items())
