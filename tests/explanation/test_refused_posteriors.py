"""Posterior files are read as they were written, or refused by name before HDF5 sees them."""

import arviz
import numpy as np
import pytest
import xarray as xr

from lexppl.arviz_compatibility import group_names, group_of, posterior_of
from lexppl.explanation import load_posterior, posterior_files, save_posterior
from lexppl.saving import UnreadableFileError
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
