"""E[z | x, θ] of each draw of what all rows share: how sure the posterior is of a selection."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr
from torch import Tensor

from lexppl.arviz_compatibility import Posterior, group_names, group_of
from lexppl.explanation.layout.arviz_layout import ArvizLayout

MOST_NUMBERS = 2**23
"""Of E[z | x, θ] of all chains, draws, rows and features, beyond which its mean over rows is kept
alone."""

GROUP, OF_ROWS = "posterior", "predictions"
"""A function of θ stands among the draws of θ; where it is one of rows, among what is drawn of
these."""

MEAN_OF = "mean_of"
"""The attribute that tells it from masks."""

GIVEN_X = "p(z | x, θ)"


@dataclass
class DrawnMeans:
    """The arrays of E[z | x, θ_d], by site.

    Args:
        layout: where they stand.
        taken: names of the latents that rows share.
        by_row: whether those of each row may be kept.
    """

    layout: ArvizLayout
    taken: Collection[str]
    by_row: bool = True
    _names: dict[str, str] = field(default_factory=dict)

    def add(self, site: str, feature: str, dtype: Any) -> None:
        """Make a site's arrays: by row where they are not too large, and the means over rows.

        Args:
            site: its name, of masks whose distribution states its mean.
            feature: its dimension.
            dtype: of the means.
        """
        name = f"{site}_mean"
        while name in self.taken or f"{name}_over_rows" in self.taken:
            name += "_"
        self._names[site] = name
        attrs = {"site": site, MEAN_OF: GIVEN_X}
        dims = ("chain", "draw", "row", feature)
        sizes = [len(self.layout.coordinates[dim]) for dim in dims]
        told = f"mean over rows of E[z | x, θ], {name}"
        if not self.by_row:
            told += ", which is left out of rows that are explained part by part"
        elif int(np.prod(sizes, dtype=np.int64)) <= MOST_NUMBERS:
            self.layout.add(OF_ROWS, name, dims, dtype, **attrs)
        else:
            told += (
                f", which is left out: of {_product(sizes)} chains, draws, rows and features it "
                f"has more than {MOST_NUMBERS:,} numbers; explain fewer rows, or give fewer draws"
            )
        average = ("chain", "draw", feature)
        self.layout.add(GROUP, f"{name}_over_rows", average, np.float64, **attrs, description=told)

    @property
    def over_rows(self) -> list[tuple[str, str]]:
        """The group and the names of the means over rows."""
        return [(GROUP, f"{name}_over_rows") for name in self._names.values()]

    def write(self, chain: int, rows: slice, count: int, means: dict[str, Tensor]) -> None:
        """Put the means `(D, B, G)` of a chunk of rows into their place.

        Args:
            chain: of the fit.
            rows: the chunk.
            count: rows of all chunks together.
            means: by site.
        """
        for site, mean in means.items():
            name = self._names.get(site)
            if name is None:
                continue
            if (OF_ROWS, name) in self.layout:
                self.layout[OF_ROWS, name].put((chain, slice(None), rows), mean)
            average = self.layout[GROUP, f"{name}_over_rows"]
            average.values[chain] += mean.double().sum(1).cpu().numpy() / count


def means_over_rows(posterior: Posterior, site: str) -> xr.DataArray | None:
    """The mean over rows of E[z | x, θ_d] of each draw, (chain, draw, feature); None where nothing
    that rows share was drawn.

    Args:
        posterior: what :func:`lexppl.explain` returned.
        site: of the masks.
    """
    if GROUP not in group_names(posterior):
        return None
    for name, values in group_of(posterior, GROUP).items():
        told = values.attrs.get(MEAN_OF) == GIVEN_X and values.attrs.get("site") == site
        if told and str(name).endswith("_over_rows"):
            return values
    return None


def _product(sizes: Sequence[int]) -> str:
    return " × ".join(f"{size:,}" for size in sizes)
