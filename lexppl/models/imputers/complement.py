"""An imputer that is shown what the mask would hide."""

from pyro.distributions.torch_distribution import TorchDistribution
from torch import Tensor, nn

from lexppl.configured import Configured

__all__ = ["ComplementImputer"]


class ComplementImputer(Configured, nn.Module):
    """Hide what the mask keeps and keep what it hides, `p_ι(x̃ | x, 1 − z)`.

    What an adversary sees (MEED, Liang et al. 2020, eq. 7), and the unselected features of FU-M.

    Args:
        imputer: any imputer.

    Example:
        >>> import torch
        >>> from lexppl.models import ConstantImputer
        >>> imputer = ComplementImputer(ConstantImputer())
        >>> imputer(torch.ones(1, 2), torch.tensor([1.0, 0.0])).sample()
        tensor([[0., 1.]])
    """

    def __init__(self, imputer: nn.Module) -> None:
        super().__init__()
        self.imputer = imputer

    def forward(self, x: Tensor, keep: Tensor) -> TorchDistribution:
        """The distribution of the imputed rows given the complement of `keep`."""
        distribution: TorchDistribution = self.imputer(x, 1.0 - keep)
        return distribution
