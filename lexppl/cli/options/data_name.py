"""DATA as it is typed: the name of a data set, a table's file, or a folder of images."""

import argparse
import difflib
from pathlib import Path

from lexppl.choices.data_sets import (
    TARGETS,
    image_names,
    shipped_names,
    synthetic_names,
    text_names,
)
from lexppl.cli.terminal.errors import UsageError

TABLE_OPTIONS = (
    "target",
    "task",
    "drop",
    "keep",
    "categorical",
    "missing",
    "drop_missing",
    "hide_missing",
    "missing_indicator",
    "drop_constant",
    "rare",
    "dates",
    "separator",
    "decimal",
    "encoding",
    "column_names",
)


def check_data_name(options: argparse.Namespace) -> None:
    """Refuse what is neither a data set by name nor there.

    Raises:
        UsageError: neither; or options for tables with a set that comes along.
    """
    name = options.data
    if name in (*image_names(), *text_names()):
        return
    if name in shipped_names():
        _refuse_table_options(options)
        return
    path = Path(name).expanduser()
    if not path.exists():
        raise UsageError(_unknown(name, path))


def _refuse_table_options(options: argparse.Namespace) -> None:
    given = ["--" + name.replace("_", "-") for name in TABLE_OPTIONS if getattr(options, name)]
    if given:
        raise UsageError(
            f"{options.data} is a data set that comes along, and {given[0]} is for tables in "
            f"files; for a file of that name give ./{options.data}"
        )


def _unknown(name: str, path: Path) -> str:
    known = (*shipped_names(), *image_names(), *text_names())
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if path.suffix or len(path.parts) > 1:
        return f"there is no file {name!r}"
    if close:
        return f"there is no data set or file {name!r}; did you mean {close[0]!r}?"
    sets = " and ".join(", ".join(map(repr, names)) for names in (TARGETS, synthetic_names()))
    return f"there is no data set or file {name!r}; the sets that come along are {sets}"
