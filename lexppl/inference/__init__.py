"""How a model is inferred: objectives, gradient estimators, fits."""

from lexppl.inference.averaging import averaged
from lexppl.inference.collapse import CollapseWarning, collapse
from lexppl.inference.estimators import (
    REBAR,
    DisARM,
    Enumerate,
    GradientEstimator,
    LearnedConstant,
    LeaveOneOut,
    MarginalStraightThrough,
    Pathwise,
    PlugInMean,
    ScoreFunction,
    SelfNormalized,
    StraightThrough,
    TunedControl,
)
from lexppl.inference.fit import annealed, fit
from lexppl.inference.loop import Epoch
from lexppl.inference.nested_iwae import NestedIWAE
from lexppl.inference.replicate_rows import ReplicateData
from lexppl.inference.result import FitResult, History
from lexppl.inference.schedules import Geometric, Linear, Schedule
from lexppl.inference.stages import Stage, Term
from lexppl.inference.system import System

__all__ = [
    "REBAR",
    "CollapseWarning",
    "DisARM",
    "Enumerate",
    "Epoch",
    "FitResult",
    "Geometric",
    "GradientEstimator",
    "History",
    "LearnedConstant",
    "LeaveOneOut",
    "Linear",
    "MarginalStraightThrough",
    "NestedIWAE",
    "Pathwise",
    "PlugInMean",
    "ReplicateData",
    "Schedule",
    "ScoreFunction",
    "SelfNormalized",
    "Stage",
    "StraightThrough",
    "System",
    "Term",
    "TunedControl",
    "annealed",
    "averaged",
    "collapse",
    "fit",
]
