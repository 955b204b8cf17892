"""The three ways in which a selector stops depending on x."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from lexppl.inference.objective.program import ParticleProgram, row_marginals

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
    entry; *one mask for every row*: all rows agree on which entries have `p > ½`, and no entry's
    `p` varies over rows by more than 0.05 (standard deviation).

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
        return ALL_ON
    if not of_rows:
        return None
    kept = marginals > 0.5
    same = bool((kept == kept[:1]).all())
    still = len(marginals) > 1 and bool((marginals.std(0) < 0.05).all())
    return ONE_MASK if same and still else None


def collapses(
    models: Sequence[Any], guides: Sequence[Any], batches: Sequence[tuple[Tensor, ...]]
) -> list[str | None]:
    """The first :func:`collapse` among each program's learned mask sites, or None."""
    found = []
    for model, guide, batch in zip(models, guides, batches, strict=True):
        each = mask_marginals(model, guide, batch).values()
        kinds = [collapse(marginals, of_rows) for marginals, of_rows in each]
        found.append(next((kind for kind in kinds if kind is not None), None))
    return found


def mask_marginals(
    model: Callable[..., Any], guide: Callable[..., Any] | None, batch: tuple[Tensor, ...]
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
            try:
                mean = row_marginals(site)
            except ValueError:
                continue
            if mean.requires_grad:
                marginals[site.name] = (mean.detach(), _reads(mean, x))
    return marginals


def _reads(value: Tensor, x: Tensor) -> bool:
    """Whether a value is computed from x; where gradients cannot tell, yes."""
    if not x.requires_grad:
        return True
    (gradient,) = torch.autograd.grad(value.sum(), x, allow_unused=True, retain_graph=True)
    return gradient is not None


def report_collapse(found: list[str | None], advice: Mapping[str, str] = ADVICE) -> None:
    """Warn of collapsed replicates by name, with what to try."""
    for name in (ALL_OFF, ALL_ON, ONE_MASK):
        where = [r for r, kind in enumerate(found) if kind == name]
        if where:
            which = "" if len(found) == 1 else f" (replicates {where} of {len(found)})"
            warnings.warn(f"collapse, {name}{which}: {advice[name]}", CollapseWarning, stacklevel=3)
