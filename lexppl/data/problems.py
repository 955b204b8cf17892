"""Everything that is wrong with a table, listed at once, each with the argument that fixes it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lexppl.argument_checks import quoted
from lexppl.data.cells import (
    DateOrderError,
    date_order,
    days_of,
    kind_of,
    level_of,
    levels_in,
    numbers_of,
    pooled_levels,
    refuse_missing,
)
from lexppl.data.encoding import MOST_INTEGER_CLASSES, TargetColumn
from lexppl.summary import counted

if TYPE_CHECKING:
    from lexppl.data.tables import TableReading

MOST_LEVELS = 100
MOST_COMMON_LEVELS = 1000  # Of ten rows or more, that are read where nothing is stated
FEW_ROWS = 10  # Rows up to which a column may well count them, or differ in each, by chance

# What means missing in a column of numbers, in small letters
MISSING = ("na", "n/a", "nan", "none", "null", "<na>", "#n/a")
_WHOLE = re.compile(r"[+-]?\d+")
_WITH_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}([. ']\d{3})+),\d+")
_WITH_UNIT = re.compile(r"[+-]?([$€£¥<>≤≥~−]?) ?[+-]?\d[\d.,' ]*?(?: ?([^\d.,' ]\D*))?")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(([,'\s])\d{3})*(\.\d+)?")


@dataclass(frozen=True)
class Problem:
    """One thing that a table has wrong, in words, and the arguments that fix it, if any do.

    Args:
        text: what is wrong, up to a semicolon, and what fixes it.
        decision: of a mend that is safe where nothing is stated: what it does, and the argument
            that changes it.
    """

    text: str
    mend: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    decision: str = ""


class TableError(ValueError):
    """A table that cannot be read as it is, with all that is wrong with it.

    Of one problem the message is its text; of several they stand one a line, and the last line
    has the arguments that fix all that arguments can.

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
        arguments: dict[str, object] = {}
        for problem in self.problems:
            for name, value in problem.mend.items():
                known = arguments.get(name)
                if isinstance(known, list) and isinstance(value, list):
                    arguments[name] = [*known, *(item for item in value if item not in known)]
                else:
                    arguments.setdefault(name, value)
        return arguments


Read = TypeVar("Read")
REFUSED = "without decisions the table is refused"
HIDDEN = "hidden; drop_missing=True drops their rows"
DROPPED = "their rows are left out; drop leaves a column out in their place"


def with_decisions(
    read: Callable[..., Read], *table: Any, hide: bool = True, **reading: Any
) -> tuple[Read, tuple[str, ...]]:
    """What a reading function makes of a table, and what was decided for it, in words.

    Missing values are hidden, columns that say nothing or name the row are left out, and rare
    levels are pooled: the mends of a `TableError` that are safe, until nothing is left to decide.

    Args:
        read: `read_table`, `dataset_from_frame` or the like.
        table: its arguments without a name.
        hide: False to leave rows with missing values out, for a method that needs whole ones.
        reading: its other arguments, which no decision changes.

    Raises:
        TableError: what cannot be decided, once all else is.

    Example:
        >>> from lexppl.data import dataset_from_frame
        >>> frame = pd.DataFrame({"site": 1, "dose": [None, 2.0, 5.0, 3.0], "y": [0, 1, 1, 0]})
        >>> data, decisions = with_decisions(dataset_from_frame, frame, "y")
        >>> print(data.entry_names, *decisions, sep="\\n")
        ('dose',)
        constant columns explain nothing: 'site': left out; without decisions the table is refused
        missing values in 1 of 1 columns: 'dose' (1): hidden; drop_missing=True drops their rows
    """
    reading["include"] = reading.get("include") or ()
    hide = not reading.pop("drop_missing", False) and hide  # Rows are dropped last.
    decisions: dict[str, str] = {}
    while True:
        try:
            with warnings.catch_warnings():
                for fact in decisions:  # No warning repeats a decision.
                    warnings.filterwarnings("ignore", re.escape(fact))
                return read(*table, **reading), tuple(map(": ".join, decisions.items()))
        except TableError as error:
            every = [problem for problem in error.problems if problem.decision]
            # First columns are left out, whose missing values then do not matter.
            safe = [problem for problem in every if "hide_missing" not in problem.mend] or every
            if not safe:
                raise
            for name, value in TableError(safe).mends.items():
                if isinstance(value, list):
                    value = [*reading.get(name, ()), *value]
                reading["drop_missing" if name == "hide_missing" and not hide else name] = value
            for problem in safe:
                fact, done = problem.text.partition("; ")[0], problem.decision
                decisions[fact] = DROPPED if done == HIDDEN and not hide else done


def refuse(problems: Iterable[Problem]) -> None:
    """Raise :class:`TableError` where there are any problems."""
    listed = list(problems)
    if listed:
        raise TableError(listed)


