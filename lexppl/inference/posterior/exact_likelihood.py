"""The likelihood of a program given its global latents, with the masks summed out exactly."""

import math
from collections.abc import Sequence
from typing import Any

import pyro.distributions as dist
from torch.distributions import Distribution

from lexppl.distributions import mask_support
from lexppl.distributions.top_entries import TopEntries
from lexppl.effects import BEFORE_PARTICLES
from lexppl.inference.estimators import Enumerate, Pathwise
from lexppl.inference.nested_iwae import NestedIWAE
from lexppl.inference.objective.site import Site
from lexppl.inference.posterior.global_latents import Latents

MOST_PARTICLES = 2**22
"""Masks of all rows that one evaluation may run the program with."""

INSTEAD = (
    "a guide (guide=AutoNormal), a bootstrap (bootstrap=20) or stochastic-gradient MCMC, which "
    "draw masks"
)


def exact_likelihood(latents: Latents, rows: int, imputations: int | None = None) -> NestedIWAE:
    """The objective that is `Σ_n log p(y_n | x_n, θ)` of a program conditioned on its globals θ,

        p(y | x, θ) = Σ_z p(z | x, θ) 1/K Σ_k p(y | x̃_k(z), θ),

    summed over every mask z. Latents of a row that are functions of the others, such as a constant
    imputation or Q-FIT's mask (which is the global importance itself), are no sum at all.

    Args:
        latents: the program's.
        rows: N.
        imputations: K draws of each mask's imputation, where it is random; None where it is not.

    Raises:
        ValueError: masks that cannot be listed, or are too many; several sites of masks; latents
            of rows outside `mask_particles()`; random imputations without K; the top entries of a
            relaxation; nothing observed, or a partial likelihood.

    Example:
        >>> import torch
        >>> from lexppl.inference.posterior.global_latents import latents_of
        >>> from lexppl.models import ConstantImputer
        >>> from lexppl.systems import lex
        >>> program = lex(4, classes=2, k=2, hidden=(4,), imputer=ConstantImputer()).program()
        >>> latents = latents_of(program, (torch.zeros(1, 4), torch.zeros(1)))
        >>> exact_likelihood(latents, rows=10).summary
        'NestedIWAE(masks=inf, imputations=1)'
    """
    if latents.of_rows:
        raise ValueError(
            f"latent {next(iter(latents.of_rows))!r} is outside mask_particles() and each row has "
            "its own, so that new rows would have none; sample it inside mask_particles(), or "
            "outside the plate over rows"
        )
    for site in latents.observed.values():
        if getattr(site.distribution, "couples_rows", False):
            raise ValueError(
                f"{site.name!r} is a partial likelihood of all rows together, and the masks of a "
                f"row alone cannot be summed out of it; use {INSTEAD}"
            )
    if not any(site.in_particles and not site.is_penalty for site in latents.observed.values()):
        raise ValueError(
            "the program observes nothing inside mask_particles(): give y beside x, and sample it "
            "there"
        )
    masks: list[Site] = []
    imputed: list[Site] = []
    for site in latents.in_particles.values():
        # Within the plates it is a Delta like any other.
        if isinstance(site.infer.get(BEFORE_PARTICLES), TopEntries):
            raise ValueError(
                f"{site.name!r} keeps the largest entries of a relaxation, a choice that jumps and "
                "has no gradient for a chain to follow: give a selector whose masks are drawn, "
                f"KSubsetSelector or BernoulliSelector, or use {INSTEAD}"
            )
        if not is_point(site.distribution):
            (imputed if site.in_imputations else masks).append(site)
    if imputed and imputations is None:
        raise ValueError(
            f"{imputed[0].name!r} is drawn at random ({_named(imputed[0])}), so that the "
            "likelihood is no finite sum: impute a constant (ConstantImputer), or give "
            "MCMC(imputations=K), which draws K imputations of each mask once and keeps them for "
            f"the whole chain. Or use {INSTEAD}"
        )
    count = 1 if imputations is None else imputations
    if not masks:
        return NestedIWAE(1, count, estimator=Pathwise())
    particles = _count_of(masks) * rows * count
    if particles > MOST_PARTICLES:
        raise ValueError(
            f"every evaluation of the likelihood would run {particles:,} particles "
            f"({particles // rows // count:,} masks of {rows:,} rows, {count} imputations each), "
            f"and at most {MOST_PARTICLES:,} are: give fewer rows, or use {INSTEAD}"
        )
    return NestedIWAE(math.inf, count, estimator=Enumerate())


def is_point(distribution: Any) -> bool:
    """Whether a distribution has one value: a Delta, also as the imputation of hidden entries.

    Example:
        >>> import torch
        >>> from lexppl.models import ConstantImputer
        >>> is_point(ConstantImputer()(torch.zeros(1, 2), torch.ones(2)))
        True
    """
    for name in ("base_dist", "hidden_distribution"):
        inner = getattr(distribution, name, None)
        if isinstance(inner, Distribution):
            return is_point(inner)
    return isinstance(distribution, dist.Delta)


def _count_of(masks: Sequence[Site]) -> int:
    """How many masks there are to be summed over."""
    if len(masks) > 1:
        raise ValueError(
            f"the masks are summed out at one site, and the program has "
            f"{[site.name for site in masks]}; make them one, or use {INSTEAD}"
        )
    (site,) = masks
    distribution = site.distribution
    try:
        support = (
            mask_support(distribution)
            if len(distribution.event_shape) == 1
            else distribution.enumerate_support(expand=False)
        )
    except (ValueError, TypeError, NotImplementedError) as error:
        reason = str(error).split(";", maxsplit=1)[0] or "they cannot be listed"
        raise ValueError(
            f"every mask of {site.name!r} is summed over, and {reason}; use {INSTEAD}"
        ) from None
    return len(support)


def _named(site: Site) -> str:
    inner = getattr(site.distribution, "hidden_distribution", site.distribution)
    while isinstance(base := getattr(inner, "base_dist", None), Distribution):
        inner = base
    return type(inner).__name__.lstrip("_")
