"""Draws for a chunk of rows: of p(z | x), or of p(z | x, y) by importance resampling."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pyro.distributions import Unit
from scipy.special import logsumexp, ndtri
from torch import Tensor

from lexppl.distributions.support import lists_labels
from lexppl.effects import LABEL_PLATE
from lexppl.explanation.reading.masks import BY_GUIDE
from lexppl.inference.mask_plates import MaskList, MaskTree, plate_of, refuse_nan
from lexppl.inference.objective.dependence import RESPONSE, is_response
from lexppl.inference.objective.program import ParticleTrace, Site, of_first_particle, row_marginals

if TYPE_CHECKING:
    from lexppl.explanation.program_sites import MaskSite

FEWEST = 5  # Weights of a tail that a distribution can be fitted to
PRIOR_WEIGHT, PRIOR_K = 10, 0.5


def pareto_k(log_weights: NDArray[np.floating]) -> NDArray[np.float64]:
    """The shape k̂ `(B,)` of the generalised Pareto distribution of the largest of L importance
    weights.

    The M = ⌈min(L/5, 3 √L)⌉ largest weights, less the next, are fitted by the empirical Bayes
    estimate k of Zhang and Stephens, drawn a little to ½: `k̂ = (M k + 10 · ½) / (M + 10)`. It is
    `arviz.psislw`'s for all columns of log-weights `(L, B)` at once; infinite where one to four
    weights exceed the rest, −∞ where none does.

    Source: Vehtari, Simpson, Gelman, Yao and Gabry (2024), JMLR 25, section 3; Zhang and Stephens
    (2009), Technometrics 51.
    """
    values = np.sort(np.asarray(log_weights, dtype=np.float64), 0)
    count = len(values)
    most = int(np.ceil(min(count / 5, 3 * np.sqrt(count))))
    if most >= count:
        return np.full(values.shape[1], np.inf)
    with np.errstate(invalid="ignore"):
        tail = values[-most - 1 :] - values[-1]
    cutoff = np.maximum(tail[0], np.log(np.finfo(float).tiny))
    tail = np.exp(np.where(tail[1:] > cutoff, tail[1:], cutoff)) - np.exp(cutoff)
    sizes = (tail > 0).sum(0)
    fitted = np.full(values.shape[1], np.inf)
    fitted[sizes == 0] = -np.inf
    enough = sizes >= FEWEST
    fitted[enough] = _shape(tail[:, enough], sizes[enough])
    return fitted


def _shape(excess: NDArray[np.float64], sizes: NDArray[np.intp]) -> NDArray[np.float64]:
    """k̂ by column of ascending values `(M, B)`, of which the last `sizes` are positive."""
    columns = np.arange(excess.shape[1])
    candidates = 30 + np.sqrt(sizes).astype(int)
    places = np.arange(1, candidates.max(initial=30) + 1)[:, None]
    first = len(excess) - sizes
    quartile = excess[first + (sizes / 4 + 0.5).astype(int) - 1, columns]
    b = (1 - np.sqrt(candidates / (places - 0.5))) / (3 * quartile) + 1 / excess[-1]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        k = np.stack([np.log1p(-rate * excess).sum(0) for rate in b]) / sizes
        likelihood = sizes * (np.log(-b / k) - k - 1)
        known = (places <= candidates) & ~np.isnan(likelihood)
        likelihood = np.where(known, likelihood, -np.inf)
        weight = np.exp(likelihood - likelihood.max(0))
        weight = weight / weight.sum(0)
        weight = np.where(weight >= 10 * np.finfo(float).eps, weight, 0.0)
        chosen = np.where(weight > 0, b * weight, 0.0).sum(0) / weight.sum(0)
        shape = np.log1p(-chosen * excess).sum(0) / sizes
    return (sizes * shape + PRIOR_WEIGHT * PRIOR_K) / (sizes + PRIOR_WEIGHT)


def reliability(share: Tensor, impossible: Tensor) -> tuple[Tensor, Tensor]:
    """The effective number of proposals and k̂ `(E,)` of normalised weights `(L, E)`."""
    k_hat = torch.from_numpy(pareto_k(share.log().cpu().numpy())).to(share)
    ess = torch.where(impossible, 0.0, 1.0 / share.square().sum(0))
    return ess, torch.where(impossible, math.inf, k_hat)


def shares(log_weight: Tensor) -> Tensor:
    """Weights normalised over dimension −2; where all are zero none is better than another."""
    impossible = log_weight.isneginf().all(-2, keepdim=True)
    return torch.where(impossible, 1.0 / log_weight.shape[-2], torch.softmax(log_weight, -2))


def systematic_resampling(probabilities: Tensor, draws: int) -> Tensor:
    """Choose proposals by their probabilities, with replacement: their indices `(D, B)`.

    One uniform number `U` a row places an even grid, and draw `d` is the proposal at which the
    distribution function passes

        (d + U) / D,    d = 0 … D−1.

    Proposal `l` is chosen `⌊D p_l⌋` or `⌈D p_l⌉` times and `D p_l` times in expectation. The order
    of a row's draws is then shuffled, so that they are exchangeable. Proposals of probability zero
    are never chosen. Randomness is that of torch's default generator.

    Args:
        probabilities: `p`, `(N, B)`: N proposals for each of B rows, columns summing to one.
        draws: D.

    Source: Douc, Cappé and Moulines (2005), "Comparison of resampling schemes for particle
    filtering", section 2.4.

    Example:
        >>> systematic_resampling(torch.tensor([[0.0], [0.5], [0.5]]), 4).sort(0).values.T
        tensor([[1, 1, 2, 2]])
    """
    proposals, rows = probabilities.shape
    dtype, device = probabilities.dtype, probabilities.device
    reached = probabilities.T.cumsum(-1)
    reached = reached / reached[:, -1:]
    start = torch.rand(rows, 1, dtype=dtype, device=device)
    grid = (torch.arange(draws, dtype=dtype, device=device) + start) / draws
    # Rounding must not carry the grid to 1, past the last proposal that has a probability.
    grid = grid.clamp(max=1.0 - torch.finfo(dtype).eps)
    chosen = torch.searchsorted(reached, grid, right=True).clamp(max=proposals - 1)
    return chosen.gather(-1, torch.rand(rows, draws, device=device).argsort(-1)).T


TIE = 1e-6  # Standard deviation, in nats, of the noise between equal values


def log_mean(values: NDArray[np.float64], axis: tuple[int, ...] = (0,)) -> NDArray[np.float64]:
    """log of the mean of exp over some axes, such as log 1/P Σ_p p(y | x, θ_p)."""
    return logsumexp(values, axis) - np.log(np.prod([values.shape[a] for a in axis]))


def by_draw(values: NDArray[np.float64], draws: int, are_draws: bool) -> NDArray[np.float64]:
    """log p(y | x, θ) for each draw, `(C, D, B)`, of values `(C, P, B)`.

    ArviZ's `loo` leaves each row out of posterior draws θ_s by
    `elpd = Σ_n −log 1/S Σ_s 1 / p(y_n | x_n, θ_s)`. Where nothing was drawn, or the draws have not
    learned from the rows, all draws have the value `log 1/S Σ_s p(y_n | x_n, θ_s)`, of which `loo`
    gives the sum over rows, the log score; ArviZ 1.x refuses draws that are all alike, so they
    differ by normal scores of 1e-6 nats, which move the sum by 1e-12 a row.

    Source: Vehtari, Gelman and Gabry (2017), Statistics and Computing 27.

    >>> by_draw(np.array([[[-1.0]], [[-3.0]]]), 2, are_draws=False).round(3).tolist()
    [[[-1.566], [-1.566]], [[-1.566], [-1.566]]]
    """
    chains, _, rows = values.shape
    if not are_draws:
        values = np.broadcast_to(log_mean(values, (0, 1)), (chains, 1, rows))
    if values.shape[1] == draws and draws > 1:
        return values
    # Quantiles of a normal distribution, each once, in an order without a trend.
    places = np.random.default_rng(0).permutation(chains * draws)
    scores = ndtri((places + 0.5) / (chains * draws)).reshape(chains, draws, 1)
    return values + TIE * scores


Again = Callable[[Mapping[str, Tensor], int], Mapping[str, Site]]


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
        named: `(D, E, *event)` by `pyro.deterministic` site.
        averaged: the sites whose means are averages over draws of what their laws depend on.
    """

    masks: dict[str, Tensor]
    means: dict[str, Tensor]
    y: Tensor | None = None
    label_probability: Tensor | None = None
    log_evidence: Tensor | None = None
    weight_ess: Tensor | None = None
    weight_pareto_k: Tensor | None = None
    means_by_draw: dict[str, Tensor] | None = None
    named: dict[str, Tensor] = field(default_factory=dict)
    averaged: frozenset[str] = frozenset()


