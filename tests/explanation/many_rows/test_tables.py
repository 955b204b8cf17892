"""Tables in files and in Dask frames are explained as frames in memory are."""

import json

import numpy as np
import pandas as pd
import pytest

from lexppl.arviz_compatibility import group_of
from lexppl.data import TableEncoding, read_table
from lexppl.explanation import explain_to_zarr, open_posterior
from lexppl.explanation.posterior_files import ZarrPosterior
from lexppl.inference import fit
from lexppl.systems import lex
from tests.explanation.many_rows.fitted import assert_same
from tests.refusals import over, refused

pytest.importorskip("zarr", reason="the extra 'dask' is not installed")
ROWS = 2300


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A folder of files, the rows as one frame, their encoding and a fit."""
    folder = tmp_path_factory.mktemp("table")
    drawn = np.random.default_rng(0)
    frame = pd.DataFrame({"size": drawn.normal(5, 2, ROWS), "count": drawn.poisson(3, ROWS)})
    frame["word"] = drawn.choice(["one", "two", "three"], ROWS)
    frame["class"] = np.where(frame["size"] > 5, "large", "small")
    for place, (start, stop) in enumerate([(0, 1100), (1100, 1150), (1150, ROWS)]):
        frame[start:stop].to_parquet(folder / f"part.{place}.parquet", row_group_size=300)
    data = read_table(folder / "part.0.parquet", "class")
    system = lex(
        data.n_features, classes=2, penalty=0.02, hidden=(4,), predictor_hidden=(4,), grouping=None
    )
    result = fit(system, data, epochs=2, progress=False)
    encoding = TableEncoding.from_json(json.loads(json.dumps(data.encoding.to_json())))
    return folder, frame, encoding, result


def written(result, rows, path, **settings):
    settings = {"draws": 2, "progress": False, **settings}
    return open_posterior(explain_to_zarr(result, rows, path, **settings))


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("with_y", [False, True])
def test_files_and_frames_give_the_same_numbers(table, tmp_path, with_y):
    folder, frame, encoding, result = table
    settings = {"encoding": encoding, "with_y": with_y, "rows_per_chunk": 1000}
    of_files = written(result, folder, tmp_path / "files", **settings)
    assert_same(of_files, written(result, frame, tmp_path / "frame", **settings))
    parts = (frame[start : start + 333] for start in range(0, ROWS, 333))
    assert_same(of_files, written(result, parts, tmp_path / "parts", **settings))
    assert group_of(of_files, "predictions").sizes["row"] == ROWS
    group = "constant_data" if with_y else "predictions_constant_data"
    x = group_of(of_files, group)["x"].values
    assert np.array_equal(x, encoding.encode(frame).numpy())


@pytest.mark.complete
def test_a_dask_frame_gives_the_same_numbers(table, tmp_path):
    dataframe = pytest.importorskip("dask.dataframe", reason="the extra 'dask' is not installed")
    folder, frame, encoding, result = table
    settings = {"encoding": encoding, "rows_per_chunk": 1000}
    of_files = written(result, folder, tmp_path / "files", **settings)
    read = dataframe.read_parquet(folder)
    assert_same(of_files, written(result, read, tmp_path / "read", **settings))
    made = dataframe.from_pandas(frame, npartitions=7)
    assert_same(of_files, written(result, made, tmp_path / "made", **settings))


@pytest.mark.complete
def test_a_run_on_files_goes_on_and_sees_that_they_were_changed(table, tmp_path, monkeypatch):
    _, frame, encoding, result = table
    files = tmp_path / "files"
    files.mkdir()
    frame.to_parquet(files / "a.parquet")
    settings = {"encoding": encoding, "rows_per_chunk": 1000}
    whole = written(result, files, tmp_path / "whole", **settings)

    original = ZarrPosterior.write

    def interrupted(self, groups, start):
        if start == 2000:
            raise KeyboardInterrupt
        return original(self, groups, start)

    monkeypatch.setattr(ZarrPosterior, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        written(result, files, tmp_path / "found", **settings)
    monkeypatch.undo()
    changed = frame.copy()
    changed.loc[5, "size"] += 1
    changed.to_parquet(files / "a.parquet")
    with pytest.raises(ValueError, match="another run, which differs in the rows"):
        written(result, files, tmp_path / "found", **settings)
    found = written(result, files, tmp_path / "found", overwrite=True, **settings)
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
    refused(said, written, result, tmp_path / "files", tmp_path / "p.zarr", encoding=encoding)
    assert not (tmp_path / "p.zarr").exists()
