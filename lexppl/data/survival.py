"""Survival data: real sets that come with libraries, and simulated ones with known truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lexppl.argument_checks import finite_float, fraction, int_at_least
from lexppl.data.checks import listed
from lexppl.data.dataset import Dataset
from lexppl.data.synthetic import drawn_dataset
from lexppl.data.tables import dataset_from_frame
from lexppl.extras import extra_library

CONTROL, BEFORE, AFTER = 6, (0, 1), (2, 3)
"""Of the simulated set: the switch, the features before it and after it."""
SIMULATED_FEATURES = 10
QUADRATURE = 200_000
"""Rows on which the end of censoring is set."""


def survival_names() -> tuple[str, ...]:
    """The survival sets that :func:`lexppl.data.load` knows."""
    return tuple(_LOADERS)


def load_survival(name: str, dtype: torch.dtype | None = None) -> Dataset:
    """A real set of survival times, with y `(N, 2)`: time and event (1), or censoring (0).

    ====================  ========  ==========================================  ===================
    name                  rows × G  time (unit), event                          comes with
    ====================  ========  ==========================================  ===================
    rossi                 432 × 7   rearrest after release (weeks): 114         lifelines
    gbsg2                 686 × 8   recurrence of breast cancer (days): 299     scikit-survival
    whas500               500 × 14  death after a heart attack (days): 215      scikit-survival
    veterans_lung_cancer  137 × 6   death of lung cancer (days): 128            scikit-survival
    ====================  ========  ==========================================  ===================
    """
    if name not in _LOADERS:
        raise ValueError(f"there is no survival set {name!r}; there are {listed(survival_names())}")
    features, time, event = _LOADERS[name]()
    frame = features.assign(time=np.array(time, dtype=float))
    data = dataset_from_frame(frame, "time", task="regression", name=name, dtype=dtype)
    times = torch.as_tensor(np.array(time, dtype=float), dtype=data.x.dtype)
    y = torch.stack([times, torch.as_tensor(np.array(event)).to(data.x.dtype)], 1)
    return replace(data, y=y)


@dataclass(frozen=True)
class SimulatedSurvival:
    r"""Survival times with known relevant features, which a switch chooses.

    Ten features `x_d ~ N(0, 1)`, and a Weibull hazard

        h(t | x) = a/b · (t/b)^{a−1} · exp η(x),
        η(x) = s (x1 − x2) where x7 < 0, else s (x3 + x4),

    so that `T = b (E e^{−η})^{1/a}` with E exponential. x7 and the features of its side are
    relevant. Censoring is uniform from 0 to the time that leaves the wanted share censored.

    Args:
        shape: a of the Weibull; rising hazards above 1.
        scale: b, the unit of time.
        strength: s, of each relevant feature.
        censored: share of the rows that are, on average.

    Raises:
        ValueError: a number that is not positive, a share outside [0, 1).

    Example:
        >>> SimulatedSurvival().truth(torch.zeros(1, 10))
        tensor([[0., 0., 1., 1., 0., 0., 1., 0., 0., 0.]])
    """

    shape: float = 1.0
    scale: float = 1.0
    strength: float = 1.5
    censored: float = 0.3

    def __post_init__(self) -> None:
        for name in ("shape", "scale", "strength"):
            finite_float(name, getattr(self, name), above=0.0)
        fraction("censored", self.censored, of="the rows", zero=True)

    def log_hazard(self, x: Tensor) -> Tensor:
        """η(x), `(…,)`, for x `(…, 10)`."""
        before = x[..., BEFORE[0]] - x[..., BEFORE[1]]
        after = x[..., AFTER[0]] + x[..., AFTER[1]]
        return self.strength * torch.where(x[..., CONTROL] < 0, before, after)

    def truth(self, x: Tensor) -> Tensor:
        """The mask of the relevant features, `(…, 10)`."""
        relevant = x.new_zeros(2, SIMULATED_FEATURES)
        for row, features in enumerate((BEFORE, AFTER)):
            relevant[row, [*features, CONTROL]] = 1
        return relevant[(x[..., CONTROL] >= 0).long()]

    def survival(self, x: Tensor, time: Tensor) -> Tensor:
        """`P(T > t | x) = exp(−(t/b)^a e^η)`."""
        return (-((time / self.scale) ** self.shape) * self.log_hazard(x).exp()).exp()

    def end_of_censoring(self) -> float:
        """The c of censoring times uniform on (0, c): it leaves `E[min(T, c)]/c` of the rows
        censored, as a row with an event at T is so with probability `min(T, c)/c`."""
        generator = torch.Generator().manual_seed(0)
        times = self._times(QUADRATURE, generator)[1].sort().values
        if self.censored == 0.0:
            return float("inf")
        reached = times.cumsum(0)
        left = len(times) - torch.arange(1, len(times) + 1)
        share = (reached + left * times) / (len(times) * times)
        return float(times[(share > self.censored).sum().clamp(max=len(times) - 1)])

    def _times(self, rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        x = torch.randn(rows, SIMULATED_FEATURES, dtype=torch.float64, generator=generator)
        waited = torch.empty(rows, dtype=torch.float64).exponential_(generator=generator)
        relative = (waited * (-self.log_hazard(x)).exp()) ** (1.0 / self.shape)
        return x, self.scale * relative


def synthetic_survival(
    rows: int = 2000,
    seed: int = 0,
    *,
    distribution: SimulatedSurvival | None = None,
    dtype: torch.dtype | None = None,
) -> Dataset:
    """Draw a set of survival times with its truth masks; y is `(N, 2)`, times and events.

    Args:
        rows: N, at least 1.
        seed: of the draw, which leaves global random state alone.
        distribution: whose formulas; :class:`SimulatedSurvival` with its defaults if None.
        dtype: of features and times; torch's default where ``None``.

    Example:
        >>> data = synthetic_survival(rows=500, seed=0)
        >>> data.x.shape, data.y.shape, data.truth.sum(1).unique()
        (torch.Size([500, 10]), torch.Size([500, 2]), tensor([3.]))
    """
    made = distribution or SimulatedSurvival()
    generator = torch.Generator().manual_seed(seed)
    exact, times = made._times(int_at_least("rows", rows), generator)
    end = made.end_of_censoring()
    censoring = torch.rand(rows, dtype=torch.float64, generator=generator) * end
    if end == float("inf"):
        censoring = torch.full_like(times, end)
    x = exact.to(dtype or torch.get_default_dtype())
    y = torch.stack([torch.minimum(times, censoring), (times <= censoring).double()], 1)
    named: dict[str, Any] = {"target_name": "time", "class_names": None}
    return drawn_dataset(x, y.to(x.dtype), made.truth(x), name="simulated survival", **named)


def _rossi() -> tuple[pd.DataFrame, Any, Any]:
    frame = extra_library("lifelines.datasets", "survival").load_rossi()
    return frame.drop(columns=["week", "arrest"]), frame["week"], frame["arrest"]


def _sksurv(name: str) -> tuple[pd.DataFrame, Any, Any]:
    features, y = getattr(extra_library("sksurv.datasets", "survival"), f"load_{name}")()
    event, time = y.dtype.names
    whole = {c: features[c].astype(int) for c in features if set(features[c]) <= {"0", "1"}}
    return features.assign(**whole), y[time], y[event]


_LOADERS: Mapping[str, Callable[[], tuple[pd.DataFrame, Any, Any]]] = MappingProxyType(
    {
        "rossi": _rossi,
        "gbsg2": lambda: _sksurv("gbsg2"),
        "whas500": lambda: _sksurv("whas500"),
        "veterans_lung_cancer": lambda: _sksurv("veterans_lung_cancer"),
    }
)
