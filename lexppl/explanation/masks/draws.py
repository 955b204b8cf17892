"""Draws for a chunk of rows: of p(z | x), or of p(z | x, y) by importance resampling."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from pyro.distributions import Unit
from torch import Tensor

from lexppl.effects import LABEL_PLATE
from lexppl.inference.mask_plates import plate_of
from lexppl.inference.objective.program import ParticleTrace, Site, row_marginals

FEWEST = 5
"""Weights of a tail that a distribution can be fitted to."""
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
        k = np.stack([np.log1p(-one * excess).sum(0) for one in b]) / sizes
        likelihood = sizes * (np.log(-b / k) - k - 1)
        known = (places <= candidates) & ~np.isnan(likelihood)
        likelihood = np.where(known, likelihood, -np.inf)
        weight = np.exp(likelihood - likelihood.max(0))
        weight = weight / weight.sum(0)
        weight = np.where(weight >= 10 * np.finfo(float).eps, weight, 0.0)
        chosen = np.where(weight > 0, b * weight, 0.0).sum(0) / weight.sum(0)
        shape = np.log1p(-chosen * excess).sum(0) / sizes
    pooled: NDArray[np.float64] = (sizes * shape + PRIOR_WEIGHT * PRIOR_K) / (sizes + PRIOR_WEIGHT)
    return pooled


Again = Callable[[Mapping[str, Tensor], int], Mapping[str, Site]]

RESPONSE = "y"
"""The site of the response, by the convention of explainers."""


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
    response = sites.get(RESPONSE)
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


def reliability(share: Tensor, impossible: Tensor) -> tuple[Tensor, Tensor]:
    """The effective number of proposals and k̂ `(E,)` of normalised weights `(L, E)`."""
    found = torch.from_numpy(pareto_k(share.log().cpu().numpy())).to(share)
    ess = torch.where(impossible, 0.0, 1.0 / share.square().sum(0))
    return ess, torch.where(impossible, math.inf, found)


def shares(log_weight: Tensor) -> Tensor:
    """Weights normalised over dimension −2; where all are zero none is better than another."""
    impossible = log_weight.isneginf().all(-2, keepdim=True)
    return torch.where(impossible, 1.0 / log_weight.shape[-2], torch.softmax(log_weight, -2))


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
    site = run.sites.get(RESPONSE)
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
        new = again(latents, len(pair))[RESPONSE]
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
