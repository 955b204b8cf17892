"""A posterior in a Zarr store, written row by row range and opened lazily."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from lexppl.arviz_compatibility import Posterior, posterior_of
from lexppl.extras import extra_library

EXTRA = "dask"
ROW = "row"
DIMENSIONS = "_ARRAY_DIMENSIONS"
"""Where xarray looks for the names of an array's dimensions, in stores of the second format, which
all versions of Zarr read."""


def open_posterior(path: str | Path, chunks: Any = None) -> Posterior:
    """Open a posterior that :func:`explain_to_zarr` wrote; values are read when they are used.

    Args:
        path: the store.
        chunks: None for numpy arrays; `{}` for Dask arrays of the store's own chunks.

    Returns:
        `arviz.InferenceData` with ArviZ 0.2x, `xarray.DataTree` with ArviZ 1.x.

    Raises:
        FileNotFoundError: no store there.
        ImportError: Zarr is not installed.
    """
    extra_library("zarr", EXTRA)
    if not any((Path(path) / name).is_file() for name in (".zgroup", "zarr.json")):
        raise FileNotFoundError(f"there is no Zarr store {str(path)!r}")
    tree = xr.open_datatree(Path(path), engine="zarr", chunks=chunks)
    groups = {str(name): group.to_dataset() for name, group in tree.children.items()}
    attrs = {str(name): value for name, value in tree.attrs.items()}
    return posterior_of(groups, attrs)


class ZarrPosterior:
    """The store of a posterior whose rows come in parts."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(
        self,
        groups: Mapping[str, xr.Dataset],
        attrs: Mapping[str, Any],
        total: int,
        rows_per_chunk: int,
    ) -> None:
        """Make all arrays of `total` rows by the groups of the first, and write what is not of
        rows."""
        root = self._open("w")
        root.attrs.update(_plain(attrs))
        for name, group in groups.items():
            made = root.create_group(name)
            made.attrs.update(_plain(group.attrs))
            for variable, held in group.variables.items():
                shape = tuple(total if d == ROW else n for d, n in held.sizes.items())
                chunk = tuple(
                    min(rows_per_chunk, total) if d == ROW else max(1, n)
                    for d, n in held.sizes.items()
                )
                # Without a value for what is missing: to xarray a zero would be NaN.
                array = made.create_array(
                    str(variable), shape=shape, chunks=chunk, dtype=held.dtype, fill_value=None
                )
                array.attrs.update({**_plain(held.attrs), DIMENSIONS: list(map(str, held.dims))})
                if ROW not in held.dims:
                    array[...] = held.values

    def grow(self, total: int) -> None:
        """Make room for N rows, where their number was not known."""
        for _, group in self._open("r+").groups():
            for _, array in group.arrays():
                shape = tuple(
                    max(total, n) if dim == ROW else n
                    for dim, n in zip(array.attrs[DIMENSIONS], array.shape, strict=True)
                )
                if shape != array.shape:
                    array.resize(shape)

    def write(self, groups: Mapping[str, xr.Dataset], start: int) -> None:
        """Write some rows from number `start` on; refuses arrays unlike those of the first rows."""
        root = self._open("r+")
        for name, group in groups.items():
            for variable, held in group.variables.items():
                if ROW not in held.dims:
                    continue
                array = root[f"{name}/{variable}"]
                rows = held.sizes[ROW]
                where = tuple(
                    slice(start, start + rows) if dim == ROW else slice(None) for dim in held.dims
                )
                values = np.ascontiguousarray(held.values)
                # Zarr drops in silence what is beyond an array's end.
                expected = tuple(
                    min(rows, n - start) if dim == ROW else n
                    for dim, n in zip(held.dims, array.shape, strict=True)
                )
                if array.dtype != values.dtype or expected != values.shape:
                    raise ValueError(
                        f"{name}/{variable} of rows {start} to {start + rows - 1} is "
                        f"{values.dtype} of shape {values.shape}, and of the first rows "
                        f"{array.dtype} of shape {expected}: explain these rows by themselves"
                    )
                array[where] = values

    def finish(self, means: Mapping[str, np.ndarray]) -> None:
        """Write means over all rows by `group/name`, and the list of all arrays."""
        zarr = extra_library("zarr", EXTRA)
        root = self._open("r+")
        for name, values in means.items():
            root[name][...] = values
        zarr.consolidate_metadata(str(self.path))

    def _open(self, mode: str) -> Any:
        zarr = extra_library("zarr", EXTRA)
        return zarr.open_group(str(self.path), mode=mode, zarr_format=2)


def _plain(attrs: Mapping[Any, Any]) -> dict[str, Any]:
    """Attributes as JSON has them."""
    return {str(n): v.item() if isinstance(v, np.generic) else v for n, v in attrs.items()}
