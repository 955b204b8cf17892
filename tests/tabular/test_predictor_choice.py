"""Trees or a network at every door: named, and refused where they cannot be."""

import numpy as np
import pandas as pd
import pytest

import lexppl
from lexppl import ExplainerClassifier, ExplainerRegressor
from lexppl.arviz_compatibility import group_of
from lexppl.choices.settings import Regime
from lexppl.cli import main
from lexppl.inference.training.cross_fitting import CrossFitted
from lexppl.models import GapImputer
from lexppl.models.trees.tree_predictor import TreePredictor
from lexppl.systems.fit_plan import plan_for
from tests.refusals import refused
from tests.saving.changed import description_of

QUICK = {"epochs": 2, "random_state": 0}


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": draw.normal(40.0, 12.0, 150),
            "job": draw.choice(["clerk", "cook", "smith"], 150),
            "noise": draw.normal(size=150),
        }
    )
    frame["income"] = np.where((frame.age > 40) | (frame.job == "smith"), "high", "low")
    frame["wage"] = 1000.0 + 200.0 * (frame.age > 40) + draw.normal(0.0, 20.0, 150)
    return frame


def test_the_estimators_take_trees(people: pd.DataFrame) -> None:
    x = people[["age", "job", "noise"]]
    labels = ExplainerClassifier(predictor="trees", **QUICK).fit(x, people.income)
    model = labels.result_.model
    assert isinstance(model.imputer, GapImputer)
    assert isinstance(model.predictor, CrossFitted)
    assert isinstance(model.predictor.predictors[0], TreePredictor)
    assert labels.predictor_kind_ == "trees"
    assert labels.score(x, people.income) > 0.75
    response = ExplainerRegressor(predictor="trees", **QUICK).fit(x, people.wage)
    assert response.score(x, people.wage) > 0.3
    posterior = response.explain(x.head(4), people.wage.head(4), draws=5)
    assert np.isfinite(group_of(posterior, "log_likelihood").to_array()).all()


def test_what_cannot_be_is_refused() -> None:
    refused("one of", plan_for, 100, 3, predictor="forest")
    refused("leave one of the two out", plan_for, 100, 3, predictor="trees", imputer="constant")
    refused("regime", plan_for, 100, 3, predictor="auto", regime=Regime.FIXED_IN_SITU)


@pytest.mark.complete
def test_the_command_line_names_it(people: pd.DataFrame, tmp_path, capsys) -> None:
    people.drop(columns="wage").to_csv(tmp_path / "people.csv", index=False)
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
