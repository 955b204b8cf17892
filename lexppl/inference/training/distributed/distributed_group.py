"""How a process comes to those that it shares a fit with."""

import hashlib
import os
import time
from typing import Any
from uuid import uuid4

import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from lexppl.inference.training.distributed.distributed import Processes

GREETING = "lexppl"
"""How keys in a store begin by which processes find one another."""
PAUSE = 0.05
"""Seconds between two looks."""


def processes_of(given: Any) -> Processes | None:
    """The processes that a fit shares its rows with; None for a fit by itself.

    Args:
        given: as `fit` takes `distributed`.

    Raises:
        TypeError: no such argument.
        ValueError: True where there is one process and no way to others; None where there are
            several, of which each would fit the same by itself.

    Example:
        >>> processes_of(None) is processes_of(False) is None
        True
    """
    if given is False:
        return None
    there = dist.is_available()
    if given is not None and given is not True:
        if not there or not isinstance(given, dist.ProcessGroup):
            raise TypeError(
                "distributed must be None, True, False or a torch.distributed.ProcessGroup that "
                f"this process is in; it is {given!r}"
            )
        return Processes(given) if dist.get_world_size(given) > 1 else None
    if not there or not dist.is_initialized():
        launched = int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1
        if given is None:
            if launched > 1 and dist.is_torchelastic_launched():
                raise ValueError(
                    f"this is one of {launched} processes that torchrun has started, and each "
                    "would fit the same by itself: distributed=True shares the rows of each batch "
                    "among them, distributed=False says that each is to have a fit of its own"
                )
            return None
        if not there or "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
            raise ValueError(
                "distributed=True needs processes to share with, and this one was started alone: "
                "start the script with torchrun --nproc-per-node 2 script.py, or call "
                "torch.distributed.init_process_group before the fit"
            )
        _begin_group()
    return Processes() if dist.get_world_size() > 1 else None


def _begin_group() -> None:
    """Initialise the default group, of the processes that `torchrun` has started."""
    store, rank, count = next(rendezvous("env://"))
    named = dist.PrefixStore(name_of_round(store, rank, count), store)
    dist.init_process_group(store=named, rank=rank, world_size=count)


def name_of_round(store: Any, rank: int, count: int) -> str:
    """A name that these processes have agreed on, and none before them.

    `torchrun` keeps its store when it starts processes again, and with it the addresses of those
    that are no more, at which a new one may look for another; its count of restarts is each
    machine's own. So each process puts down a word of its own. The first one proposes what it
    reads, all confirm a proposal that has their word, and it is taken once all have: no process
    that has ended can confirm.

    Args:
        store: of torch, with what earlier processes have left.
        rank: of this process.
        count: of all.

    Example:
        >>> first = name_of_round(dist.HashStore(), 0, 1)
        >>> first == name_of_round(dist.HashStore(), 0, 1)
        False
    """
    own = uuid4().hex
    store.set(f"{GREETING}/{rank}", own)
    while True:
        if rank == 0:
            words = b",".join(store.get(f"{GREETING}/{r}") for r in range(count)).decode()
            store.set(f"{GREETING}/proposed", words)
        else:
            words = store.get(f"{GREETING}/proposed").decode()
        name = f"{GREETING}/{hashlib.sha256(words.encode()).hexdigest()}"
        if own in words.split(","):
            store.set(f"{name}/{rank}", "")
            if rank == 0 and all(store.check([f"{name}/{r}"]) for r in range(count)):
                store.set(f"{name}/taken", "")
            if store.check([f"{name}/taken"]):
                return name
        time.sleep(PAUSE)


def refuse_processes(given: Any) -> None:
    """Refuse to sample in several processes, each of which would sample the same.

    Args:
        given: as `fit` takes `distributed`.

    Raises:
        ValueError: there are several.
    """
    if processes_of(given) is not None:
        raise ValueError(
            "inference= samples in one process, and several were to share this fit, each of which "
            "would draw the same: call it in one of them, or give distributed=False"
        )
