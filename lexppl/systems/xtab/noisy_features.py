"""Noise on the features of a row, while a network trains."""

import torch
from torch import Tensor, nn

from lexppl.argument_checks import finite_float, fraction
from lexppl.configured import Configured

KINDS = ("gaussian", "added", "swap")


class NoisyFeatures(Configured, nn.Module):
    """While training, each entry is replaced with probability p; afterwards rows pass as they are.

    By a Gaussian draw `ε ~ N(0, σ²)`, by its own value with such a draw added ("added"), or by the
    same feature of another row of the batch ("swap"; Uçar & Hajiramezanali 2022, § 3.2). Of rows in
    pieces, each piece's entries are changed for themselves.

    Args:
        network: what sees the rows, `(N, …, D)`.
        share: p, in [0, 1].
        scale: σ.
        kind: "gaussian", "added" or "swap".

    Raises:
        ValueError: a share outside [0, 1], a negative scale, another kind.

    Example:
        >>> noisy = NoisyFeatures(nn.Identity(), share=1.0, kind="swap")
        >>> noisy(torch.ones(1, 2)), noisy.eval()(torch.ones(1, 2))
        (tensor([[1., 1.]]), tensor([[1., 1.]]))
    """

    def __init__(
        self, network: nn.Module, share: float, scale: float = 1.0, kind: str = "gaussian"
    ) -> None:
        super().__init__()
        share = fraction("share", share, zero=True, one=True)
        scale = finite_float("scale", scale, least=0.0)
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {KINDS}; it is {kind!r}")
        self.network = network
        self.share, self.scale, self.kind = share, scale, kind

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.share > 0.0:
            if self.kind == "swap":
                other = x.gather(0, torch.rand_like(x).argsort(0))
            else:
                noise = self.scale * torch.randn_like(x)
                other = x + noise if self.kind == "added" else noise
            x = torch.where(torch.rand_like(x) < self.share, other, x)
        outputs: Tensor = self.network(x)
        return outputs
