"""Stochastic-gradient MCMC of global latents: SGHMC and SGLD, by `posteriors`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from lexppl.inference.batches import Columns
from lexppl.inference.nested_iwae import NestedIWAE
from lexppl.inference.posterior.global_draws import GlobalDraws
from lexppl.inference.posterior.log_posterior import (
    LogPosterior,
    ScaledStart,
    bayes_library,
    check_settings,
    climbing_steps,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class StochasticGradientSampler:
    """Base of Markov chains whose steps follow mini-batch gradients of the log posterior, by
    `posteriors.sgmcmc`; the chains run at once, each with mini-batches of its own."""

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
    """The default ε, where a batch is not noisy."""

    def __post_init__(self) -> None:
        check_settings(self, samples=1, chains=1, thin=1, warmup=0, climb=0)

    @property
    def momenta(self) -> dict[str, float]:
        """Further arguments of the transform."""
        return {}

    def rate(self, noise: float) -> float:
        """The largest step size, given the largest variance of a gradient's noise.

        Raises:
            ValueError: a given lr at which a batch's noise is more than the chain's own.
        """
        friction = self.momenta.get("alpha", 1.0)
        beta = self.temperature * (noise if self.beta is None else self.beta)
        if self.lr is None:
            return self.largest_step if beta == 0.0 else min(self.largest_step, friction / beta)
        if self.lr * beta > 2.0 * friction:
            raise ValueError(
                f"lr={self.lr} is too large: a batch's gradients are noisier than the chain itself "
                f"(β = {beta:.3g}); give at most {2.0 * friction / beta:.2g}, a larger "
                "batch_size, or leave lr out"
            )
        return self.lr

    def run(self, model: Any, rows: Columns, *, seed: int, progress: bool) -> GlobalDraws:
        """Draws of the global latents by the sampler, in chains.

        Raises:
            ValueError, TypeError: rows fewer than a batch, a program without global latents or with
                discrete ones, an lr too large for the noise of a batch.
            FloatingPointError: a chain that left the finite numbers.
            ImportError: `posteriors` is not installed.
        """
        bayes_library()
        target = LogPosterior(model, rows, seed, self.batch_size, self.objective)
        total = climbing_steps(self.climb) + self.warmup + self.samples * self.thin
        with target.stepping(seed, total, progress) as bar:
            start = ScaledStart.find(target, self.chains, self.climb, bar)
            # Burnt in, in two halves: scales and noise are measured again where the first ends.
            for steps in (self.warmup // 2, self.warmup - self.warmup // 2):
                state, update, _ = self._begun(start)
                for _ in range(steps):
                    state, _ = update(state, target.batches(self.chains), inplace=False)
                    bar.update()
                start = start.moved(state.params)
            drawn, stats = self._drawn(start, bar)
        arrays = {name: values.cpu().numpy() for name, values in stats.items()}
        return target.draws(self.name, start.unscaled(drawn), self.temperature, arrays)

    def _begun(self, start: ScaledStart) -> tuple[Any, Any, Callable[[Any], float]]:
        """A state, the function that makes a step of it, and the step size by step."""
        largest = self.rate(float(start.noise.max()))

        def lr(step: Any) -> float:
            if not self.cyclical:
                return largest
            return 0.5 * largest * (1.0 + math.cos(math.pi * (int(step) % self.thin) / self.thin))

        transform = getattr(bayes_library().sgmcmc, self.name.lower()).build(
            start.log_posterior,
            lr,
            beta=start.noise if self.beta is None else self.beta,
            temperature=self.temperature,
            **self.momenta,
        )
        return transform.init(start.vectors), transform.update, lr

    def _drawn(self, start: ScaledStart, bar: Any) -> tuple[Tensor, dict[str, Tensor]]:
        """v of each draw `(C, S, D)`, and statistics of each `(C, S)`."""
        state, update, lr = self._begun(start)
        drawn, log_posteriors = [], []
        each = start.vectors
        for _ in range(self.samples):
            for _ in range(self.thin):
                state, each = update(state, start.target.batches(self.chains), inplace=False)
                bar.update()
            if not bool(state.params.isfinite().all()):
                raise FloatingPointError(
                    f"{self.name} has left the finite numbers: give a smaller lr ({lr(0):.3g})"
                )
            drawn.append(state.params)
            log_posteriors.append(each)
        stats = {
            "step_size": torch.full((self.chains, self.samples), lr(self.thin - 1)),
            "minibatch_log_posterior": torch.stack(log_posteriors, 1).detach(),
        }
        return torch.stack(drawn, 1).detach(), stats


@dataclass(frozen=True, kw_only=True, eq=False)
class SGHMC(StochasticGradientSampler):
    """Stochastic-gradient Hamiltonian Monte Carlo with cyclical steps, by `posteriors`.

    From unconstrained globals u = A v, in whose v posterior sds are about 1, and momenta m
    (Chen et al. 2014, eq. 15)

        v ← v + ε m / σ²
        m ← m + ε ∇ log p̂(v) − ε α m / σ² + N(0, ε T (2α − ε β T)),

    where `log p̂ = log p(θ) + log |dθ/du| + N/B Σ_batch ℒ_n`, ℒ_n the exact log-likelihood where at
    most 256 masks are summed over and nothing else is drawn; else a lower bound, and what is
    sampled is the posterior of `exp(Σ ℒ_n)`, as the record's note says. Parameters without a prior
    stay.

    Before each draw ε falls from its largest to 0 as half a cosine (Zhang et al. 2020), as the bias
    of a step is of order ε. Strong correlations slow the chains down: look at `az.ess`.

    Args:
        samples: S a chain.
        chains: C, each from a start of its own, run at once.
        warmup: steps after the climb that are thrown away.
        thin: steps before each draw, a cycle of ε.
        climb: steps of Adam to a mode, and half as many more once scales are known.
        batch_size: B, with replacement; None for a tenth of the rows, at least 100.
        lr: the largest ε, in (0, 2α/β); None for 0.15, or less where a batch is noisy.
        alpha: α > 0, friction.
        beta: β ≥ 0, the variance of a gradient's noise in units of v; None to measure it.
        sigma: σ > 0, the momenta's sd.
        temperature: T > 0; only T = 1 samples the posterior.
        cyclical: False for a constant ε = lr, and the bias of it.
        objective: the bound ℒ, such as `NestedIWAE(masks=50)`; None to choose.

    Raises:
        ValueError, TypeError: a number outside its range.

    Example:
        >>> SGHMC(samples=100, lr=0.1).alpha
        2.0

    Reference:
        Chen, Fox, Guestrin. Stochastic gradient Hamiltonian Monte Carlo. ICML 2014.
        Zhang et al. Cyclical stochastic gradient MCMC for Bayesian deep learning. ICLR 2020.
    """

    alpha: float = 2.0
    sigma: float = 1.0

    name: ClassVar[str] = "SGHMC"
    largest_step: ClassVar[float] = 0.15

    @property
    def momenta(self) -> dict[str, float]:
        return {"alpha": self.alpha, "sigma": self.sigma}


@dataclass(frozen=True, kw_only=True, eq=False)
class SGLD(StochasticGradientSampler):
    """Stochastic-gradient Langevin dynamics with cyclical steps, by `posteriors`.

    As :class:`SGHMC`, with its arguments, v and `log p̂`, without momenta (Welling & Teh 2011, eq.
    4)

        v ← v + ε ∇ log p̂(v) + N(0, ε T (2 − ε β T)).

    Args:
        lr: the largest ε, in (0, 2/β); None for 0.1, or less where a batch is noisy.

    Raises:
        ValueError, TypeError: a number outside its range.

    Example:
        >>> SGLD(samples=100, thin=20).chains
        4

    Reference:
        Welling, Teh. Bayesian learning via stochastic gradient Langevin dynamics. ICML 2011.
    """

    name: ClassVar[str] = "SGLD"
    largest_step: ClassVar[float] = 0.1
