"""`lexppl explain --with`: new rows explained by a saved explainer, without a fit."""

import argparse
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr
from torch import Tensor

from lexppl.cli.options.checks import check_row_numbers, explainer_folder
from lexppl.cli.results.single_rows import write_lines
from lexppl.cli.terminal import DIGITS, ENCODING, IMPORTANCE, OUTPUTS, ROWS, UsageError, show
from lexppl.data.encoding import TableEncoding
from lexppl.data.files import read_frame
from lexppl.explanation.explained_rows import explained_rows
from lexppl.explanation.reading.feature_values import decoded_values
from lexppl.explanation.reading.masks import PROBABILITY, kind_of, mask_means, responses_of
from lexppl.explanation.reading.tables import selection_table
from lexppl.explanation.row_plan import Explaining
from lexppl.inference.training.result import FitResult, with_penalty
from lexppl.saving.files import load
from lexppl.sealed_files import output_folder

ROW_MASKS = 100
MEAN_RESPONSE = "mean response"
SHOWN = 10  # Features that are printed


def run_explain_with(options: argparse.Namespace, command: Sequence[str]) -> int:
    """Carry out `lexppl explain --with`; the exit code, 0."""
    folder = explainer_folder(options)
    encoding = TableEncoding.load(folder.parent / ENCODING)
    file = Path(options.data).expanduser()
    frame = read_frame(file, encoding.file_format, words=encoding.words)
    x = encoding.encode(frame)
    check_row_numbers(options.row, len(x), f"rows of {options.data}")
    result = load(folder)
    penalty = options.penalty
    with (
        output_folder(options.out, options.overwrite, OUTPUTS) as out,
        nullcontext() if penalty is None else with_penalty(result.models, penalty),
    ):
        found = explained_rows(result, x, None, Explaining(draws=options.draws, seed=options.seed))
        groups = {name: xr.DataTree(group) for name, group in found.groups().items()}
        posterior = xr.DataTree(children=groups)
        ranking = selection_table(posterior)
        ranking.to_csv(out / IMPORTANCE, float_format=DIGITS)
        if options.row and kind_of(posterior) is not PROBABILITY:
            raise UsageError("--row: masks that do not select have no steps by feature")
        if options.row:
            lines = _steps(result, x, encoding, options)
        else:
            lines = _rows(posterior, x, encoding)
        write_lines(lines, out / ROWS, encoding.target.scale)
    show(f"{len(x)} rows explained by {folder}\n")
    show(ranking.iloc[:SHOWN, :1].to_string(float_format="{:.3f}".format))
    show(f"\nWritten to {options.out}: {IMPORTANCE}, {ROWS}")
    return 0


def _rows(posterior: xr.DataTree, x: Tensor, encoding: TableEncoding) -> pd.DataFrame:
    """A line for each row and feature, the most kept first; the last total is the prediction."""
    means = mask_means(posterior)
    names, kept = [str(name) for name in means[means.dims[-1]].values], means.values.mean(0)
    values = decoded_values(x, encoding)
    response = responses_of(posterior)
    if "y_probability" in response:
        probability = response["y_probability"].values.mean(0, dtype=np.float64)
        likeliest = probability.argmax(-1)
        labels = [str(response["class"].values[c]) for c in likeliest]
        totals = np.log(probability[np.arange(len(x)), likeliest])
    else:
        drawn = response["y"].values.mean((0, 1), dtype=np.float64)
        labels = [MEAN_RESPONSE] * len(x)
        totals = encoding.target.inverse(drawn)
    order = np.argsort(-kept, axis=-1, kind="stable")
    total = np.full(kept.shape, np.nan)
    total[:, -1] = totals
    texts = [
        values[names[g]].text(row) if names[g] in values else ""
        for row, places in enumerate(order)
        for g in places
    ]
    return pd.DataFrame(
        {
            "row": np.arange(len(x)).repeat(len(names)),
            "predicted": np.array(labels, dtype=object).repeat(len(names)),
            "feature": np.array(names, dtype=object)[order].ravel(),
            "value": texts,
            "total": total.ravel(),
            "kept": np.take_along_axis(kept, order, axis=-1).ravel(),
        }
    )


def _steps(
    result: FitResult, x: Tensor, encoding: TableEncoding, options: argparse.Namespace
) -> pd.DataFrame:
    """The rows of --row, feature by feature."""
    from lexppl.cli.results.single_rows import ExplainedRow  # noqa: PLC0415 - slow; --row alone
    from lexppl.evaluation.effects import revealed_predictions  # noqa: PLC0415

    own = x[list(options.row)]
    values = decoded_values(own, encoding)
    found = revealed_predictions(result, own, masks=ROW_MASKS, seed=options.seed)
    parts = []
    for place, number in enumerate(options.row):
        steps = found.steps(place)
        if found.class_names is None:
            steps = steps.in_units(encoding.target.scale, encoding.target.level)
        texts = {name: each.text(place) for name, each in values.items()}
        parts.append(ExplainedRow(number, "", steps, "", texts).lines())
    return pd.concat(parts, ignore_index=True)
