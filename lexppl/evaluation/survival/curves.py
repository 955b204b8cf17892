"""What a fitted survival model says of new rows: hazard ratios and survival curves."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from lexppl.argument_checks import int_at_least
from lexppl.evaluation.survival.log_hazards import hazards_of_rows, log_hazards
from lexppl.inference.predictive import drawing
from lexppl.inference.training.result import FitResult
from lexppl.models.survival.hazards import ProportionalHazards


def log_hazard_ratio(
    result: FitResult,
    x: Tensor,
    *,
    masks: int = 50,
    imputations: int = 1,
    seed: int = 0,
    site: str = "y",
) -> Tensor:
    r"""The log of each row's hazard ratio, masks and imputations averaged out:

        log 1/(LK) Σ_{l,k} exp f(x̃_{l,k}),    z_l ~ p(z|x),  x̃_{l,k} ~ p(x̃|x, z_l),

    which is that of the hazard at t = 0. It has no unit, and only differences between rows mean
    something. It needs no baseline.

    Args:
        result: of a fit with :class:`lexppl.models.CoxLikelihood`.
        x: rows, `(N, *event)`.
        masks: L.
        imputations: K.
        seed: of the draws. Global random state is left alone.
        site: name of the program's outcome.

    Returns:
        `(R, N)`, by replicate.

    Raises:
        ValueError: rows unlike those of the fit, counts below 1, an outcome that is no survival
            time.
    """
    _check(result, x, masks, imputations)
    with drawing(seed, x.device):
        found = []
        for model, guide in zip(result.models, result.guides, strict=True):
            each = log_hazards(model, guide, x, masks, imputations, site)
            found.append(each.logsumexp(0) - math.log(len(each)))
        return torch.stack(found)


def predict_survival(
    result: FitResult,
    x: Tensor,
    times: Any,
    *,
    stratum: Tensor | None = None,
    masks: int = 50,
    imputations: int = 1,
    seed: int = 0,
    site: str = "y",
) -> Tensor:
    r"""The probability that a row has had no event by a time, masks and imputations averaged out:

        S(t | x) = 1/(LK) Σ_{l,k} exp(−e^{f(x̃_{l,k})} H₀(t)).

    Args:
        result: of :func:`lexppl.evaluation.with_baseline`.
        x: rows, `(N, *event)`.
        times: T of them, from 0 to the last time at which a row of the fit was followed, in their
            unit.
        stratum: the number of each row's stratum, `(N,)`, where the fit has strata.
        masks: L.
        imputations: K.
        seed: of the draws. Global random state is left alone.
        site: name of the program's outcome.

    Returns:
        `(R, N, T)`, by replicate.

    Raises:
        ValueError: rows unlike those of the fit, counts below 1, a fit without a baseline, times
            beyond its rows', strata that it has not.

    Example:
        >>> from lexppl.evaluation import with_baseline
        >>> from lexppl.inference import fit
        >>> from lexppl.models import CoxLikelihood
        >>> from lexppl.systems import lex
        >>> rows = torch.Generator().manual_seed(0)
        >>> x = torch.randn(60, 3, generator=rows)
        >>> time = torch.rand(60, generator=rows) / x[:, 0].exp()
        >>> y = torch.stack([time, torch.ones(60)], 1)
        >>> model = lex(3, classes=None, likelihood=CoxLikelihood(), hidden=(4,), folds=1)
        >>> result = with_baseline(fit(model, (x, y), epochs=1, progress=False), x, y)
        >>> predict_survival(result, x[:5], [0.0, 0.1, 0.2]).shape
        torch.Size([1, 5, 3])
    """
    _check(result, x, masks, imputations)
    when = torch.as_tensor(times, dtype=x.dtype, device=x.device)
    if when.dim() != 1 or len(when) == 0:
        raise ValueError(f"times must have shape (T,), T >= 1; they have {tuple(when.shape)}")
    with drawing(seed, x.device):
        return torch.stack(
            [
                _curves(model, guide, x, when, stratum, masks, imputations, site)
                for model, guide in zip(result.models, result.guides, strict=True)
            ]
        )


def _curves(
    model: Any,
    guide: Any,
    x: Tensor,
    when: Tensor,
    stratum: Tensor | None,
    masks: int,
    imputations: int,
    site: str,
) -> Tensor:
    parts, start = [], 0
    most = max(1, 2**22 // (masks * imputations * len(when)))
    for runs in hazards_of_rows(model, guide, x, masks, imputations, most=most, site=site):
        rows = runs[0].batch_shape[-1]
        own = None if stratum is None else stratum[start : start + rows]
        start += rows
        each = [_survival(hazards, when, own) for hazards in runs]
        parts.append(torch.stack(each).mean(0))
    return torch.cat(parts, -1).mT


def _survival(hazards: Any, when: Tensor, stratum: Tensor | None) -> Tensor:
    """`(T, B)` of one run."""
    if not isinstance(hazards, ProportionalHazards):
        raise ValueError(
            "the fit has no baseline hazard, which survival curves need: give it that of its rows, "
            "result = lexppl.evaluation.with_baseline(result, x, y)"
        )
    baseline = hazards.baseline
    if hazards.stratified and stratum is None:
        raise ValueError(
            f"the fit has strata {baseline.strata.tolist()}: give stratum=, one for each row"
        )
    if stratum is not None and not bool(baseline.knows(stratum).all()):
        raise ValueError(
            f"stratum must be of {baseline.strata.tolist()}, those of the fit; it has others"
        )
    end = float(baseline.last.min())
    if not bool(((when >= 0) & (when <= end)).all()):
        raise ValueError(
            f"times must be from 0 to {end:g}, to which the rows of the fit were followed (in "
            f"every stratum); they go from {float(when.min()):g} to {float(when.max()):g}"
        )
    each = hazards.survival(when, stratum)
    return each.flatten(1, -2).mean(1) if each.dim() > 2 else each


def _check(result: FitResult, x: Tensor, masks: int, imputations: int) -> None:
    int_at_least("masks", masks)
    int_at_least("imputations", imputations)
    result.check(x)
