"""Which of two fits says more of validation rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from lexppl.evaluation.mean_errors import more_by_an_error
from lexppl.evaluation.prediction import predictive_log_likelihood
from lexppl.inference import FitResult
from lexppl.tabular.encoded_rows import EncodedRows

MASKS = 50


def says_more(other: FitResult, one: FitResult, rows: EncodedRows) -> tuple[bool, float, float]:
    """Whether another fit says more of validation rows, by more than one standard error.

    The error is of the rows' differences, of the mean over replicates each; a bootstrap's fits do
    not count.

    Args:
        other: what may take the place of the first.
        one: the first.
        rows: those of the fits, with validation rows, each of which counts as often as it weighs.

    Returns:
        whether, and the mean log-likelihood of the other and of the first, in nats a row.
    """
    valid: Any = rows.valid
    weights = None if rows.weights is None else rows.weights[1]
    count = None if weights is None else weights.cpu().double().numpy()
    mine, first = (
        predictive_log_likelihood(fit, *valid, masks=MASKS, seed=one.seed)
        .mean(0)
        .double()
        .cpu()
        .numpy()
        for fit in (other, one)
    )
    said, before = (float(np.average(each, weights=count)) for each in (mine, first))
    return more_by_an_error(mine - first, count), said, before
