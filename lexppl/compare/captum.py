"""Captum: importances by gradients, and baselines drawn from an imputer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
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

METHODS: Mapping[str, str] = MappingProxyType(
    {
        "saliency": "Saliency",
        "gradient_x_input": "InputXGradient",
        "integrated_gradients": "IntegratedGradients",
    }
)
"""Names, and Captum's."""
ROWS_AT_ONCE = 500
"""Rows whose gradients are held at once; integrated gradients holds as many for each step."""


def gradient_importances(
    method: str,
    model: Any,
    x: Tensor,
    *,
    output: Output | None = None,
    grouping: Grouping | None = None,
    baseline: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """Absolute attributions `(B, G)` by gradients of f, the probability of the row's likeliest
    class or the response, by Captum:

        saliency              |∂f(x)/∂x_d|
        gradient_x_input      |x_d ∂f(x)/∂x_d|
        integrated_gradients  |x_d − b_d| · |∫_0^1 ∂f(b + t (x − b))/∂x_d dt|,  `baseline` b or 0.

    Source: Simonyan, Vedaldi, Zisserman 2014; Shrikumar et al. 2016; Sundararajan, Taly, Yan 2017.
    """
    check_tables(grouping, x=x)
    module = model.predictor if isinstance(model, FittedPredictor) else model
    outputs = _differentiable(module, output)
    if baseline is not None and baseline.shape != x.shape[1:]:
        raise ValueError(
            f"baseline must be one row of {x.shape[1]} features; it is {tuple(baseline.shape)}"
        )
    attribution = getattr(library("captum.attr"), METHODS[method])(outputs)
    parts = []
    with evaluating(module), torch.enable_grad():
        for chunk in x.detach().split(ROWS_AT_ONCE):
            with torch.no_grad():
                values = outputs(chunk)
            of_chunk = {"target": values.argmax(1) if values.dim() == 2 else None, **options}
            if baseline is not None:
                of_chunk["baselines"] = baseline.to(x).expand_as(chunk)
            rows = chunk.clone().requires_grad_()
            parts.append(attribution.attribute(rows, **of_chunk).detach().to(x))
    return grouped_importances(torch.cat(parts), grouping)


def _differentiable(module: Any, output: Output | None) -> Callable[[Tensor], Tensor]:
    """Probabilities `(B, C)` or responses `(B,)` of a torch predictor, as a function of its rows;
    refuses what has no gradient, or does not say what it returns."""
    name = type(module).__name__
    if not isinstance(module, nn.Module):
        raise TypeError(
            "attribution by gradients needs a torch predictor, an nn.Module such as "
            f"lexppl.models.Predictor; it is {name}. Other models have shap, lime and permutation"
        )
    has_likelihood = isinstance(getattr(module, "likelihood", None), Likelihood)
    if output not in (None, *get_args(Output)) or has_likelihood == (output is not None):
        raise ValueError(
            f"output must be one of {get_args(Output)}, what {name} returns, and left out of a "
            f"predictor with a likelihood; it is {output!r}"
        )

    def outputs(rows: Tensor) -> Tensor:
        found = module(rows)
        if has_likelihood:
            return distribution_targets(found)
        if found.dim() == 2 and found.shape[1] > 1:
            return found.softmax(1) if output == "logits" else found
        found = found.reshape(len(found))
        if output == "response":
            return found
        of_one = found.sigmoid() if output == "logits" else found
        return torch.stack([1.0 - of_one, of_one], 1)

    return outputs


def unconditional_baselines(
    imputer: Imputer, x: Tensor, *, draws: int = 50, seed: int = 0
) -> Tensor:
    """Baselines b ~ p_ι(x̃ | nothing kept), `(n, *event)`, for methods of Captum that take a
    distribution of them, such as `GradientShap` and `DeepLiftShap`.

    **Not conditional**: a baseline knows nothing of the row that it is set against, whatever the
    imputer. For baselines that do, see :func:`conditional_baselines`; for Shapley values of
    conditional expectations, :class:`lexppl.compare.ImputerMasker`.

    Args:
        imputer: any imputer.
        x: rows to be explained, `(B, *event)`; only their shape, type and device matter.
        draws: n.

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
    """Baselines that know the rest of the row, `(L, B, D)`, for methods of Captum that replace one
    feature (or one group) at a time, such as `FeatureAblation`:

        b_d ~ p_ι(x̃_d | x_{¬d}),    with groups: b_g ~ p_ι(x̃_g | x_{¬g}) .

    **Conditional** only for one replacement at a time: for methods that replace several entries at
    once (`ShapleyValueSampling`, `KernelShap`) take :class:`lexppl.compare.ImputerMasker`.

    Args:
        imputer: any imputer of tables.
        x: rows to be explained, `(B, D)`.
        draws: L; average the attributions over them.
        grouping: which columns are replaced together; give `FeatureAblation` its index as
            `feature_mask=grouping.index[None]`.

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
    check_tables(grouping, x=x)
    if grouping is None:
        grouping = Grouping.identity(x.shape[1])
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
    floating = isinstance(x, Tensor) and x.is_floating_point()
    if not floating or x.dim() < 2 or len(x) == 0:
        kind = f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"x must be a floating-point tensor (B, *event), B >= 1; it is {kind}")
    int_at_least("draws", draws)
    int_at_least("seed", seed, 0)
