"""The program: from words to an exit code."""

import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pkgutil import resolve_name
from typing import Any

from lexppl.cli.options.checks import TABLE, check_options, kind_of_data
from lexppl.cli.options.parser import parse
from lexppl.cli.terminal import (
    FAILED,
    INTERRUPTED,
    MISUSED,
    UsageError,
    ended_as_by_ctrl_c,
    message_of,
    short_warnings,
)

COMMANDS: Mapping[str, str] = {
    "explain": "lexppl.cli.explain_table:run_explain",
    "explain with": "lexppl.cli.explain_with:run_explain_with",
    "explain images and texts": "lexppl.cli.explain_rows:run_explain_rows",
    "evaluate": "lexppl.cli.evaluate_command:run_evaluate",
    "compare": "lexppl.cli.compare_command:run_compare",
    "impute": "lexppl.cli.impute_command:run_impute",
}
"""Place of each command, which is loaded after all checks, as it loads torch."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line on words, by default those typed.

    Returns:
        0; 1 for data or files that do not serve; 2 for a command that cannot be carried out; 130
        after Ctrl-C, or a signal to end.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    _replace_what_cannot_be_printed()
    try:
        options = parse(words)
        check_options(options)
        if sys.stderr.isatty() and not options.quiet:
            # At once: the libraries take seconds to load.
            print(f"lexppl: reading {options.data}", file=sys.stderr, flush=True)
        with ended_as_by_ctrl_c():
            command: Callable[..., int] = resolve_name(COMMANDS[_name(options)])
            with short_warnings():
                return command(options, ["lexppl", *words])
    except UsageError as error:
        return _fail(error, MISUSED, debug)
    except BrokenPipeError:
        # Whoever read the output has left; Python would fail again when it flushes at exit.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (ValueError, TypeError, OSError, FloatingPointError, ImportError) as error:
        return _fail(error, FAILED, debug)
    except KeyboardInterrupt:
        print("lexppl: interrupted; nothing was written", file=sys.stderr)
        return INTERRUPTED


def _name(options: Any) -> str:
    """Name of the command in :data:`COMMANDS`."""
    name: str = options.command
    if name == "explain" and options.explainer is not None:
        return "explain with"
    if name == "explain" and kind_of_data(options) != TABLE:
        return "explain images and texts"
    return name


def _fail(error: Exception, code: int, debug: bool) -> int:
    if debug:
        raise error
    print(f"lexppl: error: {message_of(error)}", file=sys.stderr)
    return code


def _replace_what_cannot_be_printed() -> None:
    """Print a question mark for a sign that the terminal lacks, such as r̂."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
