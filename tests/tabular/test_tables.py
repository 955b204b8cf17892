"""The estimators on tables: names, levels, units, given models, and scikit-learn's own tools."""

import io

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
from scipy.stats import gamma, kstest
from sklearn.base import clone
from sklearn.datasets import make_blobs, make_regression
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils import get_tags
from sklearn.utils.class_weight import compute_sample_weight

import lexppl
from lexppl import ExplainerClassifier, ExplainerRegressor, explain, fit, load, save
from lexppl.arviz_compatibility import group_of, posterior_of
from lexppl.choices.imputers import IMPUTERS
from lexppl.choices.settings import Regime
from lexppl.cli import main
from lexppl.data.encoding import TargetColumn
from lexppl.evaluation import predictive
from lexppl.explanation import mask_means
from lexppl.inference import entropy_unit
from lexppl.inference.training.cross_fitting import CrossFitted
from lexppl.models import (
    MLP,
    CategoricalLikelihood,
    ConstantImputer,
    CopulaImputer,
    GapImputer,
    MarginalImputer,
    NormalLikelihood,
    Predictor,
)
from lexppl.models.imputers import imputer_of
from lexppl.models.imputers.imputer import repeated_rows
from lexppl.models.trees.tree_predictor import TreePredictor
from lexppl.systems import METHODS, l2x, lex
from lexppl.systems.fit_plan import plan_for
from lexppl.tabular.encoded_rows import as_counts, with_class_weights
from lexppl.tabular.estimator_mixins import kept_entries, seed_of
from lexppl.tabular.estimators import in_response_units
from lexppl.tabular.given_model import box_of_rows, outputs_of
from lexppl.tabular.missing_values import IMPUTERS_OF_MISSING, METHODS_OF_MISSING, with_missing
from lexppl.tabular.row_predictions import (
    CommonRandomNumbers,
    row_importances,
    row_predictions,
    standard_gamma,
)
from tests.cli.tables import people as table_of_people
from tests.refusals import over, refused
from tests.saving.changed import description_of
from tests.tabular.small import small

TINY = small(epochs=20, batch_size=50, learning_rate=5e-2)
SHORT = {**TINY, "epochs": 1}
WIDTHS = {"hidden": (4,), "predictor_hidden": (4,)}


def classifier(method="lex", **options):
    return ExplainerClassifier(method, **{**TINY, **options})


@pytest.fixture(scope="module")
def blobs():
    return make_blobs(120, n_features=4, centers=3, random_state=0)


@pytest.fixture(scope="module")
def people():
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": draw.integers(20, 60, 160),
            "job": draw.choice(["clerk", "smith", "nurse"], 160),
            "town": pd.Categorical(draw.choice(["A", "B"], 160), categories=["A", "B", "C"]),
            "smokes": draw.random(160) < 0.5,
        },
        index=[f"person {n}" for n in range(160)],
    )
    return frame, np.where(frame["job"] == "smith", "high", "low")


@pytest.mark.complete
def test_levels_share_an_entry_and_names_are_kept(people):
    frame, y = people
    explainer = classifier("lex", k=1, epochs=60).fit(frame, y)
    assert explainer.n_features_in_ == 4
    assert list(explainer.entry_names_) == list(frame.columns)
    assert list(explainer.get_feature_names_out()) == ["job"]
    kept = explainer.set_output(transform="pandas").transform(frame)
    pd.testing.assert_frame_equal(kept, frame[["job"]])
    explainer.set_output(transform="default")
    assert list(explainer.encoding_.feature_names)[1:7] == [
        "job=clerk",
        "job=nurse",
        "job=smith",
        "town=A",
        "town=B",
        "town=C",
    ]
    # A boolean is of two levels, as it is where a table is read from a file.
    assert list(explainer.encoding_.feature_names)[7:] == ["smokes=False", "smokes=True"]
    assert explainer.score(frame, y) > 0.95
    assert explainer.feature_importances_.argmax() == 1
    posterior = explainer.explain(frame[:5], draws=7)
    mask = posterior["predictions"]["mask"]
    assert mask.shape == (1, 7, 5, 4)
    assert list(mask["feature"].values) == list(frame.columns)
    assert list(mask["row"].values) == list(frame.index[:5])
    assert list(posterior["predictions"]["class"].values) == ["high", "low"]
    given_y = explainer.explain(frame[:5], y[:5], draws=3)
    assert given_y["log_likelihood"]["y"].shape == (1, 3, 5)
    # A level that no row of the fit had is known if the category has it, and else refused.
    explainer.predict(frame[:2].assign(town=pd.Categorical(["C", "C"], ["A", "B", "C"])))
    with pytest.raises(ValueError, match=r"'job' has level 'king', not seen in fit"):
        explainer.predict(frame[:1].assign(job="king"))
    refused(r"missing values in.*age", explainer.predict, frame[:2].assign(age=[30.0, None]))
    refused("names should match", explainer.predict, frame[["job", "age", "town", "smokes"]])
    refused("X must be a data frame", explainer.predict, frame.to_numpy(), error=TypeError)
    refused("timedelta", explainer.fit, frame.assign(age=pd.Timedelta(1, "D")), y)


