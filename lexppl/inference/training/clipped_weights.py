"""An optimizer that holds every weight within a bound."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from lexppl.argument_checks import finite_float
from lexppl.inference.stages import OptimizerFactory


def clipped_adamw(bound: float, **options: Any) -> OptimizerFactory:
    """AdamW whose weights are put back to [−bound, bound] after each step.

    Args:
        bound: the largest size of a weight.
        options: of `torch.optim.AdamW`.

    Raises:
        ValueError: a bound that is not positive.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([5.0]))
        >>> optimizer = clipped_adamw(0.2, lr=0.1)([weight])
        >>> weight.grad = torch.tensor([1.0])
        >>> optimizer.step()
        >>> round(float(weight.detach()), 6)
        0.2
    """
    bound = finite_float("bound", bound, above=0.0)

    def make(parameters: Iterable[Tensor]) -> Optimizer:
        held = list(parameters)
        optimizer = torch.optim.AdamW(held, **options)

        def put_back(*_: Any) -> None:
            with torch.no_grad():
                for parameter in held:
                    parameter.clamp_(-bound, bound)

        optimizer.register_step_post_hook(put_back)
        return optimizer

    return make
