"""The methods beside this library's own that can be compared, by name."""

from collections.abc import Mapping

LIBRARIES: Mapping[str, str | None] = {
    "shap": "shap",
    "lime": "lime",
    "saliency": "captum",
    "integrated_gradients": "captum",
    "gradient_x_input": "captum",
    "permutation": None,
    "tabnet": "pytorch_tabnet",
}
"""Names, and the library that each needs beyond lexppl's own."""