def draws_given_x(
    sites: Mapping[str, Site],
    described: Sequence[MaskSite],
    imputations: int = 1,
    *,
    most: int | None = None,
) -> RowDraws:
    """What a run of D masks and K imputations without y has drawn: p(z | x), or q(z | x)."""
    drawn = {mask.name: sites[mask.name.removesuffix(BY_GUIDE)] for mask in described}
    masks = {mask.name: mask.by_entry(value_of(drawn[mask.name])) for mask in described}
    draws = len(masks[described[0].name])
    response = sites.get(RESPONSE)
    y = probability = None
    if response is not None and not response.has_own_plates:
        events = len(response.distribution.event_shape)
        y = _over_particles(value_of(response), imputations, draws, events)[0]
        y = y.squeeze(1) if is_of_all_rows(response) else y
        probability = _label_probability(response, imputations, draws)
    return RowDraws(
        masks={name: mask[:most] for name, mask in masks.items()},
        means={m.name: selection_of(drawn[m.name], m, masks[m.name]) for m in described},
        y=y,
        label_probability=None if probability is None else probability.mean((1, 2)).T,
        named={
            name: values_by_entry(site, imputations, draws)[0]
            for name, site in sites.items()
            if is_named_value(site)
        },
        averaged=frozenset(m.name for m in described if _differs_by_mask(drawn[m.name], m)),
    )


