"""What a program may hold: each kind of site in each place, and what it means in the bound."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from pyro.distributions import Unit

from lexppl.distributions.support import draws_zeros_and_ones
from lexppl.effects import (
    BEFORE_PARTICLES,
    BY_DRAW,
    IMPUTATION_DIM,
    IMPUTATION_PLATE,
    MASK_DIM,
    MASK_KIND,
    MASK_PLATE,
    PENALTY,
    WITH_MASK,
)
from lexppl.inference.objective.site import CLOSED_KL, PlateKey, Site, same_numbers

ESTIMATOR = "estimator"  # The key of a site's `infer` that chooses its own gradient estimator

READ_BY_OBJECTIVE = frozenset({PENALTY, BY_DRAW, CLOSED_KL, ESTIMATOR, MASK_KIND, WITH_MASK}) | {
    *("is_auxiliary", "enumerate", "expand")
}
"""The keys of a site's `infer` dictionary that the objective or a sampler reads."""

NO_COMMON_LOG = (
    "set masks=1, imputations=1 and samples=L, an average of single-mask bounds, in which every "
    "site has the scale and the plates that it has in pyro's Trace_ELBO"
)


SAME_PLATES = (
    "put it in the same plates in both, mask_particles() and imputation_particles() among them"
)

DRAW_BEFORE = (
    "it may depend on all their entries, and each is judged by the terms of its own: draw it "
    "before them, or enter mask_particles() before these plates"
)

IMPUTE_WITHIN = (
    "sample what hides features inside imputation_particles(), within mask_particles(), or set "
    "imputations=1"
)

PARTICLE_PLATES = (MASK_PLATE, IMPUTATION_PLATE)


class Rule(NamedTuple):
    """One row of the grammar: what a kind of site means at a place, or what to write instead."""

    kind: str
    place: str
    meaning: str | None
    mend: str = ""


LATENT = "a latent that no guide draws"
GUIDED = "a latent that the guide draws"
DRAW = "a draw of the guide"
AUXILIARY = "an auxiliary draw of the guide"
OBSERVED = "observed"
COST = "a penalty"
FACTOR = "a factor of the guide"
NAMED = "deterministic"
PARAM = "a pyro.param"
PLATE = "a plate"
SUBSAMPLE = "a plate of a subsample"

OUTSIDE = "outside mask_particles()"
IN_MASKS = "in mask_particles()"
IN_IMPUTATIONS = "in imputation_particles(), within mask_particles()"
NO_MASKS = "inside imputation_particles() but outside mask_particles()"
OWN_DIM = "at dim -3, where imputations are"
SHARED = "in mask_particles(), and shared by several logs of what is observed"
OTHER_LOG = "in mask_particles(), in plates of other logs outside it"
UNREAD_K = "in mask_particles(), with imputations > 1 and none in imputation_particles()"
ELSEWHERE = "in other plates, or of other event dims, than in the model"
LACKING = "which the model does not have"
OF_OBSERVED = "of what the model observes"
NO_RSAMPLE = "in mask_particles(), of a distribution that is not reparameterised"
AFTER_ROWS = "in mask_particles(), drawn after latents in plates that it is not in"
IN_GUIDE = "in the guide"
BEFORE = "entered before mask_particles()"
WITHIN = "entered in mask_particles()"
ANYWHERE = "anywhere"

_SUMMED = "+ log p, outside the log"
_WEIGHED = "+ log p, in the weights inside the log"

