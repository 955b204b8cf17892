"""From what was typed to a plan of the fit, groups of features and a device."""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from lexppl.choices.methods import DEFAULT_METHOD, METHODS
from lexppl.choices.settings import SETTINGS, TREES, Regime, chooses_penalty, has_setting
from lexppl.cli.options.checks import posterior_of, regime_of
from lexppl.cli.terminal import UsageError
from lexppl.data import Dataset
from lexppl.data.divided_table import DividedTable
from lexppl.evaluation.feature_groups import FeatureGroups
from lexppl.systems.fit_plan import FitPlan, check_method, plan_for
from lexppl.tabular.encoded_rows import judged_groups
from lexppl.tabular.global_posterior import refuse_unlistable
from lexppl.tabular.missing_values import IMPUTERS_OF_MISSING, METHODS_OF_MISSING


def typed_settings(options: argparse.Namespace, method: str) -> dict[str, Any]:
    """Settings of a method's plan that were typed."""
    typed = {name: getattr(options, name, None) for name in SETTINGS if name != "regime"}
    return {n: v for n, v in typed.items() if v is not None and has_setting(method, n)}


def plan_of(
    options: argparse.Namespace,
    rows: int,
    data: Dataset,
    *,
    method: str | None = None,
    regime: Regime = Regime.FREE_IN_SITU,
    **otherwise: Any,
) -> FitPlan:
    """The plan that was typed.

    Args:
        rows: number of rows to fit on.
        method: in place of the one typed; settings that it does not take are left out.
        otherwise: settings that replace the plan's where none are typed.

    Raises:
        ValueError: a method of labels for a real response, a k above G.

    Example:
        >>> from lexppl.cli.program import parse
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
    """Number of folds of a table's rows, each held out by a replicate of one fit for every λ; None
    where a share is held out from all.

    Example:
        >>> from lexppl.cli.program import parse
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


def takes_missing(options: argparse.Namespace) -> bool:
    """Whether the command, with its method and imputer, takes missing values that are hidden."""
    if options.command != "explain" or options.method not in METHODS_OF_MISSING:
        return False
    draws_missing = options.imputer in (None, *IMPUTERS_OF_MISSING)
    return draws_missing and regime_of(options).learns_predictor


def device_of(name: str) -> torch.device:
    """The device of a name.

    Raises:
        UsageError: no such device on this machine.
    """
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UsageError(f"--device {name}: no such device on this machine") from error
    return device


AUTO, NONE = "auto", "none"


def groups_of(typed: str | None, source: DividedTable) -> FeatureGroups:
    """Groups of a table's features: `auto` (or None), `none`, or those of a JSON file.

    Raises:
        UsageError: a file of another form, or other columns than the table's.
        FileNotFoundError: no such file.
    """
    data = source.data
    if typed is None or typed == AUTO:
        return judged_groups(data)
    if typed == NONE:
        return FeatureGroups.alone(data.entry_names)
    try:
        named = json.loads(
            Path(typed).read_text(encoding="utf-8"),
            object_pairs_hook=lambda p: _each_once(p, typed),
        )
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"--groups {typed}: it is no JSON file: {error}") from error
    if not isinstance(named, dict):
        raise UsageError(
            f'--groups {typed}: it must be names and columns, {{"size": ["width", "height"]}}'
        )
    try:
        return judged_groups(data, named)
    except ValueError as error:
        raise UsageError(f"--groups {typed}: {error}") from error


def _each_once(pairs: list[tuple[str, Any]], typed: str) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"--groups {typed}: the name {twice[0]!r} is given twice")
    return dict(pairs)
