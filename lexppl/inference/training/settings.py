"""The settings of a fit: each once, checked."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar, get_args

import torch
from pyro.optim import PyroOptim
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from lexppl.argument_checks import finite_float, int_at_least
from lexppl.inference.mixed_precision import MIXED, Precision
from lexppl.inference.objective.objective import Linear, Schedule, at
from lexppl.inference.stages import OptimizerFactory, Stage
from lexppl.inference.training.watch import Callback, Progress

Method = TypeVar("Method")

Backend = Literal["inductor", "graph"]
BACKENDS: tuple[Backend, ...] = get_args(Backend)

WEIGHT_DECAY = 1e-3  # Adam's default
LEARNING_RATE = Linear(1e-3, 5e-5, begin=0.5)  # Adam's default
GUIDES_RATE = Linear(1e-2, 5e-4, begin=0.5)
"""Adam's default where guides alone learn: at a tenth of it a normal guide of a few hundred weights
has hardly moved after 600 steps."""
EPOCHS, GUIDES_STEPS = 300, 1000
"""Defaults. A posterior of few rows takes as many steps as one of many: a rate that has fallen
after 300 of them leaves some posteriors half as wide as they are, at rest."""


def refuse_instances(optimizer: Any, device: Any) -> None:
    """Refuse an optimizer of other parameters than the fit's, and a device."""
    if isinstance(optimizer, Optimizer | PyroOptim) or not callable(optimizer or id):
        raise TypeError(
            "optimizer must be a function from parameters to a torch optimizer, as "
            "torch.optim.AdamW or partial(torch.optim.SGD, lr=0.1), since fit trains copies of "
            f"the model; it is an instance of {type(optimizer).__name__}"
        )
    if device is not None:
        raise TypeError(
            f"fit takes no device= (it is {device!r}): it runs where rows and model are, so give "
            f"both there, by x.to({str(device)!r}) and model.to({str(device)!r})"
        )


def _plain(method: Method) -> Method:
    """A method without torch's decorators for a step that is compiled."""
    return getattr(method, "__wrapped__", method)


class EagerAdam(torch.optim.Adam):
    """:class:`torch.optim.Adam` without the import of torch's compiler, which takes a second."""

    add_param_group = _plain(Optimizer.add_param_group)
    zero_grad = _plain(Optimizer.zero_grad)
    step = torch.no_grad()(_plain(torch.optim.Adam.step))


@dataclass(frozen=True)
class FitSettings:
    """How a fit is run, as :func:`lexppl.inference.fit` takes it."""

    epochs: int | None = None
    batch_size: int = 500
    folds: int | None = None
    learning_rate: float | Schedule | None = None
    weight_decay: float = WEIGHT_DECAY
    optimizer: OptimizerFactory | None = None
    scheduler: Callable[[Optimizer], LRScheduler] | None = None
    clip_norm: float | None = None
    patience: int | None = None
    seed: int = 0
    compile: bool | Backend = False
    precision: Precision | None = None
    callbacks: Iterable[Callback] = ()
    progress: Progress = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "callbacks", tuple(self.callbacks))
        for name in ("epochs", "batch_size", "folds", "patience"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, int_at_least(name, getattr(self, name)))
        if self.clip_norm is not None and not self.clip_norm > 0.0:
            raise ValueError(f"clip_norm must be positive; it is {self.clip_norm}")
        if self.precision not in (None, MIXED):
            raise ValueError(
                f"precision must be None or {MIXED!r}; it is {self.precision!r}. None is the "
                "model's own: model.double() and rows of float64 make that float64"
            )
        if not isinstance(self.compile, bool) and self.compile not in BACKENDS:
            raise ValueError(
                f"compile must be True, False or one of {list(BACKENDS)}; it is {self.compile!r}"
            )
        finite_float("weight_decay", self.weight_decay, least=0.0)
        if self.learning_rate is not None:
            finite_float("learning_rate", at(self.learning_rate, 0.0), least=0.0)

    @property
    def identity(self) -> dict[str, Any]:
        """The settings that move a bit of the fit, by name."""
        return {n: v for n, v in vars(self).items() if n not in ("callbacks", "progress")}

    @property
    def backend(self) -> Backend | None:
        """What computes gradients by graphs; None for the programs themselves."""
        if self.compile is False:
            return None
        return "inductor" if self.compile is True else self.compile

    def states_decay(self, stage: Stage) -> bool:
        """Whether a stage's weight decay is other than the default."""
        own = stage.optimizer is None and self.optimizer is None
        return not own or self.weight_decay != WEIGHT_DECAY

    def optimizer_of(self, stage: Stage) -> OptimizerFactory:
        """From parameters to the optimizer of a stage."""
        if (given := stage.optimizer or self.optimizer) is not None:
            return given
        rate = LEARNING_RATE if self.learning_rate is None else self.learning_rate
        return partial(EagerAdam, lr=at(rate, 0.0), weight_decay=self.weight_decay, fused=True)

    def rate_of(self, stage: Stage) -> float | Schedule | None:
        """The learning rate over a stage; None where its optimizer has one of its own."""
        is_default = self.learning_rate is None and self.optimizer is None
        if is_default and stage.learning_rate is not None:
            return stage.learning_rate
        if stage.learning_rate is None and stage.optimizer is not None:
            return None
        if is_default and stage.learns_guides_alone:
            return GUIDES_RATE
        if self.optimizer is not None:
            return None
        return LEARNING_RATE if self.learning_rate is None else self.learning_rate

    def epochs_of(self, stage: Stage, rows: int) -> int:
        """The epochs of a stage; by default 300, and for guides alone enough for 1,000 steps."""
        chosen = stage.epochs or self.epochs
        if chosen is not None:
            return chosen
        if not stage.learns_guides_alone:
            return EPOCHS
        return max(EPOCHS, math.ceil(GUIDES_STEPS / math.ceil(rows / self.batch_size)))


@dataclass(frozen=True)
class CompiledSteps:
    """How often gradients were found by a compiled graph, a traced one, the program; and why.

    Example:
        >>> CompiledSteps("inductor", 950, 40, 10).summary
        'inductor: 950 of 1,000 compiled, 40 traced, 10 eager'
    """

    backend: str
    compiled: int = 0
    traced: int = 0
    eager: int = 0
    reasons: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        total = self.compiled + self.traced + self.eager
        counts = f"{self.compiled:,} of {total:,} compiled, {self.traced:,} traced"
        steps = f"{self.backend}: {counts}, {self.eager:,} eager"
        return "; ".join([steps, *self.reasons])
