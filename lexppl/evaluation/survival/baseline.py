"""The baseline hazard of a fitted survival model: Breslow's estimate, with masks averaged out."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from lexppl.argument_checks import int_at_least
from lexppl.evaluation.survival.log_hazards import log_hazards
from lexppl.inference.predictive import drawing
from lexppl.inference.training.result import FitResult
from lexppl.models.survival.cox import CoxLikelihood
from lexppl.models.survival.hazards import BaselineHazard
from lexppl.models.survival.risk_sets import Hazard, RiskSets, Ties, fitted_hazard

ROUNDS = 200
"""Of the fixed point at most; it contracts by the share of a row's hazard that its mask moves."""

SETTLED = 1e-10
"""Change of the mean log-likelihood of a row, in nats, below which it has settled."""


def with_baseline(
    result: FitResult,
    x: Tensor,
    y: Tensor,
    *,
    masks: int = 50,
    imputations: int = 1,
    seed: int = 0,
    site: str = "y",
) -> FitResult:
    r"""The same fit with the baseline hazard of its rows, so that each row has a likelihood.

    A partial likelihood has no baseline. With it, `lexppl.explain(result, x, y)`, likelihoods of
    rows and survival curves are of each row by itself, whatever rows stand beside it. The jumps of
    the cumulative hazard `H₀` are those that the rows are likeliest under, their masks and
    imputations averaged out, for each replicate by itself,

        max_H Σ_n log 1/(LK) Σ_{l,k} p(t_n, δ_n | f_{n,l,k}, H),

    found as the fixed point of Breslow's estimate `d_t / Σ_{j∈R(t)} E[e^{f_j} | t_j, δ_j]` (with
    Efron's for ties, where the likelihood has those): an EM, whose missing data are the masks. With
    nothing hidden it is Breslow's own.

    Args:
        result: of a fit with :class:`lexppl.models.CoxLikelihood`; left as it is.
        x: the rows that it was fitted to, `(N, *event)`.
        y: their times, `(N, 2)` or `(N, 3)`.
        masks: L.
        imputations: K.
        seed: of the draws.
        site: name of the program's outcome.

    Returns:
        the fit with copies of its models.

    Raises:
        ValueError: a fit without such a likelihood, rows unlike those of the fit, times that are
            none.

    Source:
        Breslow, N. Covariance analysis of censored survival data. Biometrics 30, 1974.

    Example:
        >>> from lexppl.inference import fit
        >>> from lexppl.systems import lex
        >>> rows = torch.Generator().manual_seed(0)
        >>> x = torch.randn(60, 3, generator=rows)
        >>> time = torch.rand(60, generator=rows) / x[:, 0].exp()
        >>> y = torch.stack([time, torch.ones(60)], 1)
        >>> model = lex(3, classes=None, likelihood=CoxLikelihood(), hidden=(4,), folds=1)
        >>> result = fit(model, (x, y), epochs=1, progress=False)
        >>> with_baseline(result, x, y).model.predictor.likelihood.baseline.times.shape
        torch.Size([1, 60])
    """
    int_at_least("masks", masks)
    int_at_least("imputations", imputations)
    models = [copy.deepcopy(model) for model in result.models]
    for model in models:
        _give(model, None)
    replace(result, models=models).check(x, y)
    if y.dim() != 2:
        raise ValueError(f"y must have shape (N, 2) or (N, 3); it has shape {tuple(y.shape)}")
    for model, guide in zip(models, result.guides, strict=True):
        with drawing(seed, x.device):
            particles = log_hazards(model, guide, x, masks, imputations, site)
            likelihood = _cox_parts(model)[0]
            baseline = breslow_baseline(particles, y, likelihood.ties, likelihood.stratified)
        _give(model, baseline)
    return replace(result, models=models)


def breslow_baseline(
    log_hazard: Tensor, y: Tensor, ties: Ties = "efron", stratified: bool = False
) -> BaselineHazard:
    """The baseline hazard of rows with given log hazard ratios.

    Args:
        log_hazard: f of each of M equally likely particles, `(M, N)`.
        y: times, events and, where stratified, strata, `(N, 2)` or `(N, 3)`.
        ties: "efron" or "breslow".
        stratified: whether each stratum has a baseline of its own.

    Raises:
        ValueError: a stratum without an event.

    Example:
        >>> y = torch.tensor([[1.0, 1.0], [2.0, 0.0], [3.0, 1.0]])
        >>> breslow_baseline(torch.zeros(1, 3), y).cumulative
        tensor([[0.3333, 1.3333]])
    """
    exact, times = log_hazard.double(), y.double()
    event = times[:, 1]
    sets = RiskSets.of(times[:, 0], event, times[:, 2] if stratified else None)
    log_risk = exact.logsumexp(0) - math.log(len(exact))
    reached, hazard = -math.inf, fitted_hazard(log_risk, sets, ties)
    for _ in range(ROUNDS if len(exact) > 1 else 0):
        weights = _log_density(exact, event, hazard)
        value = float(weights.logsumexp(0).mean())
        log_risk = (exact + weights.log_softmax(0)).logsumexp(0)
        hazard = fitted_hazard(log_risk, sets, ties)
        if value - reached < SETTLED:
            break
        reached = value
    strata = times[:, 2] if stratified else torch.zeros_like(event)
    return _of_strata(times[:, 0], event, strata, hazard.log_cumulative.exp(), y.dtype)


def _log_density(log_hazard: Tensor, event: Tensor, hazard: Hazard) -> Tensor:
    """Of each particle, `(M, N)`."""
    died = event * (log_hazard + hazard.log_increment)
    return died - (log_hazard + hazard.log_exposure).exp()


def _of_strata(
    time: Tensor, event: Tensor, strata: Tensor, cumulative: Tensor, dtype: torch.dtype
) -> BaselineHazard:
    """Rows' times and `H₀` there, as a table by stratum; a short one has its last time again."""
    columns, ends = [], []
    numbers = strata.unique()
    for number in numbers:
        mine = strata == number
        died = mine & (event == 1)
        if not bool(died.any()):
            raise ValueError(
                f"stratum {float(number):g} of y has no event, and so no hazard to compare with: "
                "leave its rows out, or join it to another"
            )
        times, place = time[died].unique(return_inverse=True)
        reached = torch.zeros_like(times).index_copy(0, place, cumulative[died])
        columns.append(torch.stack([times, reached]))
        ends.append(time[mine].max())
    most = max(column.shape[1] for column in columns)
    full = [
        torch.cat([column, column[:, -1:].expand(2, most - column.shape[1])], 1)
        for column in columns
    ]
    table = torch.stack(full, 1).to(dtype)
    return BaselineHazard(table[0], table[1], numbers.to(dtype), torch.stack(ends).to(dtype))


def _cox_parts(model: Any) -> list[CoxLikelihood]:
    parts = model.modules() if isinstance(model, nn.Module) else ()
    found = [part for part in parts if isinstance(part, CoxLikelihood)]
    if not found:
        raise ValueError(
            f"{type(model).__name__} has no CoxLikelihood, whose baseline hazard this is: fit a "
            "program with one, such as lex(..., classes=None, likelihood=CoxLikelihood())"
        )
    return found


def _give(model: Any, baseline: BaselineHazard | None) -> None:
    for part in _cox_parts(model):
        part.baseline = copy.deepcopy(baseline)
