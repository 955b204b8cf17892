"""Side by side with what users have: other explainers under the same judge, and adapters to them.

The libraries that are compared are those of the extra `compare`: pip install "lexppl[compare]".
"""

from lexppl.compare.adapters import ImputerMasker, conditional_baselines, shap_explanation
from lexppl.compare.compare import compare

__all__ = ["ImputerMasker", "compare", "conditional_baselines", "shap_explanation"]
