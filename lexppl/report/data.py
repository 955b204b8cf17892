"""Everything that a report says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from scipy.stats import t

from lexppl.argument_checks import fraction, int_at_least
from lexppl.arviz_compatibility import Posterior
from lexppl.choices.files import EXPLAINER, MEANINGS, REPORT
from lexppl.choices.imputers import data_held_by, hidden_by, image_imputers
from lexppl.choices.methods import METHODS
from lexppl.choices.settings import NETWORK, Regime
from lexppl.data.divided_table import DividedTable
from lexppl.data.stratification import evenly
from lexppl.evaluation.importance import FDR
from lexppl.evaluation.penalty_path import PenaltyPath
from lexppl.evaluation.prediction import BaseRateGain
from lexppl.explanation.reading import masks
from lexppl.explanation.reading.modes import Alternative, alternatives_of
from lexppl.explanation.reading.rows import RowOutcome
from lexppl.inference import FitResult
from lexppl.report.divided_rows import DividedRows
from lexppl.report.results.certified_rows import CertifiedRows
from lexppl.report.results.encoded_choice import EncodedChoice
from lexppl.report.results.gains import JudgedGains
from lexppl.report.results.penalties import AllPenalties
from lexppl.report.results.scores import Judgement
from lexppl.report.results.single_rows import Details, ExplainedRow
from lexppl.report.results.words import WordFindings
from lexppl.summary import counted
from lexppl.systems.fit_plan import FitPlan
from lexppl.tabular.predictors import WORDS

MOST_CLASSES = 12  # Classes of which a page shows rows


SHOWN_NAMES = 6  # Classes that a line names
DOES: Mapping[masks.ImportanceKind, str] = {
    masks.SHARE: "gives each {} of a row a share of the importance",
    masks.STRENGTH: "lets each {} of a row through in part",
    masks.ATTRIBUTION: "gives each {} of a row a contribution, with its sign",
}
"""What an explainer whose masks do not select does with entries."""


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """What is asked of a report.

    Args:
        draws: masks a row and replicate.
        row: places of the single rows that are shown; three held-out ones if none.
        fdr, fwer: false discovery rate of gains, or a family-wise error in its place.
        guarantee: confidence at which features of a row are certified, by a fit of many penalties.
        data, black_box, command: name of the data, file of a black box and command, as typed.
    """

    draws: int = 100
    row: Sequence[int] = ()
    fdr: float = FDR
    fwer: float | None = None
    guarantee: float | None = None
    data: str = ""
    black_box: str | None = None
    command: str = ""

    def __post_init__(self) -> None:
        int_at_least("draws", self.draws, 2)
        for name in ("fdr", "fwer", "guarantee"):
            if (share := getattr(self, name)) is not None:
                fraction(name, share)


@dataclass(frozen=True, eq=False, kw_only=True)
class CommonReport:
    """What is reported of rows of any kind.

    Args:
        posterior: masks of held-out rows.
        ranking: of :func:`lexppl.explanation.selection_table`, or of words.
        judgement: held-out scores.
        learning: gain over the base rate.
    """

    options: ReportOptions
    source: Any
    plan: FitPlan
    result: FitResult
    posterior: Posterior
    ranking: pd.DataFrame
    judgement: Judgement
    warnings: tuple[str, ...]
    learning: BaseRateGain | None = None

    entries: ClassVar[str] = "features"

    @cached_property
    def kind(self) -> masks.ImportanceKind:
        """Kind of importance that the masks state."""
        return masks.kind_of(self.posterior)

    @cached_property
    def modes(self) -> list[Alternative]:
        """Alternatives among the fits."""
        return alternatives_of(self.posterior)

    @property
    def target_text(self) -> str:
        """The target and its classes."""
        data = self.source.data
        if data.class_names is None:
            return f"{data.target_name!r} (a number)"
        names, more = [str(name) for name in data.class_names], ""
        if len(names) > SHOWN_NAMES:
            more = f" … {len(names)} classes"
        return f"{data.target_name!r} ({', '.join(names[:SHOWN_NAMES])}{more})"

    def files(self, folder: Path) -> dict[str, str]:
        """Files that are in the folder, and their meanings; the report first."""
        held = data_held_by(self.plan.imputer_name)
        with_data = f"; with the {self.plan.imputer_name} imputer it holds {held}"
        words = {"entries": self.entries, "draws": self.options.draws}
        words["held"] = "" if held is None else with_data
        return {
            name + "/" * (name == EXPLAINER): meaning.format(**words)
            for name, meaning in MEANINGS.items()
            if name == REPORT or (folder / name).exists()
        }

    def _fitted(self) -> str:
        plan, sampler = self.plan, self.result.sampler
        by = "" if plan.posterior is None else f", {plan.posterior.words}"
        if sampler is None:
            epochs = counted(plan.epochs, "epoch")
            return f"{counted(plan.replicates, 'replicate')} of {epochs}{by}"
        what = "chain" if sampler.are_chains else "set"
        draws = counted(self.result.guides[0].draws, "draw")
        return f"{counted(self.result.replicates, what)} of {draws}{by}"


@dataclass(frozen=True, eq=False, kw_only=True)
class TableReport(CommonReport):
    """What is reported of a table.

    Args:
        predictor: what predicts from the kept features, in words.
        gains: None of masks that do not select.
        path: the penalties of which one was chosen.
        penalties: the fit at each of its penalties.
        calls: rows that a black box was given, in words.
        certified: of `--guarantee`.
        limited: whether masks keep only what the rows outside each fold show to matter.
    """

    source: DividedTable
    predictor: str
    gains: JudgedGains | None
    details: Details
    path: PenaltyPath | None = None
    choice: EncodedChoice = field(default_factory=EncodedChoice)
    penalties: AllPenalties | None = None
    calls: str | None = None
    certified: CertifiedRows | None = None
    limited: bool = False

    @property
    def distribution(self) -> str:
        """What the explainer does with a row's features, in words."""
        if self.kind is masks.PROBABILITY:
            among = ", of those that the rows of other folds show to matter" * self.limited
            return f"keeps {self.plan.law}{', from the data' * (self.path is not None)}{among}"
        return DOES[self.kind].format("feature")

    @property
    def rows(self) -> tuple[ExplainedRow, ...]:
        """Single rows, feature by feature."""
        return self.details.rows

    @property
    def hidden_by(self) -> str:
        """What hidden features are replaced with, in words."""
        name = self.plan.imputer_name
        return f"{name}: {hidden_by(name)}" if name == self.plan.imputer else f"draws of {name}"

    @property
    def shape(self) -> str:
        """Numbers of rows and features."""
        data = self.source.data
        return f"{len(data)} rows, {data.n_entries} features"

    def summary(self) -> list[str]:
        """What was done, in three lines, and the predictor where it is not the usual one."""
        data, plan = self.source.data, self.plan
        usual = self.predictor == WORDS[NETWORK]
        return [
            f"{data.name}: {self.shape}, target {self.target_text}",
            self.rows_text,
            f"{plan.method}: {self.explained_text}; {self.distribution}; {plan.imputer_name} "
            f"imputation; {self._fitted()}; seed {plan.seed}",
            *([] if usual else [f"predictor: {self.predictor}"]),
        ]

    @property
    def rows_text(self) -> str:
        """Numbers of rows by their part."""
        source = self.source
        fitted, judged = len(source.train_rows), len(source.test_rows)
        if (count := source.folds) is not None:
            text = f"{fitted} rows to fit on, each explained by a fit that has not seen it"
            text += f" ({count} fits, each to the rows outside one of {count} folds)"
            return text if judged == fitted else f"{text}; {judged} are judged"
        valid = 0 if source.valid_rows is None else len(source.valid_rows)
        chosen = "best epoch" if self.path is None else "penalty"
        parts = f"{fitted} rows to fit on, {valid} to choose the {chosen} on"
        if self.result.sampler is not None:
            parts = f"{fitted + valid} rows that the posterior is given"
        text = f"{parts}, {judged} held out"
        others = len(source.data) - fitted - valid - judged
        return f"{text}; {others} others, at random, are left out" if others > 0 else text

    @property
    def explained_text(self) -> str:
        """What is explained, by the regime."""
        before = "a predictor fitted on all features before"
        return {
            Regime.FREE_IN_SITU: "explains the target",
            Regime.FIXED_IN_SITU: f"explains the target, by {before}",
            Regime.SELF_POST_HOC: f"explains what {before} says",
            Regime.SURROGATE_POST_HOC: "explains the black box",
        }[self.plan.regime]


