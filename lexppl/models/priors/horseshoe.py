"""The horseshoe: weights of a linear network of which most are about 0 and some are not."""

import pyro.distributions as dist
import torch
from pyro.nn import PyroModule, PyroSample
from torch import Tensor, nn

from lexppl.argument_checks import finite_float, int_at_least
from lexppl.configured import Configured


class HorseshoeLinear(Configured, PyroModule):
    r"""A linear network `f(x) = b + x Wᵀ` whose weights have the horseshoe prior, non-centred:

    .. math:: \tau \sim \mathrm{C}^+(0, \tau_0), \quad \lambda_{gd} \sim \mathrm{C}^+(0, 1), \quad
        \epsilon_{gd} \sim \mathcal N(0, 1), \quad W_{gd} = \tau \lambda_{gd} \epsilon_{gd} .

    A network for any selector: which features say which to keep, with most of them saying nothing.
    With `D₀` of D features expected to say something in N rows, τ₀ about `D₀ / ((D − D₀) √N)` times
    the scale of the logits' noise (about 2) is a fair choice.

    Sites: `global_scale` (), `local_scale` and `effect` `(G, D)`, and `intercept` `(G,)` under
    `Normal(0, intercept_scale)`; in no plate.

    Args:
        inputs: D.
        outputs: G.
        scale: τ₀, above 0.
        intercept_scale: of b, above 0.

    Raises:
        ValueError: sizes below 1, scales that are not positive.

    References:
        Carvalho, Polson & Scott (2010), "The horseshoe estimator for sparse signals", Biometrika
        97, eq. 1 and 2. Piironen & Vehtari (2017), "Sparsity information and regularization in the
        horseshoe and other shrinkage priors", EJS 11, § 3.3, for τ₀.

    Example:
        >>> from lexppl.models import BernoulliSelector
        >>> selector = BernoulliSelector(HorseshoeLinear(3, 2, scale=0.1))
        >>> with torch.random.fork_rng():
        ...     selector(torch.zeros(4, 3)).event_shape
        torch.Size([2])
    """

    def __init__(
        self, inputs: int, outputs: int, scale: float = 1.0, intercept_scale: float = 1.0
    ) -> None:
        super().__init__()
        self.inputs = int_at_least("inputs", inputs)
        self.outputs = int_at_least("outputs", outputs)
        self.scale = finite_float("scale", scale, above=0.0)
        self.intercept_scale = finite_float("intercept_scale", intercept_scale, above=0.0)
        self.register_buffer("_one", torch.ones(()))
        self.global_scale = PyroSample(_global_scale)
        self.local_scale = PyroSample(_local_scale)
        self.effect = PyroSample(_effect)
        self.intercept = PyroSample(_intercept)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.global_scale * self.local_scale * self.effect
        return nn.functional.linear(x, weight, self.intercept)


def _global_scale(network: HorseshoeLinear) -> dist.TorchDistribution:
    return dist.HalfCauchy(network.scale * network._one)


def _local_scale(network: HorseshoeLinear) -> dist.TorchDistribution:
    one = dist.HalfCauchy(network._one)
    return one.expand([network.outputs, network.inputs]).to_event(2)


def _effect(network: HorseshoeLinear) -> dist.TorchDistribution:
    one = dist.Normal(torch.zeros_like(network._one), network._one)
    return one.expand([network.outputs, network.inputs]).to_event(2)


def _intercept(network: HorseshoeLinear) -> dist.TorchDistribution:
    one = dist.Normal(torch.zeros_like(network._one), network.intercept_scale * network._one)
    return one.expand([network.outputs]).to_event(1)
