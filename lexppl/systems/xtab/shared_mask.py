"""Mask networks that start from one shared by all rows' models."""

import torch
from torch import Tensor, nn

from lexppl.configured import Configured
from lexppl.models.regimes import Frozen, frozen

MOMENTUM = 0.1
"""Weight of the newest batch in the running divisor, as in torch's batch norms."""


class CombinedMask(Configured, nn.Module):
    """A soft mask between a given global one and a local one that learns, as logits.

        m = (m_g + m_l) / C,    C = max (m_g + m_l),    m_g = σ(shared(x)), m_l = σ(local(x)),

    XTab's final round (Uçar & Hajiramezanali 2022, eq. 7). C is one number, the largest entry
    of all rows of the batch. Afterwards it is the running mean of the training batches' numbers, so
    that a row's mask does not depend on the rows it is asked with; entries above it are one.

    Args:
        shared: network of the global mask, `(B, D)` to logits; a frozen copy is used.
        local: network of the local mask.

    Example:
        >>> combined = CombinedMask(nn.Identity(), nn.Identity())
        >>> mask = torch.sigmoid(combined(torch.tensor([[0.0, 2.0], [-2.0, 0.0]])))
        >>> [[round(entry, 3) for entry in row] for row in mask.tolist()]
        [[0.568, 1.0], [0.135, 0.568]]
        >>> round(float(combined.divisor), 3)
        1.762
    """

    divisor: Tensor
    track_running_stats = True  # Replicates then have a divisor each.

    def __init__(self, shared: nn.Module, local: nn.Module) -> None:
        super().__init__()
        self.shared = shared if isinstance(shared, Frozen) else frozen(shared)
        self.local = local
        self.register_buffer("divisor", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        both = torch.sigmoid(self.shared(x)) + torch.sigmoid(self.local(x))
        largest, before = both.amax(), self.divisor.to(both.dtype)
        if self.training:
            with torch.no_grad():
                mean = torch.where(before > 0, before.lerp(largest.detach(), MOMENTUM), largest)
                self.divisor.copy_(mean)
        else:
            largest = torch.where(before > 0, before, largest)
        return torch.logit(both / largest, eps=1e-6)


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
