"""What there is to explain in a program: its masks, its response, and what rows share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyro
from torch import Tensor
from torch.distributions import constraints

from lexppl.argument_checks import one_of
from lexppl.distributions.support import draws_zeros_and_ones
from lexppl.effects import (
    BEFORE_PARTICLES,
    MASK_DIM,
    MASK_KIND,
    MASK_KINDS,
    ParticleCounts,
    weights_first,
)
from lexppl.explanation.reading.masks import BY_GUIDE
from lexppl.explanation.row_draws import (
    is_named_value,
    is_of_all_rows,
    label_values,
    states_mean,
    value_of,
    values_by_entry,
)
from lexppl.inference.contexts import seeded
from lexppl.inference.mask_plates import plate_of
from lexppl.inference.objective.dependence import RESPONSE, is_response, observed_without_y
from lexppl.inference.objective.program import ParticleProgram, steady_nodes
from lexppl.inference.objective.site import Site
from lexppl.inference.posterior.global_draws import Unstated
from lexppl.inference.posterior.global_latents import latents_of
from lexppl.inference.predictive import NARROW, LayerWidths, layer_widths

ROWS, FEATURE = "row", "feature"  # The dimensions of rows and of entries in a posterior
TAKEN = {"chain", "draw", "feature"}  # Names that no latent may have, nor
OF_MASKS = {*TAKEN, ROWS, "size", "importance"}  # a mask


@dataclass(frozen=True)
class ParticleSite:
    """A site inside `mask_particles()`, in a plate of rows, which is `ROWS`, in another of `size`
    entries, or in none; `dtype` is how its values are stored."""

    name: str
    dtype: np.dtype
    plate: str | None
    size: int

    @property
    def plates(self) -> tuple[str, ...]:
        """Its plate as dimensions: none of a site of all rows."""
        return () if self.plate is None else (self.plate,)

    def of_plate(self, values: Tensor, dim: int) -> Tensor:
        """Values by entry of its plate, at `dim`, or the one of all rows."""
        return values.select(dim, 0) if self.plate is None else values


@dataclass(frozen=True)
class MaskSite(ParticleSite):
    """A latent of event shape (G,) inside `mask_particles()`; or, where a program has none such,
    one of zeros and ones for each row, or in a plate over the G entries of a mask: of all rows at
    dim −1, else to the left of the particles."""

    entries: int
    states_mean: bool
    kind: str | None
    is_one_law: bool  # Whether its distribution is one for all rows
    feature: str = FEATURE  # The dimension of its entries
    entry_dim: int | None = None  # Of a site without event dims, that of its entries

    def by_entry(self, values: Tensor) -> Tensor:
        """Values or means of the site by entry of its plate, `(…, E, G)`."""
        return _by_entry(values, self.entry_dim)

    def beside(self, first: MaskSite) -> MaskSite:
        """The site with a dimension of its own where its entries are not those of the first."""
        differs = self.entry_dim == -1 and self is not first
        if self.feature == FEATURE and (differs or self.entries != first.entries):
            return replace(self, feature=f"{self.name}_feature")
        return self

    @property
    def entry_names(self) -> Sequence[Any]:
        """Names of its entries along a dimension of its own, or their numbers."""
        if self.feature != f"{self.name}_feature":
            return range(self.entries)
        return [self.name + str(g + 1) * (self.entry_dim != -1) for g in range(self.entries)]


@dataclass(frozen=True)
class NamedValue(ParticleSite):
    """A `pyro.deterministic` value inside `mask_particles()`: the event shape of an entry of its
    plate."""

    event_shape: tuple[int, ...]

    @classmethod
    def of(cls, site: Site, of_rows: Collection[str | None]) -> NamedValue:
        """As a run of one particle has it."""
        plate, value = plate_of(site), values_by_entry(site, 1, 1)
        dtype = value.detach().cpu().numpy().dtype
        plate = ROWS if plate in of_rows else plate
        return cls(site.name, dtype, plate, value.shape[2], tuple(value.shape[3:]))

    @property
    def event_dims(self) -> list[str]:
        """Dimensions of an entry's value."""
        return [f"{self.name}_dim_{i}" for i in range(len(self.event_shape))]


@dataclass(frozen=True)
class Response:
    """The site `y`: its event shape of a row, how it is stored, and its labels, if any."""

    event_shape: tuple[int, ...]
    dtype: np.dtype
    labels: tuple[int, ...] | None


@dataclass(frozen=True)
class SharedSite:
    """A latent that all rows share: its value's shape, the plate of each dimension, if any, and
    whether it shares out a unit, as among features."""

    name: str
    shape: tuple[int, ...]
    plates: tuple[str | None, ...]
    dtype: np.dtype
    is_share: bool
    has_prior: bool


