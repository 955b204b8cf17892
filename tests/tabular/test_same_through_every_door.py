"""A method is the same at the command line, as an estimator and in plain Python.

At the third door every number of the fit's plan is written down here, so that one that changes at
the two others is noticed too; a method's own settings are those of its factory everywhere.
"""

from dataclasses import replace

import arviz
import numpy as np
import pytest
import torch

from lexppl import ExplainerClassifier, ExplainerRegressor, explain, fit
from lexppl.cli import main
from lexppl.data import TableEncoding
from lexppl.data.columns import CategoricalColumn, NumericColumn
from lexppl.data.encoding import TargetColumn
from lexppl.data.stratification import stratified_parts
from lexppl.evaluation import fit_predictor
from lexppl.explanation import mask_means
from lexppl.explanation.reading.masks import masks_of
from lexppl.inference import Linear, System, TrainingOptions, entropy_unit
from lexppl.inference.contexts import seeded
from lexppl.inference.objective.objective import WarmUp
from lexppl.models import ConstantImputer, Grouping, MarginalImputer, regime_targets
from lexppl.report.results.scores import Judgement
from lexppl.systems import METHODS, system_for
from lexppl.tabular.predictors import settle_scale
from tests.cli.tables import people as table_of_people

SEED, EPOCHS, DRAWS = 3, 3, 5
ROUNDING = {"atol": 1e-6, "rtol": 0.0}
"""A mean by pandas and one by scikit-learn may differ in the last bit."""
PENALTY = 0.013
NUMBERS, JOBS = ["age", "height"], ("clerk", "cook", "smith")


@pytest.fixture(scope="module")
def people():
    frame = table_of_people(60)
    return frame.assign(wage=1000.0 + 20.0 * frame.age + frame["<b>shoe</b>"])


def of_command_line(method, frame, target, folder, monkeypatch, *words):
    """E[z | x] of the rows that it holds out, and their numbers; the report is not what is asked
    about."""
    monkeypatch.setattr("lexppl.report.page.write_report", lambda *_: None)
    nothing = Judgement(()), None
    monkeypatch.setattr("lexppl.report.report.Report.judged", lambda *_: nothing)
    monkeypatch.setattr("lexppl.cli.explain_command.print_report", lambda *_: None)
    frame[[*NUMBERS, "job", target]].to_csv(folder / "people.csv", index=False)
    told = ["explain", str(folder / "people.csv"), "--method", method, "--out", str(folder / "r")]
    told += ["--epochs", str(EPOCHS), "--replicates", "1", "--seed", str(SEED), "--quiet"]
    assert main([*told, "--draws", str(DRAWS), *words]) == 0
    posterior = arviz.from_netcdf(folder / "r" / "posterior.nc")
    return read(posterior), masks_of(posterior)["row"].values


def read(posterior):
    return mask_means(posterior).values


def of_estimator(method, frame, target, test, **options):
    kind = ExplainerClassifier if target == "income" else ExplainerRegressor
    rest = frame.drop(index=test)
    explainer = kind(
        method, epochs=EPOCHS, random_state=SEED, validation_fraction=0.2 / 0.8, **options
    )
    explainer.fit(rest[[*NUMBERS, "job"]], rest[target])
    return read(explainer.explain(frame.loc[test, [*NUMBERS, "job"]], draws=DRAWS))


