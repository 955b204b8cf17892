"""λ from the data: what each λ of one fit is worth on other rows, and the one at the plateau."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexppl.argument_checks import finite_float, int_at_least
from lexppl.evaluation.folds import Folds
from lexppl.evaluation.prediction import mean_errors, predictive_log_likelihood
from lexppl.explanation import mask_means
from lexppl.explanation.explain import explanation_tree
from lexppl.inference import FitResult
from lexppl.inference.training.result import with_penalty

HASTY_ROWS = 200
"""Most rows on which what Ctrl-C has interrupted is judged, so that it is there in seconds: of the
validation rows a path, of the held-out ones an explainer."""


ROUNDING = 1e-9  # A score on the limit is within it, however the limit was rounded
WITHIN = 2.0  # Standard errors below the best score that a candidate may be
COLLAPSED = 0.5  # Entries from none, or from all, at which a selection is one no more

PathRule = Callable[[Sequence[float], Sequence[float], Sequence[float], Sequence[float], int], int]
"""From penalties, sizes, scores, errors and the number of entries to the place of the chosen λ."""


@dataclass(frozen=True, eq=False)
class PenaltyPath:
    """What the penalties of a fit are worth, and which of them was chosen.

    Args:
        table: one row a λ: `penalty`, `size` (mean number of entries kept), `size_error` (over the
            replicates), `log_likelihood` (mean over rows and replicates, in nats), `error` (of its
            distance to the best one, over the rows in pairs), `slope` (|d size / d log λ|),
            `chosen`.
        fitted: the fit of all of them.
        index: the place of the chosen λ.
        by_row: log-likelihood of each row at each λ, mean over replicates, `(P, N)`.
    """

    table: pd.DataFrame
    fitted: FitResult
    index: int
    by_row: NDArray[np.float64]

    def at(self, index: int) -> PenaltyPath:
        """The same with another λ chosen."""
        chosen = np.arange(len(self.table)) == index
        return replace(self, index=index, table=self.table.assign(chosen=chosen))

    @property
    def penalty(self) -> float:
        """The chosen λ."""
        return float(self.table["penalty"].iloc[self.index])

    @property
    def result(self) -> FitResult:
        """The fit at the chosen λ."""
        return self.fitted.at(self.penalty)


def slopes(penalties: Sequence[float], sizes: Sequence[float]) -> list[float]:
    """Slope of the size in log λ at each λ of a path, `(|s_i − s_{i−1}| + |s_{i+1} − s_i|) /
    (log λ_{i+1} − log λ_{i−1})`, at an end by its one neighbour: a size that falls and rises again
    is no plateau."""
    for penalty in penalties:
        finite_float("a penalty of a path", penalty, above=0.0)
    steps = [math.log(after) - math.log(before) for before, after in pairwise(penalties)]
    if len(penalties) != len(sizes) or len(sizes) < 2 or min(steps) <= 0.0:
        raise ValueError(
            "penalties must rise from one to the next and be as many as sizes, at least 2; they "
            f"are {list(penalties)} with {len(sizes)} sizes"
        )
    falls = [abs(after - before) for before, after in pairwise(sizes)]
    return [
        sum(falls[max(place - 1, 0) : place + 1]) / sum(steps[max(place - 1, 0) : place + 1])
        for place in range(len(sizes))
    ]


def plateau(
    penalties: Sequence[float],
    sizes: Sequence[float],
    scores: Sequence[float],
    errors: Sequence[float],
    entries: int,
    *,
    within: float = WITHIN,
    usual: float | None = None,
) -> int:
    """The place of the plateau of a path: the λ at which the number of entries kept changes least
    with λ.

    What matters is kept over a range of λ: there the size stands still, as it also does where
    nothing is left, or nothing has gone yet. Candidates are therefore the λ

    1. whose score is at most `within` standard errors below the best of the path,
    2. that keep more than half an entry, and less than all but half an entry, and
    3. that are no end of the path, where the slope on the other side is not known;

    where none is all three, those of 1 and 2; where none is both, those of 1. Of equal slopes the
    larger λ, which keeps fewer. A `usual` λ is kept, if it is a candidate of 1 and 2, and else the
    candidate of 1 and 2 next to it. One that keeps half an entry or less is kept too, where no
    other predicts better than it by more than one standard error.

    Args:
        penalties: λ, rising, above 0.
        sizes: mean number of entries that each keeps, on validation rows.
        scores: held-out log-likelihood of each, in nats a row.
        errors: standard error of each score's distance to the best one, over the rows in pairs if
            they are the same. NaN, as of one row, is no bound, and the score must be the best.
        usual: a λ that is kept where nothing speaks against it; None, or one not of the path, for
            none.

    Raises:
        ValueError: other lengths, numbers that are not finite, sizes outside 0 … G, penalties that
            do not rise, errors below 0.

    Example:
        >>> sizes, scores = [7.0, 4.2, 4.0, 3.7, 0.1, 0.1], [-0.50, -0.49, -0.49, -0.50, -0.7, -0.7]
        >>> plateau([0.005, 0.01, 0.02, 0.04, 0.08, 0.16], sizes, scores, [0.01] * 6, entries=11)
        2
    """
    entries = int_at_least("entries", entries)
    within = finite_float("within", within, least=0.0)
    best = best_validation(sizes, scores)
    slope = slopes(penalties, sizes)
    most = entries * (1.0 + ROUNDING)
    if len(errors) != len(sizes) or any(error < 0.0 for error in errors) or max(sizes) > most:
        raise ValueError(
            f"errors must be one for each of {len(sizes)} sizes and not negative, and sizes at "
            f"most the {entries} entries; they are {list(errors)} and {list(sizes)}"
        )

    def behind(place: int, margin: float) -> bool:
        return scores[place] < scores[best] - ROUNDING - margin

    # An error that is NaN shows of nothing that it is as good as the best.
    margins = [0.0 if math.isnan(error) else error for error in errors]
    good = [p for p, margin in enumerate(margins) if not behind(p, within * margin)]
    selecting = [p for p in good if COLLAPSED < sizes[p] < entries - COLLAPSED]
    if usual is not None and any(math.isclose(penalty, usual) for penalty in penalties):
        away = [round(abs(math.log(penalty / usual)), 9) for penalty in penalties]
        idle = [p for p in good if sizes[p] <= COLLAPSED and math.isclose(penalties[p], usual)]
        near = selecting + [p for p in idle if not (behind(p, errors[p]) or math.isnan(errors[p]))]
        if near:
            # Of two as far away the larger λ, which keeps fewer.
            return min(near, key=lambda place: (away[place], -penalties[place]))
    inner = [place for place in selecting if 0 < place < len(sizes) - 1]
    return min(
        inner or selecting or good, key=lambda place: (round(slope[place], 9), -penalties[place])
    )


def best_validation(sizes: Sequence[float], scores: Sequence[float]) -> int:
    """The place of the best score on validation rows: of equal scores the fewest features, of equal
    sizes the first.

    Args:
        sizes: mean number of features that each candidate keeps.

    Raises:
        ValueError: no candidates, other lengths, numbers that are not finite, sizes below 0.

    Source: Jethani et al. 2021 (REAL-X), the choice of λ on the synthetic sets.

    Example:
        >>> best_validation([9.0, 2.0, 5.0], [0.79, 0.70, 0.79])
        2
    """
    finite = all(map(math.isfinite, (*sizes, *scores)))
    if len(sizes) == 0 or len(sizes) != len(scores) or not finite or min(sizes) < 0:
        raise ValueError(
            "sizes, not negative, and scores must be finite and of one length, at least 1; they "
            f"are {list(sizes)} and {list(scores)}"
        )
    return min(range(len(sizes)), key=lambda index: (-scores[index], sizes[index]))


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
        sample_weight: how often each row stands in the sample, `(N,)`; None for once.
        folds: of the rows, each held out by one replicate; None of rows that none has learned from.

    Raises:
        ValueError, TypeError: a fit of one λ; penalties that do not rise, fewer than two, outside
            of the range; rows unlike those of the fit.

    Example:
        >>> from lexppl.inference import fit
        >>> from lexppl.systems import lex
        >>> x = torch.randn(400, 3, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> every = lex(3, classes=2, penalty=(0.005, 0.08), hidden=(8,), predictor_hidden=(8,))
        >>> result = fit(every, (x[:300], y[:300]), valid=None, epochs=10, progress=False)
        >>> penalty_path(result, x[300:], y[300:]).table["penalty"].round(3).tolist()
        [0.005, 0.01, 0.02, 0.04, 0.08]
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
    held_out = [(result, torch.arange(len(x)))] if folds is None else list(folds.each(result))
    for penalty in path:
        fold_sizes, scores = [], np.empty(len(x))
        for of_fold, places in held_out:
            at, part = places.cpu().numpy(), x[places]
            with with_penalty(of_fold.models, penalty):
                likelihoods = predictive_log_likelihood(
                    of_fold, part, y[places], masks=masks, seed=seed
                )
                expected = mask_means(explanation_tree(of_fold, part, draws=0, seed=seed))
            scores[at] = likelihoods.double().mean(0).cpu().numpy()
            counts = None if weights is None else weights[at]
            fold_sizes.append(np.average(expected.values.sum(-1), axis=-1, weights=counts))
            entries = expected.shape[-1]
        by_row.append(scores)
        sizes.append(np.concatenate(fold_sizes))
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
    return PenaltyPath(table, result, index, np.stack(by_row)).at(index)