JOINS: Mapping[str, Callable[[list[Tensor]], Tensor]] = {
    **dict.fromkeys(("masks", "y", "log_evidence", "means_by_draw", "named"), torch.cat),
    **dict.fromkeys(("means", "label_probability", "weight_ess"), lambda v: torch.stack(v).mean(0)),
    "weight_pareto_k": lambda values: torch.stack(values).median(0).values,
}
"""How draws at several values of the latents that rows share become one set, by field."""


def together(parts: Sequence[RowDraws]) -> RowDraws:
    """One set of draws of several, each from its own draw of the latents that rows share."""
    for part in parts:
        part.means_by_draw = {
            name: mean.expand(len(part.masks[name]), -1, -1) for name, mean in part.means.items()
        }
    if len(parts) == 1:
        return parts[0]
    joined: dict[str, Any] = {"averaged": parts[0].averaged.union(*(p.averaged for p in parts))}
    for name, join in JOINS.items():
        values = [value for part in parts if (value := getattr(part, name)) is not None]
        if values and isinstance(values[0], dict):
            joined[name] = {site: join([v[site] for v in values]) for site in values[0]}
        elif values:
            joined[name] = join(values)
    return RowDraws(**joined)


def is_of_all_rows(response: Site) -> bool:
    """Whether a response is one event of all rows, `(B, …)`."""
    return plate_of(response) is None and len(response.distribution.event_shape) > 0


def states_mean(site: Site) -> bool:
    """Whether a mask site's distribution states its mean; that of `Categorical` is NaN."""
    mean = row_marginals(site)
    return mean is not None and not bool(mean.isnan().all())


def label_values(distribution: Any) -> Tensor | None:
    """The labels `(C,)` that a distribution of the response can take; None but for labels."""
    if distribution.event_shape or not lists_labels(distribution):
        return None
    values: Tensor = distribution.enumerate_support(expand=False)
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
    """A value as `(…, K, L, B, *event)`, whatever particle plates the value has."""
    dims = value.dim() - event_dim
    shape = (1,) * max(3 - dims, 0) + tuple(value.shape)
    dims = max(dims, 3)
    value = value.reshape(shape)
    return value.expand(*shape[: dims - 3], imputations, masks, *shape[dims - 1 :])


