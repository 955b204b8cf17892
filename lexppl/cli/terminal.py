"""The terminal: what commands print, errors in one line, exit codes, signals, threads."""

from __future__ import annotations

import argparse
import ast
import json
import re
import shlex
import signal
import sys
import threading
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Literal

from lexppl.sealed_files import output_file

if TYPE_CHECKING:
    import pandas as pd


@contextmanager
def json_output(
    options: argparse.Namespace, command: Sequence[str]
) -> Iterator[Callable[[Mapping[str, Any]], object]]:
    """A writer of figures, with the command, to the file of --out, if there is one."""
    if options.out is None:
        yield lambda figures: None
        return
    with output_file(options.out, options.overwrite) as file:
        yield lambda figures: file.write_text(
            json.dumps({"command": list(command), **figures}, indent=1) + "\n", encoding="utf-8"
        )


def records(table: pd.DataFrame) -> list[dict[Any, Any]]:
    """Lines of a table for JSON, its index first; None for what is missing."""
    flat = table.reset_index()
    return flat.astype(object).where(flat.notna(), None).to_dict("records")


# All of categories C0 and C1 but tab and line feed, and all with Unicode's property Bidi_Control.
_CONTROLS = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Text with U+FFFD for each control and bidirectional character but tabs and line feeds: in a
    name, they could change what the terminal shows.

    Example:
        >>> printable("age\\x1b[2K, \\u202e01 ≤ emocni").replace("\\ufffd", "?")
        'age?[2K, ?01 ≤ emocni'
    """
    return _CONTROLS.sub("\ufffd", text)


def show(text: str = "") -> None:
    """Print a result on standard output, by :func:`printable`."""
    print(printable(text))


def show_progress(message: str, quiet: bool = False) -> None:
    """Print one line of progress on standard error, by :func:`printable`."""
    if not quiet:
        print(printable(f"lexppl: {message}"), file=sys.stderr, flush=True)


def warn(message: str) -> str:
    """Print one line of warning on standard error; the line."""
    show_progress(f"warning: {message}")
    return message


def progress_of(options: argparse.Namespace) -> bool | Literal["lines"]:
    """How fits show their progress: not, by a bar, or by lines."""
    if options.quiet:
        return False
    return "lines" if getattr(options, "epoch_lines", False) else True


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "  ") -> str:
    """Align columns: the first to the left, the others to the right."""
    # A name may have line breaks.
    table = [head, *([" ".join(cell.splitlines()) for cell in line] for line in rows)]
    widths = [max(_width(line[c]) for line in table) for c in range(len(head))]
    lines = []
    for line in table:
        cells = [
            cell + " " * (w - _width(cell)) if c == 0 else " " * (w - _width(cell)) + cell
            for c, (cell, w) in enumerate(zip(line, widths, strict=True))
        ]
        lines.append((indent + "  ".join(cells)).rstrip())
    return "\n".join(lines)


def _width(text: str) -> int:
    return sum(1 for character in text if not unicodedata.combining(character))


OPTIONS: Mapping[str, str] = {
    "give column_names": "give --column-names",
    "r'\\s+' for any white space": "tab or space",
    "its separator given": "its separator given as --separator",
    ": give separator": ": give --separator",
    "without decisions the table is refused": "--strict refuses the table",
    "drop leaves a column out": "--drop leaves a column out",
    "output='logits', 'probabilities' or 'response'": (
        "--black-box-output logits, probabilities or response"
    ),
    "output='logits'": "--black-box-output logits",
    "(was it fitted on the features of lexppl.data?)": (
        "(if it was fitted on the features of lexppl.data, give --black-box-input encoded)"
    ),
    "another test_share": "another --test-share",
    "give size= and grayscale=": "give --size and --grayscale",
    "lower valid_share and test_share": "lower --valid-share and --test-share",
}
"""Names in the library's errors, and at the command line."""
_WORD = r"(?:'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\")"
SUBJECT = re.compile(
    r"(?<![-\w])(column_names|separator|text_encoding|drop|keep|categorical|include|task|k|root"
    r"|patches)"
    r"(?= (?:must|names|is for)\b)"
)
"""An argument of which an error says what it must be."""
ARGUMENT = re.compile(
    r"(?<![-\w])(?P<name>task|folds|drop|keep|categorical|missing|drop_missing|hide_missing|missing_indicator"
    r"|drop_constant|include|rare|dates|separator|decimal|text_encoding)"
    rf"=(?P<value>True|\d+|{_WORD}|\[(?:{_WORD}|, )*\]|\((?:…|{_WORD},)\))"
)
"""An argument of a reading function in an error."""


