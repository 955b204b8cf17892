"""Methods on rows with missing values."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lexppl.inference import Stage, System
from lexppl.models import LEX
from lexppl.models.imputers import GAP, IMPUTERS, imputer_of
from lexppl.models.missing import (
    GapsFromMarkers,
    HiddenByNature,
    LimitedSelector,
    MarkedRows,
    ObservedSelector,
)


def completed_rows(x: Tensor, observed: Tensor, groups: Sequence[int], seed: int) -> Tensor:
    """Rows `(N, D)` whose missing values are those of random rows that have them, one row for an
    entry's values.

    Each column keeps its distribution; its dependence on the rest of the row is lost where it was
    missing.
    """
    generator = torch.Generator().manual_seed(seed)
    filled = x.clone()
    places = torch.tensor(list(groups), device=x.device)
    for entry in range(max(groups) + 1):
        columns = (places == entry).nonzero().flatten()
        # Columns of one entry that are missing apart are filled apart.
        for pattern in observed[:, columns].T.unique(dim=0):
            mine = columns[(pattern == observed[:, columns].T).all(1)]
            lacking, there = (pattern == 0).nonzero().flatten(), pattern.nonzero().flatten()
            if len(there) == 0:
                raise ValueError(f"entry {entry} is missing in all {len(x)} rows")
            drawn = torch.randint(len(there), (len(lacking),), generator=generator)
            donors = there[drawn.to(x.device)]
            filled[lacking[:, None], mine] = x[donors[:, None], mine]
    return filled


METHODS_OF_MISSING = ("base_x", "lex", "rationale", "real_x")
"""Methods that are LEX programs alone, with masks of zeros and ones."""

IMPUTERS_OF_MISSING = ("marginal", "gaussian", "constant", GAP)
"""Imputers that need no whole rows, or make do with columns that are whole."""


def check_missing(method: str, imputer: object, learns_predictor: bool) -> None:
    """Refuse a method, regime or imputer that cannot take missing values."""
    mend = "drop the rows that have any, or fill them in"
    if method not in METHODS_OF_MISSING:
        raise ValueError(
            f"{method} has no form for missing values that are hidden: use "
            f"{', '.join(METHODS_OF_MISSING)}, {mend}"
        )
    if not learns_predictor:
        raise ValueError(
            "missing values that are hidden need a predictor that learns from what is shown, and "
            f"this regime explains one that was fitted on all features before: {mend}"
        )
    if isinstance(imputer, str) and imputer not in IMPUTERS_OF_MISSING:
        known = [name for name in IMPUTERS_OF_MISSING if name in IMPUTERS]
        raise ValueError(
            f"the imputer {imputer!r} is fitted on whole rows, and values are missing: use one of "
            f"{known}, {mend}"
        )


def fitted_imputer(
    imputer: Any, x: Tensor, markers: Sequence[int], groups: Sequence[int], seed: int
) -> nn.Module:
    """An imputer by its name, fitted to the observed values of training rows; a copy of a given
    module."""
    if not isinstance(imputer, str):
        if not isinstance(imputer, nn.Module):
            raise TypeError(
                "imputer must be a name or a module of lexppl.models; it is a "
                f"{type(imputer).__name__}"
            )
        return copy.deepcopy(imputer)
    if markers:
        rows = MarkedRows(markers).to(x.device)
        x, observed = rows.values(x), rows.observed(x)
        if imputer == "marginal":
            x = completed_rows(x, observed, groups, seed)
    return imputer_of(imputer, x, seed, groups)


def gapped(x: Tensor, markers: Sequence[int]) -> Tensor:
    """The values `(N, D)` of rows `(N, F)` with NaN where they are missing.

    Example:
        >>> import torch
        >>> gapped(torch.tensor([[0.0, 1.0], [3.0, 0.0]]), [1, 1]).flatten()
        tensor([nan, 3.])
    """
    return MarkedRows(markers).to(x.device).with_gaps(x) if markers else x


def with_missing(system: System, markers: Sequence[int]) -> System:
    """A system of LEX programs for rows with markers of missing values, which are hidden from
    the start and never kept."""

    def hide(model: LEX) -> None:
        rows = MarkedRows(markers)
        groups = range(rows.features) if model.grouping is None else model.grouping.groups
        model.selector = ObservedSelector(model.selector, groups, markers)
        model.imputer = HiddenByNature(model.imputer, markers)
        if getattr(model.predictor, "reads_gaps", False):
            model.predictor = GapsFromMarkers(model.predictor, markers)

    return _of_changed_models(system, hide, "missing values")


def without_entries(system: System, left_out: Sequence[bool]) -> System:
    """A system of LEX programs whose masks never keep some of the G entries."""

    def limit(model: LEX) -> None:
        model.selector = LimitedSelector(model.selector, left_out)

    return _of_changed_models(system, limit, "entries that are left out")


def _of_changed_models(system: System, change: Callable[[LEX], None], what: str) -> System:
    def changed(stages: Sequence[Stage]) -> Sequence[Stage]:
        models = {id(term.model): term.model for stage in stages for term in stage.terms}
        for model in models.values():
            if not isinstance(model, LEX):
                raise TypeError(f"{what} need LEX, not {type(model).__name__}")
            change(model)
        return stages

    return system.changed(changed)
