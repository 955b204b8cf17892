"""Posterior files are read as they were written, or refused by name before HDF5 sees them."""

import hashlib
import random
import subprocess
import sys
from io import BytesIO

import arviz
import h5netcdf
import numpy as np
import pytest
import xarray as xr

from lexppl.arviz_compatibility import group_names, group_of, posterior_of
from lexppl.explanation import load_posterior, save_posterior
from lexppl.explanation.layout import files
from lexppl.saving import UnreadableFileError
from tests.saving.test_refused_files import MUTATIONS, mutated

DRAWS = np.random.default_rng(0).random((2, 60, 5, 3))


def posterior():
    names = {"feature": ["age", "größe", "job"], "row": np.arange(5)}
    draws = xr.Dataset({"importance": (("chain", "draw", "row", "feature"), DRAWS)}, coords=names)
    observed = xr.Dataset({"y": ("row", np.arange(5))}, attrs={"levels": '{"job": ["a"]}'})
    return posterior_of({"posterior": draws, "observed_data": observed}, {"seed": 3})


@pytest.fixture
def path(tmp_path):
    return save_posterior(posterior(), tmp_path / "posterior.nc")


def sealed(content):
    """A file whose checksum fits, whatever stands in it."""
    return files._with_trailer(memoryview(content))


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


def test_arviz_reads_it_as_ever(path):
    group = group_of(arviz.from_netcdf(path), "posterior").load()
    assert np.array_equal(group["importance"].values, DRAWS)


def test_200_damaged_posteriors_are_refused_by_name(path):
    chance = random.Random(0)
    whole = path.read_bytes()
    unnoticed = []
    for count in range(MUTATIONS):
        content = whole
        while content == whole:
            content = mutated(whole, chance)
        path.write_bytes(content)
        try:
            load_posterior(path)
            unnoticed.append(count)
        except UnreadableFileError as error:
            assert "\n" not in str(error)
            assert str(path) in str(error)
    assert not unnoticed
    path.write_bytes(whole)
    read = group_of(load_posterior(path), "posterior")
    assert np.array_equal(read["importance"].values, DRAWS)


PROGRAM = """
import random, sys
from pathlib import Path
from lexppl.explanation import load_posterior
from lexppl.explanation.layout import files
from lexppl.saving import UnreadableFileError
from tests.saving.test_refused_files import mutated
path = Path(sys.argv[1])
whole = path.read_bytes()
end = files.TRAILER.search(whole).start()
chance, refused = random.Random(1), 0
for _ in range(100):
    path.write_bytes(files._with_trailer(memoryview(mutated(whole[:end], chance))))
    try:
        load_posterior(path)
    except UnreadableFileError as error:
        refused += 1
        assert "\\n" not in str(error) and str(path) in str(error)
print("refused", refused)
"""


@pytest.mark.complete
def test_damage_that_its_checksum_fits_is_an_error_of_the_library_too(path):
    """What HDF5 itself notices; in a process of its own, as its C library may end that."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)],
        capture_output=True,
        check=False,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.split()[-1]) > 30


def test_more_numbers_than_the_file_can_hold_are_refused(tmp_path):
    """A variable of 80 TB of which no byte is written."""
    file = BytesIO()
    with h5netcdf.File(file, "w") as made:
        group = made.create_group("posterior")
        group.dimensions = {"draw": 10**13}
        group.create_variable("mask", ("draw",), float, chunks=(1000,))
    path = tmp_path / "posterior.nc"
    path.write_bytes(sealed(file.getvalue()))
    with pytest.raises(UnreadableFileError, match="more numbers than a file of its size"):
        load_posterior(path)


def test_a_newer_format_says_what_to_do(path):
    content = path.read_bytes().replace(b"posterior, format 1", b"posterior, format 2")
    path.write_bytes(content)
    with pytest.raises(UnreadableFileError, match=r"format 2.*update lexppl"):
        load_posterior(path)


def test_a_file_of_before_is_arviz_s(path):
    """Without a checksum nothing is said of it; what to do is."""
    whole = path.read_bytes()
    path.write_bytes(whole[: files.TRAILER.search(whole).start()])
    with pytest.raises(UnreadableFileError, match=r"read it by arviz.from_netcdf"):
        load_posterior(path)
    assert "posterior" in group_names(arviz.from_netcdf(path))


def test_the_checksum_is_of_what_netcdf_reads(path):
    whole = path.read_bytes()
    trailer = files.TRAILER.search(whole)
    assert hashlib.sha256(whole[: trailer.start()]).hexdigest() == trailer[2].decode()


def test_no_such_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_posterior(tmp_path / "posterior.nc")