@dataclass(frozen=True)
class KeptSize:
    """Number of entries that a row keeps: the mean, its 95 % interval over replicates (NaN of
    one), and the 5 % and 95 % quantiles over rows."""

    mean: float
    lower: float
    upper: float
    few: float
    many: float

    @classmethod
    def of(cls, posterior: Posterior) -> KeptSize:
        """The size in a posterior."""
        by_row = masks.mask_means(posterior)
        sizes = by_row.sum("feature").values.astype(np.float64)
        means, rows = sizes.mean(1), sizes.mean(0)
        half = math.nan
        if len(means) > 1:
            half = float(t.ppf(0.975, len(means) - 1) * means.std(ddof=1) / math.sqrt(len(means)))
        mean = float(means.mean())
        few, many = np.quantile(rows, [0.05, 0.95])
        upper = min(mean + half, float(by_row.sizes["feature"])) if len(means) > 1 else half
        return cls(mean, max(0.0, mean - half), upper, float(few), float(many))

    @property
    def interval(self) -> str:
        """The interval in words."""
        if math.isnan(self.upper):
            return "one replicate: no interval"
        return f"95 % interval over replicates {self.lower:.1f} – {self.upper:.1f}"


@dataclass(frozen=True, eq=False, kw_only=True)
class RowsReport(CommonReport):
    """What is reported of images or texts.

    Args:
        requested: masks of the rows of --row, or None.
        rows: single rows, step by step.
        numbers: rows of the posterior, and of `requested`.
        words: what words of texts say; the ranking is its table.
    """

    source: DividedRows
    requested: Posterior | None
    rows: tuple[ExplainedRow, ...]
    numbers: tuple[list[int], list[int]]
    words: WordFindings | None = None

    @cached_property
    def size(self) -> KeptSize:
        """Number of entries that a row keeps."""
        return KeptSize.of(self.posterior)

    @property
    def entries(self) -> str:  # type: ignore[override]
        """Name of the entries in one word, such as "patches"."""
        return self.source.data.entries.partition(" of ")[0]

    @property
    def hidden_by(self) -> str:
        """What hidden entries are replaced with, in words."""
        if not METHODS[self.plan.method].takes("imputer"):
            return "the method's own"
        name = str(self.plan.imputer)
        of_images = {} if self.source.are_texts else image_imputers()
        return f"{name}: {of_images.get(name) or hidden_by(name)}"

    @property
    def distribution(self) -> str:
        """What the explainer does with a row's entries, in words."""
        plan, data = self.plan, self.source.data
        if self.kind is not masks.PROBABILITY:
            return DOES[self.kind].format(f"of the {data.entries}")
        if plan.k is not None:
            return f"keeps exactly {plan.k} of the {data.n_entries} {data.entries} of each row"
        if plan.penalty is None:
            return f"keeps some of the {data.entries} of each row"
        return f"keeps as many {data.entries} as are worth {plan.penalty:.3g} nats each"

    @property
    def shape(self) -> str:
        """Shape of a row, and number of entries."""
        data = self.source.data
        return f"{data.shape}; {data.n_entries} {data.entries}"

    @property
    def rows_text(self) -> str:
        """Numbers of rows by their part."""
        source, data = self.source, self.source.data
        valid = 0 if source.valid is None else len(source.valid)
        parts = (
            f"{len(source.train)} {data.rows}s to fit on, {valid} to choose the best epoch on, "
            f"{len(source.test)} held out"
        )
        return parts + (f"; {data.left_out}" if data.left_out else "")

    def summary(self) -> list[str]:
        """What was done, in three lines."""
        plan = self.plan
        imputed = METHODS[plan.method].takes("imputer")
        hidden = f"{plan.imputer} imputation; " if imputed else ""
        return [
            f"{self.source.data.name}: {self.shape}, target {self.target_text}",
            self.rows_text,
            f"{plan.method}: {self.distribution}; {hidden}{self._fitted()}; seed {plan.seed}",
        ]


