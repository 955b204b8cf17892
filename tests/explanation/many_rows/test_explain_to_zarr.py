"""Rows explained chunk by chunk are those explained at once, whatever the chunks."""

import errno
import gc
import json
import os
import random
import shutil
import sys
from functools import partial

import numpy as np
import pandas as pd
import pytest

from lexppl import explain, fit, load, save
from lexppl.arviz_compatibility import group_names, group_of
from lexppl.data import TableEncoding, read_table
from lexppl.explanation import explain_to_zarr, open_posterior
from lexppl.explanation.posterior_files import ZarrPosterior
from lexppl.saving import UnreadableFileError
from lexppl.sealed_files import checksum, write_sealed
from lexppl.systems import lex, q_fit
from tests.explanation.many_rows.fitted import ROWS, assert_same, fitted, rows
from tests.processes import kill
from tests.refusals import over, refused

pytest.importorskip("zarr", reason="the extra 'dask' is not installed")
MODULE = sys.modules["lexppl.explanation.posterior_files"]


def written(folder, given=None, name="posterior.zarr", result=None, **settings):
    settings = {"draws": 3, "progress": False, "seed": 5, **settings}
    given = rows()[0] if given is None else given
    path = explain_to_zarr(result or fitted(), given, folder / name, **settings)
    return open_posterior(path)


def test_a_table_of_one_block_is_explained_as_at_once(tmp_path):
    x, y = (column[:700] for column in rows())
    found = written(tmp_path, (x, y), with_y=True)
    at_once = explain(fitted(), x, y, draws=3, seed=5)
    assert_same(found, at_once)
    other = explain(fitted(), x, y, draws=3, seed=6)
    assert (group_of(other, "predictions")["mask"] != group_of(found, "predictions")["mask"]).any()


def test_a_saved_explainer_explains_the_same(tmp_path):
    save(fitted(), tmp_path / "explainer")
    saved = load(tmp_path / "explainer")
    x = rows()[0][:1200]
    assert_same(written(tmp_path, x), written(tmp_path, x, "saved", result=saved))


@pytest.mark.smoke
def test_without_draws_all_rows_are_explained_as_at_once(tmp_path):
    x = rows()[0]
    found = written(tmp_path, draws=None)
    at_once = explain(fitted(), x, draws=0, seed=5)
    assert_same(found, at_once)


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("with_y", [False, True])
def test_the_numbers_are_the_same_whatever_the_chunks(tmp_path, with_y):
    x, y = rows()
    given = (x, y) if with_y else x
    first = written(tmp_path, given, rows_per_chunk=1000, with_y=with_y)
    assert_same(first, written(tmp_path, given, "larger", rows_per_chunk=2000, with_y=with_y))
    pieces = [(x[s : s + 470], y[s : s + 470]) for s in range(0, ROWS, 470)]
    parts = iter(pieces) if with_y else (part for part, _ in pieces)
    assert_same(first, written(tmp_path, parts, "pieces", with_y=with_y))


def test_means_over_rows_are_of_all_rows(tmp_path):
    prior = group_of(written(tmp_path, rows_per_chunk=1000), "predictions")
    expected = prior["mask"].mean("row", dtype=np.float64).values
    np.testing.assert_allclose(prior["importance"].values, expected, rtol=1e-12)
    assert prior["row"].values.tolist() == list(range(ROWS))


def test_draws_of_every_block_follow_their_probability_and_differ_between_blocks(tmp_path):
    x = rows()[0][:1000].repeat(3, 1)
    found = written(tmp_path, x, rows_per_chunk=1000, draws=40)
    mask = group_of(found, "predictions")["mask"].values[0]
    stats = group_of(found, "sample_stats")
    p = stats["selection_probability"].values[0].astype(np.float64)
    for block in range(3):
        these = slice(1000 * block, 1000 * (block + 1))
        error = np.sqrt((p[these] * (1 - p[these])).sum() * len(mask))
        z = (mask[:, these].sum() - len(mask) * p[these].sum()) / error
        assert abs(z) < 4
    # The same rows in another place: equal probabilities, other draws.
    assert np.array_equal(p[:1000], p[1000:2000])
    assert not np.array_equal(mask[:, :1000], mask[:, 1000:2000])
    assert not np.array_equal(mask[:, 1000:2000], mask[:, 2000:])


