"""The one place where ArviZ 0.2x (`InferenceData`) and ArviZ 1.x (`xarray.DataTree`) differ."""

import warnings
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import xarray as xr

Posterior = Any
"""`arviz.InferenceData` under ArviZ 0.2x, `xarray.DataTree` under ArviZ 1.x."""

FEWEST_WEIGHTS = 25
"""Whose largest fifth is the five that a tail is fitted to at least."""


def posterior_of(groups: Mapping[str, xr.Dataset], attrs: Mapping[str, Any]) -> Posterior:
    """Put groups together as the installed ArviZ holds them.

    Args:
        groups: a data set for each of ArviZ's group names.
        attrs: what is said of all groups together.

    Example:
        >>> draws = xr.Dataset({"a": (("chain", "draw"), [[0.0, 1.0]])})
        >>> posterior = posterior_of({"posterior": draws}, {"seed": 0})
        >>> posterior["posterior"]["a"].shape, posterior.attrs["seed"]
        ((1, 2), 0)
    """
    posterior = posterior_class()()
    _fill(posterior, groups, attrs)
    return posterior


def posterior_when_read(
    build: Callable[[], Mapping[str, xr.Dataset]], attrs: Mapping[str, Any], kind: Any = None
) -> Posterior:
    """A posterior whose groups are built when any of it is first read.

    Args:
        build: returns what `posterior_of` takes.
        attrs: of all groups together.
        kind: what it is then: a subclass of ArviZ's class, or that class if None.

    Example:
        >>> def build():
        ...     print("built")
        ...     return {"posterior": xr.Dataset({"a": 0.0})}
        >>> posterior = posterior_when_read(build, {})
        >>> posterior["posterior"]["a"].item()
        built
        0.0
    """
    unread = _unread_class(kind or posterior_class())
    posterior = unread.__new__(unread)
    object.__setattr__(posterior, _BUILD, (build, attrs))
    return posterior


_BUILD = "_build"
"""The attribute that a posterior has until it is read."""


@cache
def posterior_class() -> Any:
    """The class of the installed ArviZ."""
    with warnings.catch_warnings():
        # ArviZ 0.2x announces its successor on import; both are supported here.
        warnings.simplefilter("ignore", FutureWarning)
        import arviz  # noqa: PLC0415 - slow, and not needed to import the library
    return arviz.InferenceData


@cache
def _unread_class(kind: Any) -> Any:
    """A subclass of a class; an instance becomes one of the class itself at any first access."""

    def read(posterior: Posterior) -> Posterior:
        build, attrs = object.__getattribute__(posterior, _BUILD)
        groups = build()
        object.__delattr__(posterior, _BUILD)
        object.__setattr__(posterior, "__class__", kind)
        _fill(posterior, groups, attrs)
        return posterior

    class Unread(kind):
        def __getattribute__(self, name: str) -> Any:
            # isinstance() looks at the class, and reads nothing.
            return Unread if name == "__class__" else getattr(read(self), name)

        def __setattr__(self, name: str, value: Any) -> None:
            setattr(read(self), name, value)

        def __delattr__(self, name: str) -> None:
            delattr(read(self), name)

        def __reduce_ex__(self, protocol: Any) -> Any:
            return read(self).__reduce_ex__(protocol)

    return Unread


def _fill(posterior: Posterior, groups: Mapping[str, xr.Dataset], attrs: Mapping[str, Any]) -> None:
    """Initialise an instance with its groups."""
    if isinstance(posterior, xr.DataTree):
        children = {name: xr.DataTree(group) for name, group in groups.items()}
        xr.DataTree.__init__(posterior, children=children)
        posterior.attrs.update(attrs)
    else:
        posterior.__init__(**groups, attrs=dict(attrs))


def group_names(posterior: Posterior) -> tuple[str, ...]:
    """The names of the groups that a posterior has.

    Raises:
        TypeError: it is neither an `InferenceData` nor a `DataTree`.

    Example:
        >>> group_names(posterior_of({"observed_data": xr.Dataset({"y": 1.0})}, {}))
        ('observed_data',)
    """
    if isinstance(posterior, xr.DataTree):
        return tuple(str(name) for name in posterior.children)
    if not hasattr(posterior, "groups"):
        raise TypeError(
            "posterior must be an arviz.InferenceData or an xarray.DataTree, as explain() returns "
            f"it; it is {type(posterior).__name__}"
        )
    return tuple(name for name in posterior.groups() if name != "/")


def group_of(posterior: Posterior, name: str) -> xr.Dataset:
    """One group of a posterior as a data set.

    Raises:
        TypeError: it is neither an `InferenceData` nor a `DataTree`.
        ValueError: there is no such group.

    Example:
        >>> group_of(posterior_of({"observed_data": xr.Dataset({"y": 1.0})}, {}),
        ...     "observed_data")["y"].item()
        1.0
    """
    names = group_names(posterior)
    if name not in names:
        raise ValueError(f"the posterior has no group {name!r}; it has {list(names)}")
    group = posterior[name]
    return group.to_dataset() if isinstance(group, xr.DataTree) else group


def pareto_smoothed(log_weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pareto-smoothed importance weights, and how heavy their tail is.

    Args:
        log_weights: `(…, S)`, unnormalised.

    Returns:
        smoothed log-weights `(…, S)` whose exponentials sum to one, and Pareto k̂ `(…,)`: above
        0.7, means by these weights are not to be trusted; −∞ where all weights are one
        number, ∞ of fewer than 25, whose tail cannot be fitted.

    Source: Vehtari, Simpson, Gelman, Yao and Gabry (2024), "Pareto smoothed importance sampling".

    Example:
        >>> smoothed, k = pareto_smoothed(np.zeros((2, 100)))
        >>> smoothed.shape, k.shape, bool(np.allclose(np.exp(smoothed), 0.01))
        ((2, 100), (2,), True)
    """
    values = np.asarray(log_weights, dtype=float)
    flat = values.reshape(-1, values.shape[-1])
    smoothed, k = flat.copy(), np.full(len(flat), -np.inf)
    if flat.shape[-1] < FEWEST_WEIGHTS:
        k[:] = np.inf
    spread = np.ptp(flat, axis=-1) > np.finfo(float).eps * np.abs(flat).max(-1)
    spread &= flat.shape[-1] >= FEWEST_WEIGHTS
    if spread.any():
        smoothed[spread], k[spread] = _psis(flat[spread])
    highest = smoothed.max(-1, keepdims=True)
    smoothed -= np.log(np.exp(smoothed - highest).sum(-1, keepdims=True)) + highest
    return smoothed.reshape(values.shape), k.reshape(values.shape[:-1])


def _psis(log_weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import arviz  # noqa: PLC0415 - as above

        if hasattr(arviz, "psislw"):
            smoothed, k = arviz.psislw(log_weights)
        else:
            from arviz_stats.base import array_stats  # noqa: PLC0415

            # Of ArviZ 1.x the argument is the log-likelihood that is to be left out.
            smoothed, k = array_stats.psislw(-log_weights)
    return np.asarray(smoothed), np.asarray(k)
