"""Everything that is wrong with a table, listed at once, each with the argument that mends it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lexppl.argument_checks import quoted, quoted_counts
from lexppl.data.cells import (
    DateOrderError,
    date_order,
    days_of,
    kind_of,
    level_of,
    levels_in,
    missing_in,
    numbers_of,
    pooled_levels,
    refuse_missing,
)
from lexppl.data.encoding import MOST_INTEGER_CLASSES, TargetColumn
from lexppl.summary import counted

if TYPE_CHECKING:
    from lexppl.data.tables import TableReading

MOST_LEVELS = 100
MOST_ESTIMATED = 1000  # Levels of enough rows that are read without a word of the user
FEW_ROWS = 10  # Rows up to which a column may well count them, or differ in each, by chance
REFUSED = "without decisions the table is refused"

_WHOLE = re.compile(r"[+-]?\d+")
_WITH_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}([. ']\d{3})+),\d+")
_WITH_UNIT = re.compile(r"[+-]?([$€£¥<>≤≥~−]?) ?[+-]?\d[\d.,' ]*?(?: ?([^\d.,' ]\D*))?")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(([,'\s])\d{3})*(\.\d+)?")


@dataclass(frozen=True)
class Problem:
    """One thing that a table has wrong, in words, and the arguments that mend it, if any do.

    Args:
        decision: of a mend that is safe without a word of the user: what it does, and the argument
            that changes it.
        otherwise: the decision where missing values cannot be hidden.
    """

    text: str
    mend: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    decision: str = ""
    otherwise: Problem | None = None


class TableError(ValueError):
    """A table that cannot be read as it is, with all that is wrong with it.

    Of one problem the message is its text; of several they stand one a line, and the last line
    has the arguments that mend all that arguments can.

    Example:
        >>> constant = Problem("'b' is constant", {"drop": ["b"]})
        >>> print(TableError([constant, Problem("'id' has 900 levels", {"drop": ["id"]})]))
        the table has 2 problems:
          - 'b' is constant
          - 'id' has 900 levels
        all at once: drop=['b', 'id']
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        if len(self.problems) == 1:
            return self.problems[0].text
        lines = [f"the table has {len(self.problems)} problems:"]
        lines += [f"  - {problem.text}" for problem in self.problems]
        mends = ", ".join(f"{name}={value!r}" for name, value in self.mends.items())
        return "\n".join([*lines, f"all at once: {mends}"] if mends else lines)

    @property
    def mends(self) -> dict[str, object]:
        """The arguments that mend all that arguments can, lists of columns joined."""
        found: dict[str, object] = {}
        for problem in self.problems:
            for name, value in problem.mend.items():
                known = found.get(name)
                if isinstance(known, list) and isinstance(value, list):
                    found[name] = [*known, *(one for one in value if one not in known)]
                else:
                    found.setdefault(name, value)
        return found


Read = TypeVar("Read")


def with_decisions(
    read: Callable[..., Read], *table: Any, hide: bool = True, **reading: Any
) -> tuple[Read, tuple[str, ...]]:
    """What a reading function makes of a table, and what was decided for it, in words.

    Missing values are hidden, columns that say nothing or name the row are left out, and rare
    levels are pooled: each mend of the `TableError` that has a safe one, until none is left.

    Args:
        read: `read_table`, `dataset_from_frame` or the like.
        table: its arguments without a name.
        hide: False to leave rows with missing values out, for a method that needs whole ones.
        reading: its other arguments, which go before every decision; what ``keep`` or ``include``
            names is not left out.

    Raises:
        TableError: what cannot be decided, once all else is.

    Example:
        >>> from lexppl.data import dataset_from_frame
        >>> frame = pd.DataFrame({"site": 1, "dose": [None, 2.0, 5.0, 3.0], "y": [0, 1, 1, 0]})
        >>> data, decisions = with_decisions(dataset_from_frame, frame, "y")
        >>> print(data.entry_names, *decisions, sep="\\n")
        ('dose',)
        left out: 'site' (constant); without decisions the table is refused
        hidden where missing: 'dose' (1); drop_missing=True leaves these rows out
    """
    reading["include"] = [*(reading.get("include") or ()), *reading.get("keep", ())]
    decisions: list[str] = []
    while True:
        try:
            with warnings.catch_warnings():
                for words in decisions:  # A decision is no warning too.
                    warnings.filterwarnings("ignore", re.escape(words.partition(";")[0]))
                return read(*table, **reading), tuple(decisions)
        except TableError as error:
            safe = [problem for problem in error.problems if problem.decision]
            if not safe:
                raise
            # Columns that are left out have no missing values that matter.
            first = [problem for problem in safe if "hide_missing" not in problem.mend] or safe
            for problem in first:
                way = problem if hide or problem.otherwise is None else problem.otherwise
                decisions.append(way.decision)
                for name, value in way.mend.items():
                    more = isinstance(value, list)
                    reading[name] = [*reading.get(name, ()), *value] if more else value


