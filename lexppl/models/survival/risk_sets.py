"""Risk sets of a batch of survival times: the baseline hazard that fits it, and its exposure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lexppl.distributions.log_space import LOG_ZERO, log_add

Ties = Literal["efron", "breslow"]
"""How deaths at the same time share a risk set."""


@dataclass(frozen=True)
class RiskSets:
    """Rows by stratum and, within each, by falling time: of each its place `order`, whether it ends
    by a `death`, its `stratum`, and the `first` and `last` row that ties with it, each `(B,)`."""

    order: Tensor
    death: Tensor
    stratum: Tensor
    first: Tensor
    last: Tensor

    @classmethod
    def of(cls, time: Tensor, event: Tensor, stratum: Tensor | None = None) -> RiskSets:
        """Sort rows of a time, an event, 0 of a censored row, and a stratum, each `(B,)`."""
        stratum = torch.zeros_like(time) if stratum is None else stratum
        order = torch.argsort(time, descending=True, stable=True)
        order = order.take_along_dim(
            torch.argsort(stratum.take_along_dim(order, -1), stable=True), -1
        )
        time, stratum = (each.take_along_dim(order, -1) for each in (time, stratum))
        new_stratum = _changes(stratum)
        new_time = _changes(time) | new_stratum
        places = torch.arange(time.shape[-1], device=time.device)
        ends = torch.cat([new_time[1:], torch.ones_like(new_time[:1])])
        first = torch.where(new_time, places, 0).cummax(-1).values
        last = torch.where(ends, places, len(places)).flip(-1).cummin(-1).values.flip(-1)
        death = event.take_along_dim(order, -1) > 0.5
        return cls(order, death, new_stratum.long().cumsum(-1), first, last)

    @property
    def is_first(self) -> Tensor:
        """Whether a row is the first of those that tie with it."""
        return self.first == torch.arange(len(self.first), device=self.first.device)

    @property
    def next(self) -> Tensor:
        """The first row of the next earlier time, where there is one."""
        return (self.last + 1).clamp(max=len(self.last) - 1)

    @property
    def has_next(self) -> Tensor:
        """Whether the stratum of a row has an earlier time."""
        there = self.last + 1 < len(self.last)
        return there & (self.stratum.take_along_dim(self.next, -1) == self.stratum)

    def sorted(self, value: Tensor) -> Tensor:
        """Values of the rows `(…, B)` in this order."""
        return value.take_along_dim(self.order.expand(value.shape), -1)

    def unsorted(self, value: Tensor) -> Tensor:
        """Values in this order, in that of the rows."""
        return value.take_along_dim(torch.argsort(self.order).expand(value.shape), -1)


@dataclass(frozen=True)
class Hazard:
    """The baseline hazard of a batch, as each row sees it, in the order of the rows: of a death the
    mean of `log Δ` over those that tie with it; the logs of the cumulative hazard that the row has
    lived through, and of all jumps up to its time and at it. Each `(B,)`."""

    log_increment: Tensor
    log_exposure: Tensor
    log_cumulative: Tensor


def fitted_hazard(
    log_risk: Tensor, sets: RiskSets, ties: Ties = "efron", weights: Tensor | None = None
) -> Hazard:
    """The baseline hazard that maximises the likelihood of rows with hazard ratios r. The d deaths
    D(t) among the rows at risk R(t) make the jumps, `l = 0 … d − 1`, `c_l = l/d` (Efron) or 0
    (Breslow),

        Δ_{t,l} = 1 / (Σ_{j∈R(t)} r_j − c_l Σ_{j∈D(t)} r_j),

    of which a death at t is exposed to `Σ_l (1 − c_l) Δ_{t,l}` and all others at risk to the sum.
    With weights each r_j is `w_j r_j`, and each jump has the mean weight of its deaths before it,
    which `log_increment` leaves out.
    """
    risk, death, weight = _weighted(log_risk, sets, weights)
    counted = death.to(risk.dtype)
    at_risk = _running_logsumexp(risk, sets.stratum).take_along_dim(sets.last, -1)
    dead = _over_ties(counted * (risk - at_risk).exp(), sets)
    deaths = _over_ties(counted, sets).clamp(min=1.0)
    share = torch.zeros_like(risk)
    if ties == "efron":
        share = counted * (_rank(counted, sets) - 1.0) / deaths
    left = torch.log1p(-share * dead.clamp(max=1.0))
    mean_jump = -at_risk - _over_ties(counted * left, sets) / deaths
    times = counted if weight is None else counted * _over_ties(counted * weight, sets) / deaths
    whole, own = (_over_ties(times * (part - left).exp(), sets) for part in (0.0, (-share).log1p()))
    jump = torch.where(whole > 0, _log(whole) - at_risk, LOG_ZERO)
    one_each = torch.where(sets.is_first, jump, LOG_ZERO)
    until = _running_logsumexp(one_each.flip(-1), sets.stratum.flip(-1)).flip(-1)
    before = torch.where(sets.has_next, until.take_along_dim(sets.next, -1), LOG_ZERO)
    seen = torch.where(whole > 0, _log(torch.where(death, own, whole)) - at_risk, LOG_ZERO)
    increment = torch.where(death, mean_jump, torch.zeros_like(mean_jump))
    exposure = log_add(before, seen)
    reached = until.take_along_dim(sets.first, -1)
    return Hazard(*(sets.unsorted(each) for each in (increment, exposure, reached)))


def _weighted(
    log_risk: Tensor, sets: RiskSets, weights: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Sorted hazard ratios times weights, in logs, the deaths that count, and the weights."""
    risk = sets.sorted(log_risk)
    if weights is None:
        return risk, sets.death, None
    weight = sets.sorted(weights).to(risk.dtype)
    counts = weight > 0
    risk = torch.where(counts, risk + torch.where(counts, weight, 1.0).log(), LOG_ZERO)
    return risk, sets.death & counts, weight


def _over_ties(value: Tensor, sets: RiskSets) -> Tensor:
    """The sum over all rows that tie, for each of them."""
    summed = torch.zeros_like(value).scatter_add(-1, sets.first, value)
    return summed.take_along_dim(sets.first, -1)


def _rank(counted: Tensor, sets: RiskSets) -> Tensor:
    """Of each death its number among those that tie with it, from 1."""
    running = counted.cumsum(-1)
    return running - (running - counted).take_along_dim(sets.first, -1)


def _log(value: Tensor) -> Tensor:
    """The log where it is finite, else any number, without a NaN among the gradients."""
    return torch.where(value > 0, value, 1.0).log()


def _changes(value: Tensor) -> Tensor:
    """Whether each entry differs from the one before it; the first does."""
    return torch.cat([torch.ones_like(value[:1], dtype=torch.bool), value[1:] != value[:-1]])


def _running_logsumexp(value: Tensor, segment: Tensor) -> Tensor:
    """`logcumsumexp` within each segment of equal numbers, in log₂ B steps; torch's knows no
    segments."""
    step = 1
    while step < value.shape[-1]:
        same = segment[step:] == segment[:-step]
        joined = log_add(value[step:], value[:-step])
        value = torch.cat([value[:step], torch.where(same, joined, value[step:])])
        step *= 2
    return value
