"""For a mask distribution: its relaxation, the noise of that relaxation, and the noise given the
draw."""

from abc import ABC, abstractmethod
from functools import singledispatch
from typing import Any, ClassVar

import torch
from pyro.distributions.util import broadcast_shape
from torch import Tensor
from torch.distributions import Independent
from torch.distributions.utils import clamp_probs
from torch.nn.functional import softplus

from lexppl.distributions.k_subset import KSubset
from lexppl.distributions.log_space import gumbel, gumbel_given_order, log_exponential
from lexppl.distributions.masks import bernoulli_base
from lexppl.distributions.relaxed import successive_softmax
from lexppl.distributions.top_k import OrderedTopK, TopKMask, log_weights_of_picks


class Relaxation(ABC):
    r"""How masks of a distribution, and a continuous stand-in for them, come from one continuous
    noise.

    Estimators of the kind of REBAR need: noise ε whose distribution does not depend on the
    parameters, the hard draw H(ε), the relaxed mask at a temperature, and noise drawn given the
    hard draw, through which gradients pass as through a reparameterised draw. The hard draw need
    not be the mask itself (an ordered draw has more to it): ``mask`` makes the mask of it, and
    ``log_prob`` is the draw's.

    A distribution of your own takes part when a subclass of this is registered for it:

        >>> import pyro.distributions as dist
        >>> class Coins(dist.Delta):  # a distribution of one's own
        ...     '''Masks that are known beforehand.'''
        >>> @relaxation.register(Coins)
        ... class CoinsRelaxation(Relaxation):
        ...     def __init__(self, distribution: Coins) -> None:
        ...         super().__init__(distribution)
        ...     def noise(self, sample_shape=()):
        ...         return torch.zeros(self.distribution.shape(torch.Size(sample_shape)))
        ...     def relaxed(self, noise, temperature):
        ...         return self.distribution.v + noise
        ...     def draw(self, noise):
        ...         return self.distribution.v + noise
        >>> relaxation(Coins(torch.tensor([1.0, 0.0]), event_dim=1)).has_conditional
        False

    Attributes:
        distribution: the distribution that is relaxed.
        exact: whether ``mask(draw(noise()))`` has the distribution's own distribution.
        has_conditional: whether ``conditional_noise`` exists.
        extends_log_prob: whether the distribution's ``log_prob`` is smooth in relaxed masks too, so
            that the weights of a guide can be taken at them.
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
        """The mask of the noise, of zeros and ones: ``mask(draw(noise))``."""
        return self.mask(self.draw(noise))

    def log_prob(self, draw: Tensor) -> Tensor:
        """Log-probability of a hard draw, of the batch's shape."""
        return self.distribution.log_prob(draw)

    def conditional_noise(self, draw: Tensor) -> Tensor:
        """Noise given its hard draw, differentiable in the distribution's parameters.

        Raises:
            NotImplementedError: the relaxation has none (``has_conditional`` is False).
        """
        raise NotImplementedError(
            f"the relaxation of {type(self.distribution).__name__} has no noise given the draw; "
            "use an estimator that needs none, such as LeaveOneOut"
        )


@singledispatch
def relaxation(distribution: Any) -> Relaxation:
    """The relaxation registered for the type of ``distribution``.

    Register one for a distribution of your own by ``@relaxation.register(TheLaw)`` (see
    ``Relaxation``).

    Raises:
        TypeError: none is registered.

    Example:
        >>> import pyro.distributions as dist
        >>> _ = torch.manual_seed(0)
        >>> relaxed_distribution = relaxation(dist.Bernoulli(logits=torch.zeros(4)).to_event(1))
        >>> noise = relaxed_distribution.noise()
        >>> relaxed_distribution.hard(noise)
        tensor([0., 1., 0., 0.])
        >>> again = relaxed_distribution.conditional_noise(relaxed_distribution.draw(noise))
        >>> bool((relaxed_distribution.hard(again) == relaxed_distribution.hard(noise)).all())
        True
    """
    raise TypeError(
        f"no relaxation is registered for {type(distribution).__name__}; register one with "
        "@relaxation.register(TheLaw), use Bernoulli(...).to_event(1), OrderedTopK or TopKMask, or "
        "an estimator that needs none, such as LeaveOneOut"
    )


@relaxation.register(Independent)
class BernoulliRelaxation(Relaxation):
    r"""Independent Bernoullis: logistic noise ε, ``z = 1[logits + ε > 0]``.

    The relaxed mask is the Concrete distribution's σ((logits + ε) / t). Given z, with v uniform,
    the key logits + ε is log v' − log(1 − v') + logits for v' uniform on the part of [0, 1] that
    gives z:

    .. math:: z = 1: \; \mathrm{softplus}(\mathrm{logit} + \log v) - \log(1 - v), \qquad
              z = 0: \; \log v - \mathrm{softplus}(\log(1 - v) - \mathrm{logit}).

    Sources: Maddison, Mnih and Teh (2017), "The Concrete distribution", ICLR; Tucker, Mnih,
    Maddison, Lawson and Sohl-Dickstein (2017), "REBAR", NeurIPS, app. C.
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
class OrderedTopKRelaxation(_OfKeys):
    """Ordered top-k: Gumbel noise, the k largest keys in falling order.

    The relaxed mask is ``successive_softmax`` of the keys; the noise given the ordered draw is
    ``gumbel_given_order`` (Gadetsky et al. 2020).
    """

    has_conditional: ClassVar[bool] = True

    def __init__(self, distribution: OrderedTopK) -> None:
        super().__init__(distribution)
        self._ordered = distribution

    def draw(self, noise: Tensor) -> Tensor:
        keys = (self._logits + noise).detach()
        return keys.topk(self._k, -1).indices

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


@relaxation.register(TopKMask)
class TopKMaskRelaxation(OrderedTopKRelaxation):
    """The top-k mask, through the ordered draw behind it.

    Draws are ordered indices and ``log_prob`` is that of the ordered draw. A mask is a function of
    its order, so the order's score is as good a score for any function of the mask, and unlike the
    mask's own it has a conditional, and no limit on k.
    """

    def __init__(self, distribution: TopKMask) -> None:
        super().__init__(distribution.ordered)
        self.distribution = distribution


@relaxation.register(KSubset)
class KSubsetRelaxation(_OfKeys):
    """A biased stand-in for the exact k-subset distribution: the relaxed top-k of Gumbel keys.

    The k largest of ``logits`` plus Gumbel noise follow ``TopKMask``, another distribution than
    ``KSubset`` with the same logits. So this noise has no hard draw that follows the distribution,
    and no conditional: ``draw``, ``hard`` and ``conditional_noise`` are refused. Use ``TopKMask``
    for an unbiased estimator with a relaxation, or an estimator that needs none with ``KSubset``.
    """

    exact: ClassVar[bool] = False

    def __init__(self, distribution: KSubset) -> None:
        if isinstance(distribution.k, Tensor):
            raise TypeError(
                "the relaxation of KSubset needs an int k; this distribution's k is a tensor"
            )
        super().__init__(distribution)

    def draw(self, noise: Tensor) -> Tensor:
        raise NotImplementedError(
            "the relaxation of KSubset has no hard draw: the largest keys of its noise follow "
            "TopKMask. Use TopKMask, or an estimator without a relaxation, such as LeaveOneOut"
        )
