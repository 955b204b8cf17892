"""Captum: attribution by a torch predictor's gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lexppl.argument_checks import int_at_least
from lexppl.compare.extra import library
from lexppl.compare.importances.checks import check_tables
from lexppl.compare.importances.differentiable_output import DifferentiableOutput
from lexppl.compare.importances.grouped import grouped_importances
from lexppl.models import Grouping
from lexppl.models.black_box import Output

ROWS_AT_ONCE = 500
"""Rows whose gradients are held at once; integrated gradients holds as many for each step."""


def saliency_importances(
    model: Any, x: Tensor, *, output: Output | None = None, grouping: Grouping | None = None
) -> Tensor:
    """Absolute gradients, `|∂f(x)/∂x_d|`, by `captum.attr.Saliency`.

    What is explained, f, is the probability of the row's likeliest class, or the response. Nothing
    is drawn, and the model's mode and its parameters' gradients are left as they are.

    Args:
        model: a torch predictor: a `Predictor`, a full predictor, or an `nn.Module` with `output`.
        x: rows, `(B, D)`.
        output: what another module returns: "logits", "probabilities" or "response".
        grouping: which columns make a mask entry; their absolute attributions are summed.

    Returns:
        `(B, G)`.

    Raises:
        ImportError: without the `compare` extra.
        TypeError: a model that is no `nn.Module`.
        ValueError: rows that do not fit, a module without `output`.

    Source:
        Simonyan, Vedaldi, Zisserman 2014; the library `captum`, which computes it.

    Example:
        >>> network = torch.nn.Linear(3, 1, bias=False)
        >>> _ = network.weight.data.copy_(torch.tensor([[1.0, 0.0, -2.0]]))
        >>> saliency_importances(network, torch.ones(1, 3), output="response")
        tensor([[1., 0., 2.]])
    """
    attribution = _attribution("Saliency", model, x, output, grouping)
    return attribution(lambda method, rows, target: method.attribute(rows, target=target))


def gradient_x_input_importances(
    model: Any, x: Tensor, *, output: Output | None = None, grouping: Grouping | None = None
) -> Tensor:
    """Absolute gradient × input, `|x_d ∂f(x)/∂x_d|`, by `captum.attr.InputXGradient`.

    Args:
        model, x, output, grouping: as :func:`saliency_importances`.

    Returns:
        `(B, G)`.

    Raises:
        ImportError, TypeError, ValueError: as :func:`saliency_importances`.

    Source:
        Shrikumar et al. 2016; the library `captum`, which computes it.

    Example:
        >>> network = torch.nn.Linear(3, 1, bias=False)
        >>> _ = network.weight.data.copy_(torch.tensor([[1.0, 0.0, -2.0]]))
        >>> gradient_x_input_importances(network, 3 * torch.ones(1, 3), output="response")
        tensor([[3., 0., 6.]])
    """
    attribution = _attribution("InputXGradient", model, x, output, grouping)
    return attribution(lambda method, rows, target: method.attribute(rows, target=target))


def integrated_gradients_importances(
    model: Any,
    x: Tensor,
    baseline: Tensor | None = None,
    *,
    output: Output | None = None,
    grouping: Grouping | None = None,
    steps: int = 50,
) -> Tensor:
    """Absolute integrated gradients, by `captum.attr.IntegratedGradients`:

        |x_d − b_d| · |∫_0^1 ∂f(b + t (x − b))/∂x_d dt|

    by Gauss–Legendre quadrature, with the baseline b.

    Args:
        model, x, output, grouping: as :func:`saliency_importances`.
        baseline: b, `(D,)`, such as the mean of the training rows; 0 if None, which is that mean
            where the features are standardised.
        steps: points of the quadrature.

    Returns:
        `(B, G)`.

    Raises:
        ImportError, TypeError, ValueError: as :func:`saliency_importances`; a baseline of another
            shape.

    Source:
        Sundararajan, Taly, Yan 2017; the library `captum`, which computes it.

    Example:
        >>> network = torch.nn.Linear(3, 1, bias=False)
        >>> _ = network.weight.data.copy_(torch.tensor([[1.0, 0.0, -2.0]]))
        >>> integrated_gradients_importances(network, torch.ones(1, 3), torch.tensor([0.0, 0, 2]),
        ...     output="response").round(decimals=4)
        tensor([[1., 0., 2.]])
    """
    steps = int_at_least("steps", steps)
    attribution = _attribution("IntegratedGradients", model, x, output, grouping)
    if baseline is None:
        baseline = torch.zeros_like(x[0])
    if not isinstance(baseline, Tensor) or baseline.shape != x.shape[1:]:
        given = tuple(baseline.shape) if isinstance(baseline, Tensor) else type(baseline).__name__
        raise ValueError(f"baseline must be one row of {x.shape[1]} features; it is {given}")
    start = baseline.to(x)

    def integrated(method: Any, rows: Tensor, target: Tensor | None) -> Tensor:
        baselines = start.expand_as(rows)
        found: Tensor = method.attribute(rows, baselines, target=target, n_steps=steps)
        return found

    return attribution(integrated)


Attribute = Callable[[Any, Tensor, Tensor | None], Tensor]


def _attribution(
    name: str, model: Any, x: Tensor, output: Output | None, grouping: Grouping | None
) -> Callable[[Attribute], Tensor]:
    """Check everything, and return what runs a method of Captum on chunks of the rows."""
    check_tables(grouping, x=x)
    output_module = DifferentiableOutput(model, output)
    method = getattr(library("captum.attr"), name)(output_module)

    def run(attribute: Attribute) -> Tensor:
        parts = []
        with output_module.evaluating():
            for chunk in x.detach().split(ROWS_AT_ONCE):
                with torch.no_grad():
                    values = output_module(chunk)
                target = values.argmax(1) if values.dim() == 2 else None
                rows = chunk.clone().requires_grad_()
                parts.append(attribute(method, rows, target).detach().to(x))
        return grouped_importances(torch.cat(parts), grouping)

    return run
