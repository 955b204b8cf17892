"""Twelve correlated features, one of which says which two of the others make the label."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from lexppl.argument_checks import int_at_least
from lexppl.data.dataset import Dataset

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
    names = tuple(f"x{d + 1}" for d in range(law.n_features))
    return Dataset(
        x=x,
        y=(uniform < law.probability(exact)).long(),
        feature_names=names,
        groups=tuple(range(law.n_features)),
        entry_names=names,
        target_name="y",
        class_names=("0", "1"),
        # By the values as they were drawn: rounding may move a switch over its threshold.
        truth=law.truth(exact).to(x),
        name="three_way_switch",
        is_part=True,
    )
