"""The training loss of an epoch, added up after it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lexppl.inference.stages import LossTerm


class EpochLoss:
    """The mean over an epoch's rows of its steps' losses, `Σ_t weight_t · loss_t / N`.

    Steps only put their losses down: in a small one, each operation on a scalar costs as much as a
    layer.

    Args:
        terms: of the stage.
        rows: N, of the data set, or `(R,)` the sum of each replicate's row weights.
    """

    def __init__(self, terms: Sequence[LossTerm], rows: float | Tensor) -> None:
        self._weights = [term.weight for term in terms]
        self._rows = rows
        self._steps: list[tuple[Sequence[Tensor], int]] = []

    def add(self, losses: Sequence[Tensor], size: int) -> None:
        """Put down a step.

        Args:
            losses: of each term, `(R,)` by replicate, estimates of the whole data set's.
            size: rows of the batch.
        """
        self._steps.append((losses, size))

    def __len__(self) -> int:
        return len(self._steps)

    def state(self) -> dict[str, Any]:
        """What the steps have put down, to be put back by :meth:`restore`."""
        losses = [torch.stack(list(of_terms)) for of_terms, _ in self._steps]
        return {"losses": torch.stack(losses), "sizes": [size for _, size in self._steps]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Put back what steps of the same terms have put down.

        Args:
            state: of one step or more.
        """
        steps = zip(state["losses"], state["sizes"], strict=True)
        self._steps = [(list(of_terms), size) for of_terms, size in steps]

    def steps(self) -> Tensor:
        """The loss of each step, `(T, R)`, in nats a row."""
        losses = [loss for of_terms, _ in self._steps for loss in of_terms]
        by_term = torch.stack(losses).unflatten(0, (len(self), -1)).unbind(1)
        steps: Tensor | float = 0.0
        for weight, of_term in zip(self._weights, by_term, strict=True):
            steps = steps + weight * of_term / self._rows
        assert isinstance(steps, Tensor)
        return steps

    def mean(self, made: np.ndarray | None = None) -> np.ndarray:
        """By replicate, `(R,)`; empty where there was no step.

        Args:
            made: `(T, R)`, which steps count; all if None. NaN for a replicate that made none.
        """
        if not self._steps:
            return np.zeros(0)
        sizes = [size for _, size in self._steps]
        steps = self.steps()
        if made is not None and not made.all():
            share = np.array(sizes)[:, None] * made
            share = share / np.where(made.any(0), share.sum(0), np.nan)
            losses = np.where(made, steps.cpu().numpy(), 0.0)
            return np.asarray((losses * share).sum(0), dtype=losses.dtype)
        total: Tensor | float = 0.0
        for step, size in zip(steps, sizes, strict=True):
            total = total + step * size
        mean: np.ndarray = (total / sum(sizes)).cpu().numpy()  # type: ignore[union-attr]
        return mean
