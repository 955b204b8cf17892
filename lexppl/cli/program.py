"""The program: words to options, and to an exit code."""

import argparse
import contextlib
import gc
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NoReturn

import lexppl
from lexppl.argument_checks import near
from lexppl.choices.data_sets import TARGETS, image_names, synthetic_names, text_names
from lexppl.choices.imputers import IMPUTERS, LEARNED
from lexppl.choices.methods import LIBRARIES, METHODS
from lexppl.cli.options.checks import TABLE, check_beside, check_options, kind_of_data
from lexppl.cli.options.readers import Options
from lexppl.cli.options.table import COMMANDS, FIRST_OPTIONS, FOLDS, INSTEAD, REPLICATES, SHARE
from lexppl.cli.terminal import (
    FAILED,
    INTERRUPTED,
    MISUSED,
    UsageError,
    ended_as_by_ctrl_c,
    message_of,
    short_warnings,
    show,
    show_progress,
)

WIDTH, EXAMPLES, SHOWN_EXAMPLES = 98, "examples:", 7


class OneLineParser(argparse.ArgumentParser):
    """A parser with errors in one line, and help of its first options."""

    first: Mapping[str, str | None] = {}

    def error(self, message: str) -> NoReturn:
        more = "more words than are read (lists take commas, and names with blanks quotes):"
        message = message.replace("unrecognized arguments:", more)
        raise UsageError(f"{message} (see {self.prog} --help)")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuses options that a command lacks before what else is wrong."""
        known, top = self._option_string_actions, self._subparsers is not None
        for word in takewhile(lambda word: word != "--" and (word[:1] == "-" or not top), args):
            flag = word.partition("=")[0]
            if re.match("--?[A-Za-z]", flag) and flag not in known:
                hint = near(flag, known, "options")
                homes = [n for n, c in COMMANDS.items() if repr(flag) in str(c.options)]
                if not hint.startswith("did"):
                    hint = f"lexppl {homes[0]} has it" if homes else ""
                self.error(f"there is no option {flag}; {hint}".removesuffix("; "))
        return super().parse_known_args(args, namespace)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            hint = near(value, list(action.choices), "choices")
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}; {hint}")

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        if arg_strings != ["--"]:
            return super()._get_values(action, arg_strings)
        value = self._get_value(action, "--")  # Of --missing=--, where argparse drops it
        self._check_value(action, value)
        return value if action.nargs is None else [value]

    def format_help(self) -> str:
        """Help of the first options and the examples, if there are any; else of all."""
        if self.first:
            for action in self._actions:
                names = [n for n in (*action.option_strings, action.metavar) if n in self.first]
                text = self.first[str(names[0])] if names else argparse.SUPPRESS
                action.help = text or action.help
            examples = str(self.epilog).partition(EXAMPLES)[2].splitlines()
            self.epilog = "\n".join([EXAMPLES, *examples[1:SHOWN_EXAMPLES]])
        return super().format_help()


class _HelpAll(argparse.Action):
    """Prints the help of all options."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        show(argparse.ArgumentParser.format_help(parser).rstrip("\n"))
        parser.exit()


def parse(argv: list[str]) -> argparse.Namespace:
    """Options of the words typed.

    Raises:
        UsageError: no command, or unknown options.
        SystemExit: after --help and --version.
    """
    options = parser().parse_args(argv)
    if options.command == "explain":
        if options.explainer is not None:
            check_beside(argv)
        shares = ("valid_share", "test_share")
        options.holds_out = any(getattr(options, name) is not None for name in shares)
        for name in shares:
            if getattr(options, name) is None:
                setattr(options, name, SHARE)
        if options.replicates is None:
            options.replicates = FOLDS if kind_of_data(options) == TABLE else REPLICATES
    return options


def parser() -> OneLineParser:
    """The parser of all commands."""
    top = OneLineParser(
        prog="lexppl",
        allow_abbrev=False,
        description=_help_of("lexppl")[0],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="lexppl [--help] [--version] COMMAND …",
    )
    top.add_argument("--version", action="version", version=f"lexppl {lexppl.__version__}")
    commands = top.add_subparsers(
        prog="lexppl", dest="command", metavar="COMMAND", required=True, help=argparse.SUPPRESS
    )
    for name, command in COMMANDS.items():
        before, after = _help_of(name)
        reader = commands.add_parser(
            name,
            allow_abbrev=False,
            description=before,
            epilog=after,
            formatter_class=partial(argparse.RawDescriptionHelpFormatter, width=WIDTH),
            usage=f"lexppl {name} {command.usage} [options]",
        )
        if name == "explain":
            reader.first = FIRST_OPTIONS
            reader.add_argument("--help-all", action=_HelpAll, nargs=0, help="list all options")
        for title, options in command.options.items():
            _add(reader.add_argument_group(title) if title else reader, options)
    return top


def _help_of(name: str) -> list[str]:
    """Help before and after the options of a command, or of the program."""
    imputers = {**IMPUTERS, **LEARNED}.items()
    text = (Path(__file__).parent / "options" / "help" / f"{name}.txt").read_text(encoding="utf-8")
    filled = text.rstrip("\n").format(
        sets=", ".join(TARGETS),
        synthetic=", ".join(synthetic_names()),
        images=", ".join(image_names()),
        texts=", ".join(text_names()),
        methods=", ".join(METHODS),
        libraries=", ".join(LIBRARIES),
        imputers="\n".join(f"  {name}: {meaning}" for name, meaning in imputers),
        learned=", ".join(LEARNED),
    )
    return filled.split("\n---\n")


def _add(group: Any, options: Options) -> None:
    """Add options to a parser or a group; of alternatives one may be typed."""
    exclusive: dict[tuple[str, ...], Any] = {}
    for flag, arguments in options.items():
        if not flag.startswith("-"):
            group.add_argument("data", metavar=flag, **arguments)
            continue
        place = group
        for one_of in INSTEAD:
            if flag in one_of and set(one_of) <= set(options):
                place = exclusive.setdefault(one_of, None) or group.add_mutually_exclusive_group()
                exclusive[one_of] = place
        place.add_argument(flag, **arguments)


HOMES: Mapping[str, str] = {
    "explain": "lexppl.cli.explain_table:run_explain",
    "explain with": "lexppl.cli.explain_with:run_explain_with",
    "explain images and texts": "lexppl.cli.explain_rows:run_explain_rows",
    "evaluate": "lexppl.cli.evaluate_command:run_evaluate",
    "compare": "lexppl.cli.compare_command:run_compare",
    "change": "lexppl.cli.change_command:run_change",
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
            show_progress(f"reading {options.data}")
        with ended_as_by_ctrl_c():
            gc.disable()  # Modules hold no garbage: looking for it is a sixth of their import.
            try:
                command: Callable[..., int] = resolve_name(HOMES[_name(options)])
            finally:
                gc.enable()
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
        show_progress("interrupted; nothing was written")
        return INTERRUPTED


def _name(options: Any) -> str:
    """Name of the command in :data:`HOMES`."""
    name: str = options.command
    if name == "explain" and options.explainer is not None:
        return "explain with"
    if name == "explain" and kind_of_data(options) != TABLE:
        return "explain images and texts"
    return name


def _fail(error: Exception, code: int, debug: bool) -> int:
    if debug:
        raise error
    show_progress(f"error: {message_of(error)}")
    return code


def _replace_what_cannot_be_printed() -> None:
    """Print a question mark for a sign that the terminal lacks, such as r̂."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
