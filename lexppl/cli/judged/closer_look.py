"""What stands behind the ranking: which way each feature moves the prediction, and single rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lexppl.arviz_compatibility import Posterior
from lexppl.cli.judged.gains import JudgedGains, explained_targets
from lexppl.cli.judged.judged_rows import folds_at
from lexppl.cli.terminal.errors import UsageError
from lexppl.data import DividedTable
from lexppl.evaluation.effects import direction_table, feature_effects
from lexppl.evaluation.feature_groups import FeatureGroups
from lexppl.evaluation.folds import judged
from lexppl.evaluation.learned import base_frequencies
from lexppl.evaluation.refits.fitted_predictor import FittedPredictor
from lexppl.evaluation.revealed import RevealedPredictions, RowSteps, revealed_predictions
from lexppl.explanation.reading.feature_values import (
    FeatureValues,
    decoded_values,
    with_gains,
    with_values,
)
from lexppl.explanation.reading.masks import masks_of, responses_of
from lexppl.inference import FitResult
from lexppl.tabular.fit_plan import FitPlan

DIRECTION_ROWS, LEAST_ROWS = 500, 50
"""Most held-out rows by which directions are told, and least of many features."""
DIRECTION_MASKS = 8
EVALUATIONS = 2_000_000
"""Predictions of a row that directions may cost in all, so that they take seconds."""
ROW_MASKS = 100
SHOWN_VALUES = 3
"""Members of a group whose values stand beside it."""
ROWS_UNASKED = ("predicted best", "in the middle", "predicted worst")
"""The held-out rows that are shown where none is asked for."""


@dataclass(frozen=True, eq=False)
class ExplainedRow:
    """One row's prediction, feature by feature.

    Args:
        number: its place in the table, from 0.
        why: why it is shown, and what the fit knows of it, in words.
        steps: to the label that is predicted, or to the response in its own units.
        observed: its label or response as text.
        values: of its features, as text.
        classes: each label with its probability and its base rate, the likeliest first.
    """

    number: int
    why: str
    steps: RowSteps
    observed: str
    values: Mapping[str, str]
    classes: tuple[tuple[str, float, float], ...] = ()

    def lines(self) -> pd.DataFrame:
        """The row's steps as lines of a table, what starts them first."""
        table = self.steps.table.reset_index()
        table.insert(0, "row", self.number)
        table.insert(1, "predicted", self.steps.label or "mean response")
        table.insert(3, "value", [self.values.get(str(name), "") for name in table["feature"]])
        first = {"row": self.number, "predicted": self.steps.label or "mean response"}
        starts = pd.DataFrame(
            [
                {**first, "feature": "(base rate)", "total": self.steps.base},
                {
                    **first,
                    "feature": "(all hidden)",
                    "step": self.steps.first_step,
                    "total": self.steps.hidden,
                },
            ]
        )
        return pd.concat([starts, table], ignore_index=True)[table.columns]


@dataclass(frozen=True, eq=False)
class CloserLook:
    """Directions and rows, where they are known.

    Args:
        directions: of :func:`lexppl.evaluation.direction_table`, or None.
        rows: the rows that are explained one by one.
        notes: what the reader should mind.
    """

    directions: pd.DataFrame | None = None
    rows: tuple[ExplainedRow, ...] = ()
    notes: tuple[str, ...] = field(default=())


def check_rows(asked: Sequence[int], source: DividedTable) -> None:
    """Refuse rows that the table does not have.

    Raises:
        UsageError: such a row.
    """
    rows = len(source.data)
    for row in asked:
        if row >= rows:
            raise UsageError(
                f"--row must be 0 to {rows - 1}, as the table has {rows} rows; it is {row}"
            )


def look_closer(
    result: FitResult,
    source: DividedTable,
    plan: FitPlan,
    posterior: Posterior,
    *,
    outputs: Tensor | None,
    full: FittedPredictor | None,
    groups: FeatureGroups,
    asked: Sequence[int],
    seed: int,
) -> CloserLook:
    """Directions over held-out rows, and the rows that are asked for, or three held-out ones.

    Args:
        result: the fit, of masks that select.
        source: the table.
        plan: how it was fitted.
        posterior: of held-out rows.
        outputs: what the black box says of every row, or None.
        full: the predictor that was fitted on all features before, or None.
        groups: of the features, which are revealed together.
        asked: places of rows in the table.
        seed: of the draws.
    """
    notes: list[str] = []
    directions = None
    try:
        directions = _directions(result, source, seed)
    except FloatingPointError as error:
        notes.append(f"directions are not known: {error}")
    targets = explained_targets(source.data, np.arange(len(source.data)), plan, outputs, full)
    chosen = {row: "asked for" for row in asked} or unasked_rows(posterior, targets)
    rows = _rows(result, source, targets, chosen, groups, seed)
    return CloserLook(directions, tuple(rows), tuple(notes))


def note_rows(posterior: Posterior, source: DividedTable, gains: JudgedGains | None) -> None:
    """Write the values of a posterior's rows into it, and their gains where they are known.

    Args:
        posterior: of the first held-out rows.
        source: the table.
        gains: of held-out rows, or None.
    """
    count = len(masks_of(posterior)["row"])
    with_values(posterior, values_of(source, source.test.x[:count]))
    if gains is not None:
        with_gains(posterior, gains.each.gains.cpu().numpy(), gains.row_names)


