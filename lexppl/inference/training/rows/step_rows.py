"""The rows of one step."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class StepRows:
    """The rows of one step, and how far the stage is.

    Args:
        batch: the columns.
        weights: of the rows, `(R, B)`, or None.
        size: B.
        at: the progress, in [0, 1].
    """

    batch: tuple[Tensor, ...]
    weights: Tensor | None
    size: int
    at: float
