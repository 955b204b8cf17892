"""Options of runs that may be stopped, and go on."""

import argparse
from pathlib import Path

from lexppl.cli.terminal.errors import UsageError


def checkpoint_options(group: argparse._ArgumentGroup) -> None:
    """Add them.

    Args:
        group: of a command's options.
    """
    which = group.add_mutually_exclusive_group()
    which.add_argument(
        "--checkpoint",
        metavar="DIR",
        help="keep the state of each fit in DIR, written each minute: after a stop of whatever "
        "kind the same command goes on from there, and its numbers are those of a run that was "
        "never stopped. DIR is yours to remove",
    )
    which.add_argument(
        "--resume",
        metavar="DIR",
        help="the same, where DIR must have the state of an earlier run of this command (with "
        "--overwrite where that run has written to --out)",
    )


def folder_of(options: argparse.Namespace) -> str | None:
    """Where the states are kept, as typed; None for nowhere."""
    folder: str | None = options.resume or options.checkpoint
    return folder


def check_checkpoint(options: argparse.Namespace) -> None:
    """Refuse a folder that cannot serve.

    Raises:
        UsageError: within the output, which is written in one; beside a sampler, whose chains
            cannot go on; nothing to resume from.
        NotADirectoryError: a file.
    """
    typed = folder_of(options)
    if typed is None:
        return
    option = "--checkpoint" if options.resume is None else "--resume"
    folder, out = (Path(path).expanduser().resolve() for path in (typed, options.out))
    if folder == out or out in folder.parents:
        raise UsageError(f"{option} {typed} is within --out, which is written at the end, in one")
    if options.inference is not None:
        raise UsageError(
            f"{option} keeps the state of a fit, and --inference {options.inference} draws, which "
            "cannot go on from a state: leave one of the two out"
        )
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{option} {typed} is a file; give the name of a folder")
    if options.resume is not None and not any(folder.rglob("state.pt")):
        raise UsageError(
            f"--resume {typed}: there is no state of an earlier run; give --checkpoint {typed} to "
            "begin one"
        )
