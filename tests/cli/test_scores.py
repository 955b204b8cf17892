"""Held-out scores of a table's folds."""

import math

import numpy as np
import pandas as pd
import pytest

from lexppl import fit
from lexppl.data.divided_table import divided_frame
from lexppl.report.results.scores import judge_explainer
from lexppl.systems import lex


def judged(frame, classes, **options):
    """A table in three folds, and the scores of a small fit."""
    source = divided_frame(frame, "y", folds=3, seed=0, **options)
    system = lex(source.data.n_features, classes=classes, hidden=(4,), predictor_hidden=(4,))
    result = fit(system, source.data, epochs=2, replicates=3, progress=False)
    return source, judge_explainer(result, source, seed=0)


def test_folds_that_differ_in_size_have_the_accuracy_of_all_rows():
    draw = np.random.default_rng(0)
    case = np.repeat(np.arange(6), [40, 20, 12, 8, 6, 4])
    frame = pd.DataFrame({"case": case, "x": draw.normal(size=90)})
    frame["y"] = np.where(draw.random(90) < np.where(case == 0, 0.9, 0.5), "a", "b")
    source, row = judged(frame, 2, group="case")
    fold = source.fold[source.test_rows]
    by_fold = [1.0 - row.losses[fold == part].mean() for part in range(3)]
    assert abs(1.0 - row.losses.mean() - np.mean(by_fold)) > 0.01
    assert row.figures["accuracy"] == pytest.approx(1.0 - row.losses.mean())
    assert row.figures["log_likelihood"] == pytest.approx(row.by_row.mean())


def test_folds_that_differ_in_their_means_have_the_share_of_variance_of_all_rows():
    draw = np.random.default_rng(0)
    level = np.repeat([-9.0, 0.0, 9.0], 30)
    frame = pd.DataFrame({"when": np.arange(90), "x": level + draw.normal(size=90)})
    frame["y"] = 2.0 * frame.x
    _, row = judged(frame, None, time="when")
    error = row.losses.mean()
    assert row.figures["r2"] == pytest.approx(1.0 - error / np.var(frame.y), rel=1e-4)
    assert row.figures["rmse"] == pytest.approx(math.sqrt(error), rel=1e-4)
