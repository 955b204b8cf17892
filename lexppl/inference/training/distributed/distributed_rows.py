"""The rows of a batch that each process learns from, and programs that have no rows to share."""

from typing import Any

import torch
from torch import Tensor

from lexppl.inference.replicates.replicate_rows import HasReplicates
from lexppl.inference.stages import LossTerm
from lexppl.inference.training.first_look import FirstLook
from lexppl.inference.training.rows.folded_rows import FoldedRows
from lexppl.inference.training.rows.row_weights import TrainingRows, WeightedRows

FEWEST = 2
"""Rows of a share, where a batch has as many: of one alone, batch norm has no statistics."""


class Dealt:
    """Batches dealt out to processes, as evenly as can be.

    Process r of W has the r-th of W parts of each batch; a batch of fewer than 2 W rows leaves the
    last processes without any. In a cross-fitted fit each fold is dealt out by itself, so that a
    share stands in the order of its folds too.

    Args:
        rows: of the fit.
        folds: F; 1 for none.
        rank: r.
        count: W.

    Example:
        >>> from lexppl.inference.batches import TensorRows
        >>> rows = TensorRows((torch.arange(7.0),))
        >>> for rank in range(2):
        ...     share, _, size = Dealt(rows, 1, rank, 2).of(rows.columns, None)
        ...     print(share[0], size)
        tensor([0., 1., 2., 3.]) 4
        tensor([4., 5., 6.]) 3
    """

    def __init__(self, rows: HasReplicates, folds: int, rank: int, count: int) -> None:
        self._dim = 1 if rows.by_replicate else 0
        self._folds, self._rank, self._count = folds, rank, count

    @classmethod
    def among(cls, rows: TrainingRows, rank: int, count: int) -> "Dealt":
        """The share of a process, of rows in folds or not, with weights or without."""
        held = rows.rows if isinstance(rows, WeightedRows) else rows
        folds = len(held.blocks) if isinstance(held, FoldedRows) else 1
        return cls(rows, folds, rank, count)

    def of(
        self, batch: tuple[Tensor, ...], weights: Tensor | None
    ) -> tuple[tuple[Tensor, ...], Tensor | None, int]:
        """This process's rows, their weights and how many there are.

        Args:
            batch: the columns of a batch.
            weights: of its rows, `(R, B)`, or None.
        """
        share = tuple(self._part(column, self._dim) for column in batch)
        own = None if weights is None else self._part(weights, 1)
        return share, own, share[0].shape[self._dim]

    def _part(self, column: Tensor, dim: int) -> Tensor:
        among = min(self._count, max(1, column.shape[dim] // (FEWEST * self._folds)))
        if self._rank >= among:
            return column.narrow(dim, 0, 0)
        # Parts of the folds are as even as parts of the whole are, in the same order: where the
        # program parts a share into folds it finds each row in its own.
        blocks = column.tensor_split(self._folds, dim)
        parts = [block.tensor_split(among, dim)[self._rank] for block in blocks]
        return parts[0] if self._folds == 1 else torch.cat(parts, dim)


def refuse_unshared(
    term: LossTerm, look: FirstLook, plate: str | None, batch: tuple[Tensor, ...]
) -> None:
    """Refuse a program whose rows cannot be shared among processes.

    Each process scales its rows up to the data set by the plate over them, and what stands outside
    that plate counts once. A site that grows with the rows and stands outside it would be counted
    as if it were of all rows.

    Args:
        term: of a fit by several processes.
        look: the program's statements on the batch.
        plate: its plate over rows, or None.
        batch: some rows.

    Raises:
        ValueError: no such plate, a site outside it with an entry for each row, or an objective
            that does not read a site's scale.
    """
    name = type(term.model).__name__
    if not term.objective.reads_scales:
        raise ValueError(
            "processes scale the rows that each has up to the data set, and "
            f"{type(term.objective).__name__} does not say that it reads a site's scale: set its "
            "reads_scales = True if it does, or give distributed=False"
        )
    if plate is None:
        raise ValueError(
            f"processes share the rows of a plate at dim -1, and {name} has none; observe its rows "
            'in pyro.plate("data", len(x), dim=-1), or give distributed=False'
        )
    if len(batch[0]) < 2:
        return
    fewer = FirstLook.at(term.model, term.guide, tuple(column[1:] for column in batch))
    for nodes, others in ((look.model, fewer.model), (look.guide, fewer.guide)):
        for site, node in nodes.items():
            in_rows = any(frame.name == plate for frame in node["cond_indep_stack"])
            if not in_rows and site in others and _shape(node) != _shape(others[site]):
                raise ValueError(
                    f"site {site!r} of {name} has an entry for each row and stands outside its "
                    f"plate over rows, {plate!r}, so that processes cannot share its rows: put it "
                    "into the plate, or give distributed=False"
                )


def _shape(node: dict[str, Any]) -> tuple[int, ...]:
    return tuple(node["fn"].shape())
