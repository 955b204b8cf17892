"""What every gradient estimator is, and the score of each draw against the others of its row."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from lexppl.effects import IMPUTATION_DIM, MASK_DIM
from lexppl.inference.objective.bound import (
    PARTICLE_DIMS,
    BoundSpec,
    BoundTerms,
    LogWeight,
    joint_score,
    learned_score_of,
    shared_with,
    zero_with_gradient,
)
from lexppl.inference.objective.grammar import ESTIMATOR
from lexppl.inference.objective.program import ParticleProgram, ParticleTrace
from lexppl.inference.objective.site import PlateKey, Site


def leave_one_out(log_weight: Tensor, bound: Tensor | None = None) -> Tensor:
    """`ℒ − ℒ_{−l}` from log-weights `(…, S, L, B)`: VIMCO's signal, or RLOO's for L = 1."""
    samples, masks = log_weight.shape[-3], log_weight.shape[-2]
    if bound is None:
        bound = torch.logsumexp(log_weight, -2, keepdim=True) - math.log(masks)
    if masks == 1:
        return bound - ((bound.sum(-3, keepdim=True) - bound) / (samples - 1))
    stand_in = (log_weight.sum(-2, keepdim=True) - log_weight) / (masks - 1)
    left_out = torch.eye(masks, dtype=torch.bool, device=log_weight.device).unsqueeze(-1)
    without = torch.where(left_out, stand_in.unsqueeze(-2), log_weight.unsqueeze(-3))
    return bound - (torch.logsumexp(without, -2) - math.log(masks))


class Share(NamedTuple):
    """What each draw brought, in nats of the objective `(…, K or 1, M or 1, B)`, and the plates
    outside the log."""

    value: Tensor
    plates: Mapping[PlateKey, int | None]


def advantage(weight: LogWeight) -> Share:
    """`ℒ − ℒ_{−l}` of each mask, `(…, 1, M, B)`, times what stands before the log."""
    grouped = weight.log_means.unflatten(MASK_DIM, (weight.samples, weight.masks))
    bound = weight.bounds.unsqueeze(MASK_DIM)
    return Share(weight.to_nats(leave_one_out(grouped, bound).flatten(-3, -2)), weight.plates)


def signal_of(site: Site, shares: Iterable[Share]) -> Tensor | float:
    """What each draw of a site brought: the sum of the shares that it takes part in."""
    return sum((shared_with(site, value, plates) for value, plates in shares), 0.0)


def scored(site: Site, log_q: Tensor | None, shares: Iterable[Share]) -> Tensor | float:
    """A term of value zero: the score of a site's draws, times what each brought. The shares are
    computed without gradients, and not where there is no score."""
    if log_q is None:
        return 0.0
    with torch.no_grad():
        signal = signal_of(site, shares)
    return (zero_with_gradient(log_q) * signal).sum()


def mask_score(
    site: Site, terms: BoundTerms, advantages: Iterable[Share] | None = None
) -> Tensor | float:
    """A term of value zero with the score of a mask site, each draw against the others."""
    advantages = map(advantage, terms.log_weights) if advantages is None else advantages
    return scored(site, learned_score_of(site), chain(averages_by_draw(site, terms), advantages))


def imputation_score(site: Site, terms: BoundTerms) -> Tensor | float:
    """A term of value zero with the score of an imputation's latent, by those of its row."""

    def shares() -> Iterator[Share]:
        for weight in terms.log_weights:
            yield Share(_imputation_benefit(weight), weight.plates)
        for average in terms.averages_of(site):
            yield Share(_against_others(average.value, PARTICLE_DIMS), average.plates)

    return scored(site, learned_score_of(site), shares())


def _imputation_benefit(weight: LogWeight) -> Tensor:
    """What each imputation of each mask contributed, in nats of the objective: `(…, K, M, B)`."""
    imputations = weight.value.shape[IMPUTATION_DIM]
    # (…, S, L·K, B)
    every = weight.value.unflatten(MASK_DIM, (weight.samples, weight.masks))
    every = every.movedim(-4, -2).flatten(-3, -2)
    alone = every.shape[-2] * every.shape[-3] == 1
    benefit = weight.to_nats(every if alone else leave_one_out(every))
    return benefit.unflatten(-2, (-1, imputations)).movedim(-2, -4).flatten(-3, -2)


