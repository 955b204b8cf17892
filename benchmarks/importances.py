"""What any method says of each entry's importance, row by row."""

import torch

from lexppl import explain
from lexppl.evaluation.evalx import hard_draws, with_hidden
from lexppl.evaluation.prediction import prediction_scores
from lexppl.explanation.reading.masks import mask_means
from lexppl.inference.contexts import seeded
from lexppl.models import black_box


def importances(result, x, replicate=0):
    """`(N, G)`: selection probabilities, for L2X the logits, for Q-FIT the mean shares, for
    attributions their sizes."""
    model, guide = result.models[replicate], result.guides[replicate]
    with seeded(0), torch.no_grad():
        if hasattr(model, "selector"):
            law = model.selector(x)
            return getattr(law, "logits", law.mean)
        if guide is not None:
            return guide.distribution.mean.expand(len(x), -1)
    drawn = explain(result, x, draws=1, rows_per_chunk=1000)
    return torch.from_numpy(mask_means(drawn).values[replicate]).abs()


def top(ranking, sizes):
    """The highest entries of each row, as masks `(N, G)`; one size, or one a row `(N,)`."""
    order = ranking.argsort(dim=1, descending=True, stable=True).argsort(1)
    return (order < torch.as_tensor(sizes).reshape(-1, 1)).float()


def accuracy_of(predictor, data, masks, grouping):
    """The share of rows whose label a predictor finds from what masks keep, the rest 0."""
    draws = hard_draws(data.x, masks, masks.shape[-1])
    (kept,) = with_hidden(data.x, draws, None, grouping)
    return prediction_scores(black_box(predictor).targets(kept), data.y).accuracy
