"""From what was typed to a plan of the fit, and to the device it runs on."""

import argparse
from typing import Any

import torch

from lexppl.choices.methods import DEFAULT_METHOD, METHODS
from lexppl.choices.regimes import Regime
from lexppl.choices.settings import SETTINGS, TREES, chooses_penalty, has_setting
from lexppl.cli.options.checks import regime_of
from lexppl.cli.options.posterior_options import posterior_of
from lexppl.cli.terminal.errors import UsageError
from lexppl.data import Dataset
from lexppl.tabular.fit_plan import FitPlan, check_method, plan_for
from lexppl.tabular.global_posterior import refuse_unlistable


def typed_settings(options: argparse.Namespace, method: str) -> dict[str, Any]:
    """The settings of a method's plan that were typed."""
    typed = {name: getattr(options, name, None) for name in SETTINGS if name != "regime"}
    return {
        name: value
        for name, value in typed.items()
        if value is not None and has_setting(method, name)
    }


def plan_of(
    options: argparse.Namespace,
    rows: int,
    data: Dataset,
    *,
    method: str | None = None,
    regime: Regime = Regime.FREE_IN_SITU,
    **otherwise: Any,
) -> FitPlan:
    """The plan of what was typed.

    Args:
        options: as typed.
        rows: how many rows there are to fit on.
        data: of which they are.
        method: another than was typed; what was typed and it does not have is left out.
        regime: what is explained.
        otherwise: settings where none are typed, in place of those of the plan.

    Raises:
        ValueError: a method of labels for a real response, a k above G.

    Example:
        >>> from lexppl.cli.options.arguments import parse
        >>> from lexppl.data import load
        >>> plan = plan_of(parse(["explain", "wine", "--out", "r"]), 107, load("wine"))
        >>> plan.penalty, plan.batch_size, plan.epochs
        (0.02, 36, 116)
    """
    name = str(method or getattr(options, "method", DEFAULT_METHOD))
    check_method(name, data.class_names is not None)
    typed = typed_settings(options, name)
    if "k" in typed:
        otherwise.pop("penalty", None)
    settings = {**otherwise, **typed}
    posterior = posterior_of(options) if name == getattr(options, "method", None) else None
    if posterior is not None:
        refuse_unlistable(posterior, data.n_entries, typed.get("k"))
        settings["posterior"] = posterior
    return plan_for(rows, data.n_entries, name, regime=regime, **settings)


def folds_of(options: argparse.Namespace) -> int | None:
    """How many folds the rows of a table are in, each left out by a replicate, where no share of
    them is held out from all: one for each replicate of one fit for every λ; else None.

    Example:
        >>> from lexppl.cli.options.arguments import parse
        >>> words = ["explain", "wine", "--out", "r"]
        >>> folds_of(parse(words)), folds_of(parse([*words, "--k", "3"]))
        (5, None)
        >>> folds_of(parse([*words, "--test-share", "0.3"]))
    """
    if options.command != "explain" or options.holds_out or options.replicates < 2:
        return None
    every = chooses_penalty(options.method) and options.k is None and options.penalty != 0
    learns = regime_of(options).learns_predictor and not METHODS[options.method].explains_model
    alone = options.inference is None and options.guide is None
    in_steps = options.predictor != TREES
    return int(options.replicates) if every and learns and alone and in_steps else None


def law_of(plan: FitPlan) -> str:
    """The distribution of the masks, in words."""
    if plan.k is not None:
        return f"exactly {plan.k} of the features in each row"
    if plan.penalty is None:
        return "all features of a row, each to a share of its own"
    return f"as many features as are worth {plan.penalty:.3g} nats each"


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
