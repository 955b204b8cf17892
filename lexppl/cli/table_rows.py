"""The rows of a table: read, checked, divided."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from lexppl.choices.data_sets import shipped_names
from lexppl.cli.options.plan_options import folds_of, takes_missing
from lexppl.cli.options.table import COLUMNS, KINDS, name_of, value_of
from lexppl.cli.terminal import UsageError, show_progress, with_options
from lexppl.data.divided_table import DividedTable, divided_frame, divided_set
from lexppl.data.files import FileFormat, read_frame, table_name
from lexppl.data.problems import with_decisions


def read_source(options: argparse.Namespace, device: torch.device) -> DividedTable:
    """The table that DATA names, a shipped set or a file, divided; what is decided for a file is
    printed, unless --strict refuses it.

    Raises:
        UsageError: options for files with a shipped set; both or one of --group and --time
            without folds.
        ValueError, OSError: what `divided_frame` refuses.
    """
    name = options.data
    division: dict[str, Any] = {"seed": options.seed, "folds": folds_of(options)}
    in_folds = {flag: getattr(options, flag, None) for flag in ("group", "time")}
    typed = [f"--{flag} {column}" for flag, column in in_folds.items() if column is not None]
    if len(typed) > 1 or (typed and division["folds"] is None):
        choose = "give one of the two, " * (len(typed) > 1)
        raise UsageError(
            f"{' and '.join(typed)}: {choose}of rows in folds: two --replicates or more, without "
            "--test-share, --k, --inference, --guide, --predictor trees and a --method but lex"
        )
    if typed and name in shipped_names():
        raise UsageError(f"{typed[0]}: is for tables in files, and {name!r} comes along")
    if division["folds"] is None:
        shares = ("valid_share", "test_share")
        division |= {share: getattr(options, share, None) for share in shares}
    if name in shipped_names():
        return divided_set(name, **division).to(device)
    path = Path(name).expanduser()
    file_format = file_format_of(options)
    flags = (*KINDS[COLUMNS].split(), "--drop-missing")
    reading = {name_of(flag): value_of(options, flag) for flag in flags} | in_folds | division
    reading["hide_missing"] = reading["hide_missing"] or reading["missing_indicator"]
    table = read_frame(path, file_format, column_names=options.column_names), options.target
    reading |= {"file_format": file_format, "name": table_name(path)}
    if options.strict:
        return divided_frame(*table, **reading).to(device)
    hide = takes_missing(options)
    source, decisions = with_decisions(divided_frame, *table, hide=hide, **reading)
    decisions = tuple(map(with_options, decisions))
    for decision in decisions:
        show_progress(f"decided: {decision}")
    return replace(source, decisions=decisions).to(device)


def file_format_of(options: argparse.Namespace) -> FileFormat:
    """The format of a table's file, as typed."""
    separators = {"\\t": "\t", "tab": "\t", "space": r"\s+"}
    return FileFormat(
        missing=tuple(options.missing),
        separator=separators.get(options.separator, options.separator),
        decimal=options.decimal,
        text_encoding=options.encoding,
    )
