"""`lexppl compare`: methods side by side on one data set, under one judge."""

import argparse
import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pandas as pd

from lexppl.atomic_output import output_file
from lexppl.cli.errors import UsageError
from lexppl.cli.messages import tell
from lexppl.cli.options.plan_options import device_of, plan_of
from lexppl.cli.source import read_source
from lexppl.cli.tables import text_table
from lexppl.cli.threads import one_thread
from lexppl.compare import METHODS as OTHERS
from lexppl.compare import compare
from lexppl.data import DividedTable
from lexppl.inference import entropy_unit
from lexppl.systems import DEFAULT_METHOD, METHODS
from lexppl.tabular.fit_plan import FEW_ROWS
from lexppl.tabular.table_fit import EncodedRows, fit_full_predictor, fit_table


def run_compare(options: argparse.Namespace, command: Sequence[str]) -> int:
    """Carry out `lexppl compare`.

    Args:
        options: as typed.
        command: the words that were typed.

    Returns:
        the exit code, 0.

    Raises:
        UsageError, ValueError, TypeError, OSError: a mistake in what was typed or in the data.
        ImportError: a method whose library is not installed.
    """
    names = _methods(options.methods)
    if options.hide_missing:
        raise UsageError(
            "--hide-missing is for lexppl explain: the methods that compare puts side by side, and "
            "their judge, see every value; give --drop-missing"
        )
    device = device_of(options.device)
    with _output(options) as file:
        source = read_source(options, device)
        with one_thread(len(source.train_rows) < FEW_ROWS):
            table = _compared(names, options, source)
        if file is not None:
            described = {"command": list(command), "methods": _records(table)}
            file.write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
    print(f"{source.data.name}: {len(source.test_rows)} held-out rows, judged by EVAL-X")
    print(text_table(*_cells(table)))
    print("  @k: each row's k most important features are kept; random is the order to beat")
    return 0


def _output(options: argparse.Namespace) -> AbstractContextManager[Path | None]:
    return nullcontext() if options.out is None else output_file(options.out, options.overwrite)


def _methods(text: str) -> list[str]:
    known = (*METHODS, *OTHERS)
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise UsageError(
            f"--methods takes names separated by commas; {', '.join(unknown) or 'none'} given, of "
            f"{', '.join(known)}"
        )
    if len(set(names)) < len(names):
        raise UsageError(f"--methods names a method twice: {text}")
    return names


def _compared(names: list[str], options: argparse.Namespace, source: DividedTable) -> pd.DataFrame:
    data, progress = source.data, not options.quiet
    own = [name for name in names if name in METHODS]
    rows = EncodedRows.of(data, source.train_rows, source.valid_rows)
    unit = entropy_unit(rows.train[1], len(data.class_names or ()))
    plans = {
        name: plan_of(options, len(source.train_rows), data, method=name, unit=unit)
        for name in (*own, DEFAULT_METHOD)
    }
    usual = plans[DEFAULT_METHOD]
    tell("fitting the predictor that sees everything", options.quiet)
    full = fit_full_predictor(usual, rows, progress)
    compared: dict[str, Any] = {}
    for name in names:
        if name in OTHERS:
            compared[name] = name
            continue
        tell(f"fitting {name}", options.quiet)
        compared[name] = fit_table(plans[name], rows, full=full, progress=progress).result
    tell("judging", options.quiet)
    return compare(
        compared,
        source.train,
        source.test,
        valid=source.valid,
        model=full,
        sizes=options.sizes,
        fit_options={
            "hidden": usual.predictor_hidden,
            "epochs": usual.epochs,
            "batch_size": usual.batch_size,
        },
        seed=options.seed,
        progress=progress,
    )


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {"method": name} | {str(k): None if pd.isna(v) else float(v) for k, v in row.items()}
        for name, row in table.to_dict("index").items()
    ]


def _cells(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    shown = [c for c in table.columns if c != "seconds_per_row"]
    rows = [
        [str(name), *("" if pd.isna(row[c]) else f"{row[c]:.3f}" for c in shown)]
        for name, row in table.to_dict("index").items()
    ]
    return ["method", *shown], rows
