"""The ranked features, one by one."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

COLUMNS = ("selection_probability", "lower", "upper", "r_hat")


@dataclass(frozen=True)
class RankedFeature:
    """A feature's line in the ranking; NaN where one replicate tells nothing."""

    name: str
    importance: float
    lower: float
    upper: float
    r_hat: float

    @property
    def interval(self) -> str:
        """The 95 % interval."""
        if math.isnan(self.lower):
            return "–"
        return f"{self.lower:.2f} – {self.upper:.2f}"

    @property
    def r_hat_text(self) -> str:
        """r̂ as it is printed."""
        if math.isnan(self.r_hat):
            return "–"
        return "∞" if math.isinf(self.r_hat) else f"{self.r_hat:.2f}"

    @property
    def cells(self) -> list[str]:
        """Name, importance, interval and r̂ as text.

        Example:
            >>> RankedFeature("age", 0.912, 0.81, 1.0, float("inf")).cells
            ['age', '0.91', '0.81 – 1.00', '∞']
        """
        return [self.name, f"{self.importance:.2f}", self.interval, self.r_hat_text]


def ranked_features(table: pd.DataFrame) -> list[RankedFeature]:
    """The lines of a :func:`lexppl.explanation.selection_table`, in its order."""
    values = table[list(COLUMNS)].to_numpy(dtype=np.float64)
    return [
        RankedFeature(str(name), *(float(value) for value in line))
        for name, line in zip(table.index, values, strict=True)
    ]
