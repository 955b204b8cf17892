"""Held-out scores of a table's folds."""

import math

import numpy as np
import pandas as pd
import pytest

from lexppl import fit
from lexppl.cli.results.scores import PREDICTED_MASKS, folds_at, judge_explainer
from lexppl.data.divided_table import divided_frame
from lexppl.evaluation.prediction import predictive
from lexppl.systems import lex


def judged(frame, classes, **options):
    """Scores of a small fit, and its prediction and the target of each held-out row."""
    source = divided_frame(frame, "y", folds=3, seed=0, **options)
    system = lex(source.data.n_features, classes=classes, hidden=(4,), predictor_hidden=(4,))
    result = fit(system, source.data, epochs=2, replicates=3, progress=False)
    folds, x = folds_at(source, source.test_rows), source.test.x
    found = folds.values(predictive, result, x, masks=PREDICTED_MASKS, seed=0).mean(0)
    return source, judge_explainer(result, source, seed=0).figures, found, source.test.y


def test_folds_that_differ_in_size_have_the_accuracy_of_all_rows():
    draw = np.random.default_rng(0)
    case = np.repeat(np.arange(6), [40, 20, 12, 8, 6, 4])
    frame = pd.DataFrame(
        {"case": case, "x": draw.normal(size=90), "y": draw.choice(["a", "b"], 90)}
    )
    source, figures, found, y = judged(frame, 2, group="case")
    assert len(set(np.bincount(source.fold))) > 1
    assert figures["accuracy"] == pytest.approx(float((found.argmax(-1) == y).double().mean()))


def test_folds_that_differ_in_their_means_have_the_share_of_variance_of_all_rows():
    draw = np.random.default_rng(0)
    level = np.repeat([-9.0, 0.0, 9.0], 30)
    frame = pd.DataFrame({"when": np.arange(90), "x": level + draw.normal(size=90)})
    source, figures, found, y = judged(frame.assign(y=2.0 * frame.x), None, time="when")
    error, variance = ((found - y).double().square().mean(), y.double().var(correction=0))
    assert figures["r2"] == pytest.approx(1.0 - float(error / variance), rel=1e-2)
    assert figures["rmse"] == pytest.approx(math.sqrt(error) * source.target_scale, rel=1e-2)
