"""`lexppl impute`: imputers scored by what they make of hidden values."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from lexppl.choices.imputers import LEARNED
from lexppl.cli.images_and_texts.image_rows import read_images
from lexppl.cli.options.data_checks import IMAGES, kind_of_data
from lexppl.cli.options.plan_options import device_of
from lexppl.cli.outputs import json_output
from lexppl.cli.source import capped, read_source
from lexppl.cli.tables import text_table
from lexppl.cli.terminal.short_warnings import short_warnings
from lexppl.cli.terminal.standard_error import tell
from lexppl.cli.terminal.threads import one_thread
from lexppl.evaluation.imputation import RATES, ImputationScores, imputation
from lexppl.models.grouping import Grouping
from lexppl.models.imputers import imputer_of
from lexppl.systems import fit_vaeac
from lexppl.tabular.fit_plan import FEW_ROWS

STEPS_OF_VAEAC = 3000
"""Of its fit, about."""
BATCH = 100
"""Rows of such a step."""


@short_warnings()
def run_impute(options: argparse.Namespace, command: Sequence[str]) -> int:
    """Carry out `lexppl impute`.

    Args:
        options: as typed.
        command: the words that were typed.

    Returns:
        the exit code, 0.

    Raises:
        UsageError, ValueError, TypeError, OSError: a mistake in what was typed or in the data.
    """
    images = kind_of_data(options) == IMAGES
    device = device_of(options.device)
    read = _images if images else _table
    with json_output(options, command) as write:
        source = read(options, device)
        scores = _scores(options, source)
        write({"scores": _records(scores)})
    _print(scores, source)
    if options.out is not None:
        print(f"\nWritten to {options.out}")
    return 0


@dataclass(frozen=True, eq=False)
class ImputedRows:
    """Rows to fit imputers on and rows to score them on, with what an entry hides.

    Args:
        name: of the data set.
        train, test: the rows, `(N, *event)`.
        grouping: which features an entry hides.
        hidden: what is hidden, such as "features".
        unit: of their values.
        grouped: whether an entry hides several columns of a table.
        left_out: what was not read, in words.
    """

    name: str
    train: Tensor
    test: Tensor
    grouping: Grouping
    hidden: str = "features"
    unit: str = "standard deviations"
    grouped: bool = False
    left_out: str = ""


def _table(options: argparse.Namespace, device: torch.device) -> ImputedRows:
    source = capped(read_source(options, device), options.seed)
    data = source.data
    grouping = Grouping(data.groups, data.entry_names).to(device)
    grouped = len(set(data.groups)) < len(data.groups)
    return ImputedRows(data.name, source.train.x, source.test.x, grouping, grouped=grouped)


def _images(options: argparse.Namespace, device: torch.device) -> ImputedRows:
    source = read_images(options, device)
    grouping = source.architecture.grouping
    if grouping is None:
        raise ValueError("images are hidden by patches, and these have none")
    data = source.data
    return ImputedRows(
        data.name,
        source.train.x,
        source.test.x,
        grouping.to(device),
        data.entries.partition(" of ")[0],
        "shades, from 0 to 1",
        left_out=data.left_out,
    )


def _scores(options: argparse.Namespace, source: ImputedRows) -> ImputationScores:
    x, grouping = source.train, source.grouping
    fitted: dict[str, nn.Module] = {}
    with one_thread(len(x) < FEW_ROWS):
        for name in options.imputers:
            tell(f"fitting {name}", options.quiet)
            fitted[name] = _fitted(name, x, grouping, options)
        tell("scoring", options.quiet)
        rates = RATES if options.rates is None else options.rates
        scores = imputation(
            fitted,
            source.test,
            rates=rates,
            draws=options.draws,
            grouping=grouping,
            seed=options.seed,
        )
    return scores


def _fitted(name: str, x: Tensor, grouping: Grouping, options: argparse.Namespace) -> nn.Module:
    if name not in LEARNED:
        return imputer_of(name, x, options.seed)
    return fit_vaeac(
        x,
        grouping=grouping,
        seed=options.seed,
        epochs=max(1, STEPS_OF_VAEAC * BATCH // len(x)),
        batch_size=BATCH,
        progress=not options.quiet,
    )


def _print(scores: ImputationScores, source: ImputedRows) -> None:
    table = scores.table
    print(
        f"{source.name}: {len(source.train)} rows to fit on, {len(source.test)} held out and "
        f"scored, by the share of {source.hidden} that is hidden"
    )
    if source.left_out:
        print(source.left_out)
    for figure, heading in (
        ("crps", f"CRPS of a hidden value, in {source.unit} (smaller is better)"),
        ("log_likelihood", "log-likelihood of a hidden value, nats (larger is better)"),
    ):
        shown = table[table[figure].notna()]
        if len(shown):
            print(f"\n{heading}")
            print(text_table(*_cells(shown, figure, scores)))
    densities = zip(scores.imputers, scores.log_likelihood, strict=True)
    without = [name for name, each in densities if bool(each.isnan().all())]
    print("\n  ± one standard error over the held-out rows")
    if without:
        print(f"  of points and rows, without a density: {', '.join(without)}")
    if source.grouped:
        print("  columns of categories have no density: trust their CRPS")


def _cells(
    table: pd.DataFrame, figure: str, scores: ImputationScores
) -> tuple[list[str], list[list[str]]]:
    names = [name for name in scores.imputers if name in table.index.get_level_values(0)]
    rows = []
    for name in names:
        of_rates = table.loc[name]
        pairs = zip(of_rates[figure], of_rates[f"{figure}_error"], strict=True)
        rows.append([name, *(_cell(value, error) for value, error in pairs)])
    return ["imputer", *(f"{100 * rate:g} %" for rate in scores.rates)], rows


def _cell(value: float, error: float) -> str:
    return f"{value:.3f}" if pd.isna(error) else f"{value:.3f} ± {error:.3f}"


def _records(scores: ImputationScores) -> list[dict[str, Any]]:
    return [
        {"imputer": name, "rate": rate}
        | {str(k): None if pd.isna(v) else float(v) for k, v in row.items()}
        for (name, rate), row in zip(
            product(scores.imputers, scores.rates), scores.table.to_dict("records"), strict=True
        )
    ]
