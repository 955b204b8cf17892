"""Which of two fits says more of validation rows."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from lexppl.evaluation.mean_errors import more_by_an_error
from lexppl.evaluation.prediction import predictive_log_likelihood
from lexppl.inference import FitResult

MASKS = 50


def says_more(
    other: FitResult, one: FitResult, valid: tuple[Tensor, Tensor], weights: Tensor | None = None
) -> tuple[bool, float, float]:
    """Whether another fit says more of validation rows, by more than one standard error.

    The error is of the rows' differences, of the mean over replicates each; a bootstrap's fits do
    not count.

    Args:
        other: what may take the place of the first.
        one: the first.
        valid: rows `(N, D)` and their y.
        weights: how often each counts, `(N,)`; once if None.

    Returns:
        whether, and the mean log-likelihood of the other and of the first, in nats a row.
    """
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
