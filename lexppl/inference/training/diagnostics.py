"""Diagnostics of a fit: collapsed selectors, and whether its loss has come to rest."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lexppl.argument_checks import fraction
from lexppl.inference.batches import Columns
from lexppl.inference.objective.program import ParticleProgram, row_marginals
from lexppl.inference.training.result import FitResult

ALL_OFF = "all off"
ALL_ON = "all on"
ONE_MASK = "one mask for every row"

ADVICE: Mapping[str, str] = MappingProxyType(
    {
        ALL_OFF: (
            "every row keeps next to nothing: lower the penalty, or let it grow only after the "
            "predictor has learned, penalty=Linear(0, 1, begin=0.3, end=0.8)"
        ),
        ALL_ON: "every row keeps everything: raise the penalty, or fix the size with "
        "KSubsetSelector",
        ONE_MASK: (
            "every row keeps the same entries, which is right only if the same ones matter "
            "everywhere: anneal the selector with entropy=Linear(0.1, 0, end=0.6), or try masks=4 "
            "or more"
        ),
    }
)


class CollapseWarning(UserWarning):
    """A fitted selector that does not depend on its row."""


def collapse(marginals: Tensor, of_rows: bool = True) -> str | None:
    """Name the collapse of a selector, if it has collapsed.

    *All off*: no row keeps half an entry in expectation; *all on*: every row keeps all but half an
    entry of several; *one mask for every row*: all rows agree on which entries have `p > ½`, and
    no entry's `p` varies over rows by more than 0.05 (standard deviation).

    Args:
        marginals: selection probabilities `(B, G)`.
        of_rows: whether the distribution reads its row.

    Returns:
        "all off", "all on", "one mask for every row", or None.

    Example:
        >>> collapse(torch.zeros(10, 3)), collapse(torch.eye(3))
        ('all off', None)
    """
    size = marginals.sum(-1)
    if bool((size < 0.5).all()):
        return ALL_OFF
    if bool((size > marginals.shape[-1] - 0.5).all()):
        return ALL_ON if marginals.shape[-1] > 1 else None
    if not of_rows:
        return None
    is_kept = marginals > 0.5
    same = bool((is_kept == is_kept[:1]).all())
    still = len(marginals) > 1 and bool((marginals.std(0) < 0.05).all())
    return ONE_MASK if same and still else None


def collapses(
    models: Sequence[Any], guides: Sequence[Any], batches: Sequence[Columns]
) -> list[str | None]:
    """The first :func:`collapse` among each program's learned mask sites, or None."""
    collapsed: list[str | None] = []
    for model, guide, batch in zip(models, guides, batches, strict=True):
        kinds = [collapse(*marginals) for marginals in mask_marginals(model, guide, batch).values()]
        collapsed.append(next((kind for kind in kinds if kind is not None), None))
    return collapsed


def mask_marginals(
    model: Callable[..., Any], guide: Callable[..., Any] | None, batch: Columns
) -> dict[str, tuple[Tensor, bool]]:
    """Selection probabilities `(B, G)` of each learned mask site, and whether x enters."""
    x, *others = batch
    if x.is_floating_point():
        x = x.detach().requires_grad_()
    with torch.enable_grad():
        run = ParticleProgram(model, guide, (x, *others)).run()
        marginals = {}
        for site in run.mask_sites:
            if site.distribution.event_dim != 1:
                continue
            mean = row_marginals(site)
            if mean is not None and mean.requires_grad:
                # Where gradients cannot tell whether x is read, it is.
                marginals[site.name] = (mean.detach(), not x.requires_grad or _reads(mean, x))
    return marginals


def _reads(value: Tensor, x: Tensor) -> bool:
    (gradient,) = torch.autograd.grad(value.sum(), x, allow_unused=True, retain_graph=True)
    return gradient is not None


def report_collapse(kinds: list[str | None], advice: Mapping[str, str] = ADVICE) -> None:
    """Warn of collapsed replicates by name, with what to try."""
    for name in (ALL_OFF, ALL_ON, ONE_MASK):
        where = [r for r, kind in enumerate(kinds) if kind == name]
        if where:
            which = "" if len(kinds) == 1 else f" (replicates {where} of {len(kinds)})"
            warnings.warn(f"collapse, {name}{which}: {advice[name]}", CollapseWarning, stacklevel=3)


LAST = 1 / 3  # Of the last stage's epochs, in which the loss is looked at
FEWEST = 9  # Epochs that a slope and its noise need
MOST_FALL = 0.5
"""Nats of all rows together that a settled fit may still gain in its last third: of the divergence
from the posterior, little."""
ERRORS = 2.0  # Standard errors by which a fall must be known to be less


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
            return self.fall + ERRORS * self.noise <= MOST_FALL

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
    verdict = _judged(result, fraction("last", last))
    if verdict.warning:
        warnings.warn(verdict.warning, NotSettledWarning, stacklevel=2)
    return verdict


def warn_if_moving(result: FitResult) -> None:
    """Warn of a fit that is too short to be judged or still moves, not of one with a noisy loss."""
    if not len(result.history) or result.interrupted:
        return
    verdict = _judged(result, LAST)
    if (
        np.isnan(verdict.fall).any()
        or (verdict.fall > np.maximum(ERRORS * verdict.noise, MOST_FALL)).any()
    ):
        warnings.warn(str(verdict.warning), NotSettledWarning, stacklevel=3)


def _judged(result: FitResult, last: float) -> Settled:
    history = result.history
    if not len(history):
        raise ValueError("the result has no history of a fit, such as one that was sampled")
    stage_losses = history.train[history.stage == history.stage[-1]]
    losses = stage_losses[-max(1, round(last * len(stage_losses))) :]
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
