"""From options to a fitted explainer."""

import argparse
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lexppl.argument_checks import int_between
from lexppl.cli.errors import UsageError
from lexppl.cli.source import Splits
from lexppl.data import Dataset
from lexppl.evaluation.refits.fitted_predictor import FittedPredictor, fit_predictor
from lexppl.inference import (
    CollapseWarning,
    FitResult,
    fit,
)
from lexppl.models import Grouping, Predictor
from lexppl.models.imputers.by_name import imputer_of
from lexppl.models.regimes import Regime, frozen, regime_targets
from lexppl.systems import DEFAULT_METHOD, METHODS, Method, Settings, system_for
from lexppl.tabular.fit_plan import decaying, plan_for, usual_imputer

MASKS = 4


@dataclass(frozen=True)
class FitSettings:
    """How an explainer is fitted, with every default filled in.

    Args:
        method: a name of `lexppl.systems.METHODS`.
        k: entries a mask keeps, or None for a penalty.
        penalty: nats an entry, or None for a k.
        imputer: name of the imputer.
        regime: what is explained.
        replicates, epochs, masks, imputations, batch_size, learning_rate, weight_decay, seed: of
            the fit.
        selector_hidden, predictor_hidden: widths of hidden layers.
    """

    method: str
    k: int | None
    penalty: float | None
    imputer: str
    regime: Regime
    replicates: int
    epochs: int
    masks: int
    imputations: int
    batch_size: int
    learning_rate: float
    weight_decay: float
    seed: int
    selector_hidden: tuple[int, ...]
    predictor_hidden: tuple[int, ...]

    @property
    def law(self) -> str:
        """The law of the masks, in words."""
        if self.k is not None:
            return f"exactly {self.k} of the features in each row"
        if self.penalty is None:
            return "all features of a row, each to a share of its own"
        return f"as many features as are worth {self.penalty:g} nats each"


def plan_of(
    options: argparse.Namespace,
    rows: int,
    regime: Regime,
    epochs: int | None = None,
    batch_size: int | None = None,
) -> FitSettings:
    """Fill in the defaults that depend on the number of rows to fit on.

    Args:
        options: as typed.
        rows: how many rows there are to fit on.
        regime: what is explained.
        epochs: how many if none are typed; None for a number by the rows.
        batch_size: the same for the rows of a batch.

    Example:
        >>> from lexppl.cli.arguments import parse
        >>> plan = plan_of(parse(["explain", "wine", "--out", "r"]), 107, Regime.FREE_IN_SITU)
        >>> plan.penalty, plan.batch_size, plan.epochs
        (0.02, 36, 200)
    """
    name = getattr(options, "method", DEFAULT_METHOD)
    method = METHODS[name]
    _check_method(options, name, method)
    usual = plan_for(
        rows,
        epochs=options.epochs or epochs,
        batch_size=options.batch_size or batch_size,
        learning_rate=options.learning_rate,
    )
    return FitSettings(
        method=name,
        k=options.k,
        penalty=_penalty(options, method),
        imputer=options.imputer or options.default_imputer or usual_imputer(method),
        regime=regime,
        replicates=options.replicates,
        epochs=usual.epochs,
        masks=options.masks or MASKS,
        imputations=options.imputations or 1,
        batch_size=usual.batch_size,
        learning_rate=usual.learning_rate,
        weight_decay=1e-3,
        seed=options.seed,
        selector_hidden=usual.hidden,
        predictor_hidden=usual.predictor_hidden,
    )


def regime_of(options: argparse.Namespace) -> Regime:
    """What is explained: as typed, or by whether there is a black box.

    Raises:
        UsageError: a black box for a regime without one, or the other way round.
    """
    if options.regime is None:
        return Regime.SURROGATE_POST_HOC if options.black_box else Regime.FREE_IN_SITU
    regime = next(r for r in Regime if r.value.replace(" ", "-") == options.regime)
    if (regime is Regime.SURROGATE_POST_HOC) != bool(options.black_box):
        needed = "needs a --black-box" if not options.black_box else "takes no --black-box"
        raise UsageError(f"--regime {options.regime} {needed}")
    return regime


def check_size(k: int | None, entries: int) -> None:
    """Refuse more entries than there are, before any work.

    Raises:
        ValueError: k above G.
    """
    if k is not None:
        int_between("k", k, 1, entries, note="the number of features")


