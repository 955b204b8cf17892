"""Labels that depend on a log-normal column and on one with a few huge values are predicted."""

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from lexppl import ExplainerClassifier
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
    explainer = ExplainerClassifier(
        **small(epochs=80, batch_size=50, learning_rate=1e-2, hidden=(16,), predictor_hidden=(32,))
    ).fit(frame, y)
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