def averages_by_draw(site: Site, terms: BoundTerms) -> Iterator[Share]:
    """What each mask draw added to the averages, against the mean of the other draws of its row."""
    for average in terms.averages_of(site):
        yield Share(_against_others(per_mask(average.value), [MASK_DIM]), average.plates)


def _against_others(value: Tensor, particle_dims: Sequence[int]) -> Tensor:
    """Each draw's part in a mean over draws, less the mean of the other draws."""
    dims = [d for d in particle_dims if value.dim() >= -d and value.shape[d] > 1]
    if not dims:
        return value
    return (value - value.mean(dims, keepdim=True)) / (math.prod(value.shape[d] for d in dims) - 1)


def per_mask(value: Tensor) -> Tensor:
    """The mean over imputations of a value by particle."""
    return value.mean(IMPUTATION_DIM, keepdim=True) if value.dim() >= -IMPUTATION_DIM else value


class GradientEstimator(ABC):
    """Estimate the objective of a program, with a gradient.

    `unbiased` says whether the expected gradient is that of the expected objective.
    """

    unbiased: ClassVar[bool]

    @property
    def settled(self) -> float:
        """The progress of the fit from which it no longer changes, in [0, 1]."""
        return 0.0

    @property
    def control_parameters(self) -> tuple[nn.Module, ...]:
        """Modules that `fit` tunes to lessen the gradient's variance."""
        return ()

    @abstractmethod
    def estimate(self, program: ParticleProgram, spec: BoundSpec) -> Tensor:
        """A scalar whose value estimates the objective (to maximise, in nats over the data) and
        whose gradient estimates the objective's gradient."""


@dataclass(frozen=True)
class Estimate:
    """A run of the program as a gradient estimator reads it, with the bound's terms of hard masks
    and what was remembered of the draws."""

    program: ParticleProgram
    terms: BoundTerms
    memory: Mapping[str, Any]


