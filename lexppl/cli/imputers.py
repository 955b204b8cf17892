"""Laws of hidden features that can be chosen by name."""

from collections.abc import Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from lexppl.models import (
    ConditionalGaussianImputer,
    ConstantImputer,
    GaussianImputer,
    MarginalImputer,
)
from lexppl.models.imputers import Imputer

REFERENCE_ROWS = 5000
"""Most training rows that the marginal imputer keeps, and that are saved with the explainer."""

IMPUTERS: Mapping[str, str] = MappingProxyType(
    {
        "marginal": "those of a random training row",
        "gaussian": "standard normal noise",
        "conditional-gaussian": "draws from a Gaussian given the kept ones",
        "constant": "their mean",
    }
)
"""Names, and what hidden features are replaced with."""


def imputer_of(name: str, x: Tensor, seed: int) -> Imputer:
    """The imputer of a name, fitted on training rows.

    Args:
        name: one of :data:`IMPUTERS`.
        x: standardised training rows, `(N, D)`.
        seed: of the choice of reference rows.

    Example:
        >>> imputer_of("marginal", torch.zeros(3, 2), seed=0).reference.shape
        torch.Size([3, 2])
    """
    if name == "marginal":
        return MarginalImputer(_some_rows(x, seed))
    if name == "gaussian":
        return GaussianImputer().to(x.device, x.dtype)
    if name == "conditional-gaussian":
        return ConditionalGaussianImputer.fit(x)
    if name == "constant":
        return ConstantImputer(0.0).to(x.device, x.dtype)
    raise ValueError(f"imputer must be one of {list(IMPUTERS)}; it is {name!r}")


def _some_rows(x: Tensor, seed: int) -> Tensor:
    if len(x) <= REFERENCE_ROWS:
        return x
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(x), generator=generator)[:REFERENCE_ROWS]
    return x[chosen.to(x.device)]
