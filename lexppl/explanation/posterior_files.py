"""Posteriors as files: netCDF with a checksum, and Zarr stores that are written part by part."""

import json
import os
import re
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray as xr

from lexppl.arviz_compatibility import Posterior, group_names, group_of, posterior_of
from lexppl.extras import extra_library
from lexppl.sealed_files import (
    UnreadableFileError,
    checksum,
    checksum_of,
    read_sealed,
    refuse_changed,
    refuse_other_format,
    refused_by_name,
    write_sealed,
    write_whole,
    written_checksum,
)

FORMAT = 1
# The end of a file: the format, and the checksum of what stands before.
TRAILER = re.compile(rb"\nlexppl posterior, format (\d{1,9}), sha256 ([0-9a-f]{64})\n\Z")
LONGEST_TRAILER = 120
MOST_UNPACKED = 1032  # Bytes that a byte of zlib's holds at most


def save_posterior(posterior: Posterior, path: str | os.PathLike[str]) -> Path:
    """Write a posterior to a netCDF file, which `arviz.from_netcdf(path)` of any version reads.

    The file is made in memory, written aside and then renamed. Behind what netCDF reads stands a
    line with the SHA-256 of the file, which :func:`load_posterior` checks.

    Args:
        posterior: what :func:`explain` returned.
        path: the file; its folder must exist.

    Returns:
        the path.

    Raises:
        TypeError: not a posterior.
        ValueError: the folder is not there, or the path is a folder.
        OSError: the file cannot be written.
    """
    groups = {name: group_of(posterior, name) for name in group_names(posterior)}
    path = Path(path)
    if not path.parent.is_dir():
        raise ValueError(f"path: the folder {path.parent} is not there; create it first")
    if path.is_dir():
        raise ValueError(f"path must be a file; {path} is a folder")
    content = _netcdf(posterior.attrs, groups)
    seal = f"\nlexppl posterior, format {FORMAT}, sha256 {checksum_of(content)}\n"
    write_whole(path, b"".join([content, seal.encode()]))
    return path


def load_posterior(path: str | os.PathLike[str]) -> Posterior:
    """Read a posterior that :func:`save_posterior` wrote, as the installed ArviZ holds it, in
    memory.

    The checksum is compared before HDF5's C library sees a byte. It is no signature: a file made to
    harm can have one that fits. Files without one are for `arviz.from_netcdf`.

    Raises:
        FileNotFoundError: no such file.
        lexppl.saving.UnreadableFileError: a `ValueError` that names the file: damaged, cut short,
            changed, or of another version.

    Example:
        >>> import tempfile, xarray as xr
        >>> from lexppl.arviz_compatibility import posterior_of
        >>> posterior = posterior_of({"observed_data": xr.Dataset({"y": ("row", [0, 1])})}, {})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     again = load_posterior(save_posterior(posterior, f"{folder}/posterior.nc"))
        >>> group_of(again, "observed_data")["y"].values
        array([0, 1])
    """
    path = Path(path)
    content = path.read_bytes()
    trailer = TRAILER.search(content, max(0, len(content) - LONGEST_TRAILER))
    if trailer is None:
        raise UnreadableFileError(
            path,
            "it does not end with the checksum that save_posterior writes, so it was cut short or "
            "changed, or is another program's or an older version's: if it is to be trusted, read "
            "it by arviz.from_netcdf",
        )
    refuse_other_format(path, int(trailer[1]), FORMAT)
    written = memoryview(content)[: trailer.start()]
    refuse_changed(path, checksum_of(written), trailer[2].decode())
    with refused_by_name(path):
        return _read(BytesIO(written))


def _read(file: BytesIO) -> Posterior:
    with h5py.File(file) as held:
        # Before coordinates, which are read on opening.
        if (declared := _declared(held)) > MOST_UNPACKED * file.getbuffer().nbytes:
            raise ValueError(f"it declares {declared:,} bytes of values, more than it can hold")
    opened = xr.open_groups(file, engine="h5netcdf")
    try:
        groups = {str(name).strip("/"): group.load() for name, group in opened.items()}
    finally:
        for group in opened.values():
            group.close()
    return posterior_of(groups, groups.pop("").attrs)


def _declared(group: Any) -> int:
    """Bytes of all values below a group of HDF5, as often as names lead to them."""
    parts = group.values()
    return sum(_declared(p) if isinstance(p, h5py.Group) else int(p.nbytes) for p in parts)


