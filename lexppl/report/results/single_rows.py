"""Single rows feature by feature, and directions of features."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lexppl.arviz_compatibility import Posterior
from lexppl.choices.files import DIGITS
from lexppl.data.divided_table import DividedTable
from lexppl.evaluation.effects import (
    FeatureEffects,
    RevealedPredictions,
    RowSteps,
    direction_table,
    feature_effects,
    revealed_predictions,
)
from lexppl.evaluation.feature_groups import FeatureGroups
from lexppl.evaluation.folds import judged
from lexppl.evaluation.prediction import base_frequencies
from lexppl.explanation.reading.feature_values import (
    FeatureValues,
    decoded_values,
    with_gains,
    with_values,
)
from lexppl.explanation.reading.masks import masks_of, responses_of
from lexppl.explanation.reading.rows import percent
from lexppl.report.results.gains import FittedTable, JudgedGains
from lexppl.report.results.scores import folds_at
from lexppl.summary import number_text

DIRECTION_ROWS, LEAST_ROWS = 500, 50  # Most held-out rows of directions, and least of many features
DIRECTION_MASKS = 8
EVALUATIONS = 2_000_000  # Most predictions of a row that directions may cost: seconds
ROW_MASKS = 100
SHOWN_VALUES = 3  # Members of a group whose values are shown
DEFAULT_ROWS = ("predicted best", "in the middle", "predicted worst")
SHOWN_STEPS, SHOWN_CLASSES = 8, 4  # Features of a row that have a bar, and its classes


@dataclass(frozen=True, eq=False)
class ExplainedRow:
    """One row's prediction, feature by feature.

    Args:
        number: its place in the table, from 0.
        why: why it is shown, and whether it was fitted on.
        steps: to the label predicted, or to the response in its own units or those of its curve.
        observed: its label or response as text.
        values: of its features, as text.
        classes: label, probability and base rate of each, the likeliest first.
        scale: of a response, as :func:`lexppl.summary.number_text` takes it.
        predicted: the response predicted, as text.
        response: of what the steps are, where it is no label: of a heavy tail of its curve.
    """

    number: int
    why: str
    steps: RowSteps
    observed: str
    values: Mapping[str, str]
    classes: tuple[tuple[str, float, float], ...] = ()
    scale: float = 0.0
    predicted: str = ""
    response: str = "mean response"

    def lines(self) -> pd.DataFrame:
        """The steps as lines of a table, base rate and all hidden first."""
        steps, table = self.steps, self.steps.table.reset_index()
        table.insert(1, "value", [self.values.get(str(name), "") for name in table["feature"]])
        base = {"feature": "(base rate)", "total": steps.base}
        hidden = {"feature": "(all hidden)", "step": steps.first_step, "total": steps.hidden}
        lines = pd.concat([pd.DataFrame([base, hidden]), table], ignore_index=True)[table.columns]
        lines.insert(0, "row", self.number)
        lines.insert(1, "predicted", steps.label or self.response)
        return lines


@dataclass(frozen=True, eq=False)
class Details:
    """Directions of :func:`lexppl.evaluation.direction_table`, the effects on the first held-out
    rows that they are of (of a response in its own units), single rows, and warnings."""

    directions: pd.DataFrame | None = None
    effects: FeatureEffects | None = None
    rows: tuple[ExplainedRow, ...] = ()
    warnings: tuple[str, ...] = ()


def details_of(fitted: FittedTable, posterior: Posterior, requested: Sequence[int]) -> Details:
    """Directions over held-out rows, and the rows requested, or three held-out ones."""
    warnings, directions, effects = [], None, None
    try:
        directions, effects = _directions(fitted)
    except FloatingPointError as error:
        warnings.append(f"directions are not known: {error}")
    targets = fitted.targets()
    chosen = {row: "asked for" for row in requested} or default_rows(posterior, targets)
    return Details(directions, effects, tuple(_rows(fitted, targets, chosen)), tuple(warnings))


def add_row_values(posterior: Posterior, source: DividedTable, gains: JudgedGains | None) -> None:
    """Write values, and gains where known, of a posterior's held-out rows into it."""
    count = len(masks_of(posterior)["row"])
    with_values(posterior, values_of(source, source.test.x[:count]))
    if gains is not None:
        with_gains(posterior, gains.worth.gains, gains.row_names)


