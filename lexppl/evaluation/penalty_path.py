"""λ from the data: what each λ of one fit is worth on other rows, and the one at the plateau."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lexppl.argument_checks import finite_float
from lexppl.evaluation.folds import Folds
from lexppl.evaluation.mean_errors import mean_errors
from lexppl.evaluation.plateau import plateau, slopes
from lexppl.evaluation.prediction import predictive_log_likelihood
from lexppl.explanation import explain, mask_means
from lexppl.inference import FitResult

HASTY_ROWS = 200
"""Most rows on which what Ctrl-C has interrupted is judged, so that it is there in seconds: of the
validation rows a path, of the held-out ones an explainer."""


class PathRule(Protocol):
    """From a path to the place of the chosen λ: :func:`lexppl.evaluation.plateau`, or one's own."""

    def __call__(
        self,
        penalties: Sequence[float],
        sizes: Sequence[float],
        scores: Sequence[float],
        errors: Sequence[float],
        entries: int,
    ) -> int: ...


@dataclass(frozen=True, eq=False)
class PenaltyPath:
    """What the penalties of a fit are worth, and which of them was chosen.

    Args:
        table: one row a λ: `penalty`, `size` (mean number of entries kept), `size_error` (its
            standard error over the replicates), `log_likelihood` (mean over rows and replicates, in
            nats), `error` (standard error of its distance to the best one, over the rows in pairs;
            0 for that one), `slope` (|d size / d log λ|), `chosen`.
        fitted: the fit of all of them.
        index: the place of the chosen λ.
    """

    table: pd.DataFrame
    fitted: FitResult
    index: int

    @property
    def penalty(self) -> float:
        """The chosen λ."""
        return float(self.table["penalty"].iloc[self.index])

    @property
    def result(self) -> FitResult:
        """The fit at the chosen λ."""
        return self.fitted.at(self.penalty)


def penalty_path(
    result: FitResult,
    x: Tensor,
    y: Tensor,
    *,
    penalties: Sequence[float] | None = None,
    rule: PathRule = plateau,
    masks: int = 50,
    sample_weight: Any = None,
    folds: Folds | None = None,
) -> PenaltyPath:
    """The likelihood of rows and the number of entries kept at each λ of a fit, and a λ by a rule.

    Args:
        result: a fit for a range of λ, as `fit(lex(…, penalty=(0.005, 0.16)), …)`.
        x, y: rows that it has not learned from, `(N, *event)` and `(N,)` or `(N, C)`.
        penalties: rising, in nats for each entry kept; if None from the lower to the upper end of
            the range, each twice the one before, or a little less.
        rule: :func:`plateau`, or a function called as it is.
        masks: L of :func:`lexppl.evaluation.predictive_log_likelihood`.
        sample_weight: how often each row stands in the sample, `(N,)`; None for once.
        folds: of rows from which all replicates but one each have learned; None of rows that none
            has learned from.

    Raises:
        ValueError, TypeError: a fit of one λ; penalties that do not rise, fewer than two, outside
            of the range; rows unlike those of the fit.

    Example:
        >>> import torch
        >>> from lexppl.inference import fit
        >>> from lexppl.systems import lex
        >>> x = torch.randn(400, 3, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> every = lex(3, classes=2, penalty=(0.005, 0.08), hidden=(8,), predictor_hidden=(8,))
        >>> result = fit(every, (x[:300], y[:300]), valid=None, epochs=40, batch_size=100,
        ...     learning_rate=1e-2, progress=False)
        >>> path = penalty_path(result, x[300:], y[300:])
        >>> [round(penalty, 3) for penalty in path.table["penalty"]]
        [0.005, 0.01, 0.02, 0.04, 0.08]
        >>> path.penalty == path.result.model.selector.penalty
        True
    """
    if penalties is None:
        low, high = result.penalty_range
        count = max(2, math.ceil(math.log2(high / low) - 1e-6) + 1)
        penalties = np.geomspace(low, high, count).tolist()
    path = [finite_float("a penalty of a path", penalty) for penalty in penalties]
    # What cannot be judged fails here, before anything is computed.
    slopes(path, [0.0] * len(path))
    weights = None if sample_weight is None else np.asarray(sample_weight)
    sizes, by_row, entries = [], [], 1
    seed = result.seed
    for penalty in path:
        fitted = result.at(penalty)
        each = [(fitted, torch.arange(len(x)))] if folds is None else folds.each(fitted)
        own, said = [], np.empty(len(x))
        for some, places in each:
            likelihoods = predictive_log_likelihood(
                some, x[places], y[places], masks=masks, seed=seed
            )
            said[places.cpu()] = likelihoods.double().mean(0).cpu().numpy()
            kept = mask_means(explain(some, x[places], draws=0, seed=seed))
            counts = None if weights is None else weights[places.cpu()]
            own.append(np.average(kept.values.sum(-1), axis=-1, weights=counts))
            entries = kept.shape[-1]
        by_row.append(said)
        sizes.append(np.concatenate(own))
    mean = np.average(by_row, axis=1, weights=weights)
    behind = by_row[mean.argmax()] - np.stack(by_row)
    size = np.stack(sizes).mean(1)
    table = pd.DataFrame(
        {
            "penalty": path,
            "size": size,
            "size_error": mean_errors(np.stack(sizes)),
            "log_likelihood": mean,
            "error": mean_errors(behind, weights),
            "slope": slopes(path, size.tolist()),
        }
    )
    means, errors = table["log_likelihood"].tolist(), table["error"].tolist()
    index = rule(path, size.tolist(), means, errors, entries)
    table["chosen"] = np.arange(len(table)) == index
    return PenaltyPath(table, result, index)
