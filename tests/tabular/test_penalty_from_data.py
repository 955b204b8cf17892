"""`penalty="auto"`, and constants in units of the base rate's entropy, in the plan and the fit."""

import numpy as np
import pytest

from lexppl import ExplainerClassifier, ExplainerRegressor
from lexppl.choices.settings import Regime
from lexppl.evaluation import penalty_path
from lexppl.explanation import mask_means
from lexppl.inference.training.loop import TrainingLoop
from lexppl.systems import lex
from lexppl.systems.fit_plan import NOISE_BITS, PATH, plan_for
from lexppl.tabular import table_fit
from tests.refusals import over, refused

SHORT = {"epochs": 4, "hidden": (6,), "predictor_hidden": (6,), "learning_rate": 1e-2}
SHORT["random_state"] = 0


@pytest.fixture(scope="module")
def rows():
    x = np.random.default_rng(0).normal(size=(120, 3))
    return x, (x[:, 0] > 1.0).astype(int)


def test_plan_in_units():
    plan = plan_for(4000, 5, "lex", unit=0.25)
    assert (plan.penalty, plan.weight_decay, plan.unit) == (0.02 * 0.25, 1e-3 * 0.25, 0.25)
    assert plan.path == tuple(0.02 * 0.25 * share for share in PATH)
    assert plan.penalties == (plan.path[0], plan.usual_penalty, plan.path[-1])
    typed = plan_for(1000, 5, "lex", penalty=0.02, unit=0.25)
    assert (typed.penalty, typed.weight_decay) == (0.02, 2e-3 * 0.25)
    assert plan_for(100, 5, "lex").weight_decay == 0.01
    # Of six predictors a row's loss is a sixth of each one's, where it was half.
    assert plan_for(100, 5, "lex", folds=6).weight_decay == pytest.approx(0.01 / 3.0)
    assert plan_for(100, 5, "lex", folds=1).weight_decay == 0.01
    assert plan_for(100, 5, "lex", k=2).weight_decay == 1e-3
    assert plan_for(1000, 5, "lex", penalty="auto", unit=0.25).penalty == "auto"
    assert plan_for(1000, 5, "lex", k=2, unit=0.25).penalty is None


def test_of_few_labelled_rows_the_path_is_about_a_larger_penalty():
    few, fewer = (plan_for(rows, 5, "lex", unit=0.25) for rows in (200, 50))
    assert few.usual_penalty == pytest.approx(0.25 * 0.02 * (NOISE_BITS / (0.25 * 200)) ** 0.5)
    assert fewer.usual_penalty == pytest.approx(2.0 * few.usual_penalty)
    assert few.path[PATH.index(1.0)] == pytest.approx(few.usual_penalty)
    np.testing.assert_allclose(few.path, np.multiply(few.usual_penalty, PATH))
    many = plan_for(4 * NOISE_BITS, 5, "lex", unit=0.25)
    assert many.path == plan_for(40 * NOISE_BITS, 5, "lex", unit=0.25).path
    # What a model says has no noise of labels, and a penalty of one's own is as it was given.
    said = plan_for(200, 5, "lex", unit=0.25, regime=Regime.SURROGATE_POST_HOC)
    assert said.path == many.path
    assert few.penalty == many.penalty == 0.25 * 0.02
    assert plan_for(200, 5, "lex", penalty=0.03, unit=0.25).penalty == 0.03


def test_published_systems_keep_their_numbers():
    plan = plan_for(1000, 5, "real_x", unit=0.25)
    assert (plan.penalty, plan.weight_decay, plan.unit) == (0.01, 1e-3, 1.0)


def test_lex_in_units():
    def of(**options):
        term = lex(3, classes=2, hidden=(4,), **options).build()[0].terms[0]
        weights = [penalty.weight for penalty in term.model.penalties]
        return weights, term.objective.at(0.0).spec.entropy

    assert of() == ([0.02], 0.1)
    assert of(unit=0.5) == ([0.01], 0.05)
    assert of(unit=0.5, penalty=0.02) == ([0.02], 0.05)
    assert of(unit=0.5, k=1) == ([], 0.05)
    assert of(unit=0.5, penalty=0.0) == ([0.0], 0.05)
    for options in ({"k": 1, "penalty": 0.02}, {"unit": 0.0}, {"unit": float("nan")}):
        refused(r"give either k|unit must be", of, **options)


def test_chosen_penalty(rows):
    explainer = ExplainerClassifier(penalty="auto", replicates=2, **SHORT).fit(*rows)
    path = explainer.penalty_path_
    # Of 120 rows 96 are fitted on.
    shares = path["penalty"] / PATH / 0.02
    np.testing.assert_allclose(shares, shares.iloc[0])
    assert 0.5 < shares.iloc[0] ** 2 * 96 / NOISE_BITS < 0.8
    assert explainer.penalty_ == path["penalty"][path["chosen"]].item()
    assert explainer.result_.replicates == 2
    for model in explainer.result_.models:
        assert model.selector.penalty == pytest.approx(explainer.penalty_)
    assert explainer.get_params()["penalty"] == "auto"


