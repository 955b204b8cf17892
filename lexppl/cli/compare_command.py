"""`lexppl compare`: methods side by side on one data set, under one judge."""

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from lexppl.choices.methods import DEFAULT_METHOD, LIBRARIES, METHODS
from lexppl.cli.options.plan_options import device_of, plan_of
from lexppl.cli.table_rows import read_source
from lexppl.cli.terminal import json_output, one_thread, records, show, show_progress, text_table
from lexppl.compare import compare
from lexppl.data.divided_table import DividedTable
from lexppl.evaluation.encode_meter import check_meter_rows
from lexppl.inference import entropy_unit
from lexppl.summary import number_text
from lexppl.systems.fit_plan import FEW_ROWS
from lexppl.tabular.encoded_rows import EncodedRows
from lexppl.tabular.predictors import fit_full_predictor
from lexppl.tabular.table_fit import fit_table


def run_compare(options: argparse.Namespace, command: Sequence[str]) -> int:
    """Carry out `lexppl compare`; the exit code, 0."""
    device = device_of(options.device)
    with json_output(options, command) as write:
        source = read_source(options, device)
        if options.leaks:
            check_meter_rows(source.test.y, name="the held-out target, which --leaks asks,")
        with one_thread(len(source.train_rows) < FEW_ROWS):
            table = _compared(options, source)
        table.loc[:, table.columns.str.startswith("rmse@")] *= source.target_scale
        write({"methods": records(table.rename_axis("method")), "decisions": source.decisions})
    show(f"{source.data.name}: {len(source.test_rows)} held-out rows, judged by EVAL-X")
    lines = list(table.to_dict("index").items())
    times = [
        [str(name), *(_seconds(line[column]) for column in ("fit_seconds", "seconds_per_row"))]
        for name, line in lines
    ]
    show(text_table(["method", "seconds to fit", "a row"], times))
    figures = [name for name in table.columns if f"{name}_lower" in table.columns]
    for size in dict.fromkeys(name.partition("@")[2] for name in figures):
        shown = [name for name in figures if name.partition("@")[2] == size]
        cells = [[str(name), *(_with_interval(line, of) for of in shown)] for name, line in lines]
        show(f"\n{text_table(['method', *shown], cells)}")
    show("  @k: each row's k most important features are kept; random is the order to beat")
    show(
        "  fixed: the first figure if all rows keep the same k features; choice: that of\n"
        "  the choice alone, whatever is kept. Where the first figure is far above fixed,\n"
        "  or choice is high, the choice may carry the label; EVAL-X does not see that"
    )
    if options.leaks:
        show("  encoded: nats in the choice of k features beyond their values; honest ones 0")
    show("  (95 % over the held-out rows, and over the replicates where there are several)")
    return 0


def _compared(options: argparse.Namespace, source: DividedTable) -> pd.DataFrame:
    data, progress = source.data, not options.quiet
    methods = [name for name in options.methods if name in METHODS]
    rows = EncodedRows.of(data, source.train_rows, source.valid_rows)
    unit = entropy_unit(rows.train[1], len(data.class_names or ()))
    plans = {
        name: plan_of(options, len(source.train_rows), data, method=name, unit=unit)
        for name in (*methods, DEFAULT_METHOD)
    }
    usual = plans[DEFAULT_METHOD]
    show_progress("fitting the predictor that sees everything", options.quiet)
    full = fit_full_predictor(usual, rows, progress)
    compared: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    for name in options.methods:
        if name in LIBRARIES:
            compared[name] = name
            continue
        show_progress(f"fitting {name}", options.quiet)
        started = time.perf_counter()
        compared[name] = fit_table(plans[name], rows, full=full, progress=progress).result
        seconds[name] = time.perf_counter() - started
        if plans[name].needs_full_predictor:
            seconds[name] += float(full.result.history.seconds.sum())
    show_progress("judging", options.quiet)
    names = {"hidden": "predictor_hidden", "epochs": "epochs", "batch_size": "batch_size"}
    fit_options = {name: getattr(usual, setting) for name, setting in names.items()}
    return compare(
        compared,
        source.train,
        source.test,
        valid=source.valid,
        model=full,
        sizes=options.sizes,
        fit_options=fit_options,
        seconds=seconds,
        leaks=options.leaks,
        seed=options.seed,
        progress=progress,
    )


def _with_interval(row: Mapping[Any, Any], figure: str) -> str:
    """A figure of a row of the table, and its interval where it has one, but beside another."""
    if pd.isna(row[figure]):
        return "–"
    low, high = row[f"{figure}_lower"], row[f"{figure}_upper"]
    if figure.startswith("rmse@"):
        value, *ends = map(number_text, (row[figure], low, high))
    else:
        value, *ends = f"{row[figure]:.3f}", f"{low:.2f}", f"{high:.2f}"
    beside = figure.partition("@")[0] in ("fixed", "choice")
    return value if pd.isna(low) or beside else f"{value} ({' to '.join(ends)})"


def _seconds(value: float) -> str:
    """Two digits, or a dash if not known.

    Example:
        >>> _seconds(12.34), _seconds(0.000123), _seconds(0.0)
        ('12', '0.00012', '0')
    """
    if pd.isna(value):
        return "–"
    return f"{value:.0f}" if value >= 10.0 else f"{value:.2g}"
