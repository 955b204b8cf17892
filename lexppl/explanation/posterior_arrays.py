"""The arrays of a posterior: which variables there are, and where draws are written."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from lexppl.explanation.arviz_layout import ArvizLayout
from lexppl.explanation.draws import RowDraws
from lexppl.explanation.importance_kind import STATED, variable_of
from lexppl.explanation.named_rows import NamedRows, entry_names, feature_names
from lexppl.explanation.program_sites import MaskSite, ProgramSites, Response
from lexppl.inference.training.result import FitResult


class PosteriorArrays:
    """All of a posterior's arrays, made beforehand and filled chunk by chunk.

    Args:
        result: the fit.
        rows: B rows.
        sites: the program's masks and response.
        draws: D.
        entries: names of the first site's mask entries, or None.
        features: names of the columns of x, or None.

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
        joint: bool = False,
    ) -> None:
        self._rows = rows
        self._sites = sites
        first = sites.masks[0]
        names = entry_names(result, first.entries, entries)
        self._coordinates: dict[str, Any] = {
            "chain": range(len(result.models)),
            "draw": range(draws),
            "row": rows.names,
            "feature": names,
        }
        self._layout = ArvizLayout(self._coordinates)
        for site in sites.masks:
            self._add_mask(site)
        if sites.response is not None and draws > 0:
            self._add_response(sites.response, result.class_names)
        if rows.y is not None:
            self._add_weights(joint)
        self._add_constants(features, names)

    def write(self, chain: int, rows: slice, drawn: RowDraws) -> None:
        """Put the draws of a chunk of rows into their place."""
        layout = self._layout
        for site in self._sites.masks:
            mask = drawn.masks[site.name]
            layout["posterior", site.name].put((chain, slice(None), rows), mask)
            shares = layout["posterior", self._named(site, "importance")]
            shares.values[chain] += mask.double().sum(1).cpu().numpy() / len(self._rows)
            size = layout["sample_stats", self._named(site, "size")]
            size.put((chain, slice(None), rows), mask.sum(-1))
            probability = layout["sample_stats", self._named(site, variable_of(site.kind))]
            probability.put((chain, rows), drawn.selection[site.name])
        by_draw = {
            ("posterior_predictive", "y"): drawn.y,
            ("log_likelihood", "y"): drawn.log_likelihood,
        }
        by_row = {
            ("posterior_predictive", "y_probability"): drawn.label_probability,
            ("sample_stats", "log_evidence"): drawn.log_evidence,
            ("sample_stats", "weight_ess"): drawn.weight_ess,
        }
        for place, values in by_draw.items():
            if values is not None:
                layout[place].put((chain, slice(None), rows), values)
        for place, values in by_row.items():
            if values is not None:
                layout[place].put((chain, rows), values)

    def groups(self, attrs: Mapping[str, Any]) -> dict[str, xr.Dataset]:
        """The groups as data sets."""
        return self._layout.groups(attrs)

    def _named(self, site: MaskSite, variable: str) -> str:
        """A variable's name for a mask site: the first site has it plain."""
        return variable if site is self._sites.masks[0] else f"{site.name}_{variable}"

    def _add_mask(self, site: MaskSite) -> None:
        feature = "feature"
        if site.entries != self._sites.masks[0].entries:
            feature = f"{site.name}_feature"
            self._coordinates[feature] = [f"{site.name}{g + 1}" for g in range(site.entries)]
        discrete = site.dtype.kind == "i"
        add = self._layout.add
        stated = {} if site.kind is None else {"kind": site.kind}
        add("posterior", site.name, ("chain", "draw", "row", feature), site.dtype, **stated)
        add(
            "posterior",
            self._named(site, "importance"),
            ("chain", "draw", feature),
            np.float64,
            site=site.name,
            description="mean of the mask over rows",
        )
        add(
            "sample_stats",
            self._named(site, "size"),
            ("chain", "draw", "row"),
            np.int32 if discrete else site.dtype,
        )
        add(
            "sample_stats",
            self._named(site, variable_of(site.kind)),
            ("chain", "row", feature),
            self._rows.float_type,
            site=site.name,
            source=STATED if site.states_mean else "mean of the draws",
        )

    def _add_response(self, response: Response, class_names: Sequence[str] | None) -> None:
        extra = []
        for i, size in enumerate(response.event_shape):
            extra.append(f"y_dim_{i}")
            self._coordinates[extra[-1]] = range(size)
        group, dims = "posterior_predictive", ("chain", "draw", "row", *extra)
        self._layout.add(group, "y", dims, response.dtype)
        if response.labels is None:
            return
        named = class_names is not None and len(class_names) == len(response.labels)
        self._coordinates["class"] = class_names if named else response.labels
        dims = ("chain", "row", "class")
        self._layout.add(group, "y_probability", dims, self._rows.float_type)

    def _add_weights(self, joint: bool) -> None:
        real, add = self._rows.float_type, self._layout.add
        add("sample_stats", "weight_ess", ("chain", "row"), real)
        if joint:
            return
        add("sample_stats", "log_evidence", ("chain", "row"), real, units="nats")
        add("log_likelihood", "y", ("chain", "draw", "row"), real, units="nats")

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
            self._layout.add("constant_data", "x", ("row", "input"), table.dtype)[:] = table
        elif features is not None:
            raise ValueError(
                f"feature_names are of the columns of a table; rows of x have shape "
                f"{tuple(x.shape[1:])}"
            )
