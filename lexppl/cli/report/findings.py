"""Everything that `lexppl explain` has found."""

from dataclasses import dataclass, field
from functools import cached_property

import pandas as pd

from lexppl.arviz_compatibility import Posterior
from lexppl.choices.regimes import Regime
from lexppl.choices.settings import NETWORK
from lexppl.cli.judged.closer_look import CloserLook
from lexppl.cli.judged.encoded_choice import EncodedChoice
from lexppl.cli.judged.gains import JudgedGains
from lexppl.cli.judged.judging import Judgement
from lexppl.cli.judged.settings import Settings
from lexppl.cli.options.plan_options import law_of
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
        calls: what the black box was sent, in words, or None.
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
    calls: str | None
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
