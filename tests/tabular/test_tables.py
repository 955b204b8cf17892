"""The estimators on tables: names, levels, units, given models, and scikit-learn's own tools."""

import io

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
from sklearn.base import clone
from sklearn.datasets import make_blobs, make_regression
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from lexppl import ExplainerClassifier, ExplainerRegressor, explain, fit
from lexppl.arviz_compatibility import posterior_of
from lexppl.data.encoding import TargetColumn
from lexppl.explanation import mask_means
from lexppl.models import (
    MLP,
    CategoricalLikelihood,
    CopulaImputer,
    MarginalImputer,
    NormalLikelihood,
    Predictor,
)
from lexppl.systems import lex
from lexppl.systems.fit_plan import plan_for
from lexppl.tabular.estimator_mixins import seed_of
from lexppl.tabular.estimators import in_response_units
from lexppl.tabular.given_model import box_of_rows, outputs_of
from tests.refusals import over, refused
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


@pytest.mark.complete
def test_a_given_regressor_is_explained():
    x, y = make_regression(120, 3, random_state=0)
    model = LinearRegression().fit(x, -y)
    explainer = ExplainerRegressor("lex", k=3, model=model, **{**TINY, "epochs": 60}).fit(x, y)
    assert explainer.score(x, -y) > 0.8


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
