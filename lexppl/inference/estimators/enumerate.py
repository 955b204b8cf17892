"""Sum over every mask: the exact reference for the other estimators."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, product
from typing import Any, ClassVar

import torch
from torch import Tensor

from lexppl.distributions import mask_support
from lexppl.effects import MASK_DIM
from lexppl.inference.estimators.base import GradientEstimator, scored_outside
from lexppl.inference.estimators.leaving_one_out import per_mask
from lexppl.inference.objective.bound import BoundSpec, BoundTerms, score_of
from lexppl.inference.objective.grammar import ESTIMATOR
from lexppl.inference.objective.program import ParticleProgram, ParticleTrace
from lexppl.inference.objective.site import Site

MOST_TUPLES = 250_000
MOST_JOINT_MASKS = 65_536
MOST_OUTSIDE = 4_096


@dataclass(frozen=True)
class Enumerate(GradientEstimator):
    """The objective and its gradient with no mask drawn at all: for `G ≤ 12` or so.

    - `masks=1`: `Σ_z q(z|x) log w(z)`, the average of single-mask bounds.
    - `masks=L`: the expectation of `log 1/L Σ_l w(z_l)` over all multisets of `L` masks, by their
      multinomial probabilities.
    - `masks=math.inf`: `log Σ_z q(z|x) w(z)`, the log-likelihood of the masks' marginal.

    Rows are listed side by side. Where rows share a log (a factor of the whole batch,
    `mask_particles()` entered first, masks of groups), `z` is the masks of all of them together, of
    which there are `2^{BG}`. Latents outside the particle plates whose guide is discrete are listed
    too, and the program is run for each of their values.

    Imputations, where they are random, are still drawn: `K` for each mask (and independently for
    each place that a mask takes among the `L`).

    Raises:
        ValueError: not exactly one mask site, a distribution whose masks cannot be listed, more
            than 250,000 multisets, 65,536 joint masks of rows that share a log, or 4,096 values of
            latents outside the particle plates; a partial likelihood of several rows, which
            cannot be listed side by side.

    Example:
        >>> Enumerate().unbiased
        True
    """

    unbiased: ClassVar[bool] = True

    def estimate(self, program: ParticleProgram, spec: BoundSpec) -> Tensor:
        probe = program.run(random_masks=spec.random_masks)
        site = _only_mask_site(probe)
        _refuse_own_estimators(probe)
        _refuse_coupled_rows(probe)
        outside = scored_outside(probe)
        total: Tensor | float = 0.0
        for given in _outside_values(outside):
            if given:
                # Which masks there are may depend on them, as on a k that has a prior.
                probe = _probed(program, spec, probe, given)
                site = _only_mask_site(probe)
            run, value = _listed(program, spec, probe, site, given)
            if given:
                log_q = [run.guide_sites[name].score().sum() for name in given]
                value = torch.stack(log_q).sum().exp() * value
            total = total + value
        return torch.as_tensor(total)


def _probed(
    program: ParticleProgram, spec: BoundSpec, probe: ParticleTrace, given: Mapping[str, Tensor]
) -> ParticleTrace:
    """A run with one particle, for given values of the latents outside."""

    def draw(drawn: Site) -> Tensor | None:
        return given.get(drawn.name)

    return program.run(draw=draw, random_masks=spec.random_masks, subsamples=probe.subsamples)


def _refuse_coupled_rows(run: ParticleTrace) -> None:
    for site, _ in run.weighted:
        if getattr(site.distribution, "couples_rows", False):
            raise ValueError(
                f"Enumerate lists the masks of each row by itself, and site {site.name!r} is a "
                "partial likelihood, in which a row's mask changes what all others are compared "
                "with: use LeaveOneOut(), or give the likelihood a baseline hazard "
                "(lexppl.evaluation.with_baseline)"
            )


def _outside_values(sites: Sequence[Site]) -> Iterator[dict[str, Tensor]]:
    """Every joint value of some latents, by name."""
    names = [site.name for site in sites]
    lists = [_joint_values(site.distribution, site.name, MOST_OUTSIDE) for site in sites]
    count = math.prod(map(len, lists))
    if count > MOST_OUTSIDE:
        raise ValueError(
            f"Enumerate would list {count} joint values of {names}; at most {MOST_OUTSIDE} are: "
            "use an estimator that draws them"
        )
    for values in product(*lists):
        yield dict(zip(names, values, strict=True))


def _support(distribution: Any) -> Tensor:
    """The values of one entry of a distribution's batch, `(M, *event)`."""
    if len(distribution.event_shape) == 1:
        support = mask_support(distribution)
    else:
        try:
            support = distribution.enumerate_support(expand=False)
        except NotImplementedError:
            raise ValueError(
                f"Enumerate cannot list the values of {type(distribution).__name__}; use an "
                "estimator that draws them"
            ) from None
    return support.reshape(len(support), *distribution.event_shape)


