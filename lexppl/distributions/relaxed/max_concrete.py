"""The relaxed mask of L2X: the largest of k Concrete draws."""

from typing import Any, ClassVar

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import constraints

from lexppl.distributions.gumbel import gumbel
from lexppl.distributions.k_hot import checked_k, checked_logits
from lexppl.distributions.relaxed.relaxed_subset import checked_temperature
from lexppl.distributions.vectors import Vectors


class MaxConcrete(TorchDistribution):
    r"""Relaxed masks of at most k entries: the largest of k independent Concrete draws.

    .. math:: \mathrm{mask}_i = \max_{j \le k} \, \mathrm{softmax}_i\big((\mathrm{logits} + g^j) / t
              \big), \qquad g^j_i \sim \mathrm{Gumbel}(0, 1).

    At a falling temperature it becomes the mask of k entries drawn with replacement: of at most k
    ones, fewer where an entry is drawn twice. Draws are reparameterised.

    Shapes: ``logits`` is ``(*batch, G)``; batch shape ``batch``, event shape ``(G,)``. Memory of a
    draw: k·G numbers.

    Args:
        temperature: positive; a number or a tensor without dimensions.
        logits: log-weights, finite.
        k: the number of Concrete draws, 1 ≤ k ≤ G.
        validate_args: as in every torch distribution.

    Raises:
        ValueError: temperature ≤ 0; k < 1 or k > G; logits that are not finite (when validated).
        TypeError: k is not an int.
        NotImplementedError: from ``log_prob``: the density of the largest of k dependent vectors
            has no closed form.

    Source: Chen, Song, Wainwright and Jordan (2018), "Learning to explain", ICML, § 3.

    Example:
        >>> distribution = MaxConcrete(0.1, torch.zeros(3, 6), k=2)
        >>> distribution.rsample().shape
        torch.Size([3, 6])
    """

    arg_constraints: ClassVar[dict[str, Any]] = {"logits": Vectors(constraints.real)}
    support = constraints.independent(constraints.unit_interval, 1)
    has_rsample = True

    def __init__(
        self,
        temperature: float | Tensor,
        logits: Tensor,
        k: int,
        validate_args: bool | None = None,
    ) -> None:
        self.k = checked_k(k, checked_logits(logits))
        self.temperature = checked_temperature(temperature, validate_args)
        self.logits = logits
        super().__init__(logits.shape[:-1], logits.shape[-1:], validate_args=validate_args)
        if self._validate_args and not bool(logits.isfinite().all()):
            raise ValueError("logits must be finite; some are NaN or infinite")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(logits: {tuple(self.logits.shape)}, k: {self.k})"

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(type(self), _instance)
        batch_shape = torch.Size(batch_shape)
        new.k, new.temperature = self.k, self.temperature
        new.logits = self.logits.expand(batch_shape + self._event_shape)
        super(MaxConcrete, new).__init__(batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Reparameterised draws, ``sample_shape + batch_shape + (G,)``."""
        noise = gumbel((self.k, *self._extended_shape(sample_shape)), self.logits)
        return ((self.logits + noise) / self.temperature).softmax(-1).amax(0)

    def log_prob(self, value: Tensor) -> Tensor:
        raise NotImplementedError(
            "MaxConcrete has no log_prob: the density of the largest of k Concrete draws has no "
            "closed form. Use it where draws are enough, or TopKMask, OrderedTopK or KSubset"
        )