GRAMMAR = (
    Rule(
        LATENT,
        OUTSIDE,
        None,
        "add it to the guide, or sample it inside mask_particles(). For weights with priors and "
        "other latents that all rows share: guide=AutoNormal, AutoDelta for their mode, or "
        "inference=NUTS(...)",
    ),
    Rule(LATENT, IN_MASKS, "a mask: proposed from the model L times, it cancels from the weights"),
    Rule(LATENT, IN_IMPUTATIONS, "an imputation: proposed K times for each mask, it cancels too"),
    Rule(
        LATENT,
        SHARED,
        None,
        "rows that share it have no log of their own: enter mask_particles() before the plate over "
        f"the rows that share it, so that they share one log. Or {NO_COMMON_LOG}",
    ),
    Rule(LATENT, UNREAD_K, None, IMPUTE_WITHIN),
    Rule(LATENT, AFTER_ROWS, None, DRAW_BEFORE),
    Rule(GUIDED, OUTSIDE, _SUMMED),
    Rule(GUIDED, IN_MASKS, _WEIGHED),
    Rule(GUIDED, IN_IMPUTATIONS, _WEIGHED),
    Rule(DRAW, OUTSIDE, "− log q, outside the log"),
    Rule(DRAW, IN_MASKS, "− log q, in the weights: L draws"),
    Rule(DRAW, IN_IMPUTATIONS, "− log q, in the weights: K draws for each mask"),
    Rule(DRAW, ELSEWHERE, None, SAME_PLATES),
    Rule(DRAW, SHARED, None, f"enter mask_particles() before that plate. Or {NO_COMMON_LOG}"),
    Rule(DRAW, UNREAD_K, None, IMPUTE_WITHIN),
    Rule(DRAW, AFTER_ROWS, None, DRAW_BEFORE),
    Rule(DRAW, LACKING, None, "leave it out, or sample it in the model too"),
    Rule(DRAW, OF_OBSERVED, None, "leave it out: what is observed needs no guide"),
    Rule(AUXILIARY, OUTSIDE, "− log q, outside the log: what the guide's other draws are made of"),
    Rule(OBSERVED, OUTSIDE, _SUMMED),
    Rule(OBSERVED, IN_MASKS, _WEIGHED),
    Rule(OBSERVED, IN_IMPUTATIONS, _WEIGHED),
    Rule(
        OBSERVED,
        OTHER_LOG,
        None,
        f"either {NO_COMMON_LOG}; or enter mask_particles() before these plates, so that they "
        "share one log",
    ),
    Rule(OBSERVED, IN_GUIDE, None, "observe it in the model; a guide draws what is not observed"),
    Rule(COST, OUTSIDE, "− c_R R, outside the log"),
    Rule(COST, IN_MASKS, "− c_R R, outside the log, averaged over the masks"),
    Rule(COST, IN_IMPUTATIONS, "− c_R R, outside the log, averaged over masks and imputations"),
    Rule(COST, IN_GUIDE, None, "state it in the model"),
    Rule(FACTOR, OUTSIDE, "− the factor, a part of log q"),
    Rule(FACTOR, IN_MASKS, "− the factor, a part of log q, in the weights"),
    Rule(FACTOR, IN_IMPUTATIONS, "− the factor, a part of log q, in the weights"),
    Rule(FACTOR, NO_RSAMPLE, None, "give a guide's pyro.factor has_rsample=True, or leave it out"),
    Rule(NAMED, ANYWHERE, "nothing: a value by name"),
    Rule(PARAM, ANYWHERE, "nothing: a number that is learned"),
    Rule(PLATE, BEFORE, "a log for each entry, and for each turn of a loop"),
    Rule(PLATE, WITHIN, "one log, in which the terms of all its entries are added"),
    Rule(PLATE, OWN_DIM, None, "give the plate a dim further to the left, dim=-4"),
    Rule(SUBSAMPLE, BEFORE, "the scale N/B before each log: unbiased"),
    Rule(
        SUBSAMPLE,
        WITHIN,
        None,
        "a scale inside the log would not estimate the bound: enter the plate before "
        f"mask_particles(), or give all of it at once (in fit, batch_size of all rows). Or "
        f"{NO_COMMON_LOG}",
    ),
    *(
        Rule(kind, NO_MASKS, None, "enter mask_particles() first")
        for kind in (LATENT, GUIDED, DRAW, OBSERVED, COST)
    ),
)
"""All that a program may hold, and what is refused with a mend of its own."""


def matched(kind: str, place: str, of: str, detail: str = "") -> None:
    """Find what a statement means, or refuse it."""
    rule = next((r for r in GRAMMAR if (r.kind, r.place) == (kind, place)), None)
    if rule is None or rule.meaning is None:
        mend = "it has no meaning there; move it, or leave it out" if rule is None else rule.mend
        raise ValueError(f"{of} is {kind}, {place}{detail}: {mend}")


