"""Survival: likelihoods of times under known hazards, and Cox's partial likelihood of a batch."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, get_args

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor, nn
from torch.distributions.constraints import Constraint

from lexppl.argument_checks import one_of, shaped
from lexppl.configured import Configured
from lexppl.distributions.log_space import LOG_ZERO, log_add, log_cumulative_sum
from lexppl.effects import row_weights
from lexppl.models.likelihoods import Likelihood, refuse_values

Numbers = Tensor | Sequence[float] | Sequence[Sequence[float]]


class _SurvivalTimes(Constraint):
    """Rows of a positive time, an event of 0 or 1, and perhaps a stratum: `(…, 2 or 3)`."""

    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        time, event = value[..., 0], value[..., 1]
        return (time > 0) & time.isfinite() & ((event == 0) | (event == 1))


class MeanHazards(TorchDistribution):
    """Times under the hazards `h₀(t) exp f_c` of C models, `components` `(C, …, B)`, whose
    densities are averaged."""

    arg_constraints: ClassVar[dict[str, Any]] = {}
    support = _SurvivalTimes()
    has_rsample = False

    def __init__(
        self,
        log_hazard: Tensor | None,
        stratified: bool,
        components: Tensor | None,
        validate_args: bool | None,
    ) -> None:
        if components is None:
            if log_hazard is None:
                raise ValueError("give log_hazard (…, B), or components (C, …, B)")
            components = log_hazard.unsqueeze(0)
        self.components, self.stratified = components, stratified
        event = torch.Size([3 if stratified else 2])
        super().__init__(components.shape[1:], event, validate_args=validate_args)

    @property
    def log_hazard(self) -> Tensor:
        """f, `(…, B)`; of several models the log of their mean hazard ratio."""
        return log_mean(self.components)

    @property
    def mean(self) -> Tensor:
        """There is none: NotImplementedError."""
        raise NotImplementedError(
            "rows that are followed for a while have no mean survival time: see predict_survival "
            "and log_hazard_ratio of lexppl.evaluation"
        )

    def expand(self, batch_shape: Any, _instance: Any = None) -> Self:
        models, *rows = self.components.shape
        batch = torch.Size(batch_shape)
        aligned = self.components.reshape(models, *(1,) * (len(batch) - len(rows)), *rows)
        return self._like(aligned.expand(models, *batch))

    @classmethod
    def mean_of(cls, distributions: Sequence[Self]) -> Self:
        """The mean of several models' densities, under one baseline."""
        return distributions[0]._like(torch.cat([d.components for d in distributions]))

    @classmethod
    def joined(cls, distributions: Sequence[Self]) -> Self:
        """The rows of several models, block after block."""
        return distributions[0]._like(torch.cat([d.components for d in distributions], -1))

    def _like(self, components: Tensor) -> Self:
        """The same distribution of other hazards."""
        new = copy.copy(self)
        new.components = components
        TorchDistribution.__init__(new, components.shape[1:], self.event_shape, validate_args=False)
        return new

    def _waited(self, sample_shape: torch.Size) -> Tensor:
        """The cumulative baseline hazard at the event: `E/e^f` of a component at random."""
        components = self.expand(sample_shape + self.batch_shape).components
        which = torch.randint(len(components), components.shape[1:], device=components.device)
        log_hazard = components.gather(0, which.unsqueeze(0)).squeeze(0)
        return torch.empty_like(log_hazard).exponential_() / log_hazard.exp()


def log_mean(value: Tensor) -> Tensor:
    """`log 1/C Σ exp` over the first dimension."""
    return value[0] if len(value) == 1 else value.logsumexp(0) - math.log(len(value))


