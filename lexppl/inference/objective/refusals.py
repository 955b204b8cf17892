"""Programs that the objective would misread, refused by the site's name.

What costs a look at numbers is checked where Pyro validates, as in the first step of a fit.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from pyro.infer.util import is_validation_enabled
from torch import Tensor

from lexppl.effects import (
    BY_DRAW,
    IMPUTATION_DIM,
    IMPUTATION_PLATE,
    LABEL_DIM,
    LABEL_PLATE,
    MASK_DIM,
    MASK_KIND,
    MASK_PLATE,
    PENALTY,
)
from lexppl.inference.objective.closed_divergences import CLOSED_KL
from lexppl.inference.objective.site import Site

ESTIMATOR = "estimator"
"""The key of a site's `infer` that chooses its own gradient estimator."""

READ_BY_OBJECTIVE = frozenset(
    {PENALTY, BY_DRAW, CLOSED_KL, ESTIMATOR, MASK_KIND, "is_auxiliary", "enumerate", "expand"}
)
"""The keys of a site's `infer` dictionary that the objective reads."""

NO_COMMON_LOG = (
    "set masks=1, imputations=1 and samples=L, an average of single-mask bounds, in which every "
    "site has the scale and the plates that it has in pyro's Trace_ELBO"
)


def refuse_unreadable(sites: Mapping[str, Site], guide_sites: Mapping[str, Site]) -> None:
    """Refuse what no bound could read.

    Raises:
        ValueError: a guide's site that the model lacks; particle plates in the wrong place; a
            latent outside them that no guide covers; where Pyro validates, batch shapes that no
            plate declares and a plate of two sizes.
    """
    for name, site in guide_sites.items():
        if name not in sites and not site.infer.get("is_auxiliary", False):
            raise ValueError(
                f"the guide samples {name!r}, which the model does not; the model's latent sites "
                f"are {[n for n, s in sites.items() if not s.observed or s.guided]}"
            )
        if site.observed and site.in_particles and not site.distribution.has_rsample:
            raise ValueError(
                f"the guide's {name!r} is observed inside mask_particles(), and its distribution "
                f"{type(site.distribution).__name__} is not reparameterised; give a guide's "
                "pyro.factor has_rsample=True, or leave it out"
            )
    checked = is_validation_enabled()
    sizes: dict[str, int] = {}
    for site in (*sites.values(), *guide_sites.values()):
        _refuse_misplaced(site)
        if checked:
            _refuse_undeclared_dimensions(site)
            _refuse_two_sizes(site, sizes)
    refuse_uncovered_latents(
        [
            site.name
            for site in sites.values()
            if not (site.observed or site.guided or site.in_particles or site.is_deterministic)
        ]
    )


def refuse_uncovered_latents(names: Sequence[str]) -> None:
    """Refuse latents of all rows that would be drawn from their prior at each step.

    Args:
        names: of the latents outside the particle plates that no guide covers.

    Raises:
        ValueError: naming the first, and what to give.
    """
    if not names:
        return
    others = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    raise ValueError(
        f"latent site {names[0]!r}{others} is outside mask_particles() and no guide covers it; add "
        "it to the guide, or sample it inside mask_particles(). For weights with priors and other "
        "latents that all rows share: guide=AutoNormal, AutoDelta for their mode, or "
        "inference=NUTS(...)"
    )


def _refuse_misplaced(site: Site) -> None:
    for plate in site.plates:
        if plate.name == MASK_PLATE and plate.dim != MASK_DIM:
            raise ValueError(f"plate {MASK_PLATE!r} must be at dim {MASK_DIM}; it is {plate.dim}")
        if plate.name == IMPUTATION_PLATE and plate.dim != IMPUTATION_DIM:
            raise ValueError(
                f"plate {IMPUTATION_PLATE!r} must be at dim {IMPUTATION_DIM}; it is {plate.dim}"
            )
    if site.in_imputations and not site.in_particles:
        raise ValueError(
            f"site {site.name!r} is inside imputation_particles() but outside mask_particles(); "
            "enter mask_particles() first"
        )


def refuse_unread_options(site: Site) -> None:
    """Refuse `infer` options that the bound would ignore.

    Raises:
        ValueError: naming them.
    """
    unknown = [key for key in site.infer if key not in READ_BY_OBJECTIVE and key[0] != "_"]
    if unknown:
        raise ValueError(
            f"site {site.name!r} has infer options {unknown} that this objective does not read; "
            "it reads 'estimator', 'mask_kind' and, for global latents of a guide, 'closed_kl'"
        )
    if ESTIMATOR in site.infer and (site.observed or (site.guided and not site.in_particles)):
        raise ValueError(
            f"site {site.name!r} chooses an estimator, and the model does not draw it; an "
            "estimator is chosen where a latent is drawn"
        )


def _refuse_undeclared_dimensions(site: Site) -> None:
    if site.is_deterministic:
        return
    shape = tuple(getattr(site.distribution, "batch_shape", ()))
    declared = {plate.dim for plate in site.plates}
    undeclared = [
        -d for d, size in enumerate(reversed(shape), 1) if size > 1 and -d not in declared
    ]
    if undeclared:
        raise ValueError(
            f"site {site.name!r} has batch shape {shape}, and no plate declares its dims "
            f"{undeclared}; put it in a plate, or make them one event by .to_event()"
        )


