"""Explanations as tables, dictionaries, Parquet and JSON, against the posterior."""

import json

import numpy as np
import pandas as pd
import pytest

from lexppl import ExplainerClassifier, ExplainerRegressor
from lexppl.compare import shap_explanation
from lexppl.explanation import mask_means, row_dict, tidy_frame
from lexppl.explanation.reading.feature_values import with_gains
from tests.refusals import refused

pytestmark = pytest.mark.filterwarnings("ignore")
DRAW = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {"age": DRAW.normal(40, 9, 60), "job": DRAW.choice(["cook", "smith"], 60)},
    index=[f"patient {n}" for n in range(60)],
)


@pytest.fixture(scope="module")
def explainer():
    explainer = ExplainerClassifier("lex", epochs=2, replicates=2, random_state=0)
    return explainer.fit(FRAME, np.where(FRAME.age > 40, "old", "young"))


@pytest.fixture
def posterior(explainer):
    return explainer.explain(FRAME[:5])


def test_a_line_for_each_row_and_feature(posterior, tmp_path):
    means = mask_means(posterior).values
    frame = tidy_frame(posterior)
    assert frame["row"].tolist() == np.repeat(FRAME.index[:5], 2).tolist()
    assert frame["feature"].tolist() == ["age", "job"] * 5
    assert frame["value"].tolist()[1::2] == FRAME["job"].tolist()[:5]
    assert frame["value"].tolist()[0] == f"{FRAME.age.iloc[0]:.4g}"
    np.testing.assert_allclose(frame["selection_probability"], means.mean(0).ravel())
    np.testing.assert_allclose(frame["spread"], means.std(0, ddof=1).ravel())
    frame.to_parquet(tmp_path / "rows.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "rows.parquet"), frame)


def test_a_row_as_json(posterior):
    found = json.loads(json.dumps(row_dict(posterior, 3), allow_nan=False))
    assert found["row"] == "patient 3" and sum(found["probabilities"].values()) == pytest.approx(1)
    own = tidy_frame(posterior)[6:8].set_index("feature")
    kept = [one["selection_probability"] for one in found["features"]]
    assert kept == sorted(own["selection_probability"], reverse=True)
    assert {one["feature"]: one["value"] for one in found["features"]} == own["value"].to_dict()
    refused("row must be a whole number from 0 to 4", row_dict, posterior, 5)


def test_a_response_of_one_replicate():
    explainer = ExplainerRegressor("lex", epochs=2, random_state=0).fit(FRAME, FRAME.age)
    posterior = explainer.explain(FRAME[:2])
    found = row_dict(posterior, 0)
    assert isinstance(found["response"], float) and found["features"][0]["spread"] is None
    assert tidy_frame(posterior)["spread"].isna().all()


def test_gains_are_a_column_and_values_of_shap(posterior):
    refused("no gains of rows", shap_explanation, posterior, values="gains")
    gains = DRAW.normal(size=(5, 2))
    with_gains(posterior, gains, list(FRAME.index[:5]))
    np.testing.assert_array_equal(tidy_frame(posterior)["gain"], gains.ravel())
    explanation = shap_explanation(posterior, values="gains")
    np.testing.assert_array_equal(explanation.values, gains)
    assert explanation.feature_names == ["age", "job"]
    refused(r"values must be one of .'masks', 'gains'", shap_explanation, posterior, values="gain")