def of_python(method, frame, target, test, rate=None, penalty=None):
    """Every number that the other doors choose by themselves is written down."""
    labels = target == "income"
    rest = frame.drop(index=test)
    strata = (rest[target] == "low").to_numpy(dtype=np.int64) if labels else np.zeros(48, int)
    train, valid = stratified_parts(strata, (0.75, 0.25), SEED)
    learned = rest.iloc[train]
    encoding = TableEncoding(
        (
            *(NumericColumn(n, learned[n].mean(), learned[n].std(ddof=0)) for n in NUMBERS),
            CategoricalColumn("job", JOBS),
        ),
        TargetColumn(target, ("high", "low"))
        if labels
        else TargetColumn(target, None, learned[target].mean(), learned[target].std(ddof=0)),
    )
    x = encoding.encode(rest[[*NUMBERS, "job"]])
    y = encoding.target.encode(rest[target])
    known = METHODS[method]
    schedule = Linear(rate or 1e-3, 0.05 * (rate or 1e-3), begin=0.5)
    training = {"epochs": EPOCHS, "batch_size": 12, "seed": SEED}
    full = None
    if known.explains_model:
        full = fit_predictor(
            (x[train], y[train]), valid=(x[valid], y[valid]), hidden=(64, 64), weight_decay=1e-4,
            training=TrainingOptions(), progress=False, learning_rate=schedule, **training,
        ).predictor  # fmt: skip
        settle_scale(full, x[valid], y[valid])
        y = regime_targets("self post-hoc", x, predictor=full)
    unit = entropy_unit(y[train], 2 if labels else None) if method == "lex" else 1.0
    # All penalties from a 16th of the usual one, which few rows make larger, to 4 times.
    usual = 0.02 * unit * (730 / (36 * unit)) ** 0.5
    given = 0.02 * unit if penalty is None else penalty
    settings = dict(
        features=5,
        classes=2 if labels else None,
        penalty=(min(usual / 64, given), usual, usual * 4) if method == "lex" else penalty,
        unit=unit,
        k=1 if known.needs("k") else None,
        black_box=full,
        imputer=MarginalImputer(x[train]) if method == "lex" else ConstantImputer(0.0),
        grouping=Grouping([0, 1, 2, 2, 2], [*NUMBERS, "job"]),
        hidden=(64, 64),
        predictor_hidden=(64, 64),
    )
    with seeded(SEED):
        system = system_for(method, settings)
    if rate is not None:
        build = system.build
        system = System(
            lambda: [replace(stage, optimizer=None, learning_rate=None) for stage in build()]
        )
    held_out = (x[valid], y[valid])
    if method == "lex":
        rate = rate or 3e-3
        schedule, held_out = WarmUp(Linear(rate, 0.01 * rate, begin=0.7), 0.03), None
    result = fit(
        system, (x[train], y[train]), valid=held_out,
        weight_decay=(0.01 if method == "lex" else 1e-3) * unit,
        progress=False, learning_rate=None if rate is None else schedule, **training,
    )  # fmt: skip
    if method == "lex":
        result = result.at(given)
    return read(explain(result, encoding.encode(frame.loc[test]), draws=DRAWS, seed=SEED))


def at_every_door(method, frame, target, folder, monkeypatch, rate=None):
    frame = frame[[*NUMBERS, "job", target]]
    words = [] if rate is None else ["--learning-rate", str(rate)]
    # The command line chooses it from the data where it can and is not told.
    penalty = PENALTY if method == "lex" else None
    words += [] if penalty is None else ["--penalty", str(penalty)]
    told, test = of_command_line(method, frame, target, folder, monkeypatch, *words)
    options = {} if rate is None else {"learning_rate": rate}
    if penalty is not None:
        options["penalty"] = penalty
    return (
        told,
        of_estimator(method, frame, target, test, **options),
        of_python(method, frame, target, test, rate, penalty),
    )


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("method", METHODS)
def test_labels(method, people, tmp_path, monkeypatch):
    typed, estimated, written = at_every_door(method, people, "income", tmp_path, monkeypatch)
    assert typed.shape == (1, 12, 3) and np.isfinite(typed).all()
    np.testing.assert_array_equal(typed, estimated)
    np.testing.assert_allclose(typed, written, **ROUNDING)


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("method", ["lex", "real_x", "q_fit"])
def test_responses(method, people, tmp_path, monkeypatch):
    typed, estimated, written = at_every_door(method, people, "wage", tmp_path, monkeypatch)
    np.testing.assert_array_equal(typed, estimated)
    np.testing.assert_allclose(typed, written, **ROUNDING)


def test_a_rate_that_is_asked_for_is_that_of_every_door(people, tmp_path, monkeypatch):
    """XTab has an optimizer of its own, which the command line used to take all the same."""
    assert any(
        stage.optimizer for stage in system_for("xtab", {"features": 5, "classes": 2}).build()
    )
    doors = at_every_door("xtab", people, "income", tmp_path, monkeypatch, rate=0.01)
    np.testing.assert_array_equal(doors[0], doors[1])
    np.testing.assert_allclose(doors[0], doors[2], **ROUNDING)


def test_the_default_penalty_is_from_the_data_where_rows_are_set_apart(people):
    """Else it is in units of the entropy of the labels that are fitted on, here 1 of 10."""
    frame = people.assign(income=np.where(np.arange(60) % 10 == 0, "high", "low"))
    told = of_estimator("lex", frame, "income", np.arange(12))
    auto = of_estimator("lex", frame, "income", np.arange(12), penalty="auto")
    np.testing.assert_array_equal(told, auto)
    alone = ExplainerClassifier(epochs=1, random_state=0, validation_fraction=None)
    alone.fit(frame[NUMBERS], frame["income"])
    unit = entropy_unit(torch.from_numpy((frame["income"] == "low").to_numpy(np.int64)), 2)
    assert alone.penalty_ == pytest.approx(0.02 * unit) and alone.penalty_path_ is None


@pytest.mark.complete
def test_a_penalty_from_the_data_is_that_of_both_doors(people, tmp_path, monkeypatch):
    told, test = of_command_line("lex", people, "income", tmp_path, monkeypatch)
    estimated = of_estimator("lex", people, "income", test)
    np.testing.assert_array_equal(told, estimated)
