"""The rows of a fit: of a step, in folds, with weights; and whether its programs take them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor, nn

from lexppl.inference.batches import LoadedRows, TensorRows
from lexppl.inference.replicates.replicate_rows import Rows, of_replicate
from lexppl.inference.stages import Stage

PREDICTOR, LIKELIHOOD = "predictor", "likelihood"
"""Where a program's likelihood stands, by the convention of explainers."""
IMAGE = 3
"""Dimensions of an image, channels first."""
MOST_BEYOND = 0.5
"""How far pixels may leave [0, 1]: noise and enlarged images do so by less."""


@dataclass(frozen=True)
class StepRows:
    """The rows of one step, and the progress of the stage.

    Args:
        batch: the columns.
        weights: of the rows, `(R, B)`, or None.
        size: B.
        at: the progress, in [0, 1].
        number: of the step, over all epochs and stages.
        share: of the batch, that these rows are: 1 but for one of several processes.
    """

    batch: tuple[Tensor, ...]
    weights: Tensor | None
    size: int
    at: float
    number: int = 0
    share: float = 1.0


@dataclass(frozen=True)
class FoldedRows:
    """Rows whose batches stand in the order of their folds, as many of each as can be.

    Args:
        blocks: the rows of each fold.
    """

    blocks: tuple[TensorRows, ...]

    @property
    def by_replicate(self) -> bool:
        return self.blocks[0].by_replicate

    @property
    def columns(self) -> tuple[Tensor, ...]:
        """All rows, fold after fold."""
        return self._joined([block.columns for block in self.blocks])

    def __len__(self) -> int:
        return sum(len(block) for block in self.blocks)

    @property
    def device(self) -> torch.device:
        return self.blocks[0].device

    def batches(self, size: int, shuffle: bool) -> Iterator[tuple[Tensor, ...]]:
        """Batches of at most `size` rows, but for rounding up to the same number of each fold."""
        each = -(-size // len(self.blocks))
        parts = zip_longest(*(block.batches(each, shuffle) for block in self.blocks))
        for batch in parts:
            # A fold with a row fewer than others may have run out: those that follow have too.
            yield self._joined([part for part in batch if part is not None])

    def _joined(self, parts: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        dim = 1 if self.by_replicate else 0
        return tuple(torch.cat(columns, dim) for columns in zip(*parts, strict=True))


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
    return FoldedRows(tuple(rows.at(order[..., fold::folds]) for fold in range(folds)))


def _dealt(columns: tuple[Tensor, ...], rows: int) -> Tensor:
    """An order of the rows `(R, N)`, at random within each label and label after label."""
    x, *others = columns
    order = torch.rand(x.shape[:2], device=x.device).argsort(1)
    y = others[0] if others else None
    if y is None or y.dim() != 2 or y.is_floating_point():
        return order
    return order.gather(1, y.gather(1, order).argsort(dim=1, stable=True))


@dataclass(frozen=True)
class WeightedRows:
    """Rows that carry their weights with them.

    Args:
        rows: their last column is the weights: `(N, R)`, or `(R, N)` where each replicate has rows
            of its own.
    """

    rows: TensorRows | FoldedRows

    @property
    def by_replicate(self) -> bool:
        return self.rows.by_replicate

    @property
    def device(self) -> torch.device:
        return self.rows.device

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def total(self) -> Tensor:
        """`Σ_n w_{rn}` of each replicate, `(R,)`."""
        return self._weights(self.rows.columns[-1]).sum(1)

    def batches(self, size: int, shuffle: bool) -> Iterator[tuple[Tensor, ...]]:
        """Batches as a program is given them, without their weights."""
        for batch, _ in self.weighted_batches(size, shuffle):
            yield batch

    def weighted_batches(
        self, size: int, shuffle: bool
    ) -> Iterator[tuple[tuple[Tensor, ...], Tensor]]:
        """Batches and the weights of their rows, `(R, B)`."""
        for batch in self.rows.batches(size, shuffle):
            yield batch[:-1], self._weights(batch[-1])

    def _weights(self, column: Tensor) -> Tensor:
        return column if self.by_replicate else column.mT


TrainingRows = Rows | FoldedRows | WeightedRows


def batches_with_weights(
    rows: TrainingRows, size: int, shuffle: bool
) -> Iterator[tuple[tuple[Tensor, ...], Tensor | None]]:
    """Batches and the weights of their rows, `(R, B)`; None where rows have none."""
    if isinstance(rows, WeightedRows):
        yield from rows.weighted_batches(size, shuffle)
        return
    for batch in rows.batches(size, shuffle):
        yield batch, None


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
    """Refuse images of another size than the program's grouping, and rows that are no texts.

    Args:
        program: with a `grouping` of images, or with a part of its `selector` that has
            `check_rows(x)`; any other takes all.
        x: rows `(N, *event)`.
    """
    taken = getattr(getattr(program, "grouping", None), "event_shape", ())
    if len(taken) == IMAGE and tuple(x.shape[1:]) != tuple(taken):
        size = ", ".join(map(str, taken))
        raise ValueError(f"the model takes images (N, {size}); it is given {tuple(x.shape)}")
    selector = getattr(program, "selector", None)
    for part in selector.modules() if isinstance(selector, nn.Module) else ():
        check = getattr(part, "check_rows", None)
        if check is not None:
            check(x)


def refuse_rows(
    stages: Sequence[Stage], rows: TrainingRows | None, name: str, replicates: int
) -> None:
    """Refuse rows of a fit that one of its programs does not take (:func:`refuse_unlike`), or whose
    responses it cannot have (:func:`refuse_responses`)."""
    inner = rows.rows if isinstance(rows, WeightedRows) else rows
    if inner is None or isinstance(inner, LoadedRows):
        return
    for replicate in range(replicates if inner.by_replicate else 1):
        x, *others = of_replicate(inner, inner.columns, replicate)
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
    """Refuse images that are not of the scale [0, 1], such as those of bytes from 0 to 255.

    Example:
        >>> import torch
        >>> refuse_other_scale(torch.tensor([[[[0.0, 255.0]]]]))
        Traceback (most recent call last):
        ...
        ValueError: x must be images in [0, 1], as in fit; they go from 0 to 255. Divide by 255
    """
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
