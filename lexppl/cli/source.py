"""The rows that a command is about: read, checked, and put into parts."""

import argparse
import difflib
from pathlib import Path

import torch

from lexppl.cli.errors import UsageError
from lexppl.data import (
    DividedTable,
    divided_frame,
    divided_set,
    read_frame,
    shipped_names,
    synthetic_names,
)
from lexppl.data.listing import listed
from lexppl.data.table_files import table_name

TABLE_OPTIONS = (
    "target",
    "task",
    "categorical",
    "missing",
    "drop_missing",
    "drop_constant",
    "separator",
    "column_names",
)


def read_source(options: argparse.Namespace, device: torch.device) -> DividedTable:
    """Read what DATA names, a data set that comes along or a table in a file, and divide its rows.

    Raises:
        UsageError: neither; or options for tables with a set that comes along.
        ValueError, OSError: what :func:`lexppl.data.divided_frame` refuses.
    """
    name = options.data
    division = {
        "valid_share": options.valid_share,
        "test_share": options.test_share,
        "seed": options.seed,
    }
    if name in shipped_names():
        _refuse_table_options(options)
        return divided_set(name, **division).to(device)
    path = Path(name).expanduser()
    if not path.exists():
        raise UsageError(_unknown(name, path))
    frame = read_frame(
        path,
        missing=options.missing,
        separator=_separator(options.separator),
        column_names=options.column_names,
    )
    return divided_frame(
        frame,
        options.target,
        task=options.task,
        categorical=options.categorical,
        drop_missing=options.drop_missing,
        drop_constant=options.drop_constant,
        name=table_name(path),
        **division,
    ).to(device)


def _refuse_table_options(options: argparse.Namespace) -> None:
    given = ["--" + name.replace("_", "-") for name in TABLE_OPTIONS if getattr(options, name)]
    if given:
        raise UsageError(
            f"{options.data} is a data set that comes along, and {given[0]} is for tables in "
            f"files; for a file of that name give ./{options.data}"
        )


def _unknown(name: str, path: Path) -> str:
    close = difflib.get_close_matches(name, shipped_names(), n=1, cutoff=0.6)
    if path.suffix or len(path.parts) > 1:
        return f"there is no file {name!r}"
    if close:
        return f"there is no data set or file {name!r}; did you mean {close[0]!r}?"
    real = [known for known in shipped_names() if known not in synthetic_names()]
    return (
        f"there is no data set or file {name!r}; the sets that come along are {listed(real)} and "
        f"{listed(synthetic_names(), most=9)}"
    )


def _separator(given: str | None) -> str | None:
    return {"\\t": "\t", "tab": "\t", "space": r"\s+"}.get(given, given) if given else given
