"""What the choice of the top features tells of y beyond their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from lexppl.compare.top_masks import top_masks
from lexppl.evaluation import encode_meter
from lexppl.evaluation.refits.predictor_fit import TrainingOptions
from lexppl.models import Grouping


def encoded(
    importances: Tensor,
    x: Tensor,
    y: Tensor,
    grouping: Grouping | None,
    sizes: Sequence[int],
    seed: int,
    fit_options: Mapping[str, Any],
) -> dict[str, float]:
    """`encoded@k`, :func:`lexppl.evaluation.encode_meter` of each row's k most important entries,
    in nats, and its 95 % interval.

    Args:
        importances: `(N, G)`.
        x: test rows, `(N, D)`.
        y: their labels or responses, `(N,)`.
        grouping: which features an entry keeps.
        sizes: the k.
        seed: of lots and fits.
        fit_options: of the comparison's fits; what the meter's do not take is left out.

    Example:
        >>> import torch
        >>> x = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
        >>> found = encoded(x, x, (x[:, 0] > 0).long(), None, [1], 0, {"epochs": 1})
        >>> list(found)
        ['encoded@1', 'encoded@1_lower', 'encoded@1_upper']
    """
    known = {"hidden", *TrainingOptions.__optional_keys__} - {"sample_weight"}
    options = {name: value for name, value in fit_options.items() if name in known}
    found: dict[str, float] = {}
    for k in sizes:
        masks = top_masks(importances, k, seed=seed)
        meter = encode_meter(x, y, masks, grouping=grouping, seed=seed, **options)
        name = f"encoded@{k}"
        found |= {name: meter.value, f"{name}_lower": meter.lower, f"{name}_upper": meter.upper}
    return found
