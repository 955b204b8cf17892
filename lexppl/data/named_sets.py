"""Data sets by name: of scikit-learn and survival libraries, synthetic ones, MNIST and panels."""

import gzip
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexppl.argument_checks import did_you_mean, folder_of, int_at_least, one_of, quoted
from lexppl.choices.data_sets import TARGETS, image_names, shipped_names, synthetic_names
from lexppl.data.dataset import Dataset
from lexppl.data.images import DividedImages, ImageDataset
from lexppl.data.synthetic import synthetic
from lexppl.data.tables import dataset_from_frame
from lexppl.extras import extra_library


def load(name: str, *, dtype: torch.dtype | None = None, **reading: Any) -> Dataset:
    """Load a data set that needs no file.

    =============  ===========  ==========================================================
    name           rows × G     target
    =============  ===========  ==========================================================
    breast_cancer  569 × 30     diagnosis: malignant, benign
    wine           178 × 13     cultivar: class_0, class_1, class_2
    digits         1797 × 61    digit: 0 … 9; 3 of the 64 pixels are constant and left out
    diabetes       442 × 10     progression after one year (25 to 346, no unit): regression
    Syn1 … S3      10,000 × 11  see :func:`lexppl.data.synthetic_set`; drawn with seed 0
    =============  ===========  ==========================================================

    Survival times come with the extra ``survival``: rossi (432 × 7), gbsg2 (686 × 8), whas500
    (500 × 14) and veterans_lung_cancer (137 × 6).

    The features of the real sets are standardised as in :func:`lexppl.data.read_table`.

    Args:
        name: one of :func:`shipped_names`, or of the survival sets.
        dtype: of the features; torch's default where ``None``.
        reading: ``standardise_target`` and ``statistics_rows`` of
            :func:`lexppl.data.dataset_from_frame`, for the real sets of classes and responses.

    Raises:
        ValueError: an unknown name (the error lists the known ones); ``standardise_target`` for
            a target of classes or times; ``statistics_rows`` for a synthetic or survival set.
        ImportError: a survival set whose library is not installed.

    Example:
        >>> data = load("breast_cancer")
        >>> len(data), data.n_entries, data.class_names
        (569, 30, ('malignant', 'benign'))
    """
    if name in (*survival_names(), *synthetic_names()):
        if any(value not in (False, None) for value in reading.values()):
            raise ValueError(
                f"{', '.join(reading)} is for tables of classes or responses, and {name!r} is "
                "none: leave it out"
            )
        read = load_survival if name in survival_names() else synthetic
        return read(name, dtype=dtype)
    return dataset_from_frame(
        shipped_frame(name), drop_constant=True, name=name, dtype=dtype, **reading
    )


def shipped_frame(name: str) -> pd.DataFrame:
    """A real set as a table in its own units, the target last."""
    if name not in TARGETS:
        known = (*shipped_names(), *survival_names(), *synthetic_names())
        meant = f"{quoted(known, most=20)}. {did_you_mean(name, known)}".removesuffix(". ")
        raise ValueError(f"there is no shipped data set {name!r}; there are {meant}")
    from sklearn import datasets  # noqa: PLC0415 - slow, and only for sets that come along

    options = {"scaled": False} if name == "diabetes" else {}
    bunch = getattr(datasets, f"load_{name}")(**options)
    frame = pd.DataFrame(bunch.data, columns=list(bunch.feature_names))
    target = bunch.target
    if name != "diabetes":
        target = pd.Categorical.from_codes(target, bunch.target_names, ordered=True)
    return frame.assign(**{TARGETS[name]: target})


def survival_names() -> tuple[str, ...]:
    """The survival sets that :func:`lexppl.data.load` knows."""
    return tuple(_LOADERS)