def _netcdf(attrs: Mapping[str, Any], groups: Mapping[str, xr.Dataset]) -> memoryview:
    """The file as it shall be: made in memory, as HDF5 ends the process where a disk is full."""
    file = BytesIO()
    xr.Dataset(attrs=attrs).to_netcdf(file, mode="w", engine="h5netcdf")
    for name, group in groups.items():
        encoding = {
            variable: {"zlib": True, "complevel": 1}
            for variable, values in group.data_vars.items()
            if values.ndim
        }
        group.to_netcdf(file, mode="a", group=name, engine="h5netcdf", encoding=encoding)
    return file.getbuffer()


EXTRA = "dask"
ROW = "row"
# Where xarray looks for the names of an array's dimensions, in stores of the second format, which
# all versions of Zarr read.
DIMENSIONS = "_ARRAY_DIMENSIONS"
RUN = "run.json"  # What a store was made of
FILES, FILES_FORMAT = "files.json", 1  # The store's list of its files, with their checksums


def open_posterior(path: str | Path, chunks: Any = None) -> Posterior:
    """Open a posterior that :func:`explain_to_zarr` wrote; values are read when they are used.

    Each file of the store is compared with its checksum first, which reads all of them once.

    Args:
        path: the store.
        chunks: None for numpy arrays; `{}` for Dask arrays of the store's own chunks.

    Returns:
        `arviz.InferenceData` with ArviZ 0.2x, `xarray.DataTree` with ArviZ 1.x.

    Raises:
        FileNotFoundError: no store there.
        ImportError: Zarr is not installed.
        lexppl.saving.UnreadableFileError: a `ValueError` that names the file: missing, damaged or
            changed, or a store without a list of its files.
    """
    extra_library("zarr", EXTRA)
    path = Path(path)
    if not any((path / name).is_file() for name in (".zgroup", FILES)):
        raise FileNotFoundError(f"there is no Zarr store {str(path)!r}")
    has_list = (path / FILES).is_file()
    with refused_by_name(path / FILES):
        files = {**read_sealed(path / FILES, FILES_FORMAT)["files"]} if has_list else {FILES: ""}
    for name, written in files.items():
        if not (path / name).is_file():
            raise UnreadableFileError(
                path / name,
                "it is missing: take it from a copy, or, if the store is another program's or an "
                'older one and trusted, read that by xarray.open_datatree(path, engine="zarr")',
            )
        refuse_changed(path / name, checksum(path / name), written)
    with refused_by_name(path):
        tree = xr.open_datatree(path, engine="zarr", chunks=chunks)
    groups = {str(name): group.to_dataset() for name, group in tree.children.items()}
    return posterior_of(groups, {str(name): value for name, value in tree.attrs.items()})


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
        self._checksums()

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
                    for name in (".zarray", ".zattrs"):
                        written_checksum(self.path / array.path / name)

    def write(self, groups: Mapping[str, xr.Dataset], start: int) -> dict[str, str]:
        """Write a chunk of rows from number `start` on, and wait until the disk has it; its files'
        checksums. Refuses arrays unlike those of the first rows."""
        root, files = self._open("r+"), {}
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
                place = [dim == ROW and start // array.chunks[d] for d, dim in enumerate(held.dims)]
                file = f"{name}/{variable}/{'.'.join(f'{n:d}' for n in place)}"
                # Of zeros alone there is no file.
                if (self.path / file).is_file():
                    files[file] = written_checksum(self.path / file)
        return files

    def finish(
        self, means: Mapping[str, np.ndarray], files: Mapping[str, str], run: Mapping[str, Any]
    ) -> None:
        """Write means over all rows by `group/name`, the list of all arrays, what the run is, and
        the list of all files with their checksums, which the chunks' `files` have."""
        zarr = extra_library("zarr", EXTRA)
        root = self._open("r+")
        for name, values in means.items():
            root[name][...] = values
        for left in self.path.iterdir():
            if left.is_file() and not left.name.startswith(".z"):
                left.unlink()  # A run was killed at its end.
        zarr.consolidate_metadata(str(self.path))
        (self.path / RUN).write_text(json.dumps(run, indent=1), encoding="utf-8")
        checksums = {**self._checksums(), **files}
        write_sealed(self.path / FILES, {"format": FILES_FORMAT, "files": checksums})

    def _checksums(self) -> dict[str, str]:
        """Wait until the disk has all files; their checksums."""
        files = (file for file in self.path.rglob("*") if file.is_file())
        return {f.relative_to(self.path).as_posix(): written_checksum(f) for f in files}

    def _open(self, mode: str) -> Any:
        return extra_library("zarr", EXTRA).open_group(str(self.path), mode=mode, zarr_format=2)


def _plain(attrs: Mapping[Any, Any]) -> dict[str, Any]:
    """Attributes as JSON has them."""
    return {str(n): v.item() if isinstance(v, np.generic) else v for n, v in attrs.items()}
