"""Names, labels and cells: how messages list them, and what refuses wrong ones."""

import numbers
from collections import Counter
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexppl.summary import short, some_of


def listed(names: Iterable[object], most: int = 8) -> str:
    """Up to ``most`` names in quotes, and how many more there are."""
    return _joined([repr(str(name)) for name in names], most)


def counted(counts: Mapping[str, int], most: int = 8) -> str:
    """Up to ``most`` names in quotes, each with its count, and how many more there are."""
    return _joined([f"{name!r} ({count})" for name, count in counts.items()], most)


def _joined(words: list[str], most: int) -> str:
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def refuse_repeated(what: str, names: Iterable[str]) -> None:
    """Refuse names that repeat."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(f"{what} must differ from each other; repeated: {listed(repeated)}")


def folder_of(root: str | Path) -> Path:
    """The root as a folder that is there; ``~`` is the user's own folder."""
    if isinstance(root, str | PathLike) and (folder := Path(root).expanduser()).is_dir():
        return folder
    raise ValueError(f"root must be a folder that is there; it is {str(root)!r}")


def check_tensors(data: object, names: Iterable[str], optional: Iterable[str] = ()) -> None:
    """Refuse attributes that are no tensors; the optional ones may be None."""
    for name in (*names, *(name for name in optional if getattr(data, name) is not None)):
        value = getattr(data, name)
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} must be a torch.Tensor; it is a {type(value).__name__}")


def check_labels(y: Tensor, class_names: tuple[str, ...], target: str, is_part: bool) -> None:
    """Refuse labels ``(N,)`` that are not ``0 … C-1``, and, unless ``is_part``, a single class."""
    refuse_repeated("class_names", class_names)
    if y.dtype != torch.long:
        raise TypeError(f"y must be torch.long for classification; it is {y.dtype}")
    if len(class_names) < 2:
        raise ValueError(
            f"target {target!r} needs at least two classes; class_names is {class_names}"
        )
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= len(class_names):
        raise ValueError(
            f"y must hold labels 0 to {len(class_names) - 1}, one for each of class_names; "
            f"it holds {low} to {high}"
        )
    if low == high and not is_part:
        raise ValueError(
            f"target {target!r} has one class only: every row is {class_names[low]!r}; "
            "at least two are needed"
        )


def label_counts(y: Tensor, class_names: tuple[str, ...], target: str) -> str:
    """How many rows each class has, in words."""
    counts = torch.bincount(y, minlength=len(class_names)).tolist()
    each = some_of(f"{short(n)} ({c:,})" for n, c in zip(class_names, counts, strict=True))
    return f"{target}, {len(counts)} classes: {each}"


def part_counts(train: int, valid: int, test: int) -> str:
    """How many rows each part has, in words."""
    return f"{train:,} to fit on, {valid:,} to choose the best epoch on, {test:,} to judge"


def level_of(value: object) -> str:
    """The name of a categorical value: ``1``, ``1.0`` and ``"1"`` are one level."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_):
        whole = isinstance(value, numbers.Integral) or float(value).is_integer()
        return str(int(value)) if whole else str(value)  # type: ignore[call-overload]
    return str(value)


def numbers_of(cells: pd.Series, gaps: bool = False) -> NDArray[np.float64]:
    """The column as finite float64 ``(N,)``, NaN where a cell is missing, if that may be."""
    values = pd.to_numeric(cells, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    words = np.isnan(values) & cells.notna().to_numpy()
    if words.any():
        raise ValueError(
            f"column {cells.name!r} must hold numbers; {int(words.sum())} cells do not, "
            f"such as {cells[words].iloc[0]!r}"
        )
    if not gaps:
        refuse_missing(cells.to_frame())
    if np.isinf(values).any():
        raise ValueError(
            f"column {cells.name!r} must be finite; "
            f"it has {int(np.isinf(values).sum())} infinite values"
        )
    return values


def missing_in(frame: pd.DataFrame) -> dict[str, int]:
    """How many values are missing of each column that lacks any."""
    return {str(name): int(count) for name, count in frame.isna().sum().items() if count}


def refuse_missing(frame: pd.DataFrame) -> None:
    """Refuse missing values, by column and number."""
    found = missing_in(frame)
    if found:
        raise ValueError(
            f"missing values in {len(found)} of {frame.shape[1]} columns: {counted(found)}; fill "
            "them in, or give drop_missing=True to drop the rows that have any, or "
            "hide_missing=True to keep them hidden from the explainer, which then predicts "
            "without them"
        )
