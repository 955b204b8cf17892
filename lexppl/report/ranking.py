"""The ranking line by line: bars, gains and directions."""

import math
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from lexppl.explanation.reading.masks import PROBABILITY, ImportanceKind
from lexppl.explanation.reading.sentences import share_of
from lexppl.report.data import Report, TableReport
from lexppl.summary import number_text

WORD_HEAD = ("word", "alone", "beyond others", "in texts", "share kept", "mostly in")
INTERVAL, RANGE = "95 % interval", "range of fits"
SHOWN_MEMBERS = 3  # Members of a group that have a line
REACH = 1.5  # Longest interval drawn, in lengths of the longest bar
CLEAR = 0.5  # Least correlation that has an arrow
CLASS_FEATURES, MOST_CLASSES, MOST_LEVELS = 12, 6, 2
"""Features and classes of directions by class; levels that raise, and that lower."""


def ranked_lines(report: Report) -> pd.DataFrame:
    """Groups by what they say, below each that is found its found and its most kept members;
    features where there are no groups. Without replicates or gains a value is NaN."""
    ranking, gains = report.ranking, getattr(report, "gains", None)
    if gains is None:
        return ranking.drop(columns="gain", errors="ignore").assign(member=False)
    parts, groups = [], gains.groups
    for place, name in enumerate(groups.index):
        parts.append(groups.iloc[[place]].assign(member=False))
        if groups["members"].iloc[place] > 1 and groups["found"].iloc[place]:
            members = ranking[ranking["group"] == name].assign(member=True)
            order = np.lexsort((-members.iloc[:, 0], ~members["found"].to_numpy(dtype=bool)))
            parts.append(members.iloc[order[:SHOWN_MEMBERS]])
    return pd.concat(parts)


def ranking_head(
    kind: ImportanceKind, gains: bool, consistency: str = "agreement", *, in_folds: bool = False
) -> list[str]:
    """Heads of :func:`ranking_cells`."""
    gain = ["gain", "interval", "alone", "interval", "found"] if gains else []
    span = RANGE if in_folds else INTERVAL
    return ["group" if gains else "feature", *gain, kind.name, span, consistency]


def ranking_cells(lines: pd.DataFrame) -> list[list[str]]:
    """Name, gain and what it says alone with their intervals and whether it is found, where there
    are gains, importance, interval and agreement (or r̂ of chains) as text.

    Example:
        >>> lines = pd.DataFrame({"kept": [0.912], "lower": [0.81], "upper": [1.0],
        ...     "agreement": [np.nan], "member": [True]}, index=["age"])
        >>> ranking_cells(lines)
        [['  age', '0.91', '0.81 – 1.00', '–']]
    """
    last = "r_hat" if "r_hat" in lines else "agreement"
    every = []
    for name, line in zip(lines.index, lines.to_dict("records"), strict=True):
        gain = []
        if "gain" in lines:
            for of in ("gain", "first"):
                ends = line[of], line[f"{of}_lower"], line[f"{of}_upper"]
                mean, *span = (f"{nats:.3f}".replace("-0.000", "0.000") for nats in ends)
                gain += [mean, " – ".join(span)]
            gain.append("yes" if line["found"] else "–")
            gain = ["–"] * len(gain) if math.isnan(line["gain"]) else gain
        known = f"{line['lower']:.2f} – {line['upper']:.2f}"
        agree = "–" if math.isnan(line[last]) else f"{line[last]:.2f}"
        mean = f"{line[str(lines.columns[0])]:.2f}"
        span_text = "–" if math.isnan(line["lower"]) else known
        every.append([f"{'  ' * line['member']}{name}", *gain, mean, span_text, agree])
    return every


