"""Fitted explainers on rows of any number, type and layout: the same, or refused by name."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lexppl import ExplainerClassifier, ExplainerRegressor, explain, fit
from lexppl.evaluation import predictive, predictive_log_likelihood
from lexppl.explanation import mask_means, selection_table
from lexppl.systems import lex
from tests.properties.given_tensors import EXAMPLES, LAYOUTS, close, laid_out

X = torch.randn(80, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
REFUSED = (ValueError, TypeError)


def fitted(dtype=torch.float32):
    system = lex(3, classes=2, k=1, hidden=(4,), predictor_hidden=(4,), folds=1).to(dtype)
    return fit(system, (X.to(dtype), Y), epochs=2, progress=False)


@pytest.fixture(scope="module")
def result():
    return fitted()


@EXAMPLES
@given(st.integers(1, 7), LAYOUTS)
def test_layouts_give_the_same_explanation(result, rows, layout):
    x, y = X[:rows], Y[:rows]
    other_x, other_y = laid_out(x, layout), laid_out(y, layout)
    found, other = explain(result, x, draws=3), explain(result, other_x, draws=3)
    assert found["predictions"]["mask"].equals(other["predictions"]["mask"])
    np.testing.assert_allclose(mask_means(found), mask_means(other), rtol=1e-4)
    again = explain(result, np.asarray(other_x), draws=3)
    assert found["predictions"]["mask"].equals(again["predictions"]["mask"])
    close(predictive(result, other_x), predictive(result, x), torch.float32)
    likelihood = predictive_log_likelihood(result, x, y)
    close(predictive_log_likelihood(result, other_x, other_y), likelihood, torch.float32)
    assert len(selection_table(found)) == 3


def test_a_row_is_explained_alike_alone(result):
    together = mask_means(explain(result, X[:5], draws=0)).values
    alone = [mask_means(explain(result, X[r : r + 1], draws=0)).values for r in range(5)]
    np.testing.assert_allclose(np.concatenate(alone, 1), together, rtol=1e-5)


def test_both_types_agree():
    single, double = fitted(), fitted(torch.float64)
    double.model.load_state_dict(single.model.state_dict())
    means = [
        mask_means(explain(r, X[:9].to(t), draws=0)).values
        for r, t in ((single, torch.float32), (double, torch.float64))
    ]
    np.testing.assert_allclose(means[0], means[1], rtol=1e-4)


WRONG = {
    "no rows": X[:0],
    "no columns": X[:, :0],
    "a column too few": X[:, :2],
    "one row without its dimension": X[0],
    "another type": X.double(),
    "not a number": torch.full((2, 3), torch.nan),
    "words": np.array([["a", "b", "c"]]),
    "objects": np.array([[None, 1, 2]], dtype=object),
    "complex": X[:2].to(torch.complex64),
    "nothing": None,
    "a list of rows of several lengths": [[1.0, 2.0], [1.0]],
    "a word": "rows",
    "a number": 3.0,
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize(
    "call",
    [
        lambda result, x: explain(result, x, draws=2),
        predictive,
        lambda result, x: predictive_log_likelihood(result, x, Y[:2]),
    ],
    ids=["explain", "predictive", "log-likelihood"],
)
def test_wrong_rows_are_refused_in_a_line(result, call, wrong):
    with pytest.raises(REFUSED) as refusal:
        call(result, WRONG[wrong])
    assert "\n" not in str(refusal.value) and len(str(refusal.value)) > 10
    assert refusal.traceback[-1].path.parts.count("lexppl") >= 1, refusal.traceback[-1]


@pytest.fixture(scope="module", params=["labels", "response"])
def estimator(request):
    frame = pd.DataFrame(X.numpy(), columns=["a", "b", "c"])
    options = {"method": "lex", "k": 1, "epochs": 2, "hidden": (4,), "predictor_hidden": (4,)}
    if request.param == "labels":
        return ExplainerClassifier(**options).fit(frame, Y.numpy()), frame
    return ExplainerRegressor(**options).fit(frame, X[:, 0].numpy()), frame


FRAMES = {
    "float32": lambda frame: frame.astype("float32"),
    "nullable": lambda frame: frame.astype("Float64"),
    "arrow": lambda frame: frame.astype("double[pyarrow]"),
    "objects": lambda frame: frame.astype(object),
    "another index": lambda frame: frame.set_index(frame.index[::-1] * 7),
    "a view": lambda frame: pd.concat([frame, frame], axis=1).iloc[:, :3],
    "Fortran order": lambda frame: pd.DataFrame(
        np.asfortranarray(frame.to_numpy()), columns=frame.columns
    ),
    "columns in another order": lambda frame: frame[["c", "a", "b"]],
    "a column more": lambda frame: frame.assign(d=1.0),
}


@pytest.mark.parametrize("odd", FRAMES)
def test_estimators_predict_alike_of_frames_of_any_kind(estimator, odd):
    fitted, frame = estimator
    expected = fitted.predict(frame.iloc[:9])
    try:
        found = fitted.predict(FRAMES[odd](frame.iloc[:9]))
    except REFUSED as refusal:
        assert odd in ("columns in another order", "a column more"), refusal
        assert "\n" not in str(refusal).strip() or "feature names" in str(refusal)
        return
    np.testing.assert_allclose(found, expected, rtol=1e-5)


WRONG_FRAMES = {
    "no rows": lambda frame: frame.iloc[:0],
    "a column less": lambda frame: frame[["a", "b"]],
    "words": lambda frame: frame.assign(a="word"),
    "infinite": lambda frame: frame.assign(a=np.inf),
    "one row": lambda frame: frame.to_numpy()[0],
    "nothing": lambda frame: None,
    "three dimensions": lambda frame: frame.to_numpy()[None],
}


@pytest.mark.parametrize("wrong", WRONG_FRAMES)
def test_estimators_refuse_wrong_frames(estimator, wrong):
    fitted, frame = estimator
    with pytest.raises(REFUSED):
        fitted.predict(WRONG_FRAMES[wrong](frame))
