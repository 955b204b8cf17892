"""Expectation maximisation of a mixture of diagonal Gaussians, over batches of rows."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from lexppl.models.imputers.mixture.blocks import NUMBERS_AT_ONCE

__all__ = ["DiagonalMixture", "fit_in_batches", "start_by_clusters"]

START_ROWS = 5000
"""Most rows that the start is found on."""

ROUNDS = 200
"""Most rounds of expectation maximisation."""

TOLERANCE = 1e-3
"""Nats a row by which the mean log-likelihood must change for another round, as scikit-learn's."""


class DiagonalMixture(NamedTuple):
    """A mixture of diagonal Gaussians.

    Args:
        weights: shape `(C,)`.
        means: shape `(C, D)`.
        scales: standard deviations, shape `(C, D)`.
    """

    weights: Tensor
    means: Tensor
    scales: Tensor


def fit_in_batches(rows: Tensor, components: int, seed: int, least_scale: float) -> DiagonalMixture:
    """The mixture that expectation maximisation finds from a start of k-means, each round over all
    rows:

        r_nc ∝ π_c Π_d N(x_nd; μ_cd, σ_cd²),    π_c = n_c / N,    n_c = Σ_n r_nc,
        μ_c = Σ_n r_nc x_n / n_c,    σ_c² = Σ_n r_nc (x_n − μ_c)² / n_c + least_scale².

    A round is four products of matrices, in float64 where the device has it; memory is that of the
    rows and of one batch.

    Args:
        rows: flat rows, shape `(N, D)`, finite.
        components: C.
        seed: of the start.
        least_scale: what is added to each variance, as a standard deviation.

    Returns:
        with the type and the device of `rows`.

    Source: Dempster, Laird, Rubin. Maximum likelihood from incomplete data via the EM algorithm.
    JRSS B 1977.

    Example:
        >>> rows = torch.tensor([[0.0], [0.1], [5.0], [5.1]])
        >>> found = fit_in_batches(rows, components=2, seed=0, least_scale=0.01)
        >>> found.means.sort(0).values
        tensor([[0.0500],
                [5.0500]])
    """
    # Squares about the centre lose no digits to an offset of the features.
    centre = rows.mean(0).to(_precise(rows))
    start = start_by_clusters(rows, components, seed, least_scale)
    mixture = DiagonalMixture(*(t.to(centre) for t in start))
    mixture = mixture._replace(means=mixture.means - centre)
    size = max(1, NUMBERS_AT_ONCE // rows.shape[1])
    before = -math.inf
    for _ in range(ROUNDS):
        mixture, likelihood = _round(rows, centre, mixture, size, least_scale)
        # What is added to the variances can make it fall, too.
        if abs(likelihood - before) < TOLERANCE:
            break
        before = likelihood
    return DiagonalMixture(
        mixture.weights.to(rows), (mixture.means + centre).to(rows), mixture.scales.to(rows)
    )


def start_by_clusters(
    rows: Tensor, components: int, seed: int, least_scale: float
) -> DiagonalMixture:
    """Shares, means and standard deviations of k-means' clusters, on at most 5,000 random rows.

    Args:
        rows: flat rows, shape `(N, D)`.
        components: C.
        seed: of the rows and of k-means.
        least_scale: what is added to each variance, as a standard deviation.

    Example:
        >>> start_by_clusters(torch.tensor([[0.0], [5.0], [5.2]]), 2, 0, 0.1).weights.sort().values
        tensor([0.3333, 0.6667])
    """
    from sklearn.cluster import KMeans  # noqa: PLC0415

    if len(rows) > max(START_ROWS, components):
        generator = torch.Generator().manual_seed(seed)
        places = torch.randperm(len(rows), generator=generator)[: max(START_ROWS, components)]
        rows = rows[places.to(rows.device)]
    labels = KMeans(components, n_init=1, random_state=seed).fit_predict(rows.cpu().numpy())
    one_hot = torch.nn.functional.one_hot(torch.from_numpy(labels).long(), components)
    members = one_hot.to(rows).mT
    # k-means leaves a cluster empty only where there are fewer distinct rows than clusters.
    count = members.sum(-1, keepdim=True).clamp(min=1)
    means = members @ rows / count
    variances = (members @ rows**2 / count - means**2).clamp(min=0) + least_scale**2
    return DiagonalMixture(
        count.squeeze(-1) / count.sum(), means, variances.sqrt().clamp(min=least_scale)
    )


def _round(
    rows: Tensor, centre: Tensor, mixture: DiagonalMixture, size: int, least_scale: float
) -> tuple[DiagonalMixture, float]:
    """One round, and the mean log-likelihood before it."""
    weights, means, scales = mixture
    precision = scales**-2
    constant = weights.log() - 0.5 * (means**2 * precision).sum(-1) - scales.log().sum(-1)
    constant = constant - 0.5 * len(centre) * math.log(2 * math.pi)
    count, first, second = torch.zeros_like(weights), torch.zeros_like(means), 0 * means
    likelihood = weights.new_zeros(())
    for batch in rows.split(size):
        x = batch.to(centre) - centre
        squared = x**2
        joint = constant + x @ (means * precision).mT - 0.5 * squared @ precision.mT
        total = joint.logsumexp(-1, keepdim=True)
        shares = (joint - total).exp().mT
        count += shares.sum(-1)
        first += shares @ x
        second += shares @ squared
        likelihood += total.sum()
    # As scikit-learn: a component that no row is near keeps a weight.
    count = count + 10 * torch.finfo(count.dtype).eps
    means = first / count.unsqueeze(-1)
    variances = (second / count.unsqueeze(-1) - means**2).clamp(min=0) + least_scale**2
    found = DiagonalMixture(count / count.sum(), means, variances.sqrt())
    return found, float(likelihood) / len(rows)


def _precise(rows: Tensor) -> torch.dtype:
    return rows.dtype if rows.device.type == "mps" else torch.float64