@pytest.mark.complete
def test_what_all_rows_share_is_drawn_once(tmp_path):
    x, y = rows()
    result = fit(
        q_fit(4, black_box=fitted().model.predictor, scope="global"),
        (x[:200], y[:200]),
        epochs=1,
        progress=False,
    )
    one = written(tmp_path, result=result, rows_per_chunk=1000)
    assert_same(one, written(tmp_path, result=result, name="other", rows_per_chunk=3000))
    few = explain(result, x[:1000], draws=3, seed=5)
    drawn = group_of(few, "posterior").data_vars.items()
    shared = [n for n, v in drawn if "row" not in v.dims and not n.endswith("_over_rows")]
    assert shared
    for name in shared:
        found = group_of(one, "posterior")[name].values
        assert found.tobytes() == group_of(few, "posterior")[name].values.tobytes()
    site = next(
        name for name in shared if group_of(one, "posterior")[name].dims[2:] == ("feature",)
    )
    words = {"dims": {site: ["cause"]}, "coords": {"cause": [*"abcd"]}}
    named = written(tmp_path, result=result, name="named", rows_per_chunk=1000, **words)
    assert group_of(named, "posterior")[site].dims == ("chain", "draw", "cause")
    assert group_of(named, "posterior")["cause"].values.tolist() == [*"abcd"]


class EndedError(Exception):
    pass


def ending(x, rows_before):
    yield from x[:rows_before].split(500)
    raise EndedError


@pytest.fixture
def explained(monkeypatch):
    """The chunks that were explained, by number."""
    numbers = []
    chunks = sys.modules["lexppl.explanation.explain_to_zarr"]
    original = chunks.ChunkTask.groups

    def noted(self, number, piece):
        numbers.append(number)
        return original(self, number, piece)

    monkeypatch.setattr(chunks.ChunkTask, "groups", noted)
    return numbers


@pytest.mark.complete
def test_a_run_that_ended_early_goes_on(tmp_path, explained):
    x = rows()[0]
    whole = written(tmp_path, x.split(500), "whole", rows_per_chunk=1000)
    explained.clear()
    with pytest.raises(EndedError):
        written(tmp_path, ending(x, 2500), rows_per_chunk=1000)
    assert not (tmp_path / "posterior.zarr").exists()
    assert explained == [0, 1]
    again = written(tmp_path, x.split(700), rows_per_chunk=1000)
    assert explained == [0, 1, 2, 3]
    assert_same(whole, again)
    assert not (tmp_path / "posterior.zarr.partial").exists()


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.complete)])
def test_a_finished_store_is_returned_by_the_same_call(tmp_path, explained, jobs):
    x = rows()[0][:2500]
    first = written(tmp_path, x, rows_per_chunk=1000)
    store = tmp_path / "posterior.zarr"
    before = {file: file.stat().st_mtime_ns for file in store.rglob("*")}
    explained.clear()
    assert_same(first, written(tmp_path, x.split(700), rows_per_chunk=1000, jobs=jobs))
    assert not explained
    assert {file: file.stat().st_mtime_ns for file in store.rglob("*")} == before
    other = x.clone()
    other[2345, 0] += 1
    for given, change in ((other, {}), (x[:-1], {}), (x, {"seed": 6}), (x, {"keep_x": False})):
        settings = {"rows_per_chunk": 1000, **change}
        refused("give overwrite=True", written, tmp_path, given, error=FileExistsError, **settings)
    (store / "run.json").write_text("{")
    refused("run.json cannot be read", written, tmp_path, x, rows_per_chunk=1000)
    assert [file.name for file in tmp_path.iterdir()] == ["posterior.zarr"]


def write_but_the_last(number, piece, identity, task):
    if number == 3:
        kill()
    task.write(number, piece, identity)


@pytest.mark.skipif(sys.platform == "win32", reason="the system has no SIGKILL")
def test_a_killed_process_leaves_the_chunks_before_and_the_same_call_goes_on(
    tmp_path, explained, monkeypatch
):
    x = rows()[0]
    whole = written(tmp_path, x, "whole", rows_per_chunk=1000)
    chunks = sys.modules["lexppl.explanation.explain_to_zarr"]
    explained.clear()
    with monkeypatch.context() as patch:
        patch.setattr(chunks, "_write", write_but_the_last)
        with pytest.raises(RuntimeError, match=r"a process of jobs=2 was killed, .*same call goes"):
            written(tmp_path, x, rows_per_chunk=1000, jobs=2)
    assert len([*(tmp_path / "posterior.zarr.partial").glob("*/00000000.npz")]) == 1
    assert_same(whole, written(tmp_path, x, rows_per_chunk=1000))
    assert 0 in explained and explained.count(0) == 1


