"""What a torch predictor says, with the gradient that attribution by gradients needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, get_args

import torch
from torch import Tensor, nn

from lexppl.evaluation import FittedPredictor
from lexppl.evaluation_mode import evaluating
from lexppl.models.black_box import Output, distribution_targets
from lexppl.models.likelihoods import Likelihood


class DifferentiableOutput:
    """Probabilities `(B, C)` or responses `(B,)` of a torch predictor, as a function of its rows.

    Args:
        model: a `Predictor`, a full predictor, or any other `nn.Module` with `output`.
        output: what another module returns: "logits", "probabilities" or "response".

    Raises:
        TypeError: a model that is no `nn.Module` has no gradient to follow.
        ValueError: a module without `output`, or a predictor with it.

    Example:
        >>> network = nn.Linear(2, 1)
        >>> DifferentiableOutput(network, "logits")(torch.zeros(4, 2)).shape
        torch.Size([4, 2])
    """

    def __init__(self, model: Any, output: Output | None = None) -> None:
        module = model.predictor if isinstance(model, FittedPredictor) else model
        if not isinstance(module, nn.Module):
            raise TypeError(
                "attribution by gradients needs a torch predictor, an nn.Module such as "
                f"lexppl.models.Predictor; it is {type(model).__name__}. Models that can only be "
                "asked have shap_importances, lime_importances and permutation_importances"
            )
        self.module = module
        self._has_distribution = isinstance(getattr(module, "likelihood", None), Likelihood)
        if output is not None and output not in get_args(Output):
            raise ValueError(f"output must be one of {get_args(Output)}; it is {output!r}")
        if self._has_distribution == (output is not None):
            name = type(module).__name__
            raise ValueError(
                f"{name} has a likelihood, which says what it returns; leave output={output!r} out"
                if self._has_distribution
                else f"say what {name} returns: output='logits', 'probabilities' or 'response'"
            )
        self._output = output

    def __call__(self, rows: Tensor) -> Tensor:
        outputs = self.module(rows)
        if self._has_distribution:
            return distribution_targets(outputs)
        if outputs.dim() == 2 and outputs.shape[1] == 1:
            outputs = outputs.squeeze(1)
        if self._output == "response" or (self._output == "probabilities" and outputs.dim() == 2):
            return outputs
        if self._output == "logits" and outputs.dim() == 2:
            return outputs.softmax(1)
        of_one = outputs if self._output == "probabilities" else outputs.sigmoid()
        return torch.stack([1.0 - of_one, of_one], 1)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Evaluation mode and gradients inside; each part's own mode is put back."""
        with evaluating(self.module), torch.enable_grad():
            yield
