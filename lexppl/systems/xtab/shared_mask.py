"""Mask networks that start from one shared by all rows' models."""

import torch
from torch import Tensor, nn

from lexppl.configured import Configured
from lexppl.models.regimes import Frozen, frozen


class CombinedMask(Configured, nn.Module):
    """A soft mask between a given global one and a local one that learns, as logits.

        m = (m_g + m_l) / max_g (m_g + m_l),        m_g = σ(shared(x)), m_l = σ(local(x)),

    XTab's final round (Uçar & Hajiramezanali 2022, eq. 7). The largest entry is one.

    Args:
        shared: network of the global mask, `(B, D)` to logits; a frozen copy is used.
        local: network of the local mask.

    Example:
        >>> combined = CombinedMask(nn.Identity(), nn.Identity())
        >>> torch.sigmoid(combined(torch.tensor([[0.0, 2.0]])))
        tensor([[0.5677, 1.0000]])
    """

    def __init__(self, shared: nn.Module, local: nn.Module) -> None:
        super().__init__()
        self.shared = shared if isinstance(shared, Frozen) else frozen(shared)
        self.local = local

    def forward(self, x: Tensor) -> Tensor:
        both = torch.sigmoid(self.shared(x)) + torch.sigmoid(self.local(x))
        return torch.logit(both / both.amax(-1, keepdim=True), eps=1e-6)


class GatedMask(Configured, nn.Module):
    """A soft mask between a given global one and a local one, by gates that learn, as logits.

        m = σ(f ⊙ m_g + i ⊙ m_l),        f = σ(W_f x), i = σ(W_i x),

    XTab's gated variant (eq. 8).

    Args:
        features: D.
        entries: G.
        shared: network of the global mask; a frozen copy is used.
        local: network of the local mask.

    Example:
        >>> GatedMask(2, 2, nn.Identity(), nn.Identity())(torch.zeros(1, 2)).shape
        torch.Size([1, 2])
    """

    def __init__(self, features: int, entries: int, shared: nn.Module, local: nn.Module) -> None:
        super().__init__()
        self.features, self.entries = features, entries
        self.shared = shared if isinstance(shared, Frozen) else frozen(shared)
        self.local = local
        self.gates = nn.Linear(features, 2 * entries)

    def forward(self, x: Tensor) -> Tensor:
        keep, add = torch.sigmoid(self.gates(x)).chunk(2, -1)
        return keep * torch.sigmoid(self.shared(x)) + add * torch.sigmoid(self.local(x))