def test_rows_of_an_estimator_are_those_of_a_program_of_its_own(people):
    """By a table's encoding, in which a fit of Python sees what the estimator's program sees."""
    frame, y = people
    explainer = ExplainerClassifier("lex", k=1, **SHORT).fit(frame, y)
    x, labels = explainer.encode(frame, y)
    assert torch.equal(labels, torch.tensor(y == "low").long())
    assert [tuple(c.shape) for c in explainer.encode(frame[:3])] == [(3, 9)]
    assert torch.equal(explainer.encode(frame[:3])[0], x[:3])
    ages, levels = frame["age"].to_numpy(float), (frame["job"] == "smith").to_numpy(float)
    centred = x[:, 0].numpy()
    np.testing.assert_allclose(np.corrcoef(centred, ages)[0, 1], 1.0, atol=1e-6)
    np.testing.assert_array_equal(x[:, 3], levels)
    means = mask_means(explain(explainer.result_, x, draws=0)).values
    np.testing.assert_allclose(means[0], explainer.importances(frame), atol=1e-5)
    program = lex(9, classes=2, k=1, grouping=explainer.result_.model.grouping, **WIDTHS)
    own = fit(program, explainer.encode(frame, y), epochs=1, progress=False)
    assert (
        explain(own, *explainer.encode(frame[:3], y[:3]), draws=2)["posterior"]["mask"].sizes[
            "feature"
        ]
        == 4
    )
    refused(r"'middle'.* not seen in fit", explainer.encode, frame[:1], ["middle"])
    refused("inconsistent numbers of samples", explainer.encode, frame[:2], y[:3])
    with pytest.raises(NotFittedError):
        ExplainerClassifier().encode(frame)


def test_responses_of_an_estimator_are_standardised_as_its_program_sees_them():
    X, y = make_regression(60, 3, random_state=0)
    explainer = ExplainerRegressor("lex", k=1, **SHORT).fit(X, 1000.0 + y)
    _, encoded = explainer.encode(X, 1000.0 + y)
    assert encoded.dtype == torch.get_default_dtype()
    np.testing.assert_allclose(explainer.encoding_.target.decode(encoded), 1000.0 + y, rtol=1e-4)
    assert abs(float(encoded.mean())) < 0.5 and 0.5 < float(encoded.std()) < 2.0


def test_groups_are_kept_as_one(blobs):
    x, y = blobs
    explainer = classifier(k=1, groups=["left", "left", "right", "left"]).fit(x, y)
    assert list(explainer.entry_names_) == ["left", "right"]
    assert explainer.importances(x).shape == (120, 2)
    best = explainer.feature_importances_.argmax()
    assert list(explainer.get_support()) == [group == best for group in (0, 0, 1, 0)]
    assert explainer.transform(x).shape == (120, 3 if best == 0 else 1)


@pytest.mark.complete
def test_units_of_the_response_come_back():
    x, y = make_regression(120, 3, n_informative=1, noise=1.0, random_state=0)
    plain = ExplainerRegressor("lex", k=1, **{**TINY, "epochs": 60}).fit(x, y)
    other = clone(plain).fit(x, 1000.0 + 50.0 * y)
    assert plain.score(x, y) > 0.8
    np.testing.assert_allclose(other.predict(x), 1000.0 + 50.0 * plain.predict(x), rtol=1e-3)
    drawn = [e.explain(x, t, draws=20) for e, t in ((plain, y), (other, 1000.0 + 50.0 * y))]
    observed = drawn[1]["observed_data"]["y"].values
    np.testing.assert_allclose(observed, 1000.0 + 50.0 * y, rtol=1e-4)
    likelihood = [float(d["log_likelihood"]["y"].mean()) for d in drawn]
    assert likelihood[0] - likelihood[1] == pytest.approx(np.log(50.0), abs=0.05)
    predicted = drawn[0]["predictions"]["y"].mean(("chain", "draw")).values
    assert np.corrcoef(predicted, plain.predict(x))[0, 1] > 0.9
    assert predicted.std() > 0.5 * y.std()


def test_a_response_far_from_zero_keeps_its_digits_in_an_explanation():
    values = np.array([0.0, 0.25, 1.0], dtype=np.float32)
    drawn = xr.Dataset({"y": ("row", values)})
    given = posterior_of({"predictions": drawn}, {})
    found = in_response_units(given, TargetColumn("y", None, 1e9, 2.0))["predictions"]["y"]
    assert (found.values - 1e9).tolist() == [0.0, 0.5, 2.0]


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("method", ["lex", "q_fit", "meed"])
def test_a_given_classifier_is_explained_and_not_y(method, blobs):
    x, truth = blobs
    names = np.array(["one", "three", "two"])
    model = LogisticRegression().fit(x, names[truth])
    shuffled = np.random.default_rng(0).permutation(names[truth])
    explainer = classifier(method, model=model, epochs=40).fit(x, shuffled)
    assert (explainer.predict(x) == model.predict(x)).mean() > 0.8
    assert (shuffled == model.predict(x)).mean() < 0.5


def test_a_given_torch_predictor_sees_rows_in_their_own_units(blobs):
    """A frozen predictor that Q-FIT masks at full importance must be the one that was given."""
    x, y = blobs
    x = 100.0 + 5.0 * x
    torch.manual_seed(0)
    network = MLP(4, 3, (8,), seed=0)
    model = Predictor(network, CategoricalLikelihood())
    fitted = classifier("q_fit", model=model, epochs=1).fit(x, y)
    inner = fitted.result_.model.predictor
    rows = fitted.encoding_.encode(pd.DataFrame(x, columns=[f"x{d}" for d in range(4)]))
    raw = torch.as_tensor(x, dtype=torch.float32)
    torch.testing.assert_close(inner(rows).probs, model(raw).probs, atol=1e-4, rtol=1e-3)
    assert (inner(rows).probs - model(rows).probs).abs().max() > 0.01
    response = Predictor(MLP(4, 1, (8,), seed=0), NormalLikelihood(3.0))
    regressor = ExplainerRegressor("q_fit", model=response, **SHORT).fit(x, x[:, 0])
    rows = regressor.encoding_.encode(pd.DataFrame(x, columns=[f"x{d}" for d in range(4)]))
    distribution = regressor.result_.model.predictor(rows)
    target = regressor.encoding_.target
    torch.testing.assert_close(
        target.decode(distribution.mean), response(raw).mean, atol=1e-2, rtol=1e-3
    )
    assert float(distribution.stddev.mean()) == pytest.approx(3.0 / target.scale, rel=1e-4)


