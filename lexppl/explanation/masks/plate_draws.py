"""Draws of masks that rows share given y: from all rows down to a row, each given those above."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lexppl.explanation.masks.draws import (
    RESPONSE,
    Again,
    RowDraws,
    predicted,
    refuse_nan,
    reliability,
    shares,
)
from lexppl.explanation.masks.resampling import systematic_resampling
from lexppl.inference.mask_plates import MaskList, MaskTree, plate_of
from lexppl.inference.objective.program import ParticleTrace


def plate_draws(
    run: ParticleTrace,
    tree: MaskTree,
    listed: MaskList | None,
    names: Sequence[str],
    particles: int,
    imputations: int,
    draws: int,
    again: Again | None = None,
) -> RowDraws:
    """D draws of p(s, z, u | x, y) of masks of all rows, of groups and of rows.

    Of proposals, which are of one plate (or of all entries together), each entry's are weighed by
    the responses below it. `log_evidence` is then log p(y_n | x_n) given the draw's masks above the
    rows.

    Args:
        run: of all rows given y, with P masks and K imputations.
        tree: of the plates.
        listed: the P masks, or None where they are proposals.
        names: mask sites.
        particles: P.
        imputations: K.
        draws: D.
        again: as in :func:`~lexppl.explanation.masks.draws.posterior_draws`.

    Raises:
        FloatingPointError: a weight is NaN.
    """
    at_level = max(tree.levels.values())
    if listed is None:
        counts = [1] * len(tree.plates)
        counts[at_level] = particles
        weights = tree.log_weights(run, counts, imputations)
    else:
        counts = list(listed.counts)
        weights = tree.log_weights(run, counts, imputations, listed.names)
    refuse_nan(weights[0])
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
        above = tree.above[level - 1] if level else at.new_zeros(1)
        candidates, entries = weight.shape[-2:]
        flat = weight.reshape(-1, candidates, entries)
        share = shares(flat)
        at = at[:, above]
        if len(flat) == 1:
            chosen = systematic_resampling(share[0], draws)
        else:
            own = share[at, :, torch.arange(entries, device=at.device)]
            chosen = torch.multinomial(own.flatten(0, 1), 1).reshape(draws, entries)
        if level == last and in_rows:
            summed = torch.logsumexp(flat, -2)
            evidence = summed[at, torch.arange(entries, device=at.device)]
        at = at * candidates + chosen
        reached = (reached[:, above].unsqueeze(1) * share).flatten(0, 1)
        repeats = imputations if level == last else 1
        below = math.prod(counts[level + 1 :])
        which = at.div(repeats, rounding_mode="floor") * below
        if level < last:
            above_rows[tree.plates[level]] = which
        by_mask = reached.unflatten(0, (-1, repeats)).sum(1)
        for name in names:
            if tree.levels[name] != level:
                continue
            value = run.sites[name].value
            value = value.expand(particles, *value.shape[-2:])
            of = torch.arange(value.shape[-2], device=at.device)
            masks[name] = value[which, of]
            means[name] = (by_mask.unsqueeze(-1) * value[::below]).sum(0)
        if listed is None and level == at_level:
            ess, pareto = reliability(by_mask, weight.isneginf().all(-2).flatten())
    pair = (at % imputations) * particles + at.div(imputations, rounding_mode="floor")
    y, probability = predicted(run, pair, imputations, particles, again, above_rows)
    return RowDraws(
        masks=masks,
        means=means,
        y=y,
        label_probability=probability,
        log_evidence=evidence,
        weight_ess=ess,
        weight_pareto_k=pareto,
    )
