"""The arrays of a posterior in ArviZ's layout, filled chunk by chunk."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor
from xarray.indexes import PandasIndex

from lexppl.explanation.names import SharedDims, entry_names, feature_names
from lexppl.explanation.program_sites import (
    FEATURE,
    ROWS,
    MaskSite,
    NamedValue,
    Response,
    SharedSite,
)
from lexppl.explanation.reading import masks as named
from lexppl.explanation.reading.images import EVENT, FEATURE_MAP, feature_map_of, map_dimensions
from lexppl.explanation.reading.masks import GIVEN_Y, GUIDED, KINDS, STATED, STRENGTH
from lexppl.explanation.row_draws import RowDraws, by_draw, log_mean
from lexppl.inference.contexts import SUBSAMPLED

if TYPE_CHECKING:
    from lexppl.explanation.row_plan import RowPlan


@dataclass
class Variable:
    """One variable of a group: its array, the names of its dimensions, its attributes."""

    dims: tuple[str, ...]
    values: np.ndarray
    attrs: dict[str, Any]

    def put(self, where: tuple[Any, ...], values: Tensor) -> None:
        """Write values into a part of the array; integers are converted where values need it."""
        given = values.detach().cpu().numpy()
        if self.values.dtype.kind == "i" and not np.array_equal(
            given.astype(self.values.dtype), given
        ):
            self.values = self.values.astype(given.dtype)
        self.values[where] = given


@dataclass
class ArvizLayout:
    """The groups of a posterior, with the coordinates, by dimension, that they share."""

    coordinates: dict[str, Sequence[Any] | np.ndarray]
    dtype: type = np.float64  # Of variables that are added without one
    _groups: dict[str, dict[str, Variable]] = field(default_factory=dict)

    def add(
        self, group: str, name: str, dims: Sequence[str], dtype: Any = None, **attrs: Any
    ) -> np.ndarray:
        """Array of zeros of a new variable with these dimensions, in a group."""
        shape = tuple(len(self.coordinates[dim]) for dim in dims)
        kind = self.dtype if dtype is None else dtype
        variable = Variable(tuple(dims), np.zeros(shape, kind), attrs)
        self._groups.setdefault(group, {})[name] = variable
        return variable.values

    def share(self, group: str, name: str, other: str) -> None:
        """A group's variable is that of another group: one array, under both."""
        self._groups.setdefault(group, {})[name] = self._groups[other][name]

    def __getitem__(self, place: tuple[str, str]) -> Variable:
        group, name = place
        return self._groups[group][name]

    def __contains__(self, place: tuple[str, str]) -> bool:
        group, name = place
        return name in self._groups.get(group, {})

    def groups(
        self, attrs: Mapping[str, Any], own: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, xr.Dataset]:
        """The groups as data sets, with attributes of all and `own` ones of each."""
        indexes: dict[str, PandasIndex] = {}
        for dim, values in self.coordinates.items():
            # As an index of pandas: of an array xarray loads Dask to see whether it is Dask's.
            names = coordinate_values(values)
            indexes[dim] = PandasIndex(pd.Index(names), dim, names.dtype)
        groups = {}
        for group, held in self._groups.items():
            # Of numpy arrays: xarray need not look what libraries of other arrays there are.
            variables = {
                name: xr.Variable(v.dims, v.values, v.attrs, fastpath=True)
                for name, v in held.items()
            }
            used = {dim for variable in held.values() for dim in variable.dims}
            of_group = {dim: index for dim, index in indexes.items() if dim in used}
            coords = {d: v for i in of_group.values() for d, v in i.create_variables().items()}
            all_attrs = {**attrs, **own.get(group, {})}
            groups[group] = xr.Dataset(variables, xr.Coordinates(coords, of_group), all_attrs)
        return groups


def coordinate_values(values: Sequence[Any] | np.ndarray) -> np.ndarray:
    """Names or numbers of a dimension as an array that netCDF can hold: never of objects."""
    array = np.asarray(values)
    return array if array.dtype.kind in "iuf" else np.asarray([str(value) for value in values])


# What E[z | x, y] says of itself, and E[z | x] where something is observed without y.
WEIGHTED = "mean of p(z | {}), by the weights of proposals"
LISTED = "mean of p(z | {}), over all masks"
# Of E[z | x, θ] of all chains, draws, rows and features, beyond which its mean over rows is kept
# alone.
MOST_NUMBERS = 2**23


