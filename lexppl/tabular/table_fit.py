"""The fit of a method on encoded rows, with a full predictor where the method explains one."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from lexppl.evaluation import FittedPredictor, fit_predictor
from lexppl.inference import FitResult, Stage, System, fit
from lexppl.inference.contexts import seeded
from lexppl.models import Grouping, regime_targets
from lexppl.models.imputers.by_name import imputer_of
from lexppl.models.regimes import Regime, frozen
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

    @classmethod
    def at(cls, x: Tensor, y: Tensor, train: Any, valid: Any) -> EncodedRows:
        """The rows at these places of x and y; there are none to validate where `valid` is None."""
        return cls((x[train], y[train]), None if valid is None else (x[valid], y[valid]))

    def observing(self, predictor: nn.Module) -> EncodedRows:
        """The same rows with what a predictor says of them."""

        def said(part: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            x = part[0]
            return x, regime_targets("self post-hoc", x, predictor=predictor)

        return EncodedRows(said(self.train), None if self.valid is None else said(self.valid))


def fit_full_predictor(plan: FitPlan, rows: EncodedRows, progress: bool = False) -> FittedPredictor:
    """Fit the predictor that sees all of x, of what the rows observe, by a plan.

    Args:
        plan: how long and how fast.
        rows: what it is fitted on.
        progress: show a bar.

    Raises:
        KeyboardInterrupt: interrupted; half a predictor is none to explain.
    """
    full = fit_predictor(
        rows.train,
        valid=rows.valid,
        hidden=plan.predictor_hidden,
        epochs=plan.epochs,
        batch_size=plan.batch_size,
        learning_rate=plan.schedule,
        patience=None,
        seed=plan.seed,
        progress=progress,
    )
    if full.result.interrupted:
        raise KeyboardInterrupt
    return full


def fit_table(
    plan: FitPlan,
    rows: EncodedRows,
    grouping: Grouping,
    *,
    class_names: Sequence[str] | None,
    feature_names: Sequence[str] | None = None,
    black_box: nn.Module | None = None,
    full: FittedPredictor | None = None,
    progress: bool = False,
) -> FitResult:
    """Fit a method of :data:`lexppl.systems.METHODS` by a plan.

    A method that explains a model, and is given none, gets a predictor that sees all of x, fitted
    on the same rows to what they observe; what it then observes is that predictor. So does a
    method in the regimes whose predictor does not learn.

    Args:
        plan: the method and its settings.
        rows: what it is fitted on.
        grouping: which features an entry keeps, and the entries' names.
        class_names: of the C labels, or None for responses.
        feature_names: of the D features.
        black_box: the explained model, whose output the rows observe, for methods that take one.
        full: the predictor that sees all of x, if it is there already.
        progress: show progress bars.

    Raises:
        ValueError, TypeError: settings that the method cannot take.
        KeyboardInterrupt: interrupted before the explainer's own fit.

    Example:
        >>> import torch
        >>> from lexppl.tabular.fit_plan import plan_for
        >>> x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
        >>> rows = EncodedRows((x, (x[:, 0] > 0).long()), None)
        >>> plan = plan_for(60, 3, "l2x", k=1, epochs=1)
        >>> names = ("no", "yes")
        >>> fit_table(plan, rows, Grouping.identity(3), class_names=names).class_names
        ('no', 'yes')
    """
    method = METHODS[plan.method]
    if plan.needs_full_predictor and black_box is None:
        full = fit_full_predictor(plan, rows, progress) if full is None else full
        if method.explains_model or plan.regime is Regime.SELF_POST_HOC:
            rows = rows.observing(full.predictor)
    else:
        full = None
    x = rows.train[0]
    given = None if full is None else full.predictor
    settings = Settings(
        features=x.shape[1],
        classes=None if class_names is None else len(class_names),
        k=plan.k,
        penalty=plan.penalty,
        black_box=given if black_box is None else copy.deepcopy(black_box),
        predictor=None if given is None else frozen(given),
        masks=plan.masks,
        imputations=plan.imputations,
        imputer=_imputer(plan, x) if method.takes("imputer") else None,
        grouping=grouping,
        hidden=plan.hidden,
        predictor_hidden=plan.predictor_hidden,
    )
    with seeded(plan.seed):
        system = system_for(plan.method, settings).to(x.device, x.dtype)
        if plan.rate_given:
            system = _by_common_optimizer(system)
    result = fit(
        system,
        rows.train,
        valid=rows.valid,
        epochs=plan.epochs,
        batch_size=plan.batch_size,
        learning_rate=plan.schedule,
        weight_decay=plan.weight_decay,
        replicates=plan.replicates,
        seed=plan.seed,
        progress=progress,
    )
    result.entry_names = grouping.names
    result.feature_names = None if feature_names is None else tuple(feature_names)
    result.class_names = None if class_names is None else tuple(class_names)
    return result


def _imputer(plan: FitPlan, x: Tensor) -> nn.Module:
    """The plan's imputer, fitted on training rows if it is a name."""
    if isinstance(plan.imputer, str):
        return imputer_of(plan.imputer, x, plan.seed)
    if not isinstance(plan.imputer, nn.Module):
        raise TypeError(
            "imputer must be a name or a module of lexppl.models; it is a "
            f"{type(plan.imputer).__name__}"
        )
    return copy.deepcopy(plan.imputer)


def _by_common_optimizer(system: System) -> System:
    def build() -> list[Stage]:
        return [replace(stage, optimizer=None) for stage in system.build()]

    return System(build, system.published)
