"""Sets of images by name: MNIST and Fashion-MNIST, panels of both, CelebA's smiles."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from lexppl.argument_checks import finite_float, int_at_least
from lexppl.choices.data_sets import image_names
from lexppl.data.checks import listed
from lexppl.data.images.dataset import DividedImages, ImageDataset
from lexppl.data.images.folder import folder_of, read_picture, stacked
from lexppl.data.stratification import at_most

GARMENTS = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag"),
    "Ankle boot",
)


def mnist(root: str | Path, *, train: bool = True, download: bool = False) -> ImageDataset:
    """Read MNIST: handwritten digits, 60,000 for training and 10,000 for tests.

    Files lie where torchvision has them, in ``root/MNIST/raw``, packed (``.gz``) or not; packed
    ones are read as they are, and nothing is written. Two digits alone are
    ``mnist(root).only(3, 8)``.

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
    return _mnist("MNIST", "mnist", "digit", tuple("0123456789"), root, train, download)


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
    return _mnist("FashionMNIST", "fashion_mnist", "garment", GARMENTS, root, train, download)


def _mnist(
    folder: str,
    name: str,
    target: str,
    classes: tuple[str, ...],
    root: str | Path,
    train: bool,
    download: bool,
) -> ImageDataset:
    raw, part = folder_of(root) / folder / "raw", "train" if train else "t10k"
    stems = (raw / f"{part}-images-idx3-ubyte", raw / f"{part}-labels-idx1-ubyte")
    # An unpacked file stands before a packed one, as with torchvision.
    found = [[f for f in (stem, Path(f"{stem}.gz")) if f.is_file()] for stem in stems]
    if download and not all(found):
        _of_torchvision(folder, root, download=True)
        return _mnist(folder, name, target, classes, root, train, download=False)
    for stem, files in zip(stems, found, strict=True):
        if not files:
            raise ValueError(
                f"there is no file {str(stem)!r} nor {stem.name}.gz; get it from torchvision, "
                "with download=True where the network allows it"
            )
    pixels, y = (_read_idx(files[0]) for files in found)
    if pixels.shape != (*y.shape, 28, 28):
        raise ValueError(
            f"{str(found[0][0])!r} must hold an image of 28 × 28 pixels for each label; it holds "
            f"{tuple(pixels.shape)}, and there are {tuple(y.shape)} labels: get both anew"
        )
    return ImageDataset(pixels.unsqueeze(1), y.long(), classes, name=name, target_name=target)


def _read_idx(file: Path) -> Tensor:
    """The array of bytes in an idx file: two zeros, the code 8, the number of dimensions, each of
    them in four bytes, the highest first, and the values."""
    try:
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        if content[:3] != bytes((0, 0, 8)):
            raise ValueError("it is no idx file of bytes")
        shape = np.frombuffer(content, ">u4", content[3], 4).astype(int)
        values = np.frombuffer(content, np.uint8, offset=4 + 4 * len(shape)).reshape(shape)
    except (EOFError, zlib.error, OSError, ValueError, IndexError) as error:
        raise ValueError(f"{str(file)!r} cannot be read: {error}; get it anew") from error
    return torch.from_numpy(values.copy())


def _of_torchvision(name: str, root: str | Path, **options: Any) -> Any:
    """A data set as torchvision reads or downloads it; a failure is one line."""
    try:
        # torchvision takes a second to import.
        return getattr(import_module("torchvision.datasets"), name)(str(root), **options)
    except (RuntimeError, OSError, ImportError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"torchvision cannot get {name} in {str(root)!r} ({reason}); give download=True where "
            "the network allows it, or lay its files there by hand"
        ) from error


