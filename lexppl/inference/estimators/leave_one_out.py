"""The leave-one-out score: each draw against its row's others, by observed or averaged labels."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from lexppl.argument_checks import fraction, one_of
from lexppl.distributions.support import draws_zeros_and_ones, lists_labels
from lexppl.effects import (
    EVERY_SHIFT,
    IMPUTATION_DIM,
    LABEL_PLATE,
    MASK_KIND,
    fit_reaches,
    fold_shift,
)
from lexppl.inference.estimators.base import (
    Estimate,
    SampledEstimator,
    Share,
    advantage,
    imputation_score,
    mask_score,
)
from lexppl.inference.objective.bound import BoundSpec, BoundTerms
from lexppl.inference.objective.program import ParticleProgram, ParticleTrace
from lexppl.inference.objective.site import Site


def averaged_advantage(program: ParticleProgram, terms: BoundTerms) -> Share:
    """The leave-one-out advantage of each mask, expected over labels, without gradient:

    Σ_y p̄(y|x) · (ℒ(y) − ℒ_{−l}(y)),    ℒ(y) = log 1/L Σ_l 1/K Σ_k p(y | x̃_{lk}).
    """
    run = terms.run
    y = _labels(run)
    for site in run.mask_sites:
        _refuse_other_masks(site)
    with torch.no_grad():
        every = _every_label(y)
        of_each = BoundTerms(replace(run, sites={**run.sites, y.name: every}), terms.spec)
        (weight,) = of_each.log_weights
        value, plates = advantage(weight)
        unmasked = _unmasked(program, run).sites[y.name].distribution
        probability = unmasked.log_prob(every.value).exp()
        return Share((probability * value).sum(0), plates)


def _every_label(y: Site) -> Site:
    """The site with all its labels observed, in a dimension to the left of all others."""
    distribution = y.distribution
    labels = distribution.enumerate_support(expand=False)
    # Where y is in no imputation plate, the labels must not stand in that plate's dimension.
    batch = max(len(distribution.batch_shape), -IMPUTATION_DIM)
    return replace(y, value=labels.reshape(len(labels), *(1,) * batch, *distribution.event_shape))


def _unmasked(program: ParticleProgram, run: ParticleTrace) -> ParticleTrace:
    """A run in which every entry is kept, with the rows and outside latents of the given one."""
    masks = {site.name: site.value for site in run.mask_sites}
    outside = {s.name: s.value for s in run.guide_sites.values() if not s.in_particles}

    def draw(site: Site) -> Tensor | None:
        if site.name in outside:
            return outside[site.name]
        drawn = masks.get(site.name)
        if drawn is None:
            return None
        return torch.ones(site.distribution.shape(), dtype=drawn.dtype, device=drawn.device)

    with program.evaluating():
        return program.run(draw=draw, subsamples=run.subsamples)


def _labels(run: ParticleTrace) -> Site:
    covered = [s.name for s in run.guide_sites.values() if s.in_particles]
    names = [site.name for site, _ in run.weighted]
    _refuse(
        bool(covered),
        f"judges a mask by log p(y | x̃) alone, and the guide covers {covered}, whose terms are "
        "part of its weight: leave them out of the guide, or ",
    )
    _refuse(
        len(names) != 1,
        f"needs one observed site inside mask_particles(), a label; the program has {names}: ",
    )
    ((y, _),) = run.weighted
    _refuse(
        LABEL_PLATE in y.plate_names,
        f"averages over labels, and site {y.name!r} is an expectation over them already "
        "(label_expectation): ",
    )
    _refuse(
        bool(y.inner),
        f"needs one label in each log, and site {y.name!r} has those of plates "
        f"{[plate.name for plate in y.inner]}: enter them before mask_particles(), or ",
    )
    _refuse(
        not lists_labels(y.distribution),
        "needs a label whose values can be listed, Categorical or Bernoulli; site "
        f"{y.name!r} is {type(y.distribution).__name__}: ",
    )
    return y


def _refuse_other_masks(site: Site) -> None:
    kind = site.infer.get(MASK_KIND, "selection")
    _refuse(
        kind != "selection",
        "evaluates the predictor with nothing hidden, by masks of ones, and site "
        f"{site.name!r} has mask_kind {kind!r}: ",
    )
    _refuse(
        site.distribution.has_rsample or not draws_zeros_and_ones(site.distribution),
        "needs masks of zeros and ones, such as Bernoulli or KSubset, that are learned by a score; "
        f"site {site.name!r} inside mask_particles() is {type(site.distribution).__name__}. Draw "
        "what is no mask inside imputation_particles(), or ",
    )


def _refuse(condition: bool, why: str) -> None:
    if condition:
        raise ValueError(f"labels='averaged' {why}choose labels='observed'")


Labels = Literal["observed", "averaged"]
"""Whose gain a mask is judged by: the observed label's, or that expected of the predictor's own."""


@dataclass(frozen=True)
class LeaveOneOut(SampledEstimator):
    """Score-function gradient; each draw is judged against the others of its row. Unbiased.

    For the bound `ℒ = log 1/L Σ_l w_l` (VIMCO, Mnih & Rezende 2016, eq. 7) the term of draw `l` is

        ∇ log q(z_l) · (ℒ − ℒ_{−l}),    ℒ_{−l} = log 1/L (Σ_{j≠l} w_j + ŵ_l),
        ŵ_l = exp(1/(L−1) Σ_{j≠l} log w_j),

    and for penalties and the average `1/S Σ_s log w_s` of single-mask bounds (RLOO, Kool et al.
    2019)

        ∇ log q(z_s) · (log w_s − 1/(S−1) Σ_{j≠s} log w_j) / S.

    With `labels="averaged"` the advantage is replaced by its expectation over labels,

        ∇ log q(z_l) · Σ_y p̄(y|x) (ℒ(y) − ℒ_{−l}(y)),    ℒ(y) = log 1/L Σ_l p(y | x̃_l),

    under the predictor's own p̄(y|x) with nothing hidden, held fixed (in a cross-fitted fit of the
    predictor that has not learned from the row). For the selector it is the unbiased gradient of

        Σ_n Σ_y p̄(y|x_n) E_q[ℒ_n(y)]  −  c_R Σ_n E_q[R]  +  β Σ_n H(q(z|x_n)),

    for the predictor that of the observed bound. What is selected is then what the *predictor*
    uses, memorised columns too, at the cost of one more run with a single mask.

    Args:
        labels: "observed", or "averaged".
        labels_from: share of the fit, in [0, 1), from which labels are averaged.

    Raises:
        ValueError: a mask drawn only once, `L·S = 1`. Under averaged labels: a program without
            exactly one label that can be listed in each log, with a guide of particle latents, or
            with masks of other than zeros and ones.

    Example:
        >>> LeaveOneOut().unbiased, LeaveOneOut(labels="averaged").unbiased
        (True, False)
    """

    labels: Labels = "observed"
    labels_from: float = 0.2

    def __post_init__(self) -> None:
        one_of(get_args(Labels), "labels", self.labels)
        fraction("labels_from", self.labels_from, of="the fit", zero=True)

    @property
    def unbiased(self) -> bool:  # type: ignore[override]
        return self.labels == "observed"

    @property
    def settled(self) -> float:
        return 0.0 if self.labels == "observed" else self.labels_from

    def check(self, site: Site, spec: BoundSpec) -> None:
        if site.is_mask and spec.particles < 2:
            raise ValueError(
                f"LeaveOneOut needs at least 2 draws of {site.name!r} for each row, and masks=1, "
                "samples=1 gives one; set masks=2 or more (a tighter bound), or samples=2 or more "
                "(the same bound, averaged)"
            )

    def score_term(self, site: Site, terms: BoundTerms) -> Tensor | float:
        return (imputation_score if site.in_imputations else mask_score)(site, terms)

    def score_terms(self, sites: Sequence[Site], estimate: Estimate) -> Tensor | float:
        if self.labels == "observed" or not self._averages_now(estimate.terms.spec):
            return super().score_terms(sites, estimate)
        for site in sites:
            _refuse(
                site.in_imputations,
                f"is of masks, and site {site.name!r} is drawn anew for each imputation: leave its "
                "own estimator out, or ",
            )
        advantages = [averaged_advantage(estimate.program, estimate.terms)]
        shares = [mask_score(site, estimate.terms, advantages) for site in sites]
        return sum(shares[1:], shares[0])

    def _averages_now(self, spec: BoundSpec) -> bool:
        # A term of a shift s ≥ 1 moves the predictors, and the score does not.
        scored = fold_shift() in (None, 0, EVERY_SHIFT) and torch.is_grad_enabled()
        return scored and not spec.random_masks and fit_reaches(self.labels_from)
