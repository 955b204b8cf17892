"""What the groups of a posterior say of their draws."""

import importlib.metadata
from functools import cache
from typing import Any

from lexppl.arviz_compatibility import Posterior
from lexppl.explanation.layout import mask_groups as named
from lexppl.explanation.row_plan import RowPlan
from lexppl.inference.training.result import FitResult
from lexppl.inference.training.rows import DIRICHLET

HELD_OUT = (
    "log p(y | x), the log-density of the mean over all chains and draws, which have not learned "
    "from the rows: arviz.loo gives their log score"
)
BY_DRAW = "log p(y | x) with the masks summed out, given the draw of what all rows share"
BY_FIT = "log p(y | x) with the masks summed out, given the fit, whose rows had weights of its own"

MARKOV_CHAINS, INDEPENDENT_DRAWS = "Markov chains", "sets of independent draws"
SAMPLED = (MARKOV_CHAINS, INDEPENDENT_DRAWS)
"""What the attribute `chains` begins with where latents that rows share were sampled."""


def chains_are(posterior: Posterior) -> str:
    """What the chains of a posterior are, in words, by its attribute `chains`."""
    return str(named.masks_of(posterior).attrs.get("chains", ""))


def attributes(result: FitResult, seed: int) -> dict[str, Any]:
    """The attributes of all groups, of draws of a fit with a seed."""
    chains = "replicates of the fit, one chain each"
    if result.sampler is not None:
        kind = MARKOV_CHAINS if result.sampler.are_chains else INDEPENDENT_DRAWS
        chains = f"{kind}: {result.sampler.name}"
    return {
        "inference_library": "lexppl",
        "inference_library_version": _version(),
        "objective": "unknown" if result.objective is None else result.objective.summary,
        "seed": seed,
        "fit_seed": result.seed,
        "row_weights": result.row_weights or "none",
        "chains": chains,
    }


def draws_of_groups(
    result: FitResult, plan: RowPlan, given_y: bool, likelihoods: str
) -> dict[str, dict[str, str]]:
    """What the draws of each group are, as its attributes.

    Args:
        result: the fit.
        plan: of the draws.
        given_y: whether y was.
        likelihoods: what the log-likelihood holds.
    """
    sites = plan.sites
    given_x = "independent draws of the masks given x alone, p(z | x)"
    if plan.draws == 0:
        given_x = "none: the means of p(z | x) are those that each fitted model states"
    of_all = [site.name for site in sites.masks if site.is_one_law]
    given_x += "".join(f"; the law of {name!r} is one for all rows" for name in of_all)
    parts, masks = [], ""
    if given_y:
        way = f"resampled by importance from {plan.masks} proposals a row"
        if plan.listed is not None:
            way = f"exact, from all {plan.masks} masks"
        masks = f"draws of the masks given x and y, p(z | x, y), {way}"
        parts.append(masks)
    if sites.shared:
        by = "the guide" if result.sampler is None else result.sampler.name
        parts.append(f"draws of the latents that all rows share, by {by}")
        if not sites.has_prior:
            parts.append("none from a prior, as parameters of the fits have none")
    prior = "independent draws of the masks given x alone, p(z | x): of those given y the prior"
    if sites.has_outer_latents:
        prior = "independent draws from the prior of what is latent outside the masks' plate"
    meanings = {
        named.GIVEN_X: f"{given_x}; responses given those masks, p(y | x)",
        named.GIVEN_XY: "; ".join(parts),
        named.PRIOR: prior,
        named.PRIOR_Y: "responses given x and those draws",
        named.OF_ROWS: masks,
        named.NEW_Y: "new responses given those masks, p(y' | x, y)",
        "log_likelihood": likelihoods,
    }
    return {group: {"draws": meaning} for group, meaning in meanings.items()}


def what_likelihoods_are(result: FitResult, plan: RowPlan, held_out: bool) -> str:
    """What the log-likelihood of a posterior holds.

    Args:
        result: the fit.
        plan: of the draws.
        held_out: whether the fit has not learned from the rows.
    """
    if held_out:
        return HELD_OUT
    if plan.sites.shared or plan.sites.are_together:
        return BY_DRAW
    weighted = result.row_weights == DIRICHLET and result.replicates > 1
    return BY_FIT if weighted else HELD_OUT


@cache
def _version() -> str:
    try:
        return importlib.metadata.version("lexppl")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
