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
from lexppl.cli.fitting import FitSettings, check_size, device_of, fit_explainer, plan_of
from lexppl.cli.messages import tell
from lexppl.cli.source import Splits, divide, read_source
from lexppl.cli.tables import text_table
from lexppl.cli.threads import one_thread
from lexppl.compare import METHODS as OTHERS
from lexppl.compare import compare
from lexppl.evaluation import FittedPredictor, fit_predictor
from lexppl.models.regimes import Regime, regime_targets
from lexppl.systems import DEFAULT_METHOD, METHODS
from lexppl.tabular.fit_plan import FEW_ROWS


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
    device = device_of(options.device)
    with _output(options) as file:
        source = read_source(options, device)
        check_size(options.k, source.data.n_groups)
        parts = divide(source.data, options.valid_share, options.test_share, options.seed)
        with one_thread(len(parts.train) < FEW_ROWS):
            table = _compared(names, options, parts)
        if file is not None:
            told = {"command": list(command), "methods": _records(table)}
            file.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(f"{source.data.name}: {len(parts.test)} held-out rows, judged by EVAL-X")
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


def _compared(names: list[str], options: argparse.Namespace, parts: Splits) -> pd.DataFrame:
    progress = not options.quiet
    first = _plan(names[0] if names[0] in METHODS else DEFAULT_METHOD, options, parts)
    training: dict[str, Any] = {
        "hidden": first.predictor_hidden,
        "epochs": first.epochs,
        "batch_size": first.batch_size,
    }
    tell("fitting the predictor that sees everything", options.quiet)
    full = fit_predictor(
        parts.train, valid=parts.valid, seed=options.seed, progress=progress, **training
    )
    compared: dict[str, Any] = {}
    for name in names:
        if name in OTHERS:
            compared[name] = name
            continue
        tell(f"fitting {name}", options.quiet)
        compared[name] = _fitted(name, options, parts, full, progress)
    tell("judging", options.quiet)
    return compare(
        compared,
        parts.train,
        parts.test,
        valid=parts.valid,
        model=full,
        sizes=options.sizes,
        fit_options=training,
        seed=options.seed,
        progress=progress,
    )


def _plan(name: str, options: argparse.Namespace, parts: Splits) -> FitSettings:
    """The plan of one of the methods: --k is for those that take one."""
    method = METHODS[name]
    own = argparse.Namespace(**vars(options))
    own.method = name
    if method.needs("k"):
        own.k = options.k or max(1, parts.train.n_groups // 4)
    elif not method.takes("k"):
        own.k = None
    for setting in ("masks", "imputations"):
        if not method.takes(setting):
            setattr(own, setting, None)
    return plan_of(own, len(parts.train), Regime.FREE_IN_SITU)


def _fitted(
    name: str, options: argparse.Namespace, parts: Splits, full: FittedPredictor, progress: bool
) -> Any:
    plan = _plan(name, options, parts)
    regime = Regime.SELF_POST_HOC if METHODS[name].explains_model else Regime.FREE_IN_SITU
    targets = [
        regime_targets(regime, part.x, part.y, predictor=full.predictor)
        for part in (parts.train, parts.valid)
    ]
    given = full.predictor if METHODS[name].explains_model else None
    return fit_explainer(plan, parts, targets, given, progress)


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