def test_labels_of_a_given_classifier_are_labels_and_not_places():
    """It never saw 5, and its labels 1 and 2 are places too."""
    x = np.random.default_rng(0).normal(size=(90, 2))
    y = np.repeat([1, 2, 5], 30)
    model = LogisticRegression().fit(x[:60], y[:60])
    box, asked, _ = box_of_rows(model, x, np.array([1, 2, 5]))
    told = outputs_of(box, asked).numpy()
    np.testing.assert_allclose(told[:, :2], model.predict_proba(x))
    assert not told[:, 2].any()


def test_a_clone_forgets_a_model_and_says_so(blobs):
    x, y = blobs
    model = LogisticRegression().fit(x, y)
    refused("FrozenEstimator", clone(classifier(model=model)).fit, x, y, error=NotFittedError)
    frozen = classifier(model=FrozenEstimator(model), k=2)
    assert cross_val_score(frozen, x, y, cv=2).shape == (2,)


@pytest.mark.complete
def test_pipeline_and_grid_search(blobs):
    x, y = blobs
    pipeline = make_pipeline(MinMaxScaler().set_output(transform="pandas"), classifier("l2x"))
    search = GridSearchCV(
        pipeline, {"explainerclassifier__k": np.array([1, 4])}, cv=2, error_score="raise"
    ).fit(pd.DataFrame(x, columns=list("abcd")), y)
    assert search.best_score_ > 0.8
    assert list(search.best_estimator_[-1].entry_names_) == list("abcd")
    costs = GridSearchCV(
        ExplainerRegressor("real_x", **TINY), {"penalty": [0.0, 50.0]}, cv=2, error_score="raise"
    ).fit(x, 3.0 * x[:, 0] - x[:, 1])
    assert costs.best_params_ == {"penalty": 0.0}
    kept = costs.best_estimator_.feature_importances_
    assert (
        kept.mean()
        > clone(costs.estimator)
        .set_params(penalty=50.0)
        .fit(x, x[:, 0])
        .feature_importances_.mean()
    )


@pytest.mark.parametrize("method", ["real_x", "invase", "xtab", "q_fit_global"])
def test_a_file_gives_the_same_explainer_back(method, blobs):
    x, y = blobs
    fitted = ExplainerClassifier(method, replicates=2, **SHORT).fit(x, y)
    file = io.BytesIO()
    joblib.dump(fitted, file)
    file.seek(0)
    read = joblib.load(file)
    np.testing.assert_array_equal(read.predict_proba(x), fitted.predict_proba(x))
    drawn = [e.explain(x[:3], draws=5)["predictions"]["mask"].values for e in (read, fitted)]
    np.testing.assert_array_equal(*drawn)
    assert drawn[0].shape == (2, 5, 3, 4)


def test_random_state(blobs):
    x, y = blobs
    numpy_state, torch_state = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    told = [classifier(**SHORT).fit(x, y).predict_proba(x) for _ in range(2)]
    np.testing.assert_array_equal(*told)
    other = classifier(**{**SHORT, "random_state": 1}).fit(x, y).predict_proba(x)
    assert np.abs(other - told[0]).max() > 1e-3
    assert seed_of(None) != seed_of(None)
    assert seed_of(np.random.RandomState(3)) == seed_of(np.random.RandomState(3))
    assert seed_of(np.random.default_rng(3)) == seed_of(np.random.default_rng(3))
    assert np.array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), torch_state)


