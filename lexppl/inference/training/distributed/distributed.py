"""Processes that fit together: how they find one another, add up, agree and fail."""

import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")

SOON = 30.0
"""Seconds after which a process says that it waits for others to begin."""
FLAGS = 2
"""Entries after what is added up: how many processes failed, and how many were interrupted."""


class ProcessError(RuntimeError):
    """Another process of a fit has failed or ended, and the fit with it."""


class Processes:
    """The processes of a torch process group that fit together, of which this is one.

    Whatever one of them does alone (its rows of a step, a callback) ends with all of them adding
    up. Each says there whether it has failed or was interrupted, so that all raise or stop at the
    same place, and none waits for one that will not come. One that was killed is missed at once,
    one that hangs when the group's own timeout is over (torch's is half an hour).

    Args:
        group: of `torch.distributed`; None for its default group.

    Example:
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> one = Processes()
        >>> one.leads, one.sum(torch.tensor([1.0, 2.0]))
        (True, tensor([1., 2.]))
        >>> dist.destroy_process_group()
    """

    def __init__(self, group: Any = None) -> None:
        self._group = group
        self.rank = dist.get_rank(group)
        self.count = dist.get_world_size(group)
        self.device = torch.device("cpu")
        """Of the rows, on which is added up."""
        self.interrupted = False
        """Whether Ctrl-C was pressed and the others have not been told."""
        self._met = False

    @property
    def leads(self) -> bool:
        """Whether this is the first, which alone shows, warns and writes."""
        return self.rank == 0

    def sum(self, values: Tensor, error: Exception | None = None) -> Tensor:
        """The sum over processes, the same bits in each.

        Args:
            values: `(n,)` of this process, the same type and n in each.
            error: why this process has none; its values are then not read.

        Raises:
            Exception: `error` itself.
            ProcessError: another process has failed or ended.
            KeyboardInterrupt: one was interrupted.
        """
        said = [float(error is not None), float(self.interrupted)]
        both = torch.cat([values, values.new_tensor(said)])
        try:
            dist.all_reduce(both, group=self._group)
        except RuntimeError as lost:
            raise self._ended(lost) from lost
        failed, interrupted = both[-FLAGS:].tolist()
        if failed:
            self._raise(error)
        if interrupted:
            self.interrupted = False
            raise KeyboardInterrupt
        return both[:-FLAGS]

    def sum_of(self, compute: Callable[[], Tensor], empty: Callable[[], Tensor]) -> Tensor:
        """The sum over processes of what each computes.

        Args:
            compute: values `(n,)`.
            empty: zeros like them, where it fails.

        Raises:
            as :meth:`sum`.
        """
        try:
            values = compute()
        except ProcessError:
            raise
        except Exception as error:
            self.sum(empty(), error)
            raise
        return self.sum(values)

    def any(self, ask: Callable[[], bool]) -> bool:
        """Whether any process says yes.

        Raises:
            as :meth:`sum`.
        """
        no = torch.zeros(1, device=self.device)
        return bool(self.sum_of(lambda: no + ask(), lambda: no)[0] > 0)

    def each(self, work: Callable[[], T]) -> T:
        """What each process does by itself, once all have done it.

        Raises:
            as :meth:`sum`.
        """
        done: list[T] = []

        def ask() -> bool:
            done.append(work())
            return False

        self.any(ask)
        return done[0]

    def agree(self, given: Mapping[str, str], last: bool = False) -> None:
        """Refuse to begin where processes were given different things.

        Args:
            given: of this process, by what it is called; what has a dot in its name follows from
                what has none, if there is such a difference.
            last: whether no more is to be agreed on.

        Raises:
            ValueError: something differs, in every process.
            ProcessError: another process has failed before.
        """
        with _telling_of_waiting():
            everyone = self._gather((None, dict(given)))
        for rank, (error, _) in enumerate(everyone):
            if error is not None:
                self._met = True
                raise ProcessError(self._failed(rank, error))
        first = everyone[0][1]
        for rank, (_, others) in enumerate(everyone):
            every = dict.fromkeys([*first, *others])
            differing = [name for name in every if others.get(name) != first.get(name)]
            if differing:
                self._met = True
                told = [name for name in differing if "." not in name] or differing
                raise ValueError(
                    f"processes that fit together are each given the same, all rows among it, and "
                    f"each learns from its share of every batch; process {rank} differs from "
                    f"process 0 in {', '.join(told[:3])}: give each the same, or distributed="
                    "False for a fit of its own in each"
                )
        self._met = last

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Let tensors be in each process as they are in the first."""
        for tensor in tensors:
            sent = tensor.detach().contiguous()
            dist.broadcast(sent, self._first, group=self._group)
            with torch.no_grad():
                tensor.copy_(sent)

    @contextmanager
    def joined(self) -> Iterator[None]:
        """From before a fit has looked at its data to its end: the others are told of a failure
        until they have agreed, Ctrl-C waits for the next sum, and only the first one warns."""
        with _held_back(self), warnings.catch_warnings():
            if not self.leads:
                warnings.simplefilter("ignore")
            try:
                yield
            except Exception as error:
                if not self._met and not isinstance(error, ProcessError):
                    self._gather((_text(error), {}))
                raise

    def refuse_backend(self) -> None:
        """Refuse a group that cannot add up where the rows are.

        Raises:
            ValueError: nccl, and rows on another device than CUDA.
        """
        if dist.get_backend(self._group) == "nccl" and self.device.type != "cuda":
            raise ValueError(
                f"the process group's backend is nccl, which adds up on CUDA alone, and the rows "
                f'are on {self.device}: init_process_group("gloo"), or move rows and model to '
                "f\"cuda:{os.environ['LOCAL_RANK']}\""
            )

    @property
    def _first(self) -> int:
        return 0 if self._group is None else dist.get_global_rank(self._group, 0)

    def _gather(self, said: tuple[str | None, dict[str, str]]) -> list[Any]:
        everyone: list[Any] = [None] * self.count
        at = torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext()
        try:
            with at:
                dist.all_gather_object(everyone, said, group=self._group)
        except RuntimeError as lost:
            raise self._ended(lost) from lost
        return everyone

    def _raise(self, error: Exception | None) -> NoReturn:
        everyone = self._gather((None if error is None else _text(error), {}))
        if error is not None:
            raise error
        rank, text = next((r, said) for r, (said, _) in enumerate(everyone) if said is not None)
        raise ProcessError(self._failed(rank, text))

    def _failed(self, rank: int, text: str) -> str:
        return f"process {rank} of {self.count} has failed, and the fit with it: {text}"

    def _ended(self, lost: RuntimeError) -> ProcessError:
        told = str(lost).splitlines()[0] if str(lost) else type(lost).__name__
        return ProcessError(
            f"process {self.rank} of {self.count} waited for the others, and one of them has ended "
            f"or is out of reach; what it says itself is the cause ({told})"
        )


@contextmanager
def _telling_of_waiting() -> Iterator[None]:
    """Warn where the other processes are long in coming: they may not call the fit at all."""

    def tell() -> None:
        warnings.warn(
            f"this process has waited {SOON:g} seconds for the others to begin the fit that they "
            "share: each must call it; distributed=False fits in one alone",
            stacklevel=2,
        )

    timer = threading.Timer(SOON, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


@contextmanager
def _held_back(processes: Processes) -> Iterator[None]:
    """Let the first Ctrl-C wait until all processes stop at the same step; a second does not."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: Any) -> None:
        if processes.interrupted:
            raise KeyboardInterrupt
        processes.interrupted = True

    # A handler that was not set from Python is none that could be put back.
    if before is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
