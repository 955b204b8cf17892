"""scikit-learn's own checks of an estimator, all of them, on tiny networks."""

from functools import partial
from unittest import SkipTest

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from lexppl import ExplainerClassifier, ExplainerRegressor
from lexppl.systems import METHODS

pytestmark = pytest.mark.filterwarnings("ignore::lexppl.inference.CollapseWarning")

TINY = {"hidden": (8,), "predictor_hidden": (32,), "prediction_masks": 10}
QUICK = {**TINY, "epochs": 12, "batch_size": 120, "learning_rate": 5e-2}
# XTab's penalties shut its masks before they learn where the rate is high.
SLOWLY = {**TINY, "predictor_hidden": (128,), "epochs": 40, "learning_rate": 5e-3}

ESTIMATORS = [
    ExplainerClassifier(**QUICK),
    ExplainerClassifier("l2x", k=1, **QUICK),
    ExplainerClassifier("xtab", batch_size=24, **SLOWLY),
    ExplainerRegressor(**QUICK),
    ExplainerRegressor(
        "l2x", k=1, **{**TINY, "epochs": 20, "batch_size": 40, "learning_rate": 3e-2}
    ),
]

EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": (
        "Whole weights are repeated rows in every sum (test_sample_weights), but rows are learned "
        "from in random batches with random masks, which differ where rows are repeated or in "
        "another order: the two fits are of the same law and not of the same bits."
    )
}

LEARNED = {"check_classifiers_train", "check_regressors_train", "check_class_weight_classifiers"}
"""Checks that a fit has learned, which takes more than an epoch."""
ONE_EPOCH = {"epochs": 1, "hidden": (4,), "predictor_hidden": (4,), "prediction_masks": 2}


def checks_of(method):
    """Checks of all but what a method has learned, after one epoch."""
    kinds = (ExplainerClassifier, ExplainerRegressor)
    for kind in kinds[: 1 if METHODS[method].labels_only else 2]:
        for estimator, check in estimator_checks_generator(kind(method, **ONE_EPOCH), mark=None):
            name = (check.func if isinstance(check, partial) else check).__name__
            if name not in {*LEARNED, *EXPECTED}:
                yield name, estimator, check


@pytest.mark.complete(but=6)
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=lambda _: EXPECTED)
def test_scikit_learn_check(estimator, check):
    check(estimator)


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_s_checks(method):
    """One test a method, as a check takes less than what a test costs."""
    passed = []
    for name, estimator, check in checks_of(method):
        try:
            check(estimator)
        except SkipTest:
            continue
        except Exception as error:
            error.add_note(f"{name} of {type(estimator).__name__}({method!r})")
            raise
        passed.append(name)
    assert len(passed) > (60 if METHODS[method].labels_only else 120)
