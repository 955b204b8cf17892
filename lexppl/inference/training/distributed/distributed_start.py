"""What processes must have alike before they fit together."""

from collections.abc import Sequence
from typing import Any

from lexppl.inference.batches import TensorRows
from lexppl.inference.replicates.replicate_rows import StackedRows
from lexppl.inference.stages import TrainingModules
from lexppl.inference.training.checkpoints.checkpoints import KeptStates
from lexppl.inference.training.checkpoints.fit_identity import Identity
from lexppl.inference.training.distributed.distributed import Processes
from lexppl.inference.training.rows.folded_rows import FoldedRows
from lexppl.inference.training.rows.row_weights import TrainingRows, WeightedRows


def begin_alike(
    processes: Processes,
    copies: Sequence[TrainingModules],
    rows: TrainingRows,
    held_out: TrainingRows | None,
) -> None:
    """Let the programs of all processes begin with the first one's weights.

    Args:
        processes: all of them.
        copies: the replicates' modules, as this process has made them.
        rows: that are learned from.
        held_out: validation rows, or None.

    Raises:
        ValueError: rows that are not held; programs of other parameters.
        ProcessError: another process has failed.
    """
    for name, some in (("train", rows), ("valid", held_out)):
        held = some.rows if isinstance(some, WeightedRows) else some
        if held is not None and not isinstance(held, TensorRows | StackedRows | FoldedRows):
            raise ValueError(
                f"{name} comes in batches of its own, and processes share batches of rows that "
                "each of them holds: give tensors, arrays or a data set, the same in each process, "
                "or distributed=False"
            )
    processes.device = rows.device
    processes.refuse_backend()
    tensors = {
        id(tensor): (name, tensor)
        for one in copies
        for name, tensor in (*one.named_parameters(), *one.named_buffers())
    }
    shapes = [(name, tuple(t.shape), str(t.dtype)) for name, t in tensors.values()]
    processes.agree({"the model's parameters": str(shapes)})
    processes.broadcast(tensor for _, tensor in tensors.values())


def agree_together(processes: Processes, identity: Identity, kept: KeptStates | None) -> None:
    """Refuse to begin where processes were given different things.

    Args:
        processes: all of them.
        identity: of the fit, as this process has it.
        kept: where its state is written, or None.

    Raises:
        ValueError: something differs, in every process.
        ProcessError: another process has failed.
    """
    given: dict[str, Any] = dict(identity)
    if kept is not None:
        found = kept.found
        given["checkpoint"] = "nothing" if found is None else f"{found['epochs']} epochs"
    processes.agree({name: str(value) for name, value in given.items()}, last=True)
