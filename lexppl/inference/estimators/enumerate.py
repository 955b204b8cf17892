"""Sum over every mask, and every other discrete latent of a particle, with none drawn."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from pyro.infer.util import is_validation_enabled
from torch import Tensor

from lexppl.effects import MASK_DIM
from lexppl.inference.estimators.base import GradientEstimator, per_mask, scored_outside
from lexppl.inference.objective.bound import BoundSpec, BoundTerms, score_of
from lexppl.inference.objective.grammar import ESTIMATOR
from lexppl.inference.objective.listed_latents import (
    ListedLatents,
    joint_values,
    refuse_missing,
    refuse_read_unobserved,
)
from lexppl.inference.objective.program import ParticleProgram, ParticleTrace, refuse_coupled_rows
from lexppl.inference.objective.site import Site

MOST_TUPLES = 250_000
MOST_OUTSIDE = 4_096


@dataclass(frozen=True)
class Enumerate(GradientEstimator):
    """The objective and its gradient with no mask drawn at all: for `G ≤ 12` or so.

    All discrete latents within the mask particles are listed together, `z` their joint values:
    masks, regimes, the states of a hidden Markov chain.

    - `masks=1`: `Σ_z q(z|x) log w(z)`, the average of single-mask bounds.
    - `masks=L`: the expectation of `log 1/L Σ_l w(z_l)` over all multisets of `L` masks.
    - `masks=math.inf`: `log Σ_z q(z|x) w(z)`, the log-likelihood of the masks' marginal.

    Rows are listed side by side; where they share a log `z` is the masks of all of them, `2^{BG}`.
    Latents outside the particle plates whose guide is discrete are listed too, in a run for each
    value. Random imputations are still drawn, `K` for each mask.

    Raises:
        ValueError: no discrete latent within the mask particles, a distribution whose values cannot
            be listed or depend on another latent, more than 250,000 multisets, 65,536 joint values
            of what shares a log, or 4,096 of latents outside the particle plates; a partial
            likelihood of several rows.

    Example:
        >>> Enumerate().unbiased
        True
    """

    unbiased: ClassVar[bool] = True

    def estimate(self, program: ParticleProgram, spec: BoundSpec) -> Tensor:
        probe = program.run(random_masks=spec.random_masks)
        _refuse_own_estimators(probe)
        refuse_coupled_rows([site for site, _ in probe.weighted])
        outside = joint_values(scored_outside(probe), MOST_OUTSIDE)
        total: Tensor | float = 0.0
        for place in range(len(next(iter(outside.values()), [0]))):
            outer = {name: values[place] for name, values in outside.items()}
            if outer:
                # Which masks there are may depend on them, as on a k that has a prior.
                probe = program.run(
                    draw=lambda site, outer=outer: outer.get(site.name),  # type: ignore[misc]
                    random_masks=spec.random_masks,
                    subsamples=probe.subsamples,
                )
            run, value = _listed(program, spec, probe, outer)
            if outer:
                log_q = [run.guide_sites[name].score().sum() for name in outer]
                value = torch.stack(log_q).sum().exp() * value
            total = total + value
        return torch.as_tensor(total)


def _listed(
    program: ParticleProgram, spec: BoundSpec, probe: ParticleTrace, outer: Mapping[str, Tensor]
) -> tuple[ParticleTrace, Tensor]:
    """The run of all joint values, and the objective, for given values of the latents outside."""
    copies = 1 if math.isinf(spec.masks) else int(spec.masks)
    unobserved = probe.unobserved
    if is_validation_enabled():
        refuse_read_unobserved(probe, lambda draw: program.run(1, 1, draw))
    latents = [site for site in probe.mask_sites if site.name not in unobserved]
    listed = ListedLatents(probe, latents, copies=copies)
    if not listed.names:
        raise ValueError(
            "Enumerate needs a discrete latent in mask_particles(); the program has "
            f"{[site.name for site in probe.mask_sites]}"
        )
    masks = len(listed)

    def draw(drawn: Site) -> Tensor | None:
        return outer[drawn.name] if drawn.name in outer else listed.give(drawn)

    run = program.run(
        masks * copies, spec.imputations, draw, spec.random_masks, subsamples=probe.subsamples
    )
    _refuse_other_scores(run, listed.names)
    every = replace(spec, masks=masks * copies, samples=1)
    if not spec.has_log:
        every = replace(spec, masks=1, samples=masks)
    terms = BoundTerms(run, every)
    log_q = listed.log_prior(run).unflatten(MASK_DIM, (masks, copies)).select(MASK_DIM, 0)
    if is_validation_enabled():
        refuse_missing(log_q, listed.names)
    total: Tensor = torch.as_tensor(terms.outside)
    for weight in terms.log_weights:
        log_weight = weight.log_means.unflatten(MASK_DIM, (masks, copies))
        total = total + (weight.scale * _bound(log_q, log_weight, spec)).sum()
    for average in terms.averages:
        value = per_mask(average.value)
        value = value.expand(*value.shape[:MASK_DIM], masks * copies, value.shape[-1])
        value = value.unflatten(MASK_DIM, (masks, copies)).mean(MASK_DIM)
        total = total + (log_q.exp() * value).sum()
    return run, total


def _bound(log_q: Tensor, log_weight: Tensor, spec: BoundSpec) -> Tensor:
    """Expected bound `(…, 1, 1, B)` from `log q` `(…, M, B)` and `log w` `(…, 1, M, copies, B)`."""
    if math.isinf(spec.masks):
        return torch.logsumexp(log_q + log_weight.squeeze(-2), MASK_DIM, keepdim=True)
    if spec.masks == 1:
        return (log_q.exp() * log_weight.squeeze(-2)).sum(MASK_DIM, keepdim=True)
    masks, drawn = log_q.shape[MASK_DIM], int(spec.masks)
    count = math.comb(masks + drawn - 1, drawn)
    if count > MOST_TUPLES:
        raise ValueError(
            f"Enumerate with masks={drawn} would list {count} multisets of {masks} masks; "
            f"at most {MOST_TUPLES} are: use fewer features, masks=1 or masks=math.inf"
        )
    every = torch.arange(masks, device=log_q.device)
    index = torch.combinations(every, drawn, with_replacement=True)
    # How many of the same mask stand before each, from 0 to c − 1 of one that is there c times.
    place = (index.unsqueeze(-1) == index.unsqueeze(-2)).tril(-1).sum(-1)
    ways = (math.factorial(drawn) / (place + 1).double().prod(-1)).tolist()
    log_q = log_q.reshape((1,) * (log_weight.dim() - 1 - log_q.dim()) + tuple(log_q.shape))
    # (B, …, T, L) and (B, …, T), over the T multisets
    weight = log_weight.movedim(-1, 0)[..., index, place]
    log_p = log_q.movedim(-1, 0)[..., index].sum(-1) + log_q.new_tensor([*map(math.log, ways)])
    bound = torch.logsumexp(weight, -1) - math.log(drawn)
    return (log_p.exp() * bound).sum(-1, keepdim=True).movedim(0, -1)


def _refuse_own_estimators(run: ParticleTrace) -> None:
    for site in (*run.drawn, *run.sites.values()):
        if ESTIMATOR in site.infer:
            raise ValueError(
                f"site {site.name!r} asks for the estimator {site.infer[ESTIMATOR]!r}, and "
                "Enumerate(), chosen for the whole objective, lists its values; leave one out"
            )


def _refuse_other_scores(run: ParticleTrace, listed: Sequence[str]) -> None:
    for site in run.drawn:
        score = score_of(site) if site.name not in listed else None
        if score is not None and score.requires_grad:
            raise ValueError(
                f"Enumerate lists {listed} only; site {site.name!r} is drawn from "
                f"{type(site.distribution).__name__}, which is learned and not reparameterised"
            )
