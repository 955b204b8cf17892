"""How well features fit the Gaussians of components."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

__all__ = ["GaussianEvidence"]


class GaussianEvidence(NamedTuple):
    """The log-density of each feature under each component, up to a constant of the feature.

    Args:
        x: rows, shape `(B, D)`.
        means: μ, shape `(C, D)`.
        scales: the standard deviations σ, shape `(C, D)`.

    Example:
        >>> import torch
        >>> evidence = GaussianEvidence(torch.zeros(5, 2), torch.zeros(3, 2), torch.ones(3, 2))
        >>> evidence.of(slice(0, 2)).shape
        torch.Size([5, 2, 2])
    """

    x: Tensor
    means: Tensor
    scales: Tensor

    def of(self, components: slice) -> Tensor:
        means, scales = self.means[components].mT, self.scales[components].mT
        standardised = (self.x.unsqueeze(-1) - means) / scales
        return -0.5 * standardised**2 - scales.log()
