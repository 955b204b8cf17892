"""Continuous masks: of the k largest Gumbel keys, of the largest of k Concrete draws, Dirichlet."""

from typing import Any, ClassVar

import pyro.distributions as dist
import torch
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import constraints

from lexppl.distributions.log_space import gumbel
from lexppl.distributions.masks import MaskDistribution, Vectors, checked_k, checked_logits


def successive_softmax(keys: Tensor, k: int, temperature: float | Tensor) -> Tensor:
    """A relaxed mask of the k largest keys: ``(…, G) → (…, G)``, non-negative, with sum k.

        a¹ = keys,  p^j = softmax(a^j / t),  a^{j+1} = a^j + log(1 − p^j),  mask = Σ_{j ≤ k} p^j.

    Entries can exceed 1 at any positive temperature (10 to 30 % of them at 0.1 to 1). Source: Xie
    and Ermon (2019), "Reparameterizable subset sampling via continuous relaxations", IJCAI, eq. 3
    to 5.
    """
    mask = torch.zeros_like(keys)
    for taken in range(k):
        scaled = keys / temperature
        log_total = scaled.logsumexp(-1, keepdim=True)
        share = (scaled - log_total).exp()
        mask = mask + share
        if taken < k - 1:
            # 1 − p loses all digits where p is near 1, which only the largest can be. There it is
            # the sum of the other shares.
            largest = torch.zeros_like(share, dtype=torch.bool).scatter(
                -1, scaled.argmax(-1, keepdim=True), True
            )
            others = scaled.masked_fill(largest, -torch.inf).logsumexp(-1, keepdim=True)
            rest = torch.where(largest, torch.zeros_like(share), share)
            keys = keys + torch.where(largest, others - log_total, torch.log1p(-rest))
    return mask


class _RelaxedMask(MaskDistribution):
    """Reparameterised masks of logits, a k and a temperature, without a density."""

    arg_constraints: ClassVar[dict[str, Any]] = {"logits": Vectors(constraints.real)}
    has_rsample = True
    has_enumerate_support = False
    expanded = ("logits",)

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
        self._refuse_infinite("logits")

    def log_prob(self, value: Tensor) -> Tensor:
        name = type(self).__name__
        raise NotImplementedError(
            f"{name} has no log_prob: the density of its draws has no closed form. Use it where "
            "draws are enough, or TopKMask, OrderedTopK or KSubset"
        )


class RelaxedSubset(_RelaxedMask):
    """Relaxed masks of k entries, non-negative with sum k: Xie and Ermon's successive softmaxes of
    ``logits`` plus Gumbel noise.

    At a falling temperature its draws become those of ``TopKMask``, not those of ``KSubset``.

    Args:
        temperature: positive; a number or a tensor without dimensions.
        logits: log-weights, finite, ``(*batch, G)``.
        k: the sum of a mask, 1 ≤ k ≤ G.
        validate_args: as in every torch distribution.

    Raises:
        ValueError: temperature ≤ 0; k < 1 or k > G; logits that are not finite (when validated).
        TypeError: k is not an int.
        NotImplementedError: from ``log_prob``, which has no closed form.

    Source: Xie and Ermon (2019), "Reparameterizable subset sampling via continuous relaxations",
    IJCAI.

    Example:
        >>> distribution = RelaxedSubset(0.5, torch.zeros(3, 6), k=2)
        >>> distribution.rsample().sum(-1)
        tensor([2.0000, 2.0000, 2.0000])
    """

    support = constraints.independent(constraints.nonnegative, 1)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Reparameterised draws, ``sample_shape + batch_shape + (G,)``."""
        noise = gumbel(self._extended_shape(sample_shape), self.logits)
        return successive_softmax(self.logits + noise, self.k, self.temperature)


class MaxConcrete(_RelaxedMask):
    r"""Relaxed masks of at most k entries: the largest of k independent Concrete draws.

    .. math:: \mathrm{mask}_i = \max_{j \le k} \, \mathrm{softmax}_i\big((\mathrm{logits} + g^j) / t
              \big), \qquad g^j_i \sim \mathrm{Gumbel}(0, 1).

    At a falling temperature the mask of k entries drawn with replacement. Memory of a draw: k·G
    numbers.

    Args:
        temperature, logits, validate_args: as in :class:`RelaxedSubset`.
        k: the number of Concrete draws, 1 ≤ k ≤ G.

    Raises:
        ValueError, TypeError, NotImplementedError: as in :class:`RelaxedSubset`.

    Source: Chen, Song, Wainwright and Jordan (2018), "Learning to explain", ICML, § 3.

    Example:
        >>> distribution = MaxConcrete(0.1, torch.zeros(3, 6), k=2)
        >>> distribution.rsample().shape
        torch.Size([3, 6])
    """

    support = constraints.independent(constraints.unit_interval, 1)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Reparameterised draws, ``sample_shape + batch_shape + (G,)``."""
        noise = gumbel((self.k, *self._extended_shape(sample_shape)), self.logits)
        return ((self.logits + noise) / self.temperature).softmax(-1).amax(0)


class MaskDirichlet(dist.Dirichlet):
    r"""Dirichlet(α) over the shares of G entries, drawn in logarithms.

    .. math:: f = \mathrm{softmax}(\log \gamma + \log u / \alpha), \qquad
              \gamma_g \sim \Gamma(\alpha_g + 1), \; u_g \sim U(0, 1).

    torch's own draws underflow where all α are small (0.01), and cannot be vectorised by
    `torch.func.vmap`. Draws are reparameterised; density, moments, entropy and KL are torch's.

    Args:
        concentration: α > 0, ``(*batch, G)``.

    Source: Marsaglia and Tsang (2000), "A simple method for generating Gamma variables", § 6.

    Example:
        >>> draws = MaskDirichlet(torch.full((3,), 0.01)).rsample((1000,))
        >>> bool(draws.isfinite().all()), bool(((draws.sum(-1) - 1).abs() < 1e-5).all())
        (True, True)
    """

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(MaskDirichlet, _instance)
        return super().expand(batch_shape, new)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Reparameterised draws, ``sample_shape + batch_shape + (G,)``."""
        # Draws fill memory in its order: those of a seed shall not depend on the layout.
        concentration = self.concentration.contiguous().expand(self._extended_shape(sample_shape))
        tiny = torch.finfo(concentration.dtype).tiny
        gamma = torch._standard_gamma(concentration + 1.0).clamp(min=tiny)
        uniform = torch.rand_like(concentration).clamp(min=tiny)
        return torch.softmax(gamma.log() + uniform.log() / concentration, -1)


def checked_temperature(temperature: float | Tensor, validate: bool | None) -> float | Tensor:
    """The temperature, refused where it is not positive; a tensor only under validation."""
    if isinstance(temperature, Tensor):
        look = TorchDistribution._validate_args if validate is None else validate
        if not look:
            return temperature
    if not bool(temperature > 0):
        raise ValueError(f"temperature must be positive; it is {float(temperature)}")
    return temperature
