"""A step that processes share: each its part of the batch, and one all-reduce."""

import hashlib
from collections.abc import Callable, Sequence
from functools import reduce

import torch
from torch import Tensor

from lexppl.inference.batches import LoadedRows
from lexppl.inference.contexts import seeded
from lexppl.inference.replicates.replicate_rows import HasReplicates, Rows
from lexppl.inference.replicates.replicates import Replicates, tracked_buffers
from lexppl.inference.sample_nodes import SampleNodes
from lexppl.inference.stages import LossTerm
from lexppl.inference.training.distributed.processes import Processes
from lexppl.inference.training.rows.row_weights import refuse_unweighted
from lexppl.inference.training.rows.rows import FoldedRows, StepRows

Differentiate = Callable[[StepRows], list[Tensor]]
"""From rows to the terms' losses; gradients are left with the parameters."""

FEWEST = 2
"""Rows of a share, where a batch has as many: of one alone, batch norm has no statistics."""


class Dealt:
    """Batches dealt out to processes, as evenly as can be, each fold by itself."""

    def __init__(self, rows: HasReplicates, rank: int, count: int) -> None:
        self._folds = len(rows.blocks) if isinstance(rows, FoldedRows) else 1
        self._dim = 1 if rows.by_replicate else 0
        self._rank, self._count = rank, count

    def of(
        self, batch: tuple[Tensor, ...], weights: Tensor | None
    ) -> tuple[tuple[Tensor, ...], Tensor | None, int]:
        """This process's rows, their weights `(R, B)` and how many there are."""
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


def own_seed(seed: int, number: int, rank: int) -> int:
    """The seed of a process's own draws in a step."""
    words = f"{seed} {number} {rank}".encode()
    return int.from_bytes(hashlib.blake2b(words, digest_size=7).digest(), "big")


class SharedStep:
    """What W processes make of a batch of B rows: process r has `B_r` of them and loss ℓ_r, with
    `ℓ_r = N/B_r Σ_{n in r} ℓ_n + g`, g outside the plate over rows, and

        Σ_r B_r/B ℓ_r  =  N/B Σ_n ℓ_n + g;

    gradients and running statistics add up so too, in one all-reduce after the backward pass.
    """

    def __init__(
        self,
        processes: Processes,
        runner: Replicates,
        rows: Rows,
        parameters: Sequence[Tensor],
        terms: int,
        seed: int,
    ) -> None:
        self._processes, self._seed, self._device = processes, seed, rows.device
        self._dealt = Dealt(rows, processes.rank, processes.count)
        self._parameters = list({id(p): p for p in parameters}.values())
        self._statistics = [runner.buffers[name] for name in tracked_buffers(runner.template)]
        self._replicates = runner.count
        self._sizes = [
            *(p.numel() for p in self._parameters),
            len(self._parameters),
            terms * runner.count,
            *(s.numel() for s in self._statistics),
        ]
        dtype = reduce(torch.promote_types, {p.dtype for p in self._parameters}, torch.float32)
        self._empty = torch.zeros(sum(self._sizes), dtype=dtype, device=parameters[0].device)

    def losses(self, differentiate: Differentiate, rows: StepRows) -> list[Tensor]:
        """Leave the batch's gradients with the parameters; its losses, `(R,)` of each term."""
        batch, weights, size = self._dealt.of(rows.batch, rows.weights)
        own = StepRows(batch, weights, size, rows.at, rows.number, size / rows.size)

        def compute() -> Tensor:
            if not size:
                return self._empty
            seed = own_seed(self._seed, rows.number, self._processes.rank)
            with seeded(seed, self._device):
                losses = differentiate(own)
            return self._packed(torch.cat(losses)) * own.share

        return self._unpacked(self._processes.sum_of(compute, self._empty))

    @torch.no_grad()
    def _packed(self, losses: Tensor) -> Tensor:
        """Gradients, which of them there are, losses and statistics."""
        pieces = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters]
        pieces.append(losses.new_tensor([float(p.grad is not None) for p in self._parameters]))
        pieces += [losses.detach(), *self._statistics]
        return torch.cat([piece.reshape(-1).to(self._empty.dtype) for piece in pieces])

    @torch.no_grad()
    def _unpacked(self, whole: Tensor) -> list[Tensor]:
        count = len(self._parameters)
        pieces = whole.split(self._sizes)
        present, losses, statistics = pieces[count].tolist(), pieces[count + 1], pieces[count + 2 :]
        for parameter, piece, is_there in zip(self._parameters, pieces, present, strict=False):
            parameter.grad = None
            if is_there:
                parameter.grad = torch.empty_like(parameter).copy_(piece.view(parameter.shape))
        for held, piece in zip(self._statistics, statistics, strict=True):
            value = piece.view(held.shape)
            held.copy_(value if held.is_floating_point() else value.round())
        return list(losses.split(self._replicates))


def refuse_loaded(rows: Rows | None, name: str) -> None:
    """Refuse rows that processes cannot share."""
    if isinstance(rows, LoadedRows):
        raise ValueError(
            f"{name} comes in batches of its own, and processes share batches of rows that each "
            "of them holds: give tensors, arrays or a data set, the same in each process, or "
            "distributed=False"
        )


def refuse_unshared(
    term: LossTerm, nodes: SampleNodes, plate: str | None, batch: tuple[Tensor, ...]
) -> None:
    """Refuse a program with a site that grows with the rows outside the plate over them."""
    refuse_unweighted(term, plate, "processes", "give distributed=False")
    if len(batch[0]) < 2:
        return
    fewer = SampleNodes.of(term.model, term.guide, tuple(column[1:] for column in batch))
    for own, others in ((nodes.model, fewer.model), (nodes.guide, fewer.guide)):
        for site, node in own.items():
            in_rows = any(frame.name == plate for frame in node["cond_indep_stack"])
            shape = tuple(node["fn"].shape())
            if not in_rows and site in others and shape != tuple(others[site]["fn"].shape()):
                raise ValueError(
                    f"site {site!r} of {type(term.model).__name__} has an entry for each row and "
                    f"stands outside its plate over rows, {plate!r}, so that processes cannot "
                    "share its rows: put it into the plate, or give distributed=False"
                )
