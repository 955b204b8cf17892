"""Certified masks of a table's held-out rows, for `--guarantee`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lexppl.evaluation.certified import certified_masks
from lexppl.evaluation.folds import judged
from lexppl.inference import FitResult
from lexppl.report.results.gains import FittedTable
from lexppl.report.results.scores import folds_at
from lexppl.summary import number_text

ALPHA = 0.1  # Share of draws of hidden values that may change the prediction
WITHIN = 0.5  # Standard deviations of a response within which its prediction stays as it is


@dataclass(frozen=True, eq=False)
class CertifiedRows:
    """Features of each row that are enough for its prediction.

    Args:
        table: by row: its place in the table, the number of features, the certified share of draws
            that leave the prediction as it is (0 where none is), and the features.
        level: of confidence, a row.
        features: of a row.
        within: how far a response may move, in its own units; empty of labels.
    """

    table: pd.DataFrame
    level: float
    features: int
    within: str = ""

    def answer(self) -> str:
        """Sizes and certificate, in two sentences."""
        table, rows = self.table, len(self.table)
        certified = table[table["bound"] > 0]
        what = "the predicted label stays as it is"
        if self.within:
            what = f"the prediction moves by at most {self.within}, half a standard deviation,"
        if certified.empty:
            return (
                f"Of no row of {rows}: even with all {self.features} features it changes by chance."
            )
        sizes = certified["size"]
        return (
            f"{sizes.mean():.1f} of {self.features} features on average, in {len(certified)} of "
            f"{rows} held-out rows. With the others drawn by the imputer {what} in at least "
            f"{100 * (1 - ALPHA):g} of 100 draws; that is certified row by row, at confidence "
            f"{self.level:g} (certified.csv)."
        )


def certified_rows(fitted: FittedTable, count: int, level: float) -> CertifiedRows:
    """Certified masks of the first held-out rows, each by the replicate that holds it out."""
    source = fitted.source
    x, numbers = source.test.x[:count], source.test_rows[:count]
    within, words = None, ""
    if source.data.class_names is None:
        within = WITHIN * float(fitted.targets().std())
        scale = source.target_scale
        words = number_text(within * scale, scale)

    def masks(result: FitResult, x: Tensor, **how: Any) -> Tensor:
        certified = certified_masks(result, x, alpha=ALPHA, level=level, within=within, **how)
        bounds = certified["bound"].expand_dims("bound", -1)
        return torch.from_numpy(np.concatenate([certified["mask"], bounds], -1))

    folds = folds_at(source, numbers)
    masks_and_bound = judged(folds, masks, fitted.result, x, seed=fitted.seed)[0].numpy()
    masks_of_rows, names = masks_and_bound[:, :-1] == 1, np.array(source.data.entry_names)
    columns = {
        "row": numbers,
        "size": masks_of_rows.sum(1),
        "bound": masks_and_bound[:, -1],
        "features": ["; ".join(names[row]) for row in masks_of_rows],
    }
    return CertifiedRows(pd.DataFrame(columns), level, len(names), words)
