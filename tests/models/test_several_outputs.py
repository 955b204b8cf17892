"""Models of several targets are refused by that, and those of one in any shape are not."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier, RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import (
    ClassifierChain,
    MultiOutputClassifier,
    MultiOutputRegressor,
    RegressorChain,
)
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from lexppl import ExplainerClassifier
from lexppl.models import black_box
from lexppl.tabular.given_model import box_of_table
from tests.refusals import refused

pytestmark = pytest.mark.filterwarnings("ignore")

X = np.random.default_rng(0).normal(size=(80, 2))
LABEL = (X[:, 0] > 0).astype(int)
# Probabilities of two labels of which each excludes the other sum to 1, as those of one target.
LABELS = np.stack([LABEL, 1 - LABEL], 1)
FRAME = pd.DataFrame(X, columns=["a", "b"])
REASON = "(has several outputs; |shape .* gave .*; )one output is explained"


def boosted(library, **options):
    made = pytest.importorskip(library)
    if library == "xgboost":
        return made.XGBClassifier(n_estimators=3, n_jobs=1, **options)
    quiet = {"iterations": 3, "verbose": 0, "allow_writing_files": False, "thread_count": 1}
    return made.CatBoostClassifier(**quiet, **options)


CLASSIFIERS = {
    "forest": lambda: RandomForestClassifier(3, random_state=0),
    "trees": lambda: ExtraTreesClassifier(3, random_state=0),
    "neighbours": KNeighborsClassifier,
    "one each": lambda: MultiOutputClassifier(LogisticRegression()),
    "chain": lambda: ClassifierChain(LogisticRegression()),
    "one against the rest": lambda: OneVsRestClassifier(LogisticRegression()),
    "network": lambda: MLPClassifier((4,), max_iter=20, random_state=0),
    "pipeline": lambda: make_pipeline(StandardScaler(), OneVsRestClassifier(LogisticRegression())),
    "search": lambda: GridSearchCV(RandomForestClassifier(3), {"max_depth": [2]}, cv=2),
    "xgboost": lambda: boosted("xgboost"),
    "catboost": lambda: boosted("catboost", loss_function="MultiLogloss"),
}


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_classifiers_of_several_targets(kind):
    model = CLASSIFIERS[kind]().fit(X, LABELS)
    for given in (model, FrozenEstimator(model)) if kind != "catboost" else (model,):
        with pytest.raises(ValueError, match=REASON):
            black_box(given, classes=["0", "1"]).targets(torch.from_numpy(X))
        with pytest.raises(ValueError, match=REASON):
            box, x = box_of_table(given, FRAME, classes=["0", "1"])
            box.targets(x)
    with pytest.raises(ValueError, match=REASON):
        ExplainerClassifier("lex", model=model, epochs=1, random_state=0).fit(FRAME, LABEL)


@pytest.mark.parametrize("kind", [k for k in CLASSIFIERS if k != "catboost"])
def test_the_same_classifiers_of_one_target(kind):
    if kind in ("one each", "chain"):
        pytest.skip("it has several targets by its name")
    model = CLASSIFIERS[kind]().fit(X, LABEL)
    found = black_box(model, classes=2).targets(torch.from_numpy(X))
    np.testing.assert_allclose(found, model.predict_proba(X), atol=1e-6)


REGRESSORS = {
    "forest": lambda: RandomForestRegressor(3, random_state=0),
    "linear": LinearRegression,
    "one each": lambda: MultiOutputRegressor(LinearRegression()),
    "chain": lambda: RegressorChain(LinearRegression()),
    "keras": lambda: SimpleNamespace(fit=lambda x, y: Keras(2)),
    "function": lambda: SimpleNamespace(fit=lambda x, y: lambda rows: rows[:, :2]),
    "module": lambda: SimpleNamespace(fit=lambda x, y: nn.Linear(2, 2).double()),
}


class Keras:
    """A model that returns `(N, outputs)` for one response too."""

    def __init__(self, outputs):
        self.outputs = outputs

    def predict(self, rows):
        return np.asarray(rows)[:, : self.outputs]


@pytest.mark.parametrize("kind", REGRESSORS)
def test_regressors_of_several_targets(kind):
    model = REGRESSORS[kind]().fit(X, X)
    refused(REASON, lambda: black_box(model, task="regression").targets(torch.from_numpy(X)))
    with pytest.raises(ValueError, match=REASON):
        output = "response" if kind == "module" else None
        box, x = box_of_table(model, FRAME, classes=None, output=output)
        box.targets(x)


@pytest.mark.parametrize("objective", ["binary:logistic", "reg:squarederror"])
def test_xgboosts_boosters_of_several_targets(objective):
    xgboost = pytest.importorskip("xgboost")
    booster = xgboost.train({"objective": objective}, xgboost.DMatrix(X, LABELS), 2)
    refused(REASON, black_box, booster)


def test_one_output_in_a_column_is_accepted():
    for model in (Keras(1), lambda rows: rows[:, :1]):
        found = black_box(model, task="regression").targets(torch.from_numpy(X))
        np.testing.assert_allclose(found, X[:, 0])


def test_a_row_shows_the_number_of_targets_once():
    asked = []
    model = SimpleNamespace(
        classes_=[0, 1],
        predict=lambda rows: asked.append(len(rows)) or LABEL[: len(rows)],
        predict_proba=lambda rows: LABELS[: len(rows)].astype(float),
    )
    black_box(model, batch_size=20).targets(torch.from_numpy(X))
    assert asked == [1]
