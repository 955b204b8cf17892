"""Weights of rows and of classes at the estimators."""

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_sample_weight

from lexppl import ExplainerClassifier, ExplainerRegressor
from lexppl.inference import entropy_unit
from lexppl.models.imputers import imputer_of
from lexppl.models.imputers.imputer import repeated_rows
from lexppl.tabular.encoded_rows import as_counts, with_class_weights
from tests.refusals import over
from tests.tabular.small import small

TINY = small(epochs=5, batch_size=30, learning_rate=2e-2)


@pytest.fixture(scope="module")
def rows():
    draw = np.random.default_rng(0)
    x = draw.normal(size=(60, 3))
    y = np.where(x[:, 0] + 0.3 * draw.normal(size=60) > 0.5, "yes", "no")
    return x, y, draw.integers(0, 4, 60)


@pytest.mark.parametrize("kind", [ExplainerClassifier, ExplainerRegressor])
def test_rows_of_weight_zero_are_not_there(kind, rows):
    x, y, weights = rows
    y = y if kind is ExplainerClassifier else x[:, 0]
    whole = (weights > 0).astype(float)
    weighted = kind(**TINY).fit(x, y, sample_weight=whole)
    without = kind(**TINY).fit(x[weights > 0], y[weights > 0])
    np.testing.assert_array_equal(weighted.predict(x), without.predict(x))
    np.testing.assert_array_equal(weighted.importances(x), without.importances(x))
    assert len(weighted.result_.history) == TINY["epochs"]


@pytest.mark.parametrize("kind", [ExplainerClassifier, ExplainerRegressor])
def test_whole_weights_are_repeated_rows_in_all_that_is_computed_once(kind, rows):
    """What is left are the batches: all rows in one, and the masks' draws, of k = G entries."""
    x, y, weights = rows
    y = y if kind is ExplainerClassifier else x[:, 0] ** 2
    settings = {**TINY, "k": 3, "folds": 1, "imputer": "constant", "validation_fraction": None}
    settings |= {"predictor_hidden": ()}
    weighted = kind(**{**settings, "batch_size": 60}).fit(x, y, sample_weight=weights)
    several = kind(**{**settings, "batch_size": 400}).fit(x.repeat(weights, 0), y.repeat(weights))
    plain = kind(**{**settings, "batch_size": 60}).fit(x, y)
    for one, other in zip(weighted.encoding_.columns, several.encoding_.columns, strict=True):
        assert one.mean == pytest.approx(other.mean) and one.scale == pytest.approx(other.scale)
    assert weighted.encoding_.target.mean == pytest.approx(several.encoding_.target.mean)
    told = "predict_proba" if kind is ExplainerClassifier else "predict"
    predicted = [getattr(e, told)(x) for e in (weighted, several, plain)]
    np.testing.assert_allclose(predicted[0], predicted[1], rtol=1e-4, atol=1e-6)
    assert np.abs(predicted[2] - predicted[1]).max() > 1e-3
    np.testing.assert_allclose(
        weighted.feature_importances_, several.feature_importances_, rtol=1e-5
    )


def test_the_base_rate_s_entropy_and_the_imputer_are_by_weight(rows):
    x, y, weights = rows
    labels = torch.tensor((y == "yes").astype(int))
    times = torch.tensor(weights)
    assert entropy_unit(labels, 2, times) == pytest.approx(
        entropy_unit(labels.repeat_interleave(times), 2)
    )
    shares = torch.nn.functional.one_hot(labels).double()
    assert entropy_unit(shares, weights=times) == pytest.approx(entropy_unit(labels, 2, times))
    drawn = repeated_rows(torch.tensor(x), times, seed=0)
    assert torch.equal(drawn, torch.tensor(x).repeat_interleave(times, 0))
    # In proportion, where they are not whole.
    fine = repeated_rows(torch.arange(60.0)[:, None], times * 0.1, seed=0)
    counts = torch.bincount(fine[:, 0].long(), minlength=60)
    assert len(fine) == 5000
    assert float((counts - 5000 * times / times.sum()).abs().max()) <= 1.0
    marginal = imputer_of("marginal", fine, seed=0)
    assert float(marginal.reference.mean()) == pytest.approx(
        float((times * torch.arange(60)).sum() / times.sum()), abs=0.1
    )
    penalty = ExplainerClassifier(**{**TINY, "epochs": 1, "validation_fraction": None})
    rare = np.where(y == "yes", 1.0, 500.0)
    units = [penalty.fit(x, y, w).penalty_ for w in (None, rare)]
    assert units[1] < 0.2 * units[0]


