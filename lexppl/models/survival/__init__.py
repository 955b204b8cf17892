"""Survival times: Cox's partial likelihood, and proportional hazards with a known baseline."""

from lexppl.models.survival.baseline import BaselineHazard
from lexppl.models.survival.cox_likelihood import (
    CoxLikelihood,
    PartialLikelihood,
    ProportionalHazards,
)

__all__ = ["BaselineHazard", "CoxLikelihood", "PartialLikelihood", "ProportionalHazards"]
