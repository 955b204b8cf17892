"""The one place where ArviZ 0.2x (`InferenceData`) and ArviZ 1.x (`xarray.DataTree`) differ."""

import warnings
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
import xarray as xr

from lexppl.extras import arviz_library

Posterior = Any  # `arviz.InferenceData` under ArviZ 0.2x, `xarray.DataTree` under ArviZ 1.x

FEWEST_WEIGHTS = 25  # Whose largest fifth is the five that a tail is fitted to at least


def posterior_of(groups: Mapping[str, xr.Dataset], attrs: Mapping[str, Any]) -> Posterior:
    """Groups of data sets as the installed ArviZ holds them."""
    return posterior_when_read(lambda: groups, attrs)


def posterior_when_read(
    build: Callable[[], Mapping[str, xr.Dataset]],
    attrs: Mapping[str, Any],
    kind: Callable[[], Any] | None = None,
) -> Posterior:
    """A posterior that becomes ArviZ's own class, or that of `kind`, and imports it, when any of it
    is first read; `build` returns the groups then, or for :func:`group_of`."""
    unread = _unread_class(kind or posterior_class)
    posterior = unread.__new__(unread)
    object.__setattr__(posterior, _UNREAD, (build, attrs))
    return posterior


_UNREAD = "_unread"
"""The attribute of an unread posterior: what builds its groups, or the groups, and `attrs`."""

_KIND = "_kind_when_read"
"""The attribute of the class of such a posterior: what returns its class when it is read."""

_READING = (
    "__setattr__",
    "__delattr__",
    "__reduce_ex__",
    "__getitem__",
    "__setitem__",
    "__delitem__",
    "__contains__",
    "__iter__",
    "__len__",
    "__repr__",
    "__add__",
    "__eq__",
    "__dir__",
)
"""Methods that Python looks up in the class."""


@cache
def _has_trees() -> bool:
    """Whether the installed ArviZ holds posteriors as xarray's trees; without an import."""
    return int(version("arviz").split(".")[0]) >= 1


def posterior_class() -> Any:
    """The class of the installed ArviZ."""
    return xr.DataTree if _has_trees() else arviz_library().InferenceData


@cache
def _unread_class(kind: Callable[[], Any]) -> Any:
    """The class of a posterior until it is read, of the same layout as ArviZ's."""

    class Unread(xr.DataTree if _has_trees() else Mapping):  # type: ignore[misc]
        pass

    def attribute(self: Posterior, name: str) -> Any:
        # isinstance() looks at the class, and reads nothing.
        return kind() if name == "__class__" else getattr(_read(self), name)

    def reading(name: str) -> Any:
        return lambda self, *args: getattr(type(_read(self)), name)(self, *args)

    # Set later: xarray makes an instance of a subclass when that is defined.
    for name in _READING:
        setattr(Unread, name, reading(name))
    Unread.__getattribute__ = attribute  # type: ignore[method-assign]
    Unread.__abstractmethods__ = frozenset()
    setattr(Unread, _KIND, kind)
    return Unread


def _is_unread(posterior: Posterior) -> bool:
    """Whether nothing of a posterior has been read; `isinstance` would import ArviZ."""
    return _KIND in vars(type(posterior))


def _unread_groups(posterior: Posterior) -> Mapping[str, xr.Dataset] | None:
    """The groups of a posterior that is not read yet, built once."""
    if not _is_unread(posterior):
        return None
    groups, attrs = object.__getattribute__(posterior, _UNREAD)
    if callable(groups):
        groups = groups()
        object.__setattr__(posterior, _UNREAD, (groups, attrs))
    return groups


def _read(posterior: Posterior) -> Posterior:
    groups = _unread_groups(posterior)
    if groups is not None:
        _, attrs = object.__getattribute__(posterior, _UNREAD)
        object.__delattr__(posterior, _UNREAD)
        object.__setattr__(posterior, "__class__", getattr(type(posterior), _KIND)())
        if isinstance(posterior, xr.DataTree):
            children = {name: xr.DataTree(group) for name, group in groups.items()}
            xr.DataTree.__init__(posterior, children=children)
            posterior.attrs.update(attrs)
        else:
            posterior.__init__(**groups, attrs=dict(attrs))
    return posterior


def group_names(posterior: Posterior) -> tuple[str, ...]:
    """The names of the groups of a posterior."""
    if (unread := _unread_groups(posterior)) is not None:
        return tuple(unread)
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
    if (unread := _unread_groups(posterior)) is not None:
        return unread[name]
    group = posterior[name]
    return group.to_dataset() if isinstance(group, xr.DataTree) else group


def writable_group(posterior: Posterior, name: str) -> Any:
    """One group as the posterior holds it: a variable that is set there is set in the posterior."""
    unread = _unread_groups(posterior)
    return posterior[name] if unread is None else unread[name]


def attrs_of(posterior: Posterior) -> Mapping[str, Any]:
    """The attributes of all groups together."""
    unread = _is_unread(posterior)
    return object.__getattribute__(posterior, _UNREAD)[1] if unread else posterior.attrs


def pareto_smoothed(log_weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pareto-smoothed log-weights `(…, S)` whose exponentials sum to one, and Pareto k̂ `(…,)`.

    Above 0.7 means by these weights are not to be trusted; −∞ where all weights are one number, ∞
    of fewer than 25 (Vehtari, Simpson, Gelman, Yao and Gabry 2024).

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
    least = np.finfo(float).eps * np.abs(np.where(np.isfinite(flat), flat, 0.0)).max(-1)
    with np.errstate(invalid="ignore"):
        # Weights of 0 differ from others, and are no number where all are.
        spread = ~(np.ptp(flat, axis=-1) <= least)
    spread &= flat.shape[-1] >= FEWEST_WEIGHTS
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