def refuse(problems: Iterable[Problem]) -> None:
    """Raise :class:`TableError` where there are any problems."""
    found = list(problems)
    if found:
        raise TableError(found)


def table_problems(
    used: pd.DataFrame, how: TableReading, rows: NDArray[np.int64] | None = None
) -> Iterator[Problem]:
    """What a table has wrong: the columns that are read, the target last; ``rows`` count for
    rare levels."""
    frame, labels = used.iloc[:, :-1], used.iloc[:, -1]
    constant = how.constant(frame)
    if not how.hide_missing:
        read = frame.drop(columns=constant) if how.drop_constant else frame
        yield from _missing_values(read, labels)
    if len(constant) == frame.shape[1]:
        out = f"; left out: {quoted(how.drop)}" if how.drop else ""
        yield Problem(f"no column is left beside the target: {quoted(constant)} constant{out}")
    elif not how.drop_constant:
        yield from _constant_columns(frame[constant])
    for name in frame.columns:
        if how.include is not None and name not in how.include and counts_rows(frame[name]):
            yield Problem(
                f"column {name!r} numbers the rows: leave it out with drop=[{name!r}], or read it "
                f"with include=[{name!r}]",
                {"drop": [name]},
                f"left out: {name!r} (numbers the rows); include=[{name!r}] reads it",
            )
        if name not in constant:
            yield from _column_problems(frame[name], how, rows)
    known = labels.dropna()
    if len(known) == 0:
        yield Problem(f"target {str(labels.name)!r} is always missing")
        return
    commas = (
        None if how.task == "classification" else _written_numbers(known, "task='classification'")
    )
    if commas is not None:
        yield commas
        return
    found: list[TargetColumn] = []
    yield from _caught(lambda: found.append(TargetColumn.fit(known, how.task)))
    for one in found:
        if one.class_names is not None:
            mend = "predict another column, or give task='regression' for numbers"
            yield from _level_problems(one.name, one.class_names, len(known), mend, bool(how.task))


def constant_columns(frame: pd.DataFrame) -> list[str]:
    """Names of the columns with one value at most, beside missing ones.

    >>> constant_columns(pd.DataFrame({"a": [1.0, None, 1.0], "b": [[1], [1], [1]]}))
    ['a']
    """
    # Lists and the like have no hash, and are refused for what they are.
    return [
        name
        for name in frame.columns
        if (frame[name].dtype != object or all(map(pd.api.types.is_hashable, frame[name])))
        and frame[name].nunique() <= 1
    ]