class ProportionalHazards(MeanHazards):
    """Times t under the hazard `h₀(t) exp f`, seen (1) or censored (0), of rows (t, δ) or (t, δ,
    stratum):

        log p(t, δ | f) = δ (f + log h₀(t)) − e^f H₀(t),

    a density in the reciprocal of the time's unit, or the probability of no event before the
    censoring. Draws are times of events, censored at the end of the rows that the baseline is of.

    Args:
        log_hazard: f, `(…, B)`.
        baseline: h₀ and H₀.
        stratified: whether rows have strata; of a draw it is the first.
        components: f of several models, `(C, …, B)`, whose densities are averaged, in place of
            `log_hazard`.

    Example:
        >>> baseline = BaselineHazard([1.0, 2.0], [0.5, 1.0])
        >>> ProportionalHazards(torch.zeros(1), baseline).log_prob(torch.tensor([[2.0, 0.0]]))
        tensor([-1.])
    """

    couples_rows = False

    def __init__(
        self,
        log_hazard: Tensor | None,
        baseline: BaselineHazard,
        stratified: bool = False,
        *,
        components: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self.baseline = baseline
        super().__init__(log_hazard, stratified, components, validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        value = value.to(self.components.dtype)
        time, event = value[..., 0], value[..., 1]
        stratum = value[..., 2] if self.stratified else None
        log_hazard = self.baseline.log_hazard_at(time, stratum)
        cumulative = self.baseline.cumulative_at(time, stratum)
        died = torch.where(event > 0.5, self.components + log_hazard, 0.0)
        return log_mean(died - self.components.exp() * cumulative)

    def survival(self, time: Tensor, stratum: Tensor | None = None) -> Tensor:
        """`S(t | f) = exp(−e^f H₀(t))`, `(T, …, B)`, of several models their mean.

        Args:
            time: `(T,)`.
            stratum: of each row, `(B,)`, or None.
        """
        times = time.unsqueeze(-1).expand(len(time), self.batch_shape[-1])
        reached = self.baseline.cumulative_at(times, stratum)
        between = (1,) * (len(self.batch_shape) - 1)
        reached = reached.reshape(len(time), 1, *between, reached.shape[-1])
        return (-self.components.exp() * reached).exp().mean(1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with torch.no_grad():
            reached = self.baseline.time_of(self._waited(torch.Size(sample_shape)))
            end = self.baseline.last[0]
            event = (reached <= end).to(reached.dtype)
            columns = [torch.minimum(reached, end), event]
            if self.stratified:
                columns.append(self.baseline.strata[0].expand(reached.shape))
            return torch.stack(columns, -1)


class BaselineHazard(Configured, nn.Module):
    """The hazard `h₀(t)` of a row whose log hazard ratio is 0, by stratum.

    It is constant between the times of events, so that `H₀(t) = ∫₀ᵗ h₀` goes in straight lines
    through Breslow's estimate at each of them (Breslow 1972); after the last the last one's rate
    goes on.

    Args:
        times: the J different times of events of each stratum, rising, `(S, J)`; a stratum of fewer
            has its last one again. One stratum may be `(J,)`.
        cumulative: `H₀` at these times, the same shape, rising.
        strata: the numbers of the S strata.
        last: the last time at which a row was followed, of each stratum, `(S,)`; that of the last
            event if None.

    Raises:
        ValueError: shapes that do not fit, times or hazards that are not positive or fall.

    Example:
        >>> baseline = BaselineHazard([2.0, 4.0], [0.1, 0.5])
        >>> baseline.cumulative_at(torch.tensor([1.0, 3.0, 5.0]))
        tensor([0.0500, 0.3000, 0.7000])
    """

    times: Tensor
    cumulative: Tensor
    strata: Tensor
    last: Tensor

    def __init__(
        self,
        times: Numbers,
        cumulative: Numbers,
        strata: Numbers = (0.0,),
        last: Numbers | None = None,
    ) -> None:
        super().__init__()
        dtype = times.dtype if isinstance(times, Tensor) else torch.get_default_dtype()
        when = torch.atleast_2d(torch.as_tensor(times, dtype=dtype))
        hazard = torch.atleast_2d(torch.as_tensor(cumulative, dtype=dtype))
        numbers = torch.as_tensor(strata, dtype=dtype)
        end = when[:, -1].clone() if last is None else torch.as_tensor(last, dtype=dtype)
        _check(when, hazard, numbers, end)
        self.register_buffer("times", when)
        self.register_buffer("cumulative", hazard)
        self.register_buffer("strata", numbers)
        self.register_buffer("last", end)

    def cumulative_at(self, time: Tensor, stratum: Tensor | None = None) -> Tensor:
        """`H₀(t)`, of the shape of `time`."""
        start, reached, rate = self._piece(self.times, time, stratum)
        return reached + rate * (time - start)

    def log_hazard_at(self, time: Tensor, stratum: Tensor | None = None) -> Tensor:
        """`log h₀(t)`, a time's reciprocal unit, of the shape of `time`."""
        return self._piece(self.times, time, stratum)[2].log()

    def time_of(self, cumulative: Tensor, stratum: Tensor | None = None) -> Tensor:
        """The time at which `H₀` reaches a value, of the same shape."""
        start, reached, rate = self._piece(self.cumulative, cumulative, stratum)
        return start + (cumulative - reached) / rate

    def knows(self, stratum: Tensor) -> Tensor:
        """Whether it has a hazard for each of some strata."""
        return (stratum.unsqueeze(-1) == self.strata).any(-1)

    def _piece(
        self, ends: Tensor, value: Tensor, stratum: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The piece of `H₀` that a value of the kind of `ends` is in: the time and the hazard at
        its start, and its rate."""
        row = torch.zeros_like(value, dtype=torch.long)
        if stratum is not None:
            row = (stratum.unsqueeze(-1) == self.strata).long().argmax(-1).expand(value.shape)
        place = self._place(ends, row, value)
        start, reached = (
            torch.where(place > 0, numbers[row, (place - 1).clamp(min=0)], 0.0)
            for numbers in (self.times, self.cumulative)
        )
        rate = (self.cumulative[row, place] - reached) / (self.times[row, place] - start)
        return start, reached, rate

    def _place(self, ends: Tensor, row: Tensor, value: Tensor) -> Tensor:
        """The interval that a value is in: the first whose end is not before it, else the last
        that has a length."""
        values = value.flatten().expand(len(ends), -1).contiguous()
        places = torch.searchsorted(ends.contiguous(), values)
        place = places.gather(0, row.reshape(1, -1)).reshape(value.shape)
        last = (self.times[:, 1:] > self.times[:, :-1]).sum(-1)
        return torch.minimum(place, last[row])


def _check(times: Tensor, cumulative: Tensor, strata: Tensor, last: Tensor) -> None:
    shape = shaped("times", times, "S J", filled=True)
    shaped("cumulative", cumulative, shape)
    shaped("strata", strata, shape[:1])
    shaped("last", last, shape[:1])
    for name, value in (("times", times), ("cumulative", cumulative)):
        falls = bool((value[:, 1:] < value[:, :-1]).any())
        if falls or not bool((value.isfinite() & (value > 0)).all()):
            raise ValueError(f"{name} must be finite, positive and rising in each stratum")


Ties = Literal["efron", "breslow"]  # How deaths at the same time share a risk set


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
        time, stratum = (values.take_along_dim(order, -1) for values in (time, stratum))
        new_stratum = _changes(stratum)
        new_time = _changes(time) | new_stratum
        places = torch.arange(time.shape[-1], device=time.device)
        ends = torch.cat([new_time[1:], torch.ones_like(new_time[:1])])
        first = torch.where(new_time, places, 0).cummax(-1).values
        last = torch.where(ends, places, len(places)).flip(-1).cummin(-1).values.flip(-1)
        death = event.take_along_dim(order, -1) > 0.5
        return cls(order, death, new_stratum.long().cumsum(-1), first, last)

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
        """Values of the rows `(…, B)` in the order of the risk sets."""
        return value.take_along_dim(self.order.expand(value.shape), -1)


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
    at_risk = log_cumulative_sum(risk, sets.stratum).take_along_dim(sets.last, -1)
    dead = _over_ties(counted * (risk - at_risk).exp(), sets)
    deaths = _over_ties(counted, sets).clamp(min=1.0)
    share = torch.zeros_like(risk)
    if ties == "efron":
        share = counted * (_rank(counted, sets) - 1.0) / deaths
    left = torch.log1p(-share * dead.clamp(max=1.0))
    mean_jump = -at_risk - _over_ties(counted * left, sets) / deaths
    times = counted if weight is None else counted * _over_ties(counted * weight, sets) / deaths
    whole, died = (_over_ties(times * (log - left).exp(), sets) for log in (0.0, (-share).log1p()))
    jump = torch.where(whole > 0, _log(whole) - at_risk, LOG_ZERO)
    places = torch.arange(len(jump), device=jump.device)
    jumps = torch.where(sets.first == places, jump, LOG_ZERO)
    until = log_cumulative_sum(jumps.flip(-1), sets.stratum.flip(-1)).flip(-1)
    before = torch.where(sets.has_next, until.take_along_dim(sets.next, -1), LOG_ZERO)
    seen = torch.where(whole > 0, _log(torch.where(death, died, whole)) - at_risk, LOG_ZERO)
    increment = torch.where(death, mean_jump, torch.zeros_like(mean_jump))
    exposure = log_add(before, seen)
    reached = until.take_along_dim(sets.first, -1)
    back = torch.argsort(sets.order)
    return Hazard(*(values.take_along_dim(back, -1) for values in (increment, exposure, reached)))


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


class PartialLikelihood(MeanHazards):
    """Survival times under a hazard `h₀(t) exp f_n`, whose baseline is fitted to the batch.

    A row's value is its time t, whether its event happened then (1) or it was censored (0), and,
    where `stratified`, its stratum's number. With `f` the log hazard ratios, row n has the
    log-density

        ℓ_n(f) = δ_n (f_n + log ĥ(t_n)) − exp(f_n) Ĥ(t_n) + δ_n,

    with ĥ the jumps of the baseline hazard that the B rows of the batch are likeliest under
    (:func:`lexppl.models.survival.fitted_hazard`). Summed over the rows it is the log
    partial likelihood (Cox 1972, 1975), of ties by Efron's or Breslow's formula, with gradient and
    all derivatives (Johansen 1983):

        Σ_n ℓ_n = Σ_t [ Σ_{i∈D(t)} f_i − Σ_l log( Σ_{j∈R(t)} e^{f_j} − c_l Σ_{j∈D(t)} e^{f_j} ) ].

    **Particles**, dimensions left of the rows, share ĥ: that of the mean hazard ratio of each row
    over its M particles. The nested bound of L masks and K imputations is then a bound on the
    partial likelihood of all rows' masks together,

        E[ Σ_n log 1/(LK) Σ_{l,k} exp ℓ_n(f_{lk}) ]  ≤  log E_{z_1 … z_B, x̃_1 … x̃_B}[ PL(f) ].

    A score-function gradient that judges a mask by its row's term, as
    :class:`lexppl.inference.LeaveOneOut`'s does, has a bias of order 1/B for it: a mask moves other
    rows' terms through ĥ.

    **Mini-batches.** Risk sets are those of the batch: the maximum is at the same f if the hazards
    are proportional, and of another function where they are not (Kvamme, Borgan & Scheel 2019).
    Take batches as large as can be. Held-out rows are compared with each other.

    A draw is the time at which the cumulative baseline hazard reaches `E/e^f`, E exponential: in
    the order that the model gives, without a unit, and never censored. After
    :func:`lexppl.evaluation.with_baseline` times have the unit of the data.

    Args:
        log_hazard: f, `(…, B)`.
        ties: "efron" or "breslow".
        stratified: whether rows have strata, each with a baseline of its own.
        weights: how often each row counts in the risk sets, `(B,)`; None for once. How often its
            own ℓ counts is for the program to say.
        components: f of several models, `(C, …, B)`, in place of `log_hazard`: the density is their
            mean.

    Example:
        >>> rows = torch.tensor([[1.0, 1.0], [2.0, 0.0], [3.0, 1.0]])
        >>> round(float(PartialLikelihood(torch.zeros(3)).log_prob(rows).sum()), 4)
        -1.0986
    """

    couples_rows = True  # Whether what a row's density is depends on the other rows of its batch

    def __init__(
        self,
        log_hazard: Tensor | None = None,
        ties: Ties = "efron",
        stratified: bool = False,
        weights: Tensor | None = None,
        *,
        components: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self.ties, self.weights = ties, weights
        super().__init__(log_hazard, stratified, components, validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        time, event = value[..., 0], value[..., 1].to(self.components.dtype)
        note = "as rows of a partial likelihood are observed alike in all particles"
        shaped("y", value, ("B", *self.event_shape), note=note)
        stratum = value[..., 2] if self.stratified else None
        particles = self.components.reshape(-1, self.components.shape[-1])
        hazard = fitted_hazard(
            log_mean(particles), RiskSets.of(time, event, stratum), self.ties, self.weights
        )
        died = event * (self.components + hazard.log_increment + 1.0)
        return log_mean(died - (self.components + hazard.log_exposure).exp())

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with torch.no_grad():
            time = self._waited(torch.Size(sample_shape))
            columns = [time, torch.ones_like(time)]
            if self.stratified:
                columns.append(torch.zeros_like(time))
            return torch.stack(columns, -1)


class CoxLikelihood(Likelihood):
    """The hazard of an event at time t is `h₀(t) exp f`, from one output f, the log hazard ratio.

    y is `(N, 2)`, the time and whether the event happened then (1) or the row was censored (0), or
    `(N, 3)` with the number of the row's stratum besides. Without a baseline, as in a fit, rows are
    judged by the partial likelihood of their batch
    (`PartialLikelihood`); with that of
    :func:`lexppl.evaluation.with_baseline` each has a density and survival curves of its own
    (`ProportionalHazards`).

    Args:
        ties: how events at the same time share a risk set: "efron" or "breslow".
        stratified: whether each stratum has a baseline of its own, f being common to them.
        baseline: the hazard of `f = 0`, or None.

    Raises:
        ValueError: ties of another name.

    Source:
        Cox, D. R. Regression models and life-tables. JRSS B 34, 1972. Efron, B. The efficiency of
        Cox's likelihood function for censored data. JASA 72, 1977. Kvamme, Borgan, Scheel.
        Time-to-event prediction with neural networks and Cox regression. JMLR 20, 2019.

    Example:
        >>> CoxLikelihood().check_responses(torch.tensor([[5.0, 1.0], [-8.0, 0.0]]))
        Traceback (most recent call last):
        ValueError: times of y must be positive and finite; 1 of 2 are not, the first in row 1: -8
    """

    discrete = False
    responses = "survival times, and whether the event happened then"

    def __init__(
        self, ties: Ties = "efron", stratified: bool = False, baseline: BaselineHazard | None = None
    ) -> None:
        super().__init__()
        self.ties: Ties = one_of(get_args(Ties), "ties", ties)
        self.stratified = bool(stratified)
        self.baseline = baseline

    def forward(self, outputs: Tensor) -> TorchDistribution:
        log_hazard = outputs.squeeze(-1)
        if self.baseline is not None:
            return ProportionalHazards(log_hazard, self.baseline, self.stratified)
        return PartialLikelihood(log_hazard, self.ties, self.stratified, row_weights())

    def check_responses(self, y: Tensor) -> None:
        """Refuse what is no survival time.

        Raises:
            ValueError: another shape, times that are not positive and finite, events other than 0
                and 1, no event at all, a stratum that the baseline does not know.
        """
        named = "columns time, event" + ", stratum" * self.stratified
        shaped("y", y, ("N", 2 + self.stratified), note=named)
        time, event = y[:, 0], y[:, 1]
        refuse_values(
            "times of y must be positive and finite", time, ~((time > 0) & time.isfinite())
        )
        refuse_values(
            "events of y must be 1, or 0 of a censored row", event, event * (event - 1) != 0
        )
        if self.stratified:
            stratum = y[:, 2]
            refuse_values("strata of y must be finite numbers", stratum, ~stratum.isfinite())
            if self.baseline is not None:
                unknown = ~self.baseline.knows(stratum)
                refuse_values("strata of y must be those of the baseline", stratum, unknown)
        if self.baseline is None and not bool((event == 1).any()):
            raise ValueError(f"y has no event: all {len(y)} rows are censored")
