"""A mixture of diagonal Gaussians, fitted by expectation maximisation."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from lexppl.argument_checks import finite_float, int_at_least, int_between
from lexppl.models.imputers.mixture.batched_em import fit_in_batches
from lexppl.models.imputers.training_rows import check_training_rows
from lexppl.models.imputers.variance_floor import fill_zero_variances

__all__ = ["check_component_fit", "fit_diagonal_mixture", "usual_least_scale"]


def check_component_fit(x: Tensor, components: int, seed: int) -> None:
    """Refuses what no mixture of that many components can be fitted on.

    Args:
        x: training rows, shape `(B, *event)`.
        components: C.
        seed: of the fit's start.

    Raises:
        TypeError: when `x` is not a floating-point tensor.
        ValueError: when `x` is not finite or has fewer than 2 rows, the components are no
            whole number from 1 to its rows, or the seed is none of at least 0.

    Example:
        >>> check_component_fit(torch.ones(3, 2), components=4, seed=0)
        Traceback (most recent call last):
        ValueError: components must be a whole number from 1 to 3, the rows of x; it is 4
    """
    check_training_rows(x)
    int_between("components", components, 1, len(x), note="the rows of x")
    int_at_least("seed", seed, 0)


def fit_diagonal_mixture(
    x: Tensor, components: int, seed: int, least_scale: float | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Weights `(C,)`, means `(C, *event)` and standard deviations `(C, *event)` of a mixture.

    Features of tables are standardised for scikit-learn. One that does not vary gets a tiny scale:
    the square root of the type's machine epsilon times the smallest positive scale of the others.

    Args:
        x: training rows, shape `(B, *event)`.
        components: C.
        seed: of the start.
        least_scale: see :meth:`.MixtureImputer.fit`.

    Raises:
        TypeError, ValueError: as :func:`check_component_fit`.
        ValueError: a `least_scale` that is not above 0.

    Example:
        >>> x = torch.tensor([[0.0], [0.1], [5.0], [5.1]])
        >>> weights, means, scales = fit_diagonal_mixture(x, components=2, seed=0)
        >>> means.sort(0).values
        tensor([[0.0500],
                [5.0500]])
    """
    from sklearn.mixture import GaussianMixture  # noqa: PLC0415

    check_component_fit(x, components, seed)
    if least_scale is not None:
        least_scale = finite_float("least_scale", least_scale, above=0.0)
    if x.ndim > 2 or least_scale is not None:
        flat = x.detach().flatten(1)
        added = usual_least_scale(flat) if least_scale is None else least_scale
        found = fit_in_batches(flat, components, seed, added)
        shape = (-1, *x.shape[1:])
        return found.weights, found.means.reshape(shape), found.scales.reshape(shape)
    rows = x.detach().cpu().double().numpy()
    varies = (rows != rows[0]).any(0) & (rows.std(0) > 0)
    mean = np.where(varies, rows.mean(0), rows[0])
    variance = np.where(varies, rows.var(0), 0.0)
    scale = np.where(varies, np.sqrt(variance), 1.0)
    mixture = GaussianMixture(
        components, covariance_type="diag", reg_covar=1e-6, max_iter=500, random_state=seed
    ).fit((rows - mean) / scale)
    least = fill_zero_variances(torch.from_numpy(variance)).numpy() * torch.finfo(x.dtype).eps
    scales = np.where(varies, scale * np.sqrt(mixture.covariances_), np.sqrt(least))
    weights = mixture.weights_ / mixture.weights_.sum()
    means = mean + scale * mixture.means_
    return (
        torch.from_numpy(weights).to(x),
        torch.from_numpy(means).to(x),
        torch.from_numpy(scales).to(x),
    )


def usual_least_scale(rows: Tensor) -> float:
    """A tenth of the features' root-mean-square standard deviation, or the square root of the
    type's machine epsilon where none varies.

    Args:
        rows: flat rows, shape `(N, D)`.

    Example:
        >>> round(usual_least_scale(torch.tensor([[0.0, 2.0], [2.0, 2.0]])), 4)
        0.0707
    """
    variance = float(rows.var(0, correction=0).double().mean())
    return 0.1 * variance**0.5 if variance > 0 else float(torch.finfo(rows.dtype).eps) ** 0.5