Report = TableReport | RowsReport


@dataclass(frozen=True)
class RowGroup:
    """Rows under a heading, by their places."""

    heading: str
    places: tuple[int, ...]


def shown_rows(outcomes: Sequence[RowOutcome], per_class: int) -> list[RowGroup]:
    """Rows of each class: right ones, an even choice, and those most surely wrong.

    Example:
        >>> rows = [RowOutcome("a", "a", 0.9), RowOutcome("a", "b", 0.6), RowOutcome("a", "b", 0.8)]
        >>> shown_rows(rows, 1)
        [RowGroup(heading='a: 1 of 3 right', places=(0, 2))]
    """
    if all(outcome.right is None for outcome in outcomes):
        return [RowGroup("Some rows", _even(range(len(outcomes)), 2 * per_class))]
    classes = sorted({o.observed for o in outcomes if o.observed is not None})
    groups = []
    for label in classes[:MOST_CLASSES]:
        of_label = [i for i, outcome in enumerate(outcomes) if outcome.observed == label]
        right = [i for i in of_label if outcomes[i].right]
        wrong = sorted(set(of_label) - set(right), key=lambda i: -outcomes[i].probability)
        heading = f"{label}: {len(right)} of {len(of_label)} right"
        groups.append(RowGroup(heading, (*_even(right, per_class), *wrong[:per_class])))
    return groups


def _even(places: Sequence[int], count: int) -> tuple[int, ...]:
    """An even choice of some places."""
    return tuple(places[i] for i in evenly(len(places), count))
