"""λ from the data: a path of penalties fitted at once, and the one that its plateau says."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pandas as pd
from torch import Tensor

from lexppl.argument_checks import finite_float, int_at_least
from lexppl.evaluation.mean_errors import mean_errors, more_by_an_error
from lexppl.evaluation.plateau import plateau, slopes
from lexppl.evaluation.prediction import predictive_log_likelihood
from lexppl.explanation import explain, mask_means
from lexppl.inference import Checkpoints, CollapseWarning, FitResult, entropy_unit, fit
from lexppl.inference.training.watched.collapse import report_collapse

PATH = (0.005, 0.01, 0.02, 0.04, 0.08)
"""λ of the default path, in units of :func:`lexppl.inference.entropy_unit`."""

FURTHER = (0.25, 0.5)
"""Of the smallest λ of a path, those that are tried below it."""

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
        fitted: all replicates of the λ that were asked for, R of each, λ by λ.
        entries: G.
        index: the place of the chosen λ.
        further: the same of the λ that were tried below these, the lowest ones first.
    """

    table: pd.DataFrame
    fitted: FitResult
    entries: int
    index: int
    further: tuple[FitResult, ...] = ()

    @property
    def fits(self) -> tuple[FitResult, ...]:
        """All fits, the lowest λ first."""
        return (*self.further, self.fitted)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C has cut one of them short, or their judgement."""
        return any(fitted.interrupted for fitted in self.fits)

    @property
    def replicates(self) -> int:
        """R of each λ."""
        return sum(fitted.replicates for fitted in self.fits) // len(self.table)

    @property
    def penalty(self) -> float:
        """The chosen λ."""
        return float(self.table["penalty"].iloc[self.index])

    def at(self, index: int) -> FitResult:
        """The fit at one λ of the path, by its place."""
        each = self.replicates
        place = range(len(self.table))[index] * each
        for fitted in self.fits:
            if place < fitted.replicates:
                break
            place -= fitted.replicates
        return fitted.subset(range(place, place + each))

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
    further: int = 0,
    **settings: Any,
) -> PenaltyPath:
    """Fit a path of penalties as replicates of one fit, and choose one of them.

    Each λ has R replicates, all of them trained at once, and those of the chosen λ are there. A
    collapse is warned of where it is one of the chosen λ. A path that is interrupted, or whose
    judgement is, is judged on a few of the rows and says so (`interrupted`).

    Where the smallest λ is the one that is chosen, nothing is known of smaller ones: a quarter and
    half of it are then fitted too, and the choice is made again of all of them, up to `further`
    times, and as long as the smallest is chosen and predicts better than the smallest before, by
    more than the standard error of the difference over the rows in pairs. A choice inside the path
    stays what it is.

    Args:
        build: from λ to what `fit` takes: a program or a system, alike but for λ.
        train: rows, as `fit` takes them.
        valid: tensors x and y of the rows on which the best epochs are chosen, and the λ.
        penalties: the path, rising, in nats for each entry kept; if None .005, .01, .02, .04 and
            .08 units, :func:`lexppl.inference.entropy_unit` of the validation rows' y.
        replicates: R of each λ.
        rule: :func:`plateau`, or a function called as it is.
        masks: L of :func:`lexppl.evaluation.predictive_log_likelihood`.
        further: how often the path may go on below; 0 to try the penalties alone.
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
    further = int_at_least("further", further, 0)
    samples = settings.get("sample_weight")
    weights = np.asarray(samples[1]) if isinstance(samples, tuple) else None

    def fitted_and_judged(some: list[float], place: int) -> tuple[FitResult, _Judged]:
        models = [build(penalty) for penalty in some for _ in range(replicates)]
        own = dict(settings)
        if place and (where := settings.get("checkpoint")) is not None:
            own["checkpoint"] = Checkpoints.of(where).below(f"below-{place}")
        with warnings.catch_warnings():
            # At the ends of a path a collapse is as it should be.
            warnings.simplefilter("ignore", CollapseWarning)
            fitted = fit(models, train, valid=valid, **own)
        if fitted.interrupted and len(fitted.history) == 0:
            raise KeyboardInterrupt
        try:
            few = HASTY_ROWS if fitted.interrupted else None
            return fitted, _judged(fitted, some, *_some(valid, weights, few), masks)
        except KeyboardInterrupt:
            fitted.interrupted = True
            return fitted, _judged(fitted, some, *_some(valid, weights, HASTY_ROWS), masks)

    fitted, judged = fitted_and_judged(path, 0)
    fits: tuple[FitResult, ...] = ()
    while True:
        table = judged.table()
        sizes, scores, errors = (table[n].tolist() for n in ("size", "log_likelihood", "error"))
        index = rule(judged.penalties, sizes, scores, errors, judged.entries)
        pays = len(fits) == 0 or judged.pays(len(FURTHER))
        if index > 0 or len(fits) == further or not pays or fitted.interrupted:
            break
        try:
            lower = [share * judged.penalties[0] for share in FURTHER]
            one, below_it = fitted_and_judged(lower, len(fits) + 1)
        except KeyboardInterrupt:
            fitted.interrupted = True
            break
        if one.interrupted:
            # What is there has had its whole schedule, and is the result.
            fitted.interrupted = True
            break
        fits, judged = (one, *fits), below_it.before(judged)
    table["chosen"] = np.arange(len(table)) == index
    found = PenaltyPath(table, fitted, judged.entries, index, fits)
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


