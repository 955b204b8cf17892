"""Labels that depend on a log-normal column and on one with a few huge values are predicted."""

import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from lexppl import ExplainerClassifier, ExplainerRegressor
from lexppl.cli import main
from tests.tabular.small import small

pytestmark = pytest.mark.filterwarnings("ignore:column .* has a heavy tail")


def planted(rows, seed):
    """`log p / (1 − p) = 2 z₁ + 2 z₂`, with `income = exp(2 z₁)`, and `fortune = 50 + 10 z₂` but
    for two rows."""
    draw = np.random.default_rng(seed)
    z = draw.normal(size=(rows, 4))
    income, idle = np.exp(2.0 * z[:, 0]), np.exp(2.0 * z[:, 2])
    frame = pd.DataFrame({"income": income, "fortune": 50.0 + 10.0 * z[:, 1], "idle": idle})
    frame["age"] = z[:, 3]
    y = draw.random(rows) < 1.0 / (1.0 + np.exp(-2.0 * (z[:, 0] + z[:, 1])))
    frame.loc[draw.choice(rows, 2, replace=False), "fortune"] = 1e12
    return frame, np.where(y, "yes", "no")


def test_an_estimator_reads_ordinary_values_beside_huge_ones():
    frame, y = planted(300, 0)
    explainer = ExplainerClassifier(**REGRESSION).fit(frame, y)
    new, labels = planted(2000, 1)
    kept = dict(zip(explainer.entry_names_, explainer.feature_importances_, strict=True))
    p = explainer.predict_proba(new)[np.arange(2000), (labels == "yes").astype(int)]
    assert min(kept["income"], kept["fortune"]) > 0.1 + max(kept["idle"], kept["age"])
    # The law itself has −.38 nats a row, and that of the income alone −.56.
    assert np.log(p).mean() > -0.5


@pytest.mark.complete
def test_the_command_finds_them(tmp_path, capsys):
    frame, y = planted(300, 0)
    frame.assign(y=y).to_csv(tmp_path / "table.csv", index=False)
    command = ["explain", tmp_path / "table.csv", "--target", "y", "--out", tmp_path / "r"]
    assert main(list(map(str, command))) == 0
    assert "column 'fortune' has a heavy tail" in capsys.readouterr().err
    groups = pd.read_csv(tmp_path / "r" / "groups.csv", index_col=0)
    assert set(groups.index[groups["found"]]) == {"income", "fortune"}
    command = ["explain", tmp_path / "table.csv", "--with", tmp_path / "r", "--out", tmp_path / "n"]
    assert main(list(map(str, command))) == 0
    of_rows = pd.read_csv(tmp_path / "n" / "rows.csv").pivot(
        index="row", columns="feature", values="value"
    )
    for name, values in frame.items():
        np.testing.assert_allclose(of_rows[name].astype(float), values, rtol=2e-3, atol=1e-4)


def test_a_black_box_of_encoded_rows_may_not_know_the_asinh(tmp_path, capsys):
    frame, y = planted(300, 0)
    frame.assign(y=y).to_csv(tmp_path / "table.csv", index=False)
    joblib.dump(LogisticRegression().fit(frame.rank().to_numpy(), y), tmp_path / "model.joblib")
    command = ["explain", tmp_path / "table.csv", "--out", tmp_path / "r"]
    command += ["--black-box", tmp_path / "model.joblib", "--trust-black-box"]
    assert main(list(map(str, [*command, "--black-box-input", "encoded"]))) == 1
    assert (
        "not for columns with a heavy tail, 'income', 'fortune', 'idle': "
        in capsys.readouterr().err
    )


def worth(rows, seed):
    """A positive response over many powers of ten, `log v = 20 + 2.2 z₁ + (1 if tech) + .25 e`."""
    draw = np.random.default_rng(seed)
    z = draw.normal(size=rows)
    sector = draw.choice(["energy", "tech"], rows)
    log_median = 20.0 + 2.2 * z + (sector == "tech")
    frame = pd.DataFrame({"revenue": np.exp(18.0 + 2.2 * z), "sector": sector})
    frame["founded"] = draw.integers(1900, 2020, rows)
    return frame, np.exp(log_median + 0.25 * draw.normal(size=rows)), log_median


REGRESSION = small(
    epochs=60, batch_size=50, learning_rate=1e-2, hidden=(16,), predictor_hidden=(32,)
)


def test_a_heavy_response_is_predicted_by_its_logarithm_in_its_own_units():
    frame, y, _ = worth(400, 0)
    with pytest.warns(UserWarning, match="response 'y' has a heavy tail.*by its logarithm"):
        explainer = ExplainerRegressor(**REGRESSION).fit(frame, y)
    new, observed, log_median = worth(300, 1)
    kept = dict(zip(explainer.entry_names_, explainer.feature_importances_, strict=True))
    assert min(kept["revenue"], kept["sector"]) > 0.9 and kept["founded"] < 0.5
    predicted = explainer.predict(new)
    assert np.corrcoef(np.log(predicted), log_median)[0, 1] ** 2 > 0.97
    posterior = explainer.explain(new, observed, draws=50)
    np.testing.assert_allclose(posterior["observed_data"]["y"], observed, rtol=1e-4)
    # The density of y is that of log y over y; the law's mean is −log .25 − 1.42 − E log y.
    density = posterior["log_likelihood"]["y"].values.mean((0, 1)) + np.log(observed)
    assert -np.log(0.25) - 1.42 - 0.35 < density.mean() < -np.log(0.25) - 1.42 + 0.1
    steps = explainer.explain_row(new, 3)
    assert steps.predicted == pytest.approx(np.log(predicted[3]), abs=0.1)
    assert steps.hidden + steps.table["step"].sum() == pytest.approx(steps.predicted)


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("share", [0.01, 0.05])
def test_a_response_with_outliers_of_either_sign_has_the_centre_of_the_others(share):
    draw = np.random.default_rng(2)
    x = draw.normal(size=(600, 3))
    law = 2.0 * x[:, 0] + x[:, 1]
    y = law + 0.5 * draw.normal(size=600)
    far = draw.random(600) < share
    y[far] = 1e6 * draw.normal(size=far.sum())
    with pytest.warns(UserWarning, match="its likelihood is Student's t of 4 degrees of freedom"):
        explainer = ExplainerRegressor(**REGRESSION).fit(x, y)
    found = explainer.predict(x)
    assert np.median(np.abs(found - law)) < 0.3
    ordinary = y.copy()
    ordinary[far] = law[far]
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*its likelihood is.*|.*heavy.*")
        ExplainerRegressor(**REGRESSION | {"epochs": 1}).fit(x, ordinary)


@pytest.mark.complete(but=1)
@pytest.mark.parametrize(("shift", "spread"), [(1e9, 1.0), (-1e7, 1e-2), (3.0, 1e6)])
def test_answers_of_a_model_far_from_the_responses_are_explained(shift, spread):
    """They are standardised by themselves: y says nothing of their mean and scale."""
    draw = np.random.default_rng(3)
    x = draw.normal(size=(300, 3))
    y = x[:, 2]

    class Model:
        def predict(self, rows):
            return shift + spread * (2.0 * rows[:, 0] + rows[:, 1])

    explainer = ExplainerRegressor(**REGRESSION, model=Model()).fit(x, y)
    kept = explainer.feature_importances_
    assert min(kept[:2]) > 0.9 and kept[2] < 0.5
    error = (explainer.predict(x) - Model().predict(x)) / spread
    assert np.sqrt(np.mean(error**2)) < 0.5
