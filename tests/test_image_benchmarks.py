"""The benchmarks of images: the rule of choice, small runs on made images, the printed tables."""

import gzip
import importlib
import struct

import numpy as np
import pytest
import torch

from tests.refusals import over, refused

pytestmark = pytest.mark.usefixtures("benchmarks")


def made_images(labels, classes, generator):
    """Dark noise, and a bright block at a place of the class."""
    pixels = generator.integers(0, 30, (len(labels), 28, 28), dtype=np.uint8)
    for row, label in enumerate(labels):
        across = 2 + int(24 * label / classes)
        pixels[row, 12:16, across : across + 3] = 255
    return pixels


def written_idx(path, values):
    header = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    with gzip.open(path, "wb") as file:
        file.write(header + values.tobytes())


@pytest.fixture
def made_data(tmp_path, monkeypatch):
    """A root with digits and radiographs in the formats of MNIST and PneumoniaMNIST."""
    generator = np.random.default_rng(0)
    raw = tmp_path / "data" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part, count in (("train", 1500), ("t10k", 500)):
        labels = generator.integers(0, 10, count).astype(np.uint8)
        written_idx(raw / f"{part}-images-idx3-ubyte.gz", made_images(labels, 10, generator))
        written_idx(raw / f"{part}-labels-idx1-ubyte.gz", labels)
    arrays = {}
    for part, count in (("train", 250), ("val", 100), ("test", 100)):
        labels = generator.integers(0, 2, (count, 1)).astype(np.uint8)
        arrays[f"{part}_images"] = made_images(labels[:, 0], 2, generator)
        arrays[f"{part}_labels"] = labels
    np.savez(tmp_path / "data" / "pneumoniamnist.npz", **arrays)
    monkeypatch.setenv("LEXPPL_DATA", str(tmp_path / "data"))


def candidate(setting, size, accuracy):
    return {
        **{"setting": setting, "check_size": size, "check_accuracy": accuracy, "size": size},
        **{"accuracy": accuracy, "evalx_accuracy": accuracy - 0.1, "evalx_auroc": 0.9},
    }


def test_the_fewest_entries_within_a_twentieth_are_chosen():
    judged = importlib.import_module("judged_images")
    tried = [candidate(0.1, 300.0, 0.97), candidate(0.2, 90.0, 0.93), candidate(0.3, 9.0, 0.92)]
    # .95 · .975 = .926: nine pixels lose too much.
    assert judged.place_of(tried, 0.975) == 1
    assert judged.place_of(tried, 0.960) == 2
    assert judged.place_of(tried[1:], 1.0) == 0


def test_the_masks_of_l2x_are_its_k_highest_and_of_others_those_above_a_half(monkeypatch):
    judged = importlib.import_module("judged_images")
    ranking = torch.tensor([[0.9, 0.6, 0.1], [0.2, 0.3, 0.4]])
    monkeypatch.setattr(judged, "importances", lambda result, x, place: ranking)
    above = judged.masks_of("real_x", None, None, 0, 0.01)
    assert above.tolist() == [[1, 1, 0], [0, 0, 0]]
    assert judged.masks_of("l2x", None, None, 0, 1).tolist() == [[1, 0, 0], [0, 0, 1]]


def test_a_table_has_every_candidate_and_the_paper_beside_the_chosen_one():
    tables = importlib.import_module("image_tables")
    tried = [candidate(0.002, 120.0, 0.95), candidate(0.005, 60.0, 0.93)]
    record = {
        **{"method": "real_x", "full": False, "rows": 100, "entries": 784, "place": 1},
        **{"candidates": tried, "full_accuracy": 0.961, "full_auroc": 0.99, "fit_epochs": 3},
        **{"seconds": 9.0, "networks": "perceptrons"},
    }
    rows = tables.digits_table([record]).splitlines()[2:]
    assert rows[0].startswith("| everything, perceptrons | — | 784 | 96.1 |")
    assert rows[1].startswith("| real_x | 0.002 | 120.0 | 95.0 | 85.0 | 0.900 |  |")
    assert rows[2].startswith("| **real_x** | 0.005 | 60.0 | 93.0 | **83.0** | 0.900 | 93.8, 86.7")
    assert "eACC 70.3" in tables.radiographs_table([record]).splitlines()[4]


@pytest.mark.complete(but=1)
@over(
    ("digits", ("l2x", "lex_random"), 784),
    ("radiographs", ("l2x",), 49),
    ("patches", ("q_fit", "l2x", "invase"), None),
)
def test_a_small_run_is_recorded_and_resumed(name, methods, entries, benchmarks, made_data):
    benchmarks.run(name, "--small", "--methods", methods[0])
    records = benchmarks.run(name, "--small", "--methods", *methods)
    assert "1 of" in benchmarks.printed()
    assert tuple(r["method"] for r in records) == methods
    for record in records:
        assert record["device"] == "cpu"
        assert 0.0 <= np.min(record["accuracy"]) <= np.max(record["accuracy"]) <= 1.0
    if entries is not None:
        assert (records[0]["size"], records[0]["entries"]) == (1.0, entries)
    printed = benchmarks.tables()
    assert f"{name}\n\n| method |" in printed
    assert "A small run: the figures mean nothing." in printed


@pytest.mark.parametrize("name", ["digits", "patches", "radiographs"])
def test_an_absent_data_set_is_named(benchmarks, monkeypatch, tmp_path, name):
    monkeypatch.setenv("LEXPPL_DATA", str(tmp_path))
    refused(r"LEXPPL_DATA", benchmarks.run, name, "--small", error=SystemExit)
    assert not benchmarks.results.exists()
