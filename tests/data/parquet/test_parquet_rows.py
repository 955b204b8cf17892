"""Rows that stream from files are all learned from, shuffled, as a fit's seed says."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from lexppl.data import ParquetRows, read_table
from lexppl.inference import Checkpoints, TrainingOptions, fit
from lexppl.systems import lex
from tests.refusals import over, refused

ROWS = 1203


@pytest.fixture
def folder(tmp_path):
    drawn = np.random.default_rng(0)
    frame = pd.DataFrame(drawn.normal(size=(ROWS, 3)), columns=["a", "b", "c"])
    frame["number"] = np.arange(ROWS, dtype=float)
    frame["label"] = np.where(frame["a"] > 0, "yes", "no")
    frame["y"] = (frame["a"] > 0).astype(int)
    # More row groups than are open at once.
    frame[:700].to_parquet(tmp_path / "part.1.parquet", row_group_size=60)
    frame[700:].to_parquet(tmp_path / "part.2.parquet", row_group_size=100)
    return tmp_path


def small():
    return lex(3, classes=2, k=1, hidden=(4,), predictor_hidden=(4,))


def numbers(rows, shuffle=True, size=50):
    batches = [x[:, 0] for x, *_ in rows.batches(size, shuffle)]
    assert [len(x) for x in batches[:-1]] == [size] * (len(batches) - 1) or shuffle
    assert max(len(x) for x in batches) <= size
    return torch.cat(batches).long()


@pytest.mark.parametrize("buffer", [64, 300, 100_000])
def test_every_row_comes_once_in_each_epoch(folder, buffer):
    rows = ParquetRows(folder, columns=["number"], target="y", buffer=buffer)
    torch.manual_seed(0)
    first, second = numbers(rows), numbers(rows)
    assert len(rows) == ROWS
    for order in (first, second):
        assert order.sort().values.tolist() == list(range(ROWS))
    assert not torch.equal(first, second)
    torch.manual_seed(0)
    assert torch.equal(first, numbers(rows))
    assert numbers(rows, shuffle=False).tolist() == list(range(ROWS))


def test_rows_of_all_files_mix_as_far_as_the_buffer_reaches(folder):
    torch.manual_seed(0)
    order = numbers(ParquetRows(folder, columns=["number"], buffer=100_000)).double()
    place = torch.arange(ROWS, dtype=torch.float64)
    z = torch.corrcoef(torch.stack([order, place]))[0, 1] * ROWS**0.5
    assert abs(z) < 4
    # Without a buffer's shuffling neighbours stay neighbours.
    steps = (order[1:] - order[:-1]).abs()
    assert float((steps == 1).double().mean()) < 0.02


def test_a_share_is_apart_and_the_same_for_the_seed(folder):
    rows = ParquetRows(folder, columns=["number"])
    parts = rows.split(0.3, seed=1)
    train, valid = (set(numbers(part).tolist()) for part in parts)
    assert [len(part) for part in parts] == [len(train), len(valid)]
    assert not train & valid and train | valid == set(range(ROWS))
    assert abs(len(valid) - 0.3 * ROWS) < 4 * (ROWS * 0.3 * 0.7) ** 0.5
    again = set(numbers(rows.split(0.3, seed=1)[1], shuffle=False).tolist())
    assert again == valid
    assert set(numbers(rows.split(0.3, seed=2)[1]).tolist()) != valid
    refused("a part of others", parts[0].split, 0.5, seed=0)


@pytest.mark.smoke
def test_encoded_rows_are_those_of_the_table(folder):
    data = read_table(folder / "part.1.parquet", "label", drop=["y"])
    rows = ParquetRows(folder, data.encoding)
    x, y = (torch.cat(c) for c in zip(*rows.batches(70, shuffle=False), strict=True))
    other = read_table(folder / "part.2.parquet", encoding=data.encoding, drop=["y"])
    assert torch.equal(x, torch.cat([data.x, other.x]))
    assert torch.equal(y, torch.cat([data.y, other.y]))
    assert (rows.class_names, rows.feature_names) == (data.class_names, data.feature_names)


@pytest.mark.complete
def test_a_fit_learns_from_them_and_is_the_same_for_its_seed(folder):
    train, valid = ParquetRows(folder, columns=["a", "b", "c"], target="y").split(0.2, seed=0)
    options = {"valid": valid, "folds": 1, "epochs": 12, "batch_size": 50, "progress": False}
    options |= {"learning_rate": 0.03}
    result = fit(small(), train, **options)
    again = fit(small(), train, **options)
    other = fit(small(), train, **{**options, "seed": 1})
    assert np.array_equal(result.history.train, again.history.train)
    assert not np.array_equal(result.history.train, other.history.train)
    # A label that a column decides: half of it is known by chance.
    assert float(result.best_valid[0]) < 0.4
    assert result.entry_names == ("a", "b", "c")


def test_a_fit_of_them_goes_on_from_its_checkpoint(folder, tmp_path):
    train, valid = ParquetRows(folder, columns=["a", "b", "c"], target="y").split(0.2, seed=0)
    options = {"valid": valid, "folds": 1, "epochs": 6, "batch_size": 200, "progress": False}
    whole = fit(small(), train, **options)

    def ended(epoch):
        if epoch.number == 2:
            raise RuntimeError("ended")

    kept = {**options, "checkpoint": Checkpoints(tmp_path / "state", every_minutes=0)}
    refused(
        "ended",
        fit,
        small(),
        train,
        error=RuntimeError,
        training=TrainingOptions(callbacks=[ended]),
        **kept,
    )
    again = fit(small(), train, **kept)
    assert np.array_equal(whole.history.train, again.history.train)
    assert np.array_equal(whole.history.valid, again.history.valid)
    other = ParquetRows(folder, columns=["a", "b", "c"], target="y", buffer=70).split(0.2, seed=0)
    refused("buffer", fit, small(), other[0], **kept)


@over(
    ({}, "a loader cannot be split: give validation rows"),
    ({"valid": None, "folds": 2}, "cannot be divided into folds"),
    ({"valid": None, "row_weights": "dirichlet", "replicates": 2}, "row_weights need rows"),
)
def test_what_needs_all_rows_is_refused(settings, said, folder):
    rows = ParquetRows(folder, columns=["a", "b", "c"], target="y")
    refused(said, fit, small(), rows, **{"folds": 1, "epochs": 1, "progress": False, **settings})


def test_mistakes_are_named(folder):
    data = read_table(folder / "part.1.parquet", "label", drop=["y"])
    refused("of its own; leave them out", ParquetRows, folder, data.encoding, target="y")
    with pytest.raises(ValueError, match="column 'label' must hold numbers"):
        list(ParquetRows(folder).batches(50, shuffle=False))
    refused("lacks 'height'", ParquetRows, folder, columns=["height"])
    refused("buffer must be a whole number", ParquetRows, folder, buffer=0)
    refused("share must be a share of the rows", ParquetRows(folder).split, 1.5, seed=0)


class Endless(IterableDataset):
    def __iter__(self):
        generator = torch.Generator().manual_seed(0)
        for _ in range(80):
            x = torch.randn(3, generator=generator)
            yield x, (x[0] > 0).long()


class Counted(Endless):
    def __len__(self):
        return 80


def test_an_iterable_data_set_needs_its_number_of_rows():
    options = {"valid": None, "folds": 1, "epochs": 2, "progress": False}
    result = fit(small(), DataLoader(Counted(), batch_size=20), **options)
    assert np.isfinite(result.history.train).all()
    with pytest.raises(TypeError, match="give Endless a __len__"):
        fit(small(), DataLoader(Endless(), batch_size=20), **options)
