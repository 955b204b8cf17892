"""The log-density of a program at given values of its global latents."""

from collections.abc import Callable, Mapping
from typing import Any

import pyro
from torch import Tensor

from lexppl.effects import ParticleCounts
from lexppl.inference.nested_iwae import NestedIWAE


def log_joint(
    program: Callable[..., Any],
    values: Mapping[str, Tensor],
    objective: NestedIWAE,
    rows: tuple[Tensor, ...],
) -> Tensor:
    """`log p(θ) + Σ_n ℒ_n(θ)` of some rows, a scalar in nats.

    Args:
        program: whose weights with priors are drawn first
            (:func:`lexppl.weights_drawn_first.weights_first`).
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
        >>> float(log_prior(program, at, (torch.ones(3),)))
        -2.0
    """
    given = pyro.poutine.condition(program, data=values)
    return -objective.differentiable_loss(given, None, *rows)


def log_prior(
    program: Callable[..., Any], values: Mapping[str, Tensor], rows: tuple[Tensor, ...]
) -> Tensor:
    """`log p(θ)`, a scalar in nats, each site with its scale.

    Args:
        program, values, rows: as of :func:`log_joint`; of the rows the first is run.
    """
    given = pyro.poutine.condition(program, data=values)
    with ParticleCounts(1, 1):
        nodes = pyro.poutine.trace(given).get_trace(*(column[:1] for column in rows)).nodes
    found = [nodes[name]["scale"] * nodes[name]["fn"].log_prob(values[name]) for name in values]
    total: Tensor = sum(each.sum() for each in found)
    return total
