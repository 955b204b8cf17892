"""The dial: a fit at each penalty, for the page."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from lexppl.explanation.reading.sentences import ReadGroup, plain
from lexppl.report.data import TableReport
from lexppl.report.results.penalties import AllPenalties, AtPenalty
from lexppl.report.results.scores import ScoreRow
from lexppl.report.sentences import FirstScreen, first_screen

MOST_GROUPS = 20  # Most groups listed at a penalty
LABELS = {
    "accuracy": ("right", 100.0, 1, " %"),
    "r2": ("R²", 1.0, 3, ""),
    "log_likelihood": ("log-likelihood, nats a row", 1.0, 3, ""),
}


def dial_data(report: TableReport) -> dict[str, Any] | None:
    """Numbers of the dial as JSON, the fewest features first; None of one penalty.

    Returns:
        `settings`, a list of `penalty`, `size`, `sentence`, `scores` (name, value, spread of the
        fits), `groups` (name, share of rows that keep it, least and largest of several fits) and
        `rows` (prediction, groups kept, steps, places of the closest rows with another outcome);
        `chosen`,
        the place of the setting in use; `rows`, the number, outcome and values of each row that
        can be picked; `total`, how many rows the table has.
    """
    penalties = report.penalties
    if penalties is None:
        return None
    screen = first_screen(report)
    other = replace(screen, modes=())
    settings = [
        _setting(report, screen if place == penalties.chosen else other, penalties, fitted)
        for place, fitted in reversed(list(enumerate(penalties.fits)))
    ]
    chosen, total = len(settings) - 1 - penalties.chosen, len(report.source.data)
    return {"settings": settings, "chosen": chosen, "rows": penalties.rows, "total": total}


def _setting(
    report: TableReport, screen: FirstScreen, penalties: AllPenalties, fitted: AtPenalty
) -> dict[str, Any]:
    groups, features = penalties.groups, report.source.data.entry_names
    span = fitted.span.tolist() if report.result.replicates > 1 else []
    numbers = zip(fitted.shares.tolist(), *span, strict=True)
    shares = dict(zip(groups.names, numbers, strict=True))
    order = sorted(shares, key=lambda name: -shares[name][0])
    members = dict(zip(groups.names, groups.members, strict=True))
    known = {group.name: group for group in screen.groups}
    read = [
        replace(
            known.get(name) or ReadGroup(name, tuple(features[g] for g in members[name]), 0.0),
            kept=shares[name][0],
        )
        for name in order
    ]
    return {
        "penalty": fitted.penalty,
        "size": round(fitted.score.size, 3),
        "sentence": plain(replace(screen, groups=read).rests_on()),
        "scores": _scores(fitted.score),
        "groups": [[name, *(round(v, 5) for v in shares[name])] for name in order[:MOST_GROUPS]],
        "rows": fitted.rows,
    }


def _scores(score: ScoreRow) -> list[list[str]]:
    lines = []
    for name, (label, scale, digits, unit) in LABELS.items():
        if name in score.figures:
            spread = score.spreads.get(name, math.nan)
            more = "" if math.isnan(spread) else f"± {scale * spread:.{digits}f}"
            value = f"{scale * score.figures[name]:.{digits}f}{unit}"
            lines.append([label, value.replace("-0.000", "0.000").replace("-", "−"), more])
    return lines