def selection_of(site: Site, mask: MaskSite, drawn: Tensor) -> Tensor:
    """E[z | x] by the distribution `(B, G)`, averaged over particles; of the draws where it states
    none."""
    if not states_mean(site):
        return drawn.mean(0, dtype=torch.float64)
    mean = mask.by_entry(site.distribution.mean)
    return mean.mean(0) if _differs_by_mask(site, mask) else of_first_particle(mean)


def _differs_by_mask(site: Site, mask: MaskSite) -> bool:
    """Whether the mean of a mask's distribution depends on other latents of the particle."""
    mean = mask.by_entry(site.distribution.mean) if states_mean(site) else None
    return mean is not None and mean.dim() == 3 and not bool((mean == mean[:1]).all())


def _label_probability(site: Site, imputations: int, masks: int) -> Tensor | None:
    """p(y = c | x̃), `(C, K, L, B)`."""
    if label_values(site.distribution) is None:
        return None
    expected = LABEL_PLATE in site.plate_names
    labels = value_of(site) if expected else site.distribution.enumerate_support(expand=False)
    log_p = site.distribution.log_prob(labels)
    # Labels come first, `(C, L, B)` or with both plates.
    log_p = log_p.reshape(len(log_p), *(1,) * (4 - log_p.dim()), *log_p.shape[1:])
    return _over_particles(log_p.exp(), imputations, masks)


def predicted(
    run: ParticleTrace,
    pair: Tensor,
    imputations: int,
    masks: int,
    again: Again | None,
    above: Sequence[Tensor],
    tree: MaskTree,
) -> tuple[Tensor | None, Tensor | None]:
    """A new y `(D, B, *event)` for each chosen pair of a mask and an imputation, and for labels
    their mean probabilities `(B, C)`; of levels above the last one the pairs `(D, E)` are given."""
    site = run.sites.get(RESPONSE)
    if site is None or site.has_own_plates or isinstance(site.distribution, Unit):
        return None, None
    probability = _label_probability(site, imputations, masks)
    if probability is None or pair.shape[-1] not in (1, probability.shape[-1]):
        if again is None:
            return None, None
        pairs = [*above, pair]
        latents = {
            name: _chosen(site, pairs[tree.level_of(site)], imputations, masks)
            if site.in_particles
            else value_of(site)
            for name, site in run.sites.items()
            if not (site.observed or is_response(name))
        }
        new = again(latents, len(pair)).get(RESPONSE)
        if new is None:  # Without y it is not drawn.
            return None, None
        probability = _label_probability(new, 1, len(pair))
        if probability is None:
            event_dim = len(new.distribution.event_shape)
            drawn = _over_particles(value_of(new), 1, len(pair), event_dim)[0]
            return drawn.squeeze(1) if is_of_all_rows(new) else drawn, None
        chosen = probability[:, 0]
    else:
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
    described: Sequence[MaskSite],
    particles: int,
    imputations: int,
    draws: int,
    again: Again | None = None,
    beside: Collection[str] = (),
) -> RowDraws:
    """D draws of p(z | x, y) by importance resampling of a run's P proposals, or from all P masks.

    Pairs of a row's mask and imputation are resampled by `w_lk = p(y | x̃_lk) p(z_l) / q(z_l)`; of
    probabilities of labels normalised weights are averaged, Σ_c p(c) p(z | x, y = c). Masks of all
    rows and of groups are weighed by the responses below them and drawn first; `log_evidence` is
    then log p(y_n | x_n) given these, and given what is observed `beside` y. Of a run without y the
    weights are of what is beside it. `again` runs the program without y for new responses.

    Raises:
        FloatingPointError: a weight is NaN.
    """
    at_level = max(tree.levels.values())
    counts, weights = _weights(run, tree, listed, particles, imputations)
    of_beside = []
    if beside:
        of_beside = _weights(run.weighing(beside), tree, listed, particles, imputations)[1]
    last = len(weights) - 1
    observed = [site for site, _ in run.weighted if site.observed]
    in_rows = last > 0 and all(plate_of(site) == tree.plates[-1] for site in observed)
    above_last: list[Tensor] = []
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
            of_draws = share[at, :, every]
            chosen = torch.multinomial(of_draws.flatten(0, 1), 1).reshape(draws, entries)
        if level == last and in_rows:
            evidence = torch.logsumexp(flat, -2)
            if of_beside:
                evidence = evidence - torch.logsumexp(of_beside[level], -2).reshape(evidence.shape)
            evidence = evidence[at, every] if len(flat) > 1 else evidence
        at = at * candidates + chosen
        reached = (reached[:, above].unsqueeze(1) * share).flatten(0, 1)
        repeats = imputations if level == last else 1
        below = math.prod(counts[level + 1 :])
        which = at.div(repeats, rounding_mode="floor") * below
        if level < last:
            above_last.append(which)
        by_mask = reached.unflatten(0, (-1, repeats)).sum(1)
        for mask in (mask for mask in described if tree.levels[mask.name] == level):
            value = mask.by_entry(value_of(run.sites[mask.name]))
            value = value.expand(particles, *value.shape[-2:])
            masks[mask.name] = value[which, torch.arange(value.shape[-2], device=at.device)]
            means[mask.name] = (by_mask.unsqueeze(-1) * value[::below]).sum(0)
        if listed is None and level == at_level:
            ess, pareto = reliability(by_mask, weight.isneginf().all(-2).flatten())
    pair = (at % imputations) * particles + at.div(imputations, rounding_mode="floor")
    y, probability = predicted(run, pair, imputations, particles, again, above_last, tree)
    named: dict[str, Tensor] = {}
    for name, site in run.sites.items():
        if is_named_value(site):
            values = values_by_entry(site, imputations, particles).flatten(0, 1)
            places = [*above_last, pair][tree.level_of(site)]
            named[name] = values[places, torch.arange(values.shape[1], device=at.device)]
    return RowDraws(masks, means, y, probability, evidence, ess, pareto, named=named)


