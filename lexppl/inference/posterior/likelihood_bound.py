"""The likelihood of a program given its global latents: masks summed out, or a bound."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyro
from torch import Tensor
from torch.distributions import Distribution

from lexppl.distributions.support import DEFAULT_LIMIT
from lexppl.distributions.top_k import TopEntries
from lexppl.effects import BEFORE_PARTICLES
from lexppl.inference.estimators.enumerate import Enumerate
from lexppl.inference.estimators.sample_path import Pathwise
from lexppl.inference.nested_iwae import NestedIWAE
from lexppl.inference.objective.listed_latents import is_point, support_of
from lexppl.inference.objective.site import Site
from lexppl.inference.posterior.global_latents import Latents

MOST_PARTICLES = 2**22
"""Default limit of the particles of all rows in one evaluation."""

INSTEAD = (
    'a guide (guide=AutoNormal), replicates of weighted rows (row_weights="dirichlet") or '
    "stochastic-gradient MCMC, which draw masks"
)


def log_joint(
    program: Callable[..., Any],
    values: Mapping[str, Tensor],
    objective: NestedIWAE,
    rows: tuple[Tensor, ...],
) -> Tensor:
    """`log p(θ) + Σ_n ℒ_n(θ)` of some rows, a scalar in nats.

    Args:
        program: whose weights with priors are drawn first
            (:func:`lexppl.effects.weights_first`).
        values: θ, `(*event)` by site.
        objective: the bound ℒ_n on `log p(y_n | x_n, θ)`.
        rows: as arguments of the program.

    Example:
        >>> import pyro.distributions as dist, torch
        >>> from lexppl.effects import mask_particles
        >>> def program(x):
        ...     mean = pyro.sample("mean", dist.Laplace(0.0, 0.5))
        ...     with pyro.plate("data", len(x)), mask_particles():
        ...         pyro.sample("x", dist.Laplace(mean, 0.5), obs=x)
        >>> at = {"mean": torch.tensor(1.0)}
        >>> float(log_joint(program, at, NestedIWAE(masks=1), (torch.ones(3),)))
        -2.0
    """
    conditioned = pyro.poutine.condition(program, data=values)
    return -objective.differentiable_loss(conditioned, None, *rows)


def likelihood_bound(
    latents: Latents,
    rows: int,
    imputations: int | None = None,
    *,
    most_particles: float = MOST_PARTICLES,
    most_masks: int = DEFAULT_LIMIT,
    drawn: int | None = None,
) -> NestedIWAE:
    """The objective that is `Σ_n log p(y_n | x_n, θ)` of a program conditioned on its globals θ,

        p(y | x, θ) = Σ_z p(z | x, θ) 1/K Σ_k p(y | x̃_k(z), θ),

    summed over every mask z; or, with `drawn`, a bound of drawn masks where that sum cannot be
    had. Latents of a row that are functions of the others (a constant imputation, Q-FIT's mask)
    are no sum at all.

    Args:
        latents: the program's, none of them of rows.
        rows: N, of one evaluation.
        imputations: K draws of each mask's imputation, where it is random; None where it is not.
        most_particles: of one evaluation, N K times the number of masks.
        most_masks: of a row, that are summed over; of several latents their joint values.
        drawn: L masks to draw where the exact sum is refused; None to raise.

    Raises:
        ValueError: without `drawn`, masks that cannot be listed, or are too many; random
            imputations without K; the top entries of a relaxation; nothing observed,
            or a partial likelihood.

    Example:
        >>> import torch
        >>> from lexppl.inference.posterior.global_latents import latents_of
        >>> from lexppl.models import ConstantImputer
        >>> from lexppl.systems import lex
        >>> from lexppl.inference.contexts import program_settings
        >>> with program_settings(validate=True):
        ...     program = lex(4, classes=2, k=2, hidden=(4,), imputer=ConstantImputer()).program()
        ...     latents = latents_of(program, (torch.zeros(1, 4), torch.zeros(1)))
        >>> likelihood_bound(latents, rows=10).summary
        'NestedIWAE(masks=inf, imputations=1)'
        >>> likelihood_bound(latents, rows=10, most_masks=5, drawn=20).summary
        'NestedIWAE(masks=20, imputations=1)'
    """
    inside = latents.in_particles.values()
    masks = [site for site in inside if not site.in_imputations]
    imputed = [s for s in inside if s.in_imputations and not is_point(s.distribution)]
    if drawn is None:
        _refuse_inexact(latents, imputed if imputations is None else ())
    count = 1 if imputations is None else imputations
    if all(is_point(site.distribution) for site in masks):
        if drawn is None:
            return NestedIWAE(1, count, estimator=Pathwise())
        return NestedIWAE(drawn if masks and imputed else 1, count)
    try:
        listed = _count_of(masks, most_masks)
        if listed * rows * count > most_particles:
            raise ValueError(
                f"every evaluation of the likelihood would run {listed * rows * count:,} particles "
                f"({listed:,} masks of {rows:,} rows, {count} imputations each), and at most "
                f"{most_particles:,} are: give fewer rows, or use {INSTEAD}"
            )
    except ValueError:
        if drawn is None:
            raise
        return NestedIWAE(drawn, count)
    return NestedIWAE(math.inf, count, estimator=Enumerate())


def _refuse_inexact(latents: Latents, imputed: Sequence[Site]) -> None:
    """Refuse a program whose likelihood is no finite sum over masks, whatever their number."""
    for site in latents.observed.values():
        if getattr(site.distribution, "couples_rows", False):
            raise ValueError(
                f"{site.name!r} is a partial likelihood of all rows together, and the masks of a "
                f"row alone cannot be summed out of it; use {INSTEAD}"
            )
    if not any(site.in_particles and not site.is_penalty for site in latents.observed.values()):
        raise ValueError("the program observes nothing inside mask_particles(): give y beside x")
    for site in latents.in_particles.values():
        # Within the plates it is a Delta like any other.
        if isinstance(site.infer.get(BEFORE_PARTICLES), TopEntries):
            raise ValueError(
                f"{site.name!r} keeps the largest entries of a relaxation, a choice that jumps and "
                "has no gradient for a chain to follow: give a selector whose masks are drawn, "
                f"KSubsetSelector or BernoulliSelector, or use {INSTEAD}"
            )
    for site in imputed:
        inner = getattr(site.distribution, "hidden_distribution", site.distribution)
        while isinstance(base := getattr(inner, "base_dist", None), Distribution):
            inner = base
        raise ValueError(
            f"{site.name!r} is drawn at random ({type(inner).__name__.lstrip('_')}), so that the "
            "likelihood is no finite sum: impute a constant (ConstantImputer), or give "
            "MCMC(imputations=K), which draws K imputations of each mask once and keeps them for "
            f"the whole chain. Or use {INSTEAD}"
        )


def _count_of(latents: Sequence[Site], most: int) -> int:
    """The number of joint values of a row's discrete latents."""
    latents = [site for site in latents if not is_point(site.distribution)]
    count = math.prod(len(support_of(site, most, f"use {INSTEAD}")) for site in latents)
    if count > most:
        raise ValueError(
            f"{[s.name for s in latents]} have {count:,} joint values (> {most:,}); use {INSTEAD}"
        )
    return count
