"""A table through `lexppl explain`, as it is typed, and its explainer on rows that are new."""

import contextlib
import io
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

import lexppl
from lexppl.cli import main as lexppl_command
from lexppl.data.cells import level_of
from lexppl.data.columns import CategoricalColumn
from lexppl.data.divided_table import DividedTable
from lexppl.data.encoding import TableEncoding
from lexppl.evaluation.prediction import predictive_log_likelihood
from lexppl.systems import METHODS, lex

PREDICTED_MASKS = 100
BEFORE = "lex_before"
SETTINGS = {
    "default": (),
    "before": ("--method", BEFORE, "--penalty", "0.02"),
}
"""What is typed beside the table: nothing, or what `lexppl explain` did before cross-fitting."""
AS_BEFORE = {"folds": 1, "towards": 0.5, "labels": "observed", "unit": 1.0}
"""Of `lex`: one predictor, a flat prior over masks, constants in nats."""
OF_GROUPS = ("gain", "gain_lower", "gain_upper", "p")
"""Columns of a group's line that are recorded."""


class ExplainError(Exception):
    """`lexppl explain` did not end well."""


@dataclass(frozen=True, eq=False)
class Explained:
    """A run of `lexppl explain`.

    Args:
        folder: that it wrote to.
        seconds: that it took.
        cpu_seconds: that it took of all cores together.
        warnings: that it gave.
        importance: what it says of the features.
        group_lines: what it says of groups of them; None where it measured no gains.
    """

    folder: Path
    seconds: float
    cpu_seconds: float
    warnings: list[str]
    importance: pd.DataFrame
    group_lines: pd.DataFrame | None

    @property
    def found(self) -> list[list[str]]:
        """The columns of each group that is reported as found; nothing where gains are missing."""
        table = self.group_lines
        return [] if table is None else [self._columns(g) for g in table.index[table["found"]]]

    @property
    def members(self) -> list[str]:
        """The columns reported as found within groups of several."""
        if self.group_lines is None:
            return []
        several = self.importance["group"].map(self.group_lines["members"]) > 1
        return [str(name) for name in self.importance.index[self.importance["found"] & several]]

    def groups(self) -> dict[str, dict[str, float]]:
        """What is kept of each group, by its columns."""
        if self.group_lines is None:
            return {}
        lines = self.group_lines.reindex(columns=OF_GROUPS).astype(float)
        return {
            "+".join(self._columns(group)): {n: v for n, v in line.items() if math.isfinite(v)}
            for group, line in lines.iterrows()
        }

    def _columns(self, group: str) -> list[str]:
        return sorted(self.importance.index[self.importance["group"] == group].astype(str))

    @property
    def penalty(self) -> float | None:
        """The λ that the data chose, nats an entry; None where they did not."""
        path = self.folder / "penalty_path.csv"
        if not path.exists():
            return None
        tried = pd.read_csv(path)
        return float(tried["penalty"][tried["chosen"]].iloc[0])

    def features(self) -> dict[str, dict[str, float]]:
        """How often each feature is kept."""
        kept = self.importance["selection_probability"]
        return {str(name): {"selection": float(value)} for name, value in kept.items()}


def explained(data: str | Path, out: Path, seed: int, *words: str) -> Explained:
    """Type `lexppl explain DATA --out OUT --seed SEED …`.

    Raises:
        ExplainError: it did not end well.
    """
    if BEFORE in words and BEFORE not in METHODS:
        METHODS.register("LEX as it was before cross-fitting", name=BEFORE, **AS_BEFORE)(lex)
    printed = io.StringIO()
    command = ["explain", str(data), "--out", str(out), "--seed", str(seed), "--overwrite"]
    start, cpu_start = time.perf_counter(), time.process_time()
    with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(io.StringIO()):
        code = lexppl_command([*command, "--quiet", *words])
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    if code != 0:
        raise ExplainError(
            f"lexppl {' '.join([*command, *words])} ended with {code}: {printed.getvalue()}"
        )
    mark = "lexppl: warning: "
    lines = [line.removeprefix(mark) for line in printed.getvalue().splitlines() if mark in line]
    importance = pd.read_csv(out / "importance.csv", index_col="feature")
    path = out / "groups.csv"
    groups = pd.read_csv(path, index_col="group") if path.exists() else None
    return Explained(out, seconds, cpu_seconds, lines, importance, groups)


def known_rows(source: DividedTable, frame: pd.DataFrame) -> pd.Series:
    """Whether rows have levels that the table has, in every category."""
    known = pd.Series(True, index=frame.index)
    for column in source.data.encoding.columns:
        if isinstance(column, CategoricalColumn):
            known &= frame[column.name].map(level_of).isin(column.levels)
    return known


def encoded(source: DividedTable, frame: pd.DataFrame) -> tuple[Tensor, Tensor]:
    """Rows as the explainer takes them, and what they observe."""
    encoding = source.data.encoding
    return encoding.encode(frame), encoding.target.encode(frame[source.data.target_name])


def explainer_of(run: Explained, source: DividedTable) -> Any:
    """The saved explainer.

    Raises:
        RuntimeError: it was fitted on other rows than the source's.
    """
    text = (run.folder / "encoding.json").read_text(encoding="utf-8")
    if TableEncoding.from_json(json.loads(text)) != source.data.encoding:
        raise RuntimeError(f"{run.folder} is of other rows than the table that it is judged by")
    return lexppl.load(run.folder / "explainer")


def likelihoods(result: Any, x: Tensor, y: Tensor, scale: float) -> NDArray:
    """`log p(y | x)` of each replicate and row, `(R, N)`, in the response's own units."""
    each = predictive_log_likelihood(result, x, y, masks=PREDICTED_MASKS)
    return each.double().numpy() - math.log(scale)


def typed(settings: str, more: Sequence[str]) -> tuple[str, ...]:
    """The words of some settings, and others."""
    return (*SETTINGS[settings], *more)
