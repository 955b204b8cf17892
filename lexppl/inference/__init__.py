"""How a model is inferred: objectives, gradient estimators, fits."""

from lexppl.inference.collapse import CollapseWarning, collapse
from lexppl.inference.estimators import Enumerate, GradientEstimator, LeaveOneOut
from lexppl.inference.fit import annealed, fit
from lexppl.inference.loop import Epoch
from lexppl.inference.nested_iwae import NestedIWAE
from lexppl.inference.result import FitResult, History
from lexppl.inference.schedules import Geometric, Linear, Schedule
from lexppl.inference.stages import Stage, Term

__all__ = [
    "CollapseWarning",
    "Enumerate",
    "Epoch",
    "FitResult",
    "Geometric",
    "GradientEstimator",
    "History",
    "LeaveOneOut",
    "Linear",
    "NestedIWAE",
    "Schedule",
    "Stage",
    "Term",
    "annealed",
    "collapse",
    "fit",
]