def load_survival(name: str, dtype: torch.dtype | None = None) -> Dataset:
    """A real set of survival times, with y `(N, 2)`: time and event (1), or censoring (0).

    ====================  ========  ==========================================  ===================
    name                  rows × G  time (unit), event                          comes with
    ====================  ========  ==========================================  ===================
    rossi                 432 × 7   rearrest after release (weeks): 114         lifelines
    gbsg2                 686 × 8   recurrence of breast cancer (days): 299     scikit-survival
    whas500               500 × 14  death after a heart attack (days): 215      scikit-survival
    veterans_lung_cancer  137 × 6   death of lung cancer (days): 128            scikit-survival
    ====================  ========  ==========================================  ===================
    """
    one_of(survival_names(), "name of a survival set", name)
    features, time, event = _LOADERS[name]()
    frame = features.assign(time=np.array(time, dtype=float))
    data = dataset_from_frame(frame, "time", task="regression", name=name, dtype=dtype)
    times = torch.as_tensor(np.array(time, dtype=float), dtype=data.x.dtype)
    y = torch.stack([times, torch.as_tensor(np.array(event)).to(data.x.dtype)], 1)
    return replace(data, y=y)


def _rossi() -> tuple[pd.DataFrame, Any, Any]:
    frame = extra_library("lifelines.datasets", "survival").load_rossi()
    return frame.drop(columns=["week", "arrest"]), frame["week"], frame["arrest"]


def _sksurv(name: str) -> tuple[pd.DataFrame, Any, Any]:
    features, y = getattr(extra_library("sksurv.datasets", "survival"), f"load_{name}")()
    event, time = y.dtype.names
    whole = {c: features[c].astype(int) for c in features if set(features[c]) <= {"0", "1"}}
    return features.assign(**whole), y[time], y[event]


_LOADERS: Mapping[str, Callable[[], tuple[pd.DataFrame, Any, Any]]] = MappingProxyType(
    {"rossi": _rossi}
    | {name: partial(_sksurv, name) for name in ("gbsg2", "whas500", "veterans_lung_cancer")}
)


GARMENTS = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag"),
    "Ankle boot",
)


def mnist(root: str | Path, *, train: bool = True, download: bool = False) -> ImageDataset:
    """Read MNIST: handwritten digits ``(N, 1, 28, 28)``, 60,000 for training and 10,000 for tests.

    Files lie where torchvision has them, in ``root/MNIST/raw``, packed (``.gz``) or not. Two digits
    alone are ``mnist(root).only(3, 8)``.

    Args:
        root: the folder with ``MNIST`` in it.
        train: the images for training, or those for tests.
        download: let torchvision get what is not there, which writes to ``root``.

    Raises:
        ValueError: a file that is not there or cannot be read, a download that failed.

    Source: LeCun, Cortes & Burges, THE MNIST DATABASE of handwritten digits.
    """
    pixels, y = _mnist("MNIST", root, train, download)
    return ImageDataset(pixels, y, tuple("0123456789"), name="mnist", target_name="digit")


def fashion_mnist(root: str | Path, *, train: bool = True, download: bool = False) -> ImageDataset:
    """Read Fashion-MNIST: garments ``(N, 1, 28, 28)``, as :func:`mnist`, from
    ``root/FashionMNIST``.

    Source: Xiao, Rasul & Vollgraf 2017.
    """
    pixels, y = _mnist("FashionMNIST", root, train, download)
    return ImageDataset(pixels, y, GARMENTS, name="fashion_mnist", target_name="garment")


def _mnist(kind: str, root: str | Path, train: bool, download: bool) -> tuple[Tensor, Tensor]:
    raw, part = folder_of(root) / kind / "raw", "train" if train else "t10k"
    stems = [raw / f"{part}-{what}-ubyte" for what in ("images-idx3", "labels-idx1")]
    try:
        if download and not all(s.is_file() or Path(f"{s}.gz").is_file() for s in stems):
            getattr(import_module("torchvision.datasets"), kind)(str(root), download=True)
        # Of bytes: 16 of a header, then images; 8, then labels.
        pixels = _unpacked(stems[0])[16:].reshape(-1, 1, 28, 28)
        y = _unpacked(stems[1])[8:].reshape(len(pixels))
    except (OSError, EOFError, zlib.error, RuntimeError, ValueError) as error:
        raise ValueError(
            f"{kind} in {str(raw)!r} cannot be read: {error}; get it from torchvision, with "
            "download=True where the network allows it"
        ) from error
    return torch.from_numpy(pixels), torch.from_numpy(y).long()


