"""Rows explained chunk by chunk are those explained at once, whatever the chunks."""

import sys

import numpy as np
import pytest

from lexppl import explain, load, save
from lexppl.arviz_compatibility import group_names, group_of
from lexppl.explanation import explain_to_zarr, open_posterior
from lexppl.inference import fit
from lexppl.systems import q_fit
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
