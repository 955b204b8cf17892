"""Draws for a chunk of rows: of p(z | x), or of p(z | x, y) by importance resampling."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from pyro.distributions import Unit
from torch import Tensor

from lexppl.effects import IMPUTATION_DIM, LABEL_PLATE
from lexppl.explanation.importance_weights import reliability, shares, systematic_resampling
from lexppl.inference.mask_plates import MaskList, MaskTree, plate_of
from lexppl.inference.objective.program import ParticleTrace, Site, row_marginals

Again = Callable[[Mapping[str, Tensor], int], Mapping[str, Site]]
RESPONSE = "y"  # The site of the response, by the convention of explainers


@dataclass
class RowDraws:
    """D draws for a chunk of B rows, of p(z | x) or of p(z | x, y).

    Attributes:
        masks: `(D, B, G)` by site.
        means: `(B, G)` by site: E[z | x], or given y E[z | x, y].
        y: `(D, B, *event)`; None without a response.
        label_probability: `(B, C)`, the mean over draws of p(y = c | x̃); None but for labels.
        log_evidence: `(P, B)`, log 1/(LK) Σ w for each of P values of θ, D of them or one.
        weight_ess, weight_pareto_k: `(B,)`, of the proposed masks.
        means_by_draw: `(D, B, G)` by site, `means` given each θ_d.
    """

    masks: dict[str, Tensor]
    means: dict[str, Tensor]
    y: Tensor | None = None
    label_probability: Tensor | None = None
    log_evidence: Tensor | None = None
    weight_ess: Tensor | None = None
    weight_pareto_k: Tensor | None = None
    means_by_draw: dict[str, Tensor] | None = None


def response_of(sites: Mapping[str, Site]) -> Site | None:
    """The site of the response; None where it has plates of its own, such as of times."""
    site = sites.get(RESPONSE)
    own = () if site is None else (p for p in site.plates if p.name != LABEL_PLATE)
    return None if any(p.vectorized and p.dim < IMPUTATION_DIM for p in own) else site


def draws_given_x(
    sites: Mapping[str, Site],
    names: Sequence[str],
    imputations: int = 1,
    *,
    suffix: str = "",
    kept: int | None = None,
) -> RowDraws:
    """What a run of D masks and K imputations without y has drawn: p(z | x), or q(z | x)."""
    masks = {name: value_of(sites[name]) for name in names}
    draws = len(masks[names[0]])
    response = response_of(sites)
    y = probability = None
    if response is not None:
        events = len(response.distribution.event_shape)
        y = _over_particles(value_of(response), imputations, draws, events)[0]
        y = y.squeeze(1) if is_of_all_rows(response) else y
        probability = _label_probability(response, imputations, draws)
    return RowDraws(
        masks={name + suffix: mask[:kept] for name, mask in masks.items()},
        means={name + suffix: _selection(sites[name], mask) for name, mask in masks.items()},
        y=y,
        label_probability=None if probability is None else probability.mean((1, 2)).T,
    )


def together(parts: Sequence[RowDraws]) -> RowDraws:
    """One set of draws of several, each from its own draw of the latents that rows share."""
    by_draw = [
        {name: mean.expand(len(part.masks[name]), -1, -1) for name, mean in part.means.items()}
        for part in parts
    ]
    first = parts[0]
    if len(parts) == 1:
        return replace(first, means_by_draw=by_draw[0])

    def joined(name: str, join: Callable[[list[Tensor]], Tensor]) -> Tensor | None:
        present = [value for part in parts if (value := getattr(part, name)) is not None]
        return join(present) if present else None

    def mean(values: list[Tensor]) -> Tensor:
        return torch.stack(values).mean(0)

    return RowDraws(
        masks={name: torch.cat([part.masks[name] for part in parts]) for name in first.masks},
        means={name: mean([part.means[name] for part in parts]) for name in first.means},
        y=joined("y", torch.cat),
        label_probability=joined("label_probability", mean),
        log_evidence=joined("log_evidence", torch.cat),
        weight_ess=joined("weight_ess", mean),
        weight_pareto_k=joined("weight_pareto_k", lambda each: torch.stack(each).median(0).values),
        means_by_draw={name: torch.cat([each[name] for each in by_draw]) for name in first.means},
    )


def is_of_all_rows(response: Site) -> bool:
    """Whether a response is one event of all rows, `(B, …)`."""
    return plate_of(response) is None and len(response.distribution.event_shape) > 0


def states_mean(site: Site) -> bool:
    """Whether a mask site's distribution states its mean."""
    try:
        row_marginals(site)
    except ValueError:
        return False
    return True


