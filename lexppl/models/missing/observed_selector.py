"""Masks that never keep an entry of which nothing is there."""

from __future__ import annotations

from collections.abc import Sequence

import pyro.distributions as dist
import torch
from pyro.distributions import TorchDistribution
from torch import Tensor, nn
from torch.distributions import Independent

from lexppl.configured import Configured
from lexppl.distributions import ChainMask, KSubset
from lexppl.effects import MASK_KIND
from lexppl.models.missing.marked_rows import MarkedRows
from lexppl.models.possible_entries import NEVER

__all__ = ["NEVER", "ObservedSelector"]


class ObservedSelector(Configured, nn.Module):
    r"""A selector's distribution, restricted to the entries of which something is there:

        z ~ p_γ(z | x),  conditioned on  z_g = 0 for every g of which all values are missing.

    Of independent entries that leaves the others as they are, of a chain it makes their neighbours
    less likely; of `k` entries it conditions on them,
    and a row with fewer entries than k keeps what it has (one that has none keeps one in name, of
    which nothing is shown). The selector's network sees the values alone, with what stands in for
    the missing ones: their mean, or no level.

    Args:
        selector: from values `(B, D)` to independent Bernoulli entries, a k-subset or a chain,
            `(G,)`.
        groups: the entry of each of the D values.
        markers: of the F features of x, as :attr:`lexppl.data.TableEncoding.markers` has them.

    Raises:
        ValueError: groups of another number of values.
        TypeError: from a call, masks of another distribution.

    Example:
        >>> from lexppl.models import RandomSelector
        >>> selector = ObservedSelector(RandomSelector(2), groups=[0, 1], markers=[-1, 2, 2])
        >>> selector(torch.tensor([[5.0, 0.0, 1.0], [5.0, 7.0, 0.0]])).mean
        tensor([[0.5000, 0.0000],
                [0.5000, 0.5000]])
    """

    sizes: Tensor
    entry: Tensor

    def __init__(self, selector: nn.Module, groups: Sequence[int], markers: Sequence[int]) -> None:
        super().__init__()
        self.selector = selector
        self.rows = MarkedRows(markers)
        self.groups = tuple(int(group) for group in groups)
        if len(self.groups) != self.rows.features:
            raise ValueError(
                f"groups must give each of the {self.rows.features} values an entry; there are "
                f"{len(self.groups)}"
            )
        of_entry = torch.zeros(len(self.groups), max(self.groups) + 1)
        of_entry[torch.arange(len(self.groups)), torch.tensor(self.groups)] = 1.0
        self.register_buffer("entry", of_entry, persistent=False)
        # So that a description of the selector finds the kind of its masks.
        kind = getattr(selector, MASK_KIND, None)
        if kind is not None:
            setattr(self, MASK_KIND, kind)

    @property
    def markers(self) -> tuple[int, ...]:
        """Of the F features."""
        return self.rows.markers

    def missing(self, x: Tensor) -> Tensor:
        """Whether all values of an entry are missing, `(B, G)`."""
        there = self.rows.observed(x) @ self.entry.to(x.dtype)
        return there < 0.5

    def forward(self, x: Tensor) -> TorchDistribution:
        distribution = self.selector(self.rows.values(x))
        return restricted(distribution, self.missing(x))


def restricted(distribution: TorchDistribution, missing: Tensor) -> TorchDistribution:
    """A distribution of masks given that some entries are not kept.

    Args:
        distribution: independent Bernoulli entries, a k-subset or a chain, `(B,)` + `(G,)`.
        missing: whether an entry cannot be kept, `(B, G)`.

    Raises:
        TypeError: another distribution.

    Example:
        >>> missing = torch.tensor([[True, False, False]])
        >>> restricted(KSubset(torch.zeros(1, 3), 2), missing).mean
        tensor([[0., 1., 1.]])
    """
    base = distribution.base_dist if isinstance(distribution, Independent) else distribution
    if isinstance(base, dist.Bernoulli):
        logits = torch.where(missing, NEVER, base.logits)
        return dist.Bernoulli(logits=logits).to_event(1)
    if isinstance(base, KSubset):
        there = (~missing).sum(-1)
        k = there.clamp(max=base.k).clamp(min=1)
        return KSubset(torch.where(missing, NEVER, base.logits), k)
    if isinstance(base, ChainMask):
        return ChainMask(torch.where(missing, NEVER, base.logits), base.coupling)
    raise TypeError(
        "missing values are known to masks of independent entries (BernoulliSelector), of k "
        f"entries (KSubsetSelector) and of a chain (ChainSelector); the selector's are "
        f"{type(base).__name__}"
    )
