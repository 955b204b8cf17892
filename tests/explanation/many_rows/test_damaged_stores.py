"""Stores of posteriors are read as they were written, or refused by the name of a file."""

import errno
import gc
import json
import os
import random
import shutil
import sys
from functools import partial

import pytest

from lexppl.explanation import explain_to_zarr, open_posterior
from lexppl.saving import UnreadableFileError
from lexppl.sealed_files import checksum, write_sealed
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


SHARDS, DAMAGES = 10, 50


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_store_with_one_byte_changed_is_refused_by_name(whole, tmp_path, shard):
    chance = random.Random(shard)
    store = shutil.copytree(whole, tmp_path / "store")
    files = files_of(store)
    for _ in range(DAMAGES):
        file = chance.choice(files)
        content = file.read_bytes()
        damaged = bytearray(content)
        damaged[chance.randrange(len(content))] ^= chance.randrange(1, 256)
        file.write_bytes(damaged)
        assert is_refused(store, file)
        file.write_bytes(content)
    assert_same(open_posterior(store), open_posterior(whole))


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
    for other in ({}, {"files": [1]}, {"files": "x"}):
        write_sealed(store / "files.json", {"format": 1, **other})
        error = refused("cannot be read", open_posterior, store, error=UnreadableFileError)
        assert error.path == store / "files.json" and "\n" not in str(error)


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


@pytest.mark.filterwarnings(
    "error::ResourceWarning", "error::pytest.PytestUnraisableExceptionWarning"
)
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
    (mark,) = aside.glob("*/00000000.npz")
    for file in (aside / "run.json", mark):
        content = file.read_bytes()
        file.write_bytes(content[:40])
        error = refused(
            "cannot be read", explain_to_zarr, fitted(), x.split(500), store, **given,
            error=UnreadableFileError,
        )  # fmt: skip
        assert error.path == file
        file.write_bytes(content)
        del error
        gc.collect()  # A file that is left open warns here.
    # A file that changes between the mark and the end is named when the store is opened.
    whole = mark.parent / "posterior.zarr"
    chunk = next(f for f in files_of(whole) if f.name == "0.0.0.0")
    chunk.write_bytes(chunk.read_bytes()[:-1])
    explain_to_zarr(fitted(), x.split(500), store, **given)
    assert is_refused(store, store / chunk.relative_to(whole))
    assert json.loads((store / "files.json").read_text())["format"] == 1


GIVEN = {"draws": 2, "rows_per_chunk": 1000, "progress": False}


def test_a_store_that_another_run_writes_is_refused_in_a_line(tmp_path):
    store, met = tmp_path / "posterior.zarr", []
    x = rows()[0][:1500]

    def chunks():
        yield x[:1200]
        for change in ({}, {"overwrite": True}, {"seed": 1}):
            refusal = partial(refused, "writes there: wait for it", error=BlockingIOError)
            error = refusal(explain_to_zarr, fitted(), x.split(500), store, **GIVEN, **change)
            met.append(error.filename)
        yield x[1200:]

    explain_to_zarr(fitted(), chunks(), store, **GIVEN)
    assert met == [f"{store}.partial"] * 3
    alone = explain_to_zarr(fitted(), x, tmp_path / "alone.zarr", **GIVEN)
    assert_same(open_posterior(store), open_posterior(alone))
    assert {path.name for path in tmp_path.iterdir()} == {"posterior.zarr", "alone.zarr"}


def test_chunks_of_which_no_note_says_what_run_they_are_are_thrown_away(tmp_path):
    store, x = tmp_path / "posterior.zarr", rows()[0][:1500]
    alone = explain_to_zarr(fitted(), x, tmp_path / "alone.zarr", seed=2, **GIVEN)

    def ended():
        yield x[:1200]
        raise KeyboardInterrupt

    for note in (None, "[]", "{}"):
        with pytest.raises(KeyboardInterrupt):
            explain_to_zarr(fitted(), ended(), store, seed=1, **GIVEN)
        file = tmp_path / "posterior.zarr.partial" / "run.json"
        file.unlink() if note is None else file.write_text(note)
        call = partial(explain_to_zarr, fitted(), x, store, seed=2, **GIVEN)
        if note == "[]":
            refused("run.json cannot be read", call)
        if note == "{}":
            refused("chunks of another run", call)
        if note is not None:
            file.unlink()
        assert_same(open_posterior(call()), open_posterior(alone))
        shutil.rmtree(store)


