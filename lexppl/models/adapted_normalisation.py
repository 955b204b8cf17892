"""A given model whose batch norms follow the rows that an explainer shows it."""

from __future__ import annotations

import copy

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from lexppl.models.regimes import Frozen


class AdaptedNormalisation(Frozen):
    """A module of which only the batch norms learn: in training they normalise by the statistics of
    the rows that they see, all particles' together, move their running ones, and γ and β have
    gradients. Every other weight is as it was, and dropout stays off.

    Args:
        module: taken as it is, not copied; :func:`adapted_normalisation` takes a copy.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        for norm in self.norms:
            norm.requires_grad_(True)

    @property
    def norms(self) -> list[_BatchNorm]:
        """The module's batch norms."""
        return [part for part in self.module.modules() if isinstance(part, _BatchNorm)]

    def train(self, mode: bool = True) -> AdaptedNormalisation:
        """Set the batch norms' mode; the rest stays in evaluation."""
        super().train(False)
        for norm in self.norms:
            norm.train(mode)
        return self


def adapted_normalisation(module: nn.Module) -> AdaptedNormalisation:
    """A copy of a module in which nothing but the batch norms will learn.

    Args:
        module: the given predictor; left as it is.

    Raises:
        TypeError: not a module.
        ValueError: no batch norm in it.

    Example:
        >>> import torch
        >>> given = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
        >>> adapted = adapted_normalisation(given).train()
        >>> [name for name, p in adapted.module.named_parameters() if p.requires_grad]
        ['1.weight', '1.bias']
        >>> _ = adapted(torch.randn(8, 2))
        >>> int(adapted.module[1].num_batches_tracked), int(given[1].num_batches_tracked)
        (1, 0)
    """
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"adapted_normalisation takes an nn.Module; it is given {type(module).__name__}"
        )
    if not any(isinstance(part, _BatchNorm) for part in module.modules()):
        raise ValueError(
            f"{type(module).__name__} has no batch norm that could adapt: leave it frozen"
        )
    return AdaptedNormalisation(copy.deepcopy(module))