def label_values(distribution: object) -> Tensor | None:
    """The labels `(C,)` that a distribution of the response can take; None but for labels."""
    if getattr(distribution, "event_shape", ()) or not getattr(
        distribution, "has_enumerate_support", False
    ):
        return None
    try:
        values: Tensor = distribution.enumerate_support(expand=False)  # type: ignore[attr-defined]
    except NotImplementedError:
        return None
    return values.flatten()


def value_of(site: Site) -> Tensor:
    if site.value is None:
        raise ValueError(f"site {site.name!r} has no value")
    return site.value


def _chosen(site: Site, pair: Tensor, imputations: int, masks: int) -> Tensor:
    """A latent's values `(…, D, B, *event)` in the chosen pairs `(D, B)` of a mask and an
    imputation."""
    event = len(site.distribution.event_shape)
    value = _over_particles(value_of(site), imputations, masks, event)
    left = value.dim() - event - 3
    value = value.flatten(left, left + 1)
    rows = max(pair.shape[-1], value.shape[left + 1])
    pair = pair.expand(-1, rows)
    value = value.expand(*value.shape[: left + 1], rows, *value.shape[left + 2 :])
    places = (slice(None),) * left + (pair, torch.arange(rows, device=pair.device))
    chosen = value[places]
    return chosen.unsqueeze(left) if left or site.in_imputations else chosen


def _over_particles(value: Tensor, imputations: int, masks: int, event_dim: int = 0) -> Tensor:
    """`(…, K, L, B, *event)`, whatever particle plates the value has."""
    kept = value.dim() - event_dim
    shape = (1,) * max(3 - kept, 0) + tuple(value.shape)
    kept = max(kept, 3)
    value = value.reshape(shape)
    return value.expand(*shape[: kept - 3], imputations, masks, *shape[kept - 1 :])


def _selection(site: Site, drawn: Tensor) -> Tensor:
    """E[z | x] by the distribution `(B, G)`, averaged over particles; of the draws where it states
    none."""
    if not states_mean(site):
        return drawn.mean(0)
    mean: Tensor = site.distribution.mean
    if mean.dim() == 3 and not bool((mean == mean[:1]).all()):
        return mean.mean(0)
    return row_marginals(site)


def _label_probability(site: Site, imputations: int, masks: int) -> Tensor | None:
    """p(y = c | x̃), `(C, K, L, B)`."""
    if label_values(site.distribution) is None:
        return None
    expected = LABEL_PLATE in site.plate_names
    labels = value_of(site) if expected else site.distribution.enumerate_support(expand=False)
    return _over_particles(
        _labels_first(site.distribution.log_prob(labels)).exp(), imputations, masks
    )


def _labels_first(value: Tensor) -> Tensor:
    """`(C, K or 1, L, B)` from `(C, L, B)` or from what has both plates."""
    return value.reshape(value.shape[0], *(1,) * (4 - value.dim()), *value.shape[1:])


def predicted(
    run: ParticleTrace,
    pair: Tensor,
    imputations: int,
    masks: int,
    again: Again | None,
    above: Mapping[str | None, Tensor] | None = None,
) -> tuple[Tensor | None, Tensor | None]:
    """A new y `(D, B, *event)` for each chosen pair of a mask and an imputation, and for labels
    their mean probabilities `(B, C)`; of plates above the rows the pairs `(D, E)` are given."""
    site = response_of(run.sites)
    if site is None or isinstance(site.distribution, Unit):
        return None, None
    probability = _label_probability(site, imputations, masks)
    if probability is None:
        if again is None:
            return None, None
        latents = {
            name: _chosen(one, (above or {}).get(plate_of(one), pair), imputations, masks)
            if one.in_particles
            else value_of(one)
            for name, one in run.sites.items()
            if not one.observed
        }
        new = again(latents, len(pair)).get(RESPONSE)
        if new is None:  # Without y it is not drawn.
            return None, None
        event_dim = len(new.distribution.event_shape)
        drawn = _over_particles(value_of(new), 1, len(pair), event_dim)[0]
        return drawn.squeeze(1) if is_of_all_rows(new) else drawn, None
    rows = torch.arange(probability.shape[-1], device=pair.device)
    chosen = probability.flatten(1, 2)[:, pair.expand(-1, len(rows)), rows]
    reached = chosen.cumsum(0)
    level = torch.rand_like(reached[-1]) * reached[-1]
    index = (reached <= level).sum(0).clamp(max=len(chosen) - 1)
    labels = label_values(site.distribution)
    drawn = index if labels is None else labels[index]
    return drawn, chosen.mean(1).T


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
    observed = [site for site, _ in run.weighted if site.observed]
    in_rows = last > 0 and all(plate_of(site) == tree.plates[-1] for site in observed)
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
