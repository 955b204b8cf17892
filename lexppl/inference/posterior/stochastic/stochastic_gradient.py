"""What the samplers by stochastic gradients share: start, warm-up, schedule, thinning."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from lexppl.argument_checks import finite_float, int_at_least
from lexppl.inference.nested_iwae import NestedIWAE
from lexppl.inference.posterior.global_draws import GlobalDraws, SamplerRecord
from lexppl.inference.posterior.stochastic.bayes_extra import bayes_library
from lexppl.inference.posterior.stochastic.log_posterior import LogPosterior
from lexppl.inference.posterior.stochastic.run import check_bound, stepping
from lexppl.inference.posterior.stochastic.scaled_start import ScaledStart, climbing_steps


@dataclass(frozen=True, kw_only=True, eq=False)
class StochasticGradientSampler(ABC):
    """A Markov chain whose steps follow mini-batch gradients of the log posterior.

    The chains run at once, each with mini-batches of its own. A subclass gives the transform of
    `posteriors` that makes a step.
    """

    samples: int = 250
    chains: int = 4
    warmup: int = 400
    thin: int = 40
    climb: int = 400
    batch_size: int | None = None
    lr: float | None = None
    beta: float | None = None
    temperature: float = 1.0
    cyclical: bool = True
    objective: NestedIWAE | None = None

    name: ClassVar[str]
    largest_step: ClassVar[float]
    """ε where nobody chooses and a batch is not noisy."""

    def __post_init__(self) -> None:
        for name in ("samples", "chains", "thin"):
            int_at_least(name, getattr(self, name))
        for name in ("warmup", "climb"):
            int_at_least(name, getattr(self, name), 0)
        if self.lr is not None:
            finite_float("lr", self.lr, above=0.0)
        if self.beta is not None:
            finite_float("beta", self.beta, least=0.0)
        finite_float("temperature", self.temperature, above=0.0)
        check_bound(self.batch_size, self.objective)

    @property
    def friction(self) -> float:
        """What bounds ε: `ε β T ≤ 2 friction`, or a batch is noisier than the chain."""
        return 1.0

    @abstractmethod
    def transform(
        self, log_posterior: Any, lr: Callable[[Any], float], beta: Tensor | float
    ) -> Any:
        """The transform of `posteriors` that makes a step.

        Args:
            log_posterior: from v `(C, D)` and rows to their sum and each.
            lr: by step.
            beta: variance of a gradient's noise, `(D,)` or a number.
        """

    def rate(self, noise: float) -> float:
        """The largest step size.

        Args:
            noise: the largest variance of a gradient's noise, as it is measured.

        Raises:
            ValueError: a given lr at which a batch's noise is more than the chain's own.
        """
        beta = self.temperature * (noise if self.beta is None else self.beta)
        usual = self.largest_step
        if self.lr is None:
            return usual if beta == 0.0 else min(usual, self.friction / beta)
        if self.lr * beta > 2.0 * self.friction:
            raise ValueError(
                f"lr={self.lr} is too large: a batch's gradients are noisier than the chain itself "
                f"(β = {beta:.3g}); give at most {2.0 * self.friction / beta:.2g}, a larger "
                "batch_size, or leave lr out"
            )
        return self.lr

    def run(
        self, model: Any, rows: tuple[Tensor, ...], *, seed: int, progress: bool
    ) -> GlobalDraws:
        """Draw; see :class:`lexppl.inference.posterior.global_draws.PosteriorInference`.

        Raises:
            ValueError, TypeError: rows fewer than a batch, a program without global latents or with
                discrete ones, an lr too large for the noise of a batch.
            FloatingPointError: a chain that left the finite numbers.
            ImportError: `posteriors` is not installed.
        """
        bayes_library()
        target = LogPosterior.of(model, rows, seed, self.batch_size, self.objective)
        total = climbing_steps(self.climb) + self.warmup + self.samples * self.thin
        with stepping(target, seed, total, progress) as bar:
            start = ScaledStart.find(target, self.chains, self.climb, bar)
            self.rate(float(start.noise.max()))
            start = self._settled(start, bar)
            drawn, stats = self._drawn(start, bar)
        samples = target.sites.samples(start.unscaled(drawn))
        return GlobalDraws(samples, self._record(target, stats), target.model)

    def _settled(self, start: ScaledStart, bar: Any) -> ScaledStart:
        """Burnt in, in two halves: scales and noise are measured again where the first ends."""
        for steps in (self.warmup // 2, self.warmup - self.warmup // 2):
            state, update, _ = self._begun(start)
            for _ in range(steps):
                state, _ = update(state, start.target.batches(self.chains), inplace=False)
                bar.update()
            start = start.moved(state.params)
        return start

    def _schedule(self, largest: float) -> Callable[[Any], float]:
        """The step size by step: constant, or falling to 0 as a cosine before each draw."""
        if not self.cyclical:
            return lambda step: largest
        return lambda step: (
            0.5 * largest * (1.0 + math.cos(math.pi * (int(step) % self.thin) / self.thin))
        )

    def _begun(self, start: ScaledStart) -> tuple[Any, Any, Callable[[Any], float]]:
        """A state, what makes a step of it, and the step size by step."""
        lr = self._schedule(self.rate(float(start.noise.max())))
        beta = start.noise if self.beta is None else self.beta
        transform = self.transform(start.log_posterior, lr, beta)
        return transform.init(start.vectors), transform.update, lr

    def _drawn(self, start: ScaledStart, bar: Any) -> tuple[Tensor, dict[str, Tensor]]:
        """v of each draw `(C, S, D)`, and what is told of each `(C, S)`."""
        state, update, lr = self._begun(start)
        drawn, log_posteriors = [], []
        each = start.vectors
        for draw in range(self.samples):
            for _ in range(self.thin):
                state, each = update(state, start.target.batches(self.chains), inplace=False)
                bar.update()
            if not bool(state.params.isfinite().all()):
                raise FloatingPointError(
                    f"{self.name} has left the finite numbers by draw {draw}: give a smaller lr "
                    f"(its largest is {lr(0):.3g}), or a larger climb"
                )
            drawn.append(state.params)
            log_posteriors.append(each)
        last = lr(self.thin - 1)
        stats = {
            "step_size": torch.full((self.chains, self.samples), last),
            "minibatch_log_posterior": torch.stack(log_posteriors, 1).detach(),
        }
        return torch.stack(drawn, 1).detach(), stats

    def _record(self, target: LogPosterior, stats: dict[str, Tensor]) -> SamplerRecord:
        tempered = "" if self.temperature == 1.0 else f" at temperature {self.temperature:g}"
        arrays = {name: values.cpu().numpy() for name, values in stats.items()}
        return SamplerRecord(f"{self.name}{tempered}", True, arrays, target.note)
