"""Side by side with what users have: other explainers under the same judge, and adapters to them.

The libraries that are compared are those of the extra `compare`: pip install "lexppl[compare]".
"""

from lexppl.compare.captum import (
    conditional_baselines,
    gradient_x_input_importances,
    integrated_gradients_importances,
    saliency_importances,
    unconditional_baselines,
)
from lexppl.compare.compare import compare
from lexppl.compare.figures import top_masks
from lexppl.compare.importances import (
    FittedTabNet,
    fit_tabnet,
    lime_importances,
    permutation_importances,
    shap_importances,
)
from lexppl.compare.methods import METHODS, ComparisonContext, Method
from lexppl.compare.shap import ImputerMasker, shap_explanation

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
