"""Independent tasks, here or on other machines, with the same numbers wherever they run."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from lexppl.argument_checks import int_at_least
from lexppl.threads import ThreadLock

AT_ONCE = 4  # Tasks a worker that are handed out before their results are taken

# Random states and Pyro's settings are the process's, so that tasks in threads of one take turns.
_TURNS = ThreadLock()


@dataclass(frozen=True)
class Outcome:
    """What task `number` returned, or why it failed."""

    number: int
    value: Any = None
    error: Exception | None = None


@contextmanager
def fixed_threads(threads: int) -> Iterator[None]:
    """So many threads of torch, BLAS and OpenMP inside, on which the last bits of sums depend."""
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
    """The outcome of `task(*arguments[i], *shared)` for each i, as each ends; a failure stops no
    other.

    Arguments are taken as workers become free. `client`: a `dask.distributed.Client`, whose workers
    are sent `shared` once, or None for `jobs` processes by joblib (−1: one a core).

    Raises:
        RuntimeError: one of these processes was killed.
    """
    check_workers(client, jobs, threads)
    tasks = ((number, args, shared, threads) for number, args in enumerate(arguments))
    if client is None and jobs == 1:
        for numbered in tasks:
            yield _outcome(task, *numbered)
        return
    from joblib import Parallel, cpu_count, delayed, parallel_config  # noqa: PLC0415 - slow

    workers = cpu_count() if jobs == -1 else jobs
    settings: dict[str, Any] = {"n_jobs": workers}
    if client is not None:
        workers = max(1, len(client.nthreads()))
        settings = {"backend": "dask", "client": client}
    try:
        with parallel_config(**settings), Parallel(return_as="generator_unordered") as pool:
            while batch := list(islice(tasks, AT_ONCE * workers)):
                yield from pool(delayed(_outcome)(task, *numbered) for numbered in batch)
    except BrokenProcessPool as error:
        raise RuntimeError(
            f"a process of jobs={jobs} was killed, as by a system short of memory; what was "
            "written before stays, and the same call goes "
            "on with the rest: with fewer jobs, if memory was short"
        ) from error


def check_workers(client: Any, jobs: int, threads: int) -> None:
    """Refuse a client that is none, `jobs` beside a client, and counts below 1."""
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
