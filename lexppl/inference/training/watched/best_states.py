"""The best state of each replicate so far."""

import numpy as np
import torch

from lexppl.inference.replicates.replicates import Replicates


class BestStates:
    """Keep the state of the epoch with the least validation loss, for each replicate by itself.

    Args:
        runner: the replicates that are trained.
        unseen: without validation rows the last epoch with a finite loss is kept.
    """

    def __init__(self, runner: Replicates, unseen: bool) -> None:
        self._runner, self._unseen = runner, unseen
        self._states = runner.snapshot()
        self.valid = np.full(runner.count, np.inf)

    @property
    def states(self) -> dict[str, torch.Tensor]:
        """By name, each `(R, …)`."""
        return self._states

    def restore(self, states: dict[str, torch.Tensor], valid: np.ndarray) -> None:
        """Go on from other best states, with their validation losses `(R,)`."""
        self._states, self.valid = states, valid

    def take(self, train: np.ndarray, valid: np.ndarray) -> np.ndarray:
        """Look at the losses `(R,)` of an epoch that has just ended; which replicates improved."""
        improved: np.ndarray = np.isfinite(train) if self._unseen else valid < self.valid
        self._merge(improved)
        self.valid = np.where(improved, valid, self.valid)
        return improved

    def take_as_is(self, train: np.ndarray) -> None:
        """Take the state as it is, unseen by validation rows, of replicates with a finite loss
        `(R,)`."""
        self._merge(np.isfinite(train))

    def _merge(self, improved: np.ndarray) -> None:
        if improved.any():
            device = next(iter(self._runner.parameters.values())).device
            where = torch.as_tensor(improved, device=device)
            self._states = self._runner.merged(self._states, where)

    def put_back(self) -> np.ndarray:
        """Give each replicate its best state; the validation losses there, NaN where unknown."""
        self._runner.load(self._states)
        return np.where(np.isfinite(self.valid), self.valid, np.nan)
