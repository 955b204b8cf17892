"""Settings of estimators that are fitted in a moment."""

import pytest

QUIET = pytest.mark.filterwarnings("ignore::lexppl.inference.CollapseWarning")
"""So short fits collapse, and the warning is not what is tested."""


def small(**options):
    """Arguments of an estimator, with others."""
    usual = {"hidden": (8,), "predictor_hidden": (16,), "prediction_masks": 10, "random_state": 0}
    return {**usual, **options}