def _unpacked(stem: Path) -> NDArray[np.uint8]:
    content = (
        stem.read_bytes() if stem.is_file() else gzip.decompress(Path(f"{stem}.gz").read_bytes())
    )
    return np.frombuffer(bytearray(content), np.uint8)


def switching_panels(
    labelled: str,
    root: str | Path,
    *,
    rows: Sequence[int] = (48_000, 12_000, 10_000),
    seed: int = 0,
    download: bool = False,
) -> DividedImages:
    """Put an image of MNIST and one of Fashion-MNIST side by side, in random order: ``(N, 1, 28,
    56)``.

    The label is that of the named one, and the truth ``(N, 28, 56)`` its panel. Images are paired
    at random; each stands in one row of one part at most. Rows to judge are of the images for
    tests.

    Args:
        labelled: "mnist" or "fashion".
        root: the folder with ``MNIST`` and ``FashionMNIST`` in it, as torchvision lays them out.
        rows: how many to fit on, to choose the best epoch on, and to judge.
        seed: of the pairs and their order; no global random state is touched.
        download: let torchvision get what is not there, which writes to ``root``.

    Raises:
        ValueError: another name, more rows than there are images; as :func:`mnist`.

    Source: Senetaire et al. 2023 (LEX), § 5.2: SP-MNIST and SP-Fashion.
    """
    readers = {"mnist": mnist, "fashion": fashion_mnist}
    one_of(readers, "labelled", labelled)
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
        kinds = [read(root, train=train, download=download) for read in readers.values()]
        there = min(map(len, kinds))
        if total > there:
            raise ValueError(
                f"rows must be at most {there:,} {'in their first two' if train else 'to judge'}, "
                f"as there are so many images of each kind; they are {tuple(rows)}"
            )
        of_label, beside = (
            k.subset(torch.from_numpy(generator.permutation(len(k))[:total])) for k in kinds
        )
        left = torch.from_numpy(generator.integers(2, size=total).astype(bool))
        place = left.reshape(-1, 1, 1, 1)
        first = torch.where(place, of_label.pixels, beside.pixels)
        second = torch.where(place, beside.pixels, of_label.pixels)
        half = place.squeeze(1).expand(-1, *of_label.event_shape[1:])
        whole = replace(
            of_label,
            pixels=torch.cat((first, second), dim=-1),
            truth=torch.cat((half, ~half), dim=-1),
            name=f"panels_{labelled}",
        )
        parts += [whole.subset(rows) for rows in torch.arange(total).split(wanted)]
    return DividedImages(*parts)


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
    ======================  ======================  ============================================

    Those to judge are the official ones. To choose an epoch on, a fifth of the images for training
    is drawn, each class alike.

    Args:
        name: one of :func:`image_names`.
        root: the folder with its files, as the function of that name says.
        rows: at most so many images of each part, drawn at random; all if ``None``.
        seed: of all draws; no global random state is touched.
        download: let torchvision get what is not there, where a network allows.

    Raises:
        ValueError: another name, a file that is not there or cannot be read.
    """
    one_of(image_names(), "name of an image set", name)
    most = None if rows is None else int_at_least("rows", rows)
    reading: dict[str, Any] = {"root": root, "download": download}
    if name.startswith("panels_"):
        parts = switching_panels(name.removeprefix("panels_"), seed=seed, **reading)
    else:
        read = fashion_mnist if name.startswith("fashion") else mnist
        pairs: dict[str, tuple[int | str, int | str]] = {
            "mnist_3_8": (3, 8),
            "fashion_pullover_shirt": ("Pullover", "Shirt"),
        }
        whole, test = (read(train=train, **reading) for train in (True, False))
        if name in pairs:
            whole, test = whole.only(*pairs[name]), test.only(*pairs[name])
        train, valid = whole.split(0.8, 0.2, seed=seed)
        parts = DividedImages(train, valid, test)
    return parts if most is None else parts.take(most, seed=seed)
