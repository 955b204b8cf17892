"""Objectives that change as a fit goes on, and their schedules."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

import torch
from pyro.infer import ELBO, TraceEnum_ELBO
from torch import Tensor, nn

from lexppl.argument_checks import fraction, shaped
from lexppl.effects import weights_first
from lexppl.inference.contexts import plate_errors_explained

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
class Geometric(Linear):
    """Move geometrically from one positive value to another: `first^(1−s) · last^s`, s as in
    :class:`Linear`.

    Raises:
        ValueError: a value that is not positive, or not 0 ≤ begin < end ≤ 1.

    Example:
        >>> round(Geometric(1.0, 0.01)(0.5), 6)
        0.1
    """

    def __post_init__(self) -> None:
        super().__post_init__()
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
    shaped("y", y, "N", "N C", filled=True)
    if y.dim() == 1 and y.is_floating_point():
        return 1.0
    if y.dim() == 2:
        shares = y.double() if weights is None else y.double() * weights.double()[:, None]
        counts = shares.sum(0)
    else:
        times = None if weights is None else weights.double()
        counts = torch.bincount(y.long(), times, minlength=classes or 0).double()
    if len(counts) < 2:
        raise ValueError("y has one label only: give classes=, if there are more")
    share = (counts + 1.0) / (counts + 1.0).sum()
    return float(-(share * share.log()).sum()) / math.log(2.0)


@dataclass(frozen=True)
class Moving:
    """What of an objective changes in a fit: `kind` decides operations, `numbers` are inputs."""

    kind: Hashable = None
    numbers: Mapping[str, float] = field(default_factory=dict)


class Objective(ELBO):
    """A `pyro.infer.ELBO` with what a fit asks of it.

    An objective of a user's derives from it and gives a `differentiable_loss`: **the sum over the
    rows of a batch times N/B** (:func:`lexppl.inference.batch_scale`), an estimate of the whole
    data set's. Objectives that run the program's plates, as :class:`NestedIWAE` does, have it so.
    The first step refuses a loss that depends on the rows and not on N, such as a mean.

    Example:
        >>> from lexppl.inference import batch_scale
        >>> class Squares(Objective):
        ...     def differentiable_loss(self, model, guide, *args, **kwargs):
        ...         return batch_scale() * (model(*args) - args[1]).square().sum()
        >>> Squares().at(0.5).settled, Squares().summary
        (0.0, 'Squares()')
    """

    vectorised: ClassVar[bool] = True
    """Whether replicates can be run as one under `torch.func.vmap`."""

    watched: ClassVar[bool] = True
    """Whether a collapse of the masks is looked for after the fit: it is where they are learned."""

    reads_scales: ClassVar[bool] = False
    """Whether it multiplies the terms of a site by the site's scale, which is how rows are
    weighted."""

    settled: float = 0.0
    """The progress of the fit from which the objective no longer changes, in [0, 1]."""

    @property
    def control_parameters(self) -> tuple[nn.Module, ...]:
        """Modules that a fit tunes to lessen the gradient's variance."""
        return ()

    @property
    def modules(self) -> tuple[nn.Module, ...]:
        """Modules that it reads, such as an estimator's baseline."""
        return ()

    @property
    def summary(self) -> str:
        """The objective in a line."""
        return f"{type(self).__name__}()"

    def at(self, progress: float) -> Objective:
        """The objective as it stands at a point of the fit, from 0 (start) to 1 (end)."""
        return self

    @property
    def moving(self) -> Moving | None:
        """What of it changes with :meth:`at`; None where that is not known, and no step is
        compiled."""
        return Moving() if type(self).at is Objective.at else None

    def with_numbers(self, numbers: Mapping[str, Tensor]) -> Objective:
        """The objective with 0-dimensional tensors in place of the numbers of :attr:`moving`."""
        return self

    def refuse_uncovered(self, model: Mapping[str, Any], guide: Mapping[str, Any]) -> None:
        """Refuse a latent that no guide covers, where the objective would misread it.

        Args:
            model, guide: the sample nodes of the programs, by name.
        """

    def differentiable_loss(
        self, model: Callable[..., Any], guide: Callable[..., Any] | None, *args: Any, **kwargs: Any
    ) -> Tensor:
        """The loss in nats of all N rows, a scalar with a gradient."""
        raise NotImplementedError(f"{type(self).__name__} has no differentiable_loss")

    def _get_trace(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"{type(self).__name__} runs model and guide itself")


WHAT_WORKS = (
    "NestedIWAE(masks=L) is the importance-weighted bound and NestedIWAE(1, samples=S) the ELBO; "
    "of Pyro's own, Trace_ELBO, TraceMeanField_ELBO and TraceEnum_ELBO can be fitted"
)
OF_A_FIT = ("at", "settled", "control_parameters")
"""What a fit asks of an :class:`Objective`, and would not see in another."""


class PyroObjective(Objective):
    """A plain ELBO (copied) as an objective of a fit, with particle plates of size one."""

    vectorised: ClassVar[bool] = False
    watched: ClassVar[bool] = False
    reads_scales: ClassVar[bool] = True

    def __init__(self, elbo: ELBO) -> None:
        super().__init__(max_plate_nesting=elbo.max_plate_nesting)
        self.elbo = copy.copy(elbo)

    @property
    def summary(self) -> str:
        return f"{type(self.elbo).__name__}()"

    def refuse_uncovered(self, model: Mapping[str, Any], guide: Mapping[str, Any]) -> None:
        """Refuse a latent that no guide covers, as its log-prior would be added to the bound."""
        listed = isinstance(self.elbo, TraceEnum_ELBO)
        for name, node in model.items():
            enumerated = listed and node["infer"].get("enumerate") == "parallel"
            if node["is_observed"] or name in guide or enumerated:
                continue
            raise ValueError(
                f"{type(self.elbo).__name__} counts the prior of {name!r}, which no guide covers: "
                "add it to the guide, enumerate it (infer={'enumerate': 'parallel'} under "
                "TraceEnum_ELBO), or use NestedIWAE, which proposes it from the model"
            )

    def differentiable_loss(
        self, model: Callable[..., Any], guide: Callable[..., Any] | None, *args: Any, **kwargs: Any
    ) -> Tensor:
        guide = _nothing if guide is None else weights_first(guide)
        model = weights_first(model)
        if not torch.is_grad_enabled():
            # TraceEnum_ELBO refuses a loss that has no gradient.
            return torch.tensor(self.elbo.loss(model, guide, *args, **kwargs))
        with plate_errors_explained():
            return self.elbo.differentiable_loss(model, guide, *args, **kwargs)


def as_objective(objective: Any) -> Objective:
    """An objective of a fit: as it is, or a plain ELBO that gives a loss to differentiate."""
    if isinstance(objective, Objective):
        return objective
    name = type(objective).__name__
    if not hasattr(objective, "differentiable_loss"):
        raise TypeError(
            f"objective must be a pyro.infer.ELBO with a differentiable_loss; it is {name}. "
            f"{WHAT_WORKS}"
        )
    if name.startswith("Jit"):
        raise TypeError(f"{name} is compiled for one batch and one model. {WHAT_WORKS}")
    unseen = [what for what in OF_A_FIT if hasattr(objective, what)]
    if unseen:
        raise TypeError(
            f"{name} has {unseen}, which a fit reads of a lexppl.inference.Objective alone; derive "
            f"{name} from it"
        )
    return PyroObjective(objective)


def _nothing(*args: Any, **kwargs: Any) -> None:
    """A guide without latents."""
