"""Whether a stochastic fit has come to rest, by its loss."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from lexppl.argument_checks import fraction
from lexppl.inference.training.result import FitResult

LAST = 1 / 3
"""Of the last stage's epochs, in which the loss is looked at."""
FEWEST = 9
"""Epochs that a slope and its noise need."""
MOST_FALL = 0.5
"""Nats of all rows together that a settled fit may still gain in its last third: of the divergence
from the posterior, little."""
ERRORS = 2.0
"""Standard errors by which a fall must be known to be less."""


@dataclass(frozen=True, eq=False)
class Settled:
    """How far a fit has come to rest, by replicate.

    Args:
        fall: nats that the training loss of all rows has fallen by, `(R,)`; NaN below 9 epochs.
        noise: its standard error, `(R,)`.
    """

    fall: np.ndarray
    noise: np.ndarray

    @property
    def settled(self) -> np.ndarray:
        """Whether the loss is known to fall by less than half a nat, `(R,)`: `fall + 2 noise`."""
        with np.errstate(invalid="ignore"):
            small: np.ndarray = self.fall + ERRORS * self.noise <= MOST_FALL
        return small

    @property
    def warning(self) -> str | None:
        """What speaks against the fit, in words; None where nothing is."""
        bad = np.flatnonzero(~self.settled)
        if not len(bad):
            return None
        several = f"{len(bad)} of {len(self.fall)} replicates"
        if np.isnan(self.fall).any():
            return (
                f"the fit is too short to be judged: fewer than {FEWEST} epochs in the last third"
            )
        place = bad[int((self.fall - ERRORS * self.noise)[bad].argmax())]
        fall, noise = self.fall[place], self.noise[place]
        if fall > ERRORS * noise:
            return (
                f"{several} still move: the loss falls by {fall:.2g} ± {noise:.1g} nats over the "
                "last third; a variational posterior is then not to be trusted: more epochs, or a "
                "higher learning rate"
            )
        return (
            f"whether {several} have come to rest is not known: the loss falls by {fall:.2g} ± "
            f"{noise:.1g} nats over the last third; more epochs, or more draws a step (samples=), "
            "make the loss less noisy"
        )


class NotSettledWarning(UserWarning):
    """A fit that ended while it still moved, or may have."""


def settled(result: FitResult, *, last: float = LAST) -> Settled:
    """Whether each replicate of a stochastic fit has come to rest, by its loss.

    Of a line through the training loss `ℓ_t` of the last `T` epochs of the last stage,

        fall = − N T b̂,    noise = N T se(b̂),

    with N the rows learned from and epochs taken as independent. The fit has settled where
    `fall + 2 noise ≤ ½` nat: by so little the divergence from the posterior still shrinks.

    Args:
        result: of :func:`fit`.
        last: share of the last stage's epochs, in (0, 1).

    Raises:
        ValueError: a result without history.

    Warns:
        NotSettledWarning: where a replicate still moves, or may.

    Example:
        >>> import torch
        >>> from lexppl.inference import fit
        >>> from lexppl.systems import lex
        >>> x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
        >>> system = lex(3, classes=2, k=1, hidden=(4,), predictor_hidden=(4,))
        >>> result = fit(system, (x, (x[:, 0] > 0).long()), epochs=30, progress=False)
        >>> settled(result).fall.shape
        (1,)
    """
    found = _judged(result, fraction("last", last))
    if found.warning:
        warnings.warn(found.warning, NotSettledWarning, stacklevel=2)
    return found


def warn_if_moving(result: FitResult) -> None:
    """Warn of a fit that is too short to be judged or still moves, not of one with a noisy loss."""
    if not len(result.history) or result.interrupted:
        return
    found = _judged(result, LAST)
    if (
        np.isnan(found.fall).any()
        or (found.fall > np.maximum(ERRORS * found.noise, MOST_FALL)).any()
    ):
        warnings.warn(str(found.warning), NotSettledWarning, stacklevel=3)


def _judged(result: FitResult, last: float) -> Settled:
    history = result.history
    if not len(history):
        raise ValueError("the result has no history of a fit, such as one that was sampled")
    own = history.train[history.stage == history.stage[-1]]
    losses = own[-max(1, round(last * len(own))) :]
    fall = noise = np.full(result.replicates, np.nan)
    if len(losses) >= FEWEST:
        rows = 1 if result.rows is None else result.rows[0]
        fall, noise = _line(losses * rows)
    return Settled(fall, noise)


def _line(losses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What a line through each column falls by, and the standard error of it."""
    count = len(losses)
    time = np.arange(count) - (count - 1) / 2
    slope = (time[:, None] * losses).sum(0) / (time**2).sum()
    rest = losses - losses.mean(0) - time[:, None] * slope
    error = np.sqrt((rest**2).sum(0) / (count - 2) / (time**2).sum())
    return -count * slope, count * error