@pytest.mark.filterwarnings("error")
def test_a_run_that_was_killed_at_its_end_goes_on_to_a_whole_store(tmp_path, monkeypatch):
    store, x = tmp_path / "posterior.zarr", rows()[0][:1500]
    chunks = sys.modules["lexppl.explanation.explain_to_zarr"]

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(chunks, "put_folder", killed)
        explain_to_zarr(fitted(), x, store, **GIVEN)
    (aside,) = tmp_path.glob("*.partial/*/posterior.zarr")
    (aside / ".files.json-0123456789ab.partial").write_text("{")
    explain_to_zarr(fitted(), x, store, **GIVEN)
    alone = explain_to_zarr(fitted(), x, tmp_path / "alone.zarr", **GIVEN)
    assert_same(open_posterior(store), open_posterior(alone))
    assert not [*store.glob("*.partial")]


@pytest.mark.skipif(os.name != "posix", reason="no such locks")
def test_the_store_that_was_there_comes_back_after_a_kill_between_two_renames(tmp_path):
    store, x = tmp_path / "posterior.zarr", rows()[0][:1500]
    explain_to_zarr(fitted(), x, store, **GIVEN)
    store.rename(tmp_path / ".posterior.zarr-0123456789ab.earlier")
    refused("give overwrite=True", explain_to_zarr, fitted(), x, store, seed=1, **GIVEN,
            error=FileExistsError)  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == ["posterior.zarr"]
    open_posterior(store)


def test_a_store_that_declares_more_than_there_is_memory_for_is_refused(whole, tmp_path):
    """Of checksums that fit: coordinates are read as a store is opened."""
    store = shutil.copytree(whole, tmp_path / "store")
    metadata = json.loads((store / ".zmetadata").read_text())
    for name, array in metadata["metadata"].items():
        if name.endswith("/row/.zarray"):
            array["shape"] = array["chunks"] = [2**50]
            (store / name).write_text(json.dumps(array))
    (store / ".zmetadata").write_text(json.dumps(metadata))
    listed = json.loads((store / "files.json").read_text())["files"]
    write_sealed(
        store / "files.json",
        {"format": 1, "files": {name: checksum(store / name) for name in listed}},
    )
    error = refused("cannot be read", open_posterior, store, error=UnreadableFileError)
    assert "\n" not in str(error)


def test_what_a_process_of_another_run_still_writes_is_not_this_run_s(tmp_path, monkeypatch):
    """It belonged to a run that was killed, and ends its chunk when the next one has begun."""
    x, store = rows()[0][:2500], tmp_path / "posterior.zarr"
    chunks = sys.modules["lexppl.explanation.explain_to_zarr"]
    original, others = chunks.ChunkTask.write, []

    def ended(self, number, *given):
        original(self, number, *given)
        others.append(self)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(chunks.ChunkTask, "write", ended)
        explain_to_zarr(fitted(), x, store, seed=1, **GIVEN)

    def beside(self, number, piece, *given):
        original(self, number, piece, *given)
        if number == 0:
            original(others[0], 1, x[1000:2000], chunks.fingerprint(x[1000:2000]), 2500)

    with monkeypatch.context() as patch:
        patch.setattr(chunks.ChunkTask, "write", beside)
        explain_to_zarr(fitted(), x, store, seed=2, overwrite=True, **GIVEN)
    alone = explain_to_zarr(fitted(), x, tmp_path / "alone.zarr", seed=2, **GIVEN)
    assert_same(open_posterior(store), open_posterior(alone))
    assert {path.name for path in tmp_path.iterdir()} == {"posterior.zarr", "alone.zarr"}
