"""Processes that share a fit: how they find one another, add up, agree and fail."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import reduce
from typing import Any, TypeVar
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from lexppl.inference.batches import Columns, LoadedRows, Rows
from lexppl.inference.contexts import seeded
from lexppl.inference.replicates import Replicates, tracked_buffers
from lexppl.inference.training.rows import StepRows

T = TypeVar("T")

PREFIX = "lexppl"  # How keys in a store begin by which processes find one another
PAUSE = 0.05  # Seconds between two looks


class ProcessError(RuntimeError):
    """Another process of a fit has failed or ended, and the fit with it."""


class OneProcess:
    """A fit by itself, with the interface of :class:`Processes`."""

    rank, count = 0, 1

    @property
    def leads(self) -> bool:
        """Whether this is the first, which alone shows, warns and writes."""
        return self.rank == 0

    def sum_of(self, compute: Callable[[], Tensor], empty: Tensor) -> Tensor:
        """The sum over processes of what each computes."""
        return compute()

    def any(self, condition: Callable[[], bool]) -> bool:
        """Whether a condition holds in any process."""
        return condition()

    def each(self, work: Callable[[], T]) -> T:
        """What this process makes by itself, once all have done it."""
        return work()

    def agree(self, identity: Mapping[str, str]) -> None:
        """Refuse to begin where processes were given different things."""

    def share(self, train: Rows, valid: Rows | None) -> None:
        """Take the rows of a fit, or refuse those that processes cannot share."""

    def joined(self) -> AbstractContextManager[None]:
        """From before a fit has looked at its data to its end."""
        return nullcontext()


class Processes(OneProcess):
    """The processes of a torch process group (None for the default one) that share a fit.

    Whatever one does alone ends with a sum over all, and with it whether each has failed or was
    interrupted, so that all raise or stop at the same place.
    """

    def __init__(self, group: Any = None) -> None:
        self._group = group
        self.rank, self.count = dist.get_rank(group), dist.get_world_size(group)
        self.device = torch.device("cpu")
        self.interrupted = False
        self._have_agreed = False

    def sum_of(self, compute: Callable[[], Tensor], empty: Tensor) -> Tensor:
        """The sum `(n,)` over processes, the same bits in each; `empty` where `compute` fails."""
        error: Exception | None = None
        values = empty
        try:
            values = compute()
        except ProcessError:
            raise
        except Exception as raised:
            error = raised
        flags = values.new_tensor([float(error is not None), float(self.interrupted)])
        every = torch.cat([values, flags])
        try:
            dist.all_reduce(every, group=self._group)
        except RuntimeError as lost:
            raise error or self._ended(lost) from lost
        failed, interrupted = every[-2:].tolist()
        if error is not None:
            raise error
        if failed:
            raise ProcessError(
                f"another of the {self.count} processes that share the fit has failed, and the fit "
                "with it; its own error is the cause"
            )
        if interrupted:
            self.interrupted = False
            raise KeyboardInterrupt
        return every[:-2]

    def any(self, condition: Callable[[], bool]) -> bool:
        no = torch.zeros(1, device=self.device)
        return bool(self.sum_of(lambda: no + condition(), no)[0] > 0)

    def each(self, work: Callable[[], T]) -> T:
        done: list[T] = []

        def do() -> bool:
            done.append(work())
            return False

        self.any(do)
        return done[0]

    def agree(self, identity: Mapping[str, str]) -> None:
        everyone = self._gather((None, dict(identity)))
        self._have_agreed = True
        for rank, (error, _) in enumerate(everyone):
            if error is not None:
                raise ProcessError(f"process {rank} of {self.count} has failed: {error}")
        first = everyone[0][1]
        for rank, (_, others) in enumerate(everyone):
            every = dict.fromkeys([*first, *others])
            differing = [name for name in every if others.get(name) != first.get(name)]
            if differing:
                named = [name for name in differing if "." not in name] or differing
                raise ValueError(
                    f"processes that fit together are each given the same, all rows among it, and "
                    f"each learns from its share of every batch; process {rank} differs from "
                    f"process 0 in {', '.join(named[:3])}: give each the same, or distributed="
                    "False for a fit of its own in each"
                )

    def share(self, train: Rows, valid: Rows | None) -> None:
        self.device = train.device
        for name, rows in (("train", train), ("valid", valid)):
            if isinstance(rows, LoadedRows):
                raise ValueError(
                    f"{name} comes in batches of its own, and processes share batches of rows that "
                    "each of them holds: give tensors, arrays or a data set, the same in each "
                    "process, or distributed=False"
                )

    @contextmanager
    def joined(self) -> Iterator[None]:
        """A failure reaches the others until they agree; Ctrl-C waits for a sum."""
        with _delayed_interrupt(self), warnings.catch_warnings():
            if not self.leads:
                warnings.simplefilter("ignore")
            try:
                yield
            except Exception as error:
                if not self._have_agreed:
                    self._gather((f"{type(error).__name__}: {error}", {}))
                raise

    def _gather(self, answer: tuple[str | None, dict[str, str]]) -> list[Any]:
        everyone: list[Any] = [None] * self.count
        try:
            dist.all_gather_object(everyone, answer, group=self._group)
        except RuntimeError as lost:
            raise self._ended(lost) from lost
        return everyone

    def _ended(self, lost: RuntimeError) -> ProcessError:
        reason = str(lost).splitlines()[0] if str(lost) else type(lost).__name__
        return ProcessError(
            f"process {self.rank} of {self.count} waited for the others, and one of them has ended "
            f"or is out of reach; its own error is the cause ({reason})"
        )


@contextmanager
def _delayed_interrupt(processes: Processes) -> Iterator[None]:
    """Let the first Ctrl-C wait until all processes stop at the same step; a second does not."""
    is_main = threading.current_thread() is threading.main_thread()
    # A handler that was not set from Python is none that could be put back.
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def note(number: int, frame: Any) -> None:
        if processes.interrupted:
            raise KeyboardInterrupt
        processes.interrupted = True

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def processes_of(distributed: Any) -> OneProcess:
    """The group of processes that share the rows of a fit: of one process where it runs alone."""
    if distributed is False:
        return OneProcess()
    is_available = dist.is_available()
    if distributed is not None and distributed is not True:
        if not (is_available and isinstance(distributed, dist.ProcessGroup)):
            raise TypeError(
                "distributed must be None, True, False or a torch.distributed.ProcessGroup that "
                f"this process is in; it is {distributed!r}"
            )
        return Processes(distributed) if dist.get_world_size(distributed) > 1 else OneProcess()
    if not is_available or not dist.is_initialized():
        launched = int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1
        if distributed is None:
            if is_available and launched > 1 and dist.is_torchelastic_launched():
                raise ValueError(
                    f"this is one of {launched} processes that torchrun has started, and each "
                    "would fit the same by itself: distributed=True shares the rows of each batch "
                    "among them, distributed=False says that each is to have a fit of its own"
                )
            return OneProcess()
        if not is_available or "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
            raise ValueError(
                "distributed=True needs processes to share with, and this one was started alone: "
                "start the script with torchrun --nproc-per-node 2 script.py, or call "
                "torch.distributed.init_process_group before the fit"
            )
        store, rank, count = next(rendezvous("env://"))
        named = dist.PrefixStore(name_of_round(store, rank, count), store)
        dist.init_process_group(store=named, rank=rank, world_size=count)
    return Processes() if dist.get_world_size() > 1 else OneProcess()


def name_of_round(store: Any, rank: int, count: int) -> str:
    """A name that these processes agree on, and none before them: `torchrun` keeps its store when
    it starts processes again. Each writes a word, the first proposes all words, each confirms its
    own."""
    word = uuid4().hex
    store.set(f"{PREFIX}/{rank}", word)
    while True:
        if rank == 0:
            words = b",".join(store.get(f"{PREFIX}/{r}") for r in range(count)).decode()
            store.set(f"{PREFIX}/proposed", words)
        else:
            words = store.get(f"{PREFIX}/proposed").decode()
        name = f"{PREFIX}/{hashlib.sha256(words.encode()).hexdigest()}"
        if word in words.split(","):
            store.set(f"{name}/{rank}", "")
            if rank == 0 and all(store.check([f"{name}/{r}"]) for r in range(count)):
                store.set(f"{name}/taken", "")
            if store.check([f"{name}/taken"]):
                return name
        time.sleep(PAUSE)


def refuse_processes(distributed: Any) -> None:
    """Refuse to sample in several processes, each of which would sample the same."""
    if processes_of(distributed).count > 1:
        raise ValueError(
            "inference= samples in one process, and several were to share this fit, each of which "
            "would draw the same: call it in one of them, or give distributed=False"
        )


Differentiate = Callable[[StepRows], list[Tensor]]
"""From rows to the terms' losses; gradients are left with the parameters."""

FEWEST = 2  # Rows of a share, where a batch has as many: of one alone, batch norm has no statistics


class Dealt:
    """Batches dealt out to processes, as evenly as can be, each fold by itself."""

    def __init__(self, rows: Rows, rank: int, count: int) -> None:
        self._folds = max(1, len(rows.sizes))
        self._dim = rows.row_dim
        self._rank, self._count = rank, count

    def of(self, batch: Columns, weights: Tensor | None) -> tuple[Columns, Tensor | None, int]:
        """This process's rows, their weights `(R, B)` and how many there are."""
        share = tuple(self._part(column, self._dim) for column in batch)
        part = None if weights is None else self._part(weights, 1)
        return share, part, share[0].shape[self._dim]

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
        part = StepRows(batch, weights, size, rows.at, rows.number, size / rows.size)

        def compute() -> Tensor:
            if not size:
                return self._empty
            seed = own_seed(self._seed, rows.number, self._processes.rank)
            with seeded(seed, self._device):
                losses = differentiate(part)
            return self._packed(torch.cat(losses)) * part.share

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
