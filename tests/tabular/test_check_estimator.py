"""scikit-learn's own checks of an estimator, all of them, on tiny networks."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from lexppl import ExplainerClassifier, ExplainerRegressor

pytestmark = pytest.mark.filterwarnings("ignore::lexppl.inference.CollapseWarning")

TINY = {"hidden": (8,), "predictor_hidden": (32,), "prediction_masks": 10}
QUICK = {**TINY, "epochs": 12, "batch_size": 120, "learning_rate": 5e-2}
# XTab's penalties shut its masks before they learn where the rate is high.
SLOWLY = {**TINY, "predictor_hidden": (128,), "epochs": 40, "learning_rate": 5e-3}

ESTIMATORS = [
    ExplainerClassifier(**QUICK),
    ExplainerClassifier("lex", **QUICK),
    ExplainerClassifier("l2x", k=1, **QUICK),
    ExplainerClassifier("xtab", batch_size=24, **SLOWLY),
    ExplainerRegressor(**QUICK),
    ExplainerRegressor(
        "l2x", k=1, **{**TINY, "epochs": 20, "batch_size": 40, "learning_rate": 3e-2}
    ),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_check(estimator, check):
    check(estimator)
