"""The column to predict, and the statistics that numbers are standardised by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexppl.data.cells import level_index, numbers_of


@dataclass(frozen=True)
class TargetColumn:
    """The column to predict: classes, or numbers that enter as ``(v − mean) / scale``.

    For regression ``mean`` is 0 and ``scale`` is 1 unless the target was standardised.
    """

    name: str
    class_names: tuple[str, ...] | None
    mean: float = 0.0
    scale: float = 1.0

    @classmethod
    def standardised(
        cls, name: str, values: NDArray[np.float64], weights: NDArray[np.float64] | None = None
    ) -> TargetColumn:
        """Return a response with the mean and the scale of these values, shape ``(N,)``.

        Args:
            name: the target's.
            values: those to learn from.
            weights: how often each counts, shape ``(N,)``; once where ``None``.

        Raises:
            ValueError: values so large that they cannot be standardised.

        >>> TargetColumn.standardised("price", np.array([10.0, 30.0]))
        TargetColumn(name='price', class_names=None, mean=20.0, scale=10.0)
        """
        [(mean, scale)] = statistics_of([name], values[:, None], weights)
        return cls(name, None, mean, scale)

    def encode(self, cells: pd.Series, dtype: torch.dtype | None = None) -> Tensor:
        """Return class indices (long) or the numbers, shape ``(N,)``.

        Raises:
            ValueError: cells that are missing, a label that was not there before, or no numbers.
        """
        if self.class_names is not None:
            return torch.from_numpy(level_index(cells, self.class_names, what="label"))
        values = (numbers_of(cells) - self.mean) / self.scale
        return torch.from_numpy(values).to(dtype or torch.get_default_dtype())

    def decode(self, values: Tensor) -> Tensor:
        """Return numbers of a regression target in the table's own units."""
        return values * self.scale + self.mean


def statistics_of(
    names: Sequence[str],
    values: NDArray[np.float64],
    weights: NDArray[np.float64] | None = None,
) -> list[tuple[float, float]]:
    """Return the mean and the scale of each column of numbers; scale 1 of constant ones.

    Args:
        names: of the columns.
        values: shape ``(N, columns)``; NaN where a value is missing, which counts for nothing.
        weights: how often each row counts, shape ``(N,)``; once where ``None``.

    Raises:
        ValueError: a column without values, or of values so large that they have no statistics.

    >>> statistics_of(["age"], np.array([[10.0], [np.nan], [30.0]]))
    [(20.0, 10.0)]
    """
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415 - slow, for fits alone

    # Extreme values overflow a square; the result is checked, so no warning is wanted.
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        scaler = StandardScaler().fit(values, sample_weight=weights)
    for name, mean, variance in zip(names, scaler.mean_, scaler.var_, strict=True):
        if np.isnan(mean) and np.isnan(values[:, names.index(name)]).all():
            raise ValueError(
                f"column {name!r} has no value in the rows to fit on; leave it out with "
                f"drop=[{name!r}]"
            )
        if not np.isfinite([mean, variance]).all():
            raise ValueError(
                f"column {name!r} cannot be standardised: its mean is {mean:g} and its standard "
                f"deviation {np.sqrt(variance):g}; rescale it"
            )
    return list(zip(scaler.mean_.tolist(), scaler.scale_.tolist(), strict=True))
