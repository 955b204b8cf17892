"""Independent tasks, here or on other machines, with the same numbers wherever they run."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from lexppl.argument_checks import int_at_least

AT_ONCE = 4
"""Tasks a worker that are handed out before their results are taken, so that what they need and
give does not pile up."""

# Random states and Pyro's settings are the process's, so that tasks in threads of one take turns.
_TURNS = threading.RLock()


@dataclass(frozen=True)
class Outcome:
    """What came of a task.

    Args:
        number: of the task, from 0.
        value: what it returned; None where it failed.
        error: why it failed, or None.
    """

    number: int
    value: Any = None
    error: Exception | None = None


@contextmanager
def fixed_threads(threads: int) -> Iterator[None]:
    """So many threads for sums and products inside; as many as before after.

    A sum over another number of threads is another sum in its last bits.

    Args:
        threads: of torch, of BLAS and of OpenMP.

    Example:
        >>> before = torch.get_num_threads()
        >>> with fixed_threads(1):
        ...     torch.get_num_threads()
        1
        >>> torch.get_num_threads() == before
        True
    """
    before = torch.get_num_threads()
    with threadpool_limits(limits=threads):
        torch.set_num_threads(threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def outcomes(
    task: Callable[..., Any],
    arguments: Iterable[tuple[Any, ...]],
    *,
    shared: tuple[Any, ...] = (),
    client: Any = None,
    jobs: int = 1,
    threads: int = 1,
) -> Generator[Outcome, None, None]:
    """Run `task(*arguments[i], *shared)` for each i, and give what came of each as it ends.

    A task that fails is an outcome too, and stops no other. Arguments are taken as workers become
    free, so that an iterable of large ones is never held as a whole.

    Args:
        task: a function; tasks must not depend on each other.
        arguments: of each task. On a client, a Dask `Delayed` or future among them is computed
            there.
        shared: further arguments that all tasks have; a client's workers are sent them once.
        client: a `dask.distributed.Client`, or None to run here.
        jobs: processes here, by joblib; −1 for one a core. A client has its own workers.
        threads: of each task, whatever the machine has.

    Raises:
        TypeError: a client that is none.
        ValueError: `jobs` beside a client, or counts below 1.

    Example:
        >>> [outcome.value for outcome in outcomes(divmod, [(7,), (9,)], shared=(2,))]
        [(3, 1), (4, 1)]
        >>> [one.error for one in outcomes(divmod, [(7,)], shared=(0,))]
        [ZeroDivisionError(...)]
    """
    check_workers(client, jobs, threads)
    numbered = enumerate(arguments)
    if client is not None:
        return _on_client(task, numbered, shared, client, threads)
    if jobs == 1:
        return _here(task, numbered, shared, threads)
    return _in_processes(task, numbered, shared, jobs, threads)


def check_workers(client: Any, jobs: int, threads: int) -> None:
    """Refuse workers that are none.

    Args:
        client, jobs, threads: of :func:`outcomes`.

    Raises:
        TypeError, ValueError: as it says.
    """
    int_at_least("threads", threads)
    if jobs != -1:
        int_at_least("jobs", jobs, note="or -1 for one a core")
    if client is None:
        return
    if not all(hasattr(client, name) for name in ("submit", "scatter", "nthreads")):
        raise TypeError(
            "client must be a dask.distributed.Client, such as Client(LocalCluster(n_workers=2)) "
            f"or Client('tcp://…'); it is {client!r}"
        )
    if jobs != 1:
        raise ValueError(f"jobs={jobs} is of processes here; a client has workers of its own")


def _outcome(
    task: Callable[..., Any],
    number: int,
    args: tuple[Any, ...],
    shared: tuple[Any, ...],
    threads: int,
) -> Outcome:
    try:
        with _TURNS, fixed_threads(threads):
            return Outcome(number, task(*args, *shared))
    except Exception as error:
        return Outcome(number, error=_portable(error))


def _portable(error: Exception) -> Exception:
    """An error that can be sent to another process."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _here(
    task: Callable[..., Any],
    numbered: Iterator[tuple[int, tuple[Any, ...]]],
    shared: tuple[Any, ...],
    threads: int,
) -> Generator[Outcome, None, None]:
    for number, args in numbered:
        yield _outcome(task, number, args, shared, threads)


def _in_processes(
    task: Callable[..., Any],
    numbered: Iterator[tuple[int, tuple[Any, ...]]],
    shared: tuple[Any, ...],
    jobs: int,
    threads: int,
) -> Generator[Outcome, None, None]:
    from joblib import Parallel, cpu_count, delayed  # noqa: PLC0415 - slow, for several jobs alone

    jobs = cpu_count() if jobs == -1 else jobs
    with Parallel(n_jobs=jobs, return_as="generator_unordered") as pool:
        while some := list(islice(numbered, AT_ONCE * jobs)):
            yield from pool(
                delayed(_outcome)(task, number, args, shared, threads) for number, args in some
            )


def _on_client(
    task: Callable[..., Any],
    numbered: Iterator[tuple[int, tuple[Any, ...]]],
    shared: tuple[Any, ...],
    client: Any,
    threads: int,
) -> Generator[Outcome, None, None]:
    from dask.distributed import as_completed  # noqa: PLC0415 - of an extra

    sent = client.scatter([shared], broadcast=True, hash=False)[0]
    running: dict[Any, int] = {}

    def submit(number: int, args: tuple[Any, ...]) -> Any:
        given = [_sent(client, arg) for arg in args]
        future = client.submit(_on_worker, task, number, sent, threads, *given, pure=False)
        running[future] = number
        return future

    first = [submit(*one) for one in islice(numbered, AT_ONCE * max(1, len(client.nthreads())))]
    ended = as_completed(first)
    try:
        for future in ended:
            number = running.pop(future)
            failed = future.exception()
            yield future.result() if failed is None else Outcome(number, error=_portable(failed))
            future.release()
            for one in islice(numbered, 1):
                ended.add(submit(*one))
    finally:
        client.cancel(list(running))


def _sent(client: Any, argument: Any) -> Any:
    """An argument as it is handed out: rows go to a worker by themselves, not with the task."""
    if hasattr(argument, "__dask_graph__"):
        return client.compute(argument)
    if isinstance(argument, tuple | Tensor) or hasattr(argument, "to_numpy"):
        return client.scatter([argument], hash=False)[0]
    return argument


def _on_worker(
    task: Callable[..., Any], number: int, shared: tuple[Any, ...], threads: int, *args: Any
) -> Outcome:
    return _outcome(task, number, args, shared, threads)
