"""A mixture of discretised logistics, by stochastic gradients of its log-likelihood."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from lexppl.models.imputers.mixture.batched_em import DiagonalMixture, start_by_clusters
from lexppl.models.imputers.mixture.blocks import NUMBERS_AT_ONCE
from lexppl.models.imputers.mixture.discretized_logistic import (
    LogisticEvidence,
    inverse_softplus,
    scale_of_deviation,
)

__all__ = ["fit_logistic_mixture"]

BATCH = 200
"""Rows of a step."""


def fit_logistic_mixture(
    rows: Tensor,
    components: int,
    seed: int,
    least_scale: float,
    epochs: int,
    learning_rate: float,
) -> DiagonalMixture:
    """Weights, means μ and scales s of high log-likelihood

        Σ_n log Σ_c π_c Π_d P(x_nd; μ_cd, s_cd),

    from a start of k-means, with s bounded from below. The gradient of a batch is that of
    expectation maximisation: the responsibilities weight the components'. It is summed over parts
    of a batch, so that memory has a bound.

    Args:
        rows: flat rows in [0, 1], shape `(N, D)`.
        components: C.
        seed: of the start and of the batches.
        least_scale: of s.
        epochs: passes over the rows.
        learning_rate: Adam's, at the beginning.

    Returns:
        with the scales s in place of standard deviations.

    Example:
        >>> rows = torch.tensor([[0.0], [0.0], [1.0], [1.0]])
        >>> fit_logistic_mixture(rows, 2, 0, 0.01, epochs=0, learning_rate=0.1).weights
        tensor([0.5000, 0.5000])
    """
    start = start_by_clusters(rows, components, seed, least_scale)
    scale = scale_of_deviation(start.scales).clamp(min=1.01 * least_scale)
    logits = start.weights.log().requires_grad_()
    means = start.means.clone().requires_grad_()
    free = inverse_softplus((scale - least_scale) / least_scale).requires_grad_()

    def mixture() -> DiagonalMixture:
        scales = least_scale * (1 + softplus(free))
        return DiagonalMixture(logits.softmax(-1), means, scales)

    steps = epochs * -(-len(rows) // BATCH)
    optimizer = torch.optim.Adam([logits, means, free], lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, steps))
    generator = torch.Generator().manual_seed(seed)
    part = max(1, NUMBERS_AT_ONCE // start.means.numel())
    with torch.enable_grad():
        for _ in range(epochs):
            order = torch.randperm(len(rows), generator=generator).to(rows.device)
            for places in order.split(BATCH):
                optimizer.zero_grad()
                for some in places.split(part):
                    loss = -log_likelihood(rows[some], mixture()).sum() / len(places)
                    loss.backward()
                optimizer.step()
                schedule.step()
    found = mixture()
    return DiagonalMixture(*(t.detach() for t in found))


def log_likelihood(rows: Tensor, mixture: DiagonalMixture) -> Tensor:
    """Of each row, shape `(N,)`.

    Args:
        rows: flat rows, shape `(N, D)`.
        mixture: with the logistics' scales s.

    Example:
        >>> one = DiagonalMixture(torch.ones(1), torch.zeros(1, 2), torch.ones(1, 2))
        >>> log_likelihood(torch.zeros(3, 2), one).shape
        torch.Size([3])
    """
    evidence = LogisticEvidence(rows, mixture.means, mixture.scales)
    each = evidence.of(slice(0, len(mixture.weights))).sum(-2)
    return (mixture.weights.log() + each).logsumexp(-1)