@over(
    ({"method": "shap"}, "method must be one of .*'lex'.*it is 'shap'"),
    ({"method": "real_x", "k": 2}, "real_x has no k: leave k=2 out"),
    ({"method": "l2x", "penalty": 0.1}, "l2x has no penalty"),
    ({"method": "lex", "k": 1, "penalty": 0.1}, "give either k=1"),
    (
        {"method": "l2x", "k": 5},
        "k must be .* from 1 to 4, the number of mask entries; it is 5",
    ),
    ({"method": "l2x", "k": 0}, "k must be a whole number of at least 1; it is 0"),
    ({"method": "l2x", "k": 1.5}, "k must be a whole number"),
    ({"method": "lex", "penalty": -0.1}, "penalty must be a finite number of at least 0"),
    ({"method": "xtab", "imputer": "marginal"}, "xtab has its own way to hide features"),
    ({"imputer": "zeros"}, "imputer must be one of"),
    ({"imputer": 0.0}, "imputer must be a name or a module"),
    ({"groups": ["a", "b"]}, "groups must give each of the 4 columns"),
    ({"hidden": 8}, "hidden must be a sequence of widths"),
    ({"epochs": 0}, "epochs must be a whole number of at least 1"),
    ({"batch_size": 2.5}, "batch_size must be a whole number"),
    ({"learning_rate": 0.0}, "learning_rate must be a finite number above 0"),
    ({"replicates": 0}, "replicates must be a whole number"),
    ({"prediction_masks": 0}, "prediction_masks must be a whole number"),
    ({"validation_fraction": 1.0}, "validation_fraction must be a share"),
    ({"random_state": "seed"}, "seed"),
    ({"model": 3}, "must be an nn.Module, a classifier with predict_proba.*it is int"),
    ({"model": LinearRegression().fit([[1.0]], [1.0])}, "responses, which have no classes"),
    ({"model": torch.nn.Linear(4, 3)}, r"model_output='logits'.*CategoricalLikelihood"),
    (
        {"model": torch.nn.Linear(4, 3), "model_output": "odds"},
        "output must be one of .'logits'.*is 'odds'",
    ),
    (
        {"model": LogisticRegression().fit([[0.0] * 4] * 2, [0, 1]), "model_output": "logits"},
        "LogisticRegression has a likelihood, or is called by predict_proba",
    ),
    ({"model": torch.nn.Linear(3, 3), "model_output": "logits"}, r"Linear fails.*\(120, 4\)"),
    ({"model": torch.nn.Linear(4, 2), "model_output": "logits"}, r"the shape is \(120, 2\)"),
    ({"model": torch.nn.Linear(4, 3), "model_output": "probabilities"}, "must give probabil"),
    (
        {"model": Predictor(MLP(4, 1, (2,)), NormalLikelihood())},
        "responses, which have no classes",
    ),
    (
        {"model": LogisticRegression().fit([[0.0] * 4] * 2, [0, 7])},
        r"must have labels among .*; it has \['0', '7'\]",
    ),
)
def test_bad_arguments_are_refused_by_name(options, message, blobs):
    with pytest.raises((ValueError, TypeError), match=message):
        ExplainerClassifier(**{**SHORT, **options}).fit(*blobs)


def test_targets_that_are_no_labels_or_numbers_are_refused(blobs):
    x, y = blobs
    with pytest.raises(ValueError, match="y has missing labels"):
        classifier().fit(x, np.where(np.arange(len(y)) == 3, None, y.astype(str)))
    for days in (pd.to_timedelta(y, "D"), pd.to_datetime(y, unit="D")):
        refused(r"y has dates or durations.*total_seconds", ExplainerRegressor(**TINY).fit, x, days)


def test_methods_of_labels_are_refused_for_responses(blobs):
    refused("meed explains labels", ExplainerRegressor("meed").fit, blobs[0], blobs[0][:, 0])


@pytest.mark.parametrize("settings", [{"penalty": 0.02}, {"k": 2}])
def test_hidden_columns_are_drawn_given_the_kept_ones_where_columns_depend(settings):
    z = torch.randn(200, 4, generator=torch.Generator().manual_seed(0)).numpy()
    alike = z[:, :1] + 0.1 * z
    for x, imputer in ((alike, CopulaImputer), (z, MarginalImputer)):
        explainer = ExplainerClassifier(**small(epochs=1, **settings)).fit(x, z[:, 0] > 0)
        assert type(explainer.result_.models[0].imputer) is imputer


def test_defaults_by_the_rows():
    few, many = plan_for(100, 4, k=2), plan_for(50_000, 4, k=2)
    assert (few.batch_size, few.epochs, few.hidden) == (34, 200, (64, 64))
    assert (many.batch_size, many.epochs, many.predictor_hidden) == (500, 20, (200, 200, 200))
    few, many = plan_for(100, 4), plan_for(10_000, 4)
    assert (few.batch_size, few.epochs, few.learning_rate) == (34, 116, 3e-3)
    assert (many.batch_size, many.epochs, many.hidden) == (256, 26, (64, 64))
    assert plan_for(3_240, 64).epochs == 200 and plan_for(3_240, 30).epochs == 46
    assert few.penalties == pytest.approx(few.usual_penalty * np.array([1 / 64, 1, 4]))
    assert plan_for(100, 4, penalty=1.0).penalties[2] == 1.0
    wide = plan_for(100, 60)
    assert wide.path[:2] == pytest.approx(wide.usual_penalty * np.array([1 / 1024, 1 / 64]))
    assert wide.path[0] == wide.penalties[0] and len(wide.path) == 9
    for rows in range(2, 200):
        for size in (None, 1, 2, 7, 64):
            assert rows % plan_for(rows, 4, batch_size=size).batch_size != 1


@pytest.mark.parametrize("method", ["l2x", "real_x", "xtab"])
@pytest.mark.parametrize("counts", [(1, 1), (2, 1), (3, 3), (30, 1)])
def test_few_rows_of_a_class_are_enough_to_fit(method, counts):
    y = np.repeat(["no", "yes"], counts)
    x = np.random.default_rng(0).normal(size=(len(y), 2))
    explainer = ExplainerClassifier(method, **SHORT).fit(x, y)
    assert explainer.predict_proba(x).shape == (len(y), 2)


def test_rare_levels_are_pooled_and_unseen_ones_go_with_them(people):
    frame, y = people
    few = frame.assign(job=np.where(np.arange(160) < 5, "king", frame["job"]))
    explainer = classifier("lex", rare=10, **{"epochs": 2, "validation_fraction": None})
    explainer.fit(few, y)
    assert "job=king" not in explainer.encoding_.feature_names
    told = [
        explainer.predict_proba(frame[:3].assign(job=level)) for level in ("king", "abbot", "smith")
    ]
    np.testing.assert_array_equal(told[0], told[1])
    assert np.abs(told[0] - told[2]).max() > 0.0
    # No boolean is rare, so that none stands for another level.
    with pytest.raises(ValueError, match="'smokes' has level 'often', not seen in fit"):
        explainer.predict(frame[:1].assign(smokes="often"))
    refused("rare must be a whole number of at least 1", classifier("lex", rare=0).fit, few, y)


