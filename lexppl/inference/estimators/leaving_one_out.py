"""What each draw contributed, judged against the other draws of its row."""

import math

import torch
from torch import Tensor

from lexppl.effects import IMPUTATION_DIM, MASK_DIM
from lexppl.inference.estimators.target import Target, penalty_per_draw, per_draw, score_of
from lexppl.inference.program import Run, Site, no_gradient


def leave_one_out(log_weight: Tensor) -> Tensor:
    """`ℒ − ℒ_{−l}` for each particle, from log-weights `(…, S, L, B)`: VIMCO's or RLOO's signal.

    Where `L = 1`, the other bounds of the `S` stand in for what is left out.

    Example:
        >>> leave_one_out(torch.tensor([[[1.0], [1.0]]])).flatten().tolist()
        [0.0, 0.0]
    """
    samples, masks = log_weight.shape[-3], log_weight.shape[-2]
    bound = torch.logsumexp(log_weight, -2, keepdim=True) - math.log(masks)
    if masks == 1:
        others = (bound.sum(-3, keepdim=True) - bound) / (samples - 1)
        return bound - others
    stand_in = (log_weight.sum(-2, keepdim=True) - log_weight) / (masks - 1)
    left_out = torch.eye(masks, dtype=torch.bool, device=log_weight.device).unsqueeze(-1)
    without = torch.where(left_out, stand_in.unsqueeze(-2), log_weight.unsqueeze(-3))
    return bound - (torch.logsumexp(without, -2) - math.log(masks))


def mask_score(site: Site, run: Run, target: Target) -> Tensor | float:
    """A term of value zero with the score of a mask site, each draw against the others."""
    log_q = score_of(site)
    if log_q is None:
        return 0.0
    with torch.no_grad():
        benefit = per_draw(leave_one_out(target.log_means(run)), run, target)
        signal = benefit - penalty_per_draw(run, target)
    return (no_gradient(log_q) * signal).sum()


def imputation_score(site: Site, run: Run, target: Target) -> Tensor | float:
    """A term of value zero with the score of a latent that is drawn anew for each imputation, each
    draw against all the others of its row."""
    log_q = score_of(site)
    if log_q is None:
        return 0.0
    with torch.no_grad():
        signal = _imputation_signal(run, target)
    return (no_gradient(log_q) * signal).sum()


def _imputation_signal(run: Run, target: Target) -> Tensor:
    weight = target.grouped(run).movedim(-4, -2).flatten(-3, -2)
    alone = weight.shape[-2] * weight.shape[-3] == 1
    benefit = (weight if alone else leave_one_out(weight)) * run.scale / target.samples
    benefit = benefit.unflatten(-2, (-1, target.imputations)).movedim(-2, -4).flatten(-3, -2)
    if benefit.dim() > 3:
        benefit = benefit.sum(tuple(range(benefit.dim() - 3)))
    for value in run.penalties:
        cost = target.penalty * run.row_scale * value
        dims = [d for d in (MASK_DIM, IMPUTATION_DIM) if cost.dim() >= -d and cost.shape[d] > 1]
        if dims:
            others = math.prod(cost.shape[d] for d in dims) - 1
            benefit = benefit - (cost - cost.mean(dims, keepdim=True)) / others
    return benefit
