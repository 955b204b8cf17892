"""Warnings about a table and a fit, in words."""

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from lexppl.argument_checks import quoted
from lexppl.data.cells import levels_in
from lexppl.data.columns import CategoricalColumn
from lexppl.data.divided_table import DividedTable
from lexppl.data.encoding import MOST_INTEGER_CLASSES
from lexppl.evaluation.prediction import BaseRateGain
from lexppl.inference.training.diagnostics import ALL_OFF, ALL_ON, ONE_MASK
from lexppl.inference.training.result import FEW_STEPS
from lexppl.report.divided_rows import DividedRows
from lexppl.summary import counted
from lexppl.tabular.given_model import same_of_all

PENALTY_HALF_GROWN = 0.55
"""Share of a fit at which `lexppl.inference.annealed` has half the penalty."""

ADVICE: Mapping[str, str] = {
    ALL_OFF: "no row keeps any feature: give a lower --penalty, or --k",
    ALL_ON: "every row keeps every feature: give a higher --penalty, or --k",
    ONE_MASK: (
        "every row keeps the same features: fine if the same ones matter everywhere; if you "
        "expect them to differ, give a larger --masks, more --epochs, or another --seed"
    ),
}

ADVICE_OF_TABLES = (
    ", --imputer copula where features depend on each other, or --missing-indicator where it "
    "matters what is missing"
)

NO_VALIDATION = (
    "no rows are set apart for choosing the best epoch, as there are too few rows of each class or "
    "none were asked for: the best epoch is the one that fits the rows to fit on best"
)

NOTHING_LEARNED = (
    "no row keeps any feature, as should be where none says anything; if some do, more rows or a "
    "lower --penalty may show it"
)

OPTIONS = (
    "k|penalty|epochs|masks|seed|imputer|missing-indicator|method|row|replicates|task|group|drop"
)
"""Options of the command that a report names."""

LEAST_AGREEMENT = 0.95
MOST_COPIES = 1 / 20  # Of rows
SAME_ORDER = 0.999  # Spearman's correlation from which on a column gives a response
LEAST_PART = 5  # Rows of a level of one label, on average


def with_arguments(text: str) -> str:
    """Text with options of the command as arguments in Python.

    Example:
        >>> with_arguments("give more --epochs, --imputer copula or another --missing-indicator")
        'give more epochs=, imputer=copula or another missing_indicator='
    """
    option = rf"(?<!\S)--({OPTIONS})\b(?: (?=copula|lex|classification|\d|N\b))?"
    return re.sub(option, lambda name: f"{name[1].replace('-', '_')}=", text)


def learned_messages(gain: BaseRateGain, steps: int | None, sampled: bool = False) -> list[str]:
    """Warnings: no gain over the base rate on new rows; too few steps for masks to settle.

    Args:
        steps: of each replicate's fit; None if not known.
        sampled: whether weights were sampled, which takes no epochs.
    """
    lines = []
    if not gain.shown:
        count = counted(gain.rows, "row")
        error = "" if math.isnan(gain.error) else f" ± {2 * gain.error:.3f}"
        lines.append(
            "on held-out rows the explainer predicts no better than the base rate "
            f"({round(gain.nats, 3) + 0.0:+.3f}{error} nats a row, {count}): apart from what is "
            "found, do not rely on its selection of features; give more rows"
            + ("" if sampled else " or more --epochs")
        )
    if steps is not None and steps < FEW_STEPS and not sampled:
        lines.append(
            f"masks have not settled: the fit had {counted(steps, 'step')} of the {FEW_STEPS} that "
            "they take at least; give more --epochs"
        )
    return lines


