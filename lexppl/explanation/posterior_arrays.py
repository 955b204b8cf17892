"""The arrays of a posterior: which variables there are, and where draws are written."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from lexppl.explanation.beside.image_geometry import (
    EVENT,
    FEATURE_MAP,
    feature_map_of,
    map_dimensions,
)
from lexppl.explanation.layout import mask_groups as named
from lexppl.explanation.layout.arviz_layout import ArvizLayout
from lexppl.explanation.layout.drawn_means import DrawnMeans
from lexppl.explanation.layout.importance_kind import GIVEN_Y, GUIDED, STATED, variable_of
from lexppl.explanation.masks.draws import RowDraws
from lexppl.explanation.masks.log_likelihood import LogLikelihood
from lexppl.explanation.masks.program_sites import (
    ROWS,
    MaskSite,
    ProgramSites,
    Response,
    SharedSite,
)
from lexppl.explanation.masks.shared_dims import SharedDims
from lexppl.explanation.named_rows import NamedRows, entry_names, feature_names
from lexppl.inference.training.result import FitResult

WEIGHTED = "mean of p(z | x, y), by the weights of proposals"
LISTED = "mean of p(z | x, y), over all masks"
"""What E[z | x, y] says of itself."""

GUIDE = "guide"
"""What is drawn beside z given x (`predictions`), z given x and y (`posterior`), and from the
`prior`: z from the guide."""


class PosteriorArrays:
    """All of a posterior's arrays, made beforehand and filled chunk by chunk.

    Args:
        result: the fit.
        rows: B rows.
        sites: the program's masks, response and latents that rows share.
        draws: D.
        entries: names of the first site's mask entries, or None.
        features: names of the columns of x, or None.
        joint: whether the program observes all rows in one.
        weighted: whether masks given y are resampled by importance, and not listed.
        part: whether these are some rows of a longer table: what is a mean over rows is then kept
            as a sum, and E[z | x, θ] by row is left out.
        dims: names of the dimensions of latents that rows share.

    Raises:
        ValueError: names of another number.
    """

    def __init__(
        self,
        result: FitResult,
        rows: NamedRows,
        sites: ProgramSites,
        draws: int,
        entries: Sequence[str] | None,
        features: Sequence[str] | None,
        *,
        joint: bool = False,
        weighted: bool = True,
        part: bool = False,
        dims: SharedDims | None = None,
    ) -> None:
        self._rows = rows
        self._divisor = 1 if part else len(rows)
        self._sites = sites
        self._dims = SharedDims() if dims is None else dims
        self._dims.check(sites.shared)
        self._shared = {site.name for site in sites.shared}
        self._of_weights = WEIGHTED if weighted else LISTED
        given_y, of_prior = rows.y is not None, sites.has_outer_latents and sites.has_prior
        known = {
            named.GIVEN_X: True,
            named.GIVEN_XY: given_y,
            named.PRIOR: of_prior,
            GUIDE: bool(sites.guided),
        }
        self.sources = tuple(source for source, here in known.items() if here)
        """What is drawn, of each chain."""
        self._constants = named.CONSTANTS if given_y else f"{named.GIVEN_X}_{named.CONSTANTS}"
        self._over_rows: list[tuple[str, str]] = []
        first = sites.masks[0]
        names = entry_names(result, first.entries, entries)
        self._coordinates: dict[str, Any] = {
            "chain": range(len(result.models)),
            "draw": range(draws),
            "row": rows.names,
            **self._dims.coords,
            "feature": names,
        }
        if rows.x.dim() == 4:
            self._coordinates |= dict(zip(EVENT, map(range, rows.x.shape[1:]), strict=True))
        self._layout = ArvizLayout(self._coordinates)
        self._evidence: LogLikelihood | None = None
        self._drawn_means = DrawnMeans(self._layout, self._shared, by_row=not part)
        for source in self.sources:
            if source == named.PRIOR and not given_y:
                continue
            for site in self._masks(source):
                self._add_mask(site, source)
            if sites.response is not None and draws > 0 and source != GUIDE:
                self._add_response(sites.response, result.class_names, self._groups(source)[2])
        if given_y and not sites.has_outer_latents:
            self._add_prior()
        if given_y:
            self._add_weights(joint, weighted)
        if result.sampler is not None:
            self._add_sampler(result.sampler.sample_stats)
        self._add_constants(features, names)
        for shared in sites.shared:
            self._add_shared(shared, first.entries)
        if rows.x.dim() == 4:
            self._add_images(getattr(result.model, "grouping", None), first.entries)

    def write(self, chain: int, rows: slice, drawn: RowDraws, source: str = named.GIVEN_X) -> None:
        """Put the draws of a chunk of rows into their place.

        Args:
            chain: of the fit.
            rows: the chunk.
            drawn: its draws.
            source: one of `sources`, what they are draws of.
        """
        layout, (_, average, predictive) = self._layout, self._groups(source)
        for site in self._masks(source):
            group = self._group_of(site, source)
            mask = drawn.masks[site.name]
            where, over = _entries(site, rows), self._divisor if site.plate == ROWS else site.size
            shares = layout[average, self._named(site, "importance", average)]
            shares.values[chain] += mask.sum(1, dtype=torch.float64).cpu().numpy() / over
            if group is None:
                continue
            layout[group, site.name].put((chain, slice(None), *where), _of_plate(site, mask, 1))
            size = layout[group, self._named(site, "size", group)]
            size.put((chain, slice(None), *where), _of_plate(site, mask.sum(-1), 1))
            if source == named.PRIOR:
                continue
            mean = layout["sample_stats", self._mean_name(site, source)]
            mean.put((chain, *where), _of_plate(site, drawn.means[site.name], 0))
        if drawn.means_by_draw is not None and source == named.GIVEN_X:
            self._drawn_means.write(chain, rows, self._divisor, drawn.means_by_draw)
        if drawn.y is not None:
            layout[predictive, "y"].put((chain, slice(None), rows), drawn.y)
        if drawn.label_probability is not None:
            layout[predictive, "y_probability"].put((chain, rows), drawn.label_probability)
        first = self._sites.masks[0]
        for name, values in (
            ("weight_ess", drawn.weight_ess),
            ("weight_pareto_k", drawn.weight_pareto_k),
        ):
            if values is not None:
                place = layout["sample_stats", name]
                place.put((chain, *_entries(first, rows)), _of_plate(first, values, 0))
        if drawn.log_evidence is not None and self._evidence is not None:
            self._evidence.write(chain, rows, drawn.log_evidence)

    @property
    def over_rows(self) -> list[tuple[str, str]]:
        """The groups and names of what is a mean over rows."""
        return self._over_rows + self._drawn_means.over_rows

    def take_sums(self, chain: int) -> dict[tuple[str, str], np.ndarray]:
        """What a chain's sums over rows have come to since they were last taken; they begin anew.

        Args:
            chain: of the fit.
        """
        taken = {place: self._layout[place].values[chain].copy() for place in self.over_rows}
        for place in taken:
            self._layout[place].values[chain] = 0.0
        return taken

    def write_shared(self, chain: int, values: Mapping[str, Tensor], group: str) -> None:
        """Put the draws `(D, *value)` of the latents that rows share into their place."""
        for name, drawn in values.items():
            place = self._layout[group, name]
            place.put((chain,), drawn.reshape(place.values.shape[1:]))

    def groups(
        self,
        attrs: Mapping[str, Any],
        own: Mapping[str, Mapping[str, Any]],
        *,
        are_draws: bool,
    ) -> dict[str, xr.Dataset]:
        """The groups as data sets.

        Args:
            attrs: what is said of every group.
            own: what is said of one.
            are_draws: whether values of the log-likelihood are those of posterior draws.
        """
        if self._evidence is not None and self._evidence.is_written:
            layout, real = self._layout, self._rows.float_type
            if not self._sites.are_together:
                evidence = layout.add(
                    "sample_stats", "log_evidence", ("chain", "row"), real, units="nats"
                )
                evidence[:] = self._evidence.by_chain()
            likelihood = self._evidence.by_draw(len(self._coordinates["draw"]), are_draws)
            dims = ("chain", "draw", "row")
            layout.add("log_likelihood", "y", dims, likelihood.dtype, units="nats")[:] = likelihood
        return self._layout.groups(attrs, own)

    def _masks(self, source: str) -> tuple[MaskSite, ...]:
        return self._sites.guided if source == GUIDE else self._sites.masks

    def _groups(self, source: str) -> tuple[str | None, str, str]:
        """The groups of masks by row, of their means over rows, and of responses."""
        if source == named.PRIOR:
            return None, named.PRIOR, named.PRIOR_Y
        if source == named.GIVEN_XY:
            return named.OF_ROWS if self._shared else named.GIVEN_XY, named.GIVEN_XY, named.NEW_Y
        return named.GIVEN_X, named.GIVEN_X, named.GIVEN_X

    def _group_of(self, site: MaskSite, source: str) -> str | None:
        """Where a mask stands: one that rows share among what else they share."""
        group = self._groups(source)[0]
        return group if site.plate == ROWS or source in (named.GIVEN_X, GUIDE) else source

    def _named(self, site: MaskSite, variable: str, group: str) -> str:
        """A variable's name for a mask site: the first site has it plain, unless a latent that rows
        share has that name."""
        taken = group in (named.GIVEN_XY, named.PRIOR) and variable in self._shared
        plain = site is self._sites.masks[0] and not taken
        return variable if plain else f"{site.name}_{variable}"

    def _mean_name(self, site: MaskSite, source: str) -> str:
        name = self._named(site, variable_of(site.kind), "sample_stats")
        return name + GIVEN_Y if source == named.GIVEN_XY else name

    def _add_mask(self, site: MaskSite, source: str) -> None:
        group, average = self._group_of(site, source), self._groups(source)[1]
        feature = "feature"
        if site.entries != self._sites.masks[0].entries:
            own = site.name.removesuffix(named.BY_GUIDE)
            feature = f"{own}_feature"
            self._coordinates[feature] = [f"{own}{g + 1}" for g in range(site.entries)]
        discrete = site.dtype.kind == "i"
        add = self._layout.add
        plate = self._plate_dims(site)
        stated = {} if site.kind is None else {"kind": site.kind}
        share = self._named(site, "importance", average)
        self._over_rows.append((average, share))
        add(
            average,
            share,
            ("chain", "draw", feature),
            np.float64,
            site=site.name,
            description="mean of the mask over rows",
        )
        if group is None:
            return
        add(group, site.name, ("chain", "draw", *plate, feature), site.dtype, **stated)
        add(
            group,
            self._named(site, "size", group),
            ("chain", "draw", *plate),
            np.int32 if discrete else site.dtype,
            site=site.name,
        )
        if source == named.PRIOR:
            return
        stated_mean = GUIDED if source == GUIDE else STATED
        origin = stated_mean if site.states_mean else "mean of the draws"
        add(
            "sample_stats",
            self._mean_name(site, source),
            ("chain", *plate, feature),
            self._rows.float_type,
            site=site.name,
            source=self._of_weights if source == named.GIVEN_XY else origin,
        )
        if self._shared and site.states_mean and site.plate == ROWS and source == named.GIVEN_X:
            self._drawn_means.add(site.name, feature, self._rows.float_type)

    def _plate_dims(self, site: MaskSite) -> tuple[str, ...]:
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
        extra = []
        for i, size in enumerate(response.event_shape):
            extra.append(f"y_dim_{i}")
            self._coordinates[extra[-1]] = range(size)
        self._layout.add(group, "y", ("chain", "draw", "row", *extra), response.dtype)
        if response.labels is None:
            return
        named = class_names is not None and len(class_names) == len(response.labels)
        self._coordinates["class"] = class_names if named else response.labels
        dims = ("chain", "row", "class")
        self._layout.add(group, "y_probability", dims, self._rows.float_type)

    def _add_prior(self) -> None:
        """Masks given x alone are the prior of those given y, where nothing else is drawn: the same
        draws under both names."""
        for site in self._sites.masks:
            share = self._named(site, "importance", named.PRIOR)
            for name in (site.name, share, self._named(site, "size", named.PRIOR)):
                self._layout.share(named.PRIOR, name, named.GIVEN_X)
            self._over_rows.append((named.PRIOR, share))
        for name in named.RESPONSES:
            if (named.GIVEN_X, name) in self._layout:
                self._layout.share(named.PRIOR_Y, name, named.GIVEN_X)

    def _add_shared(self, site: SharedSite, entries: int) -> None:
        dims = self._dims.of(site, entries, self._coordinates)
        for name, size in zip(dims, site.shape, strict=True):
            self._coordinates.setdefault(name, range(size))
        for group in (named.GIVEN_XY, named.PRIOR)[: 1 + (named.PRIOR in self.sources)]:
            self._layout.add(group, site.name, ("chain", "draw", *dims), site.dtype)

    def _add_weights(self, joint: bool, weighted: bool) -> None:
        if weighted:
            real = self._rows.float_type
            for name in ("weight_ess", "weight_pareto_k"):
                dims = ("chain", *self._plate_dims(self._sites.masks[0]))
                self._layout.add("sample_stats", name, dims, real)
        if not joint or self._sites.are_together:
            self._evidence = LogLikelihood(len(self._coordinates["chain"]), len(self._rows))

    def _add_sampler(self, stats: Mapping[str, np.ndarray]) -> None:
        """The sampler's own statistics, at the draws that were taken of it."""
        draws = len(self._coordinates["draw"])
        for name, values in stats.items():
            taken = np.arange(draws) * values.shape[1] // draws
            extra = [f"{name}_dim_{i}" for i in range(values.ndim - 2)]
            self._coordinates |= {
                dim: range(n) for dim, n in zip(extra, values.shape[2:], strict=True)
            }
            dims = ("chain", "draw", *extra)
            self._layout.add("sample_stats", name, dims, values.dtype)[:] = values[:, taken]

    def _add_constants(self, features: Sequence[str] | None, entries: Sequence[str]) -> None:
        x, y = self._rows.x, self._rows.y
        if y is not None:
            response = self._sites.response
            events = len(response.event_shape) if response is not None else y.dim() - 1
            extra = [f"y_dim_{i}" for i in range(events)] or ["class"] * (y.dim() - 1)
            self._coordinates |= {f"y_dim_{i}": range(y.shape[i + 1]) for i in range(events)}
            observed = y.detach().cpu().numpy()
            self._layout.add("observed_data", "y", ("row", *extra), observed.dtype)[:] = observed
        if x.dim() == 2:
            self._coordinates["input"] = feature_names(x.shape[1], features, entries)
            table = x.detach().cpu().numpy()
            self._layout.add(self._constants, "x", ("row", "input"), table.dtype)[:] = table
        elif features is not None:
            raise ValueError(
                f"feature_names are of the columns of a table; rows of x have shape "
                f"{tuple(x.shape[1:])}"
            )

    def _add_images(self, grouping: Any, entries: int) -> None:
        """The rows, and of which entry each of their pixels is."""
        images = self._rows.x.detach().cpu().numpy()
        self._layout.add(self._constants, "x", ("row", *EVENT), images.dtype)[:] = images
        groups = getattr(grouping, "groups", None)
        places = feature_map_of(images.shape[1:], entries, groups)
        if places is not None:
            description = "the place of each pixel's mask entry along `feature`"
            dims = map_dimensions(places)
            self._layout.add(
                self._constants, FEATURE_MAP, dims, places.dtype, description=description
            )[:] = places


def _entries(site: MaskSite, rows: slice) -> tuple[slice, ...]:
    """Where in its plate a mask's values of a chunk of rows stand."""
    return () if site.plate is None else (rows if site.plate == ROWS else slice(None),)


def _of_plate(site: MaskSite, values: Tensor, dim: int) -> Tensor:
    """Values by entry of a mask's plate, or the one of all rows."""
    return values.select(dim, 0) if site.plate is None else values