# The estimators as selectors of columns.


QUICK = small(method="lex", epochs=40, batch_size=50, learning_rate=3e-2)


@pytest.fixture(scope="module")
def rows():
    x = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 4)), columns=list("abcd"))
    return x, (x["c"] > 0).astype(int)


@over(
    ([1.0, 0.0, 1.0], [1, 0, 1]),
    ([0.4, 0.4, 0.4], [1, 1, 1]),
    ([0.01, 0.5, 0.02], [0, 1, 0]),
    ([0.0, 0.0], [1, 0]),
    # Attributions have no scale.
    ([300.0, 280.0, 5.0], [1, 1, 0]),
)
def test_as_many_as_matter(sizes, kept):
    assert kept_entries(np.array(sizes)).tolist() == [bool(one) for one in kept]


@pytest.mark.complete
def test_columns_that_decide_are_kept_by_name(rows):
    x, y = rows
    explainer = ExplainerClassifier(k=1, **QUICK).set_output(transform="pandas")
    kept = explainer.fit_transform(x, y)
    pd.testing.assert_frame_equal(kept, x[["c"]])
    assert list(explainer.get_feature_names_out()) == ["c"]
    assert explainer.get_support(indices=True).tolist() == [2]
    back = explainer.inverse_transform(kept)
    assert back.shape == (200, 4) and not np.any(back[:, [0, 1, 3]])
    explainer.set_output(transform="default")
    assert isinstance(explainer.transform(x), np.ndarray)
    pipeline = make_pipeline(ExplainerClassifier(k=1, **QUICK), LogisticRegression()).fit(x, y)
    assert pipeline[-1].n_features_in_ == 1 and pipeline.score(x, y) > 0.95


def test_a_threshold_is_of_importances(rows):
    x, y = rows
    explainer = ExplainerClassifier(k=1, **QUICK).fit(x, y)
    assert explainer.set_params(threshold=0.0).transform(x).shape[1] == 4
    assert explainer.set_params(threshold=0.5).transform(x).shape[1] == 1
    with pytest.warns(UserWarning, match="No features were selected"):
        assert explainer.set_params(threshold=1.5).transform(x).shape[1] == 0
    refused("threshold must be", ExplainerClassifier(threshold=float("nan")).fit, x, y)


# Estimators on rows of which some values are missing.


HIDING = small(epochs=25, learning_rate=1e-2, hidden=(16,), prediction_masks=20, hide_missing=True)