@dataclass(frozen=True)
class ProgramSites:
    """The masks of a program, its response, whether it has latents outside the mask plate, those of
    them that rows share, the names of all sites, of plates over rows, and of what is observed
    without y (`beside`), which all masks are given."""

    masks: tuple[MaskSite, ...]
    response: Response | None
    has_outer_latents: bool
    shared: tuple[SharedSite, ...]
    names: tuple[str, ...]
    row_plates: frozenset[str]
    layers: LayerWidths = NARROW  # Of its networks
    # Masks that its guide draws given x alone, by the names `<site>_by_guide`.
    guided: tuple[MaskSite, ...] = ()
    beside: frozenset[str] = frozenset()
    named: tuple[NamedValue, ...] = ()

    @property
    def has_prior(self) -> bool:
        """Whether all latents that rows share have priors to draw from."""
        return all(site.has_prior for site in self.shared)

    @property
    def are_together(self) -> bool:
        """Whether rows share a mask, and are drawn together."""
        return any(site.plate != ROWS for site in self.masks)

    @property
    def are_constant(self) -> bool:
        """Whether plates and guides cannot make them others for other rows."""
        return not (self.are_together or self.has_outer_latents or self.guided)

    @property
    def widest(self) -> int:
        """Numbers of the largest site of a particle, of a row."""
        labels = () if self.response is None else self.response.labels or ()
        return max(len(labels), *(site.entries for site in self.masks))


def sites_of(model: Callable[..., Any], x: Tensor, guide: Any = None) -> ProgramSites:
    """Run a program once on a few rows without y, and see what it and its guide sample."""
    sites = [Site.of(node) for node in steady_nodes(weights_first(model), (x, None)).values()]
    inside = {site.name for site in sites if site.observed and site.in_particles}
    beside = observed_without_y(ParticleProgram(model, None, (x, None))) if inside else frozenset()
    # What is named as a response is observed, where y is given.
    latents = [site for site in sites if site.is_mask and not is_response(site.name)]
    masks = [site for site in latents if len(site.distribution.event_shape) == 1]
    coins = [s for s in latents if _is_coin(s)]
    if masks:
        # A coin of what has a mask or a response says which; one of another plate is a mask itself.
        taken = {None, *map(plate_of, masks), *(plate_of(s) for s in sites if s not in latents)}
        coins = [site for site in coins if plate_of(site) not in taken]
    masks = [*masks, *coins]
    if not masks:
        raise ValueError(
            "the program has no latent of event shape (G,), nor one of zeros and ones, inside "
            "mask_particles() and outside imputation_particles(), so there is no mask to explain; "
            f"its sites are {[site.name for site in sites]}. Draw one, such as Bernoulli(p)"
            ".to_event(1), or OneHotCategorical in the place of Categorical"
        )
    outer = [site for site in sites if not (site.in_particles or site.observed)]
    named = [site for site in sites if is_named_value(site)]
    for name in {s.name for s in (*masks, *named)} & OF_MASKS | {s.name for s in outer} & TAKEN:
        raise ValueError(f"site {name!r} has a name of the explanation's own: give it another")
    of_y = [s for s in sites if s.name == RESPONSE and s.in_particles]
    responses = [site for site in of_y if not site.has_own_plates]
    of_rows: frozenset[str] = frozenset()
    known = {None, *map(plate_of, responses)}
    if outer or not {plate_of(site) for site in masks} <= known:
        # The draws of what is run next are as they would be without it.
        with seeded(0, x.device):
            of_rows = latents_of(model, (x, None)).row_plates
    described = tuple(_mask_site(site, of_rows | known) for site in masks)
    described = tuple(site.beside(described[0]) for site in described)
    return ProgramSites(
        described,
        _response(responses[0]) if responses else None,
        bool(outer),
        tuple(_shared(site) for site in outer if not of_rows & set(site.plate_names)),
        tuple(site.name for site in sites),
        of_rows if outer else frozenset(),
        layer_widths(model),
        _guided(guide, described, x),
        beside & inside,
        tuple(NamedValue.of(site, of_rows | known - {None}) for site in named),
    )


def _is_coin(site: Site) -> bool:
    return not site.distribution.event_shape and draws_zeros_and_ones(site.distribution)


@contextmanager
def errors_without_y_explained() -> Iterator[None]:
    """Errors of a program that is called without y, with what mends them."""
    try:
        yield
    except (TypeError, AttributeError, NotImplementedError) as error:
        reason = f"{type(error).__name__} {error}".split("\n")[0].strip()
        raise ValueError(
            f"the program is called as program(x, None) to draw responses, and ends with {reason}: "
            "let it draw there what it observes given y, as by obs=None if y is None else y[:, 0], "
            "from a distribution that has a sample method"
        ) from error


