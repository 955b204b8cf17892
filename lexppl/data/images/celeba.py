"""Where a mouth is in a face: a box along the line between its corners."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexppl.argument_checks import finite_float, int_at_least
from lexppl.data.images.dataset import ImageDataset
from lexppl.data.images.divided_images import held, refuse_too_many
from lexppl.data.images.files import downloaded, folder_of, needed_file, read_picture
from lexppl.data.listing import listed
from lexppl.data.stratification import some_of_each


def mouth_box(
    corners: Tensor,
    side: int,
    patch: int = 1,
    *,
    width: float = 1.0,
    height: float = 2.0,
) -> Tensor:
    r"""Mark the patches of a square image whose centre lies in the box of a mouth.

    With a and b the corners, ``ℓ = |b − a|``, ``c = (a + b)/2``, u the unit vector from a to b and
    v at a right angle to it, a point p lies in the box where

        |(p − c) · u| ≤ width ℓ / 2   and   |(p − c) · v| ≤ height ℓ / 2.

    The pixel in column i and row j has its centre at (i, j), as landmarks have it.

    Args:
        corners: of N mouths, in pixels of the image, shape ``(N, 2, 2)``: left and right corner,
            each as column and row. They may lie outside the image.
        side: height and width of the image, in pixels.
        patch: side of a patch, a divisor of ``side``.
        width: of the box along the mouth, in lengths of the mouth.
        height: of the box across it, in lengths of the mouth.

    Returns:
        ``(N, side/patch, side/patch)`` bool, by row and column.

    Raises:
        ValueError: corners of another shape, not finite or of a mouth without length, a patch that
            does not divide the side, a width or height that is not above 0.

    Source: Senetaire et al. 2023 (LEX), CelebA smile: as wide as the mouth is long, twice as high.

    Example:
        >>> corners = torch.tensor([[[2.0, 3.0], [4.0, 3.0]]])
        >>> mouth_box(corners, side=7, height=1.0)[0].int()
        tensor([[0, 0, 0, 0, 0, 0, 0],
                [0, 0, 0, 0, 0, 0, 0],
                [0, 0, 1, 1, 1, 0, 0],
                [0, 0, 1, 1, 1, 0, 0],
                [0, 0, 1, 1, 1, 0, 0],
                [0, 0, 0, 0, 0, 0, 0],
                [0, 0, 0, 0, 0, 0, 0]], dtype=torch.int32)
    """
    if corners.ndim != 3 or corners.shape[1:] != (2, 2):
        raise ValueError(f"corners must have shape (N, 2, 2); they have {tuple(corners.shape)}")
    size, step = int_at_least("side", side), int_at_least("patch", patch)
    if size % step:
        raise ValueError(f"patch must divide the side, {side}; it is {patch}")
    across = finite_float("width", width, above=0.0) / 2
    down = finite_float("height", height, above=0.0) / 2
    points = corners.to(torch.float64)
    along = points[:, 1] - points[:, 0]
    length = along.norm(dim=-1, keepdim=True)
    if not points.isfinite().all() or (length == 0).any():
        raise ValueError("corners must be finite, and those of a mouth two different points")
    u = along / length
    v = torch.stack((-u[:, 1], u[:, 0]), dim=-1)
    centre = points.mean(1)
    middles = torch.arange(0, size, step, dtype=torch.float64) + (step - 1) / 2

    def distance(axis: Tensor) -> Tensor:
        columns = (middles - centre[:, :1]) * axis[:, :1]
        rows = (middles - centre[:, 1:]) * axis[:, 1:]
        return (columns.unsqueeze(1) + rows.unsqueeze(2)).abs()

    # A corner is on the edge: it must not fall outside by the last digit of a root.
    bound = length.unsqueeze(-1) * (1 + 1e-9)
    return (distance(u) <= across * bound) & (distance(v) <= down * bound)


PARTS = ("train", "valid", "test")
"""Their places are the numbers in list_eval_partition.txt."""
HEIGHT, WIDTH, SIDE, PATCH = 218, 178, 128, 4
"""Of an aligned face, of the crop from its middle, and of a patch of the truth, in pixels."""
TOP, LEFT = (HEIGHT - SIDE) // 2, (WIDTH - SIDE) // 2
CORNERS = ("leftmouth_x", "leftmouth_y", "rightmouth_x", "rightmouth_y")
SOURCE = (
    "http://mmlab.ie.cuhk.edu.hk/projects/CelebA.html (aligned and cropped images), or give "
    "download=True where the network allows it"
)


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

    Files are those of torchvision's format: ``root/celeba`` with ``list_attr_celeba.txt``,
    ``list_landmarks_align_celeba.txt``, ``list_eval_partition.txt`` and ``img_align_celeba/*.jpg``.
    Images are held as bytes, 49 kB each, up to 8 GiB (all 162,770 for training are 7.5 GiB); as
    floats they are four times that: :meth:`ImageDataset.loader` makes them by batch.

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
        ValueError: another part; a file that is not there, has other faces or columns than the
            others, or an image of another size; more than 8 GiB of images.

    Source: Liu et al. 2015; Senetaire et al. 2023 (LEX), § 5.3.
    """
    if part not in PARTS:
        raise ValueError(f"part must be one of {listed(PARTS)}; it is {part!r}")
    base = folder_of(root) / "celeba"
    if download and not (base / "img_align_celeba").is_dir():
        load = partial(_download, base.parent)
        downloaded("CelebA", load, f"{SOURCE.split(' ', 1)[0]} into {str(base)!r}")
    lists = [
        needed_file(base / f"list_{name}.txt", SOURCE)
        for name in ("eval_partition", "attr_celeba", "landmarks_align_celeba")
    ]
    faces = _faces(lists, part)
    smiles = faces["Smiling"].to_numpy(np.int64)
    if rows is not None:
        generator = np.random.default_rng(int_at_least("seed", seed, 0))
        chosen = np.sort(some_of_each(smiles, int_at_least("rows", rows), generator))
        faces, smiles = faces.iloc[chosen], smiles[chosen]
    refuse_too_many(len(faces), (3, SIDE, SIDE))
    corners = faces[list(CORNERS)].to_numpy(np.float64).reshape(-1, 2, 2) - (LEFT, TOP)
    names = tuple(map(str, faces.index))
    truth = mouth_box(torch.from_numpy(corners), SIDE, PATCH, width=width, height=height)
    files = [base / "img_align_celeba" / name for name in names]
    return ImageDataset(
        held(map(_cropped, files), files, "get it anew"),
        torch.from_numpy(smiles),
        ("not smiling", "smiling"),
        truth=truth,
        name="celeba_smile",
        target_name="expression",
        row_names=names,
        is_part=True,
    )


