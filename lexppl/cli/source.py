"""The rows that a command is about: read, checked, and put into parts."""

import argparse
from pathlib import Path

import torch

from lexppl.choices.data_sets import shipped_names
from lexppl.cli.options.data_name import check_data_name
from lexppl.data import DividedTable, divided_frame, divided_set, read_frame
from lexppl.data.table_files import table_name


def read_source(options: argparse.Namespace, device: torch.device) -> DividedTable:
    """Read what DATA names, a data set that comes along or a table in a file, and divide its rows.

    Raises:
        UsageError: neither; or options for tables with a set that comes along.
        ValueError, OSError: what :func:`lexppl.data.divided_frame` refuses.
    """
    check_data_name(options)
    name = options.data
    division = {
        "valid_share": options.valid_share,
        "test_share": options.test_share,
        "seed": options.seed,
    }
    if name in shipped_names():
        return divided_set(name, **division).to(device)
    path = Path(name).expanduser()
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


def _separator(given: str | None) -> str | None:
    return {"\\t": "\t", "tab": "\t", "space": r"\s+"}.get(given, given) if given else given
