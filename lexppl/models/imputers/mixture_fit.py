"""Mixtures of diagonal Gaussians fitted to rows, by scikit-learn."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from lexppl.argument_checks import finite_float, int_at_least, int_between
from lexppl.models.imputers.imputer import check_training_rows, fill_zero_variances

Mixture = tuple[Tensor, Tensor, Tensor]
"""Weights `(C,)`, means `(C, *event)` and scales `(C, *event)`."""

START_ROWS = 5000
"""Most rows that k-means finds a start on."""


def check_component_fit(x: Tensor, components: int, seed: int) -> None:
    """Refuse what no mixture of that many components can be fitted to.

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
) -> Mixture:
    """Weights `(C,)`, means `(C, *event)` and standard deviations `(C, *event)` of a mixture.

    Features of tables are standardised for scikit-learn. One that does not vary gets a tiny scale:
    the square root of the type's machine epsilon times the smallest positive scale of the others.
    Images, and rows with a `least_scale`, are taken as they are, from a start of k-means.

    Args:
        x: training rows, shape `(B, *event)`.
        components: C.
        seed: of the start.
        least_scale: see :meth:`.MixtureImputer.fit`.

    Raises:
        TypeError, ValueError: as :func:`check_component_fit`; a `least_scale` that is not above 0.

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
    kind = {"covariance_type": "diag", "random_state": seed}
    rows = x.detach().flatten(1).cpu().double().numpy()
    if x.ndim > 2 or least_scale is not None:
        flat = x.detach().flatten(1)
        added = usual_least_scale(flat) if least_scale is None else least_scale
        start = start_by_clusters(flat, components, seed, added)
        share, mean, scale = (each.cpu().double().numpy() for each in start)
        mixture = GaussianMixture(
            components,
            reg_covar=added**2,
            max_iter=200,
            weights_init=share / share.sum(),
            means_init=mean,
            precisions_init=scale**-2,
            **kind,
        ).fit(rows)
        means, scales = mixture.means_, np.sqrt(mixture.covariances_)
    else:
        varies = (rows != rows[0]).any(0) & (rows.std(0) > 0)
        mean = np.where(varies, rows.mean(0), rows[0])
        variance = np.where(varies, rows.var(0), 0.0)
        scale = np.where(varies, np.sqrt(variance), 1.0)
        mixture = GaussianMixture(components, reg_covar=1e-6, max_iter=500, **kind).fit(
            (rows - mean) / scale
        )
        least = fill_zero_variances(torch.from_numpy(variance)).numpy() * torch.finfo(x.dtype).eps
        means = mean + scale * mixture.means_
        scales = np.where(varies, scale * np.sqrt(mixture.covariances_), np.sqrt(least))
    weights = torch.from_numpy(mixture.weights_ / mixture.weights_.sum()).to(x)
    shape = (-1, *x.shape[1:])
    parts = (torch.from_numpy(each).to(x).reshape(shape) for each in (means, scales))
    return weights, next(parts), next(parts)


def start_by_clusters(rows: Tensor, components: int, seed: int, least_scale: float) -> Mixture:
    """Shares, means and standard deviations of k-means' clusters, on at most 5,000 random rows.

    Args:
        rows: flat rows, shape `(N, D)`.
        components: C.
        seed: of the rows and of k-means.
        least_scale: what is added to each variance, as a standard deviation.

    Example:
        >>> start_by_clusters(torch.tensor([[0.0], [5.0], [5.2]]), 2, 0, 0.1)[0].sort().values
        tensor([0.3333, 0.6667])
    """
    from sklearn.cluster import KMeans  # noqa: PLC0415

    most = max(START_ROWS, components)
    if len(rows) > most:
        places = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:most]
        rows = rows[places.to(rows.device)]
    labels = KMeans(components, n_init=1, random_state=seed).fit_predict(rows.cpu().numpy())
    one_hot = torch.nn.functional.one_hot(torch.from_numpy(labels).long(), components)
    members = one_hot.to(rows).mT
    # k-means leaves a cluster empty only where there are fewer distinct rows than clusters.
    count = members.sum(-1, keepdim=True).clamp(min=1)
    means = members @ rows / count
    variances = (members @ rows**2 / count - means**2).clamp(min=0) + least_scale**2
    return count.squeeze(-1) / count.sum(), means, variances.sqrt().clamp(min=least_scale)


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