def test_the_path_knows_which_of_its_penalties_is_the_usual_one(rows, monkeypatch):
    told = {}

    def path_of(*given, rule, **settings):
        told.update(getattr(rule, "keywords", {}), penalties=settings["penalties"])
        return penalty_path(*given, rule=rule, **settings)

    monkeypatch.setattr(table_fit, "penalty_path", path_of)
    ExplainerClassifier(penalty="auto", **{**SHORT, "epochs": 1}).fit(*rows)
    assert told["penalties"].index(pytest.approx(told["usual"])) == PATH.index(1.0)


@pytest.mark.complete
def test_a_chosen_penalty_is_a_given_one(rows):
    chosen = ExplainerClassifier(penalty="auto", replicates=3, **SHORT).fit(*rows)
    given = ExplainerClassifier(penalty=chosen.penalty_, replicates=3, **SHORT).fit(*rows)
    np.testing.assert_allclose(chosen.importances(rows[0]), given.importances(rows[0]))


def test_an_interrupted_fit_has_a_path(rows, monkeypatch):
    steps, calls = TrainingLoop._epoch, iter(range(1, 100))

    def interrupted(*given):
        if next(calls) == 3:
            raise KeyboardInterrupt
        return steps(*given)

    monkeypatch.setattr(TrainingLoop, "_epoch", interrupted)
    explainer = ExplainerClassifier(penalty="auto", replicates=3, **SHORT).fit(*rows)
    assert explainer.result_.interrupted and len(explainer.result_.history) == 2
    assert explainer.result_.replicates == 3 and explainer.penalty_path_["chosen"].sum() == 1


def test_a_penalty_of_one_s_own_is_in_nats(rows):
    explainer = ExplainerClassifier(penalty=0.02, **SHORT).fit(*rows)
    assert explainer.penalty_ == 0.02 and explainer.penalty_path_ is None
    assert explainer.result_.model.selector.penalty == 0.02


def test_another_penalty_is_named_after_the_fit(rows):
    explainer = ExplainerClassifier(penalty=0.02, **SHORT).fit(*rows)
    for penalty in (0.015, 0.1):
        one = explainer.importances(rows[0], penalty=penalty)
        other = mask_means(explainer.explain(rows[0], draws=0, penalty=penalty)).values[0]
        np.testing.assert_allclose(one, other, rtol=1e-4)
        assert np.abs(one - explainer.importances(rows[0])).max() > 1e-5
    refused(r"nats; 9 is outside", explainer.importances, rows[0], penalty=9.0)
    with pytest.raises(ValueError, match="fitted for one alone"):
        ExplainerClassifier(k=1, **SHORT).fit(*rows).importances(rows[0], penalty=0.1)


def test_responses_have_a_unit_of_one(rows):
    explainer = ExplainerRegressor(penalty="auto", **SHORT).fit(rows[0], 100.0 * rows[0][:, 0])
    path = explainer.penalty_path_["penalty"]
    np.testing.assert_allclose(path, np.multiply(0.02 * (NOISE_BITS / 96) ** 0.5, PATH))


def test_a_given_model_is_counted_by_what_it_says(rows):
    class Sure:
        classes_ = np.array([0, 1])

        def predict_proba(self, x):
            p = np.where(np.arange(len(x)) % 2, 0.9, 0.1)
            return np.stack([1.0 - p, p], 1)

    short = {**SHORT, "epochs": 1}
    explainer = ExplainerClassifier(model=Sure(), **short).fit(*rows)
    assert explainer.penalty_ == pytest.approx(0.02, rel=1e-3)
    path = ExplainerClassifier(model=Sure(), penalty="auto", **short).fit(*rows).penalty_path_
    np.testing.assert_allclose(path["penalty"], np.multiply(0.02, PATH), rtol=1e-3)


@over(
    ({"method": "real_x", "penalty": "auto"}, "real_x chooses no penalty .*; lex does"),
    ({"method": "l2x", "penalty": "auto"}, "l2x has no penalty"),
    ({"k": 2, "penalty": "auto"}, "give either k=2"),
    ({"penalty": "least"}, "penalty must be nats for each entry kept, or 'auto'"),
    ({"penalty": "auto", "validation_fraction": None}, "chosen on validation rows"),
)
def test_refusals(options, words, rows):
    refused(words, ExplainerClassifier(**{**SHORT, **options}).fit, *rows)
