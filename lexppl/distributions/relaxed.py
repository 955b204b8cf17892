"""Continuous masks, and the relaxations of mask distributions with their noise."""

from abc import ABC, abstractmethod
from functools import singledispatch
from typing import Any, ClassVar

import pyro.distributions as dist
import torch
from pyro.distributions import TorchDistribution
from pyro.distributions.util import broadcast_shape
from torch import Tensor
from torch.distributions import Independent, constraints
from torch.distributions.utils import clamp_probs
from torch.nn.functional import softplus

from lexppl.distributions.k_subset import KSubset
from lexppl.distributions.log_space import gumbel, gumbel_given_order, log_exponential
from lexppl.distributions.masks import (
    MaskDistribution,
    Vectors,
    bernoulli_base,
    checked_k,
    checked_logits,
)
from lexppl.distributions.top_k import OrderedTopK, TopKMask, log_weights_of_picks


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
        self, temperature: float | Tensor, logits: Tensor, k: int, validate_args: bool | None = None
    ) -> None:
        self.k = checked_k(k, checked_logits(logits))
        self.temperature = checked_temperature(temperature, validate_args)
        self.logits = logits
        super().__init__(logits.shape[:-1], logits.shape[-1:], validate_args, "logits")

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


class Relaxation(ABC):
    """How masks of a distribution, and a continuous stand-in, come from one continuous noise.

    Estimators such as REBAR need noise ε that is independent of the parameters, the hard draw H(ε),
    the relaxed mask at a temperature, and noise given the hard draw, differentiable in the
    parameters. ``mask`` makes the mask of a draw (an ordered draw has more to it), and ``log_prob``
    is the draw's. Class attributes: ``exact`` (``mask(draw(noise()))`` has the distribution's own
    law), ``has_conditional``, ``extends_log_prob`` (``log_prob`` is smooth in relaxed masks too).

    A distribution of your own takes part by a subclass that is registered for it:

        >>> import pyro.distributions as dist
        >>> class Coins(dist.Delta):  # a distribution of one's own
        ...     '''Masks that are known beforehand.'''
        >>> @relaxation.register(Coins)
        ... class CoinsRelaxation(Relaxation):
        ...     def noise(self, sample_shape=()):
        ...         return torch.zeros(self.distribution.shape(torch.Size(sample_shape)))
        ...     def relaxed(self, noise, temperature):
        ...         return self.distribution.v + noise
        ...     def draw(self, noise):
        ...         return self.distribution.v + noise
        >>> relaxation(Coins(torch.tensor([1.0, 0.0]), event_dim=1)).has_conditional
        False
    """

    exact: ClassVar[bool] = True
    has_conditional: ClassVar[bool] = False
    extends_log_prob: ClassVar[bool] = False

    def __init__(self, distribution: Any) -> None:
        self.distribution = distribution

    @abstractmethod
    def noise(self, sample_shape: Any = ()) -> Tensor:
        """A draw of the noise, ``sample_shape + batch_shape + (G,)``."""

    @abstractmethod
    def relaxed(self, noise: Tensor, temperature: float | Tensor) -> Tensor:
        """The relaxed mask ``(…, G)``, differentiable in the distribution's parameters and the
        noise."""

    @abstractmethod
    def draw(self, noise: Tensor) -> Tensor:
        """The hard draw of the noise; no gradient passes."""

    def mask(self, draw: Tensor) -> Tensor:
        """The mask ``(…, G)`` of a hard draw."""
        return draw

    def hard(self, noise: Tensor) -> Tensor:
        """The mask of the noise, of zeros and ones."""
        return self.mask(self.draw(noise))

    def log_prob(self, draw: Tensor) -> Tensor:
        """Log-probability of a hard draw, of the batch's shape."""
        return self.distribution.log_prob(draw)

    def conditional_noise(self, draw: Tensor) -> Tensor:
        """Noise given its hard draw, differentiable in the parameters; refused without
        ``has_conditional``."""
        raise NotImplementedError(
            f"the relaxation of {type(self.distribution).__name__} has no noise given the draw; "
            "use an estimator that needs none, such as LeaveOneOut"
        )


@singledispatch
def relaxation(distribution: Any) -> Relaxation:
    """The relaxation registered for the type of ``distribution`` by
    ``@relaxation.register(TheLaw)``.

    Raises:
        TypeError: none is registered.

    Example:
        >>> import pyro.distributions as dist
        >>> _ = torch.manual_seed(0)
        >>> relaxed_distribution = relaxation(dist.Bernoulli(logits=torch.zeros(4)).to_event(1))
        >>> relaxed_distribution.hard(relaxed_distribution.noise())
        tensor([0., 1., 0., 0.])
    """
    raise TypeError(
        f"no relaxation is registered for {type(distribution).__name__}; register one with "
        "@relaxation.register(TheLaw), use Bernoulli(...).to_event(1), OrderedTopK or TopKMask, or "
        "an estimator that needs none, such as LeaveOneOut"
    )


