"""Errors of the command line in one line, and exit codes."""

import ast
import re
import shlex
from collections.abc import Mapping

OPTIONS: Mapping[str, str] = {
    "give column_names": "give --column-names",
    "column_names must": "--column-names must",
    "column_names is for": "--column-names is for",
    "separator must": "--separator must",
    "its separator given": "its separator given as --separator",
    ": give separator": ": give --separator",
    "text_encoding must": "--encoding must",
    "drop names": "--drop names",
    "keep names": "--keep names",
    "categorical names": "--categorical names",
    "task must": "--task must",
    "output='logits', 'probabilities' or 'response'": (
        "--black-box-output logits, probabilities or response"
    ),
    "output='logits'": "--black-box-output logits",
    "(was it fitted on the features of lexppl.data?)": (
        "(if it was fitted on the features of lexppl.data, give --black-box-input encoded)"
    ),
    "k must be": "--k must be",
    "another test_share": "another --test-share",
    "give size= and grayscale=": "give --size and --grayscale",
    "root must be a folder": "--root must be a folder",
    "lower valid_share and test_share": "lower --valid-share and --test-share",
}
"""Names in the library's errors, and at the command line."""
ARGUMENT = re.compile(
    r"\b(?P<name>task|folds|drop|keep|categorical|missing|drop_missing|hide_missing|missing_indicator"
    r"|drop_constant|rare|dates|separator|decimal|text_encoding)"
    r"=(?P<value>True|\d+|'[^']*'|\"[^\"]*\"|\[[^\]]*\]|\((?:…|[^)]*,)\))"
)
"""An argument of a reading function in an error."""


FAILED, MISUSED, INTERRUPTED = 1, 2, 130
"""Exit codes: bad data or files, a bad command, Ctrl-C."""


class UsageError(Exception):
    """A command that cannot be carried out; the program exits with code 2."""


def message_of(error: BaseException) -> str:
    """An error's message in one line, or a line a problem of a table, with options by their names.

    Example:
        >>> message_of(ValueError("k must be a whole number\\n from 1 to 3; it is 4"))
        '--k must be a whole number from 1 to 3; it is 4'
    """
    if len(getattr(error, "problems", ())) < 2:
        return one_line(error)
    *lines, last = (_with_options(line) for line in str(error).splitlines())
    return "\n".join([*lines, last.replace(", --", " --")])


def one_line(error: BaseException) -> str:
    """An error's message in one line, with options by their names.

    Example:
        >>> one_line(ValueError("leave it out with drop=['the id']"))
        "leave it out with --drop 'the id'"
    """
    message = str(error)
    if isinstance(error, OSError) and error.strerror:
        message = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return _with_options(" ".join(message.split()) or type(error).__name__)


def _with_options(message: str) -> str:
    for name, option in OPTIONS.items():
        message = message.replace(name, option)
    return ARGUMENT.sub(_typed, message)


def _typed(argument: re.Match[str]) -> str:
    """An argument as an option."""
    name = "encoding" if argument["name"] == "text_encoding" else argument["name"]
    option = "--" + name.replace("_", "-")
    if argument["value"] in ("True", "(…,)", "(…)"):
        return option if argument["value"] == "True" else f"{option} CELL"
    value = ast.literal_eval(argument["value"])
    if name == "missing":
        return " ".join(f"{option} {shlex.quote(str(cell))}" for cell in value)
    values = value if isinstance(value, list | tuple) else [value]
    return " ".join([option, *(shlex.quote(str(one)) for one in values)])