def _by_entry(values: Tensor, entry_dim: int | None) -> Tensor:
    if entry_dim is None or entry_dim >= MASK_DIM:
        return values if entry_dim is None else values.unsqueeze(entry_dim)
    moved = values.movedim(entry_dim, -1)
    return moved.reshape(moved.shape[-3:])


def _mask_site(site: Site, of_rows: Collection[str | None]) -> MaskSite:
    is_scalar, value = not site.distribution.event_shape, value_of(site)
    left = [p for p in site.inner if p.vectorized and p.dim < MASK_DIM] if is_scalar else []
    if len(left) > 1 or value.dim() != (-left[0].dim if left else 3 - is_scalar):
        raise ValueError(
            f"site {site.name!r} must have batch shape (L, B), in plates over masks and rows "
            "alone, or groups in the place of rows (at dim -1), or (L, 1) of all rows; it is in "
            f"the plates {list(site.plate_names)}: make its entries one event, by .to_event(1), or "
            "enter a plate of them inside mask_particles()"
        )
    plate, law = plate_of(site), site.infer.get(BEFORE_PARTICLES)
    feature, entry_dim = FEATURE, None
    if left:
        feature, entry_dim = left[0].name, left[0].dim
    elif is_scalar and (plate in of_rows or plate is None):
        entry_dim = -1
    elif is_scalar:
        plate, feature, entry_dim = None, str(plate), -2
    shape = _by_entry(value, entry_dim).shape
    return MaskSite(
        name=site.name,
        entries=shape[-1],
        dtype=_storage(site, np.int8),
        states_mean=states_mean(site),
        kind=stated_kind(site),
        plate=ROWS if plate is not None and plate in of_rows else plate,
        size=shape[-2],
        is_one_law=plate is None or (law is not None and not law.batch_shape),
        feature=feature,
        entry_dim=entry_dim,
    )


def _guided(guide: Any, masks: tuple[MaskSite, ...], x: Tensor) -> tuple[MaskSite, ...]:
    """The masks that a guide draws given x alone; none of one that reads y, and proposes masks."""
    if guide is None:
        return ()
    try:
        with seeded(0, x.device), ParticleCounts(1, 1):
            nodes = pyro.poutine.trace(weights_first(guide)).get_trace(x, None).nodes
    except (TypeError, AttributeError):
        return ()
    drawn = {mask: Site.of(nodes[mask.name]) for mask in masks if mask.name in nodes}
    return tuple(
        replace(
            mask,
            name=mask.name + BY_GUIDE,
            dtype=_storage(site, np.int8),
            states_mean=states_mean(site),
            kind=stated_kind(site) or mask.kind,
        )
        for mask, site in drawn.items()
        if site.is_mask
    )


def _shared(site: Site) -> SharedSite:
    value = value_of(site)
    dims = value.dim()
    batch = dims - len(site.distribution.event_shape)
    plates: list[str | None] = [None] * dims
    for plate in site.plates:
        if plate.vectorized and batch + plate.dim >= 0:
            plates[batch + plate.dim] = plate.name
    return SharedSite(
        name=site.name,
        shape=tuple(value.shape),
        plates=tuple(plates),
        dtype=value.detach().cpu().numpy().dtype,
        is_share=site.distribution.support is constraints.simplex,
        has_prior=not isinstance(site.distribution, Unstated),
    )


def _response(site: Site) -> Response:
    labels = label_values(site.distribution)
    return Response(
        event_shape=tuple(site.distribution.event_shape)[1 if is_of_all_rows(site) else 0 :],
        dtype=_storage(site, np.int32),
        labels=None if labels is None else tuple(int(label) for label in labels),
    )


def _storage(site: Site, integer: type) -> np.dtype:
    """A small integer type for discrete distributions, the values' own type for the others."""
    with suppress(NotImplementedError, AttributeError):
        if site.distribution.support.is_discrete:
            return np.dtype(integer)
    return value_of(site).detach().cpu().numpy().dtype


def stated_kind(site: Site) -> str | None:
    """What a program states of a mask: by `infer={"mask_kind": …}`, else by its distribution's
    support; None where neither does."""
    stated = site.infer.get(MASK_KIND)
    if stated is not None:
        return str(one_of(MASK_KINDS, f"mask_kind of {site.name!r}", stated))
    try:
        support = site.distribution.support
    except (NotImplementedError, AttributeError):
        return None
    if getattr(support, "is_discrete", False):
        return "selection"
    base = getattr(support, "base_constraint", support)
    if base is constraints.simplex:
        return "share"
    return "strength" if base is constraints.unit_interval else None
