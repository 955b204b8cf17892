"""Single rows, for a page and for a terminal."""

import math
from typing import Any

from lexppl.cli.judged.closer_look import ExplainedRow
from lexppl.cli.tables import text_table
from lexppl.plots.rows import waterfall

SHOWN_STEPS = 8
"""Features of a row that have a bar of their own."""
SHOWN_CLASSES = 4


def row_block(row: ExplainedRow) -> dict[str, Any]:
    """What the template says of a row."""
    lines = waterfall(row.steps, SHOWN_STEPS)
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
    label = row.steps.label
    return {
        "number": row.number,
        "why": row.why[0].upper() + row.why[1:],
        "predicted": _prediction(row),
        "observed": row.observed,
        "classes": [
            {"name": name, "share": _percent(p), "base": _percent(base)}
            for name, p, base in row.classes[:SHOWN_CLASSES]
        ],
        "more_classes": max(0, len(row.classes) - SHOWN_CLASSES),
        "bars": bars,
        "step_name": "step" if label is None else "nats",
        "total_name": "mean" if label is None else f"p({label})",
    }


def row_text(row: ExplainedRow) -> str:
    """A row's steps for a terminal."""
    block = row_block(row)
    head = ["feature", "value", block["step_name"], block["total_name"]]
    lines = [[bar["name"], bar["value"] or "", bar["step"], bar["total"]] for bar in block["bars"]]
    title = f"Row {row.number} ({row.why}): {block['predicted']}, observed {row.observed}"
    return f"{title}\n{text_table(head, lines)}"


def _bar_name(name: str, row: ExplainedRow) -> str:
    words = {
        "base rate": "base rate",
        "mean": "mean of the rows fitted on",
        "all hidden": "every feature hidden",
        "prediction": "prediction",
    }
    if name in row.steps.table.index:
        return name
    return words.get(name, f"{name} features" if name.endswith(" more") else name)


def _prediction(row: ExplainedRow) -> str:
    if row.steps.label is None:
        return f"predicted {row.steps.predicted:.4g}"
    return f"predicted {row.steps.label} ({_percent(math.exp(row.steps.predicted))})"


def _total(value: float, row: ExplainedRow) -> str:
    return f"{value:.4g}" if row.steps.label is None else _percent(math.exp(value))


def _signed(value: float, row: ExplainedRow) -> str:
    """A step with its sign; of one that does not show beside the others, that it is near 0."""
    if row.steps.label is None:
        small = abs(value) < 1e-3 * float(row.steps.table["step"].abs().max())
        text = "+0" if small else f"{value:+.3g}"
    else:
        text = f"{value:+.2f}"
    if float(text) == 0.0:
        return "0" if value == 0.0 else "~0"
    return text.replace("-", "−")


def _percent(share: float) -> str:
    r"""A probability in percent, never a 100 or a 0 that it is not.

    Example:
        >>> _percent(0.5), _percent(0.99999), _percent(0.0004), _percent(0.031)
        ('50\xa0%', '>\xa099.9\xa0%', '<\xa00.1\xa0%', '3.1\xa0%')
    """
    percent = 100 * share
    if 0 < percent < 0.1:
        text = "< 0.1 %"
    elif 99.9 < percent < 100:
        text = "> 99.9 %"
    else:
        text = f"{percent:.0f} %" if 10 <= percent <= 90 else f"{percent:.1f} %"
    return text.replace(" ", "\u00a0")
