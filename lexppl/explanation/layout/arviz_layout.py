"""Arrays in ArviZ's layout: groups of variables with named dimensions, filled chunk by chunk."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from torch import Tensor
from xarray.indexes import PandasIndex


@dataclass
class Variable:
    """One variable of a group: its array, the names of its dimensions, its attributes."""

    dims: tuple[str, ...]
    values: np.ndarray
    attrs: dict[str, Any]

    def put(self, where: tuple[Any, ...], values: Tensor) -> None:
        """Write values into a part of the array, whose integers grow to the values' type if need
        be."""
        given = values.detach().cpu().numpy()
        if self.values.dtype.kind == "i" and not np.array_equal(
            given.astype(self.values.dtype), given
        ):
            self.values = self.values.astype(given.dtype)
        self.values[where] = given


@dataclass
class ArvizLayout:
    """The groups of a posterior, with the coordinates, by dimension, that they share."""

    coordinates: dict[str, Sequence[Any] | np.ndarray]
    _groups: dict[str, dict[str, Variable]] = field(default_factory=dict)

    def add(
        self, group: str, name: str, dims: Sequence[str], dtype: Any, **attrs: Any
    ) -> np.ndarray:
        """A new variable of zeros with these dimensions; its array."""
        shape = tuple(len(self.coordinates[dim]) for dim in dims)
        variable = Variable(tuple(dims), np.zeros(shape, dtype), attrs)
        self._groups.setdefault(group, {})[name] = variable
        return variable.values

    def share(self, group: str, name: str, other: str) -> None:
        """A group's variable is that of another group: one array, under both."""
        self._groups.setdefault(group, {})[name] = self._groups[other][name]

    def __getitem__(self, place: tuple[str, str]) -> Variable:
        group, name = place
        return self._groups[group][name]

    def __contains__(self, place: tuple[str, str]) -> bool:
        group, name = place
        return name in self._groups.get(group, {})

    def groups(
        self, attrs: Mapping[str, Any], own: Mapping[str, Mapping[str, Any]] | None = None
    ) -> dict[str, xr.Dataset]:
        """The groups as data sets, with attributes of all and `own` ones of each."""
        return {
            group: self._dataset(held, {**attrs, **(own or {}).get(group, {})})
            for group, held in self._groups.items()
        }

    def _dataset(self, held: Mapping[str, Variable], attrs: Mapping[str, Any]) -> xr.Dataset:
        used = {dim for variable in held.values() for dim in variable.dims}
        coordinates: dict[str, xr.Variable] = {}
        for dim, values in self.coordinates.items():
            if dim in used:
                # As an index of pandas: of an array xarray loads Dask to see whether it is Dask's.
                names = coordinate_values(values)
                index = PandasIndex(pd.Index(names), dim, names.dtype)
                coordinates |= index.create_variables()
        # Of numpy arrays: xarray need not look what libraries of other arrays there are.
        variables = {
            name: xr.Variable(v.dims, v.values, v.attrs, fastpath=True) for name, v in held.items()
        }
        return xr.Dataset(variables, coordinates, dict(attrs))


def coordinate_values(values: Sequence[Any] | np.ndarray) -> np.ndarray:
    """Names or numbers of a dimension as an array that netCDF can hold: never of objects."""
    array = np.asarray(values)
    if array.dtype.kind in "iuf":
        return array
    return np.asarray([str(value) for value in values])