def switching_panels(
    labelled: str,
    root: str | Path,
    *,
    rows: Sequence[int] = (48_000, 12_000, 10_000),
    seed: int = 0,
    download: bool = False,
) -> DividedImages:
    """Put an image of MNIST and one of Fashion-MNIST side by side, in random order.

    The label is that of the named one, and the truth its panel: the other has nothing to do with
    the label, and of the panel itself a part may do. Images are paired at random; each stands in
    one row of one part at most. Rows to fit on and to choose an epoch on are of the images for
    training, those to judge of the images for tests.

    Args:
        labelled: "mnist" or "fashion".
        root: the folder with ``MNIST`` and ``FashionMNIST`` in it, as torchvision lays them out.
        rows: how many to fit on, to choose the best epoch on, and to judge.
        seed: of the pairs and their order; no global random state is touched.
        download: let torchvision get what is not there, which writes to ``root``.

    Returns:
        images ``(N, 1, 28, 56)`` with their truth ``(N, 28, 56)``.

    Raises:
        ValueError: another name, more rows than there are images; as :func:`mnist`.

    Source: Senetaire et al. 2023 (LEX), § 5.2: SP-MNIST and SP-Fashion.
    """
    readers = {"mnist": mnist, "fashion": fashion_mnist}
    if labelled not in readers:
        raise ValueError(f"labelled must be one of {listed(readers)}; it is {labelled!r}")
    counts = [int_at_least("each of rows", count) for count in rows]
    if len(counts) != 3:
        raise ValueError(
            "rows must be three numbers, to fit on, to choose the best epoch on and to judge; "
            f"they are {tuple(rows)}"
        )
    generator = np.random.default_rng(int_at_least("seed", seed, 0))
    readers = {labelled: readers.pop(labelled), **readers}
    parts = []
    for train, wanted in ((True, counts[:2]), (False, counts[2:])):
        total = sum(wanted)
        images = [read(root, train=train, download=download) for read in readers.values()]
        there = min(map(len, images))
        if total > there:
            raise ValueError(
                f"rows must be at most {there:,} {'in their first two' if train else 'to judge'}, "
                f"as there are so many images of each kind; they are {tuple(rows)}"
            )
        of_label, beside = (
            one.subset(torch.from_numpy(generator.permutation(len(one))[:total])) for one in images
        )
        left = torch.from_numpy(generator.integers(2, size=total).astype(bool))
        place = left.reshape(-1, 1, 1, 1)
        halves = (
            torch.where(place, of_label.pixels, beside.pixels),
            torch.where(place, beside.pixels, of_label.pixels),
        )
        half = left.reshape(-1, 1, 1).expand(-1, *of_label.event_shape[1:])
        whole = ImageDataset(
            torch.cat(halves, dim=-1),
            of_label.y,
            of_label.class_names,
            truth=torch.cat((half, ~half), dim=-1),
            name=f"panels_{labelled}",
            target_name=of_label.target_name,
            is_part=True,
        )
        parts += [whole.subset(rows) for rows in torch.arange(total).split(wanted)]
    return DividedImages(*parts)


def mouth_box(
    corners: Tensor, side: int, patch: int = 1, *, width: float = 1.0, height: float = 2.0
) -> Tensor:
    r"""Mark the patches of a square image whose centre lies in the box of a mouth.

    With a and b the corners, ``ℓ = |b − a|``, ``c = (a + b)/2``, u the unit vector from a to b and
    v at a right angle to it, a point p lies in the box where

        |(p − c) · u| ≤ width ℓ / 2   and   |(p − c) · v| ≤ height ℓ / 2.

    The pixel in column i and row j has its centre at (i, j), as landmarks have it.

    Args:
        corners: of N mouths, in pixels of the image, ``(N, 2, 2)``: left and right corner, each as
            column and row. They may lie outside the image.
        side: height and width of the image, in pixels, a multiple of ``patch``.
        patch: side of a patch.
        width: of the box along the mouth, in lengths of the mouth.
        height: of the box across it, in lengths of the mouth.

    Returns:
        ``(N, side/patch, side/patch)`` bool, by row and column.

    Raises:
        ValueError: a width or height that is not above 0.

    Source: Senetaire et al. 2023 (LEX), CelebA smile: as wide as the mouth is long, twice as high.

    Example:
        >>> mouth_box(torch.tensor([[[1.0, 2.0], [3.0, 2.0]]]), side=5, height=1.0)[0].int()
        tensor([[0, 0, 0, 0, 0],
                [0, 1, 1, 1, 0],
                [0, 1, 1, 1, 0],
                [0, 1, 1, 1, 0],
                [0, 0, 0, 0, 0]], dtype=torch.int32)
    """
    across = finite_float("width", width, above=0.0) / 2
    down = finite_float("height", height, above=0.0) / 2
    points = corners.to(torch.float64)
    along = points[:, 1] - points[:, 0]
    length = along.norm(dim=-1, keepdim=True)
    u = along / length
    v = torch.stack((-u[:, 1], u[:, 0]), dim=-1)
    middles = torch.arange(0, side, patch, dtype=torch.float64) + (patch - 1) / 2
    columns, rows = (middles - points.mean(1)[:, i, None] for i in (0, 1))

    def distance(axis: Tensor) -> Tensor:
        parts = (columns * axis[:, :1]).unsqueeze(1) + (rows * axis[:, 1:]).unsqueeze(2)
        return parts.abs()

    # A corner is on the edge: it must not fall outside by the last digit of a root.
    bound = length.unsqueeze(-1) * (1 + 1e-9)
    return (distance(u) <= across * bound) & (distance(v) <= down * bound)


