"""`lexppl impute`: scores of imputers on values that are hidden on purpose."""

import argparse
from collections.abc import Sequence
from typing import cast

import pandas as pd
from torch import Tensor, nn

from lexppl.choices.imputers import LEARNED
from lexppl.cli.image_text_rows import read_images
from lexppl.cli.options.checks import IMAGES, kind_of_data
from lexppl.cli.options.plan_options import device_of
from lexppl.cli.table_rows import read_source
from lexppl.cli.terminal import json_output, one_thread, records, show, show_progress, text_table
from lexppl.data.divided_table import DividedTable, capped
from lexppl.evaluation.imputation import RATES, ImputationScores, imputation
from lexppl.models.grouping import Grouping
from lexppl.models.imputers import imputer_of
from lexppl.report.divided_rows import DividedRows
from lexppl.systems import fit_vaeac
from lexppl.systems.fit_plan import FEW_ROWS

STEPS_OF_VAEAC = 3000  # Of its fit, about
BATCH = 100  # Rows of such a step


def run_impute(options: argparse.Namespace, command: Sequence[str]) -> int:
    """Carry out `lexppl impute`; the exit code, 0."""
    device = device_of(options.device)
    with json_output(options, command) as write:
        source: DividedTable | DividedRows
        if kind_of_data(options) == IMAGES:
            source = read_images(options, device)
            grouping = cast(Grouping, source.architecture.grouping)
        else:
            source = capped(read_source(options, device), options.seed)
            grouping = Grouping(source.data.groups, source.data.entry_names)
        scores = _scores(options, source.train.x, source.test.x, grouping.to(device))
        write({"scores": records(scores.table), "decisions": getattr(source, "decisions", ())})
    _print(scores, source)
    if options.out is not None:
        show(f"\nWritten to {options.out}")
    return 0


def _scores(
    options: argparse.Namespace, x: Tensor, test: Tensor, grouping: Grouping
) -> ImputationScores:
    fitted: dict[str, nn.Module] = {}
    with one_thread(len(x) < FEW_ROWS):
        for name in options.imputers:
            show_progress(f"fitting {name}", options.quiet)
            fitted[name] = _fitted(name, x, grouping, options)
        show_progress("scoring", options.quiet)
        rates = RATES if options.rates is None else options.rates
        how = {"draws": options.draws, "seed": options.seed}
        return imputation(fitted, test, rates=rates, grouping=grouping, **how)


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


def _print(scores: ImputationScores, source: DividedTable | DividedRows) -> None:
    table, groups, hidden, unit = scores.table, [], "features", "standard deviations"
    left_out = ""
    if isinstance(source, DividedTable):
        groups = list(source.data.groups)
    else:
        hidden, unit = source.data.entries.partition(" of ")[0], "shades, from 0 to 1"
        left_out = f"\n{source.data.left_out}" * bool(source.data.left_out)
    show(
        f"{source.data.name}: {len(source.train.x)} rows to fit on, {len(source.test.x)} held out "
        f"and scored, by the share of {hidden} that is hidden{left_out}"
    )
    for figure, heading in (
        ("crps", f"CRPS of a hidden value, in {unit} (smaller is better)"),
        ("log_likelihood", "log-likelihood of a hidden value, nats (larger is better)"),
    ):
        shown = table[table[figure].notna()]
        if len(shown):
            show(f"\n{heading}")
            cells = [
                [str(name), *map(_cell, of[figure], of[f"{figure}_error"])]
                for name, of in shown.groupby(level=0, sort=False)
            ]
            rates = [f"{100 * rate:g} %" for rate in scores.rates]
            show(text_table(["imputer", *rates], cells))
    densities = zip(scores.imputers, scores.log_likelihood, strict=True)
    without = [name for name, by_row in densities if bool(by_row.isnan().all())]
    show("\n  ± one standard error over the held-out rows")
    if without:
        show(f"  of points and rows, without a density: {', '.join(without)}")
    if len(set(groups)) < len(groups):
        show("  columns of categories have no density: trust their CRPS")


def _cell(value: float, error: float) -> str:
    return f"{value:.3f}" if pd.isna(error) else f"{value:.3f} ± {error:.3f}"
