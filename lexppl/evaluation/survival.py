"""Survival models after their fit: hazards, the baseline hazard, survival curves, concordance."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from lexppl.argument_checks import refuse_not_finite, shaped
from lexppl.explanation.sampler import read_runs
from lexppl.extras import extra_library
from lexppl.inference.objective.program import ParticleTrace
from lexppl.inference.training.result import FitResult
from lexppl.models.survival import (
    BaselineHazard,
    CoxLikelihood,
    PartialLikelihood,
    ProportionalHazards,
    RiskSets,
    Ties,
    fitted_hazard,
)

ROUNDS = 200
"""Of the fixed point at most; it contracts by the share of a row's hazard that its mask moves."""

SETTLED = 1e-10  # Change of the mean log-likelihood of a row, in nats, below which it has settled
UNSETTLED = (
    f"the baseline hazard still changes after {ROUNDS} rounds, as the log hazards of a row's masks "
    "lie far apart: survival curves are approximate"
)


def log_hazards(result: FitResult, x: Tensor, masks: int, imputations: int, seed: int) -> Tensor:
    """f of every particle, `(R, P, N)`: masks, imputations, and cross-fitted predictors."""

    def read(runs: Iterator[ParticleTrace], _: slice) -> dict[str, Tensor]:
        by_run = [_hazards(run).components for run in runs]
        return {"hazards": torch.cat([values.flatten(0, -2) for values in by_run]).mT}

    return read_runs(result, (x,), read, masks, imputations, seed)["hazards"].mT.contiguous()


def _hazards(run: ParticleTrace) -> PartialLikelihood | ProportionalHazards:
    sampled = run.sites.get("y")
    distribution: Any = None if sampled is None else sampled.distribution
    if not isinstance(distribution, PartialLikelihood | ProportionalHazards):
        kind = "none" if distribution is None else type(distribution).__name__
        raise ValueError(f"'y' must be a survival time, of CoxLikelihood(); it is {kind}")
    return distribution


def log_hazard_ratio(
    result: FitResult, x: Tensor, *, masks: int = 50, imputations: int = 1, seed: int = 0
) -> Tensor:
    """The log of each row's hazard ratio at t = 0, `(R, N)`, masks and imputations averaged out:

        log 1/(LK) Σ_{l,k} exp f(x̃_{l,k}),    z_l ~ p(z|x),  x̃_{l,k} ~ p(x̃|x, z_l).

    Only differences between rows mean something. It needs no baseline.

    Args:
        result: of a fit with :class:`lexppl.models.CoxLikelihood`.
        x, masks, imputations: rows `(N, *event)`, L and K.

    Raises:
        ValueError: rows unlike those of the fit, counts below 1, an outcome that is no survival
            time.
    """
    result.check(x)
    hazards = log_hazards(result, x, masks, imputations, seed)
    return hazards.logsumexp(1) - math.log(hazards.shape[1])