def _missing_values(frame: pd.DataFrame, labels: pd.Series) -> Iterator[Problem]:
    """That features or the target have missing values, which are hidden, or whose rows are left
    out where they cannot be."""
    hide, drop = {"hide_missing": True}, {"drop_missing": True}
    target, counts = str(labels.name), missing_in(frame)
    features = frame.assign(**{target: 0})
    hidden = f"hidden where missing: {_counted(counts)}; drop_missing=True leaves these rows out"
    rows = counted(int(frame.isna().any(axis=1).sum()), "row")
    out = f"left out: {rows} with missing values, {_counted(counts)}; drop={[*counts]!r} leaves "
    otherwise = Problem("", drop, f"{out}the {'columns' if len(counts) > 1 else 'column'} out")
    yield from _caught(lambda: refuse_missing(features), hide, hidden, otherwise)
    if gaps := int(labels.isna().sum()):
        words = f"left out: {counted(gaps, 'row')} without the target {target!r}; {REFUSED}"
        yield Problem(
            f"target {target!r} is missing in {counted(gaps, 'row')}: give drop_missing=True or "
            "hide_missing=True, which both leave such rows out",
            hide,
            words,
            Problem("", drop, words),
        )


def _counted(counts: Mapping[str, int]) -> str:
    """Every name with its count."""
    return ", ".join(f"{name!r} ({count})" for name, count in counts.items())


def _constant_columns(constant: pd.DataFrame) -> Iterator[Problem]:
    """That columns have one value at most, or one and missing ones."""
    drop = {"drop_constant": True}
    part = [name for name, cells in constant.items() if 0 < cells.isna().sum() < len(cells)]
    if whole := [name for name in constant if name not in part]:
        empty = {name: constant[name].isna().all() for name in whole}
        listed = [f"{n!r} ({'always missing' if empty[n] else 'constant'})" for n in whole]
        yield Problem(
            f"constant columns explain nothing: {quoted(whole)}; leave them out, or give "
            "drop_constant=True to drop them",
            drop,
            f"left out: {', '.join(listed)}; {REFUSED}",
        )
    if part:
        words = f"left out: {', '.join(map(repr, part))} (one value, or missing); "
        yield Problem(
            f"columns of one value, beside missing ones, explain nothing: {quoted(part)}; give "
            "drop_constant=True to drop them, or hide_missing=True and missing_indicator=True, "
            "which read where they are missing",
            drop,
            f"{words}missing_indicator=True reads where",
            Problem("", drop, words + REFUSED),
        )


def notices(
    frame: pd.DataFrame, task: str | None = None, include: Collection[str] = ()
) -> Iterator[str]:
    """What columns may hold that was not meant, in words; the target is the last, and its task
    the one stated."""
    for name in frame.columns:
        cells = frame[name]
        if counts_rows(cells) and name not in (frame.columns[-1], *include):
            yield f"column {name!r} numbers the rows: unless that matters, give drop=[{name!r}]"
        kind = kind_of(cells)
        if kind == "number":
            yield from _far_values(name, numbers_of(cells.dropna()))
            few = cells.dtype.kind == "f" and cells.nunique() <= MOST_INTEGER_CLASSES
            if few and name == frame.columns[-1] and not task and (cells == cells.round()).all():
                yield (
                    f"target {name!r} is read as a response, for its decimal points: if its "
                    f"{cells.nunique()} values are classes, give task='classification'"
                )
        levels = pd.Series(levels_in(cells) if kind == "level" else (), dtype=object)
        for _, same in levels.groupby(levels.map(lambda level: " ".join(level.casefold().split()))):
            if len(same) > 1:
                yield f"levels {quoted(same)} of column {name!r} differ in blanks or capitals alone"


def _far_values(name: str, values: NDArray[np.float64]) -> Iterator[str]:
    """That a number such as -999 recurs, farther from all others than these are apart."""
    for code in {values.min(), values.max()}:
        others = values[values != code]
        far = 0 < len(others) < len(values) - 1 and np.abs(others - code).min() > np.ptp(others)
        if far and set(level_of(code).lstrip("-")) == {"9"}:
            hint = f"if it means missing, give missing=('{code:.0f}',)"
            yield f"column {name!r} holds {code:.0f}, far from its other values: {hint}"