def collapse_messages(
    collapses: list[str | None], one_mask_is_right: bool = False, learned: bool = True
) -> list[str]:
    """A warning for each kind of collapse among the replicates.

    Args:
        one_mask_is_right: whether one mask predicts held-out rows as well as all features.
        learned: whether there is a gain over the base rate.
    """
    lines = []
    for kind, advice in ADVICE.items():
        if kind == ONE_MASK and one_mask_is_right:
            continue
        count = sum(1 for collapse in collapses if collapse == kind)
        if count:
            which = "" if len(collapses) == 1 else f" in {count} of {len(collapses)} replicates"
            line = NOTHING_LEARNED if kind == ALL_OFF and not learned else advice
            lines.append(f"collapse{which} ({kind}): {line}")
    return lines


def behind_message(sentence: str, kind: str = "", advice: str = ADVICE_OF_TABLES) -> str:
    """Warning: the explainer predicts worse than a predictor of all features, which is of another
    kind where one is named."""
    also = ", or its networks predict less well from it" if kind else ""
    return (
        f"{sentence}: it leaves out what matters{also}; give a lower --penalty, more --epochs or "
        f"more rows{advice}"
    )


def fidelity_message(agreement: float, others: float | None) -> list[str]:
    """Warning: the explainer differs from a black box in over a twentieth of the rows, or over a
    quarter of the share of rows, `others`, without the black box's commonest label; of responses
    (`others` is None) its R² is below .95."""
    figure, least = ("R²", 0.0) if others is None else ("agreement", 1.0 - others / 4)
    if agreement >= max(LEAST_AGREEMENT, least):
        return []
    return [
        f"the explainer reproduces the black box in part only ({figure} {agreement:.3f} on rows "
        "that it has not seen): where the two differ, nothing here explains the black box; give a "
        "lower --penalty, more --epochs or more rows"
    ]


def early_message(best_epochs: Sequence[int], epochs: int, penalised: bool) -> list[str]:
    """Warning: replicates keep a state from before the penalty had half its weight, as the
    predictor overfits."""
    early = sum(1 for best in best_epochs if (best + 1) / epochs < PENALTY_HALF_GROWN)
    if not penalised or not early:
        return []
    which = "" if len(best_epochs) == 1 else f" of {early} of {len(best_epochs)} replicates"
    return [
        f"the best epoch{which} came before the penalty had half its weight: the fit overfits, and "
        "more features are kept than need be; give --k, a higher --penalty or more rows"
    ]


def path_message(penalties: Sequence[float], chosen: int) -> list[str]:
    """Warning: the chosen λ, of a rising path, is an end of it."""
    if 0 < chosen < len(penalties) - 1:
        return []
    end, other, more = (
        ("smallest", "smaller", "more") if chosen == 0 else ("largest", "larger", "fewer")
    )
    return [
        f"the penalty chosen, {penalties[chosen]:.3g} nats, is the {end} that was tried: a {other} "
        f"one, which keeps {more} features, may predict as well or better; try it with --penalty"
    ]


def table_warnings(source: DividedTable, outputs: Tensor | None) -> list[str]:
    """Warnings about missing values, pooled levels, copied rows, columns that give the target and a
    black box's outputs."""
    data = source.data
    messages = [_missing(source), *_pooled(source), _copies(source), _given(source)]
    if outputs is not None:
        bought = outputs.isfinite().reshape(len(outputs), -1).all(1)
        messages.append(same_of_all(outputs[bought], data.class_names))
        if left_out := int((~bought).sum()):
            messages.append(
                f"--max-calls: the black box answered for {counted(len(outputs) - left_out, 'row')}"
                f" of {len(outputs):,}, at random; the others are neither fitted on nor judged"
            )
    return [message for message in messages if message is not None]


def _missing(source: DividedTable) -> str | None:
    encoding = source.data.encoding
    if encoding is None:
        return None
    markers = sorted({place for place in encoding.markers if place >= 0})
    rows = {p: int(source.test.x[:, p].count_nonzero()) for p in markers}
    names = {p: encoding.entry_names[encoding.groups[p]] for p in markers}
    columns = ", ".join(f"{names[p]!r} in {counted(n, 'row')}" for p, n in rows.items() if n)
    if not columns:
        return None
    return (
        f"missing values of the held-out rows ({columns}) are hidden from the explainer: such a "
        "feature counts as not kept in its row, and gains nothing there"
    )


