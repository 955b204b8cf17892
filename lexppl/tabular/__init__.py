"""Explainers of tables as scikit-learn estimators."""

from lexppl.evaluation.prediction import BehindWarning
from lexppl.tabular.estimators import ExplainerClassifier, ExplainerRegressor

__all__ = ["BehindWarning", "ExplainerClassifier", "ExplainerRegressor"]
