"""Figures of predictions, masks and importances: of any type and layout the same, of no rows
refused by name."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lexppl.evaluation import concordance_index, selection_scores
from lexppl.evaluation.imputation import fair_crps
from lexppl.evaluation.prediction import auroc, average_precision, prediction_scores
from tests.properties.given_tensors import EXAMPLES, LAYOUTS, TYPES, laid_out, values
from tests.refusals import over, refused

REFUSED = (ValueError, TypeError)


def same(one, other):
    for name, value in vars(one).items():
        if isinstance(value, float):
            expected = pytest.approx(value, rel=1e-5, abs=1e-6, nan_ok=True)
            assert vars(other)[name] == expected, name


@EXAMPLES
@given(st.data(), st.integers(0, 7), st.integers(2, 4), TYPES, LAYOUTS)
def test_scores_of_labels(data, rows, classes, dtype, layout):
    p = torch.softmax(data.draw(values(rows, classes)), -1)
    y = data.draw(values(rows)).abs().mul(10).long() % classes
    if rows == 0:
        refused("none of them 0", prediction_scores, p, y)
        return
    scores = prediction_scores(p, y)
    assert 0 <= scores.accuracy <= 1 and scores.log_likelihood < 0
    assert 0 <= scores.auroc <= 1 or math.isnan(scores.auroc)
    same(scores, prediction_scores(laid_out(p, layout), laid_out(y, layout)))
    if dtype == torch.float32 and (p.float().diff(dim=0).abs() < 1e-5).any():
        return
    same(scores, prediction_scores(p.to(dtype), y.int()))
    order = torch.arange(rows).flip(0)
    same(scores, prediction_scores(p[order], y[order]))


@EXAMPLES
@given(st.data(), st.integers(1, 7), TYPES, LAYOUTS)
def test_scores_of_responses(data, rows, dtype, layout):
    means, y = data.draw(values(rows)), data.draw(values(rows))
    scores = prediction_scores(means, y)
    assert scores.rmse == pytest.approx(float((means - y).square().mean().sqrt()))
    same(
        scores, prediction_scores(laid_out(means, layout).to(dtype), laid_out(y, layout).to(dtype))
    )
    refused("means where y holds responses", prediction_scores, means[:, None], y)


@EXAMPLES
@given(st.data(), st.integers(1, 5), st.integers(1, 5), st.integers(1, 3), LAYOUTS)
def test_scores_of_masks(data, rows, entries, draws, layout):
    masks = (data.draw(values(draws, rows, entries)) > 0).float()
    truth = (data.draw(values(rows, entries)) > 0).float()
    truth[:, 0] = 1.0
    scores = selection_scores(masks, truth)
    same(scores, selection_scores(laid_out(masks, layout), laid_out(truth, layout).double()))
    same(scores, selection_scores(masks.bool(), truth.int()))
    each = [selection_scores(masks[:, r : r + 1], truth[r : r + 1]).tpr for r in range(rows)]
    assert scores.tpr == pytest.approx(float(np.mean(each)))
    for m, t in ((masks[:, :0], truth[:0]), (masks[..., :0], truth[..., :0]), (masks[:0], truth)):
        with pytest.raises(REFUSED):
            selection_scores(m, t)


@EXAMPLES
@given(st.data(), st.integers(2, 8), TYPES, LAYOUTS)
def test_concordance_and_crps(data, rows, dtype, layout):
    risk, times = data.draw(values(rows)), data.draw(values(rows, low=0.1))
    event = (data.draw(values(rows)) > -2).double()
    event[times.argmin()] = 1.0
    y = torch.stack([times, event], -1)
    index = concordance_index(risk, y)
    assert 0 <= index <= 1
    assert concordance_index(laid_out(risk, layout), laid_out(y, layout)) == index
    assert concordance_index(-risk, y) == pytest.approx(1 - index)
    for wrong in (y[:0], y[:, :1], y[:-1]):
        with pytest.raises(REFUSED):
            concordance_index(risk[: len(wrong)] if len(wrong) == 0 else risk, wrong)
    draws = data.draw(values(3, rows))
    score = fair_crps(draws.to(dtype), risk.to(dtype))
    other = fair_crps(laid_out(draws, layout).to(dtype), laid_out(risk, layout).to(dtype))
    torch.testing.assert_close(score, other)
    assert fair_crps(draws[:, :0], risk[:0]).shape == (0,)


@pytest.mark.parametrize("score", [auroc, average_precision])
@over(
    (torch.zeros(0, 2), torch.zeros(0).long()),
    (torch.full((3,), 0.5), torch.tensor([0, 1, 0])),
    (torch.full((3, 2), 0.5), torch.tensor([0, 1])),
    (torch.full((3, 2), torch.nan), torch.tensor([0, 1, 0])),
)
def test_areas_of_what_is_none_are_refused_or_not_known(given_p, given_y, score):
    try:
        assert math.isnan(score(given_p, given_y))
    except REFUSED as refusal:
        assert str(refusal).startswith(("probabilities", "y must have shape"))
