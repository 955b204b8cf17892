"""Small files in the formats of the public sets, and where the real ones are."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


def idx_bytes(values):
    values = np.asarray(values, dtype=np.uint8)
    shape = b"".join(int(size).to_bytes(4, "big") for size in values.shape)
    return bytes((0, 0, 8, values.ndim)) + shape + values.tobytes()


def write_idx(file, values):
    file.parent.mkdir(parents=True, exist_ok=True)
    content = idx_bytes(values)
    file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)


def numbered(first, count):
    """Images that say which one they are: pixel (0, 0) and (0, 1) hold its number, base 256."""
    numbers = np.arange(first, first + count)
    images = np.zeros((count, 28, 28), np.uint8)
    images[:, 0, 0], images[:, 0, 1] = numbers // 256, numbers % 256
    return images


def number_of(image):
    return int(image[0, 0]) * 256 + int(image[0, 1])


def write_mnist(root, folder="MNIST", train=40, test=20, mark=0, packed=True):
    """A set in MNIST's format: image i of training is number i, of tests 1000 + i, its label i % 10
    and pixel (27, 27) `mark`."""
    for part, first, count in (("train", 0, train), ("t10k", 1000, test)):
        images = numbered(first, count)
        images[:, 27, 27] = mark
        end = ".gz" if packed else ""
        raw = Path(root) / folder / "raw"
        write_idx(raw / f"{part}-images-idx3-ubyte{end}", images)
        write_idx(raw / f"{part}-labels-idx1-ubyte{end}", np.arange(count) % 10)


def write_picture(file, values, **saving):
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(values, dtype=np.uint8)).save(file, **saving)


def real_data(name):
    """The shared folder, if it has this in it; LEXPPL_DATA says where it is."""
    here = Path(__file__).resolve().parents[3]
    folder = Path(os.environ.get("LEXPPL_DATA", here.parent / "shared" / "data"))
    if not (folder / name).exists():
        pytest.skip(f"no {name}: set LEXPPL_DATA, or have ../shared/data beside the repository")
    return folder
