"""What each draw contributed, judged against the other draws of its row."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lexppl.effects import IMPUTATION_DIM, MASK_DIM
from lexppl.inference.objective.bound import (
    BoundTerms,
    LogWeight,
    learned_score_of,
    no_gradient,
    shared_with,
)
from lexppl.inference.objective.site import PlateKey, Site


def leave_one_out(log_weight: Tensor, bound: Tensor | None = None) -> Tensor:
    """`ℒ − ℒ_{−l}` from log-weights `(…, S, L, B)`: VIMCO's signal, or RLOO's for L = 1."""
    samples, masks = log_weight.shape[-3], log_weight.shape[-2]
    if bound is None:
        bound = torch.logsumexp(log_weight, -2, keepdim=True) - math.log(masks)
    if masks == 1:
        others = (bound.sum(-3, keepdim=True) - bound) / (samples - 1)
        return bound - others
    stand_in = (log_weight.sum(-2, keepdim=True) - log_weight) / (masks - 1)
    left_out = torch.eye(masks, dtype=torch.bool, device=log_weight.device).unsqueeze(-1)
    without = torch.where(left_out, stand_in.unsqueeze(-2), log_weight.unsqueeze(-3))
    return bound - (torch.logsumexp(without, -2) - math.log(masks))


class Advantage(NamedTuple):
    """What each mask contributed to its bound, in nats `(…, 1, M, B)`, and the outer plates."""

    value: Tensor
    plates: Mapping[PlateKey, int | None]


def advantage(weight: LogWeight) -> Advantage:
    """`ℒ − ℒ_{−l}` of each mask, times what stands before the log."""
    grouped = weight.log_means.unflatten(MASK_DIM, (weight.samples, weight.masks))
    bound = weight.bounds.unsqueeze(MASK_DIM)
    return Advantage(weight.to_nats(leave_one_out(grouped, bound).flatten(-3, -2)), weight.plates)


def mask_score(
    site: Site, terms: BoundTerms, advantages: Sequence[Advantage] | None = None
) -> Tensor | float:
    """A term of value zero with the score of a mask site, each draw against the others."""
    log_q = learned_score_of(site)
    if log_q is None:
        return 0.0
    with torch.no_grad():
        signal: Tensor | float = average_per_draw(site, terms)
        if advantages is None:
            advantages = [advantage(weight) for weight in terms.log_weights]
        for value, plates in advantages:
            signal = signal + shared_with(site, value, plates)
    return (no_gradient(log_q) * signal).sum()


def imputation_score(site: Site, terms: BoundTerms) -> Tensor | float:
    """A term of value zero with the score of an imputation's latent, by those of its row."""
    log_q = learned_score_of(site)
    if log_q is None:
        return 0.0
    with torch.no_grad():
        signal: Tensor | float = 0.0
        for weight in terms.log_weights:
            signal = signal + shared_with(site, _imputation_benefit(weight), weight.plates)
        for average in terms.averages_of(site):
            own = average.value
            dims = [d for d in (MASK_DIM, IMPUTATION_DIM) if _several(own, d)]
            if dims:
                others = math.prod(own.shape[d] for d in dims) - 1
                own = (own - own.mean(dims, keepdim=True)) / others
            signal = signal + shared_with(site, own, average.plates)
    return (no_gradient(log_q) * signal).sum()


def _several(value: Tensor, dim: int) -> bool:
    return value.dim() >= -dim and value.shape[dim] > 1


def _imputation_benefit(weight: LogWeight) -> Tensor:
    """What each imputation of each mask contributed, in nats of the objective: `(…, K, M, B)`."""
    imputations = weight.value.shape[IMPUTATION_DIM]
    # (…, S, L·K, B)
    every = weight.value.unflatten(MASK_DIM, (weight.samples, weight.masks))
    every = every.movedim(-4, -2).flatten(-3, -2)
    alone = every.shape[-2] * every.shape[-3] == 1
    benefit = weight.to_nats(every if alone else leave_one_out(every))
    return benefit.unflatten(-2, (-1, imputations)).movedim(-2, -4).flatten(-3, -2)


def average_per_draw(site: Site, terms: BoundTerms) -> Tensor | float:
    """What each mask draw added to the averages, against the mean of the other draws of its row."""
    total: Tensor | float = 0.0
    for average in terms.averages_of(site):
        value = per_mask(average.value)
        draws = value.shape[MASK_DIM] if value.dim() >= -MASK_DIM else 1
        if draws > 1:
            value = (value - value.mean(MASK_DIM, keepdim=True)) / (draws - 1)
        total = total + shared_with(site, value, average.plates)
    return total


def per_mask(value: Tensor) -> Tensor:
    """The mean over imputations of a value by particle."""
    if value.dim() >= -IMPUTATION_DIM:
        return value.mean(IMPUTATION_DIM, keepdim=True)
    return value
