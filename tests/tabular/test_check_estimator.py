"""scikit-learn's own checks of an estimator, all of them, on tiny networks."""

from functools import partial
from unittest import SkipTest

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from lexppl import ExplainerClassifier, ExplainerRegressor
from lexppl.systems import METHODS

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
        "Whole weights are repeated rows in every sum (test_tables), but rows are learned "
        "from in random batches with random masks, which differ where rows are repeated or in "
        "another order: the two fits are of the same law and not of the same bits."
    )
}

LEARNED = {"check_classifiers_train", "check_regressors_train", "check_class_weight_classifiers"}
"""Checks that a fit has learned, which takes more than an epoch."""
OF_A_METHOD = {
    *("check_classifiers_classes", "check_classifiers_one_label", "check_estimators_pickle"),
    *("check_fit2d_1feature", "check_fit2d_1sample", "check_fit_idempotent"),
    *("check_methods_sample_order_invariance", "check_methods_subset_invariance"),
    *("check_regressors_int", "check_sample_weights_list"),
}
"""Checks of what a method learns and predicts; the others end before a method begins, or are of
what the estimators do for all methods alike."""
ONE_EPOCH = {"epochs": 1, "hidden": (4,), "predictor_hidden": (4,), "prediction_masks": 2}


def checks(estimator):
    """Name, estimator, check and marks of each of scikit-learn's checks."""
    for case in estimator_checks_generator(
        estimator, expected_failed_checks=EXPECTED, mark="xfail"
    ):
        (tiny, check), marks = getattr(case, "values", case), getattr(case, "marks", ())
        yield (check.func if isinstance(check, partial) else check).__name__, tiny, check, marks


LONG = {
    f"{type(tiny).__name__}-{tiny.method}-{name}": pytest.param(tiny, check, marks=marks)
    for every in ESTIMATORS
    for name, tiny, check, marks in checks(every)
    if name in {*LEARNED, *EXPECTED}
}
"""By name, so each of them once: scikit-learn repeats them on tables of other kinds of memory."""


@pytest.mark.complete(but=3)
@pytest.mark.parametrize(("estimator", "check"), LONG.values(), ids=LONG)
def test_what_is_learned_passes(estimator, check):
    check(estimator)


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("method", sorted(METHODS, key=lambda name: name != "l2x"))
def test_every_method_s_checks(method):
    """One test a method, as a check takes less than what a test costs."""
    kinds = (ExplainerClassifier, ExplainerRegressor)[: 1 if METHODS[method].labels_only else 2]
    passed = []
    for kind in kinds:
        for name, estimator, check, _ in checks(kind(method, **ONE_EPOCH)):
            if name in {*LEARNED, *EXPECTED} or (method != "lex" and name not in OF_A_METHOD):
                continue
            try:
                check(estimator)
            except SkipTest:
                continue
            except Exception as error:
                error.add_note(f"{name} of {kind.__name__}({method!r})")
                raise
            passed.append(name)
    assert len(passed) > (60 if method == "lex" else 6) * len(kinds)
