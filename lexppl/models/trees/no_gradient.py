"""Predictors without a gradient, refused where one is asked for."""

import torch
from pyro.infer.util import is_validation_enabled
from torch import Tensor


def refuse_gradient(x: Tensor, what: str) -> None:
    """Refuse rows that carry a gradient, where Pyro validates, as in the first step of a fit.

    Args:
        x: imputed rows.
        what: has no gradient in x.

    Raises:
        ValueError: with what to use instead.
    """
    if torch.is_grad_enabled() and x.requires_grad and is_validation_enabled():
        raise ValueError(
            f"{what} no gradient in x, and the objective's estimator differentiates the predictor "
            "in the masks or in what is imputed: use one of the score, such as LeaveOneOut() or "
            "DisARM(), with hard masks and an imputer that is not learned; or a network as "
            "predictor"
        )
