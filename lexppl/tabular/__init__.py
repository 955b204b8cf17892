"""Explainers of tables as scikit-learn estimators."""

from lexppl.tabular.estimators import ExplainerClassifier, ExplainerRegressor

__all__ = ["ExplainerClassifier", "ExplainerRegressor"]
