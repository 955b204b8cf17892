"""Whether a stochastic fit has come to rest: by its loss, and by the iterates of its parameters."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from lexppl.argument_checks import fraction
from lexppl.inference.training.result import FitResult
from lexppl.inference.training.watch import Epoch

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
        fall: nats that the training loss of all rows has fallen by over the last third of the last
            stage, by its slope, `(R,)`; NaN of fewer than 9 epochs.
        noise: its standard error, `(R,)`.
        r_hat: the largest split r̂ of a parameter's iterates over the second half of the fit,
            `(R,)`; NaN where none were kept. It is reported, and decides nothing: √7 = 2.6 is a
            parameter that moves in a straight line, however slowly.
    """

    fall: np.ndarray
    noise: np.ndarray
    r_hat: np.ndarray

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


@dataclass
class Iterates:
    """A callback that keeps a fit's parameters epoch by epoch, for :func:`settled`.

    Args:
        most: numbers of a replicate that are kept; of more parameters the first ones.

    Example:
        >>> Iterates().kept
        []
    """

    most: int = 1000
    kept: list[np.ndarray] = field(default_factory=list)

    def __call__(self, epoch: Epoch) -> None:
        """Keep this epoch's, `(R, P)`."""
        self.kept.append(flat(epoch.snapshot(), self.most))


def flat(state: Mapping[str, Tensor], most: int) -> np.ndarray:
    """All numbers of a state side by side, `(R, P)`, up to so many."""
    parts = [v.detach().double().cpu().reshape(len(v), -1).numpy() for v in state.values()]
    return np.concatenate(parts, 1)[:, :most]


def settled(result: FitResult, iterates: Iterates | None = None, *, last: float = LAST) -> Settled:
    r"""Whether each replicate of a stochastic fit has come to rest.

    By its loss: a line through the training loss `ℓ_t` of the last `T` epochs of the last stage,

        fall = − N T b̂,    noise = N T se(b̂),

    with N the rows learned from. The fit has settled where `fall + 2 noise ≤ ½` nat: by so little
    the divergence from the posterior still shrinks. The noise is of epochs taken as independent,
    which batches and draws of their own make them; where it is large, nothing is known.

    Beside it, where they were kept, split r̂ of the iterates of each parameter in the second half
    (Dhaka et al. 2020): near 1 at rest under a constant rate. A learning rate that has fallen to
    next to nothing brings the loss to rest wherever it stands, and r̂ then sees the way there.

    Args:
        result: of :func:`fit`.
        iterates: what the callback of that fit has kept; None to judge by the loss alone.
        last: share of the last stage's epochs, in (0, 1).

    Raises:
        ValueError: a result without history, iterates of another fit.

    Warns:
        NotSettledWarning: where a replicate still moves, or may.

    Source: Dhaka, Catalina, Andersen, Magnusson, Huggins and Vehtari (2020), "Robust, accurate
    stochastic optimization for variational inference".

    Example:
        >>> import torch
        >>> from lexppl.inference import fit
        >>> from lexppl.systems import lex
        >>> x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
        >>> kept = Iterates()
        >>> system = lex(3, classes=2, k=1, hidden=(4,), predictor_hidden=(4,))
        >>> result = fit(system, (x, (x[:, 0] > 0).long()), epochs=30, callbacks=[kept],
        ...     progress=False)
        >>> len(kept.kept)
        30
    """
    found = _judged(result, iterates, fraction("last", last))
    if found.warning:
        warnings.warn(found.warning, NotSettledWarning, stacklevel=2)
    return found


def warn_if_moving(result: FitResult) -> None:
    """Warn of a fit that was too short to be judged or still moves; where that is not known, as
    of a noisy loss, :func:`settled` says so to who asks.

    Args:
        result: of :func:`fit`.

    Warns:
        NotSettledWarning: as it says.
    """
    if not len(result.history) or result.interrupted:
        return
    found = _judged(result, None, LAST)
    if (
        np.isnan(found.fall).any()
        or (found.fall > np.maximum(ERRORS * found.noise, MOST_FALL)).any()
    ):
        warnings.warn(str(found.warning), NotSettledWarning, stacklevel=3)


def _judged(result: FitResult, iterates: Iterates | None, last: float) -> Settled:
    history = result.history
    if not len(history):
        raise ValueError("the result has no history of a fit, such as one that was sampled")
    own = history.train[history.stage == history.stage[-1]]
    losses = own[-max(1, round(last * len(own))) :]
    fall = noise = np.full(result.replicates, np.nan)
    if len(losses) >= FEWEST:
        rows = 1 if result.rows is None else result.rows[0]
        fall, noise = _line(losses * rows)
    r_hat = np.full(result.replicates, np.nan)
    if iterates is not None:
        r_hat = _largest_r_hat(iterates, result.replicates, len(history))
    return Settled(fall, noise, r_hat)


def _line(losses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What a line through each column falls by, and the standard error of it."""
    count = len(losses)
    time = np.arange(count) - (count - 1) / 2
    slope = (time[:, None] * losses).sum(0) / (time**2).sum()
    rest = losses - losses.mean(0) - time[:, None] * slope
    error = np.sqrt((rest**2).sum(0) / (count - 2) / (time**2).sum())
    return -count * slope, count * error


def _largest_r_hat(iterates: Iterates, replicates: int, epochs: int) -> np.ndarray:
    kept = np.stack(iterates.kept) if iterates.kept else np.empty((0, 0, 0))
    if kept.shape[:2] != (epochs, replicates):
        raise ValueError(
            f"iterates must be those of this fit, of {epochs} epochs and {replicates} replicates; "
            f"they are of {kept.shape[0]} and {kept.shape[1]}: give the fit a callback of its own"
        )
    second = kept[epochs // 2 :]
    half = len(second) // 2
    if half < 4:
        return np.full(replicates, np.nan)
    halves = np.stack([second[:half], second[-half:]])
    within = halves.var(1, ddof=1).mean(0)
    between = half * halves.mean(1).var(0, ddof=1)
    moving = within > 0
    ratio = np.where(moving, between / np.where(moving, within, 1.0), 0.0)
    r_hat: np.ndarray = np.sqrt((half - 1) / half + ratio / half).max(-1)
    return r_hat
