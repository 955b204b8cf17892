"""Everything that `lexppl explain` reports."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd
from scipy.stats import t

from lexppl.arviz_compatibility import Posterior
from lexppl.choices.imputers import OF_WORDS, image_imputers
from lexppl.choices.methods import METHODS
from lexppl.choices.regimes import Regime
from lexppl.choices.settings import NETWORK
from lexppl.cli.image_rows import DividedRows
from lexppl.cli.options.plan_options import law_of
from lexppl.cli.results.encoded_choice import EncodedChoice
from lexppl.cli.results.gains import JudgedGains
from lexppl.cli.results.penalties import Settings
from lexppl.cli.results.scores import Judgement
from lexppl.cli.results.single_rows import CloserLook, ExplainedRow
from lexppl.data import DividedTable
from lexppl.evaluation.learned import BaseRateGain
from lexppl.evaluation.penalty_path import PenaltyPath
from lexppl.explanation.layout.importance_kind import (
    ATTRIBUTION,
    PROBABILITY,
    SHARE,
    STRENGTH,
    ImportanceKind,
    kind_of,
    mask_means,
)
from lexppl.explanation.reading.row_outcomes import RowOutcome
from lexppl.inference import FitResult
from lexppl.summary import counted
from lexppl.tabular.fit_plan import FitPlan
from lexppl.tabular.table_fit import WORDS


@dataclass(frozen=True, eq=False)
class ReportData:
    """Everything that `lexppl explain` has found.

    Args:
        source: the data set, with its rows to fit on, to choose the best epoch on, and to judge.
        given: how it was named.
        plan: how the explainer was fitted.
        predictor: what predicts from the features that are kept, in words.
        result: the fit.
        posterior: the masks of held-out rows.
        ranking: of :func:`lexppl.explanation.selection_table`, with the gains beside it and by
            them where there are any.
        gains: what the features are worth; None for masks that do not select.
        closer: directions and single rows.
        judgement: held-out scores.
        explained: how many held-out rows the posterior has.
        warnings: what the reader should mind.
        command: the words that were typed.
        draws: mask draws a row.
        device: where it ran.
        black_box: the file of the black box, or None.
        path: what the penalty was chosen from, where it was.
        choice: what the choice of features adds about y beyond their values.
        learning: what its predictions are worth against the base rate.
        settings: the fit at each of its penalties, and single rows; None where it has one.
    """

    source: DividedTable
    given: str
    plan: FitPlan
    predictor: str
    result: FitResult
    posterior: Posterior
    ranking: pd.DataFrame
    gains: JudgedGains | None
    closer: CloserLook
    judgement: Judgement
    explained: int
    warnings: tuple[str, ...]
    command: tuple[str, ...]
    draws: int
    device: str
    black_box: str | None
    path: PenaltyPath | None = None
    choice: EncodedChoice = field(default_factory=EncodedChoice)
    learning: BaseRateGain | None = None
    settings: Settings | None = None

    @cached_property
    def kind(self) -> ImportanceKind:
        """Kind of importance that the masks state; computed from all draws, once."""
        return kind_of(self.posterior)

    @property
    def distribution(self) -> str:
        """What the explainer does with a row's features, in words."""
        if self.kind is PROBABILITY:
            return f"keeps {law_of(self.plan)}" + ", from the data" * (self.path is not None)
        return {
            SHARE: "gives each feature of a row a share of the importance",
            STRENGTH: "lets each feature of a row through in part",
            ATTRIBUTION: "gives each feature of a row a contribution, with its sign",
        }[self.kind]

    @property
    def mean_size(self) -> float:
        """Mean number of features that a row keeps."""
        return float(mask_means(self.posterior).sum("feature").mean())

    def written(self) -> list[str]:
        """Names of what is written, the report first."""
        encoding = [] if self.source.data.encoding is None else ["encoding.json"]
        path = [] if self.path is None else ["penalty_path.csv"]
        closer = ["directions.csv"] * (self.closer.directions is not None)
        closer += ["rows.csv"] * bool(self.closer.rows)
        groups = ["groups.csv"] * (self.gains is not None)
        first = ["report.html", *groups, "importance.csv", *closer, *path]
        return [*first, "posterior.nc", "explainer/", *encoding]

    @property
    def fitted(self) -> str:
        """How the explainer was fitted, or its weights were given a posterior."""
        plan, sampler = self.plan, self.result.sampler
        if sampler is None:
            by = "" if plan.posterior is None else f", {plan.posterior.words}"
            epochs = counted(plan.epochs, "epoch")
            return f"{counted(plan.replicates, 'replicate')} of {epochs}{by}"
        what = "chain" if sampler.are_chains else "set"
        draws = counted(self.result.guides[0].draws, "draw")
        words = "" if plan.posterior is None else f", {plan.posterior.words}"
        return f"{counted(self.result.replicates, what)} of {draws}{words}"

    def summary(self) -> list[str]:
        """What was done, in three lines, and the predictor where it is another than usual."""
        data, plan = self.source.data, self.plan
        usual = self.predictor == WORDS[NETWORK]
        return [
            f"{data.name}: {len(data)} rows, {data.n_entries} features, target {target_text(self)}",
            rows_text(self, "rows to fit on"),
            f"{plan.method}: {explained_text(self)}; {self.distribution}; {plan.imputer} "
            f"imputation; {self.fitted}; seed {plan.seed}",
            *([] if usual else [f"predictor: {self.predictor}"]),
        ]


