"""log p(y | x, θ) and log p(θ) at many values of a program's shared latents, masks marginalised."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lexppl.evaluation.bayes.mask_table import (
    log_evidence,
    masks_listed,
    match_program,
    shared_log_prior,
)
from lexppl.evaluation.bayes.simulated import keep_local
from lexppl.inference.posterior.global_draws import Samples
from lexppl.inference.predictive import LARGEST_TENSOR, LEAST_WIDTH, drawing
from lexppl.inference.replicates.replicate_draws import OutOfPlaceDraws


def row_log_likelihood(
    model: Callable[..., Any],
    x: Tensor,
    y: Tensor,
    samples: Samples,
    *,
    masks: float = math.inf,
    imputations: int = 1,
    seed: int = 0,
) -> Tensor:
    r"""log p(y_n | x_n, θ_s) of each row at each draw of the shared latents, `(S, B)`, in nats, or
    where rows share a mask that of all rows together, `(S, 1)`:

        log Σ_z p(z | x_n, θ_s) p(y_n | x_n, z, θ_s),

    the masks listed, or with L of them drawn from p(z | x) the bound `log 1/L Σ_l p(y | x, z_l)`,
    which is below it by about `Var(w) / (2 L E[w]²)`. Imputations that are random are drawn, K a
    mask, and are then a bound as well.

    Args:
        model: the program.
        x: rows `(B, *event)`.
        y: their labels or responses `(B,)`.
        samples: by site of the latents outside `mask_particles()`, `(S, *event)`; empty where there
            are none, and S is then 1.
        masks: `math.inf`, or L.
        imputations: K.
        seed: of the draws; global random state is left as it is.

    Raises:
        ValueError: as :func:`mask_table`.

    Example:
        >>> import pyro, pyro.distributions as dist
        >>> def program(x, y=None):
        ...     mean = pyro.sample("mean", dist.Normal(0.0, 1.0))
        ...     with pyro.plate("data", len(x)):
        ...         pyro.sample("y", dist.Normal(mean, 1.0), obs=y)
        >>> at = {"mean": torch.tensor([0.0, 1.0])}
        >>> row_log_likelihood(program, torch.zeros(3, 1), torch.ones(3), at).shape
        torch.Size([2, 3])
    """

    def one(shared: dict[str, Tensor]) -> Tensor:
        return log_evidence(model, x, y, shared, masks=masks, imputations=imputations)

    with drawing(seed, x.device):
        at = {name: values[0] for name, values in samples.items()}
        match_program(model, x, y, at)
        count = masks_listed(model, x, y, at) if masks == math.inf else int(masks)
        return _at_all(one, samples, len(x) * imputations * count)


def log_prior(model: Callable[..., Any], x: Tensor, y: Tensor, samples: Samples) -> Tensor:
    """log p(θ_s), `(S,)`, in nats, of a program and a few of its rows.

    Raises:
        ValueError: sites that are not the program's, or not all of them.
    """
    keep_local(model)
    with drawing(0, x.device):
        return _at_all(lambda shared: shared_log_prior(model, x, y, shared), samples, 1)


def log_joint(
    model: Callable[..., Any], x: Tensor, y: Tensor, samples: Samples, **options: Any
) -> Tensor:
    """log p(y, θ_s | x), `(S,)`, in nats, in double precision.

    Args:
        model, x, y, samples, options: of :func:`row_log_likelihood`.
    """
    rows = row_log_likelihood(model, x, y, samples, **options)
    return rows.double().sum(-1) + log_prior(model, x, y, samples)


def _at_all(one: Callable[[dict[str, Tensor]], Tensor], samples: Samples, particles: int) -> Tensor:
    """The values of a function at each draw, `(S, …)`, as many at once as fit."""
    each = dict(samples)
    if not each:
        return one({}).unsqueeze(0)
    draws = len(next(iter(each.values())))
    chunk = max(1, min(draws, LARGEST_TENSOR // (particles * LEAST_WIDTH)))
    try:
        with OutOfPlaceDraws():
            made: Tensor = torch.vmap(one, randomness="different", chunk_size=chunk)(each)
        return made
    except RuntimeError as error:
        if "vmap" not in str(error) and "data-dependent" not in str(error):
            raise
    # A program that decides by a number of its own is run for one draw after another.
    return torch.stack([one({n: value[s] for n, value in each.items()}) for s in range(draws)])