def celeba_smile(
    root: str | Path,
    part: Literal["train", "valid", "test"] = "train",
    *,
    rows: int | None = None,
    seed: int = 0,
    width: float = 1.0,
    height: float = 2.0,
    download: bool = False,
) -> ImageDataset:
    """Read faces and whether they smile, with a box round the mouth as the truth.

    Of each aligned face of 178 × 218 pixels the 128 × 128 in its middle are kept, and the landmarks
    of the mouth moved with them. The truth is of patches of 4 × 4 pixels, 32 × 32 of them: those
    whose centre lies in the box along the mouth, as wide as the mouth is long and twice as high
    (:func:`mouth_box`). The authors' released code draws it 1.8 times as wide as the mouth is long,
    and as high as that length: ``width=1.8, height=1``.

    Files are those of torchvision's ``CelebA``, in ``root/celeba``, which reads and checks them.
    Images are held as bytes, 49 kB each, up to 8 GiB (all 162,770 for training are 7.5 GiB).

    Args:
        root: the folder with ``celeba`` in it.
        part: "train", "valid" or "test", the official division.
        rows: read at most so many, drawn at random with both classes among them; all if ``None``.
        seed: of that draw; no global random state is touched.
        width, height: of the box, in lengths of the mouth.
        download: let torchvision (with ``gdown``) get what is not there, which writes to ``root``.

    Returns:
        images ``(N, 3, 128, 128)``, truth ``(N, 32, 32)``, classes "not smiling" and "smiling", the
        files' names as ``row_names``.

    Raises:
        ValueError: another part; files that are not there or not as torchvision knows them, an
            image of another size; more than 8 GiB of images.

    Source: Liu et al. 2015; Senetaire et al. 2023 (LEX), § 5.3.
    """
    faces = _of_torchvision("CelebA", folder_of(root), split=part, download=download)
    smiles = faces.attr[:, faces.attr_names.index("Smiling")]
    chosen = at_most(smiles.numpy(), rows, seed)
    corners = faces.landmarks_align[chosen, 6:].reshape(-1, 2, 2).double()
    names = tuple(str(faces.filename[place]) for place in chosen)
    files = [folder_of(root) / "celeba" / "img_align_celeba" / name for name in names]
    # (218 − 128)/2 = 45 rows and (178 − 128)/2 = 25 columns are cut off before the crop.
    return ImageDataset(
        stacked((_face(file)[:, 45:173, 25:153] for file in files), files, "get it anew"),
        smiles[chosen].long(),
        ("not smiling", "smiling"),
        truth=mouth_box(corners - torch.tensor([25, 45]), 128, 4, width=width, height=height),
        name="celeba_smile",
        target_name="expression",
        row_names=names,
        is_part=True,
    )


def _face(file: Path) -> np.ndarray:
    picture = read_picture(file, grayscale=False)
    if picture.shape[1:] != (218, 178):
        raise ValueError(
            f"{str(file)!r} is {picture.shape[1]} × {picture.shape[2]} pixels; the aligned faces, "
            "which the landmarks are of, are 218 × 178"
        )
    return picture


def image_set(
    name: str, root: str | Path, *, rows: int | None = None, seed: int = 0, download: bool = False
) -> DividedImages:
    """Read a set of images in its three parts.

    ======================  ======================  ============================================
    name                    images                  to fit on, to choose the epoch on, to judge
    ======================  ======================  ============================================
    mnist                   10 digits               48,000, 12,000, 10,000
    fashion_mnist           10 garments             48,000, 12,000, 10,000
    mnist_3_8               3 against 8             9,586, 2,396, 1,984
    fashion_pullover_shirt  Pullover against Shirt  9,600, 2,400, 2,000
    panels_mnist            a digit and a garment,  48,000, 12,000, 10,000
                            label from the digit
    panels_fashion          the same, label from    48,000, 12,000, 10,000
                            the garment
    celeba_smile            faces                   162,770, 19,867, 19,962 (official)
    ======================  ======================  ============================================

    Those to judge are the official ones. Where no part is given to choose an epoch on, a fifth of
    the images for training is drawn, each class alike.

    Args:
        name: one of :func:`image_names`.
        root: the folder with its files, as the function of that name says.
        rows: at most so many images of each part, drawn at random; all if ``None``.
        seed: of all draws; no global random state is touched.
        download: let torchvision get what is not there, where a network allows.

    Raises:
        ValueError: another name, a file that is not there or cannot be read.
    """
    if name not in image_names():
        raise ValueError(
            f"there is no set of images {name!r}; there are {listed(image_names(), most=20)}"
        )
    most = None if rows is None else int_at_least("rows", rows)
    reading: dict[str, Any] = {"root": root, "download": download}
    if name.startswith("panels_"):
        parts = switching_panels(name.removeprefix("panels_"), seed=seed, **reading)
    elif name == "celeba_smile":
        reading |= {"rows": most, "seed": seed}
        parts = DividedImages(
            *(celeba_smile(part=p, **reading) for p in ("train", "valid", "test"))
        )
    else:
        read = fashion_mnist if name.startswith("fashion") else mnist
        pairs: dict[str, tuple[int | str, int | str]] = {
            "mnist_3_8": (3, 8),
            "fashion_pullover_shirt": ("Pullover", "Shirt"),
        }
        whole, test = (read(train=train, **reading) for train in (True, False))
        if name in pairs:
            whole, test = whole.only(*pairs[name]), test.only(*pairs[name])
        # A fifth, as many as switching panels set apart.
        train, valid = whole.split(0.8, 0.2, seed=seed)
        parts = DividedImages(train, valid, test)
    return parts if most is None else parts.take(most, seed=seed)