@pytest.mark.complete
def test_a_run_that_ended_once_its_store_was_in_place_begins_anew(tmp_path):
    x = rows()[0]
    with pytest.raises(EndedError):
        written(tmp_path, ending(x, 2500), rows_per_chunk=1000)
    aside = tmp_path / "posterior.zarr.partial"
    next(aside.glob("*/posterior.zarr")).rename(tmp_path / "posterior.zarr")
    found = written(tmp_path, x, rows_per_chunk=1000, overwrite=True)
    assert not aside.exists()
    assert_same(found, written(tmp_path, x, "whole", rows_per_chunk=1000))


@pytest.mark.complete(but=1)
@over(
    ({"seed": 6}, "the settings"),
    ({"draws": 4}, "the settings"),
    ({"rows_per_chunk": 2000}, "rows_per_chunk"),
)
def test_chunks_of_another_run_are_refused_by_name(change, said, tmp_path):
    x = rows()[0]
    settings = {"rows_per_chunk": 1000}
    with pytest.raises(EndedError):
        written(tmp_path, ending(x, 2500), **settings)
    refused(f"another run, which differs in {said}", written, tmp_path, x, **{**settings, **change})
    found = written(tmp_path, x, **{**settings, **change}, overwrite=True)
    assert group_of(found, "predictions").sizes["row"] == ROWS


def test_other_rows_are_refused_where_a_run_goes_on(tmp_path):
    x = rows()[0]
    with pytest.raises(EndedError):
        written(tmp_path, ending(x, 2500), rows_per_chunk=1000)
    with pytest.raises(ValueError, match=r"rows 1000 to 1999 are not those that"):
        other = x.clone()
        other[1234, 0] += 1
        written(tmp_path, other, rows_per_chunk=1000)


def test_rows_may_be_left_out_of_the_store(tmp_path):
    found = written(tmp_path, keep_x=False)
    assert "predictions_constant_data" not in group_names(found)


@over(
    (lambda x, y: x[:, :3], {}, ValueError, "x must have 4 features"),
    (lambda x, y: "nowhere.parquet", {}, TypeError, "give encoding="),
    (lambda x, y: 3, {}, TypeError, "rows must be a path"),
    (lambda x, y: iter([]), {}, ValueError, "no rows to explain"),
    (lambda x, y: iter([[1, 2]]), {}, TypeError, "a chunk of rows must be"),
    (lambda x, y: (x, y), {}, ValueError, r"pairs \(x, y\) with with_y=False"),
    (lambda x, y: x, {"with_y": True}, ValueError, "x alone with with_y=True"),
    (lambda x, y: x, {"rows_per_chunk": 1500}, ValueError, "multiple of 1000"),
    (lambda x, y: x, {"client": "tcp://host"}, TypeError, "must be a dask.distributed.Client"),
    (lambda x, y: x, {"jobs": 0}, ValueError, "jobs must be a whole number"),
    (lambda x, y: (x, y), {"with_y": True, "draws": 0}, ValueError, "given y are draws"),
    (lambda x, y: x, {"entry_names": ["a"]}, ValueError, "entry_names must be 4 names"),
    (lambda x, y: x, {"coords": {"row": "ab"}}, ValueError, "leave coords.'row'. out"),
    (lambda x, y: x, {"draws": -1}, ValueError, "draws must be a whole number"),
)
def test_mistakes_are_refused_before_anything_is_written(given, settings, error, said, tmp_path):
    refused(said, written, tmp_path, given(*rows()), error=error, **settings)
    assert not list(tmp_path.iterdir())


def test_what_is_there_is_not_replaced_unasked(tmp_path):
    (tmp_path / "posterior.zarr").write_text("mine")
    refused("overwrite=True", written, tmp_path, error=FileExistsError)
    with pytest.raises(ValueError, match="create it first"):
        explain_to_zarr(fitted(), rows()[0], tmp_path / "no" / "p.zarr", progress=False)
    with pytest.raises(TypeError, match="what fit\\(\\) returned"):
        explain_to_zarr(fitted().model, rows()[0], tmp_path / "p.zarr", progress=False)
    refused("no Zarr store", open_posterior, tmp_path / "nothing", error=FileNotFoundError)
    refused("no Zarr store", open_posterior, tmp_path, error=FileNotFoundError)


# Stores of posteriors are read as they were written, or refused by the name of a file.


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


# Tables in files and in Dask frames are explained as frames in memory are.

