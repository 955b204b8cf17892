"""What each mask contributed to the bound of every label, averaged as the predictor sees them."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from lexppl.distributions import draws_zeros_and_ones
from lexppl.effects import IMPUTATION_DIM, LABEL_PLATE, MASK_KIND
from lexppl.inference.estimators.leaving_one_out import Advantage, advantage
from lexppl.inference.objective.bound import BoundTerms
from lexppl.inference.objective.program import ParticleProgram, ParticleTrace
from lexppl.inference.objective.site import Site

OTHERWISE = "choose labels='observed'"


def averaged_advantage(program: ParticleProgram, terms: BoundTerms) -> Advantage:
    """The leave-one-out advantage of each mask, expected over labels:

        Σ_y p̄(y|x) · (ℒ(y) − ℒ_{−l}(y)),    ℒ(y) = log 1/L Σ_l 1/K Σ_k p(y | x̃_{lk}),

    with p̄ the predictor's distribution at x with nothing hidden. It takes one more run of the
    program, with masks of ones, as it stands in evaluation mode; no gradient goes through it.

    Args:
        program: to be run again.
        terms: of the run whose masks are judged.

    Raises:
        ValueError: a program whose weights are not those of one label that can be listed, given
            masks of zeros and ones; the message names the site.
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
        return Advantage((probability * value).sum(0), plates)


def _every_label(y: Site) -> Site:
    """The site with all its labels observed, in a dimension to the left of all others."""
    distribution = y.distribution
    labels = distribution.enumerate_support(expand=False)
    # Where y is in no imputation plate, the labels must not stand in that plate's dimension.
    batch = max(len(distribution.batch_shape), -IMPUTATION_DIM)
    return replace(y, value=labels.reshape(len(labels), *(1,) * batch, *distribution.event_shape))


def _unmasked(program: ParticleProgram, run: ParticleTrace) -> ParticleTrace:
    """A run in which every entry is kept, with the rows and the weights that the given one drew."""
    masks = {site.name: site.value for site in run.mask_sites}
    outside = {s.name: s.value for s in run.guide_sites.values() if not s.in_particles}

    def draw(site: Site) -> Tensor | None:
        if site.name in outside:
            return outside[site.name]
        drawn = masks.get(site.name)
        if drawn is None:
            return None
        shape = (*site.distribution.batch_shape, *site.distribution.event_shape)
        return torch.ones(shape, dtype=drawn.dtype, device=drawn.device)

    with program.evaluating():
        return program.run(draw=draw, subsamples=run.subsamples)


def _labels(run: ParticleTrace) -> Site:
    """The one site of the weights."""
    covered = [s.name for s in run.guide_sites.values() if s.in_particles]
    if covered:
        raise ValueError(
            f"labels='averaged' judges a mask by log p(y | x̃) alone, and the guide covers "
            f"{covered}, whose terms are part of its weight: leave them out of the guide, or "
            f"{OTHERWISE}"
        )
    observed = [site for site, _ in run.weighted]
    if len(observed) != 1:
        raise ValueError(
            "labels='averaged' needs one observed site inside mask_particles(), a label; the "
            f"program has {[site.name for site in observed]}: {OTHERWISE}"
        )
    (y,) = observed
    if LABEL_PLATE in y.plate_names:
        raise ValueError(
            f"labels='averaged' averages over labels, and site {y.name!r} is an expectation over "
            f"them already (label_expectation): {OTHERWISE}"
        )
    if y.inner:
        raise ValueError(
            f"labels='averaged' needs one label in each log, and site {y.name!r} has those of "
            f"plates {[plate.name for plate in y.inner]}: enter them before mask_particles(), or "
            f"{OTHERWISE}"
        )
    if not y.distribution.has_enumerate_support:
        raise ValueError(
            "labels='averaged' needs a label whose values can be listed, Categorical or "
            f"Bernoulli; site {y.name!r} is {type(y.distribution).__name__}: {OTHERWISE}"
        )
    return y


def _refuse_other_masks(site: Site) -> None:
    """Refuse masks of which ones do not keep everything."""
    kind = site.infer.get(MASK_KIND, "selection")
    if kind != "selection":
        raise ValueError(
            "labels='averaged' asks the predictor with nothing hidden, by masks of ones, and site "
            f"{site.name!r} has mask_kind {kind!r}: {OTHERWISE}"
        )
    if site.distribution.has_rsample or not draws_zeros_and_ones(site.distribution):
        raise ValueError(
            "labels='averaged' needs masks of zeros and ones, such as Bernoulli or KSubset, that "
            f"are learned by a score; site {site.name!r} inside mask_particles() is "
            f"{type(site.distribution).__name__}. Draw what is no mask inside "
            f"imputation_particles(), or {OTHERWISE}"
        )


def refuse_imputations(sites: Sequence[Site]) -> None:
    """Refuse latents that are no masks.

    Raises:
        ValueError: naming one that is drawn anew for each imputation.
    """
    for site in sites:
        if site.in_imputations:
            raise ValueError(
                f"labels='averaged' is of masks, and site {site.name!r} is drawn anew for each "
                f"imputation: leave its own estimator out, or {OTHERWISE}"
            )