def counts_rows(cells: pd.Series) -> bool:
    """Whether a column numbers the rows: whole numbers without a gap, each once, or but for rows
    that are dropped, whose places the index lacks."""
    if not pd.api.types.is_integer_dtype(cells.dtype) or len(cells) <= FEW_ROWS:
        return False
    if cells.isna().any():
        return False
    whole = int(cells.max()) - int(cells.min()) == len(cells) - 1 and cells.is_unique
    return bool(whole or (np.diff(cells) == np.diff(cells.index)).all())


def _column_problems(
    cells: pd.Series, how: TableReading, rows: NDArray[np.int64] | None
) -> Iterator[Problem]:
    """What one column has wrong, beside missing values."""
    name, known = str(cells.name), cells.dropna()
    try:
        kind = kind_of(cells)
    except ValueError as error:
        yield Problem(str(error), {"drop": [name]})
        return
    if kind == "number":
        yield from _caught(lambda: numbers_of(known))
    elif kind == "date":
        yield from _date_problems(known, how.dates)
    elif commas := _written_numbers(known, f"categorical=[{name!r}]"):
        yield commas
    else:
        chosen = cells if rows is None else cells.iloc[rows]
        included, every = name in (how.include or ()), levels_in(known)
        levels, pooled = pooled_levels(chosen, every, None if included else how.rare)
        if pooled is not None and len(levels) < 2:
            yield Problem(
                f"column {name!r} has no level in {how.rare} rows or more, and pooled it is "
                f"constant: leave it out with drop=[{name!r}], or give a smaller rare",
                {"drop": [name]},
                f"left out: {name!r} (no level in {how.rare} rows or more); include=[{name!r}] "
                "reads all its levels",
            )
        mend = f"leave it out with drop=[{name!r}], or pool its rare levels with rare=10"
        stated = isinstance(cells.dtype, pd.CategoricalDtype)
        for problem in _level_problems(name, levels, len(cells), mend, stated):
            if problem.mend != {"drop": [name]}:
                yield problem
            elif not included:
                yield _decided(problem, name, every, pooled_levels(chosen, every, FEW_ROWS)[0], how)


def _written_numbers(cells: pd.Series, otherwise: str) -> Problem | None:
    """That a column of words, none of them missing, holds numbers with commas or a unit, if it
    does, and what reads them as names."""
    words = [] if isinstance(cells.dtype, pd.CategoricalDtype) else cells.unique().tolist()
    if not all(isinstance(word, str) for word in words):
        return None
    words = [word.strip() for word in words]
    commas = [word for word in words if "," in word]
    name = str(cells.name)
    marked = [found for found in map(_THOUSANDS.fullmatch, words) if found and found[2]]
    if marked and all(_THOUSANDS.fullmatch(word) or _WHOLE.fullmatch(word) for word in words):
        first, signs = marked[0], {found[2] for found in marked}
        what = {",": "commas", "'": "apostrophes"}.get(first[2], "blanks")
        decimals = "if they part the decimals give decimal=',' when the file is read; "
        if signs != {","} or any("." in word for word in words):
            decimals = ""
        return Problem(
            f"column {name!r} holds numbers with {what}, such as {first[0]!r}: {decimals}if they "
            "part the thousands, write the numbers without them"
        )
    if commas and all(_WITH_COMMA.fullmatch(word) or _WHOLE.fullmatch(word) for word in words):
        large = [word for word in commas if not _WHOLE.fullmatch(word.split(",")[0])]
        parted = f", and write {large[0]!r} without what parts its thousands" if large else ""
        return Problem(
            f"column {name!r} holds numbers with decimal commas, such as {commas[0]!r}; give "
            f"decimal=',' when the file is read{parted}, or {otherwise} if they are names",
            {"decimal": ","},
        )
    units = {
        found and "".join(found.groups("")): word
        for word, found in zip(words[::-1], map(_WITH_UNIT.fullmatch, words[::-1]), strict=True)
    }
    marks = [unit for unit in units if unit]
    named = len(units) > 1 and any(map(str.isalpha, "".join(marks)))
    if marks and None not in units and not named and len(words) > MOST_INTEGER_CLASSES:
        return Problem(
            f"column {name!r} holds numbers with {quoted(marks)}, such as {units[marks[0]]!r}; "
            f"write plain numbers, as 12 or -0.5, or give {otherwise} if they are names"
        )
    return None