def _faces(lists: Sequence[Path], part: str) -> pd.DataFrame:
    """Smiles (0, 1) and corners of mouths of a part's faces, by the name of the image."""
    partition, attributes, landmarks = lists
    parts = _table(partition, ["part"])
    smiling = _table(attributes)
    points = _table(landmarks)
    for file, table, columns in ((attributes, smiling, ["Smiling"]), (landmarks, points, CORNERS)):
        lacking = [column for column in columns if column not in table.columns]
        if lacking:
            raise ValueError(
                f"{str(file)!r} must have the columns {listed(columns)}; it lacks {listed(lacking)}"
            )
    names = parts.index[parts["part"] == PARTS.index(part)]
    if len(names) == 0:
        raise ValueError(f"{str(partition)!r} has no image for {part!r}")
    for file, table in ((attributes, smiling), (landmarks, points)):
        unlisted = names.difference(table.index, sort=False)
        if len(unlisted):
            raise ValueError(
                f"{str(file)!r} lacks {len(unlisted):,} images that {str(partition)!r} has, such "
                f"as {str(unlisted[0])!r}"
            )
    smiles = smiling.loc[names, "Smiling"]
    if not smiles.isin((-1, 1)).all():
        raise ValueError(
            f"{str(attributes)!r} must hold -1 and 1 as Smiling; it holds other values"
        )
    faces = points.loc[names, list(CORNERS)].copy()
    faces["Smiling"] = (smiles == 1).astype(int)
    still = faces[
        (faces["leftmouth_x"] == faces["rightmouth_x"])
        & (faces["leftmouth_y"] == faces["rightmouth_y"])
    ]
    if len(still):
        raise ValueError(
            f"{str(landmarks)!r} has the two corners of the mouth at one point in "
            f"{str(still.index[0])!r}"
        )
    return faces


def _table(file: Path, columns: list[str] | None = None) -> pd.DataFrame:
    """A list of CelebA's by the images' names; without columns, they stand in the second line."""
    first, skipped = (None, 0) if columns else (0, 1)
    try:
        table = pd.read_csv(file, sep=r"\s+", header=first, skiprows=skipped)
        if columns:
            table = table.set_index(0).set_axis(columns, axis=1)
        if any(kind != np.int64 for kind in table.dtypes):
            raise ValueError("a value is missing or no whole number")
        if table.index.has_duplicates:
            raise ValueError("an image stands in it twice")
    except (ValueError, UnicodeError, pd.errors.ParserError) as error:
        raise ValueError(f"{str(file)!r} cannot be read as a list of CelebA's: {error}") from error
    return table


def _cropped(file: Path) -> NDArray[np.uint8]:
    if not file.is_file():
        raise ValueError(f"there is no file {str(file)!r}; get it from {SOURCE}")
    picture = read_picture(file, grayscale=False)
    if picture.shape[1:] != (HEIGHT, WIDTH):
        raise ValueError(
            f"{str(file)!r} is {picture.shape[1]} × {picture.shape[2]} pixels; the aligned faces, "
            f"which the landmarks are of, are {HEIGHT} × {WIDTH}"
        )
    return picture[:, TOP : TOP + SIDE, LEFT : LEFT + SIDE]


def _download(root: Path) -> None:
    import_module("torchvision.datasets").CelebA(str(root), download=True)
