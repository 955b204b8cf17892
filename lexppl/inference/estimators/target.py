"""What is to be maximised, and the terms of it that a run gives."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lexppl.effects import IMPUTATION_DIM, MASK_DIM
from lexppl.inference.program import Run, Site, particle_mean, without_particles


@dataclass(frozen=True)
class Target:
    """What is to be maximised: the bound's particles and the weights of its other terms.

    Args:
        masks: `L`, the masks inside the log; `math.inf` for the log-likelihood itself.
        imputations: `K`, imputations a mask inside the log.
        samples: `S`, independent copies of the bound that are averaged.
        entropy: nats of bonus a nat of entropy of the mask laws.
        penalty: factor of all penalties.
        random_masks: draw masks from the uniform law of their family (the predictor's warm-up).
    """

    masks: float
    imputations: int = 1
    samples: int = 1
    entropy: float = 0.0
    penalty: float = 1.0
    random_masks: bool = False

    @property
    def particles(self) -> int:
        """Masks that a run draws for each row, `S·L`."""
        return self.samples * int(self.masks)

    def log_means(self, run: Run) -> Tensor:
        """`log 1/K Σ_k w_{lk}` of each mask: `(…, S, L, B)`."""
        weight = self.grouped(run)
        return torch.logsumexp(weight, -4) - math.log(weight.shape[-4])

    def bounds(self, run: Run) -> Tensor:
        """`log 1/(LK) Σ_{lk} w_{lk}`, each of the `S` bounds of a row: `(…, S, B)`."""
        return torch.logsumexp(self.log_means(run), -2) - math.log(int(self.masks))

    def grouped(self, run: Run) -> Tensor:
        """The log-weights by bound, mask and row: `(…, K, S, L, B)`."""
        weight = run.log_weight
        if weight is None:
            raise ValueError(
                "the program observes nothing inside mask_particles(); give y to the model, and "
                "sample it from the predictor inside the particle plates"
            )
        weight = weight.reshape((1,) * (3 - weight.dim()) + tuple(weight.shape))
        masks = self.particles
        if weight.shape[MASK_DIM] != masks:
            weight = weight.expand(*weight.shape[:MASK_DIM], masks, weight.shape[-1])
        return weight.unflatten(MASK_DIM, (self.samples, int(self.masks)))

    def around(self, run: Run) -> Tensor | float:
        """The terms that no mask draw enters: global latents, and the entropy bonus."""
        total = run.outside
        if self.entropy != 0.0 and not self.random_masks:
            for site in run.mask_sites:
                total = total + self.entropy * (run.row_scale * _entropy(site)).sum()
        return total


def _entropy(site: Site) -> Tensor:
    """Exact entropy of a mask site's law by row, in nats: `(…, B)`."""
    try:
        entropy: Tensor = site.law.entropy()
    except NotImplementedError as error:
        raise ValueError(
            f"an entropy bonus needs a law with an exact entropy, and {type(site.law).__name__} "
            f"of site {site.name!r} has none; set entropy=0 or use KSubset or Bernoulli masks"
        ) from error
    return particle_mean(entropy, (MASK_DIM,))


def score_of(site: Site) -> Tensor | None:
    """The log-probability to be differentiated for a site's score, or None where there is none:
    gradients are off, the law is reparameterised, or it states no density and so cannot be learned
    by a score.

    `requires_grad` is no test here: it reads False inside `torch.func.vmap`.
    """
    if not torch.is_grad_enabled() or site.law.has_rsample:
        return None
    try:
        return site.log_prob()
    except NotImplementedError:
        return None


def per_draw(benefit: Tensor, run: Run, target: Target) -> Tensor:
    """What each mask draw contributed, in nats over the data: `(…, S, L, B)` to `(S·L, B)`.

    Scaled as the bound is, and summed over labels and whatever else shares the draw.
    """
    benefit = (benefit * run.scale / target.samples).flatten(-3, -2)
    return benefit.sum(tuple(range(benefit.dim() - 2))) if benefit.dim() > 2 else benefit


def penalty_per_draw(run: Run, target: Target) -> Tensor | float:
    """What each mask draw added to the penalties, against the mean of the other draws of its row
    (as it is where there is one draw only): `(S·L, B)` or broadcastable to it. A penalty on the
    law is no draw's doing."""
    total: Tensor | float = 0.0
    for value in run.penalties:
        if value.dim() < -MASK_DIM:
            continue
        cost = target.penalty * run.row_scale * value
        if cost.dim() >= -IMPUTATION_DIM:
            cost = cost.mean(IMPUTATION_DIM)
        draws = cost.shape[MASK_DIM] if cost.dim() >= -MASK_DIM else 1
        if draws > 1:
            cost = (cost - cost.mean(MASK_DIM, keepdim=True)) / (draws - 1)
        total = total + cost
    return total


def sampled_bound(run: Run, target: Target) -> Tensor:
    """`Σ_n 1/S Σ_s log 1/(LK) Σ_{lk} w − penalties`, from the particles of one run."""
    total = (without_particles(run.scale, 1) * target.bounds(run)).sum() / target.samples
    for value in run.penalties:
        mean = particle_mean(value, (IMPUTATION_DIM, MASK_DIM))
        total = total - target.penalty * (run.row_scale * mean).sum()
    return total
