"""Draws of masks given y: from those of all rows down to those of a row, each given those above."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lexppl.explanation.masks.draws import (
    RESPONSE,
    Again,
    RowDraws,
    predicted,
    reliability,
    shares,
    value_of,
)
from lexppl.inference.mask_plates import MaskList, MaskTree, plate_of
from lexppl.inference.objective.program import ParticleTrace


def systematic_resampling(probabilities: Tensor, draws: int) -> Tensor:
    """Choose proposals by their probabilities, with replacement: their indices `(D, B)`.

    One uniform number `U` a row places an even grid, and draw `d` is the proposal at which the
    distribution function passes

        (d + U) / D,    d = 0 … D−1.

    Proposal `l` is chosen `⌊D p_l⌋` or `⌈D p_l⌉` times and `D p_l` times in expectation. The order
    of a row's draws is then shuffled, so that they are exchangeable. Proposals of probability zero
    are never chosen. Randomness is that of torch's default generator.

    Args:
        probabilities: `p`, `(N, B)`: N proposals for each of B rows, columns summing to one.
        draws: D.

    Source: Douc, Cappé and Moulines (2005), "Comparison of resampling schemes for particle
    filtering", section 2.4.

    Example:
        >>> systematic_resampling(torch.tensor([[0.0], [0.5], [0.5]]), 4).sort(0).values.T
        tensor([[1, 1, 2, 2]])
    """
    proposals, rows = probabilities.shape
    dtype, device = probabilities.dtype, probabilities.device
    reached = probabilities.T.cumsum(-1)
    reached = reached / reached[:, -1:]
    start = torch.rand(rows, 1, dtype=dtype, device=device)
    grid = (torch.arange(draws, dtype=dtype, device=device) + start) / draws
    # Rounding must not carry the grid to 1, past the last proposal that has a probability.
    grid = grid.clamp(max=1.0 - torch.finfo(dtype).eps)
    chosen = torch.searchsorted(reached, grid, right=True).clamp(max=proposals - 1)
    order = torch.rand(rows, draws, device=device).argsort(-1)
    return chosen.gather(-1, order).T


def posterior_draws(
    run: ParticleTrace,
    tree: MaskTree,
    listed: MaskList | None,
    names: Sequence[str],
    particles: int,
    imputations: int,
    draws: int,
    again: Again | None = None,
) -> RowDraws:
    """D draws of p(z | x, y) by importance resampling of a run's P proposals, or from all P masks.

    Pairs of a row's mask and imputation are resampled by `w_lk = p(y | x̃_lk) p(z_l) / q(z_l)`; of
    probabilities of labels normalised weights are averaged, Σ_c p(c) p(z | x, y = c). Masks of all
    rows and of groups are weighed by the responses below them and drawn first; `log_evidence` is
    then log p(y_n | x_n) given these. `again` runs the program without y for new responses.

    Raises:
        FloatingPointError: a weight is NaN.
    """
    at_level = max(tree.levels.values())
    counts, weights = _weights(run, tree, listed, particles, imputations)
    last = len(weights) - 1
    response = run.sites.get(RESPONSE)
    in_rows = last > 0 and response is not None and plate_of(response) == tree.plates[-1]
    above_rows: dict[str | None, Tensor] = {}
    masks: dict[str, Tensor] = {}
    means: dict[str, Tensor] = {}
    ess = pareto = evidence = None
    at = torch.zeros(draws, 1, dtype=torch.long, device=weights[0].device)
    reached = weights[0].new_ones(1, 1)
    for level, weight in enumerate(weights):
        above = tree.above_of(level, run)
        candidates, entries = weight.shape[-2:]
        every = torch.arange(entries, device=at.device)
        flat = weight.reshape(-1, candidates, entries)
        share = shares(flat)
        at = at[:, above]
        if len(flat) == 1:
            chosen = systematic_resampling(share[0], draws)
        else:
            own = share[at, :, every]
            chosen = torch.multinomial(own.flatten(0, 1), 1).reshape(draws, entries)
        if level == last and in_rows:
            evidence = torch.logsumexp(flat, -2)
            evidence = evidence[at, every] if len(flat) > 1 else evidence
        at = at * candidates + chosen
        reached = (reached[:, above].unsqueeze(1) * share).flatten(0, 1)
        repeats = imputations if level == last else 1
        below = math.prod(counts[level + 1 :])
        which = at.div(repeats, rounding_mode="floor") * below
        if level < last:
            above_rows[tree.plates[level]] = which
        by_mask = reached.unflatten(0, (-1, repeats)).sum(1)
        for name in (name for name in names if tree.levels[name] == level):
            value = value_of(run.sites[name])
            value = value.expand(particles, *value.shape[-2:])
            masks[name] = value[which, torch.arange(value.shape[-2], device=at.device)]
            means[name] = (by_mask.unsqueeze(-1) * value[::below]).sum(0)
        if listed is None and level == at_level:
            ess, pareto = reliability(by_mask, weight.isneginf().all(-2).flatten())
    pair = (at % imputations) * particles + at.div(imputations, rounding_mode="floor")
    y, probability = predicted(run, pair, imputations, particles, again, above_rows)
    return RowDraws(masks, means, y, probability, evidence, ess, pareto)


def _weights(
    run: ParticleTrace, tree: MaskTree, listed: MaskList | None, particles: int, imputations: int
) -> tuple[list[int], list[Tensor]]:
    """How many masks each level of the plates has, and their log-weights."""
    if listed is not None:
        counts = list(listed.counts)
        weights = list(tree.log_weights(run, counts, imputations, listed.names))
    else:
        at_level = max(tree.levels.values())
        counts = [1] * len(tree.plates)
        counts[at_level] = particles
        weights = list(tree.log_weights(run, counts, imputations))
        weights[at_level] = weights[at_level] - math.log(particles)
    if bool(weights[0].isnan().any()):
        raise FloatingPointError(
            "importance weights of some rows are NaN; look for rows far from those of the fit, or "
            "a response outside the support of its distribution"
        )
    return counts, weights
