"""One encoder for overlapping subsets of the features, and a network on their mean."""

import math

import torch
from torch import Tensor, nn

from lexppl.argument_checks import fraction, int_between
from lexppl.configured import Configured


class SubsetNetwork(Configured, nn.Module):
    """`network(mean_i encoder(x[subset i]))` (Uçar & Hajiramezanali 2022, § 3.2).

    The D columns are cut into n runs of `⌈D / n⌉`; each takes `round(overlap · ⌈D / n⌉)` more from
    its right neighbour, cyclically, so that all have the same width and no column is lost.

    Args:
        features: D.
        subsets: n, from 1 to D.
        overlap: share in [0, 1] taken from the neighbour.
        encoder: `(N, width)` to codes, shared by the subsets; see :func:`subset_width`.
        network: codes to outputs.

    Raises:
        ValueError: n outside 1 … D, a share outside [0, 1].

    Example:
        >>> subset_width(10, 3, 0.5)
        6
        >>> network = SubsetNetwork(10, 3, 0.5, nn.Linear(6, 4), nn.Linear(4, 2))
        >>> network(torch.zeros(5, 10)).shape, sorted(set(network.columns.flatten().tolist()))
        (torch.Size([5, 2]), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """

    columns: Tensor

    def __init__(
        self, features: int, subsets: int, overlap: float, encoder: nn.Module, network: nn.Module
    ) -> None:
        super().__init__()
        width = subset_width(features, subsets, overlap)
        step = math.ceil(features / subsets)
        starts = torch.arange(subsets).unsqueeze(-1) * step
        self.register_buffer("columns", (starts + torch.arange(width)) % features, persistent=False)
        self.features, self.subsets, self.overlap = features, subsets, float(overlap)
        self.encoder, self.network = encoder, network

    def forward(self, x: Tensor) -> Tensor:
        pieces = x[:, self.columns]
        outputs: Tensor = self.network(self.encoder(pieces).mean(-2))
        return outputs


def subset_width(features: int, subsets: int, overlap: float) -> int:
    """Columns of each subset, `⌈D / n⌉ + round(overlap · ⌈D / n⌉)`, at most D.

    Raises:
        ValueError: n outside 1 … D, a share outside [0, 1].
    """
    subsets = int_between("subsets", subsets, 1, features, note="the features")
    overlap = fraction("overlap", overlap, zero=True, one=True)
    step = math.ceil(features / subsets)
    return min(features, step + round(overlap * step))
