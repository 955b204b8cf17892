"""Posterior files are read as they were written, or refused by name before HDF5 sees them."""

import errno
from io import BytesIO
from pathlib import Path

import arviz
import h5netcdf
import numpy as np
import pytest
import xarray as xr

from lexppl.arviz_compatibility import group_names, group_of, posterior_of
from lexppl.explanation import load_posterior, posterior_files, save_posterior
from lexppl.saving import UnreadableFileError
from lexppl.sealed_files import checksum_of
from tests.refusals import refused
from tests.saving.test_refused_files import assert_damage_is_refused

DRAWS = np.random.default_rng(0).random((2, 60, 5, 3))


def posterior():
    names = {"feature": ["age", "größe", "job"], "row": np.arange(5)}
    draws = xr.Dataset({"importance": (("chain", "draw", "row", "feature"), DRAWS)}, coords=names)
    observed = xr.Dataset({"y": ("row", np.arange(5))}, attrs={"levels": '{"job": ["a"]}'})
    return posterior_of({"posterior": draws, "observed_data": observed}, {"seed": 3})


@pytest.fixture
def path(tmp_path):
    return save_posterior(posterior(), tmp_path / "posterior.nc")


@pytest.mark.smoke
def test_it_comes_back_as_it_was(path):
    again, before = load_posterior(path), posterior()
    assert type(again) is type(before)
    assert group_names(again) == group_names(before)
    assert again.attrs["seed"] == 3
    for name in group_names(before):
        xr.testing.assert_identical(group_of(again, name), group_of(before, name))
    # Nothing holds the file.
    path.write_bytes(path.read_bytes())
    path.unlink()


def test_200_damaged_posteriors_are_refused_by_name(path):
    assert_damage_is_refused(path, load_posterior)
    read = group_of(load_posterior(path), "posterior")
    assert np.array_equal(read["importance"].values, DRAWS)


@pytest.mark.parametrize("of_coordinate", [False, True])
def test_values_that_no_file_of_its_size_holds_are_refused_before_they_have_memory(
    path, of_coordinate
):
    """A file of kilobytes, of a checksum that fits, with 80 GB of values that it does not have, of
    which coordinates are read as a file is opened."""
    file = BytesIO()
    with h5netcdf.File(file, "w") as written:
        written.dimensions = {"row": 10**10} if of_coordinate else {"row": 10**6, "draw": 10**4}
        large = {"chunks": (10**6,) if of_coordinate else (1000, 1000), "compression": "gzip"}
        name = "row" if of_coordinate else "mask"
        written.create_variable(f"/posterior/{name}", tuple(written.dimensions), "f8", **large)
    content = file.getvalue()
    assert len(content) < 100_000
    seal = f"\nlexppl posterior, format 1, sha256 {checksum_of(content)}\n"
    path.write_bytes(content + seal.encode())
    words = r"declares (80|120),\d{3},\d{3},\d{3} bytes of values, more than it can hold"
    refused(words, load_posterior, path, error=UnreadableFileError)


def test_a_full_disk_names_the_file(tmp_path, monkeypatch):
    given = Path.write_bytes

    def full(path, content):
        given(path, content[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    path = tmp_path / "posterior.nc"
    error = refused("No space left", save_posterior, posterior(), path, error=OSError)
    assert (error.errno, error.filename) == (errno.ENOSPC, str(path))
    assert list(tmp_path.iterdir()) == []


def test_a_newer_format_says_what_to_do(path):
    content = path.read_bytes().replace(b"posterior, format 1", b"posterior, format 2")
    path.write_bytes(content)
    refused(
        r"in format 2, and this version reads format 1",
        load_posterior,
        path,
        error=UnreadableFileError,
    )


def test_a_file_of_before_is_arviz_s(path):
    """Without a checksum nothing is said of it; what to do is."""
    whole = path.read_bytes()
    path.write_bytes(whole[: posterior_files.TRAILER.search(whole).start()])
    refused(r"read it by arviz.from_netcdf", load_posterior, path, error=UnreadableFileError)
    assert "posterior" in group_names(arviz.from_netcdf(path))
