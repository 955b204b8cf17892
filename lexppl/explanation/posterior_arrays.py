"""Variables of a posterior in ArviZ's layout: by chunk of rows, then joined by row and chain."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from torch import Tensor
from xarray.indexes import PandasIndex

from lexppl.explanation.mask_sampler import MaskSampler
from lexppl.explanation.names import SharedDims, entry_names, feature_names
from lexppl.explanation.program_sites import ROWS, MaskSite, NamedValue, Response
from lexppl.explanation.reading import masks as named
from lexppl.explanation.reading.images import EVENT, FEATURE_MAP, feature_map_of, map_dimensions
from lexppl.explanation.reading.masks import AVERAGED, GIVEN_Y, GUIDED, KINDS, STATED, STRENGTH
from lexppl.explanation.row_draws import RowDraws, by_draw, log_mean
from lexppl.inference.contexts import SUBSAMPLED


@dataclass(frozen=True)
class Variable:
    """One variable: the names of its dimensions, its array, its attributes, and whether chunks of
    rows have terms of a mean over rows."""

    dims: tuple[str, ...]
    values: np.ndarray
    attrs: Mapping[str, Any]
    over_rows: bool = False


Variables = dict[tuple[str, str], Variable]  # By group and name
Put = Callable[..., None]  # Adds a variable, by group, name, dimensions and values


def stored(values: Tensor, dtype: Any) -> np.ndarray:
    """Values as an array of a type, which integers alone may have to leave."""
    array = values.detach().cpu().numpy()
    small = array.astype(dtype)
    return array if small.dtype.kind == "i" and not np.array_equal(small, array) else small


def over_chunks(chunks: Sequence[Variable]) -> np.ndarray:
    """The values of all rows of those of chunks; of a variable without rows the last ones."""
    first, arrays = chunks[0], [chunk.values for chunk in chunks]
    if first.over_rows:
        return np.asarray(sum(arrays))
    return np.concatenate(arrays, first.dims.index(ROWS)) if ROWS in first.dims else arrays[-1]


HELD_OUT = (
    "log p(y | x), the log-density of the mean over all chains and draws, which have not learned "
    "from the rows: arviz.loo gives their log score"
)
# What E[z | x, y] says of itself, and E[z | x] where something is observed without y.
WEIGHTED = "mean of p(z | {}), by the weights of proposals"
LISTED = "mean of p(z | {}), over all masks"
# Of E[z | x, θ] of all chains, draws, rows and features, beyond which its mean over rows is kept
# alone.
MOST_NUMBERS = 2**23
OF_NAMED = (named.GIVEN_X, named.GIVEN_XY)  # Draws that have `pyro.deterministic` values
OVER_ENTRIES = ("importance", "size")  # Names of means over rows of a mask, and of sums
LIKELIHOOD = ("", "log p(y | x, θ)")  # Of P values of θ, until all rows are there


class PosteriorArrays:
    """All of a posterior's variables, chunk by chunk of its chains, with attributes of all groups
    and of each; of a part of a longer table means over rows are sums, without E[z | x, θ] by row.
    """

    def __init__(
        self,
        sampler: MaskSampler,
        attrs: dict[str, Any],
        of_groups: Mapping[str, Mapping[str, Any]],
    ) -> None:
        self.attrs, self._of_groups = attrs, of_groups
        result, rows, sites = sampler.result, sampler.rows, sampler.sites
        dims = SharedDims(sampler.options.dims or {}, sampler.options.coords or {})
        self._rows, self._sampler, self._sites = rows, sampler, sites
        self._part = sampler.block is not None
        self._divisor = 1 if self._part else len(rows)
        of_rows = ("row", "input") if rows.x.dim() == 2 else ("row",)
        dims.check(sites.shared, {*of_rows, *(site.feature for site in sites.masks)})
        self._shared = {site.name for site in sites.shared}
        first = sites.masks[0]
        of_features = sampler.options.names_along(first.feature, sampler.options.entry_names)
        if of_features is None and first.entry_dim == -1:
            of_features = [first.name]
        names = entry_names(result, first.entries, of_features)
        self._coordinates: dict[str, Any] = {
            "chain": range(len(result.models)),
            "draw": range(sampler.draws),
            "row": rows.names,
            **dims.coords,
        } | {"row": rows.names, first.feature: names}
        if rows.x.dim() == 4:
            self._coordinates |= dict(zip(EVENT, map(range, rows.x.shape[1:]), strict=True))
        self._dtype = np.float64 if rows.dtype == torch.float64 else np.float32
        for site in sites.masks:
            self._coordinates.setdefault(site.feature, site.entry_names)
        for value in (*sites.masks, *sites.named):
            self._number(value.plates, [value.size])
        for value in sites.named:
            self._number(value.event_dims, value.event_shape)
        if sites.response is not None:
            self._name_response(sites.response)
        self._constants: Variables = {}
        if result.sampler is not None:
            self._add_sampler(result.sampler.sample_stats)
        self._add_constants(names)
        self._shared_dims: dict[str, list[str]] = {}
        for latent in sites.shared:
            self._shared_dims[latent.name] = dims.of(latent, first.entries, self._coordinates)
            self._number(self._shared_dims[latent.name], latent.shape)
        self.over_rows: list[tuple[str, str]] = []  # Means over rows, once all are there
        # Of each chain, those of its chunks.
        self._chains: list[list[Variables]] = [[] for _ in result.models]

    def write(self, chain: int, rows: slice, drawn: RowDraws, source: str = named.GIVEN_X) -> None:
        """Name the draws of a chunk of rows, of one of `sources`."""
        variables: Variables = {}
        self._chains[chain].append(variables)
        count = rows.stop - rows.start

        def put(
            group: str,
            name: str,
            dims: Sequence[str],
            values: Tensor,
            dtype: Any = None,
            over_rows: Any = False,
            **attrs: Any,
        ) -> None:
            if (group, name) in variables:
                raise ValueError(
                    f"{group!r} has two variables {name!r}: give the site another name"
                )
            array = stored(values, self._dtype if dtype is None else dtype)
            shape = tuple(count if dim == ROWS else len(self._coordinates[dim]) for dim in dims)
            if array.shape != shape:
                array = np.array(np.broadcast_to(array, shape))
            variables[group, name] = Variable(tuple(dims), array, attrs, over_rows)

        predictive = self._groups(source)[2]
        masks = [(site, source) for site in self._masks(source)]
        if self._sampler.are_sampled and source == named.GIVEN_X and self._rows.y is None:
            # What a sampler has drawn is of the posterior too.
            masks += [(site, named.GIVEN_XY) for site, _ in masks]
        for site, place in masks:
            average = self._groups(place)[1]
            group, mask = self._group_of(site, place), drawn.masks[site.name]
            plate, feature = site.plates, site.feature
            if site.plate == ROWS and mask.shape[-2] != count:
                raise ValueError(SUBSAMPLED.format(mask.shape[-2]))
            over = self._divisor if site.plate == ROWS else site.size
            share = mask.sum(1, dtype=torch.float64) / over
            attrs = {"site": site.name, "description": "mean of the mask over rows"}
            name = self._named(site, "importance", average)
            put(average, name, ("draw", feature), share, np.float64, True, **attrs)
            if group is None:
                continue
            kind = {} if site.kind is None else {"kind": site.kind}
            values = site.of_plate(mask, 1)
            put(group, site.name, ("draw", *plate, feature), values, site.dtype, **kind)
            numbers = np.int32 if site.dtype.kind == "i" else site.dtype
            values, name = site.of_plate(mask.sum(-1), 1), self._named(site, "size", group)
            put(group, name, ("draw", *plate), values, numbers, site=site.name)
            if source == named.PRIOR or place != source:
                continue
            origin = AVERAGED if site.name in drawn.averaged else self._origin(site, source)
            attrs = {"site": site.name, "source": origin}
            values = site.of_plate(drawn.means[site.name], 0)
            put("sample_stats", self._mean_name(site, source), (*plate, feature), values, **attrs)
            if drawn.means_by_draw is not None and source == named.GIVEN_X and self._shared:
                self._put_drawn_means(put, site, drawn.means_by_draw[site.name])
        for value in self._sites.named if source in OF_NAMED and drawn.named else ():
            dims = ("draw", *value.plates, *value.event_dims)
            values = value.of_plate(drawn.named[value.name], 1)
            put(self._group_of(value, source) or source, value.name, dims, values, value.dtype)
        response = self._sites.response
        if response is not None and drawn.y is not None:
            extra = [f"y_dim_{i}" for i in range(len(response.event_shape))]
            put(predictive, "y", ("draw", "row", *extra), drawn.y, response.dtype)
        if drawn.label_probability is not None:
            put(predictive, "y_probability", ("row", "class"), drawn.label_probability)
        first = self._sites.masks[0]
        for name in ("weight_ess", "weight_pareto_k"):
            weight = getattr(drawn, name)
            if weight is not None:
                put("sample_stats", name, first.plates, first.of_plate(weight, 0))
        given_y = self._rows.y is not None
        has_likelihood = given_y and (not self._sampler.is_joint or self._sites.are_together)
        if drawn.log_evidence is not None and has_likelihood:
            evidence = drawn.log_evidence.double().cpu().numpy()
            variables[LIKELIHOOD] = Variable(("draw", "row"), evidence, {})

    def write_shared(self, chain: int, values: Mapping[str, Tensor], group: str) -> None:
        """Name the draws `(D, *value)` of the latents that rows share."""
        variables: Variables = {}
        for site in self._sites.shared if values else ():
            dims = ("draw", *self._shared_dims[site.name])
            drawn = values[site.name].reshape(-1, *site.shape)
            variables[group, site.name] = Variable(dims, stored(drawn, site.dtype), {})
        self._chains[chain].append(variables)

    def groups(self) -> dict[str, xr.Dataset]:
        """The groups as data sets, once."""
        by_group: dict[str, dict[str, xr.Variable]] = {}
        for (group, name), variable in self.variables().items():
            # Of numpy arrays: xarray need not look what libraries of other arrays there are.
            made = xr.Variable(variable.dims, variable.values, variable.attrs, fastpath=True)
            by_group.setdefault(group, {})[name] = made
        indexes: dict[str, PandasIndex] = {}
        for dim, names in self._coordinates.items():
            # As an index of pandas: of an array xarray loads Dask to see whether it is Dask's.
            array = coordinate_values(names)
            indexes[dim] = PandasIndex(pd.Index(array), dim, array.dtype)
        groups = {}
        for group, variables in by_group.items():
            used = {dim for variable in variables.values() for dim in variable.dims}
            of_group = {dim: index for dim, index in indexes.items() if dim in used}
            coords = {d: v for i in of_group.values() for d, v in i.create_variables().items()}
            all_attrs = {**self.attrs, **self._of_groups.get(group, {})}
            groups[group] = xr.Dataset(variables, xr.Coordinates(coords, of_group), all_attrs)
        return groups

    def variables(self) -> Variables:
        """All variables, of all chains and rows; the chunks are gone then."""
        joined: Variables = {}
        for chunk in self._chains[0]:
            joined |= chunk
        for key, variable in joined.items():
            # Chunks are let go, variable by variable, as these take the memory once more.
            arrays = [
                over_chunks([c.pop(key) for c in chain if key in c]) for chain in self._chains
            ]
            values = arrays[0][None] if len(arrays) == 1 else np.stack(arrays)
            joined[key] = Variable(
                ("chain", *variable.dims), values, variable.attrs, variable.over_rows
            )
        likelihood = joined.pop(LIKELIHOOD, None)
        is_prior = not (self._sites.has_outer_latents or self._sampler.are_sampled)
        if self._rows.y is not None and is_prior:
            # The masks given x alone are the prior of those given y.
            for site in self._sites.masks:
                for name in (site.name, *(self._named(site, n, named.PRIOR) for n in OVER_ENTRIES)):
                    joined[named.PRIOR, name] = joined[named.GIVEN_X, name]
            for name in named.RESPONSES:
                if (named.GIVEN_X, name) in joined:
                    joined[named.PRIOR_Y, name] = joined[named.GIVEN_X, name]
        joined |= self._constants
        if likelihood is not None:
            units = {"units": "nats"}
            if not self._sites.are_together:
                values = log_mean(likelihood.values, (1,)).astype(self._dtype)
                joined["sample_stats", "log_evidence"] = Variable(("chain", "row"), values, units)
            are_draws = self._of_groups["log_likelihood"]["draws"] != HELD_OUT
            values = by_draw(likelihood.values, len(self._coordinates["draw"]), are_draws)
            joined["log_likelihood", "y"] = Variable(("chain", "draw", "row"), values, units)
        self.over_rows = [place for place in joined if joined[place].over_rows]
        return joined

    def _put_drawn_means(self, put: Put, site: MaskSite, means: Tensor) -> None:
        """E[z | x, θ_d] by row, where it is not too large, and its means over rows."""
        if not site.states_mean or site.plate != ROWS:
            return
        name, feature = f"{site.name}_mean", site.feature
        while name in self._shared or f"{name}_over_rows" in self._shared:
            name += "_"
        attrs = {"site": site.name, named.MEAN_OF: named.EACH_DRAW}
        description = f"mean over rows of E[z | x, θ], {name}"
        dims = ("draw", "row", feature)
        if (
            not self._part
            and math.prod(len(self._coordinates[d]) for d in ("chain", *dims)) <= MOST_NUMBERS
        ):
            put(named.GIVEN_X, name, dims, means, **attrs)
        else:
            description += (
                f", which is left out: it has more than {MOST_NUMBERS:,} numbers, or rows come in "
                "parts; explain fewer rows, or give fewer draws"
            )
        attrs["description"] = description
        means = means.double().sum(1) / self._divisor
        over_rows = f"{name}_over_rows"
        put(named.GIVEN_XY, over_rows, ("draw", feature), means, np.float64, True, **attrs)

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

    def _origin(self, site: MaskSite, source: str) -> str:
        """What the mean of a mask is, as its attribute."""
        if self._sampler.are_sampled:
            return "mean of the draws"
        if self._sampler.are_weighed(source):
            conditions = ["x", *sorted(self._sites.beside - {"x"})]
            origin = WEIGHTED if self._sampler.listed is None else LISTED
            return origin.format(", ".join(conditions + ["y"] * (source == named.GIVEN_XY)))
        if not site.states_mean:
            return "mean of the draws"
        return GUIDED if source == named.GUIDE else STATED

    def _number(self, dims: Sequence[str], sizes: Sequence[int]) -> None:
        """Number the entries of dimensions; refuse those that have another number of names."""
        for dim, size in zip(dims, sizes, strict=False):
            known = len(self._coordinates.setdefault(dim, range(size)))
            if known != size and dim != ROWS:
                raise ValueError(
                    f"the plate {dim!r} has {size} entries, and a posterior's dimension of its "
                    f"name {known}; name it otherwise"
                )

    def _name_response(self, response: Response) -> None:
        extra = {f"y_dim_{i}": range(size) for i, size in enumerate(response.event_shape)}
        self._coordinates |= extra
        if response.labels is not None:
            names = self._sampler.result.class_names
            fits = names is not None and len(names) == len(response.labels)
            self._coordinates["class"] = names if fits else response.labels

    def _add(self, group: str, name: str, dims: Sequence[str], values: Any, **attrs: Any) -> None:
        """Add a variable that is not drawn."""
        array = values.detach().cpu().numpy() if isinstance(values, Tensor) else values
        # A copy, as the caller's rows may change.
        self._constants[group, name] = Variable(tuple(dims), array.copy(), attrs)

    def _add_sampler(self, stats: Mapping[str, np.ndarray]) -> None:
        """The sampler's own statistics, at the draws that were taken of it."""
        draws = len(self._coordinates["draw"])
        for name, values in stats.items():
            taken = np.arange(draws) * values.shape[1] // draws
            extra = {f"{name}_dim_{i}": range(n) for i, n in enumerate(values.shape[2:])}
            self._coordinates |= extra
            self._add("sample_stats", name, ("chain", "draw", *extra), values[:, taken])

    def _add_constants(self, entries: Sequence[str]) -> None:
        x, y, result = self._rows.x, self._rows.y, self._sampler.result
        group = f"{named.GIVEN_X}_{named.CONSTANTS}" if y is None else named.CONSTANTS
        if y is not None:
            response = self._sites.response
            extra = {f"y_dim_{i}": range(size) for i, size in enumerate(y.shape[1:])}
            are_of_labels = response is not None and response.labels is not None
            if are_of_labels and extra and self._rows.unlike(response) is None:
                extra = {"class": self._coordinates["class"]}
            self._coordinates |= extra
            self._add("observed_data", "y", ("row", *extra), y)
        if x.dim() == 2:
            columns = self._sampler.options.names_along("input", result.feature_names)
            self._coordinates["input"] = feature_names(x.shape[1], columns, entries)
            self._add(group, "x", ("row", "input"), x)
        if x.dim() == 4:
            # The rows, and of which entry each of their pixels is.
            self._add(group, "x", ("row", *EVENT), x)
            grouping = getattr(getattr(result.model, "grouping", None), "groups", None)
            places = feature_map_of(x.shape[1:], self._sites.masks[0].entries, grouping)
            if places is not None:
                description = "the place of each pixel's mask entry along `feature`"
                dims = map_dimensions(places)
                self._add(group, FEATURE_MAP, dims, places, description=description)


def coordinate_values(values: Sequence[Any] | np.ndarray) -> np.ndarray:
    """Names or numbers of a dimension as an array that netCDF can hold: never of objects."""
    array = np.asarray(values)
    return array if array.dtype.kind in "iuf" else np.asarray([str(value) for value in values])
