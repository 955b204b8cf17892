"""The scale of a fitted predictor's normal responses, by rows that it has not learned from."""

import torch
from torch import Tensor, nn

from lexppl.evaluation_mode import evaluating
from lexppl.models import NormalLikelihood


def settle_scale(predictor: nn.Module, x: Tensor, y: Tensor, weights: Tensor | None = None) -> None:
    """Put the learned scale of a normal response to that of the residuals of some rows; leave other
    predictors, and one without any residual, as they are.

    The network of few rows overfits, and its fit ends, long before the scale has come down from 1
    by gradient steps. What explains the predictor weighs a row by that scale: one too wide by 1.8
    says a third of what the response does.

    Args:
        predictor: of x, with a likelihood.
        x, y: rows that it has not learned from, and their responses.
        weights: how often each counts, `(N,)`.

    Example:
        >>> from lexppl.models import Predictor
        >>> predictor = Predictor(nn.Identity(), NormalLikelihood())
        >>> settle_scale(predictor, torch.zeros(2, 1), torch.tensor([0.5, -0.5]))
        >>> predictor(torch.zeros(1, 1)).stddev.item()
        0.5
    """
    likelihood = getattr(predictor, "likelihood", None)
    if not isinstance(likelihood, NormalLikelihood):
        return
    with torch.no_grad(), evaluating(predictor):
        residuals = y - predictor(x).mean
    if bool(residuals.any()):
        likelihood.settle(residuals, weights)