@relaxation.register(Independent)
class BernoulliRelaxation(Relaxation):
    """Independent Bernoullis: logistic noise ε, ``z = 1[logits + ε > 0]``, relaxed to σ((logits +
    ε) / t).

    Given z, with v uniform, the key logits + ε is softplus(logit + log v) − log(1 − v) for z = 1,
    and log v − softplus(log(1 − v) − logit) for z = 0 (Maddison et al. 2017; Tucker et al. 2017,
    app. C).
    """

    has_conditional: ClassVar[bool] = True
    extends_log_prob: ClassVar[bool] = True

    def __init__(self, distribution: Independent) -> None:
        super().__init__(distribution)
        self._logits: Tensor = bernoulli_base(distribution, "relaxation").logits

    def noise(self, sample_shape: Any = ()) -> Tensor:
        uniform = self._uniform(torch.Size(sample_shape) + self._logits.shape)
        return uniform.log() - torch.log1p(-uniform)

    def relaxed(self, noise: Tensor, temperature: float | Tensor) -> Tensor:
        return ((self._logits + noise) / temperature).sigmoid()

    def draw(self, noise: Tensor) -> Tensor:
        keys = (self._logits + noise).detach()
        return (keys > 0).to(keys.dtype)

    def conditional_noise(self, draw: Tensor) -> Tensor:
        logits = self._logits
        uniform = self._uniform(torch.Size(broadcast_shape(draw.shape, logits.shape)))
        log_v, log_rest = uniform.log(), torch.log1p(-uniform)
        on = softplus(logits + log_v) - log_rest
        off = log_v - softplus(log_rest - logits)
        return torch.where(draw > 0.5, on, off) - logits

    def _uniform(self, shape: Any) -> Tensor:
        like = self._logits
        return clamp_probs(torch.rand(*shape, dtype=like.dtype, device=like.device))


class _OfKeys(Relaxation):
    """Gumbel noise, and the relaxed mask of the k largest keys."""

    def __init__(self, distribution: Any) -> None:
        super().__init__(distribution)
        self._logits: Tensor = distribution.logits
        self._k: int = distribution.k

    def noise(self, sample_shape: Any = ()) -> Tensor:
        return gumbel(torch.Size(sample_shape) + self._logits.shape, self._logits)

    def relaxed(self, noise: Tensor, temperature: float | Tensor) -> Tensor:
        return successive_softmax(self._logits + noise, self._k, temperature)


@relaxation.register(OrderedTopK)
@relaxation.register(TopKMask)
class OrderedTopKRelaxation(_OfKeys):
    """Ordered top-k: Gumbel noise, the k largest keys in falling order (Gadetsky et al. 2020); of
    the top-k mask through the ordered draw behind it, whose score is one of the mask too."""

    has_conditional: ClassVar[bool] = True

    def __init__(self, distribution: OrderedTopK | TopKMask) -> None:
        super().__init__(distribution)
        of_mask = isinstance(distribution, TopKMask)
        self._ordered = distribution.ordered if of_mask else distribution

    def draw(self, noise: Tensor) -> Tensor:
        return (self._logits + noise).detach().topk(self._k, -1).indices

    def mask(self, draw: Tensor) -> Tensor:
        return self._ordered.mask(draw)

    def log_prob(self, draw: Tensor) -> Tensor:
        return self._ordered.log_prob(draw)

    def conditional_noise(self, draw: Tensor) -> Tensor:
        logits = self._logits
        batch = torch.Size(broadcast_shape(logits.shape[:-1], draw.shape[:-1]))
        logits = logits.expand(*batch, logits.shape[-1])
        draw = draw.expand(*batch, draw.shape[-1])
        log_weights = log_weights_of_picks(logits, draw)[1]
        return gumbel_given_order(logits, draw, log_weights, log_exponential(logits.shape, logits))


@relaxation.register(KSubset)
class KSubsetRelaxation(_OfKeys):
    """A biased stand-in for the exact k-subset distribution, the relaxed top-k of Gumbel keys,
    without hard draws: those would follow ``TopKMask``."""

    exact: ClassVar[bool] = False

    def __init__(self, distribution: KSubset) -> None:
        if isinstance(distribution.k, Tensor):
            raise TypeError("the relaxation of KSubset needs an int k; its k is a tensor")
        super().__init__(distribution)

    def draw(self, noise: Tensor) -> Tensor:
        raise NotImplementedError(
            "the relaxation of KSubset has no hard draw: the largest keys of its noise follow "
            "TopKMask. Use TopKMask, or an estimator without a relaxation, such as LeaveOneOut"
        )
