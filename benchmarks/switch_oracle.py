"""The exact distribution of a three-way switch's label given any part of its features."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from lexppl.data.synthetic import THIRD, ThreeWaySwitch
from lexppl.evaluation.truth.selection import check_binary

_NODES = 96
# Elements of a block of rows.
_BLOCK = 2**20
# Variances of values that are kept, but for rounding.
_KNOWN = 1e-12


@dataclass(frozen=True)
class ThreeWaySwitchOracle:
    r"""Exact `p(y = 1 | x_S)` of :class:`lexppl.data.ThreeWaySwitch`, for any mask.

        p(y = 1 | x_S) = Σ_b ∫ σ(g) P(switch in third b | g, x_S) N(g | x_S) dg

    with `g` the log-odds of branch b. Given the kept values, `g` and the switch are jointly
    normal; the integral is by Gauss and Hermite's nodes, its inner probability a difference of
    normal distribution functions.

    Args:
        distribution: of the data.

    Example:
        >>> from lexppl.data import three_way_switch
        >>> data, oracle = three_way_switch(4000), ThreeWaySwitchOracle()
        >>> blind = data.truth.clone()
        >>> blind[:, 11] = 0
        >>> scores = [oracle.log_likelihood(data.x, data.y, m).mean() for m in (data.truth, blind)]
        >>> round(float(scores[0] - scores[1]), 1)  # nats that the switch is worth
        0.2
    """

    distribution: ThreeWaySwitch = field(default_factory=ThreeWaySwitch)

    def probability(self, x: Tensor, masks: Tensor) -> Tensor:
        """`P(y = 1 | x_S)`, `(…, N)`.

        Args:
            x: features, `(N, 12)`; hidden ones are not read.
            masks: 1 for kept and 0 for hidden, `(…, N, 12)`.

        Raises:
            ValueError: shapes that do not fit, masks other than of 0 and 1.
        """
        check_binary("masks", masks, (len(x), self.distribution.n_features), draws=True)
        rows = x.double().expand(masks.shape).reshape(-1, x.shape[-1])
        kept = masks.double().reshape(-1, x.shape[-1])
        size = max(1, _BLOCK // (rows.shape[1] ** 2))
        pairs = zip(rows.split(size), kept.split(size), strict=True)
        found = torch.cat([self._block(*pair) for pair in pairs])
        return found.reshape(masks.shape[:-1]).to(x.dtype)

    def log_likelihood(self, x: Tensor, y: Tensor, masks: Tensor) -> Tensor:
        """Mean over mask draws of `log p(y | x_S)` in nats, `(N,)`.

        Args:
            x: features, `(N, 12)`.
            y: labels 0 and 1, `(N,)`.
            masks: `(…, N, 12)`.
        """
        up = self.probability(x.double(), masks)
        chosen = torch.where(y == 1, up, 1.0 - up).clamp_min(torch.finfo(torch.float64).tiny)
        return chosen.log().reshape(-1, len(x)).mean(0).to(x.dtype)

    def redrawn(self, x: Tensor, masks: Tensor, draws: int) -> Tensor:
        """Rows with the kept values of x and hidden ones drawn given them, `(draws, N, 12)`.

        Args:
            x: features, `(N, 12)`, in double precision.
            masks: `(N, 12)`.
            draws: how many, from torch's global random state.
        """
        gain = self._gain(masks)
        root = torch.linalg.cholesky(self.distribution.covariance.to(x))
        free = torch.randn(draws, *x.shape, dtype=x.dtype, device=x.device) @ root.T
        moved = free + torch.einsum("nij,lnj->lni", gain, x - free)
        return torch.where(masks == 1, x, moved)

    def _gain(self, kept: Tensor) -> Tensor:
        """`K`, `(N, 12, 12)`: of values z that are kept in part, `K z` is the mean of all."""
        covariance = self.distribution.covariance.to(kept)
        keep = torch.diag_embed(kept)
        hide = torch.eye(kept.shape[1], dtype=kept.dtype, device=kept.device) - keep
        return covariance @ keep @ torch.linalg.inv(keep @ covariance @ keep + hide) @ keep

    def _block(self, x: Tensor, kept: Tensor) -> Tensor:
        law = self.distribution
        gain, covariance = self._gain(kept), law.covariance.to(x)
        switch = torch.zeros(1, law.n_features, dtype=x.dtype, device=x.device)
        switch[0, law.control] = 1.0
        directions = torch.cat([switch, law.weights.to(x)])
        mean = (gain @ torch.where(kept == 1, x, 0.0)[..., None]).squeeze(-1) @ directions.T
        spread = directions @ (covariance - gain @ covariance) @ directions.T
        nodes, weights = (torch.from_numpy(v).to(x) for v in _hermite())
        edges = [-math.inf, -THIRD, THIRD, math.inf]
        total = torch.zeros_like(x[:, 0])
        for b, (low, high) in enumerate(pairwise(edges)):
            variance = spread[:, 1 + b, 1 + b].clamp_min(0.0)
            shift = variance.sqrt()[:, None] * nodes
            slope = torch.where(variance > _KNOWN, spread[:, 0, 1 + b] / variance, 0.0)
            centre = mean[:, :1] + slope[:, None] * shift
            left = spread[:, 0, 0] - slope * spread[:, 0, 1 + b]
            wide = left.clamp_min(_KNOWN).sqrt()[:, None]
            share = torch.special.ndtr((high - centre) / wide) - torch.special.ndtr(
                (low - centre) / wide
            )
            total += (torch.sigmoid(mean[:, 1 + b, None] + shift) * share * weights).sum(-1)
        return total


def _hermite() -> tuple[np.ndarray, np.ndarray]:
    """Nodes, and weights that add up to 1, of a standard normal law."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    return nodes, weights / weights.sum()