def ranking_bars(report: TableReport) -> list[dict[str, Any]]:
    """Name, bar and cells of each line for the page: bars from the gain to what is said alone, with
    an interval that covers both of theirs, or bars of the masks from 0."""
    lines = ranked_lines(report)
    columns = [str(lines.columns[0]), str(lines.columns[0]), "lower", "upper"]
    if has_gains := "gain" in lines:
        columns = ["gain", "first", "lower", "upper"]
        for end, choose in (("lower", np.minimum), ("upper", np.maximum)):
            ends = (lines[f"{of}_{end}"].to_numpy(float) for of in ("gain", "first"))
            lines[f"both_{end}"] = choose(*ends)
        columns[2:] = ["both_lower", "both_upper"]
    values = lines[columns].to_numpy(dtype=np.float64)
    low, high = _ends(values, has_gains, report.kind)
    directions, about = _directions(report), direction_target(report)
    is_response = report.source.data.class_names is None
    bars = []
    rows = zip(lines.index, values.tolist(), lines.iloc[:, 0], ranking_cells(lines), strict=True)
    for place, (name, (value, alone, lower, upper), share, cells) in enumerate(rows):
        value, alone = map(float, np.nan_to_num([value, alone]))
        *gain, importance, interval, agreement = cells[1:]
        direction = directions.get(_says_most(report.ranking, str(name)))
        first = alone if has_gains else 0.0
        bars.append(
            {
                "name": str(name),
                "is_member": bool(lines["member"].iloc[place]),
                "gain": [cell.replace("-", "−") for cell in gain],
                "direction": ("–" if direction is None else _cell(direction))
                if directions
                else None,
                "way": "" if direction is None else direction_words(direction, about, is_response),
                "rows": share_of(float(share)),
                "importance": importance,
                "interval": interval,
                "agreement": agreement,
                "lost": has_gains and not lines["found"].iloc[place],
                "bar": _part(min(value, first), max(value, first), low, high),
                "without": _without(lines.iloc[place], is_response),
                "marks": [_part(end, end, low, high)["left"] for end in (value, first)],
                "span": None if math.isnan(lower) else _part(lower, upper, low, high),
                "zero": f"{100 * -low / (high - low):.1f}" if low < 0 else None,
            }
        )
    return bars


def _says_most(ranking: pd.DataFrame, name: str) -> str:
    """The member of a group that says most where it is kept, by what it says alone times how often
    it is kept; a feature itself."""
    members = ranking[ranking["group"] == name] if "group" in ranking else ranking[:0]
    if members.empty or name in members.index:
        return name
    alone = members["first"].fillna(0.0).clip(lower=0.0) if "first" in members else 1.0
    return str((members.iloc[:, 0] * alone).idxmax())


def _without(line: pd.Series, is_response: bool) -> str:
    """How much worse rows are predicted without a group; empty of less than a row of 100."""
    error, without = (float(line.get(name, math.nan)) for name in ("error", "error_without"))
    if is_response:
        return f"off by {number_text(without)}, not {number_text(error)}" * (without > error)
    more = round(100 * np.nan_to_num(without - error))
    return f"{more} more of 100 rows wrong" * (more > 0)


def direction_words(lines: pd.DataFrame, about: str, is_response: bool) -> str:
    r"""Directions of a feature in words of the target.

    Example:
        >>> direction_words(pd.DataFrame({"direction": [-0.93]}), "ill", False)
        '↓ less “ill” where high'
        >>> levels = pd.DataFrame({"level": ["cook", "smith"], "effect": [-0.8, 1.3]})
        >>> direction_words(levels, "ill", False)
        '“ill”: ↑\xa0smith, ↓\xa0cook'
    """
    cell, about = _cell(lines), about if is_response else f"“{about}”"
    if cell == "–" or _has_levels(lines):
        return "" if cell == "–" else f"{about}: {cell}"
    arrow = _arrow(float(lines["direction"].iloc[0]))
    more, less = ("higher", "lower") if is_response else ("more", "less")
    words = {"↑": f"{more} {about} where high", "↓": f"{less} {about} where high"}
    return f"{arrow} {words.get(arrow, 'neither way throughout')}"


def _ends(
    values: NDArray[np.float64], has_gains: bool, kind: ImportanceKind
) -> tuple[float, float]:
    """Values at the left and the right end of all bars, of both ends with their intervals."""
    *both, lower, upper = values[~np.isnan(values[:, 0])].T
    if not has_gains or not len(lower):
        return 0.0, 1.0 if kind is PROBABILITY else max(float(np.nanmax(values)), 1e-9)
    longest = max(float(np.abs(both).max()), 1e-9)
    high = min(float(upper.max()), REACH * longest)
    low = max(float(lower.min()), -REACH * longest / 3)
    return min(low, float(np.min(both)), 0.0), max(high, float(np.max(both)), 1e-9)


def _part(start: float, end: float, low: float, high: float) -> dict[str, str]:
    """Left and width in percent, of what can be seen.

    Example:
        >>> _part(-1.0, 0.5, 0.0, 2.0)
        {'left': '0.0', 'width': '25.0'}
    """
    start, end = min(max(start, low), high), max(min(end, high), low)
    scale = 100.0 / (high - low)
    return {"left": f"{(start - low) * scale:.1f}", "width": f"{(end - start) * scale:.1f}"}