def _copies(source: DividedTable) -> str | None:
    """Warning: rows are copies of others, more than a twentieth and twice those by chance, as of
    independent columns."""
    encoding = source.data.encoding
    if encoding is None or source.unit is not None:
        return None
    columns = source.table[list(encoding.table_columns)].reset_index(drop=True)
    frame = pd.concat([columns, pd.Series(source.data.y.cpu().numpy(), name="")], axis=1)
    mixed = frame.apply(np.random.default_rng(0).permutation)
    copies, by_chance = (int(rows.duplicated().sum()) for rows in (frame, mixed))
    if copies <= MOST_COPIES * len(frame) + 2 * by_chance:
        return None
    return (
        f"{copies:,} of {len(frame):,} rows are copies of others, and fits have seen copies of "
        "what they are judged by: leave copies out, or give the column of the case as --group"
    )


def copied_message(source: DividedRows) -> list[str]:
    """Warning: held-out images or texts are copies of those of the fit, more than a twentieth and
    twice those by chance, as of texts whose places change words."""
    parts = [part for part in (source.test, source.train, source.valid) if part is not None]
    x = np.concatenate([part.x.cpu().numpy() for part in parts])
    tested = len(source.test)
    copies, by_chance = _copied(x, tested), 0
    if copies and source.are_texts:
        by_chance = _copied(np.random.default_rng(0).permuted(x, axis=0), tested)
    if copies <= MOST_COPIES * tested + 2 * by_chance:
        return []
    rows = source.data.rows
    once = ", and words are measured with one of each" * source.are_texts
    return [
        f"{copies:,} of {tested:,} held-out {rows}s are copies of {rows}s of the fit: how well "
        f"they are predicted says nothing of others{once}; leave copies out"
    ]


def _copied(x: NDArray[np.floating], first: int) -> int:
    """How many of the first rows are among the others."""
    others = {hash(row.tobytes()) for row in x[first:]}
    return sum(hash(row.tobytes()) in others for row in x[:first])


def _given(source: DividedTable) -> str | None:
    """Warning: columns of which one alone gives the target: a response by its order, labels by
    levels of one label, or by one interval for each."""
    data, y = source.data, pd.Series(source.data.y.cpu().numpy())
    names = []
    for column in () if data.encoding is None else data.encoding.columns:
        values = pd.Series(column.numbers(source.table[column.source]))
        has_levels = isinstance(column, CategoricalColumn)
        if data.class_names is None:
            gives = not has_levels and abs(values.corr(y, "spearman")) >= SAME_ORDER
        else:
            labels = y.groupby(values, dropna=False).agg(["min", "max"])
            gives = labels["min"].equals(labels["max"])
            if has_levels or len(labels) <= MOST_INTEGER_CLASSES:
                gives = gives and len(labels) * LEAST_PART <= len(y)
            else:
                gives = gives and 1 + np.count_nonzero(np.diff(labels["min"])) == y.nunique()
        if gives:
            names.append(column.name)
    if not names:
        return None
    which = "column" if len(names) == 1 else "each of the columns"
    return (
        f"{which} {quoted(names)} gives {data.target_name!r} alone, or nearly: if it is made from "
        "the target, or known only after it, leave it out with --drop"
    )


def _pooled(source: DividedTable) -> list[str]:
    encoding = source.data.encoding
    messages = []
    for column in () if encoding is None else encoding.columns:
        if isinstance(column, CategoricalColumn) and column.pooled is not None:
            rare = set(levels_in(source.table[column.name])) - set(column.levels)
            messages.append(
                f"{len(rare)} rare levels of {column.name!r} are pooled as {column.pooled!r}"
            )
    return messages