def values_of(source: DividedTable, x: Tensor) -> dict[str, FeatureValues]:
    """The values of rows in the table's own units."""
    data = source.data
    if data.encoding is not None:
        return decoded_values(x, data.encoding)
    if data.n_features != data.n_entries:
        return {}
    columns = x.detach().double().cpu().numpy()
    return {name: FeatureValues(name, columns[:, g]) for g, name in enumerate(data.entry_names)}


def _directions(result: FitResult, source: DividedTable, seed: int) -> pd.DataFrame:
    cost = result.replicates * DIRECTION_MASKS * (source.data.n_entries + 1)
    x = source.test.x[: min(DIRECTION_ROWS, max(LEAST_ROWS, EVALUATIONS // cost))]
    effects = feature_effects(result, x, masks=DIRECTION_MASKS, seed=seed)
    table = direction_table(effects, values_of(source, x))
    if source.data.class_names is None:
        # Effects on a standardised response.
        scaled = ["slope", "effect", "spread"]
        table[scaled] = table[scaled] * source.target_scale
    return table


def unasked_rows(posterior: Posterior, targets: Tensor) -> dict[int, str]:
    """The held-out rows that are predicted best, in the middle and worst, with why."""
    predicted = responses_of(posterior)
    names = predicted["y"]["row"].values.astype(int)
    own = targets[torch.from_numpy(names).to(targets.device)].double().cpu().numpy()
    if "y_probability" in predicted:
        p = predicted["y_probability"].values.mean(0, dtype=np.float64)
        share = own if own.ndim == 2 else np.eye(p.shape[1])[own.astype(int)]
        score = (share * np.log(p.clip(1e-12))).sum(1)
    else:
        score = -np.abs(predicted["y"].values.mean((0, 1), dtype=np.float64) - own)
    order = np.argsort(-score, kind="stable")
    places = [order[0], order[len(order) // 2], order[-1]]
    found: dict[int, str] = {}
    for place, why in zip(places, ROWS_UNASKED, strict=True):
        found.setdefault(int(names[place]), f"{why} of {len(order)} held-out rows")
    return found


def _rows(
    result: FitResult,
    source: DividedTable,
    targets: Tensor,
    chosen: Mapping[int, str],
    groups: FeatureGroups,
    seed: int,
) -> list[ExplainedRow]:
    data = source.data
    numbers = list(chosen)
    x = data.x[torch.tensor(numbers, device=data.x.device)]
    values = values_of(source, x)
    found = [
        _revealed(result, source, n, x[i : i + 1], groups, seed) for i, n in enumerate(numbers)
    ]
    train = targets[torch.from_numpy(source.train_rows).to(targets.device)]
    names = found[0].class_names
    if names is None:
        base = train.double().mean().cpu().numpy()
    else:
        base = base_frequencies(train, len(names)).cpu().numpy()
    rows = []
    for place, number in enumerate(numbers):
        row = explained_row(
            found[place],
            0,
            base,
            number=number,
            why=chosen[number] + _part_of(source, number),
            observed=observed_text(source, number),
            values=_texts(values, groups, place),
        )
        if names is None:
            steps = row.steps.in_units(source.target_scale, source.target_mean)
            row = replace(row, steps=steps)
        rows.append(row)
    return rows


def _texts(
    values: Mapping[str, FeatureValues], groups: FeatureGroups, place: int
) -> dict[str, str]:
    """The values of a row, of a group those of its first members."""
    names = list(values)
    texts = {}
    for group, members in zip(groups.names, groups.members, strict=True):
        if max(members) < len(names):
            each = [values[names[g]].text(place) for g in members[:SHOWN_VALUES]]
            texts[group] = ", ".join(each) + " …" * (len(members) > SHOWN_VALUES)
    return texts


def _revealed(
    result: FitResult,
    source: DividedTable,
    number: int,
    x: Tensor,
    groups: FeatureGroups,
    seed: int,
) -> RevealedPredictions:
    """A row's predictions by what was revealed, in folds by the replicate that holds it out."""
    folds = folds_at(source, np.array([number]))
    return judged(folds, revealed_predictions, result, x, masks=ROW_MASKS, groups=groups, seed=seed)


def explained_row(
    found: RevealedPredictions,
    place: int,
    base: Any,
    *,
    number: int,
    why: str,
    observed: str,
    values: Mapping[str, str],
) -> ExplainedRow:
    """A row, of predictions by what was revealed.

    Args:
        found: the predictions.
        place: of the row among them.
        base: what is predicted without x: frequencies of the labels, or the mean response.
        number, why, observed, values: of :class:`ExplainedRow`.
    """
    classes: tuple[tuple[str, float, float], ...] = ()
    if found.class_names is not None:
        each = zip(found.class_names, found.predicted[place].tolist(), base.tolist(), strict=True)
        classes = tuple(sorted(each, key=lambda c: -c[1]))
    return ExplainedRow(number, why, found.steps(place, base=base), observed, values, classes)


def _part_of(source: DividedTable, number: int) -> str:
    if source.fold is not None:
        return ""
    if number in source.train_rows:
        return "; the explainer was fitted on it"
    if source.valid_rows is not None and number in source.valid_rows:
        return "; the best epoch was chosen on it"
    return ""


def observed_text(source: DividedTable, number: int) -> str:
    """The label or the response of a row, by its place in the table."""
    y, names = source.data.y[number].item(), source.data.class_names
    if names is not None:
        return str(names[int(y)])
    return f"{y * source.target_scale + source.target_mean:.4g}"