def _level_problems(
    name: str, levels: tuple[str, ...], rows: int, otherwise: str, stated: bool
) -> list[Problem]:
    """That a column has more levels than are expected, or numbers among them, and what mends it
    where they are words."""
    words = [level for level in levels if pd.isna(pd.to_numeric(level, errors="coerce"))]
    mends: dict[str, object] = {"drop": [name]} if "drop=" in otherwise else {}
    names = f"categorical=[{name!r}]" if mends else "task='classification'"
    points = [level for level in levels if "." in level and not words and not stated]
    if points:
        how = "make numbers of them, in a file by one sign of decimals"
        text = f"column {name!r} holds words that are numbers, such as {points[0]!r}: {how}"
        return [Problem(f"{text}, or give {names} if they are names")]
    hint = f"it looks like an identifier or free text: {otherwise}"
    are_numbers = 0 < len(words) < len(levels) / 2
    if are_numbers:
        gaps = [word for word in words if not re.search(r"\d", word)]
        mends = {"missing": gaps[:3]} if gaps else {}
        hint = f"most are numbers, but not {quoted(words, most=3)}: if these mean missing, give "
        hint += f"missing=({(gaps or words)[0]!r},)"
        if len(gaps) < len(words):
            hint += ", and write those that are numbers plainly, as 12 or -0.5"
    text = f"categorical column {name!r} has {len(levels)} levels in {rows} rows"
    most = min(MOST_LEVELS, max(FEW_ROWS, rows // 2))
    if len(levels) > most:
        return [Problem(f"{text}, at most {most} are expected; {hint}", mends)]
    if are_numbers and not stated and len(levels) - len(words) > MOST_INTEGER_CLASSES:
        return [Problem(f"{text}; {hint}, or {names} if all are names", mends)]
    return []


def _decided(
    problem: Problem,
    name: str,
    every: tuple[str, ...],
    frequent: tuple[str, ...],
    how: TableReading,
) -> Problem:
    """The problem of a column with too many levels, with what is decided by those of enough rows:
    it is left out, its rare levels are pooled, or all of them are read."""
    count, reads = f"{len(every)} levels", f"include=[{name!r}] reads all its levels"
    if len(frequent) < 2:
        words = f"left out: {name!r} ({count}, none in {FEW_ROWS} rows or more); {reads}"
        return replace(problem, decision=words)
    if len(frequent) <= MOST_LEVELS and how.rare is None:
        words = f"pooled: levels of fewer than {FEW_ROWS} rows, as {name!r} has {count}; {reads}"
        return replace(problem, mend={"rare": FEW_ROWS}, decision=words)
    if len(frequent) <= MOST_ESTIMATED:
        words = f"read with all its {count}: {name!r}; drop=[{name!r}] leaves it out"
        return replace(problem, mend={"include": [name]}, decision=words)
    return problem


def _date_problems(known: pd.Series, dates: Any) -> Iterator[Problem]:
    name = str(known.name)
    try:
        days_of(known, date_order(known, dates))
    except DateOrderError as error:
        yield Problem(str(error), {"dates": "dayfirst|monthfirst"})
    except ValueError as error:
        yield Problem(
            f"{error}; if these mean missing give them as missing=(…), or read the column as "
            f"levels with categorical=[{name!r}], or leave it out with drop=[{name!r}]",
            {"drop": [name]},
        )


def _caught(check: Callable[[], object], *more: Any) -> Iterator[Problem]:
    """What a check refuses, as a problem, with its other fields."""
    try:
        check()
    except ValueError as error:
        yield Problem(str(error), *more)