def target_text(findings: ReportData) -> str:
    """The target and its classes."""
    data = findings.source.data
    if data.class_names is None:
        return f"{data.target_name!r} (a number)"
    names = [str(name) for name in data.class_names]
    shown = ", ".join(names[:6]) + (f" … {len(names)} classes" if len(names) > 6 else "")
    return f"{data.target_name!r} ({shown})"


def rows_text(findings: ReportData, first: str = "to fit on") -> str:
    """How many rows there are for what."""
    source = findings.source
    if (count := source.folds) is not None:
        text = f"{len(source.train_rows)} {first}, each explained by a fit that has not seen it"
        text += f" ({count} fits, each to the rows outside one of {count} folds)"
        judged = len(source.test_rows)
        return text if judged == len(source.train_rows) else f"{text}; {judged} are judged"
    valid = 0 if source.valid_rows is None else len(source.valid_rows)
    chosen = "best epoch" if findings.path is None else "penalty"
    given = f"{len(source.train_rows)} {first}, {valid} to choose the {chosen} on"
    if findings.result.sampler is not None:
        given = f"{len(source.train_rows) + valid} rows that the posterior is given"
    text = f"{given}, {len(source.test_rows)} held out"
    others = len(source.data) - len(source.train_rows) - valid - len(source.test_rows)
    if others > 0:
        text += f"; {others} others, at random, are left out"
    return text


def explained_text(findings: ReportData) -> str:
    """What is explained, by the regime."""
    return {
        Regime.FREE_IN_SITU: "explains the target",
        Regime.FIXED_IN_SITU: "explains the target, by a predictor fitted on all features before",
        Regime.SELF_POST_HOC: "explains what a predictor fitted on all features before says",
        Regime.SURROGATE_POST_HOC: "explains the black box",
    }[findings.plan.regime]


@dataclass(frozen=True)
class KeptSize:
    """How many entries a row keeps: the mean over rows and replicates, its 95 % interval over
    replicates (NaN of one), and the 5 % and 95 % quantiles over rows."""

    mean: float
    lower: float
    upper: float
    few: float
    many: float

    @classmethod
    def of(cls, posterior: Posterior) -> KeptSize:
        """Read it off a posterior."""
        sizes = mask_means(posterior).sum("feature").values.astype(np.float64)
        each, rows = sizes.mean(1), sizes.mean(0)
        half = math.nan
        if len(each) > 1:
            half = float(t.ppf(0.975, len(each) - 1) * each.std(ddof=1) / math.sqrt(len(each)))
        mean = float(each.mean())
        few, many = np.quantile(rows, [0.05, 0.95])
        return cls(mean, max(0.0, mean - half), mean + half, float(few), float(many))

    @property
    def interval(self) -> str:
        """The interval in words; that there is none, of one replicate."""
        if math.isnan(self.upper):
            return "one replicate: no interval"
        return f"95 % interval over replicates {self.lower:.1f} – {self.upper:.1f}"


