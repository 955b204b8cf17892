"""A step that processes share: each its rows, one gradient."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce

import torch
from torch import Tensor

from lexppl.inference.contexts import seed_generators
from lexppl.inference.replicates.replicates import Replicates, tracked_buffers
from lexppl.inference.training.distributed.distributed import Processes
from lexppl.inference.training.distributed.distributed_rows import Dealt
from lexppl.inference.training.rows.row_weights import TrainingRows
from lexppl.inference.training.rows.step_rows import StepRows
from lexppl.inference.training.step_guard import laid_out_as

Differentiate = Callable[[StepRows], list[Tensor]]
"""From rows to the terms' losses; gradients are left with the parameters."""


class OwnDraws:
    """A random state of a process's own, beside the one that all have in common.

    The common one orders the rows, and so must be alike everywhere. It is drawn from anew at each
    epoch by seed, epoch and process, so that nothing of it need be kept to go on from an epoch.

    Args:
        seed: of the fit.
        rank: of the process.
        device: of the rows.

    Example:
        >>> draws = []
        >>> for rank in range(2):
        ...     own = OwnDraws(0, rank, torch.device("cpu"))
        ...     own.begin(3)
        ...     with torch.random.fork_rng(devices=[]), own.drawing():
        ...         draws.append(torch.rand(1))
        >>> bool(draws[0] == draws[1])
        False
    """

    def __init__(self, seed: int, rank: int, device: torch.device) -> None:
        self._seed, self._rank = seed, rank
        self._cuda = [device] if device.type == "cuda" else []
        self._states: list[Tensor] = []

    def seed_of(self, epoch: int | None) -> int:
        """The seed of an epoch, or of what is drawn alike at each, None."""
        said = f"{self._seed} {epoch} {self._rank}".encode()
        return int.from_bytes(hashlib.blake2b(said, digest_size=7).digest(), "big")

    def begin(self, epoch: int) -> None:
        """Begin an epoch, counted over all stages."""
        with torch.random.fork_rng(devices=self._cuda):
            seed_generators(self.seed_of(epoch))
            self._states = self._held()

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Draw from the own state inside, and put the common one back."""
        common = self._held()
        self._hold(self._states)
        try:
            yield
        finally:
            self._states = self._held()
            self._hold(common)

    def _held(self) -> list[Tensor]:
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(d) for d in self._cuda)]

    def _hold(self, states: Sequence[Tensor]) -> None:
        cpu, *others = states
        torch.set_rng_state(cpu)
        for device, state in zip(self._cuda, others, strict=True):
            torch.cuda.set_rng_state(state, device)


class SharedStep:
    """What W processes make of a batch together: the losses and gradients of all its B rows.

    Process r runs its `B_r` rows as a mini-batch of the data set, with loss
    `ℓ_r = N/B_r Σ_{n in r} ℓ_n + g`, `g` what stands outside the plate over rows. Then

        Σ_r B_r/B ℓ_r  =  N/B Σ_n ℓ_n + g,

    the loss of the whole batch: rows count alike however unevenly they are dealt out, and a global
    latent's prior counts once. The same sum of gradients is its gradient. Running statistics of
    batch norm are averaged so too; what is normalised is so by the statistics of a process's rows.

    Losses, gradients and statistics are added up in one piece after the backward pass, and not by
    DistributedDataParallel: its hooks are called by `.backward()` alone, where a step asks
    `torch.autograd.grad` for the gradients of stacked replicates and keeps those that tune a
    control variate apart. A step's cost is that of one all-reduce and of reading its flags.

    Args:
        processes: all of them.
        dealt: batches to processes.
        draws: of this process.
        parameters: which the stage moves, tuned ones among them.
        statistics: running statistics of batch norm.
        losses: how many a step has, terms times replicates.
        replicates: R.
    """

    def __init__(
        self,
        processes: Processes,
        dealt: Dealt,
        draws: OwnDraws,
        parameters: Sequence[Tensor],
        statistics: Sequence[Tensor],
        losses: int,
        replicates: int,
    ) -> None:
        self.draws = draws
        self._processes, self._dealt = processes, dealt
        self._parameters = list({id(p): p for p in parameters}.values())
        self._places = {id(p): place for place, p in enumerate(self._parameters)}
        self._statistics = list(statistics)
        self._losses, self._replicates = losses, replicates
        self._dtype = reduce(
            torch.promote_types, {p.dtype for p in self._parameters}, torch.float32
        )
        self._sizes = [
            *(p.numel() for p in self._parameters),
            len(self._parameters),
            losses,
            *(s.numel() for s in self._statistics),
        ]
        self._share = 0.0

    def losses(
        self,
        differentiate: Differentiate,
        rows: StepRows,
        joints: int,
    ) -> list[Tensor]:
        """Leave the batch's gradients with the parameters; its losses, `(R,)` of each term.

        Args:
            differentiate: of a share.
            rows: of the whole batch.
            joints: how many of the terms ask for :meth:`joint`.
        """
        own, weights, size = self._dealt.of(rows.batch, rows.weights)
        self._share = size / rows.size

        def compute() -> Tensor:
            if not size:
                # Without rows there is nothing to run, and the others still add up.
                for _ in range(joints):
                    self._processes.sum(self._zeros())
                return self._zeros()
            with self.draws.drawing():
                found = differentiate(StepRows(own, weights, size, rows.at))
            return self._packed([p.grad for p in self._parameters], torch.cat(found))

        return self._unpacked(self._processes.sum_of(compute, self._zeros))

    def joint(
        self, parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]
    ) -> list[Tensor | None]:
        """The whole batch's gradients of a term, from this process's.

        Args:
            parameters: which the term moves.
            gradients: of this process's rows.
        """
        placed: list[Tensor | None] = [None] * len(self._parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            placed[self._places[id(parameter)]] = gradient
        found = self._gradients(self._processes.sum(self._packed(placed, None)))
        return [found[self._places[id(parameter)]] for parameter in parameters]

    def _zeros(self) -> Tensor:
        return torch.zeros(sum(self._sizes), dtype=self._dtype, device=self._parameters[0].device)

    @torch.no_grad()
    def _packed(self, gradients: Sequence[Tensor | None], losses: Tensor | None) -> Tensor:
        """This process's part of the sum: its gradients, which of them there are, its losses and
        statistics."""
        like = self._parameters[0]
        there = [float(gradient is not None) for gradient in gradients]
        pieces = [
            torch.zeros_like(p) if g is None else g
            for p, g in zip(self._parameters, gradients, strict=True)
        ]
        pieces = [piece.detach().reshape(-1) for piece in pieces]
        pieces.append(like.new_tensor(there))
        pieces.append(like.new_zeros(self._losses) if losses is None else losses.detach())
        pieces += [statistic.reshape(-1) for statistic in self._statistics]
        return torch.cat([piece.to(self._dtype) for piece in pieces]) * self._share

    def _gradients(self, whole: Tensor) -> list[Tensor | None]:
        pieces = whole.split(self._sizes)
        there = pieces[len(self._parameters)].tolist()
        return [
            piece.view(p.shape).to(p.dtype) if some else None
            for p, piece, some in zip(self._parameters, pieces, there, strict=False)
        ]

    @torch.no_grad()
    def _unpacked(self, whole: Tensor) -> list[Tensor]:
        for parameter, gradient in zip(self._parameters, self._gradients(whole), strict=True):
            parameter.grad = None if gradient is None else laid_out_as(parameter, gradient)
        _, losses, *statistics = whole.split(self._sizes)[len(self._parameters) :]
        for held, piece in zip(self._statistics, statistics, strict=True):
            value = piece.view(held.shape)
            held.copy_(value if held.is_floating_point() else value.round())
        return list(losses.split(self._replicates))


def shared_step(
    processes: Processes | None,
    runner: Replicates,
    rows: TrainingRows,
    parameters: Sequence[Tensor],
    terms: int,
    seed: int,
) -> SharedStep | None:
    """What adds up the processes' shares of a stage's steps; None for one process.

    Args:
        processes: all of them, or None for one.
        runner: the replicates.
        rows: that are learned from.
        parameters: which the stage moves or tunes.
        terms: of the stage.
        seed: of the fit.
    """
    if processes is None:
        return None
    return SharedStep(
        processes,
        Dealt.among(rows, processes.rank, processes.count),
        OwnDraws(seed, processes.rank, rows.device),
        parameters,
        [runner.buffers[name] for name in tracked_buffers(runner.template)],
        terms * runner.count,
        runner.count,
    )