@pytest.fixture(scope="module")
def table():
    """The label follows a; a fifth of a and of the levels are missing, whatever they are."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "a": draw.normal(size=400),
            "b": draw.normal(size=400),
            "job": draw.choice(["u", "v"], 400),
        }
    )
    y = (frame.a > 0).astype(int).to_numpy()
    frame.loc[draw.random(400) < 0.2, "a"] = None
    frame.loc[draw.random(400) < 0.2, "job"] = None
    return frame, y


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("method", METHODS_OF_MISSING)
def test_what_is_missing_is_never_kept_and_predicted_without(method, table):
    frame, y = table
    explainer = ExplainerClassifier(method, **HIDING).fit(frame, y)
    missing = frame.a.isna().to_numpy()
    kept = explainer.importances(frame)
    assert kept[missing, 0].max() == 0.0 and kept[~missing, 0].mean() > 0.5
    assert kept[frame.job.isna(), 2].max() == 0.0
    likelihood = np.log(explainer.predict_proba(frame)[np.arange(400), y])
    assert likelihood[~missing].mean() > -0.35
    # Without a nothing is known of the label: a coin's toss, not a claim.
    assert likelihood[missing].mean() == pytest.approx(-np.log(2), abs=0.1)
    # The same rows alone, and with another stand-in for what is not there.
    alone = explainer.predict_proba(frame[5:9])
    np.testing.assert_allclose(alone, explainer.predict_proba(frame)[5:9], atol=1e-9)


@pytest.mark.complete
def test_the_indicator_is_an_entry_that_may_be_kept(table):
    frame, _ = table
    # Here absence is all that tells.
    y = frame.a.isna().astype(int).to_numpy()
    without = ExplainerClassifier(**HIDING).fit(frame, y)
    beside = ExplainerClassifier(**HIDING, missing_indicator=True).fit(frame, y)
    names = list(beside.result_.entry_names)
    assert names == ["a", "a is missing", "b", "job", "job is missing"]
    assert beside.feature_importances_[1] > 0.9
    assert beside.score(frame, y) == 1.0
    assert without.score(frame, y) == pytest.approx(1 - y.mean(), abs=0.02)
    assert len(beside.get_support()) == 3


@pytest.mark.complete
def test_trees_k_and_responses(table):
    frame, y = table
    trees = ExplainerClassifier(**HIDING, predictor="trees").fit(frame, y)
    assert trees.score(frame, y) > 0.85
    fixed = ExplainerClassifier(k=2, **HIDING).fit(frame, y)
    both = frame.a.isna() & frame.job.isna()
    kept = fixed.importances(frame)
    there = frame.notna().sum(1).to_numpy()
    np.testing.assert_allclose(kept.sum(1), np.minimum(2, there), atol=1e-6)
    assert both.any() and kept[both][:, [0, 2]].max() == 0.0
    response = ExplainerRegressor(**HIDING).fit(frame, frame.b * 3.0 + 1.0)
    assert response.score(frame, frame.b * 3.0 + 1.0) > 0.8
    posterior = fixed.explain(frame[:9], y[:9], draws=4)
    masks = posterior["posterior"]["mask"].values
    assert not masks[..., frame.a[:9].isna().to_numpy(), 0].any()


def test_arrays_with_nan(table):
    frame, y = table
    array = frame[["a", "b"]].to_numpy()
    explainer = ExplainerClassifier(**HIDING).fit(array, y)
    assert get_tags(explainer).input_tags.allow_nan
    assert not get_tags(ExplainerClassifier()).input_tags.allow_nan
    assert explainer.importances(array)[np.isnan(array[:, 0]), 0].max() == 0.0
    refused("columns that had none in fit: 'x1'", explainer.predict, np.array([[0.0, np.nan]]))
    refused("contains infinity", explainer.predict, np.array([[np.inf, 0.0]]))
    refused("NaN", ExplainerClassifier(**{**HIDING, "hide_missing": False}).fit, array, y)
    for given in (frame, frame[["a", "b"]]):
        with pytest.raises(ValueError, match=r"Input X contains NaN.*or give hide_missing=True"):
            ExplainerClassifier(**{**HIDING, "hide_missing": False}).fit(given, y)
    with pytest.raises(ValueError, match="missing_indicator=True is for hide_missing=True"):
        ExplainerClassifier(missing_indicator=True).fit(array, y)


def test_a_group_is_hidden_where_all_of_it_is_missing(table):
    frame, y = table
    explainer = ExplainerClassifier(groups=["g", "h", "g"], **HIDING).fit(frame, y)
    kept = explainer.importances(frame)
    assert list(explainer.result_.entry_names) == ["g", "h"]
    every = (frame.a.isna() & frame.job.isna()).to_numpy()
    assert kept[every, 0].max() == 0.0 and kept[frame.a.isna() & ~every, 0].mean() > 0.3


def test_a_saved_explainer_reads_what_is_missing(table, tmp_path):
    frame, y = table
    explainer = ExplainerClassifier(**{**HIDING, "epochs": 2}).fit(frame, y)
    save(explainer.result_, tmp_path)
    loaded = load(tmp_path)
    x = explainer.encoding_.encode(frame)
    with torch.no_grad():
        first, second = (r.models[0].selector(x).mean for r in (explainer.result_, loaded))
    assert torch.equal(first, second)
    assert isinstance(loaded.models[0].imputer.imputer, MarginalImputer)


def test_the_marginal_pool_has_values_that_were_there_alone(table):
    frame, y = table
    explainer = ExplainerClassifier(**{**HIDING, "epochs": 1}).fit(frame, y)
    pool = explainer.result_.models[0].imputer.imputer.reference
    column = explainer.encoding_.columns[0]
    known = torch.tensor(((frame.a.dropna() - column.mean) / column.scale).to_numpy()).float()
    assert bool(torch.isin(pool[:, 0], known).all())
    assert bool((pool[:, 2:].sum(1) == 1).all())


def test_what_has_no_form_is_refused_by_name(table):
    frame, y = table
    refused = sorted(set(METHODS) - set(METHODS_OF_MISSING))
    assert len(refused) > 5
    for method in refused:
        with pytest.raises(ValueError, match=f"{method} has no form for missing values"):
            ExplainerClassifier(method, **HIDING).fit(frame, y)
    for imputer in ("conditional-gaussian", "mixture-means"):
        assert imputer not in IMPUTERS_OF_MISSING
        with pytest.raises(ValueError, match=f"{imputer}.*is fitted on whole rows"):
            ExplainerClassifier(imputer=imputer, **HIDING).fit(frame, y)
    own = ExplainerClassifier(imputer=ConstantImputer(), **{**HIDING, "epochs": 1}).fit(frame, y)
    assert isinstance(own.result_.models[0].imputer.imputer, ConstantImputer)
    with pytest.raises(TypeError, match=r"missing values are known to masks of.*MaxConcrete"):
        program = with_missing(l2x(2, classes=2, k=1, hidden=(4,)), [-1, 2, 2]).program()
        program.selector(torch.zeros(1, 3))


# Weights of rows and of classes at the estimators.


FIVE_EPOCHS = small(epochs=5, batch_size=30, learning_rate=2e-2)


@pytest.fixture(scope="module")
def weighted_rows():
    draw = np.random.default_rng(0)
    x = draw.normal(size=(60, 3))
    y = np.where(x[:, 0] + 0.3 * draw.normal(size=60) > 0.5, "yes", "no")
    return x, y, draw.integers(0, 4, 60)


@pytest.mark.parametrize("kind", [ExplainerClassifier, ExplainerRegressor])
def test_rows_of_weight_zero_are_not_there(kind, weighted_rows):
    x, y, weights = weighted_rows
    y = y if kind is ExplainerClassifier else x[:, 0]
    whole = (weights > 0).astype(float)
    weighted = kind(**FIVE_EPOCHS).fit(x, y, sample_weight=whole)
    without = kind(**FIVE_EPOCHS).fit(x[weights > 0], y[weights > 0])
    np.testing.assert_array_equal(weighted.predict(x), without.predict(x))
    np.testing.assert_array_equal(weighted.importances(x), without.importances(x))
    assert len(weighted.result_.history) == FIVE_EPOCHS["epochs"]


@pytest.mark.parametrize("kind", [ExplainerClassifier, ExplainerRegressor])
def test_whole_weights_are_repeated_rows_in_all_that_is_computed_once(kind, weighted_rows):
    """What is left are the batches: all rows in one, and the masks' draws, of k = G entries."""
    x, y, weights = weighted_rows
    y = y if kind is ExplainerClassifier else x[:, 0] ** 2
    settings = {
        **FIVE_EPOCHS,
        "k": 3,
        "folds": 1,
        "imputer": "constant",
        "validation_fraction": None,
    }
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


