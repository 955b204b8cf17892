"""Survival models after their fit: the baseline hazard, survival curves, concordance."""

from lexppl.evaluation.survival.baseline import with_baseline
from lexppl.evaluation.survival.concordance import concordance_index
from lexppl.evaluation.survival.curves import log_hazard_ratio, predict_survival

__all__ = ["concordance_index", "log_hazard_ratio", "predict_survival", "with_baseline"]
