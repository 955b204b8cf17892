"""How far an explanation moves when its row moves a little."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lexppl.argument_checks import finite_float, int_at_least
from lexppl.inference.contexts import seeded
from lexppl.inference.predictive import rows_at_once


def max_sensitivity(
    importance: Callable[[Tensor], Tensor],
    x: Tensor,
    *,
    radius: float = 0.02,
    perturbations: int = 10,
    relative: bool = True,
    seed: int = 0,
    rows_per_chunk: int | None = None,
) -> float:
    r"""SEN, the largest change of the importances Φ in a small box around each row:

        SEN = 1/N Σ_n max_{p ≤ P} ‖Φ(x_n + δ_np) − Φ(x_n)‖₂ / ‖Φ(x_n)‖₂,   δ_np ~ U[−r, r]^D.

    The maximum over draws is at most the one over the box `‖δ‖∞ ≤ r`, and rises to it with P.
    Importances that are themselves random (means of a few mask draws) move by their own noise too.
    Lower is steadier; an explanation that does not depend on its row has 0.

    Args:
        importance: from rows `(B, *event)` to importances `(B, G)`, each row's by itself.
        x: rows, `(N, *event)`.
        radius: r, in the units of x.
        perturbations: P draws a row.
        relative: divide by `‖Φ(x)‖₂`; False for Yeh et al.'s own, undivided form.
        seed: of the perturbations, and of torch's default generator inside `importance`; the draws
            depend on the chunks too. Global random state is left alone.
        rows_per_chunk: rows that are perturbed at once; None to choose by their size.

    Returns:
        the mean over rows.

    Raises:
        ValueError: no rows, x not floating or not finite, a radius or number of perturbations that
            is not positive, importances of another number of rows or not finite, or all 0 in a row
            with `relative`.

    Source:
        Yeh, Hsieh, Suggala, Inouye, Ravikumar. On the (in)fidelity and sensitivity of
        explanations. NeurIPS 2019: max-sensitivity, here divided by the explanation's norm.

    Example:
        >>> x = torch.ones(4, 2)
        >>> max_sensitivity(lambda rows: torch.ones_like(rows), x)
        0.0
        >>> 0.0 < max_sensitivity(lambda rows: rows, x, radius=0.1) <= 0.1001
        True
    """
    if x.dim() < 2 or len(x) == 0:
        raise ValueError(f"x must have shape (N, *event), N >= 1; it has {tuple(x.shape)}")
    if not x.is_floating_point():
        raise ValueError(f"x must be floating, to be moved a little; it is {x.dtype}")
    if not bool(x.isfinite().all()):
        raise ValueError("x must be finite; it has NaN or infinite values")
    radius = finite_float("radius", radius, above=0.0)
    perturbations = int_at_least("perturbations", perturbations)
    chunk = rows_at_once(x, perturbations, rows_per_chunk)
    parts = []
    with seeded(seed, x.device):
        for rows in x.split(chunk):
            parts.append(_largest_change(importance, rows, radius, perturbations, relative))
    return float(torch.cat(parts).mean())


def _largest_change(
    importance: Callable[[Tensor], Tensor],
    x: Tensor,
    radius: float,
    perturbations: int,
    relative: bool,
) -> Tensor:
    """The largest change of each row, `(B,)`, float64."""
    noise = torch.empty((perturbations, *x.shape), dtype=x.dtype, device=x.device)
    near = x + noise.uniform_(-radius, radius)
    given = _importances(importance, x)
    moved = _importances(importance, near.flatten(0, 1)).reshape(perturbations, *given.shape)
    change: Tensor = torch.linalg.vector_norm(moved - given, dim=-1).amax(0)
    if not relative:
        return change
    norm = torch.linalg.vector_norm(given, dim=-1)
    zero = int((norm == 0).sum())
    if zero:
        raise ValueError(
            f"the importances of {zero} rows are all 0, which no change can be divided by; use "
            "relative=False"
        )
    return change / norm


def _importances(importance: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    given = importance(x)
    if not isinstance(given, Tensor) or given.dim() < 2 or len(given) != len(x):
        shape = tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__
        raise ValueError(
            f"importance must give a tensor ({len(x)}, G), a row for each of x; it gave {shape}"
        )
    if not bool(given.isfinite().all()):
        raise ValueError("importance must give finite values; it gave NaN or infinite ones")
    return given.detach().double().flatten(1)