def test_the_base_rate_s_entropy_and_the_imputer_are_by_weight(weighted_rows):
    x, y, weights = weighted_rows
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
    penalty = ExplainerClassifier(**{**FIVE_EPOCHS, "epochs": 1, "validation_fraction": None})
    rare = np.where(y == "yes", 1.0, 500.0)
    units = [penalty.fit(x, y, w).penalty_ for w in (None, rare)]
    assert units[1] < 0.2 * units[0]


def test_rows_of_next_to_no_weight_say_nothing_in_training_or_validation(weighted_rows):
    """Weights that are not whole count by their ratios."""
    x, y, _ = weighted_rows
    faint = np.arange(60) % 2 == 0
    moved = np.where(faint[:, None], x + 3.0, x)
    weights = np.where(faint, 1e-9, 1.0)
    for of_rows, alike in ((weights, True), (None, False)):
        auto = {**FIVE_EPOCHS, "penalty": "auto"}
        fits = [ExplainerClassifier(**auto).fit(rows, y, of_rows) for rows in (x, moved)]
        courses = [fitted.penalty_path_["log_likelihood"] for fitted in fits]
        assert [len(course) for course in courses] == [8, 8]
        assert np.isfinite(courses).all() and np.allclose(*courses, rtol=1e-4) == alike
        told = [fitted.predict_proba(x[~faint]) for fitted in fits]
        assert np.allclose(*told, rtol=1e-3) == alike


def test_class_weights_are_scikit_learn_s(weighted_rows):
    x, y, weights = weighted_rows
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
    by_class = ExplainerClassifier(**FIVE_EPOCHS, class_weight="balanced").fit(x, y)
    by_row = ExplainerClassifier(**FIVE_EPOCHS).fit(x, y, compute_sample_weight("balanced", y))
    np.testing.assert_array_equal(by_class.predict_proba(x), by_row.predict_proba(x))


def test_replicates_and_trees_take_them(weighted_rows):
    x, y, weights = weighted_rows
    drawn = ExplainerClassifier(**FIVE_EPOCHS, replicates=2).fit(x, y, weights)
    assert (drawn.result_.replicates, drawn.result_.row_weights) == (2, "given")
    chosen = ExplainerClassifier(**{**FIVE_EPOCHS, "epochs": 2}, predictor="auto").fit(
        x, y, weights
    )
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
def test_bad_weights_are_refused(settings, weights, message, weighted_rows):
    x, y, _ = weighted_rows
    with pytest.raises((ValueError, TypeError), match=message):
        ExplainerClassifier(**FIVE_EPOCHS, **settings).fit(x, y, weights)


def test_weights_of_one_are_none():
    assert as_counts(np.ones(3)) is None and as_counts(None) is None
    assert as_counts(np.array([3.0, 1.0])).tolist() == [3.0, 1.0]


# Trees or a network at every door: named, and refused where they cannot be.


TWO_EPOCHS = {"epochs": 2, "random_state": 0}


@pytest.fixture(scope="module")
def earners() -> pd.DataFrame:
    frame = table_of_people(150)
    return frame.assign(wage=1000.0 + 200.0 * (frame.age > 40) + 0.1 * frame.height)


def test_the_estimators_take_trees(earners: pd.DataFrame) -> None:
    x = earners[["age", "job", "height"]]
    labels = ExplainerClassifier(predictor="trees", **TWO_EPOCHS).fit(x, earners.income)
    model = labels.result_.model
    assert isinstance(model.imputer, GapImputer)
    assert isinstance(model.predictor, CrossFitted)
    assert isinstance(model.predictor.predictors[0], TreePredictor)
    assert labels.predictor_kind_ == "trees"
    assert labels.score(x, earners.income) > 0.75
    response = ExplainerRegressor(predictor="trees", **TWO_EPOCHS).fit(x, earners.wage)
    assert response.score(x, earners.wage) > 0.3
    posterior = response.explain(x.head(4), earners.wage.head(4), draws=5)
    assert np.isfinite(group_of(posterior, "log_likelihood").to_array()).all()


def test_what_cannot_be_is_refused() -> None:
    refused("one of", plan_for, 100, 3, predictor="forest")
    refused("leave one of the two out", plan_for, 100, 3, predictor="trees", imputer="constant")
    refused("regime", plan_for, 100, 3, predictor="auto", regime=Regime.FIXED_IN_SITU)


@pytest.mark.complete
def test_the_command_line_names_it(earners: pd.DataFrame, tmp_path, capsys) -> None:
    earners.drop(columns="wage").to_csv(tmp_path / "people.csv", index=False)
    words = ["explain", str(tmp_path / "people.csv"), "--out", str(tmp_path / "r"), "--quiet"]
    words += ["--epochs", "2", "--replicates", "2", "--draws", "4", "--predictor", "trees"]
    assert main(words) == 0
    assert "predictor: boosted trees" in capsys.readouterr().out
    page = (tmp_path / "r" / "report.html").read_text(encoding="utf-8")
    assert "nothing: they are missing" in page
    again = lexppl.load(tmp_path / "r" / "explainer")
    assert isinstance(again.model.predictor.predictors[0], TreePredictor)
    described = description_of(tmp_path / "r" / "explainer")
    assert described["model"]["config"]["predictor"]["part"] == "CrossFitted"