OF_NAMED = (named.GIVEN_X, named.GIVEN_XY)  # Draws that have `pyro.deterministic` values


class PosteriorArrays:
    """All of a posterior's arrays, made beforehand and filled chunk by chunk; of a `part` of a
    longer table means over rows are kept as sums, and E[z | x, θ] by row is left out."""

    def __init__(self, plan: RowPlan, is_part: bool) -> None:
        result, rows = plan.result, plan.rows
        dims = SharedDims(plan.how.dims or {}, plan.how.coords or {})
        self._rows, self._plan, self._sites = rows, plan, plan.sites
        self._part, self._divisor = is_part, 1 if is_part else len(rows)
        sites, given_y, joint = plan.sites, rows.y is not None, plan.is_joint
        dims.check(sites.shared, {site.feature for site in sites.masks})
        self._shared = {site.name for site in sites.shared}
        self._from_prior = plan.how.from_prior
        of_prior = sites.has_outer_latents and sites.has_prior and not self._from_prior
        drawn = {named.GIVEN_XY: given_y, named.PRIOR: of_prior, named.GUIDE: bool(sites.guided)}
        # What is drawn, of each chain.
        self.sources = (named.GIVEN_X, *(source for source, here in drawn.items() if here))
        self._constants = named.CONSTANTS if given_y else f"{named.GIVEN_X}_{named.CONSTANTS}"
        # The groups and names of what is a mean over rows.
        self.over_rows: list[tuple[str, str]] = []
        first = sites.masks[0]
        own = plan.how.features(first.feature)
        if own is None and first.entry_dim == -1:
            own = [first.name]
        names = entry_names(result, first.entries, own)
        self._coordinates: dict[str, Any] = {
            "chain": range(len(result.models)),
            "draw": range(plan.draws),
            "row": rows.names,
            **dims.coords,
            first.feature: names,
        }
        if rows.x.dim() == 4:
            self._coordinates |= dict(zip(EVENT, map(range, rows.x.shape[1:]), strict=True))
        kind = np.float64 if rows.dtype == torch.float64 else np.float32
        self._layout = ArvizLayout(self._coordinates, kind)
        self._add = self._layout.add
        self._likelihood: NDArray[np.float64] | None = None  # log p(y | x, θ), `(C, P, B)`
        self._mean_names: dict[str, str] = {}
        for source in self.sources:
            if source == named.PRIOR and not given_y:
                continue
            for site in self._masks(source):
                self._add_mask(site, source)
            for value in sites.named if plan.draws > 0 and source in OF_NAMED else ():
                self._add_named(value, source)
            if sites.response is not None and plan.draws > 0 and source != named.GUIDE:
                self._add_response(sites.response, result.class_names, self._groups(source)[2])
        if given_y and not sites.has_outer_latents:
            self._add_prior()
        if (given_y or sites.beside) and plan.listed is None:
            for name in ("weight_ess", "weight_pareto_k"):
                self._add("sample_stats", name, ("chain", *self._plate_dims(first)))
        self._has_likelihood = given_y and (not joint or sites.are_together)
        if result.sampler is not None:
            self._add_sampler(result.sampler.sample_stats)
        self._add_constants(names)
        for shared in sites.shared:
            self._add_shared(shared, dims.of(shared, first.entries, self._coordinates))
        if rows.x.dim() == 4:
            self._add_images(getattr(result.model, "grouping", None), first.entries)

    def write(self, chain: int, rows: slice, drawn: RowDraws, source: str = named.GIVEN_X) -> None:
        """Put the draws of a chunk of rows, of one of `sources`, into their place."""
        layout, (_, average, predictive) = self._layout, self._groups(source)
        every = slice(None)
        for site in self._masks(source):
            group = self._group_of(site, source)
            mask = drawn.masks[site.name]
            if site.plate == ROWS and mask.shape[-2] != rows.stop - rows.start:
                raise ValueError(SUBSAMPLED.format(mask.shape[-2]))
            where = _entries(site, rows)
            over = self._divisor if site.plate == ROWS else site.size
            shares = layout[average, self._named(site, "importance", average)]
            shares.values[chain] += mask.sum(1, dtype=torch.float64).cpu().numpy() / over
            if group is None:
                continue
            layout[group, site.name].put((chain, every, *where), _of_plate(site, mask, 1))
            size = layout[group, self._named(site, "size", group)]
            size.put((chain, every, *where), _of_plate(site, mask.sum(-1), 1))
            if source == named.PRIOR:
                continue
            mean = layout["sample_stats", self._mean_name(site, source)]
            mean.put((chain, *where), _of_plate(site, drawn.means[site.name], 0))
        for value in self._sites.named if source in OF_NAMED and drawn.named else ():
            place = layout[self._group_of(value, source) or source, value.name]
            values = _of_plate(value, drawn.named[value.name], 1)
            place.put((chain, every, *_entries(value, rows)), values)
        if drawn.means_by_draw is not None and source == named.GIVEN_X:
            for site_name, name in self._mean_names.items():
                each = drawn.means_by_draw[site_name]
                if (named.GIVEN_X, name) in layout:
                    layout[named.GIVEN_X, name].put((chain, every, rows), each)
                over_rows = layout[named.GIVEN_XY, f"{name}_over_rows"]
                over_rows.values[chain] += each.double().sum(1).cpu().numpy() / self._divisor
        if drawn.y is not None:
            layout[predictive, "y"].put((chain, every, rows), drawn.y)
        if drawn.label_probability is not None:
            layout[predictive, "y_probability"].put((chain, rows), drawn.label_probability)
        first = self._sites.masks[0]
        for name in ("weight_ess", "weight_pareto_k"):
            values = getattr(drawn, name)
            if values is not None:
                place = layout["sample_stats", name]
                place.put((chain, *_entries(first, rows)), _of_plate(first, values, 0))
        if drawn.log_evidence is not None and self._has_likelihood:
            found = drawn.log_evidence.double().cpu().numpy()
            if self._likelihood is None:
                chains = len(self._coordinates["chain"])
                self._likelihood = np.zeros((chains, len(found), len(self._rows)))
            self._likelihood[chain, :, rows] = found

    def write_shared(self, chain: int, values: Mapping[str, Tensor], group: str) -> None:
        """Put the draws `(D, *value)` of the latents that rows share into their place."""
        for name, drawn in values.items():
            place = self._layout[group, name]
            place.put((chain,), drawn.reshape(place.values.shape[1:]))

    def groups(
        self, attrs: Mapping[str, Any], own: Mapping[str, Mapping[str, Any]], *, are_draws: bool
    ) -> dict[str, xr.Dataset]:
        """The groups as data sets; `are_draws`: the log-likelihood is that of posterior draws."""
        if self._likelihood is not None:
            if not self._sites.are_together:
                evidence = self._add("sample_stats", "log_evidence", ("chain", "row"), units="nats")
                evidence[:] = log_mean(self._likelihood, (1,))
            values = by_draw(self._likelihood, len(self._coordinates["draw"]), are_draws)
            self._store("log_likelihood", "y", ("chain", "draw", "row"), values, units="nats")
        return self._layout.groups(attrs, own)

    def _store(self, group: str, name: str, dims: Sequence[str], values: Any, **attrs: Any) -> None:
        """Add a variable that is known."""
        known = values.detach().cpu().numpy() if isinstance(values, Tensor) else values
        self._add(group, name, dims, known.dtype, **attrs)[:] = known

    def _masks(self, source: str) -> tuple[MaskSite, ...]:
        return self._sites.guided if source == named.GUIDE else self._sites.masks

    def _groups(self, source: str) -> tuple[str | None, str, str]:
        """The groups of masks by row, of their means over rows, and of responses."""
        if source == named.PRIOR:
            return None, named.PRIOR, named.PRIOR_Y
        if source == named.GIVEN_XY:
            return named.OF_ROWS if self._shared else named.GIVEN_XY, named.GIVEN_XY, named.NEW_Y
        return named.GIVEN_X, named.GIVEN_X, named.GIVEN_X

    def _group_of(self, site: MaskSite | NamedValue, source: str) -> str | None:
        """Where a mask stands: one that rows share among what else they share."""
        group = self._groups(source)[0]
        return group if site.plate == ROWS or source in (named.GIVEN_X, named.GUIDE) else source

    def _named(self, site: MaskSite, variable: str, group: str) -> str:
        """A variable's name: plain for the first mask site, unless a latent has that name."""
        taken = group in (named.GIVEN_XY, named.PRIOR) and variable in self._shared
        plain = site is self._sites.masks[0] and not taken
        return variable if plain else f"{site.name}_{variable}"

    def _mean_name(self, site: MaskSite, source: str) -> str:
        kind = STRENGTH if site.kind is None else KINDS[site.kind]
        name = self._named(site, kind.variable, "sample_stats")
        return name + GIVEN_Y if source == named.GIVEN_XY else name

    def _add_mask(self, site: MaskSite, source: str) -> None:
        group, average = self._group_of(site, source), self._groups(source)[1]
        feature, first = site.feature, self._sites.masks[0]
        differs = site.entry_dim == -1 and site.name.removesuffix(named.BY_GUIDE) != first.name
        if feature == FEATURE and (differs or site.entries != first.entries):
            own = site.name.removesuffix(named.BY_GUIDE)
            feature = f"{own}_feature"
            numbered = [f"{own}{g + 1}" for g in range(site.entries)]
            self._coordinates[feature] = [own] if site.entry_dim == -1 else numbered
        self._coordinates.setdefault(feature, range(site.entries))
        plate = self._plate_dims(site)
        share = self._named(site, "importance", average)
        self.over_rows.append((average, share))
        dims = ("chain", "draw", feature)
        description = "mean of the mask over rows"
        self._add(average, share, dims, np.float64, site=site.name, description=description)
        if group is None:
            return
        kind = {} if site.kind is None else {"kind": site.kind}
        self._add(group, site.name, ("chain", "draw", *plate, feature), site.dtype, **kind)
        numbers = np.int32 if site.dtype.kind == "i" else site.dtype
        size = self._named(site, "size", group)
        self._add(group, size, ("chain", "draw", *plate), numbers, site=site.name)
        if source == named.PRIOR:
            return
        origin = GUIDED if source == named.GUIDE else STATED
        if self._plan.are_weighed(source):
            origin = WEIGHTED if self._plan.listed is None else LISTED
            given = ["x", *sorted(self._sites.beside - {"x"})]
            origin = origin.format(", ".join(given + ["y"] * (source == named.GIVEN_XY)))
        elif not site.states_mean:
            origin = "mean of the draws"
        mean = self._mean_name(site, source)
        self._add("sample_stats", mean, ("chain", *plate, feature), site=site.name, source=origin)
        if self._shared and site.states_mean and site.plate == ROWS and source == named.GIVEN_X:
            self._add_drawn_means(site.name, feature)

    def _add_named(self, value: NamedValue, source: str) -> None:
        """A `pyro.deterministic` value of each draw, under its name."""
        extra = {f"{value.name}_dim_{i}": range(n) for i, n in enumerate(value.event_shape)}
        self._coordinates |= {dim: r for dim, r in extra.items() if dim not in self._coordinates}
        dims = ("chain", "draw", *self._plate_dims(value), *extra)
        self._add(self._group_of(value, source) or source, value.name, dims, value.dtype)

    def _add_drawn_means(self, site: str, feature: str) -> None:
        """E[z | x, θ_d] by row, where it is not too large, and its means over rows."""
        name = f"{site}_mean"
        while name in self._shared or f"{name}_over_rows" in self._shared:
            name += "_"
        self._mean_names[site] = name
        attrs = {"site": site, named.MEAN_OF: named.EACH_DRAW}
        dims = ("chain", "draw", "row", feature)
        numbers = math.prod(len(self._coordinates[dim]) for dim in dims)
        description = f"mean over rows of E[z | x, θ], {name}"
        if not self._part and numbers <= MOST_NUMBERS:
            self._add(named.GIVEN_X, name, dims, **attrs)
        else:
            description += (
                f", which is left out: it has more than {MOST_NUMBERS:,} numbers, or rows come in "
                "parts; explain fewer rows, or give fewer draws"
            )
        over_rows, average = f"{name}_over_rows", ("chain", "draw", feature)
        self.over_rows.append((named.GIVEN_XY, over_rows))
        self._add(named.GIVEN_XY, over_rows, average, np.float64, **attrs, description=description)

    def _plate_dims(self, site: MaskSite | NamedValue) -> tuple[str, ...]:
        """What a mask's plate is called; none for a mask of all rows."""
        if site.plate is None:
            return ()
        if site.plate != ROWS:
            self._coordinates.setdefault(site.plate, range(site.size))
            if len(self._coordinates[site.plate]) != site.size:
                raise ValueError(
                    f"the plate {site.plate!r} has {site.size} entries, and a posterior's "
                    f"dimension of its name {len(self._coordinates[site.plate])}; name it otherwise"
                )
        return (site.plate,)

    def _add_response(
        self, response: Response, class_names: Sequence[str] | None, group: str
    ) -> None:
        extra = {f"y_dim_{i}": range(size) for i, size in enumerate(response.event_shape)}
        self._coordinates |= extra
        self._add(group, "y", ("chain", "draw", "row", *extra), response.dtype)
        if response.labels is None:
            return
        fits = class_names is not None and len(class_names) == len(response.labels)
        self._coordinates["class"] = class_names if fits else response.labels
        self._add(group, "y_probability", ("chain", "row", "class"))

    def _add_prior(self) -> None:
        """Share the masks given x alone as the prior of those given y."""
        for site in self._sites.masks:
            share = self._named(site, "importance", named.PRIOR)
            for name in (site.name, share, self._named(site, "size", named.PRIOR)):
                self._layout.share(named.PRIOR, name, named.GIVEN_X)
            self.over_rows.append((named.PRIOR, share))
        for name in named.RESPONSES:
            if (named.GIVEN_X, name) in self._layout:
                self._layout.share(named.PRIOR_Y, name, named.GIVEN_X)

    def _add_shared(self, site: SharedSite, dims: Sequence[str]) -> None:
        for name, size in zip(dims, site.shape, strict=True):
            self._coordinates.setdefault(name, range(size))
        groups = (named.GIVEN_XY, named.PRIOR)[: 1 + (named.PRIOR in self.sources)]
        for group in (named.PRIOR,) if self._from_prior else groups:
            self._add(group, site.name, ("chain", "draw", *dims), site.dtype)

    def _add_sampler(self, stats: Mapping[str, np.ndarray]) -> None:
        """The sampler's own statistics, at the draws that were taken of it."""
        draws = len(self._coordinates["draw"])
        for name, values in stats.items():
            taken = np.arange(draws) * values.shape[1] // draws
            extra = {f"{name}_dim_{i}": range(n) for i, n in enumerate(values.shape[2:])}
            self._coordinates |= extra
            self._store("sample_stats", name, ("chain", "draw", *extra), values[:, taken])

    def _add_constants(self, entries: Sequence[str]) -> None:
        x, y, features = self._rows.x, self._rows.y, self._plan.how.feature_names
        if y is not None:
            response = self._sites.response
            extra = {f"y_dim_{i}": range(size) for i, size in enumerate(y.shape[1:])}
            are_of_labels = response is not None and response.labels is not None
            if are_of_labels and extra and self._rows.unlike(response) is None:
                extra = {"class": self._coordinates["class"]}
            self._coordinates |= extra
            self._store("observed_data", "y", ("row", *extra), y)
        if x.dim() == 2:
            known = self._plan.result.feature_names if features is None else features
            self._coordinates["input"] = feature_names(x.shape[1], known, entries)
            self._store(self._constants, "x", ("row", "input"), x)
        elif features is not None:
            raise ValueError(f"feature_names are of tables; rows of x are {tuple(x.shape[1:])}")

    def _add_images(self, grouping: Any, entries: int) -> None:
        """The rows, and of which entry each of their pixels is."""
        x, description = self._rows.x, "the place of each pixel's mask entry along `feature`"
        self._store(self._constants, "x", ("row", *EVENT), x)
        places = feature_map_of(x.shape[1:], entries, getattr(grouping, "groups", None))
        if places is not None:
            dims = map_dimensions(places)
            self._store(self._constants, FEATURE_MAP, dims, places, description=description)


def _entries(site: MaskSite | NamedValue, rows: slice) -> tuple[slice, ...]:
    """Where in its plate a mask's values of a chunk of rows stand."""
    return () if site.plate is None else (rows if site.plate == ROWS else slice(None),)


def _of_plate(site: MaskSite | NamedValue, values: Tensor, dim: int) -> Tensor:
    """Values by entry of a mask's plate, or the one of all rows."""
    return values.select(dim, 0) if site.plate is None else values
