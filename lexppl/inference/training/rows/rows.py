"""The rows of a fit: of a step, in folds, with weights; and whether its programs take them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor, nn

from lexppl.inference.batches import LoadedRows, TensorRows
from lexppl.inference.replicates.replicate_rows import ReplicateData, Rows, of_replicate
from lexppl.inference.stages import Stage

PREDICTOR, LIKELIHOOD = "predictor", "likelihood"
"""Where a program's likelihood stands, by the convention of explainers."""
IMAGE = 3
"""Dimensions of an image, channels first."""
MOST_BEYOND = 0.5
"""How far pixels may leave [0, 1]: noise and enlarged images do so by less."""


@dataclass(frozen=True)
class StepRows:
    """The rows of one step, their weights `(R, B)`, B, the progress in [0, 1], the step's number,
    and the share of the batch that they are."""

    batch: tuple[Tensor, ...]
    weights: Tensor | None
    size: int
    at: float
    number: int = 0
    share: float = 1.0


@dataclass(frozen=True)
class FoldedRows(TensorRows):
    """Rows fold after fold, whose batches are so too, with as many of each fold as can be."""

    sizes: tuple[int, ...] = ()

    @cached_property
    def blocks(self) -> list[TensorRows]:
        """The rows of each fold."""
        dim = 1 if self.by_replicate else 0
        parts = zip(*(column.split(self.sizes, dim) for column in self.columns), strict=True)
        return [TensorRows(part, self.by_replicate) for part in parts]

    def batches(self, size: int, shuffle: bool) -> Iterator[tuple[Tensor, ...]]:
        """Batches of at most `size` rows, but for rounding up to the same number of each fold."""
        each, dim = -(-size // len(self.blocks)), 1 if self.by_replicate else 0
        for batch in zip_longest(*(block.batches(each, shuffle) for block in self.blocks)):
            # A fold with a row fewer than others may have run out: those that follow have too.
            present = zip(*(part for part in batch if part is not None), strict=True)
            yield tuple(torch.cat(columns, dim) for columns in present)


def folded(rows: Rows, folds: int) -> FoldedRows:
    """Divide rows into F folds at random, labels in proportion."""
    if isinstance(rows, LoadedRows):
        raise ValueError(
            "a loader cannot be divided into folds: give tensors, arrays or a data set, or folds=1"
        )
    if len(rows) < 2 * folds:
        raise ValueError(f"{folds} folds need {2 * folds} rows or more; there are {len(rows)}")
    stacked = rows.columns if rows.by_replicate else tuple(c[None] for c in rows.columns)
    order = _dealt(stacked, len(rows))
    order = order if rows.by_replicate else order[0]
    # Fold f has the rows f, f + F, … of the order: the first folds have a row more, as
    # tensor_split of any number of rows has.
    places = [order[..., fold::folds] for fold in range(folds)]
    columns = rows.at(torch.cat(places, -1)).columns
    sizes = tuple(one.shape[-1] for one in places)
    return FoldedRows(columns, rows.by_replicate, rows.is_weighted, sizes)


def _dealt(columns: tuple[Tensor, ...], rows: int) -> Tensor:
    """An order of the rows `(R, N)`, at random within each label and label after label."""
    x, *others = columns
    order = torch.rand(x.shape[:2], device=x.device).argsort(1)
    y = others[0] if others else None
    if y is None or y.dim() != 2 or y.is_floating_point():
        return order
    return order.gather(1, y.gather(1, order).argsort(dim=1, stable=True))


def likelihood_of(program: Any) -> Any:
    """The likelihood of a program's predictor, or None where there is none."""
    return getattr(getattr(program, PREDICTOR, None), LIKELIHOOD, None)


def holds_labels(program: Any, y: Tensor) -> bool:
    """Whether y is of labels: of an integer type, and not of a likelihood of counts or times."""
    return not y.is_floating_point() and bool(getattr(likelihood_of(program), "discrete", True))


def refuse_responses(program: Any, y: Tensor) -> None:
    """Refuse responses that the likelihood of a program cannot have."""
    check = getattr(likelihood_of(program), "check_responses", None)
    if check is not None:
        check(y)


def refuse_unlike(program: Any, x: Tensor) -> None:
    """Refuse images of another size than the program's grouping, and rows that are no texts."""
    taken = getattr(getattr(program, "grouping", None), "event_shape", ())
    if len(taken) == IMAGE and tuple(x.shape[1:]) != tuple(taken):
        size = ", ".join(map(str, taken))
        raise ValueError(f"the model takes images (N, {size}); it is given {tuple(x.shape)}")
    selector = getattr(program, "selector", None)
    for part in selector.modules() if isinstance(selector, nn.Module) else ():
        check = getattr(part, "check_rows", None)
        if check is not None:
            check(x)


def refuse_rows(stages: Sequence[Stage], rows: Rows | None, name: str, replicates: int) -> None:
    """Refuse rows of a fit, or responses, that one of its programs does not take."""
    if rows is None or isinstance(rows, LoadedRows):
        return
    for replicate in range(replicates if rows.by_replicate else 1):
        x, *others = of_replicate(rows, rows.columns, replicate)
        for term in (term for stage in stages for term in stage.terms):
            try:
                refuse_unlike(term.model, x)
                for y in others[:1]:
                    refuse_responses(term.model, y)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None


def are_unit_pixels(x: Tensor, event_shape: Sequence[int]) -> bool:
    """Whether x holds images, and all of their pixels lie in [0, 1]."""
    if len(event_shape) != IMAGE or not x.numel():
        return False
    low, high = x.aminmax()
    return bool(low >= 0) and bool(high <= 1)


def refuse_other_scale(x: Tensor) -> None:
    """Refuse images that are not of the scale [0, 1], such as those of bytes from 0 to 255."""
    low, high = (float(value) for value in x.aminmax())
    if low < -MOST_BEYOND or high > 1 + MOST_BEYOND:
        hint = ". Divide by 255" if low >= 0 else ""
        raise ValueError(
            f"x must be images in [0, 1], as in fit; they go from {low:g} to {high:g}{hint}"
        )


def check_alike(x: Tensor, parameter: Tensor) -> None:
    """Refuse rows on another device, or of another type, than the model."""
    if parameter.device != x.device:
        raise ValueError(
            f"x is on {x.device} and the model on {parameter.device}; move one to the other"
        )
    if x.is_floating_point() and x.dtype != parameter.dtype:
        raise ValueError(
            f"x is {x.dtype} and the model {parameter.dtype}; convert one, such as x.to"
            f"({parameter.dtype}) or model.to({x.dtype}), which a System has too"
        )


def data_fields(train: Any, rows: Rows, model: Any, shown: Tensor) -> dict[str, Any]:
    """What a result keeps of the data: names, labels, the shape of a row."""
    x, *others = rows.columns if isinstance(rows, TensorRows) else (shown,)
    event_shape = tuple(shown.shape[1:])
    found: dict[str, Any] = {
        "event_shape": event_shape,
        "unit_pixels": are_unit_pixels(x, event_shape),
        "labels": None,
    }
    if others and holds_labels(model, others[0]):
        found["labels"] = tuple(others[0].unique().tolist())
    for name in ("entry_names", "feature_names", "class_names"):
        is_common = isinstance(train, ReplicateData)
        found[name] = train.common(name) if is_common else getattr(train, name, None)
    return found
