"""Training rows divided into folds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import torch
from torch import Tensor

from lexppl.inference.batches import LoadedRows, TensorRows
from lexppl.inference.replicates.replicate_rows import Rows, StackedRows


@dataclass(frozen=True)
class FoldedRows:
    """Rows whose batches stand in the order of their folds, as many of each as can be.

    Args:
        blocks: the rows of each fold.
    """

    blocks: tuple[TensorRows | StackedRows, ...]

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
    """Divide rows into F folds at random, labels in proportion.

    Args:
        rows: N of them.
        folds: F.

    Raises:
        ValueError: a loader, which cannot be divided; fewer than two rows a fold.
    """
    if isinstance(rows, LoadedRows):
        raise ValueError(
            "a loader cannot be divided into folds: give tensors, arrays or a data set, or folds=1"
        )
    if len(rows) < 2 * folds:
        raise ValueError(f"{folds} folds need {2 * folds} rows or more; there are {len(rows)}")
    stacked = rows.columns if rows.by_replicate else tuple(c[None] for c in rows.columns)
    order = _dealt(stacked, len(rows))
    replicate = torch.arange(len(order), device=order.device).unsqueeze(1)
    # Fold f has the rows f, f + F, … of the order: the first folds have a row more, as
    # tensor_split of any number of rows has.
    blocks = [
        tuple(column[replicate, order[:, fold::folds]] for column in stacked)
        for fold in range(folds)
    ]
    if rows.by_replicate:
        return FoldedRows(tuple(StackedRows(block) for block in blocks))
    return FoldedRows(tuple(TensorRows(tuple(c[0] for c in block)) for block in blocks))


def _dealt(columns: tuple[Tensor, ...], rows: int) -> Tensor:
    """An order of the rows `(R, N)`, at random within each label and label after label."""
    x, *others = columns
    order = torch.rand(x.shape[:2], device=x.device).argsort(1)
    y = others[0] if others else None
    if y is None or y.dim() != 2 or y.is_floating_point():
        return order
    return order.gather(1, y.gather(1, order).argsort(dim=1, stable=True))