def values_of(source: DividedTable, x: Tensor) -> dict[str, FeatureValues]:
    """Values of rows in the table's own units."""
    data = source.data
    if data.encoding is not None and data.entry_names == data.encoding.entry_names:
        return decoded_values(x, data.encoding)
    if data.n_features != data.n_entries:
        return {}
    columns = x.detach().double().cpu().numpy()
    return {name: FeatureValues(name, columns[:, g]) for g, name in enumerate(data.entry_names)}


def _directions(fitted: FittedTable) -> tuple[pd.DataFrame, FeatureEffects]:
    source = fitted.source
    cost = fitted.result.replicates * DIRECTION_MASKS * (source.data.n_entries + 1)
    x = source.test.x[: min(DIRECTION_ROWS, max(LEAST_ROWS, EVALUATIONS // cost))]
    effects = feature_effects(fitted.result, x, masks=DIRECTION_MASKS, seed=fitted.seed)
    table = direction_table(effects, values_of(source, x))
    if source.data.class_names is None:
        # Effects on a standardised response.
        scaled = ["slope", "effect", "spread"]
        table[scaled] = table[scaled] * source.target_scale
        effects = replace(effects, effects=effects.effects * source.target_scale)
    return table, effects


def default_rows(posterior: Posterior, targets: Tensor) -> dict[int, str]:
    """The held-out rows predicted best, in the middle and worst, with why."""
    predicted = responses_of(posterior)
    names = predicted["y"]["row"].values.astype(int)
    observed = targets[torch.from_numpy(names).to(targets.device)].double().cpu().numpy()
    if "y_probability" in predicted:
        p = predicted["y_probability"].values.mean(0, dtype=np.float64)
        share = observed if observed.ndim == 2 else np.eye(p.shape[1])[observed.astype(int)]
        score = (share * np.log(p.clip(1e-12))).sum(1)
    else:
        score = -np.abs(predicted["y"].values.mean((0, 1), dtype=np.float64) - observed)
    order = np.argsort(-score, kind="stable")
    places = [order[0], order[len(order) // 2], order[-1]]
    reasons: dict[int, str] = {}
    for place, why in zip(places, DEFAULT_ROWS, strict=True):
        reasons.setdefault(int(names[place]), f"{why} of {len(order)} held-out rows")
    return reasons


def _rows(fitted: FittedTable, targets: Tensor, chosen: Mapping[int, str]) -> list[ExplainedRow]:
    source, groups, numbers = fitted.source, fitted.groups, list(chosen)
    x = source.data.x[torch.tensor(numbers, device=source.data.x.device)]
    values = values_of(source, x)
    how: dict[str, Any] = {"masks": ROW_MASKS, "groups": groups, "seed": fitted.seed}
    train = targets[torch.from_numpy(source.train_rows).to(targets.device)]
    names = source.data.class_names
    base = train.double().mean() if names is None else base_frequencies(train, len(names))
    rows = []
    for place, number in enumerate(numbers):
        # In folds by the replicate that holds the row out.
        folds, row_x = folds_at(source, np.array([number])), x[place : place + 1]
        revealed = judged(folds, revealed_predictions, fitted.result, row_x, **how)
        why, texts = chosen[number] + _part_of(source, number), _texts(values, groups, place)
        about = number, why, observed_text(source, number), texts
        row = explained_row(revealed, 0, base.cpu().numpy(), *about)
        if names is None:
            target, text = source.target, source.target.text(row.steps.predicted)
            response = row.response if target.curve is None else f"mean {target.label}"
            steps = row.steps.in_units(target.scale, target.level)
            row = replace(row, steps=steps, scale=target.scale, predicted=text, response=response)
        rows.append(row)
    return rows


def _texts(
    values: Mapping[str, FeatureValues], groups: FeatureGroups, place: int
) -> dict[str, str]:
    """Values of a row, of a group those of its first members."""
    names = list(values)
    texts = {}
    for group, members in zip(groups.names, groups.members, strict=True):
        if max(members) < len(names):
            shown = [values[names[g]].text(place) for g in members[:SHOWN_VALUES]]
            texts[group] = ", ".join(shown) + " …" * (len(members) > SHOWN_VALUES)
    return texts


def explained_row(
    revealed: RevealedPredictions,
    place: int,
    base: Any,
    number: int,
    why: str,
    observed: str,
    values: Mapping[str, str],
) -> ExplainedRow:
    """The row at a place of revealed predictions, with label frequencies or mean as base."""
    classes: tuple[tuple[str, float, float], ...] = ()
    if revealed.class_names is not None:
        predicted = revealed.predicted[place].tolist()
        shares = zip(revealed.class_names, predicted, base.tolist(), strict=True)
        classes = tuple(sorted(shares, key=lambda c: -c[1]))
    return ExplainedRow(number, why, revealed.steps(place, base=base), observed, values, classes)


def _part_of(source: DividedTable, number: int) -> str:
    if source.fold is not None:
        return ""
    if number in source.train_rows:
        return "; the explainer was fitted on it"
    if source.valid_rows is not None and number in source.valid_rows:
        return "; the best epoch was chosen on it"
    return ""


def observed_text(source: DividedTable, number: int) -> str:
    """Label or response of a row, by its place in the table."""
    y, names = source.data.y[number].item(), source.data.class_names
    return source.target.text(y) if names is None else str(names[int(y)])


def row_block(row: ExplainedRow) -> dict[str, Any]:
    """A row's part of the page."""
    lines = row.steps.bars(SHOWN_STEPS)
    start, step = lines["start"].to_numpy(), lines["step"].to_numpy()
    low, high = min(start.min(), (start + step).min()), max(start.max(), (start + step).max())
    span = (high - low) or 1.0
    bars = []
    for (name, line), left, right in zip(lines.iterrows(), start, start + step, strict=True):
        level = bool(line["is_level"])
        bars.append(
            {
                "name": _bar_name(str(name), row),
                "value": row.values.get(str(name)),
                "level": level,
                "rises": right >= left,
                "left": f"{100 * (min(left, right) - low) / span:.1f}",
                "width": f"{100 * abs(right - left) / span:.1f}",
                "step": "" if level else _signed(right - left, row),
                "total": _total(right, row),
            }
        )
    label, predicted = row.steps.label, row.predicted or _total(row.steps.predicted, row)
    return {
        "number": row.number,
        "why": row.why[0].upper() + row.why[1:],
        "predicted": f"predicted {predicted if label is None else f'{label} ({predicted})'}",
        "observed": row.observed,
        "classes": [
            {"name": name, "share": _percent(p), "base": _percent(base)}
            for name, p, base in row.classes[:SHOWN_CLASSES]
        ],
        "more_classes": max(0, len(row.classes) - SHOWN_CLASSES),
        "bars": bars,
        "response": row.response,
        "step_name": "step" if label is None else "nats",
        "total_name": "mean" if label is None else f"p({label})",
    }


def _bar_name(name: str, row: ExplainedRow) -> str:
    if name in row.steps.table.index:
        return name
    if name.endswith(" more"):
        return f"{name} features"
    return {"mean": "mean of the rows fitted on", "all hidden": "every feature hidden"}.get(
        name, name
    )


def _total(value: float, row: ExplainedRow) -> str:
    return number_text(value, row.scale) if row.steps.label is None else _percent(math.exp(value))


def _signed(value: float, row: ExplainedRow) -> str:
    """A step with its sign; "~0" of one too small to be shown."""
    if row.steps.label is None:
        small = abs(value) < 1e-3 * float(row.steps.table["step"].abs().max())
        text = "+0" if small else ("+" if value > 0.0 else "") + number_text(value)
    else:
        text = f"{value:+.2f}"
    if float(text) == 0.0:
        return "0" if value == 0.0 else "~0"
    return text.replace("-", "−")


def _percent(share: float) -> str:
    return percent(share).replace(" ", "\u00a0")


def write_lines(lines: pd.DataFrame, file: Path, scale: float = 0.0) -> None:
    """Write lines of single rows, with three digits of the range of their totals, or of a scale
    where these are all equal."""
    totals = lines["total"]
    text = partial(number_text, scale=float(totals.max() - totals.min()) or scale)
    written = lines.assign(total=totals.map(text, na_action="ignore"))
    written.to_csv(file, index=False, float_format=DIGITS)