class SampledEstimator(GradientEstimator):
    """An estimator that draws `S·L` masks and adds, for each site, a term of value zero with the
    part of the gradient that differentiating the weights misses.

    A subclass gives :meth:`check`, :meth:`score_term` and, where masks are not drawn from their
    distribution as it is, :meth:`draw`; or :meth:`remembered_draw` and :meth:`score_terms`. A
    site's `infer={"estimator": …}` has priority. Latents outside the particle plates whose guide is
    not reparameterised are scored by `copies` of the program, against one another.
    """

    draws_reparameterised: ClassVar[bool] = False
    """Whether reparameterised distributions are drawn by the estimator too."""

    def check(self, site: Site, spec: BoundSpec) -> None:
        """Refuse a site that cannot be estimated so."""

    def draw(self, site: Site) -> Tensor | None:
        """The site's value; None leaves it to its distribution."""
        return None

    def remembered_draw(self, site: Site) -> tuple[Tensor | None, Any]:
        """The site's value, as :meth:`draw`, and what :meth:`score_terms` needs of the draw."""
        return self.draw(site), None

    def score_term(self, site: Site, terms: BoundTerms) -> Tensor | float:
        """A term of value zero with the site's share of the gradient."""
        return 0.0

    def score_terms(self, sites: Sequence[Site], estimate: Estimate) -> Tensor | float:
        """The term of all the sites that this estimator has."""
        shares = [self.score_term(site, estimate.terms) for site in sites]
        return sum(shares[1:], shares[0])

    def estimate(self, program: ParticleProgram, spec: BoundSpec) -> Tensor:
        if math.isinf(spec.masks):
            raise ValueError(
                "masks=inf is the exact log-likelihood, which only Enumerate() computes; "
                f"{type(self).__name__} draws a finite number of masks"
            )
        runs = [self._one_copy(program, spec)]
        is_scored = runs[0][1] is not None
        if is_scored and spec.copies == 1:
            raise ValueError(
                "the guide draws latents outside the particle plates from distributions that are "
                "not reparameterised: their score needs copies=2 or more of the program, or "
                "Enumerate()"
            )
        copies = spec.copies or (2 if is_scored else 1)
        runs += [self._one_copy(program, spec) for _ in range(1, copies)]
        mean = runs[0][0] if copies == 1 else torch.stack([value for value, _ in runs]).mean()
        total = mean
        for value, score in runs:
            if score is not None:
                # (f_c − mean of the others) / C
                signal = (value - mean).detach() / (copies - 1)
                total = total + zero_with_gradient(score) * signal
        return total

    def _one_copy(self, program: ParticleProgram, spec: BoundSpec) -> tuple[Tensor, Tensor | None]:
        """The estimate for one draw of the latents outside the particles, and that draw's score."""
        memory: dict[str, Any] = {}

        def draw(site: Site) -> Tensor | None:
            estimator = self._for(site)
            if estimator is None:
                return None
            if site.distribution.has_rsample and not estimator.draws_reparameterised:
                return None
            if torch.is_grad_enabled():
                estimator.check(site, spec)
            value, remembered = estimator.remembered_draw(site)
            if remembered is not None:
                memory[site.name] = remembered
            return value

        run = program.run(spec.particles, spec.imputations, draw, spec.random_masks)
        terms = BoundTerms(run, spec)
        total = terms.value + terms.learning
        shares: dict[int, tuple[SampledEstimator, list[Site]]] = {}
        for site in run.drawn:
            estimator = self._chosen(site, run)
            if estimator is None:
                total = total + imputation_score(site, terms)
            else:
                shares.setdefault(id(estimator), (estimator, []))[1].append(site)
        estimate = Estimate(program, terms, memory)
        for estimator, sites in shares.values():
            total = total + estimator.score_terms(sites, estimate)
        return total, joint_score(scored_outside(run))

    def _for(self, site: Site) -> "SampledEstimator | None":
        """The site's estimator; None for latents of imputations or outside the particle plates."""
        if site.infer.get("enumerate"):
            raise ValueError(
                f"site {site.name!r} is to be summed out (infer={{'enumerate': …}}), and "
                f"{type(self).__name__} draws it: give estimator=Enumerate(), which lists it, or "
                "leave 'enumerate' out"
            )
        estimator = site.infer.get(ESTIMATOR, self if site.is_mask else None)
        if estimator is not None and not isinstance(estimator, SampledEstimator):
            raise ValueError(
                f"site {site.name!r} asks for the estimator {estimator!r}; a site can choose among "
                "the sampled ones, such as LeaveOneOut(); Enumerate() is chosen for the whole "
                "objective"
            )
        if estimator is not None and not (
            site.in_particles or isinstance(estimator, SamplePathEstimator)
        ):
            raise ValueError(
                f"site {site.name!r} is outside mask_particles() and asks for {estimator!r}; such "
                "latents are scored by copies of the program: leave the estimator out"
            )
        return estimator

    def _chosen(self, site: Site, run: ParticleTrace) -> "SampledEstimator | None":
        estimator = self._for(site)
        in_model = run.sites.get(site.name)
        asked = None if in_model is None else in_model.infer.get(ESTIMATOR)
        if asked is not None and asked != estimator:
            raise ValueError(
                f"the guide draws {site.name!r}, and the model asks for the estimator {asked!r} of "
                "it; write infer={'estimator': …} at the guide's statement, which is the one whose "
                "gradient is estimated"
            )
        return estimator


def scored_outside(run: ParticleTrace) -> list[Site]:
    """The guide's latents outside the particle plates that are not reparameterised."""
    return [
        site
        for site in run.guide_sites.values()
        if not (site.in_particles or site.observed or site.distribution.has_rsample)
    ]


class SamplePathEstimator(SampledEstimator):
    """An estimator whose gradient is all in how masks are drawn: it adds no term."""
