"""Rows of a three-way switch, and the exact distribution of their label given any part of its
features."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from lexppl.argument_checks import check_binary, int_at_least
from lexppl.data import Dataset
from lexppl.data.synthetic import drawn_dataset

_NODES = 96
# Elements of a block of rows.
_BLOCK = 2**20
# Variances of values that are kept, but for rounding.
_KNOWN = 1e-12


THIRD = 0.4307272992954576
"""Below minus it, between, and above it lies a third each of a standard normal law."""
PAIRS = ((0, 1), (3, 4), (6, 7))
SIGNS = (1.0, -1.0, 1.0)


@dataclass(frozen=True)
class ThreeWaySwitch:
    r"""The distribution: `x ~ N(0, Σ)` of 12 features, all correlated alike, and

        log-odds of y = 1:   slope (x1 + x2) / √2     where x12 is in the lower third,
                            −slope (x4 + x5) / √2     in the middle,
                             slope (x7 + x8) / √2     in the upper third.

    A row's two features and the switch, x12, are relevant; x3, x6, x9, x10 and x11 never are. An
    explainer whose predictor sees which features were kept need not keep the switch: that the
    middle pair was kept says which way it stands.

    Args:
        correlation: of each two features, from 0 to below 1.
        slope: of the log-odds.

    Raises:
        ValueError: another correlation.

    Example:
        >>> law = ThreeWaySwitch()
        >>> x = torch.zeros(1, 12)
        >>> law.branch_index(x), law.truth(x)[0, [3, 4, 11]].sum()
        (tensor([1]), tensor(3.))
    """

    correlation: float = 0.5
    slope: float = 2.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.correlation < 1.0:
            raise ValueError(f"correlation must be in [0, 1); it is {self.correlation}")

    n_features = 12
    control = 11

    @cached_property
    def covariance(self) -> Tensor:
        """Σ, `(12, 12)`."""
        return torch.full((12, 12), self.correlation).double().fill_diagonal_(1.0)

    @cached_property
    def weights(self) -> Tensor:
        """Of the features in each branch's log-odds, `(3, 12)`."""
        found = torch.zeros(len(PAIRS), self.n_features, dtype=torch.float64)
        for row, pair, sign in zip(found, PAIRS, SIGNS, strict=True):
            row[list(pair)] = sign * self.slope / math.sqrt(2.0)
        return found

    def branch_index(self, x: Tensor) -> Tensor:
        """Which pair makes the label of each row, `(…,)`, long."""
        switch = x[..., self.control]
        return (switch >= -THIRD).long() + (switch >= THIRD).long()

    def probability(self, x: Tensor) -> Tensor:
        """`P(y = 1 | x)`, `(…,)`, of x `(…, 12)`."""
        each = x @ self.weights.to(x).T
        return torch.sigmoid(each.gather(-1, self.branch_index(x)[..., None]).squeeze(-1))

    def truth(self, x: Tensor) -> Tensor:
        """The relevant features, `(…, 12)`, 0 and 1 in the type of x."""
        relevant = (self.weights != 0).to(x)
        relevant[:, self.control] = 1
        return relevant[self.branch_index(x)]


def three_way_switch(
    rows: int = 10_000,
    seed: int = 0,
    *,
    correlation: float = 0.5,
    slope: float = 2.0,
    dtype: torch.dtype | None = None,
) -> Dataset:
    """Draw rows of :class:`ThreeWaySwitch`, with the truth mask.

    Args:
        rows: N.
        seed: of the draw, which leaves global random state alone.
        correlation, slope: of the distribution.
        dtype: of the features; torch's default where None.

    Raises:
        ValueError: fewer rows than 1, a correlation outside [0, 1).

    Example:
        >>> data = three_way_switch(1000, seed=0)
        >>> data.x.shape, data.truth.sum(1).unique()
        (torch.Size([1000, 12]), tensor([3.]))
    """
    law = ThreeWaySwitch(correlation, slope)
    rows = int_at_least("rows", rows)
    generator = torch.Generator().manual_seed(seed)
    own = torch.randn(rows, law.n_features, dtype=torch.float64, generator=generator)
    shared = torch.randn(rows, 1, dtype=torch.float64, generator=generator)
    uniform = torch.rand(rows, dtype=torch.float64, generator=generator)
    exact = math.sqrt(correlation) * shared + math.sqrt(1.0 - correlation) * own
    x = exact.to(dtype or torch.get_default_dtype())
    y = (uniform < law.probability(exact)).long()
    # The truth is by the values as drawn: rounding may move a switch over its threshold.
    return drawn_dataset(x, y, law.truth(exact).to(x), name="three_way_switch")


@dataclass(frozen=True)
class ThreeWaySwitchOracle:
    r"""Exact `p(y = 1 | x_S)` of :class:`ThreeWaySwitch`, for any mask.

        p(y = 1 | x_S) = Σ_b ∫ σ(g) P(switch in third b | g, x_S) N(g | x_S) dg

    with `g` the log-odds of branch b. Given the kept values, `g` and the switch are jointly
    normal; the integral is by Gauss and Hermite's nodes, its inner probability a difference of
    normal distribution functions.

    Args:
        distribution: of the data.

    Example:
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
