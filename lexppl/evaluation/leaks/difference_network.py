"""One network for two laws of y: of what a mask keeps, and of its having been selected too."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from lexppl.configured import Configured
from lexppl.models import MLP


class DifferenceNetwork(Configured, nn.Module):
    """`f(x_v, v) ± δ(x_v, v)`, plus where the mask was selected for the row, else minus.

    Rows come as `[x ⊙ v, v, s]`, s of 1 or 0. `δ` starts at 0: what both laws have in common is
    learned once, from all rows, and a difference has to be earned. Neither law has more to be
    fitted with than the other.

    Args:
        features: D, of x once it is flat.
        entries: G, of v.
        outputs: of the likelihood.
        hidden: widths of the hidden layers of f, and of δ.
        seed: of the initial weights.

    Example:
        >>> import torch
        >>> network = DifferenceNetwork(3, 3, 2, hidden=(8,), seed=0)
        >>> row = torch.tensor([[0.5, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]])
        >>> selected = row.clone()
        >>> selected[:, -1] = 1.0
        >>> bool((network(row) == network(selected)).all())
        True
    """

    def __init__(
        self,
        features: int,
        entries: int,
        outputs: int,
        hidden: Sequence[int] = (200, 200),
        seed: int | None = None,
    ) -> None:
        super().__init__()
        seen = features + entries
        self.common = MLP(seen, outputs, hidden, seed=seed)
        other = None if seed is None else seed + 1
        self.difference = MLP(seen, hidden[-1], hidden[:-1], seed=other)
        self.last = _FromZero(hidden[-1], outputs)

    def forward(self, rows: Tensor) -> Tensor:
        seen, selected = rows[..., :-1], rows[..., -1:]
        difference = self.last(nn.functional.relu(self.difference(seen)))
        outputs: Tensor = self.common(seen) + (2.0 * selected - 1.0) * difference
        return outputs


class _FromZero(nn.Linear):
    """A linear layer whose weights start at 0."""

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)
