"""Mistakes made at the command line, told in one line."""

from collections.abc import Mapping
from types import MappingProxyType

OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "give drop_missing=True": "give --drop-missing",
        "give drop_constant=True": "give --drop-constant",
        "give missing=(": "give --missing (",
        "give column_names": "give --column-names",
        "column_names must": "--column-names must",
        "column_names is for": "--column-names is for",
        "separator must": "--separator must",
        "its separator given": "its separator given as --separator",
        ": give separator": ": give --separator",
        "categorical names": "--categorical names",
        "task must": "--task must",
        "output='logits', 'probabilities' or 'response'": (
            "--black-box-output logits, probabilities or response"
        ),
        "output='logits'": "--black-box-output logits",
        "k must be": "--k must be",
    }
)
"""What the library's errors call things, and what they are called at the command line."""


class UsageError(Exception):
    """A command that cannot be carried out as it was typed; the program exits with code 2."""


def one_line(error: BaseException) -> str:
    """An error's message in one line, with options by their names at the command line.

    Example:
        >>> one_line(ValueError("k must be a whole number\\n from 1 to 3; it is 4"))
        '--k must be a whole number from 1 to 3; it is 4'
    """
    message = str(error)
    if isinstance(error, OSError) and error.strerror:
        message = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    message = " ".join(message.split()) or type(error).__name__
    for name, option in OPTIONS.items():
        message = message.replace(name, option)
    return message
