"""`lexppl change`: which columns the difference between two fitted models depends on."""

import argparse
from collections.abc import Sequence

import pandas as pd
from torch import Tensor

from lexppl.cli.black_box_file import load_black_box
from lexppl.cli.options.plan_options import device_of
from lexppl.cli.options.table import SHARE
from lexppl.cli.table_rows import read_source
from lexppl.cli.terminal import (
    json_output,
    one_line,
    one_thread,
    records,
    show,
    show_progress,
    text_table,
)
from lexppl.data.divided_table import DividedTable
from lexppl.evaluation.change import check_refits, explain_change
from lexppl.systems.fit_plan import FEW_ROWS
from lexppl.tabular.given_model import box_of_table


def run_change(options: argparse.Namespace, command: Sequence[str]) -> int:
    """Carry out `lexppl change`; the exit code, 0."""
    check_refits(options.refits)
    device = device_of(options.device)
    options.test_share = SHARE  # All rows are compared, however the table is divided.
    with json_output(options, command) as write:
        source = read_source(options, device)
        flags = [("--old", options.old), ("--new", options.new)]
        flags += [("--refits", file) for file in options.refits]
        old, new, *refits = [_answers(flag, file, source) for flag, file in flags]
        show_progress("comparing", options.quiet)
        with one_thread(len(source.data) < FEW_ROWS):
            change = explain_change(old, new, source.data, refits=refits, seed=options.seed)
        table = change.table(options.fdr)
        of_rows = {"share_of_rows": change.share_of_rows, "decisions": source.decisions}
        write({"columns": records(table), **of_rows})
    show(f"{source.data.name}: {len(source.data)} rows; {options.old} and {options.new}\n")
    show(change.sentence(options.fdr))
    heads = {"first": "alone", "last": "beyond the others", "p": "p", "found": "found"}
    heads = {column: head for column, head in heads.items() if column in table}
    cells = [[str(name), *(_cell(row[c]) for c in heads)] for name, row in table.iterrows()]
    show(f"\n{text_table(['column', *heads.values()], cells)}")
    return 0


def _answers(flag: str, file: str, source: DividedTable) -> Tensor:
    """Answers of the model in a file for the rows of a table."""
    data = source.data
    try:
        box, x = box_of_table(load_black_box(file), source.table, classes=data.class_names)
        if box.task != data.task:
            raise ValueError(f"it is for {box.task}, and {data.target_name!r} is for {data.task}")
        return box.targets(x)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{flag} {file}: {one_line(error)}") from error


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "–" if pd.isna(value) else f"{value:.4f}"
    return "yes" if value else "no"
