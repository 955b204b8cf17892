"""Hierarchical priors: of how much is kept, of sparse weights, of sites."""

from collections.abc import Sequence
from typing import Any

import pyro.distributions as dist
import torch
from pyro.distributions import TorchDistribution
from pyro.infer.util import is_validation_enabled
from pyro.nn import PyroModule, PyroSample
from torch import Tensor, nn

from lexppl.argument_checks import finite_float, int_at_least, int_between
from lexppl.configured import Configured
from lexppl.distributions import RandomSizeSubset
from lexppl.distributions.computed_once import MadeOnce


class BetaBernoulliSelector(Configured, PyroModule):
    r"""Independent entries whose rate of inclusion is inferred, one for all rows and entries:

    .. math:: \pi \sim \mathrm{Beta}(a, b), \qquad
        z_g \mid x, \pi \sim \mathrm{Bernoulli}\bigl(\sigma(f(x)_g + \log\tfrac{\pi}{1-\pi})\bigr).

    Spike and slab with λ learned: where f is 0 a mask has probability `e^{−λ|z|} / (1 + e^{−λ})^G`
    with `λ = log (1−π)/π` nats for each entry. A guide or a sampler for `rate` is fully Bayesian,
    and corrects for the number of entries; its mode under a = b = 1 (`AutoDelta`) is empirical
    Bayes. π is distinct from the network's level only where that is fixed, or its weights have a
    prior (:func:`lexppl.models.with_prior`).

    Site: `rate`, in no plate. Under a network that says 0 the sizes are
    :func:`lexppl.distributions.beta_binomial_sizes`.

    Args:
        network: `(B, *event)` to logits `(B, G)`.
        a, b: of the Beta distribution, above 0; 1 and G for about one entry.

    Raises:
        ValueError: a or b not positive.

    References:
        George & McCulloch (1993), "Variable selection via Gibbs sampling", JASA 88. Scott & Berger
        (2010), "Bayes and empirical-Bayes multiplicity adjustment in the variable-selection
        problem", Annals of Statistics 38, § 2 and § 3.

    Example:
        >>> selector = BetaBernoulliSelector(nn.Identity(), 1.0, 3.0)
        >>> with torch.random.fork_rng():
        ...     selector(torch.zeros(4, 3)).batch_shape
        torch.Size([4])
    """

    def __init__(self, network: nn.Module, a: float = 1.0, b: float = 1.0) -> None:
        super().__init__()
        self.network = network
        self.a = finite_float("a", a, above=0.0)
        self.b = finite_float("b", b, above=0.0)
        self.register_buffer("_one", torch.ones(()))
        self.rate = PyroSample(_rate)

    def forward(self, x: Tensor) -> TorchDistribution:
        logits = self.network(x)
        rate = self.rate.to(logits.dtype).clamp(1e-6, 1.0 - 1e-6)
        return dist.Bernoulli(logits=logits + rate.logit()).to_event(1)


class RandomSizeSelector(Configured, nn.Module):
    r"""First how many entries, by a given prior, then which, by the network:

    .. math:: k \sim P, \qquad z \mid x, k \sim \mathrm{KSubset}(f(x), k),

    with k, of each row, summed out (:class:`lexppl.distributions.RandomSizeSubset`).

    Args:
        network: `(B, *event)` to logits `(B, G)`.
        sizes: P(0), …, P(S), S ≤ G, divided by their sum: as
            :func:`lexppl.distributions.geometric_sizes` gives them.

    Raises:
        ValueError: a probability that is negative or not finite, none above 0; when first used,
            more than G + 1.

    Example:
        >>> RandomSizeSelector(nn.Identity(), [0.0, 4.0, 2.0, 1.0])(torch.zeros(1, 3)).mean
        tensor([[0.5238, 0.5238, 0.5238]])
    """

    def __init__(self, network: nn.Module, sizes: Sequence[float] | Tensor) -> None:
        super().__init__()
        self.network = network
        self.sizes = tuple(finite_float("a probability of sizes", p, least=0.0) for p in sizes)
        if not sum(self.sizes) > 0.0:
            raise ValueError(f"sizes must have a probability above 0; they are {self.sizes}")
        self._kept = MadeOnce()

    def forward(self, x: Tensor) -> TorchDistribution:
        logits = self.network(x)
        sizes = self._kept.like(logits, self.sizes, torch.tensor)
        return RandomSizeSubset(logits, sizes.log())


class PriorLogits(Configured, nn.Module):
    r"""A selector's network beside what is known of the features: `f(x)_g + o_g`.

    In an independent mask :math:`o_g = \log\frac{\rho_g}{1-\rho_g}` are the prior log-odds that
    entry g is kept where the network says 0; in a k-subset only their differences count.

    Args:
        network: `(B, *event)` to logits `(B, G)`.
        log_odds: o, one for each entry, in nats.

    Raises:
        ValueError: one that is not finite; when first used, other than G.

    Example:
        >>> PriorLogits(nn.Identity(), [2.0, -1.0])(torch.zeros(1, 2))
        tensor([[ 2., -1.]])
    """

    def __init__(self, network: nn.Module, log_odds: Sequence[float]) -> None:
        super().__init__()
        self.network = network
        self.log_odds = tuple(finite_float("a log-odds", one) for one in log_odds)
        self._kept = MadeOnce()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x)
        if logits.shape[-1] != len(self.log_odds):
            raise ValueError(
                f"there are {len(self.log_odds)} log-odds, and the network gives "
                f"{logits.shape[-1]} entries"
            )
        return logits + self._kept.like(logits, self.log_odds, torch.tensor)