# Predictions of a row: exact distributions of the shared random numbers, and the same row by row.
#
# Each z-test fails by chance with probability below 1e-5 (|z| > 4.5 of a normal).


Z = 4.5
DRAWS = 40_000
X, Y = make_blobs(60, n_features=3, centers=3, random_state=0)
FOUR_WIDE = {"epochs": 2, "hidden": (4,), "predictor_hidden": (4,), "prediction_masks": 8}


def under_vmap(draw, *parameters):
    def one(*row):
        with CommonRandomNumbers():
            return draw(*row)

    torch.manual_seed(0)
    return torch.func.vmap(one, randomness="same")(*parameters)


def test_bernoulli_and_categorical_have_their_law():
    p = torch.tensor([[0.1, 0.9], [0.6, 0.4]], dtype=torch.float64)
    on = under_vmap(lambda q: torch.bernoulli(q.expand(DRAWS, 2)), p)
    z = (on.mean(1) - p) / (p * (1 - p) / DRAWS).sqrt()
    assert z.abs().max() < Z
    q = torch.tensor([[0.2, 0.5, 0.3], [0.7, 0.0, 0.3]], dtype=torch.float64)
    drawn = under_vmap(lambda w: torch.multinomial(3.0 * w, DRAWS, True), q)
    share = torch.stack([(drawn == c).double().mean(1) for c in range(3)], 1)
    z = (share - q) / (q * (1 - q) / DRAWS).sqrt().clamp(min=1e-12)
    assert z.abs().max() < Z


@pytest.mark.parametrize("alpha", [0.3, 1.0, 7.0])
def test_gamma_has_its_law(alpha):
    torch.manual_seed(1)
    drawn = standard_gamma(torch.full((5000,), alpha, dtype=torch.float64)).numpy()
    assert kstest(drawn, gamma(alpha).cdf).pvalue > 1e-5
    assert kstest(drawn, gamma(1.1 * alpha).cdf).pvalue < 1e-5


def test_normal_has_its_law():
    mean, sd = torch.tensor([1.0, -2.0]), torch.tensor([0.5, 3.0])
    drawn = under_vmap(lambda m, s: torch.normal(m.expand(DRAWS), s.expand(DRAWS)), mean, sd)
    assert ((drawn.mean(1) - mean) / (sd / DRAWS**0.5)).abs().max() < Z
    assert ((drawn.std(1) - sd) / (sd / (2 * DRAWS) ** 0.5)).abs().max() < Z


@pytest.fixture(scope="module")
def small_fit():
    x = torch.randn(80, 3, generator=torch.Generator().manual_seed(0))
    model = lex(3, classes=2, k=1, hidden=(4,), predictor_hidden=(4,))
    data = (x, (x[:, 0] > 0).long())
    return fit(model, data, epochs=3, replicates=2, progress=False), x.double()


def test_prediction_is_the_mean_over_masks_and_replicates(small_fit):
    """Hoeffding's bound on the spread of what lies in [0, 1] makes the z-score a safe one."""
    result, x = small_fit
    told = torch.stack([row_predictions(result, x[:6], 2000, seed) for seed in range(12)]).mean(0)
    other = predictive(result, x[:6].float(), masks=40_000, seed=99).mean(0).double()
    spread = (0.25 / 24_000 + 0.25 / 40_000) ** 0.5
    assert (told - other).abs().max() < Z * spread
    assert (told - other.flip(0)).abs().max() > Z * spread


def test_importance_is_the_laws_mean(small_fit):
    result, x = small_fit
    exact = torch.stack([m.selector(x[:5].float()).mean for m in result.models]).mean(0)
    exact = exact.reshape(-1, 5, 3).mean(0).double()
    torch.testing.assert_close(row_importances(result, x[:5], 1, 0), exact, atol=1e-6, rtol=0.0)


@pytest.mark.complete(but=5)
@pytest.mark.parametrize("method", METHODS)
def test_a_row_alone_is_predicted_as_among_others(method):
    explainer = ExplainerClassifier(method, random_state=0, **FOUR_WIDE).fit(X, Y)
    p = explainer.predict_proba(X)
    assert p.shape == (60, 3) and np.allclose(p.sum(1), 1.0)
    np.testing.assert_allclose(explainer.predict_proba(X[7:8]), p[7:8], atol=1e-10)
    np.testing.assert_allclose(explainer.predict_proba(X[::-1]), p[::-1], atol=1e-10)
    z = explainer.importances(X)
    assert z.shape == (60, 3)
    np.testing.assert_allclose(explainer.importances(X[::-1]), z[::-1], atol=1e-10)
    np.testing.assert_allclose(explainer.feature_importances_, np.abs(z).mean(0), atol=1e-10)


def test_draws_of_their_own_would_differ(small_fit):
    result, x = small_fit
    rows = x[:6].float()
    first = predictive(result, rows, masks=8)[0, -1]
    assert (predictive(result, rows.flip(0), masks=8)[0, 0] - first).abs().max() > 1e-4


@pytest.mark.parametrize("imputer", IMPUTERS)
def test_every_imputer_can_be_named(imputer):
    explainer = ExplainerClassifier("lex", imputer=imputer, random_state=0, **FOUR_WIDE).fit(X, Y)
    p = explainer.predict_proba(X)
    np.testing.assert_allclose(explainer.predict_proba(X[3:5]), p[3:5], atol=1e-10)
