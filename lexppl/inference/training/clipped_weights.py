"""An optimizer that holds every weight within a bound."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from lexppl.argument_checks import finite_float, int_at_least
from lexppl.inference.stages import OptimizerFactory


def clipped_adamw(bound: float, last: int | None = None, **options: Any) -> OptimizerFactory:
    """AdamW whose weights are put back to [−bound, bound] after each step.

    Args:
        bound: the largest size of a weight.
        last: hold the last so many parameters alone; a fit gives them sorted by name, so that a
            program's selector comes after its predictor. All of them if None.
        options: of `torch.optim.AdamW`.

    Raises:
        ValueError: a bound that is not positive, fewer than one parameter to hold.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([5.0]))
        >>> optimizer = clipped_adamw(0.2, lr=0.1)([weight])
        >>> weight.grad = torch.tensor([1.0])
        >>> optimizer.step()
        >>> round(float(weight.detach()), 6)
        0.2
    """
    bound = finite_float("bound", bound, above=0.0)
    if last is not None:
        last = int_at_least("last", last)

    def make(parameters: Iterable[Tensor]) -> Optimizer:
        moved = list(parameters)
        optimizer = torch.optim.AdamW(moved, **options)
        held = moved if last is None else moved[-last:]

        def put_back(*_: Any) -> None:
            with torch.no_grad():
                for parameter in held:
                    parameter.clamp_(-bound, bound)

        optimizer.register_step_post_hook(put_back)
        return optimizer

    return make
