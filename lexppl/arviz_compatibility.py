"""The one place where ArviZ 0.2x (`InferenceData`) and ArviZ 1.x (`xarray.DataTree`) differ."""

import warnings
from collections.abc import Mapping
from typing import Any

import xarray as xr

Posterior = Any
"""`arviz.InferenceData` under ArviZ 0.2x, `xarray.DataTree` under ArviZ 1.x."""


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
    with warnings.catch_warnings():
        # ArviZ 0.2x announces its successor on import; both are supported here.
        warnings.simplefilter("ignore", FutureWarning)
        import arviz  # noqa: PLC0415 - slow, and not needed to import the library
    if arviz.InferenceData is xr.DataTree:
        tree = xr.DataTree.from_dict({f"/{name}": group for name, group in groups.items()})
        tree.attrs.update(attrs)
        return tree
    return arviz.InferenceData(**groups, attrs=dict(attrs))


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
