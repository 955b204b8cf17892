"""The objective of one run, in the order of its formula.

    ℒ = Σ_u c_u · 1/S Σ_s log 1/(LK) Σ_{l,k} w_{u,s,l,k}     (log_weights, bounds)
        − c_R Σ E[R]  +  β Σ E[H(q(z | …))]                   (averages)
        + Σ log p(v) − Σ log q(v)                             (outside)

Tensors have the run's dimensions: −1 rows or another plate, −2 the `M = S·L` masks, −3 the `K`
imputations, further plates to the left.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from pyro.distributions.util import scale_and_mask
from pyro.infer.util import is_validation_enabled
from torch import Tensor

from lexppl.distributions.gradients import may_carry_gradient
from lexppl.effects import BY_DRAW, IMPUTATION_DIM, LABEL_DIM, LABEL_PLATE, MASK_DIM
from lexppl.inference.objective import grammar
from lexppl.inference.objective.grammar import match_logs, match_order, refuse_unread_options
from lexppl.inference.objective.program import ParticleTrace, log_weight_of
from lexppl.inference.objective.site import PlateKey, Site, closed_divergences, same_numbers


def common_scale(sites: Sequence[Site]) -> float | Tensor:
    """The scale outside the log of some sites: `N/B`, a row's weight, a label's probability."""
    for site in sites:
        _refuse_scale_within(site)
    labelled = [site for site in sites if LABEL_PLATE in site.plate_names]
    plain = [site for site in sites if LABEL_PLATE not in site.plate_names]
    for alike in (labelled, plain):
        for site in alike[1:]:
            if not same_numbers(site.scale, alike[0].scale):
                raise ValueError(
                    "sites within the particle plates must share one scale, which stands outside "
                    f"the log; {alike[0].name!r} has {_words(alike[0].scale)} and {site.name!r} "
                    f"has {_words(site.scale)}. Scale them alike, or {grammar.NO_COMMON_LOG}"
                )
    scale = (labelled or plain)[0].scale
    if labelled and plain and is_validation_enabled():
        whole = torch.as_tensor(scale).sum(LABEL_DIM, keepdim=True)
        if not same_numbers(whole, torch.as_tensor(plain[0].scale).to(whole), exact=False):
            raise ValueError(
                f"the scales of {labelled[0].name!r} over its labels must add up to that of "
                f"{plain[0].name!r}, with which it shares a log"
            )
    return scale


def refuse_unread_scales(drawn: Sequence[Site], terms: Sequence[Site]) -> None:
    """Refuse the scale of a latent that is proposed from the model, and so has no term for it."""
    read: list[float | Tensor] = [1.0]
    for term in terms:
        scale = torch.as_tensor(term.scale)
        by_label = LABEL_PLATE in term.plate_names and scale.dim() >= -LABEL_DIM
        read.append(scale.sum(LABEL_DIM, keepdim=True) if by_label else term.scale)
    weighted = {term.name for term in terms}
    for site in drawn:
        if site.name not in weighted and not any(
            same_numbers(site.scale, s, exact=False) for s in read
        ):
            raise ValueError(
                f"the scale of site {site.name!r}, {_words(site.scale)}, is in no term of the "
                f"bound: no guide draws it, and it cancels. Scale it as {terms[0].name!r} is, or "
                "not at all"
            )


def _refuse_scale_within(site: Site) -> None:
    for plate in site.inner:
        if plate.full_size not in (None, plate.size):
            grammar.matched(
                grammar.SUBSAMPLE, grammar.WITHIN, f"the plate {plate.name!r} of site {site.name!r}"
            )
    if not isinstance(site.scale, Tensor):
        return
    within = [MASK_DIM, IMPUTATION_DIM, *(p.dim for p in site.inner if p.vectorized)]
    varies = [d for d in within if site.scale.dim() >= -d and site.scale.shape[d] > 1]
    if varies:
        raise ValueError(
            f"the scale of site {site.name!r} differs within its log, at dims {varies}; a scale "
            f"stands outside the log. For a power of the likelihood write pyro.factor, or "
            f"{grammar.NO_COMMON_LOG}"
        )


def _words(scale: float | Tensor) -> str:
    if not isinstance(scale, Tensor):
        return str(scale)
    return f"a tensor of shape {tuple(scale.shape)} from {float(scale.min()):g}"


DIVERGENCE_ALONG = "divergence_along"
"""The method of a distribution drawn step by step: of a value and the rate of keeping, the sum over
its steps of their exact divergences, given the steps before, from a law that knows nothing."""

PARTICLE_DIMS = (IMPUTATION_DIM, MASK_DIM)

LEARNING = "learning"
"""The attribute of a distribution of y that other predictors state as well: their distributions,
which are learned from the draws that this one judges."""


@dataclass(frozen=True)
class BoundSpec:
    """What is maximised: :class:`lexppl.inference.NestedIWAE` at a point of the fit."""

    masks: float
    imputations: int = 1
    samples: int = 1
    entropy: float | Tensor = 0.0
    towards: float = 0.5
    penalty: float | Tensor = 1.0
    random_masks: bool = False
    copies: int | None = None

    @property
    def particles(self) -> int:
        """Masks that a run draws for each row, `S·L`."""
        return self.samples * int(self.masks)

    @property
    def has_log(self) -> bool:
        """Whether anything is averaged inside the log; where nothing is, the bound is a sum."""
        return self.masks != 1 or self.imputations != 1


@dataclass(frozen=True)
class LogWeight:
    """`log w` `(…, K, M, B)` of all that has a log of its own, with the scale before the log, the
    plates outside it, L and S."""

    value: Tensor
    scale: float | Tensor
    plates: Mapping[PlateKey, int | None]
    masks: int
    samples: int

    @cached_property
    def log_means(self) -> Tensor:
        """`log 1/K Σ_k w_{lk}` of each mask: `(…, 1, M, B)`."""
        imputations = self.value.shape[IMPUTATION_DIM]
        if imputations == 1:
            return self.value
        return torch.logsumexp(self.value, IMPUTATION_DIM, keepdim=True) - math.log(imputations)

    @cached_property
    def bounds(self) -> Tensor:
        """`log 1/(LK) Σ_{lk} w_{lk}`, each of the `S` bounds: `(…, 1, S, B)`."""
        if self.masks == 1:
            return self.log_means
        grouped = self.log_means.unflatten(MASK_DIM, (self.samples, self.masks))
        return torch.logsumexp(grouped, MASK_DIM) - math.log(self.masks)

    def by_mask(self, bounds: Tensor) -> Tensor:
        """A number for each bound, given to each of its masks: `(…, S, B)` to `(…, M, B)`."""
        shape = (*bounds.shape[:-1], self.masks, bounds.shape[-1])
        return bounds.unsqueeze(MASK_DIM).expand(shape).flatten(-3, -2)

    def to_nats(self, value: Tensor) -> Tensor:
        """Times what stands before each bound in the objective: the scale, and `1/S`."""
        if isinstance(self.scale, Tensor) or self.scale != 1.0:
            value = self.scale * value
        return value if self.samples == 1 else value / self.samples


@dataclass(frozen=True)
class Average:
    """A term outside the log averaged over the draws, `−c_R R` or `β H`, `(…, K or 1, M or 1, B)`,
    the plates outside the log, and the draws it can depend on (None for all)."""

    value: Tensor
    plates: Mapping[PlateKey, int | None]
    after: frozenset[str] | None = None


class BoundTerms:
    """The terms of the objective that one run gives."""

    def __init__(self, run: ParticleTrace, spec: BoundSpec) -> None:
        for site in (*run.sites.values(), *run.guide_sites.values()):
            refuse_unread_options(site)
        self.run = run
        self.spec = spec

    @cached_property
    def log_weights(self) -> list[LogWeight]:
        """`log w` for each set of plates outside the log; without a log, for each site."""
        weighted = self.run.weighted
        if not weighted:
            raise ValueError(
                "the program observes nothing inside mask_particles(): sample y there, with obs=y; "
                "a program without masks takes objective=pyro.infer.Trace_ELBO()"
            )
        run = self.run
        if is_validation_enabled():
            averaged = [s for s in run.sites.values() if s.is_penalty and s.in_particles]
            refuse_unread_scales(run.drawn, [site for site, _ in weighted])
            terms = [s for s, _ in weighted] + averaged
            match_order(run.drawn, terms, run.sites, run.guide_sites)
        if not self.spec.has_log:
            return [
                self._log_weight(sign * site.scaled_log_prob(), 1.0, site)
                for site, sign in weighted
            ]
        by_plates: dict[frozenset[PlateKey], list[tuple[Site, float]]] = {}
        for site, sign in weighted:
            by_plates.setdefault(site.log_plates, []).append((site, sign))
        # Turns of one loop have a log each, as the entries of a plate have.
        logs = [[site for site, _ in group] for group in by_plates.values()]
        match_logs(logs, run.drawn, run.guide_sites, self.spec.imputations)
        return [
            self._log_weight(log_weight_of(group), common_scale(sites), *sites)
            for group, sites in zip(by_plates.values(), logs, strict=True)
        ]

    def _log_weight(self, value: Tensor, scale: float | Tensor, *sites: Site) -> LogWeight:
        spec = self.spec
        value = value.reshape((1,) * (3 - value.dim()) + tuple(value.shape))
        if value.shape[MASK_DIM] != spec.particles:
            value = value.expand(*value.shape[:MASK_DIM], spec.particles, value.shape[-1])
        plates = {key: dim for site in sites for key, dim in site.outer.items()}
        return LogWeight(value, scale, plates, int(spec.masks), spec.samples)

    @cached_property
    def averages(self) -> list[Average]:
        """`−c_R R` of each penalty and `β H` of each mask distribution, by particle."""
        return self._penalties() + self._entropies()

    def _penalties(self) -> list[Average]:
        costs = []
        for site in self.run.sites.values():
            if site.is_penalty and site.in_particles:
                value = site.scaled_log_prob()
                if not _is(self.spec.penalty, 1.0):
                    value = self.spec.penalty * value
                of_distribution = not site.infer.get(BY_DRAW, True)
                costs.append(Average(value, site.outer, frozenset() if of_distribution else None))
        return costs

    def _entropies(self) -> list[Average]:
        if _is(self.spec.entropy, 0.0) or self.spec.random_masks:
            return []
        entropies: list[Average] = []
        before: set[str] = set()
        for site in self.run.mask_sites:
            after: frozenset[str] | None = None
            if hasattr(site.distribution, DIVERGENCE_ALONG):
                # −KL(q ‖ u) by the steps of each draw, which is judged by it.
                along = getattr(site.distribution, DIVERGENCE_ALONG)
                value = -along(site.value, self.spec.towards)
            else:
                distribution, by_particle = site.before_particles
                value = _entropy(site.name, distribution, self.spec.towards)
                after = frozenset(before if by_particle else ())
            value = self.spec.entropy * site.summed(scale_and_mask(value, site.scale, site.mask))
            entropies.append(Average(value, site.outer, after))
            before.add(site.name)
        return entropies

    @cached_property
    def outside(self) -> Tensor | float:
        """The terms outside the particle plates: global latents, plain observations, penalties."""
        closed = closed_divergences(self.run.sites, self.run.guide_sites)
        total: Tensor | float = 0.0
        for site in self.run.sites.values():
            if site.in_particles or site.is_deterministic or site.name in closed:
                continue
            factor = self.spec.penalty if site.is_penalty else 1.0
            total = total + factor * site.scaled_log_prob().sum()
        for site in self.run.guide_sites.values():
            if site.in_particles:
                continue
            divergence = closed.get(site.name)
            total = total - (site.scaled_log_prob().sum() if divergence is None else divergence)
        return total

    @property
    def value(self) -> Tensor:
        """The estimate of the objective that the run's draws give."""
        outside = self.outside
        return self.inside + outside if isinstance(outside, Tensor) else self.inside

    @property
    def inside(self) -> Tensor:
        """The same without the terms outside the particle plates."""
        bounds = [weight.to_nats(weight.bounds).sum() for weight in self.log_weights]
        averages = [_over_particles(average.value).sum() for average in self.averages]
        return sum([*bounds[1:], *averages], bounds[0])

    @property
    def learning(self) -> Tensor | float:
        """`1/(F−1) Σ_s ℒ_s` of the predictors that learn beside the one that judges."""
        judged = [site for site, _ in self.run.weighted if hasattr(site.distribution, LEARNING)]
        total: Tensor | float = 0.0
        for site in judged:
            others = getattr(site.distribution, LEARNING)
            for distribution in others:
                sites = {**self.run.sites, site.name: replace(site, distribution=distribution)}
                weights = BoundTerms(replace(self.run, sites=sites), self.spec).log_weights
                total = total + sum(w.to_nats(w.bounds).sum() for w in weights) / len(others)
        return total

    def averages_of(self, site: Site) -> list[Average]:
        """The averages that a site's draw can change."""
        return [
            average
            for average in self.averages
            if average.after is None or site.name in average.after
        ]


