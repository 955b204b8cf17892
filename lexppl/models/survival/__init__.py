"""Survival times: Cox's partial likelihood, and proportional hazards with a known baseline."""

from lexppl.models.survival.baseline import BaselineHazard
from lexppl.models.survival.cox_likelihood import CoxLikelihood
from lexppl.models.survival.partial_likelihood import PartialLikelihood
from lexppl.models.survival.proportional_hazards import ProportionalHazards

__all__ = ["BaselineHazard", "CoxLikelihood", "PartialLikelihood", "ProportionalHazards"]
