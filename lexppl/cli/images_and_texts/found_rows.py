"""Everything that `lexppl explain` has found of images or texts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from scipy.stats import t

from lexppl.arviz_compatibility import Posterior
from lexppl.choices.imputers import OF_WORDS, image_imputers
from lexppl.choices.methods import METHODS
from lexppl.cli.images_and_texts.divided_rows import DividedRows
from lexppl.cli.judged.closer_look import ExplainedRow
from lexppl.cli.judged.judging import Judgement
from lexppl.explanation.reading.masks import (
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
