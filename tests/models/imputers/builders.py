"""Every imputer of tables of D = 4 features, for what all of them keep to."""

import itertools
from collections.abc import Callable, Iterable

import numpy as np
import torch
from scipy import stats
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


def largest_z(judged: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> tuple[float, float]:
    """The largest z-score of the means and covariances of draws `(draws, D)` against exact ones.

    Also the threshold that it passes with probability 1e-6 when the distribution is right
    (Bonferroni over all coordinates).
    """
    scores = [np.zeros(0)]
    for sample, mean, covariance in judged:
        deviation = sample - mean
        a, b = np.triu_indices(len(mean))
        statistics = np.concatenate([deviation, deviation[:, a] * deviation[:, b]], 1)
        error = statistics.mean(0) - np.concatenate([np.zeros(len(mean)), covariance[a, b]])
        spread = statistics.std(0)
        varies = spread > 1e-12
        assert np.abs(error[~varies]).max(initial=0) < 1e-9
        scores.append(error[varies] / (spread[varies] / np.sqrt(len(sample))))
    flat = np.abs(np.concatenate(scores))
    return float(flat.max()), float(stats.norm.isf(1e-6 / (2 * len(flat))))


Moments = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""By row and mask, mean and covariance of what would stand in each entry, were it hidden."""


def assert_moments(imputer: Imputer, rows: np.ndarray, masks: np.ndarray, moments: Moments) -> None:
    distribution = imputer(torch.from_numpy(rows), torch.from_numpy(masks).unsqueeze(1))
    hidden_law = distribution.hidden_distribution
    for (i, mask), (j, row) in itertools.product(enumerate(masks), enumerate(rows)):
        (mean, covariance), hidden = moments(row, mask), 1 - mask
        pairs = [
            (hidden_law.mean, mean),
            (hidden_law.variance, np.diag(covariance)),
            (distribution.mean, mask * row + hidden * mean),
            (distribution.variance, hidden**2 * np.diag(covariance)),
        ]
        if hasattr(hidden_law, "covariance_matrix"):
            pairs.append((hidden_law.covariance_matrix, covariance))
        for found, exact in pairs:
            np.testing.assert_allclose(found[i, j], exact, rtol=1e-9, atol=1e-10)


def largest_z_of(
    imputer: Imputer, rows: np.ndarray, masks: np.ndarray, moments: Moments, as_bool: bool = False
) -> tuple[float, float]:
    """Of 20,000 imputed rows' means and covariances, as :func:`largest_z`."""
    keep = torch.from_numpy(masks).unsqueeze(1)
    distribution = imputer(torch.from_numpy(rows), keep.bool() if as_bool else keep)
    sample = distribution.expand((20_000, *distribution.batch_shape)).sample().numpy()
    judged = []
    for (i, mask), (j, row) in itertools.product(enumerate(masks), enumerate(rows)):
        (mean, covariance), hidden = moments(row, mask), 1 - mask
        exact = mask * row + hidden * mean, hidden[:, None] * covariance * hidden
        judged.append((sample[:, i, j], *exact))
    return largest_z(judged)
