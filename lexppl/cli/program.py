"""The program: from the words that were typed to an exit code."""

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from lexppl.cli.compare_command import run_compare
from lexppl.cli.errors import UsageError, told
from lexppl.cli.evaluate_command import run_evaluate
from lexppl.cli.exit_codes import FAILED, INTERRUPTED, MISUSED
from lexppl.cli.explain_command import run_explain
from lexppl.cli.messages import warn
from lexppl.cli.options.arguments import parse
from lexppl.inference import CollapseWarning

COMMANDS: Mapping[str, Callable[[Any, Sequence[str]], int]] = MappingProxyType(
    {"explain": run_explain, "evaluate": run_evaluate, "compare": run_compare}
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: the words after the program's name; those that were typed if None.

    Returns:
        0; 2 for a command that cannot be carried out as it was typed; 1 for data or files that
        do not serve; 130 after Ctrl-C.

    Example:
        >>> main(["explain", "wine", "--k", "3"])
        2
    """
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    _replace_what_cannot_be_printed()
    try:
        options = parse(words)
        with _short_warnings():
            return COMMANDS[options.command](options, ["lexppl", *words])
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


def _fail(error: Exception, code: int, debug: bool) -> int:
    if debug:
        raise error
    print(f"lexppl: error: {told(error)}", file=sys.stderr)
    return code


@contextlib.contextmanager
def _short_warnings() -> Iterator[None]:
    """Warnings as one line without their place in the code; of a collapse each command tells in
    its own words."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        for category in (
            DeprecationWarning,
            PendingDeprecationWarning,
            FutureWarning,
            CollapseWarning,
        ):
            warnings.simplefilter("ignore", category)
        warnings.showwarning = lambda message, *_: warn(" ".join(str(message).split()))
        yield


def _replace_what_cannot_be_printed() -> None:
    """A terminal that lacks a sign such as r̂ gets a question mark, not an error."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
