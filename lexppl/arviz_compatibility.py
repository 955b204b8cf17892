"""The one place where ArviZ 0.2x (`InferenceData`) and ArviZ 1.x (`xarray.DataTree`) differ."""

import warnings
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
import xarray as xr

from lexppl.extras import arviz_library

Posterior = Any  # `arviz.InferenceData` under ArviZ 0.2x, `xarray.DataTree` under ArviZ 1.x

FEWEST_WEIGHTS = 25  # Whose largest fifth is the five that a tail is fitted to at least


def posterior_of(groups: Mapping[str, xr.Dataset], attrs: Mapping[Any, Any]) -> Posterior:
    """Groups of data sets as the installed ArviZ holds them, by its own class."""
    if _has_trees():
        return tree_of(groups, attrs)
    return arviz_library().InferenceData(**groups, attrs=dict(attrs))


def tree_of(groups: Mapping[str, xr.Dataset], attrs: Mapping[Any, Any]) -> xr.DataTree:
    """The same as xarray's tree, whichever ArviZ is installed: it takes no import of ArviZ."""
    root = xr.Dataset(attrs=dict(attrs))
    return xr.DataTree(root, {name: xr.DataTree(group) for name, group in groups.items()})


def like(posterior: Posterior, groups: Mapping[str, xr.Dataset]) -> Posterior:
    """Other groups with a posterior's attributes, of its class."""
    made = tree_of if isinstance(posterior, xr.DataTree) else posterior_of
    return made(groups, posterior.attrs)


@cache
def _has_trees() -> bool:
    """Whether the installed ArviZ holds posteriors as xarray's trees; without an import."""
    return int(version("arviz").split(".")[0]) >= 1


def group_names(posterior: Posterior) -> tuple[str, ...]:
    """The names of the groups of a posterior."""
    if isinstance(posterior, xr.DataTree):
        return tuple(str(name) for name in posterior.children)
    if not hasattr(posterior, "groups"):
        raise TypeError(
            "posterior must be an arviz.InferenceData or an xarray.DataTree, as explain() returns "
            f"it; it is {type(posterior).__name__}"
        )
    return tuple(name for name in posterior.groups() if name != "/")


def group_of(posterior: Posterior, name: str) -> xr.Dataset:
    """One group of a posterior as a data set."""
    names = group_names(posterior)
    if name not in names:
        raise ValueError(f"the posterior has no group {name!r}; it has {list(names)}")
    group = posterior[name]
    return group.to_dataset() if isinstance(group, xr.DataTree) else group


def pareto_smoothed(log_weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pareto-smoothed log-weights `(…, S)` whose exponentials sum to one, and Pareto k̂ `(…,)`.

    Above 0.7 means by these weights are not to be trusted; −∞ where the largest of them, to which
    a tail is fitted, are one number, ∞ of fewer than 25 (Vehtari, Simpson, Gelman, Yao and Gabry
    2024).

    Example:
        >>> smoothed, k = pareto_smoothed(np.zeros((2, 100)))
        >>> smoothed.shape, k.shape, bool(np.allclose(np.exp(smoothed), 0.01))
        ((2, 100), (2,), True)
    """
    values = np.asarray(log_weights, dtype=float)
    flat = values.reshape(-1, values.shape[-1])
    smoothed, k = flat.copy(), np.full(len(flat), -np.inf)
    least = np.finfo(float).eps * np.abs(np.where(np.isfinite(flat), flat, 0.0)).max(-1)
    count = flat.shape[-1]
    tail = np.sort(flat, axis=-1)[:, -max(1, int(min(count / 5, 3 * count**0.5))) :]
    with np.errstate(invalid="ignore"):
        # Weights of 0 differ from others, and are no number where all are.
        spread = ~(np.ptp(tail, axis=-1) <= least)
    if count < FEWEST_WEIGHTS:
        k[:], spread[:] = np.inf, False
    if spread.any():
        smoothed[spread], k[spread] = _psis(flat[spread])
    highest = smoothed.max(-1, keepdims=True)
    smoothed -= np.log(np.exp(smoothed - highest).sum(-1, keepdims=True)) + highest
    return smoothed.reshape(values.shape), k.reshape(values.shape[:-1])


def _psis(log_weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if hasattr(arviz_library(), "psislw"):
            smoothed, k = arviz_library().psislw(log_weights)
        else:
            from arviz_stats.base import array_stats  # noqa: PLC0415

            # Of ArviZ 1.x the argument is the log-likelihood that is to be left out.
            smoothed, k = array_stats.psislw(-log_weights)
    return np.asarray(smoothed), np.where(np.isnan(k), np.inf, k)
