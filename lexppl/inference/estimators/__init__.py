"""Gradient estimators: values, chosen once for an objective or per site by
`infer={"estimator": …}`."""

from lexppl.inference.estimators.base import GradientEstimator, SampledEstimator, Target
from lexppl.inference.estimators.enumerate import Enumerate
from lexppl.inference.estimators.leave_one_out import LeaveOneOut

__all__ = ["Enumerate", "GradientEstimator", "LeaveOneOut", "SampledEstimator", "Target"]