def _joint_values(distribution: Any, name: str, most: int) -> Tensor:
    """Every value of all entries of a distribution's batch together, `(N, *batch, *event)`."""
    support = _support(distribution)
    entries = math.prod(distribution.batch_shape)
    if len(support) ** entries > most:
        raise ValueError(
            f"Enumerate would list {len(support)}^{entries} joint values of the {entries} entries "
            f"of {name!r}, which stand in one log; at most {most} are: use fewer rows, or an "
            "estimator that draws them"
        )
    index = torch.cartesian_prod(*[torch.arange(len(support))] * entries).reshape(-1, entries)
    listed: Tensor = support[index.to(support.device)]
    return listed.reshape(-1, *distribution.batch_shape, *distribution.event_shape)


def _listed(
    program: ParticleProgram,
    spec: BoundSpec,
    probe: ParticleTrace,
    site: Site,
    given: Mapping[str, Tensor],
) -> tuple[ParticleTrace, Tensor]:
    """The run of all masks, and the objective, for given values of the latents outside."""
    copies = 1 if math.isinf(spec.masks) else int(spec.masks)
    joint = _shares_a_log(probe, site)
    event = len(site.distribution.event_shape)
    if joint:
        # The list stands where the probe's batch has its one particle.
        listed = _joint_values(site.distribution, site.name, MOST_JOINT_MASKS)
        values = listed.transpose(0, MASK_DIM - event).squeeze(0)
    else:
        values = _support(site.distribution).unsqueeze(1)
    masks = values.shape[MASK_DIM - event]
    values = values.repeat_interleave(copies, MASK_DIM - event)

    def draw(drawn: Site) -> Tensor | None:
        if drawn.name in given:
            return given[drawn.name]
        if drawn.name != site.name:
            return None
        return values.expand(*drawn.distribution.batch_shape, *drawn.distribution.event_shape)

    run = program.run(
        masks * copies, spec.imputations, draw, spec.random_masks, subsamples=probe.subsamples
    )
    _refuse_other_scores(run, site)
    every = replace(spec, masks=masks * copies, samples=1)
    if not spec.has_log:
        every = replace(spec, masks=1, samples=masks)
    terms = BoundTerms(run, every)
    (drawn,) = run.mask_sites
    log_q = drawn.score()
    if joint:
        others = [d for d in range(-log_q.dim(), 0) if d != MASK_DIM]
        log_q = log_q.sum(others, keepdim=True)
    log_q = log_q.unflatten(MASK_DIM, (masks, copies)).select(MASK_DIM, 0)
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


def _shares_a_log(run: ParticleTrace, site: Site) -> bool:
    """Whether several entries of a site's batch stand in one log, or in one penalty."""
    if any(plate.vectorized and plate.size > 1 for plate in site.inner):
        return True
    judged = [other for other, _ in run.weighted]
    judged += [other for other in run.sites.values() if other.is_penalty and other.in_particles]
    own = {(p.name, 0) for p in site.plates if p.vectorized and p.size > 1} & set(site.outer)
    return any(not own <= set(other.outer) for other in judged)


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
    tuples, places, coefficients = [], [], []
    for choice in combinations_with_replacement(range(masks), drawn):
        counts = Counter(choice)
        tuples.append(choice)
        places.append([place for c in counts.values() for place in range(c)])
        ways = math.factorial(drawn) / math.prod(math.factorial(c) for c in counts.values())
        coefficients.append(math.log(ways))
    index = torch.tensor(tuples, device=log_q.device)
    place = torch.tensor(places, device=log_q.device)
    log_q = log_q.reshape((1,) * (log_weight.dim() - 1 - log_q.dim()) + tuple(log_q.shape))
    # (B, …, T, L) and (B, …, T), over the T multisets
    weight = log_weight.movedim(-1, 0)[..., index, place]
    log_p = log_q.movedim(-1, 0)[..., index].sum(-1) + log_q.new_tensor(coefficients)
    bound = torch.logsumexp(weight, -1) - math.log(drawn)
    return (log_p.exp() * bound).sum(-1, keepdim=True).movedim(0, -1)


def _only_mask_site(run: ParticleTrace) -> Site:
    sites = run.mask_sites
    if len(sites) != 1:
        raise ValueError(
            "Enumerate needs exactly one latent site in mask_particles(); the program has "
            f"{[site.name for site in sites]}"
        )
    return sites[0]


def _refuse_own_estimators(run: ParticleTrace) -> None:
    for site in (*run.drawn, *run.sites.values()):
        if ESTIMATOR in site.infer:
            raise ValueError(
                f"site {site.name!r} asks for the estimator {site.infer[ESTIMATOR]!r}, and "
                "Enumerate(), chosen for the whole objective, lists its values; leave one out"
            )


def _refuse_other_scores(run: ParticleTrace, mask: Site) -> None:
    for site in run.drawn:
        score = score_of(site) if site.name != mask.name else None
        if score is not None and score.requires_grad:
            raise ValueError(
                f"Enumerate lists the masks only; site {site.name!r} is drawn from "
                f"{type(site.distribution).__name__}, which is learned and not reparameterised"
            )
