"""A network whose output is rectified as its hidden layers are."""

from torch import Tensor, nn

from lexppl.configured import Configured


class RectifiedCode(Configured, nn.Module):
    """`leaky_relu(network(x))`: the code of XTab's encoder, averaged over subsets.

    Args:
        network: `(N, …, D)` to `(N, …, code)`.

    Example:
        >>> import torch
        >>> RectifiedCode(nn.Identity())(torch.tensor([-1.0, 2.0]))
        tensor([-0.0100,  2.0000])
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.leaky_relu(self.network(x))