def settings_of(plan: FitSettings, data: Dataset, predictor: Any = None) -> Settings:
    """What a method is built from, for rows like these.

    Args:
        plan: with the method's name.
        data: the rows.
        predictor: the given one, for methods that explain one and regimes where it is frozen.
    """
    method = METHODS[plan.method]
    return Settings(
        data.n_features,
        data.n_classes,
        k=plan.k,
        penalty=plan.penalty,
        black_box=predictor,
        predictor=None if predictor is None else frozen(predictor),
        masks=plan.masks,
        imputations=plan.imputations,
        imputer=imputer_of(plan.imputer, data.x, plan.seed) if method.takes("imputer") else None,
        grouping=Grouping(list(data.groups), data.group_names),
        hidden=plan.selector_hidden,
        predictor_hidden=plan.predictor_hidden,
    )


def fit_explainer(
    plan: FitSettings,
    parts: Splits,
    targets: Sequence[Tensor],
    predictor: Predictor | None,
    progress: bool,
) -> FitResult:
    """Fit the replicates of an explainer.

    Args:
        plan: how.
        parts: the rows.
        targets: what is observed of the training and the validation rows.
        predictor: given and frozen, in the regimes where it does not learn; or what is explained.
        progress: show a bar.
    """

    settings = settings_of(plan, parts.train, predictor)
    system = system_for(plan.method, settings).to(parts.train.x.device, parts.train.x.dtype)
    with warnings.catch_warnings():
        # The program tells of collapses in its own words.
        warnings.simplefilter("ignore", CollapseWarning)
        result = fit(
            system,
            (parts.train.x, targets[0]),
            valid=(parts.valid.x, targets[1]),
            epochs=plan.epochs,
            batch_size=plan.batch_size,
            learning_rate=decaying(plan.learning_rate),
            weight_decay=plan.weight_decay,
            replicates=plan.replicates,
            seed=plan.seed,
            progress=progress,
        )
    result.entry_names = parts.train.group_names
    result.class_names = parts.train.class_names
    return result


def fit_full_predictor(
    plan: FitSettings, parts: Splits, progress: bool, targets: Sequence[Tensor] | None = None
) -> FittedPredictor:
    """Fit the predictor that sees everything.

    Args:
        plan: how.
        parts: the rows.
        progress: show a bar.
        targets: what it learns of the training and the validation rows; their labels if None.
    """
    train, valid = parts.train, parts.valid
    if targets is not None:
        train, valid = (train.x, targets[0]), (valid.x, targets[1])  # type: ignore[assignment]
    return fit_predictor(
        train,
        valid=valid,
        hidden=plan.predictor_hidden,
        epochs=plan.epochs,
        batch_size=plan.batch_size,
        learning_rate=plan.learning_rate,
        weight_decay=plan.weight_decay,
        seed=plan.seed,
        progress=progress,
    )


def targets_of(
    plan: FitSettings, part: Dataset, rows: Tensor, said: Tensor | None, predictor: Predictor | None
) -> Tensor:
    """What the explainer's program observes of a part.

    Args:
        plan: with the regime.
        part: the rows.
        rows: their numbers in the table.
        said: what the black box says of every row of the table.
        predictor: the given one.
    """
    if plan.regime is Regime.SURROGATE_POST_HOC and said is not None:
        return said[rows.to(said.device)]
    return regime_targets(plan.regime, part.x, part.y, predictor=predictor)


def _check_method(options: argparse.Namespace, name: str, method: Method) -> None:
    """Refuse options that a method does not read, before any work.

    Raises:
        UsageError: such an option; or one that is missing.
    """
    own = f"--method {name}"
    if method.needs("k") and options.k is None:
        raise UsageError(f"{own} keeps a given number of features: give --k")
    if options.k is not None and not method.takes("k"):
        raise UsageError(f"{own} takes no --k" + (": give --penalty" * method.takes("penalty")))
    if options.penalty is not None and not method.takes("penalty"):
        raise UsageError(f"{own} takes no --penalty" + (": give --k" * method.takes("k")))
    if options.imputer is not None and not method.takes("imputer"):
        raise UsageError(f"{own} takes no --imputer")
    for setting in ("masks", "imputations"):
        if getattr(options, setting) and not method.takes(setting):
            raise UsageError(f"{own} takes no --{setting}: its bound has its own")


def _penalty(options: argparse.Namespace, method: Method) -> float | None:
    if options.k is not None or not method.takes("penalty"):
        return None
    if options.penalty is not None:
        return float(options.penalty)
    usual = options.default_penalty
    return method.default("penalty") if usual is None else float(usual)


def device_of(name: str) -> torch.device:
    """The device of a name, if it is there.

    Raises:
        UsageError: no such device, or none on this machine.
    """
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UsageError(f"--device {name}: no such device on this machine") from error
    return device