def refuse_larger_value(name: str, distribution: Any, value: Tensor) -> None:
    """Refuse a guide's value of more dimensions than the model's distribution has.

    Raises:
        ValueError: naming both shapes.
    """
    expected = torch.Size((*distribution.batch_shape, *distribution.event_shape))
    given = tuple(value.shape)
    if len(given) > len(expected) or any(
        size not in (1, of_distribution)
        for size, of_distribution in zip(reversed(given), reversed(expected), strict=False)
    ):
        raise ValueError(
            f"the guide gives {name!r} shape {given}, and in the model it has shape "
            f"{tuple(expected)}; put it in the same plates in both"
        )


def _refuse_two_sizes(site: Site, sizes: dict[str, int]) -> None:
    for plate in site.plates:
        if sizes.setdefault(plate.name, plate.size) != plate.size:
            raise ValueError(
                f"plate {plate.name!r} has {sizes[plate.name]} entries at one site and "
                f"{plate.size} at {site.name!r}; give each plate its own name"
            )


def refuse_separate_logs(sites: Sequence[Site]) -> None:
    """Refuse sites that are not in the same plates outside the log.

    Raises:
        ValueError: naming two such sites and their plates.
    """
    first = sites[0]
    for site in sites[1:]:
        if site.log_plates != first.log_plates:
            here, there = (_named(s.log_plates) for s in (first, site))
            raise ValueError(
                f"sites {first.name!r} and {site.name!r} have no log in common: outside "
                f"mask_particles() the one is in plates {here}, the other in {there}. Either "
                f"{NO_COMMON_LOG}; or enter mask_particles() before these plates, so that they "
                "share one log"
            )


def _named(plates: frozenset[tuple[str, int]]) -> list[str]:
    return sorted(name for name, _ in plates)


def refuse_shared_by_rows(latents: Sequence[Site], weighted: Sequence[Site]) -> None:
    """Refuse a latent of no plate whose draws all rows' logs would share.

    Raises:
        ValueError: naming it.
    """
    separate = [site.name for site in weighted if site.log_plates]
    for site in latents:
        if separate and not site.log_plates:
            raise ValueError(
                f"site {site.name!r} is inside mask_particles() but in no plate over rows at dim "
                f"-1, and {separate[0]!r} has a log for each row; a latent shared by all rows is "
                f"sampled outside the particle plates. Or {NO_COMMON_LOG}"
            )


def common_scale(sites: Sequence[Site]) -> float | Tensor:
    """The scale that stands outside the log of some sites: `N/B`, a row's weight, a label's
    probability.

    Raises:
        ValueError: scales that differ between the sites, between particles or within the log.
    """
    for site in sites:
        _refuse_scale_within(site)
    labelled = [site for site in sites if LABEL_PLATE in site.plate_names]
    plain = [site for site in sites if LABEL_PLATE not in site.plate_names]
    for alike in (labelled, plain):
        for site in alike[1:]:
            if not _same(site.scale, alike[0].scale):
                raise ValueError(
                    "sites within the particle plates must share one scale, which stands outside "
                    f"the log; {alike[0].name!r} has {_said(alike[0].scale)} and {site.name!r} "
                    f"has {_said(site.scale)}. Scale them alike, or {NO_COMMON_LOG}"
                )
    if labelled and plain and is_validation_enabled():
        whole = torch.as_tensor(labelled[0].scale).sum(LABEL_DIM, keepdim=True)
        if not _same(whole, torch.as_tensor(plain[0].scale).to(whole), exact=False):
            raise ValueError(
                f"the scales of {labelled[0].name!r} over its labels must add up to that of "
                f"{plain[0].name!r}, with which it shares a log"
            )
    return (labelled or plain)[0].scale


def _refuse_scale_within(site: Site) -> None:
    subsampled = [p.name for p in site.inner if p.full_size not in (None, p.size)]
    if subsampled:
        raise ValueError(
            f"site {site.name!r} is in the plate {subsampled[0]!r} of a subsample inside the log, "
            "where a scale would not estimate the bound: enter the plate before mask_particles(), "
            f"or give all of it at once (in fit, batch_size of all rows). Or {NO_COMMON_LOG}"
        )
    if not isinstance(site.scale, Tensor):
        return
    within = [MASK_DIM, IMPUTATION_DIM, *(p.dim for p in site.inner if p.vectorized)]
    varies = [d for d in within if site.scale.dim() >= -d and site.scale.shape[d] > 1]
    if varies:
        raise ValueError(
            f"the scale of site {site.name!r} differs within its log, at dims {varies}; a scale "
            f"stands outside the log. For a power of the likelihood write pyro.factor, or "
            f"{NO_COMMON_LOG}"
        )


def _same(one: float | Tensor, other: float | Tensor, exact: bool = True) -> bool:
    if not isinstance(one, Tensor) and not isinstance(other, Tensor):
        return bool(one == other)
    if one is other or not is_validation_enabled():
        return True
    a, b = torch.broadcast_tensors(torch.as_tensor(one), torch.as_tensor(other))
    a, b = a.detach(), b.detach().to(a)
    return bool(torch.equal(a, b) if exact else torch.allclose(a, b))


def _said(scale: float | Tensor) -> str:
    if not isinstance(scale, Tensor):
        return str(scale)
    return f"a tensor of shape {tuple(scale.shape)} from {float(scale.min()):g}"
