"""How a model is inferred: objectives, gradient estimators, fits."""

from lexppl.inference.estimators import Enumerate, GradientEstimator, LeaveOneOut
from lexppl.inference.nested_iwae import NestedIWAE
from lexppl.inference.schedules import Geometric, Linear, Schedule

__all__ = [
    "Enumerate",
    "Geometric",
    "GradientEstimator",
    "LeaveOneOut",
    "Linear",
    "NestedIWAE",
    "Schedule",
]
