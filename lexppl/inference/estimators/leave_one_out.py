"""Score function with the other particles as its baseline."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lexppl.inference.estimators.base import SampledEstimator, Target, score_of
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

    Penalties are averages, and take the second form. Any law with a `log_prob` will do; a
    reparameterised law needs no score, and gets none.

    Raises:
        ValueError: a site drawn only once, with nothing to leave it out of: `L·S = 1` for a mask.

    Example:
        >>> LeaveOneOut().unbiased
        True
    """

    unbiased: ClassVar[bool] = True

    def check(self, site: Site, target: Target) -> None:
        if site.law.has_rsample:
            return
        draws = target.particles * (target.imputations if site.in_imputations else 1)
        if draws < 2:
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
    weight = target.grouped(run)
    if site.in_imputations:
        weight = weight.movedim(-4, -2).flatten(-3, -2)
        benefit = leave_one_out(weight) * run.scale / target.samples
        benefit = benefit.unflatten(-2, (-1, target.imputations)).movedim(-2, -4)
    else:
        weight = torch.logsumexp(weight, -4) - math.log(weight.shape[-4])
        benefit = leave_one_out(weight) * run.scale / target.samples
    benefit = benefit.flatten(-3, -2)
    kept = 3 if site.in_imputations else 2
    if benefit.dim() > kept:
        benefit = benefit.sum(tuple(range(benefit.dim() - kept)))
    for value in run.penalties:
        cost = target.penalty * run.row_scale * value
        if not site.in_imputations and cost.dim() >= -IMPUTATION_DIM:
            cost = cost.mean(IMPUTATION_DIM)
        benefit = benefit - _deviation(cost, site.in_imputations)
    return benefit


def _deviation(cost: Tensor, by_imputation: bool) -> Tensor:
    """Leave-one-out deviation of each particle's share of an average."""
    dims = (MASK_DIM, IMPUTATION_DIM) if by_imputation else (MASK_DIM,)
    present = [d for d in dims if cost.dim() >= -d and cost.shape[d] > 1]
    if not present:
        return torch.zeros_like(cost)
    count = math.prod(cost.shape[d] for d in present)
    return (cost - cost.mean(present, keepdim=True)) / (count - 1)


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
