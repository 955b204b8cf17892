"""Labels of classes: what a data set of any kind of rows asks of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import torch
from torch import Tensor

from lexppl.data.listing import listed
from lexppl.summary import short, some_of


def check_labels(y: Tensor, class_names: tuple[str, ...], target: str) -> None:
    """Refuse labels that are not places in the names of the classes.

    Args:
        y: labels, shape ``(N,)``, not empty.
        class_names: of the ``C`` classes.
        target: the target's name.

    Raises:
        TypeError: labels that are not ``torch.long``.
        ValueError: fewer than two classes, a label outside ``0 … C-1``.

    Example:
        >>> check_labels(torch.tensor([0, 1]), ("low", "high"), "income")
    """
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


def refuse_one_label(y: Tensor, class_names: tuple[str, ...], target: str) -> None:
    """Refuse labels that are all the same.

    Args:
        y: labels, shape ``(N,)``, not empty.
        class_names: of the classes.
        target: the target's name.

    Raises:
        ValueError: one class only.

    Example:
        >>> refuse_one_label(torch.tensor([0, 1]), ("low", "high"), "income")
    """
    if (y == y[0]).all():
        raise ValueError(
            f"target {target!r} has one class only: every row is {class_names[int(y[0])]!r}; "
            "at least two are needed"
        )


def labels_told(y: Tensor, class_names: tuple[str, ...], target: str) -> str:
    """How many rows each class has, in words.

    Args:
        y: labels, shape ``(N,)``.
        class_names: of the classes.
        target: the target's name.

    Example:
        >>> labels_told(torch.tensor([0, 1, 1]), ("low", "high"), "income")
        'income, 2 classes: low (1), high (2)'
    """
    counts = torch.bincount(y, minlength=len(class_names)).tolist()
    each = some_of(f"{short(n)} ({c:,})" for n, c in zip(class_names, counts, strict=True))
    return f"{target}, {len(counts)} classes: {each}"


def refuse_repeated(what: str, names: Iterable[str]) -> None:
    """Refuse names that repeat.

    Args:
        what: the names are called in the message.
        names: that should differ.

    Raises:
        ValueError: some repeat.

    Example:
        >>> refuse_repeated("class_names", ("a", "b", "a"))
        Traceback (most recent call last):
        ValueError: class_names must differ from each other; repeated: 'a'
    """
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(f"{what} must differ from each other; repeated: {listed(repeated)}")
