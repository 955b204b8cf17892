"""Priors on how many entries a mask keeps, as the probabilities of the sizes 0, …, G."""

import torch
from torch import Tensor

from lexppl.argument_checks import finite_float, int_at_least, int_between


def geometric_sizes(
    ratio: float, entries: int, *, smallest: int = 0, largest: int | None = None
) -> Tensor:
    r"""The truncated geometric prior: each further entry is `ratio` times as likely as the last,

    .. math:: P(k) = \rho^k \Big/ \sum_{j=a}^{b} \rho^j, \qquad a \le k \le b .

    With ρ = 1 all sizes are alike, with ρ < 1 few entries are likelier: −log ρ nats for each. It is
    a prior on the size alone; masks of one size share it, where a penalty of λ nats for each entry
    has `P(k) ∝ C(G, k) e^{−λk}`.

    Args:
        ratio: ρ > 0.
        entries: G.
        smallest: a ≥ 0, the smallest size.
        largest: b ≤ G; G if None.

    Returns:
        P(0), …, P(G), float64.

    Raises:
        ValueError: a ratio that is not positive, sizes that are not 0 ≤ a ≤ b ≤ G.

    Example:
        >>> geometric_sizes(0.5, 3, smallest=1)
        tensor([0.0000, 0.5714, 0.2857, 0.1429], dtype=torch.float64)
        >>> geometric_sizes(1.0, 3, largest=1)
        tensor([0.5000, 0.5000, 0.0000, 0.0000], dtype=torch.float64)
    """
    ratio = finite_float("ratio", ratio, above=0.0)
    entries = int_at_least("entries", entries)
    last = entries if largest is None else int_between("largest", largest, 0, entries)
    first = int_between("smallest", smallest, 0, last)
    size = torch.arange(entries + 1, dtype=torch.float64)
    weights = size * torch.tensor(ratio, dtype=torch.float64).log()
    outside = (size < first) | (size > last)
    return weights.masked_fill(outside, -torch.inf).softmax(0)


def beta_binomial_sizes(entries: int, a: float = 1.0, b: float = 1.0) -> Tensor:
    r"""Sizes of masks whose entries are kept with a rate that is itself unknown,

    .. math:: \pi \sim \mathrm{Beta}(a, b), \quad z_g \mid \pi \sim \mathrm{Bernoulli}(\pi), \qquad
        P(k) = \binom{G}{k} \frac{B(a + k,\; b + G - k)}{B(a, b)} .

    With a = b = 1 all sizes are alike. A given mask of k entries has `P(k) / C(G, k)`, so that a
    further entry costs the more the more there are to choose from: the correction for multiplicity
    that a fixed rate lacks.

    Args:
        entries: G.
        a, b: of the Beta distribution of the rate, above 0.

    Returns:
        P(0), …, P(G), float64.

    Raises:
        ValueError: no entries, a or b not positive.

    References:
        Scott & Berger (2010), "Bayes and empirical-Bayes multiplicity adjustment in the
        variable-selection problem", Annals of Statistics 38, § 2.2 and eq. 6.

    Example:
        >>> beta_binomial_sizes(3)
        tensor([0.2500, 0.2500, 0.2500, 0.2500], dtype=torch.float64)
        >>> beta_binomial_sizes(2, 1.0, 3.0)
        tensor([0.6000, 0.3000, 0.1000], dtype=torch.float64)
    """
    entries = int_at_least("entries", entries)
    a, b = finite_float("a", a, above=0.0), finite_float("b", b, above=0.0)
    size = torch.arange(entries + 1, dtype=torch.float64)

    def log_beta(x: Tensor, y: Tensor) -> Tensor:
        return x.lgamma() + y.lgamma() - (x + y).lgamma()

    # log C(G, k) = −log B(k + 1, G − k + 1) − log(G + 1), whose last term is that of every size
    log_ways = -log_beta(size + 1, entries - size + 1)
    return (log_ways + log_beta(a + size, b + entries - size)).softmax(0)
