"""Side by side with what users have: other explainers under the same judge, and adapters to them.

The libraries that are compared are those of the extra `compare`: pip install "lexppl[compare]".
"""

from lexppl.compare.adapters.captum_baselines import conditional_baselines, unconditional_baselines
from lexppl.compare.adapters.imputer_masker import ImputerMasker
from lexppl.compare.adapters.shap_explanation import shap_explanation
from lexppl.compare.compare import compare
from lexppl.compare.importances.captum import (
    gradient_x_input_importances,
    integrated_gradients_importances,
    saliency_importances,
)
from lexppl.compare.importances.lime import lime_importances
from lexppl.compare.importances.permutation import permutation_importances
from lexppl.compare.importances.shap import shap_importances
from lexppl.compare.importances.tabnet import FittedTabNet, fit_tabnet
from lexppl.compare.methods import METHODS, ComparisonContext, Method
from lexppl.compare.top_masks import top_masks

__all__ = [
    "METHODS",
    "ComparisonContext",
    "FittedTabNet",
    "ImputerMasker",
    "Method",
    "compare",
    "conditional_baselines",
    "fit_tabnet",
    "gradient_x_input_importances",
    "integrated_gradients_importances",
    "lime_importances",
    "permutation_importances",
    "saliency_importances",
    "shap_explanation",
    "shap_importances",
    "top_masks",
    "unconditional_baselines",
]
