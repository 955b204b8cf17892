"""What processes must have alike before they fit together."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from lexppl.inference.batches import TensorRows
from lexppl.inference.replicates.replicate_rows import StackedRows
from lexppl.inference.replicates.replicates import Replicates
from lexppl.inference.training.distributed import Processes
from lexppl.inference.training.folded_rows import FoldedRows
from lexppl.inference.training.row_weights import WeightedRows

HASHED_AT_ONCE = 2**24
"""Bytes of a column, of which a copy is made."""


def begin_together(
    processes: Processes,
    runner: Replicates,
    rows: Any,
    held_out: Any,
    settings: Mapping[str, Any],
) -> None:
    """See that all processes have the same rows and settings, and give them the first's weights.

    Args:
        processes: all of them.
        runner: the replicates, as this process has made them.
        rows: that are learned from.
        held_out: validation rows, or None.
        settings: other arguments of the fit, as they are called there.

    Raises:
        ValueError: rows that are not held; a difference between processes.
        ProcessError: another process has failed.
    """
    given = {name: str(value) for name, value in settings.items()}
    for name, some in (("train", rows), ("valid", held_out)):
        held = some.rows if isinstance(some, WeightedRows) else some
        if held is None:
            given[name] = ""
            continue
        if not isinstance(held, TensorRows | StackedRows | FoldedRows):
            raise ValueError(
                f"{name} comes in batches of its own, and processes share batches of rows that "
                "each of them holds: give tensors, arrays or a data set, the same in each process, "
                "or distributed=False"
            )
        given[name] = fingerprint(held.columns)
    state = {**runner.parameters, **runner.buffers}
    given["the model's parameters"] = str(
        [(name, tuple(value.shape), value.dtype) for name, value in state.items()]
    )
    processes.device = rows.device
    processes.refuse_backend()
    processes.agree(given)
    template = runner.template
    every = (*state.values(), *template.parameters(), *template.buffers())
    processes.broadcast({id(value): value for value in every}.values())


def fingerprint(columns: Iterable[Tensor]) -> str:
    """A checksum of tensors' shapes, types and bytes.

    Example:
        >>> first = fingerprint([torch.zeros(3)])
        >>> first == fingerprint([torch.zeros(3)]), first == fingerprint([torch.zeros(4)])
        (True, False)
    """
    sums = hashlib.blake2b(digest_size=16)
    for column in columns:
        sums.update(f"{tuple(column.shape)} {column.dtype}".encode())
        values = column.detach().reshape(-1)
        for some in values.split(HASHED_AT_ONCE):
            sums.update(some.cpu().contiguous().view(torch.uint8).numpy().data)
    return sums.hexdigest()