def is_named_value(site: Site) -> bool:
    """Whether a site is a `pyro.deterministic` value inside `mask_particles()`, other than `y`,
    which Pyro makes of a response with `obs_mask=`."""
    return site.is_deterministic and site.in_particles and site.name != RESPONSE


def values_by_entry(site: Site, imputations: int, masks: int) -> Tensor:
    """Values `(K, L, E, *event)` of a `pyro.deterministic` site, which Pyro takes as one event: in
    a plate at dim −1 of its entries, else of all rows, where its particles may come last. Further
    plates stand behind the event."""
    value, stated = value_of(site), len(site.distribution.event_shape)
    depths = [-plate.dim for plate in site.plates if plate.vectorized]
    batch = max(2 + site.in_imputations, *depths)
    batch = value.dim() - stated if stated < value.dim() else batch
    if plate_of(site) is None and not (value.dim() >= batch and value.shape[batch - 1] == 1):
        value = value.unsqueeze(batch - 1) if value.dim() >= batch - 1 else value
    event = max(0, value.dim() - batch)
    value = _over_particles(value, imputations, masks, event)
    further = value.dim() - event - 3
    return value.movedim([*range(further)], [*range(-further, 0)])


def without_new_responses(run: ParticleTrace) -> ParticleTrace:
    """A run without the responses that it draws, which say nothing of its masks."""
    drawn = [n for n, s in run.sites.items() if is_response(n) and not s.observed]
    return run.without(drawn) if drawn else run


def _weights(
    run: ParticleTrace, tree: MaskTree, listed: MaskList | None, particles: int, imputations: int
) -> tuple[list[int], list[Tensor]]:
    """Number of masks at each level of the plates, and their log-weights."""
    if listed is not None:
        counts = list(listed.counts)
        weights = list(tree.log_weights(run, counts, imputations, listed.names))
    else:
        at_level = max(tree.levels.values())
        counts = [1] * len(tree.plates)
        counts[at_level] = particles
        weights = list(tree.log_weights(run, counts, imputations))
        weights[at_level] = weights[at_level] - math.log(particles)
    refuse_nan(weights[0])
    return counts, weights
