"""Files of the kind in which MNIST comes: bytes in an array, packed or not."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from lexppl.data.images.dataset import ImageDataset
from lexppl.data.images.files import downloaded, folder_of, needed_file

BYTES = 8
"""The code of bytes in the third byte of a file."""


def read_idx(file: Path, dims: int) -> Tensor:
    """Read an array of bytes from an idx file.

    The file begins with two zeros, the code of the type (8: bytes) and the number of dimensions;
    then each dimension in four bytes, the highest first; then the values, the last dimension
    fastest.

    Args:
        file: its path; one that ends in ``.gz`` is unpacked in memory, so that its folder may be
            one that cannot be written to.
        dims: how many dimensions it must have.

    Returns:
        the array, ``torch.uint8``.

    Raises:
        ValueError: a file that is cut off, not an idx file of bytes, or of other dimensions.

    Source: LeCun, Cortes & Burges, THE MNIST DATABASE of handwritten digits.
    """
    try:
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{str(file)!r} cannot be unpacked: {error}; get it anew") from error
    begin = 4 + 4 * dims
    if len(content) < begin or content[:4] != bytes((0, 0, BYTES, dims)):
        raise ValueError(f"{str(file)!r} is no idx file of bytes with {dims} dimensions")
    shape = [int(size) for size in np.frombuffer(content, ">u4", count=dims, offset=4)]
    size = int(np.prod(shape))
    if len(content) != begin + size:
        raise ValueError(
            f"{str(file)!r} must hold {' × '.join(map(str, shape))} = {size:,} values; it holds "
            f"{len(content) - begin:,}: get it anew"
        )
    values = np.frombuffer(content, np.uint8, offset=begin).reshape(shape)
    return torch.from_numpy(values.copy())


SIDE = 28
"""Height and width of an image, in pixels."""


@dataclass(frozen=True)
class MnistFiles:
    """A set in MNIST's format.

    Args:
        folder: torchvision's name of it, which its folder under the root has too.
        target: what its classes are.
        class_names: of its ten classes.
        source: where its files are.
    """

    folder: str
    target: str
    class_names: tuple[str, ...]
    source: str

    def read(self, root: str | Path, name: str, train: bool, download: bool) -> ImageDataset:
        """Read its images for training or for tests."""
        base = folder_of(root)
        raw = base / self.folder / "raw"
        part = "train" if train else "t10k"
        stems = (f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte")
        if download and not all(_is_there(raw, stem) for stem in stems):
            load = partial(_download, self.folder, base)
            downloaded(self.folder, load, f"{self.source} into {str(raw)!r}")
        source = f"{self.source}, or give download=True where the network allows it"
        # The unpacked file comes first, as with torchvision.
        files = [needed_file(raw / stem, source, raw / f"{stem}.gz") for stem in stems]
        pixels, y = read_idx(files[0], 3), read_idx(files[1], 1)
        self._check(files, pixels, y)
        return ImageDataset(
            pixels.unsqueeze(1),
            y.long(),
            self.class_names,
            name=name,
            target_name=self.target,
        )

    def _check(self, files: list[Path], pixels: Tensor, y: Tensor) -> None:
        height, width = pixels.shape[1:]
        if (height, width) != (SIDE, SIDE):
            raise ValueError(
                f"{str(files[0])!r} holds images of {height} × {width} pixels; those of "
                f"{self.folder} are {SIDE} × {SIDE}"
            )
        if len(pixels) != len(y):
            raise ValueError(
                f"{str(files[0])!r} holds {len(pixels):,} images and {str(files[1])!r} "
                f"{len(y):,} labels; get both anew"
            )
        if len(y) and int(y.max()) >= len(self.class_names):
            raise ValueError(
                f"{str(files[1])!r} must hold labels 0 to {len(self.class_names) - 1}; it holds "
                f"{int(y.max())}"
            )


def _is_there(raw: Path, stem: str) -> bool:
    return (raw / stem).is_file() or (raw / f"{stem}.gz").is_file()


def _download(folder: str, root: Path) -> None:
    # torchvision takes a second to import, and only a download needs it.
    getattr(import_module("torchvision.datasets"), folder)(str(root), download=True)


MNIST = MnistFiles(
    "MNIST",
    "digit",
    tuple("0123456789"),
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
)
FASHION = MnistFiles(
    "FashionMNIST",
    "garment",
    (
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
)
BY_NAME: Mapping[str, MnistFiles] = MappingProxyType({"mnist": MNIST, "fashion": FASHION})
"""Those of which panels are made."""


def mnist(root: str | Path, *, train: bool = True, download: bool = False) -> ImageDataset:
    """Read MNIST: handwritten digits, 60,000 for training and 10,000 for tests.

    Files lie where torchvision has them, in ``root/MNIST/raw``, packed (``.gz``) or not; packed
    ones are read as they are, and nothing is written.

    Args:
        root: the folder with ``MNIST`` in it.
        train: the images for training, or those for tests.
        download: let torchvision get what is not there, which writes to ``root``.

    Returns:
        images ``(N, 1, 28, 28)``, classes "0" to "9".

    Raises:
        ValueError: a file that is not there or cannot be read, a download that failed.

    Source: LeCun, Cortes & Burges, THE MNIST DATABASE of handwritten digits.
    """
    return MNIST.read(root, "mnist", train, download)


def fashion_mnist(root: str | Path, *, train: bool = True, download: bool = False) -> ImageDataset:
    """Read Fashion-MNIST: garments, 60,000 for training and 10,000 for tests.

    Args:
        root: the folder with ``FashionMNIST`` in it, as torchvision lays it out.
        train, download: as :func:`mnist`.

    Returns:
        images ``(N, 1, 28, 28)``, classes "T-shirt/top", "Trouser", … "Ankle boot".

    Raises:
        ValueError: as :func:`mnist`.

    Source: Xiao, Rasul & Vollgraf 2017.
    """
    return FASHION.read(root, "fashion_mnist", train, download)


def digits_pair(
    first: int | str,
    second: int | str,
    root: str | Path,
    *,
    train: bool = True,
    download: bool = False,
) -> ImageDataset:
    """Read two digits of MNIST, such as 3 and 8.

    Args:
        first, second: two digits; they become classes 0 and 1.
        root, train, download: as :func:`mnist`.

    Returns:
        images ``(N, 1, 28, 28)``.

    Raises:
        ValueError: the same digit twice, or none; as :func:`mnist`.

    Source: Adamczewski et al. (Q-FIT), Table 3; Liang et al. 2020 (MEED), § 4.
    """
    return mnist(root, train=train, download=download).only(first, second)


def fashion_pair(
    first: int | str,
    second: int | str,
    root: str | Path,
    *,
    train: bool = True,
    download: bool = False,
) -> ImageDataset:
    """Read two garments of Fashion-MNIST, such as "Pullover" and "Shirt".

    Args:
        first, second: two garments, by name or number; they become classes 0 and 1.
        root, train, download: as :func:`mnist`.

    Returns:
        images ``(N, 1, 28, 28)``.

    Raises:
        ValueError: the same garment twice, or none; as :func:`mnist`.

    Source: Liang et al. 2020 (MEED), § 4.
    """
    return fashion_mnist(root, train=train, download=download).only(first, second)
