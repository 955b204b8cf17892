"""Survival times under known hazards: the baseline hazard, and proportional hazards over it."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor, nn
from torch.distributions.constraints import Constraint

from lexppl.configured import Configured

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
        models, *own = self.components.shape
        batch = torch.Size(batch_shape)
        aligned = self.components.reshape(models, *(1,) * (len(batch) - len(own)), *own)
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
        each = self.expand(sample_shape + self.batch_shape).components
        which = torch.randint(len(each), each.shape[1:], device=each.device)
        log_hazard = each.gather(0, which.unsqueeze(0)).squeeze(0)
        return torch.empty_like(log_hazard).exponential_() / log_hazard.exp()


def log_mean(value: Tensor) -> Tensor:
    """`log 1/C Σ exp` over the first dimension."""
    if len(value) == 1:
        return value[0]
    return value.logsumexp(0) - math.log(len(value))


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
        each = time.unsqueeze(-1).expand(len(time), self.batch_shape[-1])
        reached = self.baseline.cumulative_at(each, stratum)
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
        """Cumulative baseline hazard `H₀(t)`, of the shape of `time`."""
        which, place = self._interval(time, stratum)
        start = self._before(self.times, which, place)
        reached = self._before(self.cumulative, which, place)
        return reached + self._rate(which, place) * (time - start)

    def log_hazard_at(self, time: Tensor, stratum: Tensor | None = None) -> Tensor:
        """`log h₀(t)`, a time's reciprocal unit, of the shape of `time`."""
        return self._rate(*self._interval(time, stratum)).log()

    def time_of(self, cumulative: Tensor, stratum: Tensor | None = None) -> Tensor:
        """The time at which `H₀` reaches a value, of the same shape."""
        which = self._row_of(cumulative, stratum)
        place = self._place(self.cumulative, which, cumulative)
        start = self._before(self.times, which, place)
        reached = self._before(self.cumulative, which, place)
        return start + (cumulative - reached) / self._rate(which, place)

    def knows(self, stratum: Tensor) -> Tensor:
        """Whether it has a hazard for each of some strata."""
        return (stratum.unsqueeze(-1) == self.strata).any(-1)

    def _row_of(self, like: Tensor, stratum: Tensor | None) -> Tensor:
        if stratum is None:
            return torch.zeros_like(like, dtype=torch.long)
        return (stratum.unsqueeze(-1) == self.strata).long().argmax(-1).expand(like.shape)

    def _interval(self, time: Tensor, stratum: Tensor | None) -> tuple[Tensor, Tensor]:
        which = self._row_of(time, stratum)
        return which, self._place(self.times, which, time)

    def _place(self, ends: Tensor, which: Tensor, value: Tensor) -> Tensor:
        """The interval that a value is in: the first whose end is not before it, else the last
        that has a length."""
        values = value.flatten().expand(len(ends), -1).contiguous()
        places = torch.searchsorted(ends.contiguous(), values)
        place = places.gather(0, which.reshape(1, -1)).reshape(value.shape)
        last = (self.times[:, 1:] > self.times[:, :-1]).sum(-1)
        return torch.minimum(place, last[which])

    def _before(self, ends: Tensor, which: Tensor, place: Tensor) -> Tensor:
        found = ends[which, (place - 1).clamp(min=0)]
        return torch.where(place > 0, found, torch.zeros_like(found))

    def _rate(self, which: Tensor, place: Tensor) -> Tensor:
        length = self.times[which, place] - self._before(self.times, which, place)
        gained = self.cumulative[which, place] - self._before(self.cumulative, which, place)
        return gained / length


def _check(times: Tensor, cumulative: Tensor, strata: Tensor, last: Tensor) -> None:
    if times.shape != cumulative.shape or times.dim() != 2 or times.numel() == 0:
        raise ValueError(
            "times and cumulative must have the same shape (S, J), J >= 1; they have "
            f"{tuple(times.shape)} and {tuple(cumulative.shape)}"
        )
    if strata.shape != times.shape[:1] or last.shape != times.shape[:1]:
        raise ValueError(
            f"strata and last must have shape ({len(times)},), one for each row of times; they "
            f"have {tuple(strata.shape)} and {tuple(last.shape)}"
        )
    for name, value in (("times", times), ("cumulative", cumulative)):
        falls = bool((value[:, 1:] < value[:, :-1]).any())
        if falls or not bool((value.isfinite() & (value > 0)).all()):
            raise ValueError(f"{name} must be finite, positive and rising in each stratum")
