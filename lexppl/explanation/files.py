"""Posteriors as netCDF files."""

import os
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import xarray as xr

from lexppl.arviz_compatibility import Posterior, group_names, group_of
from lexppl.atomic_output import output_file, write_through


def save_posterior(posterior: Posterior, path: str | os.PathLike[str]) -> Path:
    """Write a posterior to a netCDF file, which `arviz.from_netcdf(path)` reads.

    The file is made in memory, written aside and then renamed, so that there is either the whole of
    it or what was there before, and a full disk is an error. A file written with ArviZ 0.2x is read
    by ArviZ 1.x and the other way round.

    Args:
        posterior: what :func:`explain` returned.
        path: the file; its folder must exist.

    Returns:
        the path.

    Raises:
        TypeError: not a posterior.
        ValueError: the folder is not there, or the path is a folder.
        OSError: the file cannot be written.

    Example:
        >>> import tempfile, xarray as xr
        >>> from lexppl.arviz_compatibility import posterior_of
        >>> posterior = posterior_of({"observed_data": xr.Dataset({"y": ("row", [0, 1])})}, {})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_posterior(posterior, f"{folder}/posterior.nc").name
        'posterior.nc'
    """
    groups = {name: group_of(posterior, name) for name in group_names(posterior)}
    path = Path(path)
    if not path.parent.is_dir():
        raise ValueError(f"path: the folder {path.parent} is not there; create it first")
    if path.is_dir():
        raise ValueError(f"path must be a file; {path} is a folder")
    content = _netcdf(posterior.attrs, groups)
    with output_file(path, overwrite=True) as aside:
        write_through(aside, content)
    return path


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
