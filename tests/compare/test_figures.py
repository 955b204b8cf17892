"""Intervals of figures, against what other rows and other replicates really change."""

import math

import numpy as np
import pytest
import torch

from lexppl.compare.figures import Figure, _predicted, area_influence, wilson, with_intervals
from lexppl.evaluation.prediction import auroc

ROWS = 300


def labelled(classes, rows=ROWS, seed=0):
    generator = torch.Generator().manual_seed(seed)
    score = torch.randn(rows, classes, generator=generator).double()
    y = torch.randint(classes, (rows,), generator=generator)
    score[torch.arange(rows), y] += 1.2
    return score.softmax(1), y


@pytest.mark.parametrize("classes", [2, 3])
def test_the_areas_influence_is_what_leaving_a_row_out_changes(classes):
    probabilities, y = labelled(classes)
    influence, rarest = area_influence(probabilities.numpy(), y.numpy())
    whole = auroc(probabilities, y)
    assert influence.mean() == pytest.approx(0.0, abs=1e-12)
    for row in range(0, ROWS, 37):
        kept = torch.arange(ROWS) != row
        left_out = auroc(probabilities[kept], y[kept])
        assert (ROWS - 1) * (whole - left_out) == pytest.approx(influence[row], abs=0.02)
    counts = torch.bincount(y).tolist()
    assert rarest == min(*counts, *(ROWS - count for count in counts))


@pytest.mark.parametrize("name", ["r2", "rmse"])
def test_the_error_of_a_response_is_that_of_new_rows(name):
    generator = torch.Generator().manual_seed(0)
    found = []
    for _ in range(400):
        y = torch.randn(80, generator=generator).double()
        told = y + 0.6 * torch.randn(80, generator=generator).double()
        found.append(_predicted(told, y)[name])
    values, errors = [f.value for f in found], [f.error for f in found]
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.15)
    covers = [low < np.mean(values) < high for low, high in (f.interval for f in found)]
    assert 0.9 < np.mean(covers) < 0.98


def test_a_share_s_interval_is_wilson_s():
    right = np.repeat([1.0, 0.0], [30, 10])
    error = right.std(ddof=0) / math.sqrt(40)
    low, high = Figure(0.75, error, 40).interval
    assert (low, high) == pytest.approx(wilson(0.75, 40))
    # Nothing is certain of 36 rows that are all right; a figure that cannot vary is.
    assert Figure(1.0, 0.0, 36).interval == pytest.approx((0.9036, 1.0), abs=1e-4)
    assert Figure(0.5, 0.0, 36).interval == (0.5, 0.5)
    assert all(math.isnan(bound) for bound in Figure(1.0, math.nan, 1).interval)


def test_the_replicates_part_is_the_jackknife_s():
    """Of a figure that is linear in the importances it is s/√R of the replicates' own."""
    importances = torch.rand(5, 20, 3, generator=torch.Generator().manual_seed(0)).double()

    def linear(ranking):
        return {"mean": Figure(float(ranking[:, 0].mean()), 0.0, 20, shares=False)}

    each = importances[:, :, 0].mean(1)
    found = with_intervals(linear, importances, weighted=False)
    half = 2.7764 * float(each.std()) / math.sqrt(5)
    assert found["mean"] == pytest.approx(float(each.mean()))
    assert found["mean_lower"] == pytest.approx(found["mean"] - half, abs=1e-4)
    assert found["mean_upper"] == pytest.approx(found["mean"] + half, abs=1e-4)
    wider = with_intervals(linear, importances, weighted=True)
    assert wider["mean_upper"] - wider["mean"] == pytest.approx(math.sqrt(6) * half, rel=1e-3)

    def of_rows(ranking):
        return {"mean": Figure(float(ranking[:, 0].mean()), 0.1, 20, shares=False)}

    both = with_intervals(of_rows, importances, weighted=False)
    assert both["mean_upper"] - both["mean"] == pytest.approx(
        math.hypot(half, 2.0930 * 0.1), rel=1e-3
    )
    alone = with_intervals(of_rows, importances[:1], weighted=False)
    assert alone["mean_upper"] - alone["mean"] == pytest.approx(0.2093, rel=1e-3)
