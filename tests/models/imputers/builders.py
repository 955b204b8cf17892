"""Every imputer of tables of D = 4 features, for what all of them keep to."""

import torch
from torch import Tensor

from lexppl.models import (
    ConditionalGaussianImputer,
    ConstantImputer,
    GaussianImputer,
    GaussianMixtureImputer,
    Imputer,
    KMeansDataImputer,
    MarginalImputer,
    MixtureDataImputer,
    MixtureMeansImputer,
)

D = 4


def drawn(*shape: int, seed: int = 3, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def covariance_of(size: int = D, dtype: torch.dtype = torch.float64) -> Tensor:
    root = drawn(size, size, seed=1)
    return (root @ root.T / size + 0.1 * torch.eye(size)).to(dtype)


def mean_of(size: int = D, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.linspace(-1.1, 2.0, size, dtype=dtype)


def imputers(dtype: torch.dtype = torch.float64) -> dict[str, Imputer]:
    reference, scale = drawn(7, D, dtype=dtype), torch.linspace(0.5, 2.0, D, dtype=dtype)
    weights = torch.tensor([0.2, 0.5, 0.3], dtype=dtype)
    mixture = [weights, drawn(3, D, seed=4, dtype=dtype), drawn(3, D, seed=5, dtype=dtype).exp()]
    return {
        "constant": ConstantImputer(0.25).to(dtype),
        "constant per feature": ConstantImputer(mean_of(D, dtype)),
        "Gaussian": GaussianImputer(mean_of(D, dtype), scale),
        "conditional Gaussian": ConditionalGaussianImputer(
            mean_of(D, dtype), covariance_of(D, dtype)
        ),
        "marginal": MarginalImputer(reference),
        "Gaussian mixture": GaussianMixtureImputer(*mixture),
        "mixture means": MixtureMeansImputer(*mixture),
        "mixture rows": MixtureDataImputer(*mixture, reference),
        "cluster rows": KMeansDataImputer(reference[:3] + 0.1, reference),
    }


NAMES = list(imputers())
RANDOM = [name for name in NAMES if not name.startswith("constant")]
WITH_DENSITY = [*NAMES[:4], "Gaussian mixture"]


def same_bits(left: Tensor, right: Tensor) -> bool:
    integer = {torch.float32: torch.int32, torch.float64: torch.int64}[left.dtype]
    return torch.equal(left.contiguous().view(integer), right.contiguous().view(integer))
