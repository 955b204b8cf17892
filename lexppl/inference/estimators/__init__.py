"""Gradient estimators: values, chosen once for an objective or per site by
`infer={"estimator": …}`."""

from lexppl.inference.estimators.base import (
    DrawnEstimator,
    GradientEstimator,
    SampledEstimator,
)
from lexppl.inference.estimators.disarm import DisARM
from lexppl.inference.estimators.enumerate import Enumerate
from lexppl.inference.estimators.leave_one_out import LeaveOneOut
from lexppl.inference.estimators.pathwise import Pathwise
from lexppl.inference.estimators.point_estimate import PointEstimate
from lexppl.inference.estimators.rebar import REBAR, TunedControl
from lexppl.inference.estimators.score_function import LearnedConstant, ScoreFunction
from lexppl.inference.estimators.self_normalized import SelfNormalized
from lexppl.inference.estimators.straight_through import (
    MarginalStraightThrough,
    StraightThrough,
)
from lexppl.inference.estimators.target import Target

__all__ = [
    "REBAR",
    "DisARM",
    "DrawnEstimator",
    "Enumerate",
    "GradientEstimator",
    "LearnedConstant",
    "LeaveOneOut",
    "MarginalStraightThrough",
    "Pathwise",
    "PointEstimate",
    "SampledEstimator",
    "ScoreFunction",
    "SelfNormalized",
    "StraightThrough",
    "Target",
    "TunedControl",
]
