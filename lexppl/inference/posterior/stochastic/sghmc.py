"""Stochastic-gradient Hamiltonian Monte Carlo."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from lexppl.argument_checks import finite_float
from lexppl.inference.posterior.stochastic.bayes_extra import bayes_library
from lexppl.inference.posterior.stochastic.stochastic_gradient import StochasticGradientSampler


@dataclass(frozen=True, kw_only=True, eq=False)
class SGHMC(StochasticGradientSampler):
    """Stochastic-gradient Hamiltonian Monte Carlo with cyclical steps, by `posteriors`.

    From unconstrained globals u = s v, with s of :class:`ScaledStart` and momenta m
    (Chen et al. 2014, eq. 15)

        v ← v + ε m / σ²
        m ← m + ε ∇ log p̂(v) − ε α m / σ² + N(0, ε T (2α − ε β T)),

    where `log p̂ = log p(θ) + log |dθ/du| + N/B Σ_batch ℒ_n`, ℒ_n being the exact log-likelihood
    where the masks can be summed over (at most 256) and nothing else is drawn. Where masks or
    imputations are drawn ℒ_n is a lower bound, and what is sampled is the posterior of
    `exp(Σ ℒ_n)`; the record's note says so. Parameters of the program without a prior stay as they
    are.

    Before each draw ε falls from its largest to 0 as half a cosine (Zhang et al. 2020): the bias of
    a step, of order ε, is small where a draw is taken, and the large steps in between move the
    chain away from the one before.

    Steps are in units of v, in which each coordinate's posterior sd is about 1, so that one default
    does for badly scaled posteriors. Strong correlations slow it down: look at `az.ess`.

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
        >>> SGHMC(lr=0.0)
        Traceback (most recent call last):
        ...
        ValueError: lr must be a finite number above 0; it is 0.0

    Reference:
        Chen, Fox, Guestrin. Stochastic gradient Hamiltonian Monte Carlo. ICML 2014.
        Zhang, Li, Zhang, Chen, Wilson. Cyclical stochastic gradient MCMC for Bayesian deep
        learning. ICLR 2020.
    """

    alpha: float = 2.0
    sigma: float = 1.0

    name: ClassVar[str] = "SGHMC"
    largest_step: ClassVar[float] = 0.15

    def __post_init__(self) -> None:
        super().__post_init__()
        finite_float("alpha", self.alpha, above=0.0)
        finite_float("sigma", self.sigma, above=0.0)

    @property
    def friction(self) -> float:
        return self.alpha

    def transform(
        self, log_posterior: Any, lr: Callable[[Any], float], beta: Tensor | float
    ) -> Any:
        return bayes_library().sgmcmc.sghmc.build(
            log_posterior,
            lr,
            alpha=self.alpha,
            beta=beta,
            sigma=self.sigma,
            temperature=self.temperature,
        )
