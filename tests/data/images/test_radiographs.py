"""PneumoniaMNIST's file, and what is refused of it."""

import numpy as np
import pytest
import torch
from torchvision.datasets import utils

from lexppl.data import pneumonia
from tests.data.images.written import real_data

COUNTS = {"train": 9, "val": 4, "test": 5}


def arrays(size=28, **changed):
    found = {}
    for mark, (part, count) in enumerate(COUNTS.items()):
        images = np.full((count, size, size), mark, np.uint8)
        images[:, 0, 0] = np.arange(count)
        found[f"{part}_images"] = images
        found[f"{part}_labels"] = (np.arange(count) % 3 == 0).astype(np.uint8)[:, None]
    return found | changed


def written(root, name="pneumoniamnist.npz", **changed):
    root.mkdir(exist_ok=True)
    np.savez(root / name, **arrays(**changed))


@pytest.mark.parametrize("place", [".", "pneumonia"])
@pytest.mark.parametrize("part", COUNTS)
def test_parts(tmp_path, part, place):
    written(tmp_path / place)
    data = pneumonia(tmp_path, part)
    assert data.event_shape == (1, 28, 28)
    assert data.pixels[:, 0, 0, 0].tolist() == list(range(COUNTS[part]))
    assert (data.pixels[:, 0, 1, 1] == list(COUNTS).index(part)).all()
    assert data.y.tolist() == [int(n % 3 == 0) for n in range(COUNTS[part])]
    assert data.class_names == ("normal", "pneumonia")


def test_larger_images_have_a_file_of_their_own(tmp_path):
    written(tmp_path)
    written(tmp_path, "pneumoniamnist_64.npz", size=64)
    assert pneumonia(tmp_path, size=64).event_shape == (1, 64, 64)
    with pytest.raises(
        ValueError, match=r"pneumoniamnist_224.npz' nor .*; get it from https://zen"
    ):
        pneumonia(tmp_path, size=224)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"size": 14}, r"pneumoniamnist.npz' must hold images \(N, 28, 28\).*\(9, 14, 14\)"),
        ({"train_images": np.zeros((9, 28, 28))}, r"of bytes; those of train .* float64"),
        ({"train_labels": np.zeros(8, np.uint8)}, "8 labels and 9 images"),
        ({"train_labels": np.full(9, 2, np.uint8)}, "labels 0 to 1"),
    ],
)
def test_arrays_that_are_refused(tmp_path, changed, message):
    written(tmp_path, **changed)
    with pytest.raises(ValueError, match=message):
        pneumonia(tmp_path)


def test_other_files_are_refused_by_name(tmp_path):
    file = tmp_path / "pneumoniamnist.npz"
    np.savez(file, images=np.zeros(3))
    with pytest.raises(ValueError, match=r"pneumoniamnist.npz' cannot be read .*train_images"):
        pneumonia(tmp_path)
    whole = file.read_bytes()
    for content in (b"", b"<html>", whole[: len(whole) // 2]):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=r"pneumoniamnist.npz' cannot be read"):
            pneumonia(tmp_path)
    with np.errstate(all="ignore"):
        np.savez(file, train_images=np.array([object()]), train_labels=np.zeros(1))
    with pytest.raises(ValueError, match="cannot be read"):
        pneumonia(tmp_path)


def test_other_arguments_are_refused(tmp_path):
    with pytest.raises(ValueError, match="part must be one of 'train', 'val', 'test'; it is 'va"):
        pneumonia(tmp_path, "valid")
    with pytest.raises(ValueError, match=r"size must be one of \(28, 64, 128, 224\); it is 32"):
        pneumonia(tmp_path, size=32)


def test_a_download_is_torchvisions(tmp_path, monkeypatch):
    asked = []

    def download_url(url, root, filename, md5):
        asked.append((url, filename, md5))
        written(tmp_path, filename)

    monkeypatch.setattr(utils, "download_url", download_url)
    assert len(pneumonia(tmp_path, download=True)) == 9
    assert len(pneumonia(tmp_path, "val", download=True)) == 4
    assert len(asked) == 1
    assert asked[0][0].endswith("/pneumoniamnist.npz")


def test_the_real_radiographs():
    root = real_data("pneumonia")
    counts = [torch.bincount(pneumonia(root, part).y).tolist() for part in COUNTS]
    assert counts == [[1214, 3494], [135, 389], [234, 390]]
