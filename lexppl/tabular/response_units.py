"""A posterior of a standardised response in the response's own units."""

import math

import xarray as xr

from lexppl.arviz_compatibility import Posterior, attrs_of, group_names, group_of, posterior_of
from lexppl.data import TargetColumn


def in_response_units(posterior: Posterior, target: TargetColumn) -> Posterior:
    """An explanation of y' = (y − m) / s in the units of y: values `m + s y'`, log-densities `− log
    s`.

    Example:
        >>> drawn = xr.Dataset({"y": ("row", [0.0, 1.0])})
        >>> given = posterior_of({"posterior_predictive": drawn}, {})
        >>> in_units = in_response_units(given, TargetColumn("y", None, 10.0, 2.0))
        >>> in_units["posterior_predictive"]["y"].values
        array([10., 12.])
    """
    groups = {name: group_of(posterior, name).copy() for name in group_names(posterior)}
    for name in ("predictions", "prior_predictive", "posterior_predictive", "observed_data"):
        if name in groups and "y" in groups[name]:
            groups[name]["y"] = _kept_attributes(groups[name]["y"], target.scale, target.mean)
    shift = -math.log(target.scale)
    for name, variable in (("log_likelihood", "y"), ("sample_stats", "log_evidence")):
        if name in groups and variable in groups[name]:
            groups[name][variable] = _kept_attributes(groups[name][variable], 1.0, shift)
    return posterior_of(groups, attrs_of(posterior))


def _kept_attributes(values: xr.DataArray, scale: float, shift: float) -> xr.DataArray:
    moved = values * scale + shift
    moved.attrs = dict(values.attrs)
    return moved
