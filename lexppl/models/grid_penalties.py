"""Penalties on masks over a grid whose neighbouring entries differ: smooth masks of images."""

from abc import abstractmethod
from collections.abc import Callable, Sequence

from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import Bernoulli, Independent

from lexppl.argument_checks import int_at_least
from lexppl.distributions import ChainMask
from lexppl.models.penalties import Penalty


class _GridPenalty(Penalty):
    """A weight times the sum of a cost over the pairs of neighbours on a grid.

    Args:
        weight: λ ≥ 0, in nats a unit of the cost.
        shape: rows and columns of the grid, (H', W'); entries are row by row.
        neighbours: 4, above, below and at the sides, or 8, the diagonal ones too.

    Raises:
        ValueError: a shape that is not two whole numbers of at least 1, other neighbours; when
            first used, masks of other than H' · W' entries.
    """

    def __init__(self, weight: float, shape: Sequence[int], neighbours: int = 4) -> None:
        super().__init__(weight)
        if len(shape) != 2:
            raise ValueError(
                f"shape must be rows and columns of the grid, two numbers; it is {shape}"
            )
        self.shape = tuple(int_at_least("shape", size) for size in shape)
        if neighbours not in (4, 8):
            raise ValueError(f"neighbours must be 4 or 8; they are {neighbours!r}")
        self.neighbours = neighbours

    @abstractmethod
    def _cost(self, one: Tensor, other: Tensor) -> Tensor:
        """Of two neighbours' values in [0, 1]."""

    def forward(self, distribution: TorchDistribution, mask: Tensor, *rows: Tensor) -> Tensor:
        height, width = self.shape
        if mask.shape[-1] != height * width:
            raise ValueError(
                f"{type(self).__name__} is of a grid of {height} × {width} = {height * width} "
                f"entries, and masks have {mask.shape[-1]}"
            )
        if isinstance(distribution, ChainMask) and 1 in self.shape:
            return self.weight * distribution.switches.sum(-1)
        if _is_independent(distribution):
            return self.weight * self._sum(distribution.mean, differ)
        return self.weight * self._sum(mask, self._cost)

    def _sum(self, mask: Tensor, cost: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        grid = mask.unflatten(-1, self.shape)
        total = cost(grid[..., 1:, :], grid[..., :-1, :]).sum((-2, -1))
        total = total + cost(grid[..., 1:], grid[..., :-1]).sum((-2, -1))
        if self.neighbours == 8:
            total = total + cost(grid[..., 1:, 1:], grid[..., :-1, :-1]).sum((-2, -1))
            total = total + cost(grid[..., 1:, :-1], grid[..., :-1, 1:]).sum((-2, -1))
        return total


class GridVariationPenalty(_GridPenalty):
    r"""Total variation of a mask on a grid: `λ Σ_{i~j} |z_i − z_j|` over neighbours i, j, the
    length of the border between what is kept and what is hidden.

    Of independent Bernoulli entries its exact expectation, `Σ p_i (1 − p_j) + p_j (1 − p_i)`,
    `(B,)`, with a gradient of no variance; so of a :class:`~lexppl.distributions.ChainMask` on a
    grid of one row. Of other distributions, whose pairs are not known, that of the draws, `(L, B)`.
    On a line see :class:`TotalVariationPenalty`, which is of the draws always.

    Args:
        weight: λ ≥ 0, in nats a unit of border.
        shape: rows and columns of the grid, (H', W'), such as those of an image's patches; entries
            are row by row.
        neighbours: 4, above, below and at the sides, or 8, the diagonal ones too.

    Raises:
        ValueError: a shape that is not two whole numbers of at least 1, other neighbours; when
            first used, masks of other than H' · W' entries.

    References:
        Rudin, Osher and Fatemi (1992), "Nonlinear total variation based noise removal algorithms",
        Physica D 60. Fong and Vedaldi (2017), "Interpretable explanations of black boxes by
        meaningful perturbation", ICCV, eq. 4, for masks.

    Example:
        >>> import torch
        >>> import pyro.distributions as dist
        >>> one_corner = torch.tensor([[[1.0, 0.0, 0.0, 0.0]]])
        >>> penalty = GridVariationPenalty(1.0, shape=(2, 2))
        >>> penalty(None, one_corner)
        tensor([[2.]])
        >>> penalty(dist.Bernoulli(torch.full((1, 4), 0.5)).to_event(1), one_corner)
        tensor([2.])
    """

    def _cost(self, one: Tensor, other: Tensor) -> Tensor:
        return (one - other).abs()


class IsingPenalty(_GridPenalty):
    r"""The energy of an Ising model on a grid: `λ Σ_{i~j} (1 − s_i s_j)/2` with spins `s = 2z − 1`.

    It is λ nats for each pair of neighbours that differ: on masks of zeros and ones the same as
    :class:`GridVariationPenalty`. On soft masks it is `z_i (1 − z_j) + z_j (1 − z_i)`, the
    expectation over independent entries that are kept with probability z: smooth, and least where
    neighbours are both near 0 or both near 1, not merely alike. Less the entropy of the masks, it
    is their divergence from the Ising model of coupling λ/2, up to its constant.

    Args:
        weight: λ ≥ 0, in nats a pair that differs.
        shape: rows and columns of the grid, (H', W'); entries are row by row.
        neighbours: 4, above, below and at the sides, or 8, the diagonal ones too.

    Raises:
        ValueError: as :class:`GridVariationPenalty`.

    References:
        Besag (1986), "On the statistical analysis of dirty pictures", JRSS B 48.

    Example:
        >>> import torch
        >>> IsingPenalty(1.0, shape=(1, 3))(None, torch.tensor([[[0.5, 0.5, 1.0]]]))
        tensor([[1.]])
    """

    def _cost(self, one: Tensor, other: Tensor) -> Tensor:
        return differ(one, other)


def differ(one: Tensor, other: Tensor) -> Tensor:
    """p (1 − q) + q (1 − p), the probability that two independent entries differ.

    Example:
        >>> import torch
        >>> differ(torch.tensor([1.0, 0.5]), torch.tensor([1.0, 1.0]))
        tensor([0.0000, 0.5000])
    """
    return one * (1.0 - other) + other * (1.0 - one)


def _is_independent(distribution: object) -> bool:
    return isinstance(distribution, Independent) and isinstance(distribution.base_dist, Bernoulli)
