"""Score function with the other particles as its baseline."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lexppl.inference.estimators.base import (
    SampledEstimator,
    Target,
    penalty_per_draw,
    per_draw,
    score_of,
)
from lexppl.inference.program import Run, Site, no_gradient
from lexppl.models.effects import IMPUTATION_DIM, MASK_DIM


@dataclass(frozen=True)
class LeaveOneOut(SampledEstimator):
    """Unbiased score-function gradient; each draw is judged against the others of its row.

    For the bound `ℒ = log 1/L Σ_l w_l` (VIMCO, Mnih & Rezende 2016, eq. 7) the term of draw `l` is

        ∇ log q(z_l) · (ℒ − ℒ_{−l}),    ℒ_{−l} = log 1/L (Σ_{j≠l} w_j + ŵ_l),
        ŵ_l = exp(1/(L−1) Σ_{j≠l} log w_j),

    and for the average `1/S Σ_s log w_s` of single-mask bounds (RLOO, Kool et al. 2019)

        ∇ log q(z_s) · (log w_s − 1/(S−1) Σ_{j≠s} log w_j) / S.

    Penalties are averages, and take the second form. Latents that are drawn anew for each
    imputation are scored in the same way, among all the imputations of a row. Any law with a
    `log_prob` will do; a reparameterised law needs no score, and gets none.

    Raises:
        ValueError: a site drawn only once, with nothing to leave it out of: `L·S = 1` for a mask.

    Example:
        >>> LeaveOneOut().unbiased
        True
    """

    unbiased: ClassVar[bool] = True

    def check(self, site: Site, target: Target) -> None:
        if site.is_mask and not site.law.has_rsample and target.particles < 2:
            raise ValueError(
                f"LeaveOneOut needs at least 2 draws of {site.name!r} for each row, and masks=1, "
                "samples=1 gives one; set masks=2 or more (a tighter bound), or samples=2 or more "
                "(the same bound, averaged)"
            )

    def surrogate(self, site: Site, run: Run, target: Target) -> Tensor | float:
        log_q = score_of(site)
        if log_q is None:
            return 0.0
        with torch.no_grad():
            signal = _signal(site, run, target)
        return (no_gradient(log_q) * signal).sum()


def _signal(site: Site, run: Run, target: Target) -> Tensor:
    """What each draw of the site contributed, in nats: of the shape of its log-probability."""
    if not site.in_imputations:
        benefit = per_draw(leave_one_out(target.log_means(run)), run, target)
        return benefit - penalty_per_draw(run, target)
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


def leave_one_out(log_weight: Tensor) -> Tensor:
    """`ℒ − ℒ_{−l}` for each particle, from log-weights `(…, S, L, B)`: see :class:`LeaveOneOut`.

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
