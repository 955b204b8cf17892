"""λ from the data: a path of penalties fitted at once, and the one that its plateau says."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd
from torch import Tensor

from lexppl.argument_checks import finite_float, int_at_least
from lexppl.evaluation.plateau import plateau, slopes
from lexppl.evaluation.prediction import predictive_log_likelihood
from lexppl.explanation import explain, mask_means
from lexppl.inference import CollapseWarning, FitResult, entropy_unit, fit
from lexppl.inference.training.watched.collapse import report_collapse

PATH = (0.005, 0.01, 0.02, 0.04, 0.08)
"""λ of the default path, in units of :func:`lexppl.inference.entropy_unit`."""

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
    """What a path of penalties is worth, and which of them was chosen.

    Args:
        table: one row a λ: `penalty`, `size` (mean number of entries kept on validation rows),
            `size_error` (its standard error over the replicates), `log_likelihood` (mean over
            validation rows and replicates, in nats), `error` (standard error of its distance to
            the best one, over the rows in pairs; 0 for that one), `slope` (|d size / d log λ|),
            `chosen`.
        fitted: all replicates, R of each λ, λ by λ.
        entries: G.
        index: the place of the chosen λ.
    """

    table: pd.DataFrame
    fitted: FitResult
    entries: int
    index: int

    @property
    def replicates(self) -> int:
        """R of each λ."""
        return self.fitted.replicates // len(self.table)

    @property
    def penalty(self) -> float:
        """The chosen λ."""
        return float(self.table["penalty"].iloc[self.index])

    def at(self, index: int) -> FitResult:
        """The fit at one λ of the path, by its place."""
        each = self.replicates
        return self.fitted.subset(range(index * each, (index + 1) * each))

    @property
    def result(self) -> FitResult:
        """The fit at the chosen λ."""
        return self.at(self.index)


def penalty_path(
    build: Callable[[float], Any],
    train: Any,
    *,
    valid: tuple[Tensor, Tensor],
    penalties: Sequence[float] | None = None,
    replicates: int = 1,
    rule: PathRule = plateau,
    masks: int = 50,
    **settings: Any,
) -> PenaltyPath:
    """Fit a path of penalties as replicates of one fit, and choose one of them.

    Each λ has R replicates, all of them trained at once, and those of the chosen λ are there. A
    collapse is warned of where it is one of the chosen λ. A path that is interrupted, or whose
    judgement is, is judged on a few of the rows and says so (`fitted.interrupted`).

    Args:
        build: from λ to what `fit` takes: a program or a system, alike but for λ.
        train: rows, as `fit` takes them.
        valid: tensors x and y of the rows on which the best epochs are chosen, and the λ.
        penalties: the path, rising, in nats for each entry kept; if None .005, .01, .02, .04 and
            .08 units, :func:`lexppl.inference.entropy_unit` of the validation rows' y.
        replicates: R of each λ.
        rule: :func:`plateau`, or a function called as it is.
        masks: L of :func:`lexppl.evaluation.predictive_log_likelihood`.
        settings: of `fit`. Of a `sample_weight` the validation rows' part weighs sizes,
            log-likelihoods and their errors.

    Raises:
        ValueError, TypeError: penalties that do not rise, fewer than two; as `fit`.
        KeyboardInterrupt: interrupted before the first epoch was over.

    Example:
        >>> import torch
        >>> from lexppl.systems import lex
        >>> x = torch.randn(400, 3, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> def build(penalty):
        ...     return lex(3, classes=2, penalty=penalty, hidden=(8,), predictor_hidden=(8,))
        >>> path = penalty_path(build, (x[:300], y[:300]), valid=(x[300:], y[300:]),
        ...     epochs=40, batch_size=100, learning_rate=1e-2, progress=False)
        >>> path.penalty in path.table["penalty"].values, path.result.replicates
        (True, 1)
    """
    replicates = int_at_least("replicates", replicates)
    if penalties is None:
        unit = entropy_unit(valid[1])
        penalties = [share * unit for share in PATH]
    # A path that cannot be judged should fail before the fit, not after it.
    slopes(penalties, [0.0] * len(penalties))
    path = [finite_float("a penalty of a path", penalty) for penalty in penalties]
    models = [build(penalty) for penalty in path for _ in range(replicates)]
    with warnings.catch_warnings():
        # At the ends of a path a collapse is as it should be.
        warnings.simplefilter("ignore", CollapseWarning)
        fitted = fit(models, train, valid=valid, **settings)
    if fitted.interrupted and len(fitted.history) == 0:
        raise KeyboardInterrupt
    samples = settings.get("sample_weight")
    weights = np.asarray(samples[1]) if isinstance(samples, tuple) else None
    try:
        few = HASTY_ROWS if fitted.interrupted else None
        table, entries = _judged(fitted, path, *_some(valid, weights, few), masks)
    except KeyboardInterrupt:
        fitted.interrupted = True
        table, entries = _judged(fitted, path, *_some(valid, weights, HASTY_ROWS), masks)
    sizes, scores, errors = (table[n].tolist() for n in ("size", "log_likelihood", "error"))
    index = rule(path, sizes, scores, errors, entries)
    table["chosen"] = np.arange(len(path)) == index
    found = PenaltyPath(table, fitted, entries, index)
    report_collapse(found.result.collapse)
    return found


def _some(
    valid: tuple[Tensor, Tensor], weights: np.ndarray | None, most: int | None
) -> tuple[tuple[Tensor, Tensor], np.ndarray | None]:
    """All rows and their weights, or about so many, on which a path is judged in a moment."""
    if most is None:
        return valid, weights
    stride = max(1, len(valid[0]) // most)
    few = valid[0][::stride], valid[1][::stride]
    return few, None if weights is None else weights[::stride]


def _judged(
    fitted: FitResult,
    path: list[float],
    valid: tuple[Tensor, Tensor],
    weights: np.ndarray | None,
    masks: int,
) -> tuple[pd.DataFrame, int]:
    """The path's table without the choice, and G."""
    x, y = valid
    seed = fitted.seed
    shape = (len(path), fitted.replicates // len(path), len(x))
    likelihoods = predictive_log_likelihood(fitted, x, y, masks=masks, seed=seed).double()
    by_row = likelihoods.reshape(shape).mean(1).cpu().numpy()
    kept = mask_means(explain(fitted, x, draws=1, seed=seed))
    sizes = np.average(kept.values.sum(-1), axis=-1, weights=weights).reshape(shape[:2])
    mean = np.average(by_row, axis=1, weights=weights)
    behind = by_row[mean.argmax()] - by_row
    return pd.DataFrame(
        {
            "penalty": path,
            "size": sizes.mean(1),
            "size_error": _error(sizes),
            "log_likelihood": mean,
            "error": _error(behind, weights),
            "slope": slopes(path, sizes.mean(1).tolist()),
        }
    ), kept.shape[-1]


def _error(values: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Standard errors of the means of rows, which are as many as there are whatever they weigh; NaN
    of one value."""
    count = values.shape[1]
    if count < 2:
        return np.full(len(values), math.nan)
    if weights is None:
        error: np.ndarray = values.std(1, ddof=1) / math.sqrt(count)
        return error
    far = values - np.average(values, axis=1, weights=weights)[:, None]
    weighted: np.ndarray = np.sqrt(((weights * far) ** 2).sum(1) * count / (count - 1))
    return weighted / weights.sum()
