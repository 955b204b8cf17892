"""`lexppl explain --with`: new rows explained by a saved explainer, without a fit."""

import argparse
import shlex
from collections.abc import Sequence
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from markupsafe import Markup
from torch import Tensor

from lexppl.choices.files import DIGITS, ENCODING, IMPORTANCE, OUTPUTS, PREDICTIONS, REPORT, ROWS
from lexppl.cli.options.checks import check_row_numbers, explainer_folder
from lexppl.cli.terminal import UsageError, show
from lexppl.data.encoding import TableEncoding
from lexppl.data.files import read_frame
from lexppl.explanation.explain import explanation_tree
from lexppl.explanation.reading.feature_values import decoded_values
from lexppl.explanation.reading.masks import PROBABILITY, kind_of, mask_means, responses_of
from lexppl.explanation.reading.sentences import html, reading_of
from lexppl.explanation.reading.tables import selection_table
from lexppl.inference.training.result import FitResult, with_penalty
from lexppl.report.page import HEAD, rendered
from lexppl.report.results.single_rows import write_lines
from lexppl.saving.files import load
from lexppl.sealed_files import output_folder
from lexppl.summary import counted

ROW_MASKS = 100
MEAN, MEDIAN = "mean", "median"  # Of a response
SHOWN = 10  # Features that are printed
SHOWN_ROWS, MOST_KEPT = 100, 3  # Rows of the page, and features of a row


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
        posterior = explanation_tree(result, x, draws=options.draws, seed=options.seed)
        ranking = selection_table(posterior)
        ranking.to_csv(out / IMPORTANCE, float_format=DIGITS)
        if options.row and kind_of(posterior) is not PROBABILITY:
            raise UsageError("--row: masks that do not select have no steps by feature")
        predicted = _predictions(posterior, frame, encoding)
        if options.row:
            lines = _steps(result, x, encoding, options)
        else:
            lines = _rows(posterior, x, encoding, predicted)
        write_lines(lines, out / ROWS, encoding.target.unit)
        frequencies = mask_means(posterior).mean("chain", dtype=np.float64).to_pandas()
        rows = predicted.join(frequencies.add_prefix("kept(").add_suffix(")"))
        rows.to_csv(out / PREDICTIONS, float_format="%.6g")
        most = frequencies.T.apply(lambda row: ", ".join(map(str, row.nlargest(MOST_KEPT).index)))
        first = predicted.assign(**{"most kept": most}).head(SHOWN_ROWS)
        as_html: Any = {"index": False, "border": 0, "float_format": "{:.3g}".format}
        page = {
            "version": version("lexppl"),
            "title": f"What predicts {encoding.target.name} in {file.name}",
            "subtitle": f"{counted(len(x), 'new row')}, explained by {folder} without a fit",
            "answers": [(q, html(text)) for q, text in reading_of(posterior).answers()],
            "warnings": (),
            "decisions": (),
            "tables": [Markup(part.reset_index().to_html(**as_html)) for part in (ranking, first)],
            "note": f"The first {counted(len(first), 'row')}; {PREDICTIONS} has all of them.",
            "command": shlex.join(command),
        }
        text = rendered(*HEAD, "opening.html", "new_rows.html", **page)
        (out / REPORT).write_text(text, encoding="utf-8")
    show(f"{len(x)} rows explained by {folder}\n")
    show(ranking.iloc[:SHOWN, :1].to_string(float_format="{:.3f}".format))
    show(f"\nWritten to {options.out}: {REPORT}, {PREDICTIONS}, {IMPORTANCE}, {ROWS}")
    return 0


def _predictions(
    posterior: xr.DataTree, frame: pd.DataFrame, encoding: TableEncoding
) -> pd.DataFrame:
    """A line for each row: the target where the file has it; the likeliest label and the
    probability of each, or the mean and the standard deviation of the response (of one with a heavy
    tail the median, and the standard deviation on its curve)."""
    response, target = responses_of(posterior), encoding.target
    observed = {"observed": frame[target.name].to_numpy()} if target.name in frame else {}
    if "y_probability" in response:
        values: Any = response["y_probability"].mean("chain", dtype=np.float64).to_pandas()
        shares = values.add_prefix("p(").add_suffix(")")
        predicted = {"predicted": values.idxmax(axis=1), **shares}
    else:
        drawn, draws = response["y"].astype(np.float64), ("chain", "draw")
        name, spread = (MEAN, "sd") if target.curve is None else (MEDIAN, f"sd of {target.label}")
        centre = drawn.mean(draws) if target.curve is None else drawn.median(draws)
        sd = drawn.std(draws).to_pandas() * target.scale
        predicted = {name: target.inverse(centre.values), spread: sd}
    return pd.DataFrame({**observed, **predicted}, index=pd.RangeIndex(len(frame), name="row"))


def _rows(
    posterior: xr.DataTree, x: Tensor, encoding: TableEncoding, predicted: pd.DataFrame
) -> pd.DataFrame:
    """A line for each row and feature, the most kept first; the last total is the prediction."""
    means, values = mask_means(posterior), decoded_values(x, encoding)
    names, selection = means[means.dims[-1]].values.astype(str), means.values.mean(0)
    place, feature = np.arange(len(x)).repeat(len(names)), np.tile(names.astype(object), len(x))
    lines = pd.DataFrame({"row": place, "feature": feature, "kept": selection.ravel()})
    lines = lines.sort_values(["row", "kept"], ascending=[True, False], ignore_index=True)
    if "predicted" in predicted:
        labels = predicted["predicted"]
        totals = np.log(predicted.filter(regex=r"^p\(").max(axis=1))
    else:
        totals = predicted[predicted.columns[-2]]
        labels = pd.Series(f"{totals.name} response", totals.index)
    row, last = lines["row"], ~lines["row"].duplicated(keep="last")
    lines["predicted"] = labels.loc[row].to_numpy()
    lines["total"] = totals.loc[row].where(last.to_numpy()).to_numpy()
    lines["value"] = [
        values[name].text(place) if name in values else ""
        for place, name in zip(row, lines["feature"], strict=True)
    ]
    return lines[["row", "predicted", "feature", "value", "total", "kept"]]


def _steps(
    result: FitResult, x: Tensor, encoding: TableEncoding, options: argparse.Namespace
) -> pd.DataFrame:
    """The rows of --row, feature by feature."""
    from lexppl.evaluation.effects import revealed_predictions  # noqa: PLC0415
    from lexppl.report.results.single_rows import ExplainedRow  # noqa: PLC0415 - slow; --row alone

    chosen = x[list(options.row)]
    values = decoded_values(chosen, encoding)
    predictions = revealed_predictions(result, chosen, masks=ROW_MASKS, seed=options.seed)
    parts = []
    for place, number in enumerate(options.row):
        steps = predictions.steps(place)
        if predictions.class_names is None:
            steps = steps.in_units(encoding.target.scale, encoding.target.level)
        texts = {name: value.text(place) for name, value in values.items()}
        parts.append(ExplainedRow(number, "", steps, "", texts).lines())
    return pd.concat(parts, ignore_index=True)