def table_problems(
    used: pd.DataFrame, how: TableReading, rows: NDArray[np.int64] | None = None
) -> Iterator[Problem]:
    """What a table has wrong: the columns that are read, the target last; ``rows`` count for
    rare levels."""
    frame, labels = used.iloc[:, :-1], used.iloc[:, -1]
    constant = constant_columns(frame, how.missing_indicator)
    if not how.hide_missing:
        features = frame.drop(columns=constant)
        yield from _caught(lambda: refuse_missing(features), {"hide_missing": True}, HIDDEN)
        if gaps := int(labels.isna().sum()):
            text = f"target {str(labels.name)!r} is missing in {counted(gaps, 'row')}; give "
            text += "drop_missing=True or hide_missing=True, which both leave such rows out"
            yield Problem(text, {"hide_missing": True}, f"left out; {REFUSED}")
    if len(constant) == frame.shape[1]:
        yield Problem("no column is left beside the target: all are constant")
    elif constant and not how.drop_constant:
        marked = [name for name in constant if frame[name].nunique(dropna=False) > 1]
        reads = f", and missing_indicator=True reads which cells of {quoted(marked)} are missing"
        text = f"constant columns explain nothing: {quoted(constant, most=len(constant))}; "
        text += "leave them out, or give drop_constant=True to drop them"
        yield Problem(text, {"drop": constant}, f"left out; {REFUSED}{reads if marked else ''}")
    for name in frame.columns:
        if name not in constant:
            yield from _column_problems(frame[name], how, rows)
    known = labels.dropna()
    if len(known) == 0:
        yield Problem(f"target {str(labels.name)!r} is always missing")
        return
    names = "task='classification'"
    if how.task != "classification" and (commas := _written_numbers(known, names)):
        yield commas
        return
    fitted: list[TargetColumn] = []
    yield from _caught(lambda: fitted.append(TargetColumn.fit(known, how.task)))
    for target in fitted:
        if (levels := target.class_names) is not None:
            mend = "predict another column, or give task='regression' for numbers"
            yield from _level_problems(target.name, levels, len(known), mend, bool(how.task))


def constant_columns(frame: pd.DataFrame, with_gaps: bool = False) -> list[str]:
    """Names of the columns with one value at most, beside missing ones, or with these.

    >>> constant_columns(pd.DataFrame({"a": [1.0, None, 1.0], "b": [[1], [1], [1]]}))
    ['a']
    """
    # Lists and the like have no hash, and are refused for what they are.
    return [
        name
        for name in frame.columns
        if (frame[name].dtype != object or all(map(pd.api.types.is_hashable, frame[name])))
        and frame[name].nunique(dropna=not with_gaps) <= 1
    ]


def notices(frame: pd.DataFrame, task: str | None = None, numbers: bool = True) -> Iterator[str]:
    """What columns may hold that was not meant, in words; the target is the last, and its task
    the one stated."""
    for name in frame.columns:
        cells = frame[name]
        if numbers and counts_rows(cells) and name != frame.columns[-1]:
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
    that were dropped, by the places of the others in the index."""
    if not pd.api.types.is_integer_dtype(cells.dtype) or len(cells) <= FEW_ROWS:
        return False
    if cells.isna().any() or not cells.is_unique:
        return False
    whole = int(cells.max()) - int(cells.min()) == len(cells) - 1
    return whole or bool((np.diff(cells) == np.diff(cells.index)).all())


def _column_problems(
    cells: pd.Series, how: TableReading, rows: NDArray[np.int64] | None
) -> Iterator[Problem]:
    """What one column has wrong, beside missing values."""
    name, known = str(cells.name), cells.dropna()
    if how.include is not None and name not in (*how.include, *how.keep) and counts_rows(cells):
        text = f"column {name!r} numbers the rows; drop=[{name!r}] leaves it out"
        yield Problem(text, {"drop": [name]}, f"left out; include=[{name!r}] reads it")
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
        if name in (how.include or ()):
            return
        chosen = cells if rows is None else cells.iloc[rows]
        levels, pooled = pooled_levels(chosen, levels_in(known), how.rare)
        reads = f"include=[{name!r}] reads all its levels"
        if pooled is not None and len(levels) < 2:
            text = f"column {name!r} has no level in {how.rare} rows or more; leave it out with "
            text += f"drop=[{name!r}], or give a smaller rare"
            yield Problem(text, {"drop": [name]}, f"left out; {reads}")
        mend = f"leave it out with drop=[{name!r}], or pool its rare levels with rare=10"
        mend += f", or read all with include=[{name!r}]"
        stated = isinstance(cells.dtype, pd.CategoricalDtype)
        common = len(pooled_levels(chosen, levels, FEW_ROWS)[0])
        mends: dict[str, object] = {"drop": [name]}
        done = f"left out; {reads}"
        if name in how.keep or MOST_LEVELS < common <= MOST_COMMON_LEVELS:
            mends, done = {"include": [name]}, f"all are read; drop=[{name!r}] leaves it out"
        elif common > 1:
            done = f"levels of fewer than {FEW_ROWS} rows are pooled, in all columns; {reads}"
            mends, done = {"rare": FEW_ROWS}, "" if how.rare else done
        for problem in _level_problems(name, levels, len(cells), mend, stated):
            wide = "drop" in problem.mend
            yield replace(problem, mend=mends, decision=done) if wide else problem


def _written_numbers(cells: pd.Series, otherwise: str) -> Problem | None:
    """That a column of words, none of them missing, holds numbers with commas or a unit, if it
    does, and what reads them as names."""
    words = [] if isinstance(cells.dtype, pd.CategoricalDtype) else cells.unique().tolist()
    if not all(isinstance(word, str) for word in words):
        return None
    words = [word.strip() for word in words if word.casefold() not in MISSING]
    commas = [word for word in words if "," in word]
    name = str(cells.name)
    marked = [match for match in map(_THOUSANDS.fullmatch, words) if match and match[2]]
    if marked and all(_THOUSANDS.fullmatch(word) or _WHOLE.fullmatch(word) for word in words):
        first, signs = marked[0], {match[2] for match in marked}
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
        match and "".join(match.groups("")): word
        for word, match in zip(words[::-1], map(_WITH_UNIT.fullmatch, words[::-1]), strict=True)
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


def _caught(check: Callable[[], object], *mend: Any) -> Iterator[Problem]:
    """What a check refuses, as a problem, with its mend and decision."""
    try:
        check()
    except ValueError as error:
        yield Problem(str(error), *mend)