FAILED, MISUSED, INTERRUPTED = 1, 2, 130  # Exit codes: bad data or files, a bad command, Ctrl-C


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
    *lines, last = (with_options(line) for line in str(error).splitlines())
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
    return with_options(" ".join(message.split()) or type(error).__name__)


def with_options(message: str) -> str:
    """A message of the library with options by their names."""
    for name, option in OPTIONS.items():
        message = message.replace(name, option)
    message = SUBJECT.sub(lambda subject: _option(subject[1]), message)
    return ARGUMENT.sub(_typed, message)


def _option(name: str) -> str:
    """An argument's option."""
    return "--" + name.removeprefix("text_").replace("_", "-")


def _typed(argument: re.Match[str]) -> str:
    """An argument as an option."""
    option = _option(argument["name"])
    if argument["value"] in ("True", "(…,)", "(…)"):
        return option if argument["value"] == "True" else f"{option} CELL"
    value = ast.literal_eval(argument["value"])
    values = list(map(str, value)) if isinstance(value, list | tuple) else [str(value)]
    if any(re.match("-.", word) for word in values):  # Words that would be options
        return " ".join(f"{option}={shlex.quote(word)}" for word in values)
    between = f" {option} " if option == "--missing" else " "
    return f"{option} {between.join(map(shlex.quote, values))}"


@contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """Treat the signal of schedulers and `kill` as Ctrl-C."""
    with _handled((signal.SIGTERM,), signal.default_int_handler):
        yield


@contextmanager
def deferred_interrupts(raises: bool = True) -> Iterator[None]:
    """Raise KeyboardInterrupt of a signal in the block at its end, or ignore it."""
    received: list[int] = []
    with _handled((signal.SIGINT, signal.SIGTERM), lambda number, frame: received.append(number)):
        yield
    if received and raises:
        raise KeyboardInterrupt


@contextmanager
def _handled(signals: tuple[signal.Signals, ...], handler: Any) -> Iterator[None]:
    """Handle signals, but those that the program was started to ignore."""
    if threading.current_thread() is not threading.main_thread():
        # Python delivers signals to the main thread only.
        yield
        return
    with ExitStack() as after:
        for number in signals:
            before = signal.getsignal(number)
            if before not in (signal.SIG_IGN, None):
                signal.signal(number, handler)
                after.callback(signal.signal, number, before)
        yield


@contextmanager
def short_warnings() -> Iterator[list[str]]:
    """Print warnings in one line without their place, and list them; commands word a collapse, and
    a fit behind a predictor of all features, themselves."""
    from lexppl.evaluation.prediction import BehindWarning  # noqa: PLC0415 - loads torch
    from lexppl.inference import CollapseWarning  # noqa: PLC0415 - loads torch

    printed: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        for_developers = (DeprecationWarning, PendingDeprecationWarning, ResourceWarning)
        for category in (*for_developers, FutureWarning, CollapseWarning, BehindWarning):
            warnings.simplefilter("ignore", category)
        warnings.showwarning = lambda message, *_: printed.append(warn(one_line(message)))
        yield printed


@contextmanager
def one_thread(wanted: bool) -> Iterator[None]:
    """Context with one torch thread if `wanted`: on small matrices threads wait for each other."""
    import torch  # noqa: PLC0415 - slow

    before = torch.get_num_threads()
    torch.set_num_threads(1 if wanted else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