@dataclass(frozen=True, eq=False)
class FoundRows:
    """Everything that was found.

    Args:
        source: the rows.
        given: how they were named.
        plan: how the explainer was fitted.
        result: the fit.
        posterior: the masks of held-out rows.
        asked: the masks of the rows that were asked for, or None.
        ranking: of images the entries, of :func:`lexppl.explanation.selection_table`; of texts the
            words.
        rows: single rows, step by step.
        judgement: held-out scores.
        warnings: what the reader should mind.
        command: the words that were typed.
        draws: mask draws a row.
        device: where it ran.
        numbers: the rows of the posterior, and of `asked`.
    """

    source: DividedRows
    given: str
    plan: FitPlan
    result: FitResult
    posterior: Posterior
    asked: Posterior | None
    ranking: pd.DataFrame
    rows: tuple[ExplainedRow, ...]
    judgement: Judgement
    warnings: tuple[str, ...]
    command: tuple[str, ...]
    draws: int
    device: str
    numbers: tuple[list[int], list[int]]

    @cached_property
    def kind(self) -> ImportanceKind:
        """What the masks say of an entry."""
        return kind_of(self.posterior)

    @cached_property
    def size(self) -> KeptSize:
        """How many entries a row keeps."""
        return KeptSize.of(self.posterior)

    @property
    def hidden_by(self) -> str:
        """What hidden entries are replaced with, in words."""
        if not METHODS[self.plan.method].takes("imputer"):
            return "the method's own"
        name = str(self.plan.imputer)
        known = OF_WORDS if self.source.are_texts else image_imputers()
        return f"{name}: {known[name]}"

    @property
    def distribution(self) -> str:
        """What the explainer does with a row's entries, in words."""
        plan, data = self.plan, self.source.data
        if self.kind is not PROBABILITY:
            return {
                SHARE: f"gives each of the {data.entries} of a row a share of the importance",
                STRENGTH: f"lets each of the {data.entries} of a row through in part",
                ATTRIBUTION: f"gives each of the {data.entries} of a row a contribution",
            }[self.kind]
        if plan.k is not None:
            return f"keeps exactly {plan.k} of the {data.n_entries} {data.entries} of each row"
        if plan.penalty is None:
            return f"keeps some of the {data.entries} of each row"
        return f"keeps as many {data.entries} as are worth {plan.penalty:.3g} nats each"

    def summary(self) -> list[str]:
        """What was done, in three lines."""
        source, data, plan = self.source, self.source.data, self.plan
        names = ", ".join(data.class_names[:6])
        if len(data.class_names) > 6:
            names += f" … {len(data.class_names)} classes"
        valid = 0 if source.valid is None else len(source.valid)
        parts = (
            f"{len(source.train)} {data.rows}s to fit on, {valid} to choose the best epoch on, "
            f"{len(source.test)} held out"
        )
        imputed = METHODS[plan.method].takes("imputer")
        hidden = f"{plan.imputer} imputation; " if imputed else ""
        return [
            f"{data.name}: {data.shape}; {data.n_entries} {data.entries}, target "
            f"{data.target_name!r} ({names})",
            parts + (f"; {data.left_out}" if data.left_out else ""),
            f"{plan.method}: {self.distribution}; {hidden}"
            f"{counted(plan.replicates, 'replicate')} of {counted(plan.epochs, 'epoch')}; seed "
            f"{plan.seed}",
        ]

    def written(self) -> list[str]:
        """Names of what is written, the report first."""
        rows = ["rows.csv"] if self.rows else []
        texts = ["vocabulary.json", "texts.json"] if self.source.are_texts else []
        return ["report.html", "importance.csv", *rows, "posterior.nc", "explainer/", *texts]


MOST_CLASSES = 12
"""Classes that a page shows."""


@dataclass(frozen=True)
class RowGroup:
    """Rows under a heading, by their places."""

    heading: str
    places: tuple[int, ...]


def shown_rows(outcomes: Sequence[RowOutcome], per_class: int) -> list[RowGroup]:
    """Rows of each class, some that are predicted right and some that are predicted wrong.

    Of those that are right an even choice, of those that are wrong the ones that are so most
    surely. Where no labels are known, rows of each label that is predicted; of responses, rows of
    all.

    Args:
        outcomes: of all rows.
        per_class: how many of a class are right, and how many are wrong.

    Example:
        >>> rows = [RowOutcome("a", "a", 0.9), RowOutcome("a", "b", 0.6), RowOutcome("a", "b", 0.8)]
        >>> shown_rows(rows, 1)
        [RowGroup(heading='a: 1 of 3 right', places=(0, 2))]
    """
    if all(outcome.right is None for outcome in outcomes):
        labels = sorted({o.predicted for o in outcomes if o.predicted and o.probability >= 0.0})
        if not labels:
            return [RowGroup("Some rows", _even(range(len(outcomes)), 2 * per_class))]
        found = []
        for label in labels[:MOST_CLASSES]:
            own = [i for i, outcome in enumerate(outcomes) if outcome.predicted == label]
            found.append(RowGroup(f"{label} is predicted", _even(own, per_class)))
        return found
    classes = sorted({o.observed for o in outcomes if o.observed is not None})
    groups = []
    for label in classes[:MOST_CLASSES]:
        own = [i for i, outcome in enumerate(outcomes) if outcome.observed == label]
        right = [i for i in own if outcomes[i].right]
        wrong = sorted(set(own) - set(right), key=lambda i: -outcomes[i].probability)
        heading = f"{label}: {len(right)} of {len(own)} right"
        groups.append(RowGroup(heading, (*_even(right, per_class), *wrong[:per_class])))
    return groups


def _even(places: Sequence[int], count: int) -> tuple[int, ...]:
    """An even choice of some of them."""
    chosen = np.unique(np.linspace(0, len(places) - 1, min(count, len(places))).round())
    return tuple(places[int(i)] for i in chosen)
