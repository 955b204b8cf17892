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
NO_BIT = ("distributed", "callbacks", "progress")  # Settings that move no bit of a fit


def _plain(method: Method) -> Method:
    """A method without torch's decorators for a step that is compiled."""
    return getattr(method, "__wrapped__", method)


class EagerAdam(torch.optim.Adam):
    """:class:`torch.optim.Adam` without the import of torch's compiler, which takes a second."""

    add_param_group = _plain(Optimizer.add_param_group)
    zero_grad = _plain(Optimizer.zero_grad)
    step = torch.no_grad()(_plain(torch.optim.Adam.step))


@dataclass(frozen=True)
class TrainingOptions:
    """Settings of training that few fits change: `fit(…, training=TrainingOptions(patience=20))`.

    Args:
        scheduler: from the optimizer to a learning-rate schedule, stepped once an epoch.
        clip_norm: largest norm of a replicate's gradient.
        patience: epochs without improvement in any replicate after which a stage ends, once the
            objective's schedules have settled; None to run all.
        compile: True to compute gradients by compiled graphs, equal to rounding, after a minute of
            compiling a term; "graph" for traced graphs, the same bits in about half the time. What
            cannot be compiled runs as it is, with a warning and `FitResult.compiled`.
        precision: "bf16-mixed" to round the factors of products of learned linear layers and
            convolutions to bf16; None for the model's own.
        distributed: whether processes that `torchrun` has started share each batch: None where a
            `torch.distributed` process group is initialised; True to initialise one; a group; False
            for a fit in each. Each is given the same rows and arguments; batch norm and penalties
            outside the plate over rows are of a process's part of the batch.
        callbacks: called after each epoch with an :class:`Epoch`.

    Raises:
        ValueError: patience or clip_norm that is not positive, a precision or a way to compile that
            is none of these.

    Example:
        >>> TrainingOptions(patience=0)
        Traceback (most recent call last):
        ValueError: patience must be a whole number of at least 1; it is 0
    """

    scheduler: Callable[[Optimizer], LRScheduler] | None = None
    clip_norm: float | None = None
    patience: int | None = None
    compile: bool | Backend = False
    precision: Precision | None = None
    distributed: Any = None
    callbacks: Iterable[Callback] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "callbacks", tuple(self.callbacks))
        self._check_counts("patience")
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

    def _check_counts(self, *names: str) -> None:
        for name in names:
            if (count := getattr(self, name)) is not None:
                object.__setattr__(self, name, int_at_least(name, count))


@dataclass(frozen=True)
class FitSettings(TrainingOptions):
    """How a fit is run: the settings that :func:`lexppl.inference.fit` takes, and the options."""

    epochs: int | None = None
    batch_size: int = 500
    folds: int | None = None
    learning_rate: float | Schedule | None = None
    weight_decay: float = WEIGHT_DECAY
    optimizer: OptimizerFactory | None = None
    seed: int = 0
    progress: Progress = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_counts("epochs", "batch_size", "folds")
        if isinstance(self.optimizer, Optimizer | PyroOptim) or not callable(self.optimizer or id):
            raise TypeError(
                "optimizer must be a function from parameters to a torch optimizer, as "
                "torch.optim.AdamW or partial(torch.optim.SGD, lr=0.1), since fit trains copies of "
                f"the model; it is an instance of {type(self.optimizer).__name__}"
            )
        finite_float("weight_decay", self.weight_decay, least=0.0)
        if self.learning_rate is not None:
            finite_float("learning_rate", at(self.learning_rate, 0.0), least=0.0)

    @property
    def identity(self) -> dict[str, Any]:
        """The settings that move a bit of the fit, by name."""
        return {n: v for n, v in vars(self).items() if n not in NO_BIT}

    @property
    def backend(self) -> Backend | None:
        """What computes gradients by graphs; None for the programs themselves."""
        if self.compile is False:
            return None
        return "inductor" if self.compile is True else self.compile

    def states_decay(self, stage: Stage) -> bool:
        """Whether a stage's weight decay is other than the default."""
        is_adam = stage.optimizer is None and self.optimizer is None
        return not is_adam or self.weight_decay != WEIGHT_DECAY

    def optimizer_of(self, stage: Stage) -> OptimizerFactory:
        """From parameters to the optimizer of a stage."""
        if (chosen := stage.optimizer or self.optimizer) is not None:
            return chosen
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
