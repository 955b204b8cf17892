"""The fit of a method on encoded rows, with a full predictor where the method explains one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lexppl.data.stratification import stratified_parts
from lexppl.evaluation import fit_predictor
from lexppl.inference import FitResult, Stage, System, fit
from lexppl.inference.contexts import seeded
from lexppl.models import regime_targets
from lexppl.systems import METHODS, Settings, system_for
from lexppl.tabular.fit_plan import FitPlan


@dataclass(frozen=True)
class EncodedRows:
    """Rows for training and validation, as `fit` takes them.

    Args:
        train: x `(N, D)`, and labels or responses `(N,)`, or probabilities `(N, C)`.
        valid: the same, or None.
    """

    train: tuple[Tensor, Tensor]
    valid: tuple[Tensor, Tensor] | None

    def observing(self, predictor: nn.Module) -> EncodedRows:
        """The same rows with what a predictor says of them."""

        def said(part: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            x = part[0]
            return x, regime_targets("self post-hoc", x, predictor=predictor)

        return EncodedRows(said(self.train), None if self.valid is None else said(self.valid))


def divided(
    x: Tensor, y: Tensor, strata: NDArray[Any], share: float | None, seed: int
) -> EncodedRows:
    """Set a share of the rows apart for validation, in the proportions of the classes.

    There are none where the share is None, too small for a row, or would hold one class only.

    Args:
        x: `(N, D)`.
        y: labels or responses `(N,)`, or probabilities `(N, C)`.
        strata: `(N,)`, the class of each row; all equal for responses.
        share: of the rows, in (0, 1), or None.
        seed: of the division.

    Example:
        >>> rows = divided(torch.zeros(10, 2), torch.arange(10) % 2, np.arange(10) % 2, 0.2, 0)
        >>> len(rows.train[0]), len(rows.valid[0])
        (8, 2)
    """
    if share is None:
        return EncodedRows((x, y), None)
    train, valid = (torch.from_numpy(p) for p in stratified_parts(strata, (1 - share, share), seed))
    few = len(valid) == 0 or (not y.is_floating_point() and len(y[valid].unique()) < 2)
    if few or len(train) == 0:
        return EncodedRows((x, y), None)
    return EncodedRows((x[train], y[train]), (x[valid], y[valid]))


def fit_table(
    method: str,
    settings: Settings,
    rows: EncodedRows,
    plan: FitPlan,
    *,
    own_rate: bool,
    replicates: int,
    seed: int,
    verbose: bool,
) -> FitResult:
    """Fit a method of :data:`lexppl.systems.METHODS`.

    A method that explains a model, and is given none, gets a predictor that sees all of x, fitted
    on the same rows to what they observe; what it then observes is that predictor.

    Args:
        method: its name.
        settings: of the method; its `black_box` may be None.
        rows: what it is fitted on.
        plan: how long and how fast.
        own_rate: whether the learning rate was asked for; a method's own optimizer, if it has
            one, then gives way to Adam at that rate.
        replicates: R.
        seed: of everything.
        verbose: show progress bars.

    Raises:
        ValueError, TypeError: settings that the method cannot take.
    """
    if METHODS[method].explains_model and settings.black_box is None:
        full = fit_predictor(
            rows.train,
            valid=rows.valid,
            hidden=plan.predictor_hidden,
            epochs=plan.epochs,
            batch_size=plan.batch_size,
            learning_rate=plan.schedule,
            patience=None,
            seed=seed,
            progress=verbose,
        )
        settings = replace(settings, black_box=full.predictor)
        rows = rows.observing(full.predictor)
    with seeded(seed):
        system = system_for(method, settings)
        if own_rate:
            system = _by_common_optimizer(system)
    return fit(
        system,
        rows.train,
        valid=rows.valid,
        epochs=plan.epochs,
        batch_size=plan.batch_size,
        learning_rate=plan.schedule,
        replicates=replicates,
        seed=seed,
        progress=verbose,
    )


def _by_common_optimizer(system: System) -> System:
    def build() -> list[Stage]:
        return [replace(stage, optimizer=None) for stage in system.build()]

    return System(build, system.published)


def strata_of(labels: Sequence[int] | NDArray[Any], classes: int | None) -> NDArray[np.int64]:
    """The class of each row; one for all where y is a response.

    Example:
        >>> strata_of([0.5, 1.5], None).tolist()
        [0, 0]
    """
    if classes is None:
        return np.zeros(len(labels), dtype=np.int64)
    return np.asarray(labels, dtype=np.int64)
