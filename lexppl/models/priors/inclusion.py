"""Priors on how many entries are kept: an inclusion rate to infer, a size, known relevance."""

from collections.abc import Sequence

import pyro.distributions as dist
import torch
from pyro.distributions import TorchDistribution
from pyro.nn import PyroModule, PyroSample
from torch import Tensor, nn

from lexppl.argument_checks import finite_float
from lexppl.configured import Configured
from lexppl.distributions import RandomSizeSubset
from lexppl.distributions.computed_once import MadeOnce


class BetaBernoulliSelector(Configured, PyroModule):
    r"""Independent entries whose rate of inclusion is inferred, one for all rows and entries:

    .. math:: \pi \sim \mathrm{Beta}(a, b), \qquad
        z_g \mid x, \pi \sim \mathrm{Bernoulli}\bigl(\sigma(f(x)_g + \log\tfrac{\pi}{1-\pi})\bigr).

    Spike and slab with its λ learned: where f is 0 a mask has probability
    `e^{−λ|z|} / (1 + e^{−λ})^G` with `λ = log (1−π)/π` nats for each entry. With a guide or a
    sampler for `rate` that is fully Bayesian, and corrects for the number of entries; its mode
    under a = b = 1 (Pyro's `AutoDelta`) is empirical Bayes, the λ of largest marginal likelihood in
    place of one from a path. π is told apart from the network's level only where that is known: a
    fixed network, or one whose weights have a prior (:func:`lexppl.models.with_prior`).

    Site: `rate`, under the selector's name in its program, in no plate. Under a network that says 0
    the sizes are :func:`lexppl.distributions.beta_binomial_sizes`.

    Args:
        network: `(B, *event)` to logits `(B, G)`.
        a, b: of the Beta distribution, above 0; 1 and G for about one entry.

    Raises:
        ValueError: a or b not positive.

    References:
        George & McCulloch (1993), "Variable selection via Gibbs sampling", JASA 88. Scott & Berger
        (2010), "Bayes and empirical-Bayes multiplicity adjustment in the variable-selection
        problem", Annals of Statistics 38, § 2 (the Beta prior) and § 3 (empirical Bayes, and where
        the two differ).

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


def _rate(selector: BetaBernoulliSelector) -> TorchDistribution:
    return dist.Beta(selector.a * selector._one, selector.b * selector._one)


class RandomSizeSelector(Configured, nn.Module):
    r"""First how many entries, by a given prior, then which, by the network:

    .. math:: k \sim P, \qquad z \mid x, k \sim \mathrm{KSubset}(f(x), k),

    with k summed out (:class:`lexppl.distributions.RandomSizeSubset`). The size is that of a row;
    one k for all rows is a `pyro.sample` of a categorical distribution outside the plates.

    Args:
        network: `(B, *event)` to logits `(B, G)`.
        sizes: P(0), …, P(S), S ≤ G, divided by their sum: as
            :func:`lexppl.distributions.geometric_sizes` gives them.

    Raises:
        ValueError: a probability that is negative or not finite, none above 0; when first used,
            more than G + 1.

    Example:
        >>> from lexppl.distributions import geometric_sizes
        >>> selector = RandomSizeSelector(nn.Identity(), geometric_sizes(0.5, 3, smallest=1))
        >>> selector(torch.zeros(1, 3)).mean
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
    entry g is kept where the network says 0; in a k-subset they are weights, of which only
    differences count.

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
