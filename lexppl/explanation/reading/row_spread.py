"""The spread of a row's mask means: intervals over replicates or folds, by mask entry."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from lexppl.arviz_compatibility import Posterior
from lexppl.explanation.beside.fold_means import fold_means
from lexppl.explanation.layout.importance_kind import ATTRIBUTION, PROBABILITY, kind_of, mask_means
from lexppl.explanation.layout.mask_groups import masks_of
from lexppl.explanation.reading.ranking import covers_rows, mean_error


@dataclass(frozen=True, eq=False)
class RowSpread:
    """The spread `(N, G)` of some rows' mask means, its label on an axis, and its meaning in a
    sentence."""

    values: NDArray[np.float64]
    label: str
    meaning: str


def row_spread(posterior: Posterior, rows: Any = slice(None)) -> RowSpread:
    """The width of the interval of a row's E[z | x]: of the 95 % t-interval over R replicates, mean
    ± t_{.975, R−1} s / √R, over R folds mean ± t_{.975, R−1} s, cut at 0 and at the largest
    value; of a single fit the standard deviation of a draw, of selections √(p(1 − p))."""
    found = row_interval(posterior, rows)
    if found is None:
        return _of_draws(posterior, mask_means(posterior).values[0, rows].astype(np.float64), rows)
    ends, over = found
    return RowSpread(
        ends[1] - ends[0],
        "width of 95\u00a0% interval",
        f"the width of the 95 % interval of the {kind_of(posterior).label} over {over}",
    )


def row_interval(
    posterior: Posterior, rows: Any = slice(None)
) -> tuple[NDArray[np.float64], str] | None:
    """The interval of :func:`row_spread`, its ends `(2, rows, G)`, and what it is over, or None."""
    means = mask_means(posterior)
    each = means.values[:, rows].astype(np.float64)
    kind = kind_of(posterior)
    of_folds = fold_means(posterior)
    count = len(each if of_folds is None else of_folds)
    if count < 2:
        return None
    if of_folds is not None:
        spread = of_folds.values[:, rows].astype(np.float64).std(0, ddof=1)
        over = f"{count} folds"
    else:
        spread = mean_error(each, covers_rows(posterior))
        over = f"{count} replicates"
    half, middle = stdtrit(count - 1, 0.975) * spread, each.mean(0)
    ends = np.stack([middle - half, middle + half])
    return (ends if kind is ATTRIBUTION else ends.clip(0.0, kind.most)), over


def _of_draws(posterior: Posterior, means: NDArray[np.float64], rows: Any) -> RowSpread:
    """The standard deviation of a draw, of a single fit."""
    label, meaning = "sd of a draw", "the standard deviation of a draw of the mask, of a single fit"
    if kind_of(posterior) is PROBABILITY:
        exact = means.clip(0.0, 1.0)
        return RowSpread(np.sqrt(exact * (1.0 - exact)), label, meaning)
    drawn = masks_of(posterior)[mask_means(posterior).attrs["site"]].values[0][:, rows]
    if len(drawn) < 2:
        return RowSpread(np.full(means.shape, np.nan), label, meaning)
    return RowSpread(drawn.std(0, ddof=1, dtype=np.float64), label, meaning)
