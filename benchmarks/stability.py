"""Stability: agreement of replicates' rankings, and how far an explanation moves with its row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.stats import chi2, rankdata
from torch import Tensor

from lexppl.argument_checks import finite_float, int_at_least
from lexppl.inference.contexts import seeded
from lexppl.inference.predictive import rows_at_once


@dataclass(frozen=True)
class Concordance:
    """How far R rankings of G features agree: see :func:`kendall_w`.

    Args:
        w: Kendall's W, 0 (ranks that cancel) … 1 (identical); NaN where all rankings are all ties.
        chi_square: `R (G − 1) W`.
        degrees: `G − 1`, its degrees of freedom.
        p_value: of a χ² at least as large, were the rankings independent and each order as likely.
    """

    w: float
    chi_square: float
    degrees: int
    p_value: float


def kendall_w(importances: Tensor | np.ndarray) -> Concordance:
    r"""Kendall's coefficient of concordance of R rankings, corrected for ties:

        W = (12 Σ_g S_g² − 3 R² G (G + 1)²) / (R² G (G² − 1) − R Σ_r T_r),    T_r = Σ_ties (t³ − t),

    with `S_g` the sum of feature g's ranks (ties at their mean rank) and t the sizes of a ranking's
    groups of ties. The mean Spearman correlation of all pairs is `(R W − 1)/(R − 1)` where nothing
    is tied, and W of independent rankings is 1/R in expectation. The χ² distribution of `R (G − 1)
    W` is an approximation, poor for G below about 7 with few rankings.

    Args:
        importances: larger is more important, `(R, G)`, R and G at least 2.

    Raises:
        ValueError: another shape, or values that are not finite.

    Source: Kendall and Babington Smith (1939), "The problem of m rankings", Annals of Mathematical
    Statistics 10; Siegel and Castellan (1988), Nonparametric statistics, for ties.

    Example:
        >>> kendall_w(np.array([[3.0, 2.0, 1.0], [0.9, 0.5, 0.1]])).w
        1.0
        >>> kendall_w(np.array([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]])).w
        0.0
    """
    own: Any = importances.detach().cpu() if isinstance(importances, Tensor) else importances
    values = np.asarray(own, dtype=np.float64)
    if values.ndim != 2 or min(values.shape) < 2:
        raise ValueError(
            "importances must have shape (R, G), with 2 or more replicates and features; they "
            f"have {values.shape}"
        )
    if not np.isfinite(values).all():
        raise ValueError("importances must be finite; they have NaN or infinite values")
    count, features = values.shape
    ranks = rankdata(values, axis=1)
    # As floats, whose cubes do not overflow.
    ties = [np.unique(row, return_counts=True)[1].astype(np.float64) for row in values]
    tied = sum(float((sizes**3 - sizes).sum()) for sizes in ties)
    above = 12 * (ranks.sum(0) ** 2).sum() - 3 * count**2 * features * (features + 1) ** 2
    below = count**2 * features * (features**2 - 1) - count * tied
    w = float(above / below) if below > 0 else float("nan")
    statistic = count * (features - 1) * w
    return Concordance(w, statistic, features - 1, float(chi2.sf(statistic, features - 1)))


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
            noise = torch.empty((perturbations, *rows.shape), dtype=x.dtype, device=x.device)
            near = (rows + noise.uniform_(-radius, radius)).flatten(0, 1)
            own = _importances(importance, rows)
            moved = _importances(importance, near).reshape(perturbations, *own.shape)
            change = torch.linalg.vector_norm(moved - own, dim=-1).amax(0)
            norm = torch.linalg.vector_norm(own, dim=-1)
            if relative and bool((norm == 0).any()):
                raise ValueError(
                    f"the importances of {int((norm == 0).sum())} rows are all 0, which no change "
                    "can be divided by; use relative=False"
                )
            parts.append(change / norm if relative else change)
    return float(torch.cat(parts).mean())


def _importances(importance: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    found = importance(x)
    if not isinstance(found, Tensor) or found.dim() < 2 or len(found) != len(x):
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise ValueError(
            f"importance must give a tensor ({len(x)}, G), a row for each of x; it gave {shape}"
        )
    if not bool(found.isfinite().all()):
        raise ValueError("importance must give finite values; it gave NaN or infinite ones")
    return found.detach().double().flatten(1)
