"""A table of features and a target, with the names that an explanation speaks in."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from lexppl.argument_checks import quoted, quoted_counts, refuse_not_finite, refuse_repeated, shaped
from lexppl.data.encoding import TableEncoding, Task
from lexppl.data.rows import Divisible
from lexppl.summary import Summarised, Summary, counted, short, some_of


@dataclass(frozen=True, eq=False, repr=False)
class Dataset(Divisible, Summarised):
    """``N`` rows of ``D`` features, ``G`` mask entries and a target.

    A mask entry is what an explanation keeps or hides as one: a feature, or all the one-hot
    columns of one categorical variable. ``groups[d]`` is the entry that feature ``d`` belongs to.

    Args:
        x: features, shape ``(N, D)``, floating, finite.
        y: target, shape ``(N,)``: class indices ``0 … C-1`` (``torch.long``) where ``class_names``
            is given, else finite floating values; or ``(N, 2)`` of survival times and events, with
            strata ``(N, 3)``.
        feature_names: ``D`` different names.
        groups: for each of the ``D`` features its mask entry in ``0 … G-1``, each used.
        entry_names: ``G`` different names, the columns that the user knows.
        class_names: ``C >= 2`` names for classification, ``None`` for regression.
        truth: ``(N, G)`` mask of the truly relevant entries where it is known.
        encoding: how the columns of the original table became ``x`` and ``y``, where they did.
        is_part: the rows are a part of a larger table, so that a constant column or a single class
            among them is no mistake.

    Raises:
        ValueError: an empty table, NaN or infinity (with column names and counts), lengths that
            differ, labels outside ``0 … C-1``, groups that do not cover ``0 … G-1``, names that
            repeat; and, unless ``is_part``, constant columns, one class only, a constant target.
        TypeError: ``x``, ``y`` or ``truth`` of another type.

    Example:
        >>> import torch
        >>> data = Dataset(torch.eye(3), torch.tensor([0, 1, 1]), ("age", "job=clerk", "job=smith"),
        ...     (0, 1, 1), ("age", "job"), "income", ("low", "high"))
        >>> len(data), data.n_features, data.n_entries, data.n_classes, data.task
        (3, 3, 2, 2, 'classification')
    """

    by_row: ClassVar[tuple[str, ...]] = ("x", "y", "truth")

    x: Tensor
    y: Tensor
    feature_names: tuple[str, ...]
    groups: tuple[int, ...]
    entry_names: tuple[str, ...]
    target_name: str
    class_names: tuple[str, ...] | None = None
    truth: Tensor | None = None
    name: str = "data"
    encoding: TableEncoding | None = None
    is_part: bool = False

    def __post_init__(self) -> None:
        _check_shapes(self)
        for name in ("feature_names", "entry_names"):
            refuse_repeated(name, getattr(self, name))
        _check_values(self)
        if not self.is_part:
            _check_variation(self)
        if self.class_names is not None:
            self._check_labels()
        elif not self.y.is_floating_point():
            raise TypeError(
                f"y must be floating for regression; it is {self.y.dtype} "
                "(give class_names for classification)"
            )

    def summarised(self) -> Summary:
        """What is in it, without its values."""
        lines = {
            "x": f"{counted(self.n_features, 'feature')}, {self.x.dtype}, {self.x.device}",
            "entries": f"{counted(self.n_entries, 'mask entry', 'mask entries')}: "
            f"{some_of(map(short, self.entry_names))}",
            "y": self._target_line(),
            "truth": None if self.truth is None else "known for each row",
            "part": "of a larger table" if self.is_part else None,
        }
        return Summary(f"Dataset {self.name!r}: {counted(len(self), 'row')}", lines)

    def _target_line(self) -> str:
        if self.class_names is None:
            if self.y.dim() > 1:
                events = int(self.y[:, 1].sum())
                return f"{self.target_name}, survival times with {counted(events, 'event')}"
            low, high = float(self.y.min()), float(self.y.max())
            return f"{self.target_name}, a response from {low:.4g} to {high:.4g}"
        return self._label_counts()

    @property
    def n_features(self) -> int:
        """``D``, the number of columns of ``x``."""
        return self.x.shape[1]

    @property
    def n_entries(self) -> int:
        """``G``, the number of mask entries."""
        return len(self.entry_names)

    @property
    def n_classes(self) -> int | None:
        """``C``, the number of classes; ``None`` for regression."""
        return None if self.class_names is None else len(self.class_names)

    @property
    def task(self) -> Task | Literal["survival"]:
        """``"classification"``, ``"regression"`` or, of survival times, ``"survival"``."""
        if self.y.dim() > 1:
            return "survival"
        return "regression" if self.class_names is None else "classification"

    @property
    def strata(self) -> NDArray[np.int64]:
        """What divisions are stratified by: the class, of survival times the event; 0 for
        responses."""
        if self.y.dim() > 1:
            return np.asarray(self.y[:, 1].long().cpu())
        return np.asarray(self.y.cpu()) if self.class_names else np.zeros(len(self), np.int64)


def _check_shapes(data: Dataset) -> None:
    data._check_tensors(("x", "y"), ("truth",))
    if not data.x.is_floating_point():
        raise TypeError(f"x must be floating; it is {data.x.dtype}")
    rows, features = shaped("x", data.x, "N D", filled=True)
    times = ((rows, 2), (rows, 3)) if data.class_names is None else ()
    shaped("y", data.y, (rows,), *times)
    for name in ("feature_names", "groups"):
        shaped(name, getattr(data, name), (features,))
    if data.truth is not None:
        shaped("truth", data.truth, (rows, data.n_entries))
    if set(data.groups) != set(range(data.n_entries)):
        raise ValueError(
            f"groups must use every mask entry 0 to {data.n_entries - 1}, one for each of "
            f"entry_names, and no other; it uses {sorted(set(data.groups))}"
        )


def _check_values(data: Dataset) -> None:
    for what, bad in (("NaN", data.x.isnan()), ("infinite values", data.x.isinf())):
        if bad.any():
            counts = zip(data.feature_names, bad.sum(0).tolist(), strict=True)
            broken = {name: count for name, count in counts if count}
            raise ValueError(f"x must be finite; it has {what} in column {quoted_counts(broken)}")
    refuse_not_finite(f"y, target {data.target_name!r},", data.y)
    if data.truth is not None and not ((data.truth == 0) | (data.truth == 1)).all():
        raise ValueError("truth must hold 0 and 1 only; it holds other values")


def _check_variation(data: Dataset) -> None:
    if len(data) == 1:
        raise ValueError("the table has one row only; at least two are needed to learn from")
    constant = (data.x == data.x[0]).all(0).nonzero().flatten().tolist()
    if constant:
        names = quoted(data.feature_names[d] for d in constant)
        raise ValueError(f"constant columns explain nothing; leave out {names}")
    if data.class_names is None and (data.y == data.y[0]).all():
        raise ValueError(f"target {data.target_name!r} is constant: {data.y[0].tolist()}")
