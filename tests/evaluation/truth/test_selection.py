"""Selection figures against hand-worked examples and scikit-learn's metrics."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics

from lexppl.data import synthetic
from lexppl.evaluation.truth import SelectionScores, selection_scores

TRUTH = torch.tensor([[1, 1, 0, 0, 0], [0, 0, 1, 1, 1]])
DRAWS = torch.tensor(
    [
        [[1, 1, 0, 0, 0], [0, 0, 1, 0, 0]],
        [[1, 0, 1, 1, 0], [1, 1, 0, 0, 0]],
        [[0, 0, 0, 0, 0], [1, 1, 1, 1, 1]],
    ]
)


def test_by_hand() -> None:
    scores = selection_scores(DRAWS, TRUTH, control=2)
    assert scores.tpr == pytest.approx((1 + 1 / 3 + 1 / 2 + 0 + 0 + 1) / 6)
    assert scores.fpr == pytest.approx((0 + 0 + 2 / 3 + 1 + 0 + 1) / 6)
    assert scores.fdr == pytest.approx((0 + 0 + 2 / 3 + 1 + 1 + 2 / 5) / 6)
    assert scores.precision == pytest.approx(1 - scores.fdr)
    assert scores.control_flow == pytest.approx(3 / 6)
    assert scores.mean_size == pytest.approx((2 + 1 + 3 + 2 + 0 + 5) / 6)
    assert scores.empty == pytest.approx(1 / 6)
    generous = selection_scores(DRAWS, TRUTH, empty_fdr=0.0)
    assert generous.fdr == pytest.approx((0 + 0 + 2 / 3 + 1 + 0 + 2 / 5) / 6)
    assert selection_scores(torch.tensor([[1, 0]]), torch.tensor([[1, 1]])).fpr == 0


@pytest.mark.smoke
@pytest.mark.parametrize("seed", range(2))
def test_against_scikit_learn(seed: int) -> None:
    generator = np.random.default_rng(seed)
    draws, rows, entries = 7, 13, 6
    masks = generator.random((draws, rows, entries)) < generator.random()
    truth = generator.random((rows, entries)) < 0.5
    truth[:, 0] = True
    truth[:, 1] = False
    scores = selection_scores(torch.from_numpy(masks), torch.from_numpy(truth))
    pairs = [(truth[n], masks[d, n]) for d, n in itertools.product(range(draws), range(rows))]
    recall = [metrics.recall_score(t, z) for t, z in pairs]
    precision = [metrics.precision_score(t, z, zero_division=0) for t, z in pairs]
    false_positive = [1 - metrics.recall_score(~t, ~z) for t, z in pairs]
    assert scores.tpr == pytest.approx(np.mean(recall), abs=1e-12)
    assert scores.precision == pytest.approx(np.mean(precision), abs=1e-12)
    assert scores.fpr == pytest.approx(np.mean(false_positive), abs=1e-12)
    pooled = metrics.matthews_corrcoef(np.tile(truth, (draws, 1, 1)).ravel(), masks.ravel())
    assert scores.mcc == pytest.approx(pooled, abs=1e-12)


def test_a_mean_over_rows_is_not_a_pooled_ratio() -> None:
    scores = selection_scores(DRAWS, TRUTH)
    precision = metrics.precision_score(TRUTH.expand(3, 2, 5).ravel(), DRAWS.ravel())
    assert abs(scores.precision - precision) > 0.01


PERFECT = SelectionScores(1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 5.0, 0.0)


def test_limits() -> None:
    truth = synthetic("S3", rows=500).truth
    assert selection_scores(truth, truth, control=10) == PERFECT
    everything = selection_scores(torch.ones_like(truth), truth, control=10)
    assert (everything.tpr, everything.fpr, everything.mcc) == (1, 1, 0)
    assert everything.fdr == pytest.approx(6 / 11)
    nothing = selection_scores(torch.zeros_like(truth), truth, control=10)
    assert (nothing.tpr, nothing.fpr, nothing.fdr, nothing.mcc) == (0, 0, 1, 0)
    assert (nothing.control_flow, nothing.mean_size, nothing.empty) == (0, 0, 1)
    assert selection_scores(1 - truth, truth).mcc == pytest.approx(-1)


def test_one_draw_and_every_type() -> None:
    one = selection_scores(DRAWS[1], TRUTH)
    assert one == selection_scores(DRAWS[1:2].bool(), TRUTH.double())
    assert one == selection_scores(DRAWS[1:2].half(), TRUTH.bool())
    assert one.control_flow is None


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"masks": DRAWS[..., :4]}, r"masks must have shape \(…, 2, 5\).*\(3, 2, 4\)"),
        ({"masks": DRAWS[:0]}, r"shape is \(0, 2, 5\)"),
        ({"masks": DRAWS * float("nan")}, "masks must hold 0 and 1 only"),
        ({"truth": TRUTH[0]}, r"truth must have shape \(N, G\)"),
        ({"truth": TRUTH * 2}, "truth must hold 0 and 1 only"),
        ({"truth": TRUTH * torch.tensor([[1], [0]])}, "relevant entry; 1 of 2 rows have none"),
        ({"control": 5}, "control must be .* from 0 to 4, the mask entries; it is 5"),
        ({"empty_fdr": 2.0}, r"empty_fdr must be a share in \[0, 1\]; it is 2"),
    ],
)
def test_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        selection_scores(**{"masks": DRAWS, "truth": TRUTH} | changed)