def shared_with(site: Site, value: Tensor, plates: Mapping[PlateKey, int | None]) -> Tensor:
    """The term `(…, K or 1, M or 1, B)` that each draw of a site takes part in: summed over the
    plates outside the log that the site is not in."""
    dims = [
        dim
        for key, dim in plates.items()
        if dim is not None
        and key not in site.outer
        and value.dim() >= -dim
        and value.shape[dim] != 1
    ]
    return value.sum(dims, keepdim=True) if dims else value


def _is(weight: float | Tensor, value: float) -> bool:
    """Whether a weight is a number that stays; of a tensor nobody knows before the step."""
    return not isinstance(weight, Tensor) and weight == value


def _over_particles(value: Tensor) -> Tensor:
    present = [d for d in PARTICLE_DIMS if value.dim() >= -d and value.shape[d] != 1]
    return value.mean(present, keepdim=True) if present else value


def _entropy(name: str, distribution: Any, towards: float) -> Tensor:
    """`−KL(q ‖ Bernoulli(ρ)^G)` in nats, `(…, M or 1, B)`; at ρ = ½ the exact entropy `H(q)`."""
    try:
        entropy: Tensor = distribution.entropy()
    except NotImplementedError as error:
        raise ValueError(
            "an entropy bonus needs a distribution with an exact entropy, and "
            f"{type(distribution).__name__} of site {name!r} has none; set entropy=0 or "
            "use KSubset or Bernoulli masks"
        ) from error
    if towards == 0.5:
        return entropy
    try:
        size: Tensor = distribution.mean.sum(-1)
    except NotImplementedError as error:
        raise ValueError(
            f"annealing towards={towards} needs a distribution with a mean, and "
            f"{type(distribution).__name__} of site {name!r} states none; leave towards "
            "out"
        ) from error
    entries = distribution.event_shape[-1]
    return entropy + (size * math.log(towards) + (entries - size) * math.log(1.0 - towards))


def score_of(site: Site) -> Tensor | None:
    """The log-probability of a site's score; None without gradient, density or need of it."""
    if not torch.is_grad_enabled() or site.distribution.has_rsample:
        return None
    try:
        return site.score()
    except NotImplementedError:
        return None


def learned_score_of(site: Site) -> Tensor | None:
    """:func:`score_of`; None too where nothing of the site's distribution learns."""
    score = score_of(site)
    return score if score is not None and may_carry_gradient(score) else None


def zero_with_gradient(value: Tensor) -> Tensor:
    """The zero `value − stop(value)`: zero, with the gradient of `value`."""
    return value - value.detach()


def joint_score(sites: Sequence[Site]) -> Tensor | None:
    """`Σ log q` of the draws of some sites, a scalar; None where there is nothing to score."""
    scores = [score_of(site) for site in sites]
    terms = [score.sum() for score in scores if score is not None]
    return sum(terms[1:], terms[0]) if terms else None
