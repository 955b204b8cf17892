"""Posteriors as netCDF files, with a checksum behind the last byte that netCDF reads."""

import os
import re
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import xarray as xr

from lexppl.arviz_compatibility import Posterior, attrs_of, group_names, group_of, posterior_of
from lexppl.atomic_output import output_file, write_through
from lexppl.sealed_files import (
    UnreadableFileError,
    checksum_of,
    refuse_changed,
    refuse_formats,
    refused_by_name,
)

FORMAT = 1
TRAILER = re.compile(rb"\nlexppl posterior, format (\d{1,9}), sha256 ([0-9a-f]{64})\n\Z")
"""The end of a file: the format, and the checksum of what stands before."""
LONGEST_TRAILER = 120


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
    content = _netcdf(attrs_of(posterior), groups)
    seal = f"\nlexppl posterior, format {FORMAT}, sha256 {checksum_of(content)}\n"
    with output_file(path, overwrite=True) as aside:
        write_through(aside, b"".join([content, seal.encode()]))
    return path


def load_posterior(path: str | os.PathLike[str]) -> Posterior:
    """Read a posterior that :func:`save_posterior` wrote, as the installed ArviZ holds it, in
    memory.

    The checksum is compared before HDF5's C library sees a byte. It is no signature: a file made to
    harm can have one that fits. Files without one are for `arviz.from_netcdf`.

    Raises:
        FileNotFoundError: no such file.
        lexppl.saving.UnreadableFileError: a `ValueError` that names the file: damaged, cut short,
            changed, or of a newer version.

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
    refuse_formats(path, int(trailer[1]), FORMAT, is_whole=True)
    written = memoryview(content)[: trailer.start()]
    refuse_changed(path, checksum_of(written), trailer[2].decode())
    with refused_by_name(path):
        return _read(BytesIO(written))


def _read(file: BytesIO) -> Posterior:
    found = xr.open_groups(file, engine="h5netcdf")
    try:
        groups = {str(name).strip("/"): group.load() for name, group in found.items()}
    finally:
        for group in found.values():
            group.close()
    return posterior_of(groups, groups.pop("").attrs)


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