def match(sites: Mapping[str, Site], guide_sites: Mapping[str, Site]) -> None:
    """Match the sites of a run, each by itself and beside the guide's of its name."""
    sizes: dict[str, int] = {}
    every = (*guide_sites.values(), *sites.values())
    imputed = any(site.in_imputations for site in every)
    entered, drawn, uncovered = False, False, []
    for site in every:
        of_guide = site is guide_sites.get(site.name)
        kind, place = _of_guide(site, sites) if of_guide else (_kind(site), _place(site))
        if (kind, place) == (LATENT, OUTSIDE):
            uncovered.append(site.name)
        elif kind != NAMED:
            known = [n for n, s in sites.items() if kind == DRAW and not s.observed]
            detail = f" (its latents are {known})" if place == LACKING else ""
            matched(kind, place, f"site {site.name!r}", detail)
        _match_plates(site, sizes, imputed, drawn and not of_guide)
        drawn = drawn or (site.in_particles and not of_guide)
        if site.in_particles and not entered:
            _refuse_dependence_on_particles(site)
            entered = True
        if kind == GUIDED:
            _refuse_other_rows_seen(site, guide_sites[site.name])
        if kind == OBSERVED:
            _refuse_whole_numbers(site)
    refuse_uncovered_latents(uncovered)


def match_logs(
    logs: Sequence[Sequence[Site]],
    drawn: Sequence[Site],
    guided: Mapping[str, Site],
    imputations: int,
) -> None:
    """Match what stands inside a log with what it is weighed by."""
    firsts = [sites[0] for sites in logs]
    if len({tuple(_named(site.log_plates)) for site in firsts}) > 1:
        refuse_separate_logs(firsts)
    for site in drawn:
        kind = DRAW if site.name in guided else LATENT
        if not any(first.log_plates <= site.log_plates for first in firsts):
            alone = sorted({n for f in firsts for n, _ in f.log_plates - site.log_plates})
            detail = f" ({firsts[0].name!r} has one for each entry of {alone})"
            matched(kind, SHARED, f"site {site.name!r}", detail)
    if imputations > 1 and drawn and not any(site.in_imputations for site in drawn):
        kind = DRAW if drawn[-1].name in guided else LATENT
        matched(kind, UNREAD_K, f"site {drawn[-1].name!r}", f" (imputations={imputations})")


def match_order(
    drawn: Sequence[Site],
    terms: Sequence[Site],
    sites: Mapping[str, Site],
    guided: Mapping[str, Site],
) -> None:
    """Match each latent with those that its program draws before it."""
    of_terms = {id(term) for term in terms}
    for site in drawn:
        kind, of_kind = (DRAW, guided) if site.name in guided else (LATENT, sites)
        names = list(of_kind)
        earlier = [of_kind[n] for n in names[: names.index(site.name)]]
        latents = [s.log_plates for s in earlier if s.in_particles and not s.observed]
        missing = frozenset[PlateKey]().union(*latents) - site.log_plates
        for program in (guided, sites) if missing else ():
            names = list(program)
            after = names[names.index(site.name) :] if site.name in program else []
            for term in (program[n] for n in after if id(program[n]) in of_terms):
                if missing & term.log_plates:
                    detail = f" ({_named(missing & term.log_plates)}, as {term.name!r} is)"
                    matched(kind, AFTER_ROWS, f"site {site.name!r}", detail)


def _kind(site: Site) -> str:
    if site.is_deterministic:
        return NAMED
    if site.is_penalty:
        return COST
    if site.guided and not site.observed:
        return GUIDED
    return OBSERVED if site.observed else LATENT


def _place(site: Site) -> str:
    if site.in_imputations and not (
        site.in_particles
        and site.plate_names.index(MASK_PLATE) < site.plate_names.index(IMPUTATION_PLATE)
    ):
        return NO_MASKS
    if not site.in_particles:
        return OUTSIDE
    return IN_IMPUTATIONS if site.in_imputations else IN_MASKS


def _of_guide(site: Site, sites: Mapping[str, Site]) -> tuple[str, str]:
    """Kind and place of a guide's site."""
    place = _place(site)
    if site.is_penalty:
        return COST, IN_GUIDE
    if site.observed and site.name not in sites and not isinstance(site.distribution, Unit):
        return OBSERVED, IN_GUIDE
    if site.observed:
        reparameterised = not site.in_particles or site.distribution.has_rsample
        return FACTOR, place if reparameterised else NO_RSAMPLE
    model = sites.get(site.name)
    if model is None:
        return (AUXILIARY, place) if site.infer.get("is_auxiliary", False) else (DRAW, LACKING)
    if model.observed:
        return DRAW, OF_OBSERVED
    alike = _place(model) == place and _subsampled(model) == _subsampled(site)
    if site.in_particles:
        alike &= model.distribution.event_dim == site.distribution.event_dim
    return DRAW, place if alike else ELSEWHERE


def _subsampled(site: Site) -> set[str]:
    return {p.name for p in site.plates if p.full_size not in (None, p.size)}


