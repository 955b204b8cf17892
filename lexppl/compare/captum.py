"""Captum: importances by its gradients, and its baselines drawn from an imputer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, get_args

import torch
from torch import Tensor, nn

from lexppl.argument_checks import int_at_least
from lexppl.compare.common import check_tables, grouped_importances, library
from lexppl.evaluation import FittedPredictor
from lexppl.evaluation_mode import evaluating
from lexppl.inference.contexts import seeded
from lexppl.models import Grouping
from lexppl.models.black_box import Output
from lexppl.models.imputers.imputer import Imputer
from lexppl.models.likelihoods import Likelihood, distribution_targets


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


def unconditional_baselines(
    imputer: Imputer, x: Tensor, *, draws: int = 50, seed: int = 0
) -> Tensor:
    """Baselines with nothing kept, for methods of Captum that take a distribution of them, such as
    `GradientShap` and `DeepLiftShap`.

        b ~ p_ι(x̃ | nothing kept)

    **Not conditional**: as nothing is kept, no imputer has anything to condition on, and a
    baseline knows nothing of the row that it is set against; such attributions are expected
    gradients against the imputer's distribution of whole rows, and they move features jointly along
    the line from b to x whatever their dependence. For baselines that do know the row, see
    :func:`conditional_baselines`; for Shapley values of conditional expectations,
    :class:`lexppl.compare.ImputerMasker`.

    Args:
        imputer: any imputer.
        x: rows to be explained, `(B, *event)`; only their shape, type and device matter.
        draws: n; `GradientShap` picks from them at random.
        seed: of the draws. Global random state is left alone.

    Returns:
        `(n, *event)`.

    Raises:
        TypeError, ValueError: no imputer, rows that it does not take, counts below 1.

    Example:
        >>> from captum.attr import GradientShap
        >>> from lexppl.models.imputers.simple import GaussianImputer
        >>> network = torch.nn.Sequential(torch.nn.Linear(3, 1))
        >>> x = torch.ones(2, 3)
        >>> baselines = unconditional_baselines(GaussianImputer(), x, draws=100)
        >>> GradientShap(network).attribute(x, baselines).shape
        torch.Size([2, 3])
    """
    _check(imputer, x, draws, seed)
    nothing = torch.zeros_like(x[:1], dtype=torch.bool)
    with torch.no_grad(), seeded(seed, x.device):
        distribution = imputer(x[:1], nothing)
        drawn: Tensor = distribution.expand(torch.Size([draws, 1])).sample()
    return drawn[:, 0]


def conditional_baselines(
    imputer: Imputer,
    x: Tensor,
    *,
    draws: int = 1,
    grouping: Grouping | None = None,
    seed: int = 0,
) -> Tensor:
    r"""Baselines that know the rest of the row, for methods of Captum that replace one feature (or
    one group) at a time, such as `FeatureAblation`:

        b_d ~ p_ι(x̃_d | x_{¬d}),    with groups: b_g ~ p_ι(x̃_g | x_{¬g}) .

    **Conditional** as far as the imputer is, and only for one replacement at a time: each entry is
    drawn with all others kept. A method that replaces several entries at once
    (`ShapleyValueSampling`, `KernelShap`), or a path between x and b, would put draws together
    that do not know of each other; take :class:`lexppl.compare.ImputerMasker` there.

    Args:
        imputer: any imputer of tables.
        x: rows to be explained, `(B, D)`.
        draws: L; average the attributions over them.
        grouping: which columns are replaced together; give `FeatureAblation` its index as
            `feature_mask=grouping.index[None]`.
        seed: of the draws. Global random state is left alone.

    Returns:
        `(L, B, D)`, one set of baselines for each draw.

    Raises:
        TypeError, ValueError: as :func:`unconditional_baselines`; a grouping of other features.

    Example:
        >>> from captum.attr import FeatureAblation
        >>> from lexppl.models.imputers.conditional_gaussian import ConditionalGaussianImputer
        >>> imputer = ConditionalGaussianImputer(torch.zeros(2), torch.eye(2))
        >>> network, x = torch.nn.Sequential(torch.nn.Linear(2, 1)), torch.ones(4, 2)
        >>> method = FeatureAblation(network)
        >>> each = [method.attribute(x, b) for b in conditional_baselines(imputer, x, draws=20)]
        >>> torch.stack(each).mean(0).shape
        torch.Size([4, 2])
    """
    _check(imputer, x, draws, seed)
    if x.dim() != 2:
        raise ValueError(f"x must be a table (B, D); it has shape {tuple(x.shape)}")
    if grouping is None:
        grouping = Grouping.identity(x.shape[1])
    if grouping.features != x.shape[1]:
        raise ValueError(f"grouping is of {grouping.features} features; x has {x.shape[1]}")
    index = grouping.index.to(x.device)
    others = ~torch.eye(grouping.entries, dtype=torch.bool, device=x.device)[:, index]
    columns = torch.arange(x.shape[1], device=x.device)
    with torch.no_grad(), seeded(seed, x.device):
        distribution = imputer(x, others[:, None, :])
        drawn: Tensor = distribution.expand(torch.Size([draws, grouping.entries, len(x)])).sample()
    return drawn[:, index, :, columns].movedim(0, -1)


def _check(imputer: Imputer, x: Tensor, draws: int, seed: int) -> None:
    if not isinstance(imputer, Imputer):
        raise TypeError(f"imputer must be an Imputer; it is {type(imputer).__name__}")
    if not isinstance(x, Tensor) or not x.is_floating_point():
        given = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"x must be a floating-point tensor; it is {given}")
    if x.dim() < 2 or len(x) == 0:
        raise ValueError(f"x must have shape (B, *event), B >= 1; it has {tuple(x.shape)}")
    draws = int_at_least("draws", draws)
    seed = int_at_least("seed", seed, 0)
