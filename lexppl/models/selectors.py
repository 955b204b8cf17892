"""Selectors: a network of x and the law of the mask, `p_γ(z | x)`."""

from typing import Any

import pyro.distributions as dist
from pyro.distributions import TorchDistribution
from torch import Tensor, nn

from lexppl.distributions import KSubset


class BernoulliSelector(nn.Module):
    """Independent entries: `z_g ~ Bernoulli(σ(network(x)_g))`.

    How many features are kept is free; a penalty on the size holds it back.

    Args:
        network: `(B, *event)` to logits `(B, G)`.

    Example:
        >>> from lexppl.models import MLP
        >>> import torch
        >>> BernoulliSelector(MLP(11, 11, seed=0))(torch.zeros(5, 11)).event_shape
        torch.Size([11])
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def config(self) -> dict[str, Any]:
        return {"network": self.network}

    def forward(self, x: Tensor) -> TorchDistribution:
        return dist.Bernoulli(logits=self.network(x)).to_event(1)


class KSubsetSelector(nn.Module):
    """Exactly k entries: independent Bernoullis with logits `network(x)`, given that k are kept.

    Args:
        network: `(B, *event)` to logits `(B, G)`.
        k: how many of the G entries a mask keeps.

    Raises:
        ValueError: k is not a whole number of at least 1 (or, when first used, exceeds G).

    Example:
        >>> from lexppl.models import MLP
        >>> import torch
        >>> KSubsetSelector(MLP(11, 11, seed=0), k=5)(torch.zeros(3, 11)).sample().sum(-1)
        tensor([5., 5., 5.])
    """

    def __init__(self, network: nn.Module, k: int) -> None:
        super().__init__()
        if not isinstance(k, int) or isinstance(k, bool) or k < 1:
            raise ValueError(f"k must be a whole number of at least 1; it is {k!r}")
        self.network = network
        self.k = k

    def config(self) -> dict[str, Any]:
        return {"network": self.network, "k": self.k}

    def forward(self, x: Tensor) -> TorchDistribution:
        return KSubset(self.network(x), self.k)


class RandomSelector(nn.Module):
    """Masks that know nothing of x: `z_g ~ Bernoulli(rate)`, independently.

    Args:
        entries: G.
        rate: the probability that an entry is kept.

    Raises:
        ValueError: fewer entries than 1, a rate outside [0, 1].

    Example:
        >>> import torch
        >>> RandomSelector(3)(torch.zeros(2, 5)).mean
        tensor([[0.5000, 0.5000, 0.5000],
                [0.5000, 0.5000, 0.5000]])
    """

    def __init__(self, entries: int, rate: float = 0.5) -> None:
        super().__init__()
        if not isinstance(entries, int) or entries < 1:
            raise ValueError(f"entries must be a whole number of at least 1; it is {entries!r}")
        if not 0.0 <= rate <= 1.0:
            raise ValueError(f"rate must be a probability in [0, 1]; it is {rate}")
        self.entries = entries
        self.rate = float(rate)

    def config(self) -> dict[str, Any]:
        return {"entries": self.entries, "rate": self.rate}

    def forward(self, x: Tensor) -> TorchDistribution:
        probabilities = x.new_full((len(x), self.entries), self.rate)
        return dist.Bernoulli(probs=probabilities).to_event(1)