def refuse_uncovered_latents(names: Sequence[str]) -> None:
    """Refuse latents of all rows that would be drawn from their prior at each step."""
    if names:
        others = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        matched(LATENT, OUTSIDE, f"site {names[0]!r}{others}")


def refuse_unread_options(site: Site) -> None:
    """Refuse `infer` options that the bound would ignore."""
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


def refuse_separate_logs(sites: Sequence[Site]) -> None:
    """Refuse sites that are not in the same plates outside the log."""
    first = sites[0]
    for site in sites[1:]:
        if site.log_plates != first.log_plates:
            here, there = (_named(s.log_plates) for s in (first, site))
            detail = (
                f", so that sites {first.name!r} and {site.name!r} have no log in common: the one "
                f"is in plates {here} outside mask_particles(), the other in {there}"
            )
            matched(OBSERVED, OTHER_LOG, f"site {site.name!r}", detail)


def _named(plates: frozenset[PlateKey]) -> list[str]:
    return sorted(name for name, _ in plates)


def _match_plates(site: Site, sizes: dict[str, int], imputed: bool, drawn: bool) -> None:
    for plate in site.plates:
        if sizes.setdefault(plate.name, plate.size) != plate.size:
            raise ValueError(
                f"plate {plate.name!r} has {sizes[plate.name]} entries at one site and "
                f"{plate.size} at {site.name!r}; give each plate its own name"
            )
        of_particles = plate.dim == IMPUTATION_DIM and plate.name not in PARTICLE_PLATES
        if of_particles and site.in_particles and (imputed or plate not in site.inner):
            matched(PLATE, OWN_DIM, f"plate {plate.name!r} of site {site.name!r}")
    if site.is_deterministic:
        return
    shape = tuple(getattr(site.distribution, "batch_shape", ()))
    declared = {plate.dim for plate in site.plates}
    undeclared = [
        -d for d, size in enumerate(reversed(shape), 1) if size > 1 and -d not in declared
    ]
    plates = [p for p in site.plates if p.vectorized and not site.observed]
    if any(len(shape) < -p.dim or shape[p.dim] != p.size for p in plates):
        raise ValueError(
            f"site {site.name!r} has one value in all plates {list(site.plate_names)} that it is "
            "in, as poutine.lift makes it where a parameter is read there: read it before them"
        )
    # Outside the particles, what reaches their dimension depends on a draw there, even if of one;
    # where a plate to the left of it has dims of its own, it may.
    leftmost = min((d for d in declared if d is not None), default=0)
    reached = len(shape) >= -MASK_DIM and (leftmost > MASK_DIM or drawn)
    if reached and not undeclared and not site.in_particles and sizes.get(MASK_PLATE, 1) == 1:
        undeclared = [MASK_DIM]
    if undeclared:
        raise ValueError(
            f"site {site.name!r} has batch shape {shape}, and no plate declares its dims "
            f"{undeclared}; put it in a plate, before any draw of mask_particles() where it stands "
            "outside, or make them one event by .to_event()"
        )


def _refuse_dependence_on_particles(site: Site) -> None:
    """The first site within the particle plates depends on no draw of a particle."""
    shape = tuple(getattr(site.infer.get(BEFORE_PARTICLES), "batch_shape", ()))
    differs = [d for d in (MASK_DIM, IMPUTATION_DIM) if len(shape) >= -d and shape[d] > 1]
    if differs:
        raise ValueError(
            f"site {site.name!r} has batch shape {shape} before the particle plates, whose dims "
            f"{differs} are theirs; make the entries of one draw one event by .to_event(1)"
        )


def _refuse_whole_numbers(site: Site) -> None:
    """Refuse integers as zeros and ones, whose density torch has of floating numbers alone."""
    kind = getattr(site.value, "dtype", torch.float)
    if not kind.is_floating_point and draws_zeros_and_ones(site.distribution):
        raise ValueError(
            f"site {site.name!r} observes zeros and ones of {kind}, which have no density: make "
            "them floating numbers, as by y.float()"
        )


def _refuse_other_rows_seen(site: Site, guide: Site) -> None:
    seen, by_guide = (True if s.mask is None else s.mask for s in (site, guide))
    if seen is not by_guide and not same_numbers(torch.as_tensor(seen), torch.as_tensor(by_guide)):
        raise ValueError(
            f"site {site.name!r} is under another poutine.mask in the guide than in the model, so "
            "that log p and log q are of different entries; put the same one around both"
        )