def direction_target(report: TableReport) -> str:
    """Outcome of the column of directions: the response, or the rarest label."""
    data = report.source.data
    if data.class_names is None:
        return str(data.target_name)
    counts = torch.bincount(data.y.long(), minlength=len(data.class_names))
    return str(data.class_names[len(counts) - 1 - int(counts.flip(0).argmin())])


def _directions(report: TableReport) -> dict[str, pd.DataFrame]:
    """Directions of each feature, of the outcome that :func:`direction_target` names."""
    table = report.details.directions
    if table is None:
        return {}
    if report.source.data.class_names is not None:
        table = table[table["class"] == direction_target(report)]
    return {str(name): lines for name, lines in table.groupby("feature", sort=False)}


def class_table(report: TableReport) -> dict[str, Any] | None:
    """Directions of the first features by class, of three classes or more."""
    table, names = report.details.directions, report.source.data.class_names
    if table is None or names is None or len(names) < 3:
        return None
    classes = [str(name) for name in names[:MOST_CLASSES]]
    cells = {
        (str(feature), str(label)): _cell(lines)
        for (feature, label), lines in table.groupby(["feature", "class"], sort=False)
    }
    features = [str(name) for name in report.ranking.index[:CLASS_FEATURES]]
    rows = [[name, *(cells.get((name, label), "–") for label in classes)] for name in features]
    return {
        "head": ["feature", *classes],
        "rows": rows,
        "left_out": max(0, len(names) - MOST_CLASSES),
    }


def _cell(lines: pd.DataFrame) -> str:
    r"""A correlation with an arrow, or the levels that raise and lower most, by more than the
    standard deviation over replicates.

    Example:
        >>> _cell(pd.DataFrame({"level": [None], "direction": [-0.93], "effect": [np.nan]}))
        '↓\xa0−0.93'
        >>> _cell(pd.DataFrame({"level": ["cook", "smith"], "effect": [-0.8, 1.3]}))
        '↑\xa0smith, ↓\xa0cook'
    """
    if _has_levels(lines):
        known = lines[~(lines["effect"].abs() <= lines.get("spread", 0.0))]
        known = known.dropna(subset=["effect"]).sort_values("effect", ascending=False)
        raising = known["level"][known["effect"] > 0][:MOST_LEVELS]
        lowering = known["level"][known["effect"] < 0][::-1][:MOST_LEVELS]
        arrows = [f"↑\u00a0{name}" for name in raising] + [f"↓\u00a0{name}" for name in lowering]
        return ", ".join(arrows) or "–"
    value = float(lines["direction"].iloc[0])
    if np.isnan(value):
        return "–"
    return f"{_arrow(value)}\u00a0{value:+.2f}".replace("-", "−")


def _has_levels(lines: pd.DataFrame) -> bool:
    return "level" in lines and bool(lines["level"].notna().any())


def _arrow(correlation: float) -> str:
    return "↑" if correlation >= CLEAR else "↓" if correlation <= -CLEAR else "~"


def ranking_title(report: Report) -> str:
    """Title of the ranking."""
    meaning = report.kind.meaning
    if isinstance(report, TableReport):
        what = f"Ranked features: {meaning}"
        if report.gains is not None:
            what = (
                f"Ranked groups of features: gain, and what they say alone, in nats, and {meaning}"
            )
        return f"{what}, mean over held-out rows"
    source = report.source
    if (words := report.words) is not None:
        count = int(words.table["found"].sum())
        which = f"the first {count} are found" if count > 1 else "the first is found"
        return (
            f"Words by what they say of {source.data.target_name} in {words.texts:,} texts, in "
            f"nats a text; {which if count else 'none is found'}"
        )
    meaning = meaning.replace("the feature", "it")
    return f"Ranked {source.data.entries}, by {meaning}, mean over held-out images"


def word_cells(ranking: pd.DataFrame) -> list[list[str]]:
    """Words as cells of a table."""
    return [
        [
            str(word),
            *("–" if pd.isna(line[name]) else f"{line[name]:z.4f}" for name in ("first", "last")),
            str(line["texts"]),
            "–" if pd.isna(line["share"]) else f"{line['share']:.2f}",
            str(line["mostly_in"]) if line["found"] else "–",
        ]
        for word, line in ranking.iterrows()
    ]