@dataclass(frozen=True, eq=False)
class _Judged:
    """What the fits of some λ are worth on the rows.

    Args:
        penalties: P of them, rising.
        by_row: log-likelihoods, the mean over replicates, `(P, N)`.
        sizes: mean number of entries kept, `(P, R)`.
        weights: how often each row counts, `(N,)`; None for once.
        entries: G.
    """

    penalties: list[float]
    by_row: np.ndarray
    sizes: np.ndarray
    weights: np.ndarray | None
    entries: int

    def before(self, higher: _Judged) -> _Judged:
        """These λ, and the higher ones."""
        return replace(
            self,
            penalties=self.penalties + higher.penalties,
            by_row=np.concatenate([self.by_row, higher.by_row]),
            sizes=np.concatenate([self.sizes, higher.sizes]),
        )

    def pays(self, place: int) -> bool:
        """Whether the smallest λ predicts better than that at a place, by more than one error."""
        return more_by_an_error(self.by_row[0] - self.by_row[place], self.weights)

    def table(self) -> pd.DataFrame:
        """The path's table without the choice."""
        mean = np.average(self.by_row, axis=1, weights=self.weights)
        behind = self.by_row[mean.argmax()] - self.by_row
        return pd.DataFrame(
            {
                "penalty": self.penalties,
                "size": self.sizes.mean(1),
                "size_error": mean_errors(self.sizes),
                "log_likelihood": mean,
                "error": mean_errors(behind, self.weights),
                "slope": slopes(self.penalties, self.sizes.mean(1).tolist()),
            }
        )


def _judged(
    fitted: FitResult,
    path: list[float],
    valid: tuple[Tensor, Tensor],
    weights: np.ndarray | None,
    masks: int,
) -> _Judged:
    """What the fits of a path are worth on some rows."""
    x, y = valid
    seed = fitted.seed
    shape = (len(path), fitted.replicates // len(path), len(x))
    likelihoods = predictive_log_likelihood(fitted, x, y, masks=masks, seed=seed).double()
    by_row = likelihoods.reshape(shape).mean(1).cpu().numpy()
    kept = mask_means(explain(fitted, x, draws=1, seed=seed))
    sizes = np.average(kept.values.sum(-1), axis=-1, weights=weights).reshape(shape[:2])
    return _Judged(path, by_row, sizes, weights, kept.shape[-1])
