"""The estimators as selectors of columns."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from lexppl import ExplainerClassifier
from lexppl.tabular.estimator_mixins import kept_entries
from tests.refusals import over, refused
from tests.tabular.small import small

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
