"""Stores of posteriors are read as they were written, or refused by the name of a file."""

import errno
import json
import os
import random
import shutil

import pytest

from lexppl.explanation import explain_to_zarr, open_posterior
from lexppl.saving import UnreadableFileError
from lexppl.sealed_files import write_sealed
from tests.explanation.many_rows.fitted import assert_same, fitted, rows
from tests.refusals import refused

pytest.importorskip("zarr", reason="the extra 'dask' is not installed")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("stores") / "posterior.zarr"
    x, y = (column[:1500] for column in rows())
    given = {"draws": 2, "seed": 5, "rows_per_chunk": 1000, "progress": False}
    return explain_to_zarr(fitted(), (x, y), path, with_y=True, **given)


def files_of(store):
    return sorted(path for path in store.rglob("*") if path.is_file())


def is_refused(store, file):
    """Whether the store is refused in a line with the file's name."""
    error = refused("cannot be read", open_posterior, store, error=UnreadableFileError)
    return "\n" not in str(error) and error.path == file


DAMAGES = 500


@pytest.mark.complete(but=40)
@pytest.mark.parametrize("seed", range(DAMAGES))
def test_a_store_with_one_byte_changed_is_refused_by_name(whole, tmp_path, seed):
    chance = random.Random(seed)
    store = shutil.copytree(whole, tmp_path / "store")
    file = chance.choice(files_of(store))
    content = bytearray(file.read_bytes())
    at = chance.randrange(len(content))
    content[at] ^= chance.randrange(1, 256)
    file.write_bytes(content)
    assert is_refused(store, file)


def test_a_store_without_any_one_of_its_files_is_refused_by_name(whole, tmp_path):
    store = shutil.copytree(whole, tmp_path / "store")
    files = files_of(store)
    assert len(files) > 40
    for file in files:
        content = file.read_bytes()
        file.unlink()
        assert is_refused(store, file)
        file.write_bytes(content)
    assert_same(open_posterior(store), open_posterior(whole))


def test_a_store_of_a_newer_format_is_refused(whole, tmp_path):
    store = shutil.copytree(whole, tmp_path / "store")
    write_sealed(store / "files.json", {"format": 2, "files": {}})
    refused("in format 2, and this", open_posterior, store, error=UnreadableFileError)


def test_a_chunk_is_on_the_disk_before_it_is_marked_as_done(tmp_path, monkeypatch):
    synced, marked = {}, []
    fsync, replace = os.fsync, os.replace

    def fsynced(number):
        fsync(number)
        synced[os.fstat(number).st_ino] = os.fstat(number).st_size

    def replaced(aside, target):
        if str(target).endswith(".npz"):
            files = files_of(target.parent / "posterior.zarr")
            marked.append(len(files))
            late = [f for f in files if synced.get(f.stat().st_ino) != f.stat().st_size]
            assert late == []
        replace(aside, target)

    monkeypatch.setattr(os, "fsync", fsynced)
    monkeypatch.setattr(os, "replace", replaced)
    x = rows()[0][:2500]
    given = {"draws": 2, "rows_per_chunk": 1000, "progress": False}
    explain_to_zarr(fitted(), x.split(500), tmp_path / "posterior.zarr", **given)
    assert len(marked) == 3 and marked == sorted({*marked})


def test_a_full_disk_names_the_store(tmp_path, monkeypatch):
    zarr = pytest.importorskip("zarr")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(zarr.Array, "__setitem__", full)
    store = tmp_path / "posterior.zarr"
    given = {"draws": 2, "progress": False, "error": OSError}
    error = refused("No space left", explain_to_zarr, fitted(), rows()[0][:1500], store, **given)
    assert (error.errno, error.filename) == (errno.ENOSPC, str(store))


def test_a_damaged_file_of_a_run_that_goes_on_is_named(tmp_path, monkeypatch):
    given = {"draws": 2, "rows_per_chunk": 1000, "progress": False}
    x = rows()[0][:1500]
    store = tmp_path / "posterior.zarr"

    def ended():
        yield x[:1000]
        raise KeyboardInterrupt

    aside = tmp_path / "posterior.zarr.partial"
    with pytest.raises(KeyboardInterrupt):
        explain_to_zarr(fitted(), ended(), store, **given)
    for name in ("run.json", "00000000.npz"):
        content = (aside / name).read_bytes()
        (aside / name).write_bytes(content[:40])
        error = refused(
            "cannot be read", explain_to_zarr, fitted(), x.split(500), store, **given,
            error=UnreadableFileError,
        )  # fmt: skip
        assert error.path == aside / name
        (aside / name).write_bytes(content)
    # A file that changes between the mark and the end is named when the store is opened.
    chunk = next(f for f in files_of(aside / "posterior.zarr") if f.name == "0.0.0.0")
    chunk.write_bytes(chunk.read_bytes()[:-1])
    explain_to_zarr(fitted(), x.split(500), store, **given)
    assert is_refused(store, store / chunk.relative_to(aside / "posterior.zarr"))
    assert json.loads((store / "files.json").read_text())["format"] == 1
