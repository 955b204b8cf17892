"""The log hazard ratios that a fitted survival model gives rows, by particle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from lexppl.inference.predictive import FittedProgram, rows_at_once
from lexppl.models.survival.cox import PartialLikelihood
from lexppl.models.survival.hazards import ProportionalHazards

Hazards = PartialLikelihood | ProportionalHazards


def hazards_of_rows(
    model: Any,
    guide: Any,
    x: Tensor,
    masks: int,
    imputations: int,
    *,
    most: int | None = None,
    site: str = "y",
) -> Iterator[list[Hazards]]:
    """The distributions of survival times of chunks of rows, one for each run of the program.

    Args:
        model: a fitted program.
        guide: its guide, or None.
        x: rows, `(N, *event)`.
        masks: L, in all of a chunk's runs.
        imputations: K.
        most: rows of a chunk at most; as many as fit if None.
        site: name of the program's outcome.

    Raises:
        ValueError: the program's outcome is no survival time.
    """
    program = FittedProgram(model, guide, (x[:1],), masks)
    for rows in x.split(rows_at_once(x, masks * imputations, most)):
        found = []
        for run, _ in program.runs((rows,), imputations):
            sampled = run.sites.get(site)
            distribution = None if sampled is None else sampled.distribution
            if not isinstance(distribution, Hazards):
                kind = "none" if distribution is None else type(distribution).__name__
                raise ValueError(
                    f"the program's {site!r} must be a survival time, of a predictor with "
                    f"CoxLikelihood(); its distribution is {kind}"
                )
            found.append(distribution)
        yield found


def log_hazards(
    model: Any, guide: Any, x: Tensor, masks: int, imputations: int, site: str = "y"
) -> Tensor:
    """f of every particle, `(P, N)`: masks, imputations, and predictors of a cross-fitted fit."""
    chunks = [
        torch.cat([each.components.flatten(0, -2) for each in runs])
        for runs in hazards_of_rows(model, guide, x, masks, imputations, site=site)
    ]
    return torch.cat(chunks, -1)
