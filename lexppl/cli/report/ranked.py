"""The ranked features, one by one."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class RankedFeature:
    """A feature's line in the ranking; NaN where one replicate tells nothing."""

    name: str
    importance: float
    lower: float
    upper: float
    agreement: float

    @property
    def interval(self) -> str:
        """The 95 % interval."""
        if math.isnan(self.lower):
            return "–"
        return f"{self.lower:.2f} – {self.upper:.2f}"

    @property
    def agreement_text(self) -> str:
        """The agreement as it is printed."""
        return "–" if math.isnan(self.agreement) else f"{self.agreement:.2f}"

    @property
    def cells(self) -> list[str]:
        """Name, importance, interval and agreement as text.

        Example:
            >>> RankedFeature("age", 0.912, 0.81, 1.0, 0.97).cells
            ['age', '0.91', '0.81 – 1.00', '0.97']
        """
        return [self.name, f"{self.importance:.2f}", self.interval, self.agreement_text]


def ranked_features(table: pd.DataFrame) -> list[RankedFeature]:
    """The lines of a :func:`lexppl.explanation.selection_table`, in its order."""
    values = table[[table.columns[0], "lower", "upper", "agreement"]].to_numpy(dtype=np.float64)
    return [
        RankedFeature(str(name), *(float(value) for value in line))
        for name, line in zip(table.index, values, strict=True)
    ]
