"""Values that change as a fit goes on."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lexppl.argument_checks import fraction

Schedule = Callable[[float], float]
"""A value as a function of the progress of a fit, from 0 (start) to 1 (end)."""


@dataclass(frozen=True)
class Linear:
    """Move linearly from one value to another between two points of the fit; constant outside.

        value(t) = first + (last − first) · clip((t − begin) / (end − begin), 0, 1)

    Args:
        first, last: values up to `begin` and from `end` on.
        begin, end: progress of the fit, 0 ≤ begin < end ≤ 1.

    Raises:
        ValueError: not 0 ≤ begin < end ≤ 1.

    Example:
        >>> fading = Linear(0.1, 0.0, end=0.6)
        >>> fading(0.0), fading(0.3), fading(0.6), fading(1.0)
        (0.1, 0.05, 0.0, 0.0)
    """

    first: float
    last: float
    begin: float = 0.0
    end: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.begin < self.end <= 1.0:
            raise ValueError(
                "a schedule needs 0 <= begin < end <= 1, as shares of the fit; "
                f"it has begin={self.begin}, end={self.end}"
            )

    def __call__(self, progress: float) -> float:
        share = min(max((progress - self.begin) / (self.end - self.begin), 0.0), 1.0)
        return self.first + (self.last - self.first) * share


@dataclass(frozen=True)
class Geometric:
    """Move geometrically from one positive value to another: `first^(1−s) · last^s`, s as in
    :class:`Linear`.

    Raises:
        ValueError: a value that is not positive, or not 0 ≤ begin < end ≤ 1.

    Example:
        >>> round(Geometric(1.0, 0.01)(0.5), 6)
        0.1
    """

    first: float
    last: float
    begin: float = 0.0
    end: float = 1.0

    def __post_init__(self) -> None:
        Linear(self.first, self.last, self.begin, self.end)
        if not (self.first > 0.0 and self.last > 0.0):
            raise ValueError(
                f"a geometric schedule needs positive values; it has {self.first} and {self.last}"
            )

    def __call__(self, progress: float) -> float:
        share = Linear(0.0, 1.0, self.begin, self.end)(progress)
        return float(self.first ** (1.0 - share) * self.last**share)


@dataclass(frozen=True)
class WarmUp:
    """Rise linearly from 0 to a value, or to a schedule, over the first share of the fit.

        value(t) = schedule(t) · min(t / share, 1)

    Args:
        schedule: a constant or a schedule.
        share: of the fit, in (0, 1).

    Raises:
        ValueError: a share outside (0, 1).

    Example:
        >>> rate = WarmUp(Linear(3e-3, 0.0, begin=0.7), share=0.1)
        >>> [round(rate(t), 6) for t in (0.0, 0.05, 0.1, 0.7, 0.85)]
        [0.0, 0.0015, 0.003, 0.003, 0.0015]
    """

    schedule: float | Schedule
    share: float = 0.03

    def __post_init__(self) -> None:
        fraction("share", self.share, of="the fit")

    @property
    def end(self) -> float:
        """The progress from which it no longer changes."""
        return max(self.share, settles(self.schedule))

    def __call__(self, progress: float) -> float:
        return at(self.schedule, progress) * min(progress / self.share, 1.0)


def at(schedule: float | Schedule, progress: float) -> float:
    """The value of a constant or a schedule at a point of the fit."""
    return schedule(progress) if callable(schedule) else float(schedule)


def settles(schedule: float | Schedule) -> float:
    """The progress from which the value no longer changes: 0 for a constant, 1 if unknown."""
    return float(getattr(schedule, "end", 1.0)) if callable(schedule) else 0.0


def entropy_unit(y: Tensor, classes: int | None = None, weights: Tensor | None = None) -> float:
    """The entropy of the base rate, in that of a fair coin:

        H(y) / log 2,    H(y) = −Σ_c p_c log p_c,    p_c = (n_c + 1) / (N + C).

    A λ, the annealing's weight and a weight decay times this unit mean the same at every base rate,
    as the likelihood has at most H(y) nats a row. Of a real response the unit is 1, the gain of a
    predictor with R² = ¾ over the mean, `−½ log(1 − R²) = log 2`.

    Args:
        y: labels `(N,)` of an integer type; probabilities `(N, C)`; or responses `(N,)`, floating.
        classes: C; the largest label and one if None.
        weights: how often each row counts in `n_c` and N, `(N,)`; None for once.

    Raises:
        ValueError: no rows, another shape, fewer than two classes.

    Example:
        >>> entropy_unit(torch.tensor([0, 1, 1, 0])), entropy_unit(torch.randn(9))
        (1.0, 1.0)
    """
    if len(y) == 0 or y.dim() not in (1, 2):
        raise ValueError(f"y must be (N,) or (N, C), N >= 1; it has shape {tuple(y.shape)}")
    if y.dim() == 1 and y.is_floating_point():
        return 1.0
    if y.dim() == 2:
        shares = y.double() if weights is None else y.double() * weights.double()[:, None]
        counts = shares.sum(0)
    else:
        times = None if weights is None else weights.double()
        counts = torch.bincount(y.long(), times, minlength=classes or 0).double()
    if len(counts) < 2:
        raise ValueError(
            "y has one label only, and there is no information in it: give classes=, if there are "
            "more"
        )
    share = (counts + 1.0) / (counts + 1.0).sum()
    return float(-(share * share.log()).sum()) / math.log(2.0)
