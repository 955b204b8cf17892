"""Starts of samplers: modes, and scales of posterior sds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lexppl.inference.posterior.log_posterior import LogPosterior

RATE = 0.05
"""Adam's first rate, in units of u."""
SCALED_RATE = 0.5
"""The same in posterior sds."""
CLIMBS = 3
"""Climbs in posterior sds, each by scales measured where the last one ended."""
MOST_DENSE = 64
"""Coordinates of which correlations are measured too."""
PROBES = 64
"""Mini-batches, over all chains, whose gradients measure scales; for correlations 20 D."""
AT_ONCE = 32
"""Of those, how many are run at once."""
PRIOR_DRAWS = 32
FARTHEST = 2.0
"""A start is a draw from the prior, no coordinate of u farther than this from 0."""


@dataclass(frozen=True, eq=False)
class ScaledStart:
    """A start of each chain, and the linear map u = A v in whose v samplers step.

    With gradients `g_b` of mini-batches at the start,

        P = B/N Cov(g_b) + diag(1 / Var_prior(u)),    A Aᵀ = P⁻¹,    V = diag(Aᵀ Cov(g_b) A),

    so that posterior sds are about 1 in v, and V ≤ N/B is the noise of a gradient by v. Beyond 64
    coordinates P is its diagonal. A decides how fast a sampler moves, not what it samples.

    Args:
        target: the log posterior.
        vectors: v of each chain, `(C, D)`.
        factor: A, `(D, D)`, or its diagonal `(D,)`.
        noise: V, `(D,)`; 0 where every batch is all rows.
        prior_precision: `1 / Var_prior(u)`, `(D,)`.
        distance: to the mode in posterior sds, root mean square over coordinates and chains.
    """

    target: LogPosterior
    vectors: Tensor
    factor: Tensor
    noise: Tensor
    prior_precision: Tensor
    distance: float

    @classmethod
    def find(cls, target: LogPosterior, chains: int, steps: int, progress: Any) -> ScaledStart:
        """Climb from draws of the prior: Adam's steps in u, then three times half as many in v."""
        drawn = target.prior_vectors(max(chains, PRIOR_DRAWS))
        place = drawn[:chains].clamp(-FARTHEST, FARTHEST)
        precision = 1.0 / drawn.var(0).clamp_min(torch.finfo(drawn.dtype).eps)
        place = _climbed(target, place, torch.ones_like(place[0]), steps, RATE, progress)
        for _ in range(CLIMBS):
            at = cls.at(target, place, precision, dense=False)
            place = at.unscaled(
                _climbed(target, at.vectors, at.factor, steps // 2, SCALED_RATE, progress)
            )
        return cls.at(target, place, precision)

    @classmethod
    def at(
        cls, target: LogPosterior, place: Tensor, prior_precision: Tensor, dense: bool = True
    ) -> ScaledStart:
        """Measure scales and noise at u `(C, D)`; correlations where `dense` and D ≤ 64."""
        dimensions, rows = place.shape[-1], len(target)
        dense = dense and dimensions <= MOST_DENSE
        size = min(target.batch_size, max(1, rows // 10))
        gradients = _gradients(target, place, size, max(PROBES, 20 * dimensions * dense))
        mean = gradients.mean(0)
        apart = (gradients - mean) * math.sqrt(size / rows * len(gradients) / (len(gradients) - 1))
        # From the information of all rows to the variance of a batch's gradient.
        share = 0.0 if target.batch_size >= rows else rows / target.batch_size
        if dense:
            apart = apart.flatten(0, 1)
            information = apart.mT @ apart / len(apart)
            # P = R Rᵀ and A = R⁻ᵀ, so that A Aᵀ = P⁻¹.
            root = torch.linalg.cholesky(information + prior_precision.diag())
            eye = torch.eye(dimensions, dtype=root.dtype, device=root.device)
            factor = torch.linalg.solve_triangular(root.mT, eye, upper=True)
            noise = share * (factor.mT @ information @ factor).diagonal()
            vectors = place @ root
        else:
            information = apart.square().mean((0, 1))
            factor = (information + prior_precision).rsqrt()
            noise = share * information * factor**2
            vectors = place / factor
        distance = _times(mean, factor.mT if dense else factor).square().mean().sqrt()
        return cls(target, vectors, factor, noise, prior_precision, float(distance))

    def highest(self) -> ScaledStart:
        """The start with the highest log posterior, alone, with scales of its own."""
        target, places = self.target, self.unscaled(self.vectors)
        with torch.no_grad():
            _, each = target.of_chains(places, target.batches(len(places), len(target)))
        best = int(each.nan_to_num(-torch.inf).argmax())
        return self.at(target, places[best : best + 1], self.prior_precision, dense=False)

    def moved(self, vectors: Tensor) -> ScaledStart:
        """The start measured again where the chains are now, at v `(C, D)`."""
        return self.at(self.target, self.unscaled(vectors), self.prior_precision)

    def unscaled(self, vectors: Tensor) -> Tensor:
        """u of v, both `(…, D)`."""
        return _times(vectors, self.factor)

    def log_posterior(self, vectors: Tensor, batches: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """As :meth:`LogPosterior.of_chains`, of v."""
        return self.target.of_chains(self.unscaled(vectors), batches)


def climbing_steps(steps: int) -> int:
    """The number of steps that :meth:`ScaledStart.find` makes in all."""
    return steps + CLIMBS * (steps // 2)


def _times(vectors: Tensor, factor: Tensor) -> Tensor:
    """`A v`, for A or its diagonal."""
    return vectors * factor if factor.dim() == 1 else vectors @ factor.mT


def _climbed(
    target: LogPosterior, start: Tensor, scales: Tensor, steps: int, rate: float, progress: Any
) -> Tensor:
    """Adam's steps up the log posterior of `scales · v`, at a rate that falls to 0 as a cosine."""
    place = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([place], lr=rate, maximize=True)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 0.5 * rate * (1.0 + math.cos(math.pi * step / steps))
        optimizer.zero_grad()
        with torch.enable_grad():
            total, _ = target.of_chains(place * scales, target.batches(len(start)))
            total.backward()
        optimizer.step()
        progress.update()
    return place.detach()


def _gradients(target: LogPosterior, place: Tensor, size: int, probes: int) -> Tensor:
    """Gradients of mini-batches of some size at each chain's place, `(count, C, D)`."""
    chains = len(place)
    copies = max(1, AT_ONCE // chains)
    several = place.repeat(copies, 1)
    gradient = torch.func.grad(lambda u, batch: target.of_chains(u, batch)[0])
    count = max(2, -(-probes // (copies * chains)))
    drawn = torch.stack(
        [gradient(several, target.batches(len(several), size)) for _ in range(count)]
    )
    if not bool(drawn.isfinite().all()):
        raise FloatingPointError(
            "the gradient of the log posterior is not finite at the chains: give a smaller lr"
        )
    return drawn.reshape(count * copies, chains, -1).detach()