def predict_survival(
    result: FitResult,
    x: Tensor,
    times: Any,
    *,
    stratum: Tensor | None = None,
    masks: int = 50,
    imputations: int = 1,
    seed: int = 0,
) -> Tensor:
    """The probability that a row has had no event by a time, `(R, N, T)`, masks and imputations
    averaged out:

        S(t | x) = 1/(LK) Σ_{l,k} exp(−e^{f(x̃_{l,k})} H₀(t)).

    Args:
        result: of :func:`lexppl.evaluation.with_baseline`.
        x, masks, imputations, seed: as in :func:`log_hazard_ratio`.
        times: T of them, from 0 to the last time at which a row of the fit was followed, in their
            unit.
        stratum: the number of each row's stratum, `(N,)`, where the fit has strata.

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
    result.check(x)
    when = torch.as_tensor(times, dtype=x.dtype, device=x.device)
    shaped("times", when, "T", filled=True)

    def read(runs: Iterator[ParticleTrace], rows: slice) -> dict[str, Tensor]:
        strata = None if stratum is None else stratum[rows]
        curves = torch.stack([_survival(_hazards(run), when, strata) for run in runs])
        return {"survival": curves.mean(0).mT}

    most = max(1, 2**22 // max(1, masks * imputations * len(when)))
    return read_runs(result, (x,), read, masks, imputations, seed, most=most)["survival"]


def _survival(hazards: Any, when: Tensor, stratum: Tensor | None) -> Tensor:
    """Survival probabilities `(T, B)` of one run."""
    if not isinstance(hazards, ProportionalHazards):
        raise ValueError(
            "the fit has no baseline hazard, which survival curves need: give it that of its rows, "
            "result = lexppl.evaluation.with_baseline(result, x, y)"
        )
    baseline = hazards.baseline
    known = bool(baseline.knows(stratum).all()) if stratum is not None else not hazards.stratified
    if not known:
        raise ValueError(f"the fit has strata {baseline.strata.tolist()}: give stratum=, one a row")
    end = float(baseline.last.min())
    if not bool(((when >= 0) & (when <= end)).all()):
        raise ValueError(
            f"times must be from 0 to {end:g}, to which the rows of the fit were followed (in "
            f"every stratum); they go from {float(when.min()):g} to {float(when.max()):g}"
        )
    curves = hazards.survival(when, stratum)
    return curves.flatten(1, -2).mean(1) if curves.dim() > 2 else curves


def concordance_index(risk: Tensor, y: Tensor) -> float:
    """Harrell's C, 0 … 1: of the pairs of rows, strata together, of which it is known who had the
    event first, the share in which that row has the larger risk; pairs of one risk count a half.

    That of scikit-survival (`concordance_index_censored`), which the extra `survival` has.

    Args:
        risk: of each row, `(N,)`, such as :func:`log_hazard_ratio` of one replicate.
        y: times and events, `(N, 2)`, or strata too, which are not read, `(N, 3)`.

    Raises:
        ValueError: other shapes, values that are not finite, no pair to compare.
        ImportError: scikit-survival is not installed.

    Source: Harrell, Califf, Pryor, Lee, Rosati. Evaluating the yield of medical tests. JAMA 1982.
    """
    (rows,) = shaped("risk", risk, "N")
    shaped("y", y, (rows, 2), (rows, 3))
    refuse_not_finite("risk", risk)
    refuse_not_finite("y", y)
    metrics = extra_library("sksurv.metrics", "survival")
    time, event = y[:, 0].double().cpu().numpy(), y[:, 1].cpu().numpy() == 1
    try:
        index = metrics.concordance_index_censored(event, time, risk.double().cpu().numpy())
    except (metrics.NoComparablePairException, ValueError) as error:
        raise ValueError(f"no two rows of y can be compared: {error}") from error
    return float(index[0])


def with_baseline(
    result: FitResult, x: Tensor, y: Tensor, *, masks: int = 50, imputations: int = 1, seed: int = 0
) -> FitResult:
    """The same fit with the baseline hazard of its rows, so that each row has a likelihood, and
    likelihoods and survival curves are of each row by itself.

    The jumps of the cumulative hazard `H₀` are those that the rows are likeliest under, for each
    replicate by itself,

        max_H Σ_n log 1/(LK) Σ_{l,k} p(t_n, δ_n | f_{n,l,k}, H),

    found as the fixed point of Breslow's estimate `d_t / Σ_{j∈R(t)} E[e^{f_j} | t_j, δ_j]` (with
    Efron's for ties, where the likelihood has those): an EM, whose missing data are the masks.

    Args:
        result: of a fit with :class:`lexppl.models.CoxLikelihood`; left as it is.
        x, y: the rows that it was fitted to, `(N, *event)`, and their times, `(N, 2)` or `(N, 3)`.
        masks, imputations: L and K.

    Raises:
        ValueError: a fit without such a likelihood, rows unlike those of the fit, times that are
            none.

    Source: Breslow, N. Covariance analysis of censored survival data. Biometrics 30, 1974.
    """
    models = [copy.deepcopy(model) for model in result.models]
    for part in (part for model in models for part in _cox_parts(model)):
        part.baseline = None
    fitted = replace(result, models=models)
    fitted.check(x, y)
    shaped("y", y, "N 2", "N 3")
    for place, model in enumerate(models):
        particles = log_hazards(fitted.subset([place]), x, masks, imputations, seed)[0]
        parts = _cox_parts(model)
        with torch.no_grad():
            baseline = breslow_baseline(particles, y, parts[0].ties, parts[0].stratified)
        for part in parts:
            part.baseline = copy.deepcopy(baseline)
    return fitted


def breslow_baseline(
    log_hazard: Tensor, y: Tensor, ties: Ties = "efron", stratified: bool = False
) -> BaselineHazard:
    """The baseline hazard of rows y with log hazard ratios `(M, N)` of equally likely particles."""
    exact, times = log_hazard.double(), y.double()
    event = times[:, 1]
    sets = RiskSets.of(times[:, 0], event, times[:, 2] if stratified else None)
    log_risk = exact.logsumexp(0) - math.log(len(exact))
    reached, hazard = -math.inf, fitted_hazard(log_risk, sets, ties)
    for _ in range(ROUNDS if len(exact) > 1 else 0):
        died = event * (exact + hazard.log_increment)
        weights = died - (exact + hazard.log_exposure).exp()
        value = float(weights.logsumexp(0).mean())
        log_risk = (exact + weights.log_softmax(0)).logsumexp(0)
        hazard = fitted_hazard(log_risk, sets, ties)
        if value - reached < SETTLED:
            break
        reached = value
    else:
        if len(exact) > 1:
            warnings.warn(UNSETTLED, stacklevel=2)
    strata = times[:, 2] if stratified else torch.zeros_like(event)
    return _by_stratum(times[:, 0], event, strata, hazard.log_cumulative.exp(), y.dtype)


def _by_stratum(
    time: Tensor, event: Tensor, strata: Tensor, cumulative: Tensor, dtype: torch.dtype
) -> BaselineHazard:
    """The baseline hazard of each stratum, from `H₀` at its rows' times; where a stratum has fewer
    times than another, its last time is repeated."""
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
    likelihoods = [part for part in parts if isinstance(part, CoxLikelihood)]
    if not likelihoods:
        raise ValueError(
            f"{type(model).__name__} has no CoxLikelihood, whose baseline hazard this is: fit a "
            "program with one, such as lex(..., classes=None, likelihood=CoxLikelihood())"
        )
    return likelihoods
