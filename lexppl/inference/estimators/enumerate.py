"""Sum over every mask: the exact reference for the other estimators."""

import math
from collections import Counter
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import ClassVar

import torch
from torch import Tensor

from lexppl.distributions import mask_support
from lexppl.effects import IMPUTATION_DIM
from lexppl.inference.estimators.base import GradientEstimator
from lexppl.inference.estimators.target import Target, score_of
from lexppl.inference.program import Program, Run, Site, without_particles

MOST_TUPLES = 250_000


@dataclass(frozen=True)
class Enumerate(GradientEstimator):
    """The objective and its gradient with no mask drawn at all: for `G ≤ 12` or so.

    - `masks=1`: `Σ_z q(z|x) log w(z)`, the average of single-mask bounds.
    - `masks=L`: the expectation of `log 1/L Σ_l w(z_l)` over all multisets of `L` masks, by their
      multinomial probabilities.
    - `masks=math.inf`: `log Σ_z q(z|x) w(z)`, the log-likelihood of the masks' marginal.

    Imputations, where they are random, are still drawn: `K` for each mask (and independently for
    each place that a mask takes among the `L`).

    Raises:
        ValueError: not exactly one mask site, a law whose masks cannot be listed, or more than
            250,000 multisets.

    Example:
        >>> Enumerate().unbiased
        True
    """

    unbiased: ClassVar[bool] = True

    def estimate(self, program: Program, target: Target) -> Tensor:
        probe = program.run(random_masks=target.random_masks)
        site = _only_mask_site(probe)
        support = mask_support(site.law)
        support = support.reshape(support.shape[0], 1, support.shape[-1])
        copies = 1 if math.isinf(target.masks) else int(target.masks)
        masks = len(support)
        values = support.repeat_interleave(copies, 0)

        def draw(drawn: Site) -> Tensor | None:
            if drawn.name != site.name:
                return None
            return values.expand(*drawn.law.batch_shape, values.shape[-1])

        run = program.run(masks * copies, target.imputations, draw, target.random_masks)
        _refuse_other_scores(run, site)
        every = Target(masks * copies, target.imputations)
        log_weight = every.log_means(run).squeeze(-3).unflatten(-2, (masks, copies))
        (drawn,) = run.mask_sites
        log_q = drawn.log_prob().unflatten(-2, (masks, copies)).select(-2, 0)
        total = (
            target.around(run)
            + (without_particles(run.scale, 2) * _bound(log_q, log_weight, target)).sum()
        )
        for value in run.penalties:
            if value.dim() >= -IMPUTATION_DIM:
                value = value.mean(IMPUTATION_DIM)
            value = value.expand(masks * copies, value.shape[-1])
            value = value.unflatten(-2, (masks, copies)).mean(-2)
            total = total - target.penalty * (run.row_scale * (log_q.exp() * value).sum(-2)).sum()
        return total


def _bound(log_q: Tensor, log_weight: Tensor, target: Target) -> Tensor:
    """Expected bound by row, from `log q` `(M, B)` and `log w` `(…, M, copies, B)`."""
    if math.isinf(target.masks):
        return torch.logsumexp(log_q + log_weight.squeeze(-2), -2)
    if target.masks == 1:
        return (log_q.exp() * log_weight.squeeze(-2)).sum(-2)
    masks, drawn = log_q.shape[-2], int(target.masks)
    count = math.comb(masks + drawn - 1, drawn)
    if count > MOST_TUPLES:
        raise ValueError(
            f"Enumerate with masks={drawn} would list {count} multisets of {masks} masks; "
            f"at most {MOST_TUPLES} are: use fewer features, masks=1 or masks=math.inf"
        )
    tuples, places, coefficients = [], [], []
    for choice in combinations_with_replacement(range(masks), drawn):
        counts = Counter(choice)
        tuples.append(choice)
        places.append([place for c in counts.values() for place in range(c)])
        ways = math.factorial(drawn) / math.prod(math.factorial(c) for c in counts.values())
        coefficients.append(math.log(ways))
    index = torch.tensor(tuples, device=log_q.device)
    place = torch.tensor(places, device=log_q.device)
    weight = log_weight.movedim(-1, 0)[..., index, place]
    probability = (log_q.mT[..., index].sum(-1) + log_q.new_tensor(coefficients)).exp()
    while probability.dim() < weight.dim() - 1:
        probability = probability.unsqueeze(1)
    expected = (probability * (torch.logsumexp(weight, -1) - math.log(drawn))).sum(-1)
    return expected.movedim(0, -1)


def _only_mask_site(run: Run) -> Site:
    sites = run.mask_sites
    if len(sites) != 1:
        raise ValueError(
            "Enumerate needs exactly one latent site in mask_particles(); the program has "
            f"{[site.name for site in sites]}"
        )
    return sites[0]


def _refuse_other_scores(run: Run, mask: Site) -> None:
    for site in run.drawn:
        score = score_of(site) if site.name != mask.name else None
        if score is not None and score.requires_grad:
            raise ValueError(
                f"Enumerate lists the masks only; site {site.name!r} is drawn from "
                f"{type(site.law).__name__}, which is learned and not reparameterised"
            )
