"""An imputer as the distribution of Captum's baselines."""

from __future__ import annotations

import torch
from torch import Tensor

from lexppl.argument_checks import int_at_least
from lexppl.inference.contexts import seeded
from lexppl.models import Grouping
from lexppl.models.imputers import Imputer


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
        >>> from lexppl.models.imputers import GaussianImputer
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
        >>> from lexppl.models.imputers import ConditionalGaussianImputer
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
