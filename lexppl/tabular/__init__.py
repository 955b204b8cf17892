"""Explainers of tables as scikit-learn estimators."""

from lexppl.tabular.explainer_classifier import ExplainerClassifier
from lexppl.tabular.explainer_regressor import ExplainerRegressor

__all__ = ["ExplainerClassifier", "ExplainerRegressor"]
