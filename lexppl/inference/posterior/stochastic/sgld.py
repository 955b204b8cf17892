"""Stochastic-gradient Langevin dynamics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from lexppl.inference.posterior.stochastic.bayes_extra import bayes_library
from lexppl.inference.posterior.stochastic.stochastic_gradient import StochasticGradientSampler


@dataclass(frozen=True, kw_only=True, eq=False)
class SGLD(StochasticGradientSampler):
    """Stochastic-gradient Langevin dynamics with cyclical steps, by `posteriors`.

    As :class:`SGHMC` without momenta (Welling & Teh 2011, eq. 4)

        v ← v + ε ∇ log p̂(v) + N(0, ε T (2 − ε β T)),

    with the same v, `log p̂`, cycles and bounds.

    Args:
        samples: S a chain.
        chains: C, each from a start of its own, run at once.
        warmup: steps after the climb that are thrown away.
        thin: steps before each draw, a cycle of ε.
        climb: steps of Adam to a mode, and half as many more once scales are known.
        batch_size: B, with replacement; None for a tenth of the rows, at least 100.
        lr: the largest ε, in (0, 2/β); None for 0.1, or less where a batch is noisy.
        beta: β ≥ 0, the variance of a gradient's noise in units of v; None to measure it.
        temperature: T > 0; only T = 1 samples the posterior.
        cyclical: False for a constant ε = lr, and the bias of it.
        objective: the bound ℒ, such as `NestedIWAE(masks=50)`; None to choose.

    Raises:
        ValueError, TypeError: a number outside its range.

    Example:
        >>> SGLD(samples=100, thin=20).chains
        4

    Reference:
        Welling, Teh. Bayesian learning via stochastic gradient Langevin dynamics. ICML 2011.
        Zhang, Li, Zhang, Chen, Wilson. Cyclical stochastic gradient MCMC for Bayesian deep
        learning. ICLR 2020.
    """

    name: ClassVar[str] = "SGLD"
    largest_step: ClassVar[float] = 0.1

    def transform(
        self, log_posterior: Any, lr: Callable[[Any], float], beta: Tensor | float
    ) -> Any:
        return bayes_library().sgmcmc.sgld.build(
            log_posterior,
            lr,
            beta=beta,
            temperature=self.temperature,
        )
