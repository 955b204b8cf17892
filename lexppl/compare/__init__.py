"""Side by side with what users have: other explainers under the same judge, and adapters to them.

The libraries that are compared are those of the extra `compare`: pip install "lexppl[compare]".
"""

from lexppl.compare.captum import conditional_baselines, unconditional_baselines
from lexppl.compare.compare import METHODS, compare
from lexppl.compare.shap import ImputerMasker, shap_explanation

__all__ = [
    "METHODS",
    "ImputerMasker",
    "compare",
    "conditional_baselines",
    "shap_explanation",
    "unconditional_baselines",
]
