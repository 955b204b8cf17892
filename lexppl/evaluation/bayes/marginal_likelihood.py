"""Marginal likelihood of a small program: listed, by quadrature, by importance, or by a bridge."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lexppl.argument_checks import int_at_least
from lexppl.arviz_compatibility import pareto_smoothed
from lexppl.evaluation.bayes.mask_table import log_joint, row_log_likelihood
from lexppl.evaluation.bayes.simulated import check_rows, guide_draws, parts_of_program, seeds_of
from lexppl.explanation.row_draws import log_mean
from lexppl.extras import arviz_library
from lexppl.inference.contexts import keep_parameters_local, seeded
from lexppl.inference.objective.listed_latents import joint_values
from lexppl.inference.objective.site import Site
from lexppl.inference.posterior.global_draws import Samples
from lexppl.inference.posterior.global_latents import (
    GlobalSites,
    is_discrete,
    latents_of,
    refuse_of_rows,
)
from lexppl.inference.predictive import drawing

Joint = Callable[[Samples], Tensor]  # log p(y, θ | x), `(S,)`, of draws of θ

ROUNDS = 1000
TOLERANCE = 1e-10


def bridge(
    density: Callable[[Tensor], Tensor], samples: Tensor, *, draws: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """log ∫ p*(u) du and its standard error by Meng and Wong's optimal bridge (Gronau et al. 2017,
    eq. 15).

    A normal g is fitted to the first half of each chain's draws `(C, S, P)`; the rest, N₁, and N₂
    draws of g enter the fixed point, with `s₁ = N₁ / (N₁ + N₂)`, N₁ its effective sample size,

        r = [1/N₂ Σ_j l̃_j / (s₁ l̃_j + s₂ r)] / [1/N₁ Σ_i 1 / (s₁ l_i + s₂ r)],    l = p* / g.

    The relative squared error is `V(f₁) / (N₂ E(f₁)²) + V(f₂) / (N_eff E(f₂)²)`, with
    `f₁ = p / (s₁ p + s₂ g)` over draws of g and `f₂ = g / (s₁ p + s₂ g)` over those of p.
    """
    half = samples.shape[1] // 2
    first, second = samples[:, :half].flatten(0, 1).double(), samples[:, half:]
    mean, root = _normal(first)
    normal = torch.distributions.MultivariateNormal(mean, scale_tril=root)
    with seeded(seed):
        proposed = normal.sample((draws,))
    drawn = second.flatten(0, 1)
    at_drawn = density(drawn).double() - normal.log_prob(drawn.double())
    at_proposed = density(proposed.to(samples.dtype)).double() - normal.log_prob(proposed)
    if not bool(at_drawn.isfinite().all()):
        raise FloatingPointError("the density is not finite at some of the posterior's draws")
    at_proposed = torch.where(at_proposed.isnan(), -torch.inf, at_proposed)
    shift = float(at_drawn.median())
    l_drawn, l_new = (at_drawn - shift).numpy(), (at_proposed - shift).numpy()
    effective = _effective((at_drawn - shift).reshape(second.shape[:2]).numpy())
    share = effective / (effective + draws)
    log_1, log_2 = math.log(share), math.log(1 - share)
    log_r = 0.0
    for _ in range(ROUNDS):
        above = float(log_mean(l_new - np.logaddexp(log_1 + l_new, log_2 + log_r)))
        below = float(log_mean(-np.logaddexp(log_1 + l_drawn, log_2 + log_r)))
        before, log_r = log_r, above - below
        if abs(log_r - before) < TOLERANCE:
            break
    else:
        raise FloatingPointError(
            f"the bridge to the posterior has not settled in {ROUNDS:,} rounds, as its draws and a "
            "normal fitted to them hardly overlap: give more samples, or a longer warm-up"
        )
    f_new = np.exp(l_new - log_r - np.logaddexp(log_1 + l_new - log_r, log_2))
    f_drawn = np.exp(-np.logaddexp(log_1 + l_drawn - log_r, log_2))
    square = f_new.var(ddof=1) / f_new.mean() ** 2 / draws
    square += f_drawn.var(ddof=1) / f_drawn.mean() ** 2 / effective
    return log_r + shift, math.sqrt(square)


def _effective(values: np.ndarray) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        size = float(arviz_library().ess(values))
    return min(size, float(values.size)) if math.isfinite(size) else float(values.size)


def _normal(flat: Tensor) -> tuple[Tensor, Tensor]:
    covariance = torch.cov(flat.T).reshape(flat.shape[-1], -1)
    return flat.mean(0), torch.linalg.cholesky(covariance)


MOST_VALUES = 4_096  # Joint values of whole numbers, or nodes of a quadrature, that are listed

MOST_ROWS = 1000
"""Rows that latents are looked for with: a program may need more of them than it has features."""


@dataclass(frozen=True)
class Evidence:
    """log p(y | x) in nats: `log`, its Monte Carlo standard `error`, the `method`, and Pareto k̂
    `k` of importance sampling; above 0.7 the error is not to be trusted."""

    log: float
    error: float
    method: str
    k: float | None = None


def log_marginal_likelihood(
    program: Any,
    x: Tensor,
    y: Tensor,
    *,
    guide: Callable[..., Any] | None = None,
    samples: Samples | None = None,
    nodes: int | None = None,
    draws: int = 2000,
    masks: float = math.inf,
    imputations: int = 1,
    chains: int = 1,
    seed: int = 0,
) -> Evidence:
    """log p(y | x) = log ∫ p(θ) Π_n Σ_z p(z | x_n, θ) p(y_n | x_n, z, θ) dθ, in nats.

    Where rows share a mask, or the response is one event of all rows, the sum over z stands outside
    the product over rows. Several discrete latents of a row are summed together, up to 65,536 joint
    values.

    - With neither guide nor samples: exact, of a program whose latents outside `mask_particles()`
      are none, or whole numbers, which are listed.
    - With a `guide`, importance sampling, `log 1/S Σ_s w_s` with `w_s = p(y, θ_s | x) / q(θ_s)`;
      its error is `sd(w) / (mean(w) √S)`.
    - With posterior `samples`, a bridge to a normal fitted to half of them in unconstrained space;
      its error by Frühwirth-Schnatter (2004), the chains' autocorrelation counted.
    - With `samples` and `nodes`, Gauss–Hermite quadrature of that many nodes a dimension, centred
      and scaled by the samples.

    Args:
        program: called as `program(x, y)`, or a :class:`System` of one program, without penalties
            and scales; its parameters without priors stay as they are.
        x, y: rows `(B, *event)` and their labels or responses, `(B,)`.
        guide: q(θ), such as that of a fit.
        samples: by site, posterior draws `(S, *event)`, those of one chain behind those of another.
        draws: S of the importance sampling, or of the bridge's normal.
        masks: `math.inf` to list all, or L: each row's sum is then a lower bound by so many drawn
            ones, which the error leaves out.
        imputations: K.
        chains: C that `samples` are of, in equal parts.

    Raises:
        ValueError: a guide and samples both; neither, where latents are real numbers; too many
            values to list; samples that lack a latent.
        FloatingPointError: a bridge that does not settle.

    Source: Meng and Wong (1996); Gronau et al. (2017), "A tutorial on bridge sampling".

    Example:
        >>> import pyro, pyro.distributions as dist
        >>> def program(x, y=None):
        ...     fair = pyro.sample("fair", dist.Bernoulli(0.5))
        ...     with pyro.plate("data", len(x)):
        ...         pyro.sample("y", dist.Bernoulli(0.9 - 0.4 * fair), obs=y)
        >>> found = log_marginal_likelihood(program, torch.zeros(2, 1), torch.ones(2))
        >>> round(found.log, 4) == round(math.log(0.5 * 0.25 + 0.5 * 0.81), 4)
        True
    """
    draws, seed = int_at_least("draws", draws, 2), int_at_least("seed", seed, 0)
    check_rows(x)
    if guide is not None and samples is not None:
        raise ValueError("give a guide to sample from, or posterior samples to bridge from: one")
    if nodes is not None and samples is None:
        raise ValueError("nodes are centred and scaled by posterior samples: give samples too")
    model = parts_of_program(program).model
    options: dict[str, Any] = {"masks": masks, "imputations": imputations, "seed": seed}

    def joint(at: Samples) -> Tensor:
        return log_joint(model, x, y, at, **options)

    if guide is not None:
        return _by_importance(joint, guide, (x, y), draws, seeds_of(seed, 2, 1)[0])
    keep_parameters_local(model)
    few = (x[:MOST_ROWS], y[:MOST_ROWS])
    with drawing(0, x.device):
        if samples is None:
            latents = latents_of(model, few)
        else:
            sites, latents = GlobalSites.of(model, few)
    refuse_of_rows(latents)
    if samples is None:
        if latents.shared:
            return _by_listing(joint, latents.shared)
        rows = row_log_likelihood(model, x, y, {}, **options)
        return Evidence(float(rows.double().sum()), 0.0, "listed")
    missing = [name for name in sites.names if name not in samples]
    if missing:
        raise ValueError(f"samples lack the program's latents {missing}")
    flat = sites.vectors(samples)

    def density(at: Tensor) -> Tensor:
        values, change = sites.constrained(at)
        return joint(values) + change

    if nodes is not None:
        return _by_quadrature(density, flat, int_at_least("nodes", nodes, 2))
    chains = int_at_least("chains", chains)
    if len(flat) % chains or len(flat) // chains < 20:
        raise ValueError(
            f"a bridge takes 20 draws of each chain or more, equally many; {len(flat)} of {chains}"
        )
    by_chain = flat.unflatten(0, (chains, -1))
    log, error = bridge(density, by_chain, draws=draws, seed=seeds_of(seed, 1, 1)[0])
    return Evidence(log, error, "bridge sampling")


def _by_importance(
    joint: Joint, guide: Callable[..., Any], rows: tuple[Tensor, ...], draws: int, seed: int
) -> Evidence:
    drawn, log_q = guide_draws(guide, rows, draws, seed)
    log_w = (joint(drawn) - log_q).double().cpu().numpy()
    weight = np.exp(log_w - log_w.max())
    error = float(weight.std(ddof=1) / weight.mean() / math.sqrt(draws))
    k = float(pareto_smoothed(log_w)[1])
    return Evidence(float(log_mean(log_w)), error, "importance sampling", k)


def _by_listing(joint: Joint, shared: Mapping[str, Site]) -> Evidence:
    """The evidence as the sum over all values of the latents."""
    real = [name for name, site in shared.items() if not is_discrete(site)]
    if real:
        raise ValueError(f"the latents {real} are real numbers: give a guide, or posterior samples")
    samples = joint_values(list(shared.values()), MOST_VALUES, instead="give a guide of them")
    return Evidence(float(torch.logsumexp(joint(samples), 0)), 0.0, "listed")


def _by_quadrature(density: Callable[[Tensor], Tensor], flat: Tensor, nodes: int) -> Evidence:
    size = flat.shape[-1]
    if nodes**size > MOST_VALUES * 16:
        raise ValueError(f"{nodes}^{size} nodes exceed {MOST_VALUES * 16}: give fewer, or a bridge")
    places, weights = map(torch.from_numpy, np.polynomial.hermite_e.hermegauss(nodes))
    grid = torch.cartesian_prod(*[places] * size).reshape(-1, size)
    log_weight = torch.cartesian_prod(*[weights.log()] * size).reshape(-1, size).sum(-1)
    mean, root = _normal(flat.double())
    # ∫ f(u) du = |R| Σ w e^{ξ²/2} f(m + R ξ)
    terms = density((mean + grid @ root.T).to(flat.dtype)) + log_weight + 0.5 * (grid**2).sum(-1)
    log = torch.logsumexp(terms, 0) + root.diagonal().log().sum()
    return Evidence(float(log), 0.0, f"quadrature of {nodes} nodes a dimension")
