"""The explainer of `lexppl explain --with`, and what may be typed beside it."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from lexppl.cli.outputs import ENCODING, EXPLAINER
from lexppl.cli.terminal.errors import UsageError

BESIDE = frozenset(
    f"--{name}"
    for name in ("with", "out", "overwrite", "row", "penalty", "draws", "seed", "quiet", "debug")
)


def check_beside(words: Sequence[str]) -> None:
    """Refuse options of a fit beside `--with`.

    Args:
        words: as typed.

    Raises:
        UsageError: naming the first.

    Example:
        >>> check_beside(["explain", "new.csv", "--with", "results", "--k=3"])
        Traceback (most recent call last):
        lexppl.cli.terminal.errors.UsageError: --k is of a fit, and --with explains without one
    """
    typed = [word.partition("=")[0] for word in words if word.startswith("--")]
    other = [option for option in typed if option not in BESIDE]
    if other:
        raise UsageError(f"{other[0]} is of a fit, and --with explains without one")


def explainer_folder(options: argparse.Namespace) -> Path:
    """The folder of the explainer, by itself or by the folder that a fit wrote.

    Raises:
        UsageError: no explainer there, none of a table, or no file of rows.
    """
    given = Path(options.explainer).expanduser()
    folder = next((p for p in (given, given / EXPLAINER) if (p / "explainer.json").is_file()), None)
    if folder is None:
        raise UsageError(f"--with {options.explainer}: there is no explainer")
    if not (folder.resolve().parent / ENCODING).is_file():
        raise UsageError(
            f"--with {options.explainer}: there is no {ENCODING} beside the explainer, which only "
            "those of tables in files have"
        )
    if not Path(options.data).expanduser().is_file():
        raise UsageError(f"there is no file {options.data!r}; --with explains rows of a file")
    if Path(options.out).expanduser().resolve() in folder.resolve().parents:
        raise UsageError(f"--out {options.out}: the explainer is in this folder; give another")
    if options.penalty is not None and not isinstance(options.penalty, float):
        raise UsageError("--penalty with --with is a number; auto is of a fit")
    return folder.resolve()
