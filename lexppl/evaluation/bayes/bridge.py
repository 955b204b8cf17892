"""Bridge sampling: the integral of a density from draws of it and of a normal fitted to them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from lexppl.inference.contexts import seeded

ROUNDS = 1000
TOLERANCE = 1e-10


def bridge(
    density: Callable[[Tensor], Tensor], samples: Tensor, *, draws: int = 2000, seed: int = 0
) -> tuple[float, float]:
    r"""log ∫ p*(u) du, and its standard error, by Meng and Wong's optimal bridge.

    A normal g is fitted to the first half of each chain's draws; the rest, N₁ of them, and N₂ draws
    of g enter the fixed point

        r = [1/N₂ Σ_j l̃_j / (s₁ l̃_j + s₂ r)] / [1/N₁ Σ_i 1 / (s₁ l_i + s₂ r)],    l = p* / g,

    with `s₁ = N₁ / (N₁ + N₂)`, N₁ counted by its effective sample size. The relative squared error
    (Frühwirth-Schnatter 2004) is `V(f₁) / (N₂ E(f₁)²) + V(f₂) / (N_eff E(f₂)²)`, with
    `f₁ = p / (s₁ p + s₂ g)` over draws of g and `f₂ = g / (s₁ p + s₂ g)` over those of p.

    Args:
        density: log p*, from `(S, P)` to `(S,)`, unnormalised.
        samples: draws of p, `(C, S, P)`.
        draws: N₂.
        seed: of g's; global random state is left as it is.

    Raises:
        FloatingPointError: a density that is not finite at a draw of p.

    Source: Meng and Wong (1996); Gronau et al. (2017), "A tutorial on bridge sampling", eq. 15.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> normal = torch.randn(2, 1000, 3, generator=generator, dtype=torch.float64)
        >>> log, error = bridge(lambda u: -0.5 * (u**2).sum(-1), normal)
        >>> abs(log - 1.5 * math.log(2 * math.pi)) < 4 * error < 0.1
        True
    """
    half = samples.shape[1] // 2
    first, second = samples[:, :half].flatten(0, 1).double(), samples[:, half:]
    covariance = torch.cov(first.T).reshape(first.shape[-1], -1)
    normal = torch.distributions.MultivariateNormal(first.mean(0), covariance_matrix=covariance)
    with seeded(seed):
        proposed = normal.sample((draws,))
    own = second.flatten(0, 1)
    at_own = density(own).double() - normal.log_prob(own.double())
    at_proposed = density(proposed.to(samples.dtype)).double() - normal.log_prob(proposed)
    if not bool(at_own.isfinite().all()):
        raise FloatingPointError("the density is not finite at some of the posterior's draws")
    at_proposed = torch.where(at_proposed.isnan(), -torch.inf, at_proposed)
    shift = float(at_own.median())
    l_own, l_new = (at_own - shift).numpy(), (at_proposed - shift).numpy()
    effective = _effective((at_own - shift).reshape(second.shape[:2]).numpy())
    share = effective / (effective + draws)
    log_r = _fixed_point(l_own, l_new, share)
    return log_r + shift, _error(l_own - log_r, l_new - log_r, share, effective)


def _fixed_point(own: np.ndarray, new: np.ndarray, share: float) -> float:
    """log r."""
    log_1, log_2 = math.log(share), math.log(1 - share)
    log_r = 0.0
    for _ in range(ROUNDS):
        above = _log_mean(new - np.logaddexp(log_1 + new, log_2 + log_r))
        below = _log_mean(-np.logaddexp(log_1 + own, log_2 + log_r))
        before, log_r = log_r, above - below
        if abs(log_r - before) < TOLERANCE:
            break
    return log_r


def _error(own: np.ndarray, new: np.ndarray, share: float, effective: float) -> float:
    """The relative standard error, of log ratios of the normalised p to g."""
    f_new = np.exp(new - np.logaddexp(math.log(share) + new, math.log(1 - share)))
    f_own = np.exp(-np.logaddexp(math.log(share) + own, math.log(1 - share)))
    square = f_new.var(ddof=1) / f_new.mean() ** 2 / len(new)
    square += f_own.var(ddof=1) / f_own.mean() ** 2 / effective
    return math.sqrt(square)


def _log_mean(values: np.ndarray) -> float:
    highest = values.max()
    return float(np.log(np.exp(values - highest).mean()) + highest)


def _effective(values: np.ndarray) -> float:
    """Of the draws' log ratios `(C, S)`, at most as many as there are."""
    with warnings.catch_warnings():
        # ArviZ 0.2x announces its successor on import.
        warnings.simplefilter("ignore")
        import arviz  # noqa: PLC0415 - slow, and not needed to import the library

        size = float(arviz.ess(values))
    return min(size, float(values.size)) if math.isfinite(size) else float(values.size)