class HorseshoeLinear(Configured, PyroModule):
    r"""A linear network `f(x) = b + x Wᵀ` whose weights have the horseshoe prior, non-centred:

    .. math:: \tau \sim \mathrm{C}^+(0, \tau_0), \quad \lambda_{gd} \sim \mathrm{C}^+(0, 1), \quad
        \epsilon_{gd} \sim \mathcal N(0, 1), \quad W_{gd} = \tau \lambda_{gd} \epsilon_{gd} .

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
        >>> with torch.random.fork_rng():
        ...     HorseshoeLinear(3, 2, scale=0.1)(torch.zeros(4, 3)).shape
        torch.Size([4, 2])
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


class SiteOffsets(Configured, PyroModule):
    r"""A selector's network with offsets of sites (hospitals, schools, batches), partially pooled:

    .. math:: \tau \sim \mathrm{HalfNormal}(s), \quad \epsilon_{jg} \sim \mathcal N(0, 1), \qquad
        f_{\text{all}}(x_n)_g + \tau \, \epsilon_{j(n), g} .

    The offsets, in log-odds, say how the sites differ in what matters there. The site's number is a
    column of x, which the network is not given; where the predictor is not to see it either, a
    :class:`lexppl.models.Grouping` leaves it to an entry of its own.

    Sites: `spread` () and `effect` `(J, G)`, in no plate: one value for all rows.

    Args:
        network: from the other columns `(B, D − 1)` to logits `(B, G)`.
        sites: J.
        outputs: G.
        column: which column of x has the sites' numbers 0, …, J − 1.
        scale: s of τ, in log-odds, above 0.

    Raises:
        ValueError: numbers out of range; when used, rows without that column, or with other numbers
            of sites (looked at where Pyro validates, as in the first step of a fit).

    References:
        Gelman & Hill (2007), "Data analysis using regression and multilevel/hierarchical models",
        ch. 13. Papaspiliopoulos, Roberts & Sköld (2007), "A general framework for the
        parametrization of hierarchical models", Statistical Science 22.

    Example:
        >>> network = SiteOffsets(nn.Linear(2, 3), sites=5, outputs=3, column=0)
        >>> with torch.random.fork_rng():
        ...     network(torch.tensor([[0.0, 1.0, 2.0], [4.0, 1.0, 2.0]])).shape
        torch.Size([2, 3])
    """

    def __init__(
        self, network: nn.Module, sites: int, outputs: int, column: int = 0, scale: float = 1.0
    ) -> None:
        super().__init__()
        self.network = network
        self.sites = int_at_least("sites", sites)
        self.outputs = int_at_least("outputs", outputs)
        self.column = int_at_least("column", column, 0)
        self.scale = finite_float("scale", scale, above=0.0)
        self.register_buffer("_one", torch.ones(()))
        self.spread = PyroSample(_spread)
        self.effect = PyroSample(_site_effect)

    def forward(self, x: Tensor) -> Tensor:
        int_between("column", self.column, 0, x.shape[-1] - 1, note="the columns of x")
        site = x[..., self.column]
        if is_validation_enabled() and not bool(
            ((site == site.round()) & (site >= 0) & (site < self.sites)).all()
        ):
            raise ValueError(
                f"column {self.column} must hold the numbers 0 to {self.sites - 1} of the sites; "
                f"it runs from {float(site.min())} to {float(site.max())}"
            )
        others = torch.cat([x[..., : self.column], x[..., self.column + 1 :]], -1)
        # A product in place of an index runs for replicates at once.
        is_site = site.unsqueeze(-1) == torch.arange(self.sites, device=x.device)
        logits: Tensor = self.network(others)
        return logits + self.spread * (is_site.to(x.dtype) @ self.effect)


def _each(one: TorchDistribution, *shape: int) -> TorchDistribution:
    """Independent draws of one distribution, of an event shape."""
    return one.expand(shape).to_event(len(shape))


# Functions of a module each, so that what holds them can be pickled.


def _rate(own: Any) -> TorchDistribution:
    return dist.Beta(own.a * own._one, own.b * own._one)


def _global_scale(own: Any) -> TorchDistribution:
    return dist.HalfCauchy(own.scale * own._one)


def _local_scale(own: Any) -> TorchDistribution:
    return _each(dist.HalfCauchy(own._one), own.outputs, own.inputs)


def _effect(own: Any) -> TorchDistribution:
    return _each(dist.Normal(0.0 * own._one, own._one), own.outputs, own.inputs)


def _intercept(own: Any) -> TorchDistribution:
    return _each(dist.Normal(0.0 * own._one, own.intercept_scale * own._one), own.outputs)


def _spread(own: Any) -> TorchDistribution:
    return dist.HalfNormal(own.scale * own._one)


def _site_effect(own: Any) -> TorchDistribution:
    return _each(dist.Normal(0.0 * own._one, own._one), own.sites, own.outputs)