def test_rows_of_next_to_no_weight_say_nothing_in_training_or_validation(rows):
    """Weights that are not whole count by their ratios."""
    x, y, _ = rows
    faint = np.arange(60) % 2 == 0
    moved = np.where(faint[:, None], x + 3.0, x)
    weights = np.where(faint, 1e-9, 1.0)
    for of_rows, alike in ((weights, True), (None, False)):
        auto = {**TINY, "penalty": "auto"}
        fits = [ExplainerClassifier(**auto).fit(rows, y, of_rows) for rows in (x, moved)]
        courses = [fitted.penalty_path_["log_likelihood"] for fitted in fits]
        assert [len(course) for course in courses] == [8, 8]
        assert np.isfinite(courses).all() and np.allclose(*courses, rtol=1e-4) == alike
        told = [fitted.predict_proba(x[~faint]) for fitted in fits]
        assert np.allclose(*told, rtol=1e-3) == alike


def test_class_weights_are_scikit_learn_s(rows):
    x, y, weights = rows
    classes, labels = np.unique(y, return_inverse=True)
    for given in ("balanced", {"yes": 3.0}):
        np.testing.assert_allclose(
            with_class_weights(given, classes, labels, None), compute_sample_weight(given, y)
        )
    several = compute_sample_weight("balanced", y.repeat(weights))
    of_rows = with_class_weights("balanced", classes, labels, weights.astype(float))
    np.testing.assert_allclose(of_rows.sum(), several.sum())
    there = weights > 0
    np.testing.assert_allclose((of_rows[there] / weights[there]).repeat(weights[there]), several)
    by_class = ExplainerClassifier(**TINY, class_weight="balanced").fit(x, y)
    by_row = ExplainerClassifier(**TINY).fit(x, y, compute_sample_weight("balanced", y))
    np.testing.assert_array_equal(by_class.predict_proba(x), by_row.predict_proba(x))


def test_replicates_and_trees_take_them(rows):
    x, y, weights = rows
    drawn = ExplainerClassifier(**TINY, replicates=2).fit(x, y, weights)
    assert (drawn.result_.replicates, drawn.result_.row_weights) == (2, "given")
    chosen = ExplainerClassifier(**{**TINY, "epochs": 2}, predictor="auto").fit(x, y, weights)
    assert chosen.predictor_kind_ in ("network", "trees")


@over(
    ({}, np.ones(3), r"shape == \(3,\), expected \(60,\)"),
    ({}, np.ones((60, 1)), "must be 1D array"),
    ({}, -np.ones(60), "Negative values"),
    ({}, np.full(60, np.nan), "sample_weight contains NaN"),
    ({}, np.zeros(60), "at least one non-zero|above 0 for two rows"),
    ({}, ["heavy"] * 60, "could not convert string to float"),
    ({"class_weight": "equal"}, None, "class_weight must be 'balanced', a mapping"),
    ({"class_weight": 3.0}, None, "class_weight must be 'balanced', a mapping.*is float"),
    ({"class_weight": {"maybe": 2.0}}, None, "not in class_weight"),
    ({"class_weight": {"yes": -1.0}}, None, "class_weight must be finite"),
)
def test_bad_weights_are_refused(settings, weights, message, rows):
    x, y, _ = rows
    with pytest.raises((ValueError, TypeError), match=message):
        ExplainerClassifier(**TINY, **settings).fit(x, y, weights)


def test_weights_of_one_are_none():
    assert as_counts(np.ones(3)) is None and as_counts(None) is None
    assert as_counts(np.array([3.0, 1.0])).tolist() == [3.0, 1.0]
