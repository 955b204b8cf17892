"""Whether the choice of features encodes the answer: the encode-meter of a table's explainer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lexppl.choices.methods import METHODS
from lexppl.evaluation.encode_meter import LEAST, EncodeMeter, encode_meter
from lexppl.evaluation.prediction import LEAST_RARE, base_density, base_frequencies, rare_rows
from lexppl.explanation.explain import explanation_tree
from lexppl.explanation.reading.masks import PROBABILITY, kind_of, mask_means, masks_of
from lexppl.models import Grouping
from lexppl.report.results.gains import FittedTable
from lexppl.report.results.scores import folds_of_judged
from lexppl.tabular.encoded_rows import markers_in

QUESTION = "Does the choice of features encode the answer?"
LEAST_ROWS, MOST_ROWS = 200, 2000
"""Fewest held-out rows, below which an encoding choice is missed more often than found, and most
that are read."""
FOLDS, FOLDS_OF_MANY, MANY_ROWS = 8, 4, 1000
"""Fewer leave the networks of few rows too few to learn from: in four, a switch's honest masks
seemed to encode .01 nats of 400 rows, in eight none. Of as many rows as the third four are
enough."""
MATTERS = 0.05  # Nats a row up to which what may have been missed is called no sign
FEW_ROWS_BIAS = 10.0
"""Nats over the number of rows by which networks of few rows may find too much: of a switch's
honest masks up to .03 of 400 rows in four folds, and 0 of 10,000."""


@dataclass(frozen=True, eq=False)
class EncodedChoice:
    """What the choice of features says of y beyond their values.

    Args:
        meter: of held-out rows; None where it was not measured.
        rows: how many there are.
        base: mean `log p(y)` by the base rate.
        predicted: what is predicted, in words.
        imputer: what replaced hidden features, or None of the method's own.
        rare: rows without the commonest label; None of responses.
    """

    meter: EncodeMeter | None = None
    rows: int = 0
    base: float = 0.0
    predicted: str = ""
    imputer: str | None = None
    rare: int | None = None

    @property
    def alarm(self) -> bool:
        """Whether the choice encodes y, by more than the bias of few rows."""
        meter = self.meter
        return meter is not None and meter.tells and meter.value > LEAST + FEW_ROWS_BIAS / self.rows

    def answer(self) -> str | None:
        """Yes, no sign of it, or too few rows, in a sentence or two; None if not measured."""
        meter, rows = self.meter, f"{self.rows} held-out rows of one fit"
        if meter is None:
            if 0 < self.rows < LEAST_ROWS:
                return f"Too few rows to say: {rows}, and it takes {LEAST_ROWS}."
            if self.rare is not None and self.rare < LEAST_RARE:
                return (
                    f"Too few rows to say: of {rows} {self.rare} have another label than the "
                    f"commonest, and it takes {LEAST_RARE}."
                )
            return None
        span = f"{meter.value:.3f} nats a row (95 % interval {meter.lower:.3f} to {meter.upper:.3f}"
        if self.alarm:
            both = meter.kept_and_chosen - self.base
            of = f", of the {both:.3f} that values and choice tell together" * (both > meter.value)
            return (
                f"Yes: that a feature was kept, whatever it holds, encodes {span}; {rows}) of "
                f"{self.predicted}{of}. The prediction rests on more than the values of what was "
                f"kept; {self._advice()}."
            )
        if meter.tells or meter.upper > MATTERS:
            return (
                f"Too few rows to say: which features are kept may encode up to {meter.upper:.3f} "
                f"nats a row of {self.predicted} beyond their values, or nothing ({rows})."
            )
        return (
            f"No sign of it: which features are kept encodes {span}; {rows}) of {self.predicted} "
            "beyond their values."
        )

    def warnings(self) -> list[str]:
        """A list of one warning where the choice of features encodes y, else an empty list."""
        if not self.alarm or self.meter is None:
            return []
        return [
            "the choice of features encodes the answer: "
            f"{self.meter.value:.3f} nats a row of {self.predicted} that the values of what is "
            f"kept do not; {self._advice()}"
        ]

    def _advice(self) -> str:
        if self.imputer == "constant":
            return (
                "hidden features are a constant here, which shows which they are: give another "
                "--imputer, such as marginal"
            )
        if self.imputer is None:
            return "try --method lex, which draws hidden features"
        return "try another --imputer, or --k"


def encoded_choice(fitted: FittedTable) -> EncodedChoice:
    """Measure held-out rows, of the replicate with the best validation loss: a mixture may hide
    what one encodes. Not measured: masks that do not select, missing values, one label.

    Raises:
        FloatingPointError: a loss that is no number.
    """
    source, result = fitted.source, fitted.result
    if markers_in(source.data.encoding):
        return EncodedChoice()
    folds = folds_of_judged(source)
    rows = torch.arange(len(source.test.y)) if folds is None else folds.rows(result.best).cpu()
    rows = rows[:MOST_ROWS]
    x = source.test.x[rows]
    posterior = explanation_tree(result.subset([result.best]), x, draws=2, seed=fitted.seed)
    masks = masks_of(posterior)[mask_means(posterior).attrs["site"]].values[0, :1]
    if kind_of(posterior) is not PROBABILITY or not np.isin(masks, (0, 1)).all():
        return EncodedChoice()
    targets = fitted.targets(source.test_rows)[rows]
    train_y, y = _labels(fitted.targets(source.train_rows)), _labels(targets)
    if not y.is_floating_point() and len(y.unique()) < 2:
        return EncodedChoice()
    meter, rare = None, rare_rows(y)
    if len(x) >= LEAST_ROWS and (rare is None or rare >= LEAST_RARE):
        grouping = Grouping(source.data.groups, source.data.entry_names).to(x.device)
        drawn = torch.from_numpy(masks).to(x.device)
        parts = FOLDS if len(x) < MANY_ROWS else FOLDS_OF_MANY
        meter = encode_meter(x, y, drawn, grouping=grouping, folds=parts, seed=fitted.seed)
    if y.is_floating_point():
        base = base_density(train_y, y)
    else:
        classes = int(torch.maximum(train_y.max(), y.max())) + 1
        base = base_frequencies(train_y, classes).log()[y]
    plan = fitted.plan
    return EncodedChoice(
        meter=meter,
        rows=len(x),
        base=float(base.mean()),
        predicted=str(source.data.target_name) if y is targets else "what the model says",
        imputer=plan.imputer_name if METHODS[plan.method].takes("imputer") else None,
        rare=rare,
    )


def _labels(targets: Tensor) -> Tensor:
    """Labels or responses; of probabilities the likeliest label."""
    return targets if targets.dim() == 1 else targets.argmax(-1)
