"""A mixture of diagonal Gaussians, fitted by expectation maximisation."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from lexppl.argument_checks import int_at_least, int_between
from lexppl.models.imputers.training_rows import check_training_rows
from lexppl.models.imputers.variance_floor import fill_zero_variances

__all__ = ["check_component_fit", "fit_diagonal_mixture"]


def check_component_fit(x: Tensor, components: int, seed: int) -> None:
    """Refuses what no mixture of that many components can be fitted on.

    Args:
        x: training rows, shape `(B, D)`.
        components: C.
        seed: of the fit's start.

    Raises:
        TypeError: when `x` is not a floating-point tensor.
        ValueError: when `x` is not a finite table of 2 rows or more, the components are no
            whole number from 1 to its rows, or the seed is none of at least 0.

    Example:
        >>> check_component_fit(torch.ones(3, 2), components=4, seed=0)
        Traceback (most recent call last):
        ValueError: components must be a whole number from 1 to 3, the rows of x; it is 4
    """
    check_training_rows(x)
    if x.ndim != 2:
        raise ValueError(
            f"x must be a table of shape (B, D); it has shape {tuple(x.shape)}. For other rows "
            "use a MarginalImputer"
        )
    int_between("components", components, 1, len(x), note="the rows of x")
    int_at_least("seed", seed, 0)


def fit_diagonal_mixture(x: Tensor, components: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Weights `(C,)`, means `(C, D)` and standard deviations `(C, D)` of a mixture.

    Features are standardised for scikit-learn. One that does not vary gets a tiny scale: the square
    root of the type's machine epsilon times the smallest positive scale of the others.

    Args:
        x: training rows, shape `(B, D)`.
        components: C.
        seed: of the start.

    Raises:
        TypeError, ValueError: as :func:`check_component_fit`.

    Example:
        >>> x = torch.tensor([[0.0], [0.1], [5.0], [5.1]])
        >>> weights, means, scales = fit_diagonal_mixture(x, components=2, seed=0)
        >>> means.sort(0).values
        tensor([[0.0500],
                [5.0500]])
    """
    from sklearn.mixture import GaussianMixture  # noqa: PLC0415

    check_component_fit(x, components, seed)
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