TABLE_ROWS = 2300


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A folder of files, the rows as one frame, their encoding and a fit."""
    folder = tmp_path_factory.mktemp("table")
    drawn = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"size": drawn.normal(5, 2, TABLE_ROWS), "count": drawn.poisson(3, TABLE_ROWS)}
    )
    frame["word"] = drawn.choice(["one", "two", "three"], TABLE_ROWS)
    frame["class"] = np.where(frame["size"] > 5, "large", "small")
    for place, (start, stop) in enumerate([(0, 1100), (1100, 1150), (1150, TABLE_ROWS)]):
        frame[start:stop].to_parquet(folder / f"part.{place}.parquet", row_group_size=300)
    data = read_table(folder / "part.0.parquet", "class")
    system = lex(
        data.n_features, classes=2, penalty=0.02, hidden=(4,), predictor_hidden=(4,), grouping=None
    )
    result = fit(system, data, epochs=2, progress=False)
    encoding = TableEncoding.from_json(json.loads(json.dumps(data.encoding.to_json())))
    return folder, frame, encoding, result


def posterior_of_table(result, rows, path, **settings):
    settings = {"draws": 2, "progress": False, **settings}
    return open_posterior(explain_to_zarr(result, rows, path, **settings))


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("with_y", [False, True])
def test_files_and_frames_give_the_same_numbers(table, tmp_path, with_y):
    folder, frame, encoding, result = table
    settings = {"encoding": encoding, "with_y": with_y, "rows_per_chunk": 1000}
    of_files = posterior_of_table(result, folder, tmp_path / "files", **settings)
    assert_same(of_files, posterior_of_table(result, frame, tmp_path / "frame", **settings))
    parts = (frame[start : start + 333] for start in range(0, TABLE_ROWS, 333))
    assert_same(of_files, posterior_of_table(result, parts, tmp_path / "parts", **settings))
    assert group_of(of_files, "predictions").sizes["row"] == TABLE_ROWS
    group = "constant_data" if with_y else "predictions_constant_data"
    x = group_of(of_files, group)["x"].values
    assert np.array_equal(x, encoding.encode(frame).numpy())


@pytest.mark.complete
def test_a_dask_frame_gives_the_same_numbers(table, tmp_path):
    dataframe = pytest.importorskip("dask.dataframe", reason="the extra 'dask' is not installed")
    folder, frame, encoding, result = table
    settings = {"encoding": encoding, "rows_per_chunk": 1000}
    of_files = posterior_of_table(result, folder, tmp_path / "files", **settings)
    read = dataframe.read_parquet(folder)
    assert_same(of_files, posterior_of_table(result, read, tmp_path / "read", **settings))
    made = dataframe.from_pandas(frame, npartitions=7)
    assert_same(of_files, posterior_of_table(result, made, tmp_path / "made", **settings))


@pytest.mark.complete
def test_a_run_on_files_goes_on_and_sees_that_they_were_changed(table, tmp_path, monkeypatch):
    _, frame, encoding, result = table
    files = tmp_path / "files"
    files.mkdir()
    frame.to_parquet(files / "a.parquet")
    settings = {"encoding": encoding, "rows_per_chunk": 1000}
    whole = posterior_of_table(result, files, tmp_path / "whole", **settings)

    original = ZarrPosterior.write

    def interrupted(self, groups, start):
        if start == 2000:
            raise KeyboardInterrupt
        return original(self, groups, start)

    monkeypatch.setattr(ZarrPosterior, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        posterior_of_table(result, files, tmp_path / "found", **settings)
    monkeypatch.undo()
    changed = frame.copy()
    changed.loc[5, "size"] += 1
    changed.to_parquet(files / "a.parquet")
    with pytest.raises(ValueError, match="another run, which differs in the rows"):
        posterior_of_table(result, files, tmp_path / "found", **settings)
    found = posterior_of_table(result, files, tmp_path / "found", overwrite=True, **settings)
    with pytest.raises(AssertionError):
        assert_same(whole, found)


@over(
    (lambda f: f.drop(columns="count"), "lacks 'count'"),
    (lambda f: f.assign(word="four"), "four"),
    (lambda f: f.assign(size=np.nan), "missing"),
)
def test_rows_that_the_encoding_refuses_are_named(spoil, said, table, tmp_path):
    _, frame, encoding, result = table
    (tmp_path / "files").mkdir()
    spoil(frame).to_parquet(tmp_path / "files" / "a.parquet")
    refused(
        said, posterior_of_table, result, tmp_path / "files", tmp_path / "p.zarr", encoding=encoding
    )
    assert not (tmp_path / "p.zarr").exists()
