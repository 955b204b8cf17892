"""Gradient estimators: values, chosen once for an objective or per site by
`infer={"estimator": …}`."""

from lexppl.inference.estimators.base import (
    GradientEstimator,
    SampledEstimator,
    SamplePathEstimator,
)
from lexppl.inference.estimators.disarm import DisARM
from lexppl.inference.estimators.enumerate import Enumerate
from lexppl.inference.estimators.leave_one_out import LeaveOneOut
from lexppl.inference.estimators.rebar import REBAR, TunedControl
from lexppl.inference.estimators.sample_path import (
    MarginalStraightThrough,
    Pathwise,
    PlugInMean,
    StraightThrough,
    Unscored,
)
from lexppl.inference.estimators.score_function import (
    LearnedConstant,
    ScoreFunction,
    SelfNormalized,
)

__all__ = [
    "REBAR",
    "DisARM",
    "Enumerate",
    "GradientEstimator",
    "LearnedConstant",
    "LeaveOneOut",
    "MarginalStraightThrough",
    "Pathwise",
    "PlugInMean",
    "SamplePathEstimator",
    "SampledEstimator",
    "ScoreFunction",
    "SelfNormalized",
    "StraightThrough",
    "TunedControl",
    "Unscored",
]
