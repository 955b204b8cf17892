"""The baseline hazard of a proportional-hazards model, as a part that is kept with it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lexppl.configured import Configured


class BaselineHazard(Configured, nn.Module):
    r"""The hazard `h₀(t)` of a row whose log hazard ratio is 0, by stratum.

    It is constant between the times of events, so that `H₀(t) = ∫₀ᵗ h₀` goes in straight lines
    through Breslow's estimate at each of them (Breslow 1972); after the last the last one's rate
    goes on.

    Args:
        times: the J different times of events of each stratum, rising, `(S, J)`; a stratum of
            fewer has its last one again. One stratum may be `(J,)`.
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
        times: Tensor | Sequence[float] | Sequence[Sequence[float]],
        cumulative: Tensor | Sequence[float] | Sequence[Sequence[float]],
        strata: Tensor | Sequence[float] = (0.0,),
        last: Tensor | Sequence[float] | None = None,
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
        which, place = self._interval(time, stratum)
        start, reached = (
            self._before(self.times, which, place),
            self._before(self.cumulative, which, place),
        )
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
