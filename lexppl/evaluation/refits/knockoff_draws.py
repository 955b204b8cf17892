"""Rows that are to the features what the features are to each other, and know nothing of y."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from lexppl.argument_checks import int_at_least
from lexppl.inference.predictive import drawing
from lexppl.models import Grouping
from lexppl.models.imputers import (
    ConditionalGaussianImputer,
    GaussianImputer,
    GaussianMixtureImputer,
    MixtureDataImputer,
)
from lexppl.models.imputers.conditioned_gaussian import relative_jitter
from lexppl.models.imputers.mixture.mixture_imputer import MixtureImputer
from lexppl.models.imputers.variance_floor import fill_zero_variances


def knockoff_draws(
    imputer: nn.Module, x: Tensor, groups: Sequence[int] | None = None, seed: int = 0
) -> Tensor:
    r"""Knockoffs `x̃` of rows under an imputer's distribution of them:

        (x, x̃)_{swap(S)} ~ (x, x̃)  for every set S of entries,    x̃ ⊥ y | x.

    - :class:`~lexppl.models.ConditionalGaussianImputer`, `x ~ N(μ, Σ)`: with
      `S = min(1, 2 λ_min(corr Σ)) diag Σ`,

          x̃ | x ~ N(x − S Σ⁻¹ (x − μ), 2S − S Σ⁻¹ S)

      (Candès et al. 2018, § 3.4.1, equal correlations). Entries that nearly repeat others make
      λ_min small: their knockoffs are near copies, and nothing is found by them.
    - :class:`~lexppl.models.GaussianImputer`: `x̃ ~ N(μ, diag σ²)`, independent of x.
    - :class:`~lexppl.models.GaussianMixtureImputer`: a component by its responsibility for the
      whole row, and each entry from it (Gimenez, Ghorbani & Zou 2019).
    - :class:`~lexppl.models.MixtureDataImputer`: the same, each entry from a reference row of its
      own, so that columns of words stay words. The entries of a component are taken to be
      independent of each other.

    **The guarantee is the imputer's**: it holds where x has the distribution that the imputer says,
    which is for the user to defend. One that is fitted on few rows says it roughly.

    Args:
        imputer: one of these, fitted on the rows.
        x: rows, `(N, D)`.
        groups: of each of the D features its entry; one entry a feature if None.
        seed: of the draws.

    Returns:
        `(N, D)`, in the type of x.

    Raises:
        TypeError: another imputer, which states no joint distribution of the row.
        ValueError: rows that do not fit the imputer.

    Source:
        Candès, Fan, Janson, Lv. Panning for gold: model-X knockoffs. JRSS B 2018. Gimenez,
        Ghorbani, Zou. Knockoffs for the mass. AISTATS 2019.

    Example:
        >>> x = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
        >>> knockoff_draws(ConditionalGaussianImputer.fit(x), x).shape
        torch.Size([100, 3])
    """
    if x.dim() != 2:
        raise ValueError(f"x must be a table of shape (N, D); it has shape {tuple(x.shape)}")
    own = range(x.shape[1]) if groups is None else Grouping(groups).groups
    if len(own) != x.shape[1]:
        raise ValueError(f"groups must give {x.shape[1]} features an entry; it has {len(own)}")
    if not isinstance(imputer, _Known):
        raise TypeError(
            f"a {type(imputer).__name__} states no joint distribution of a row, which knockoffs "
            f"are drawn from; give one of {', '.join(known.__name__ for known in _Known)}"
        )
    int_at_least("seed", seed, 0)
    # Rows that were drawn from the same number would be their own knockoffs.
    apart = int(np.random.SeedSequence(seed).generate_state(1)[0])
    with drawing(apart, x.device):
        # A call, for its checks of the rows.
        hidden = imputer(x, torch.zeros(x.shape[1], dtype=torch.bool, device=x.device))
        if isinstance(imputer, ConditionalGaussianImputer):
            return _gaussian(x, imputer.mean, imputer.covariance)
        if isinstance(imputer, MixtureImputer):
            return _of_components(imputer, x, torch.tensor(own, device=x.device))
        drawn: Tensor = hidden.sample()
        return drawn


_Known = (
    ConditionalGaussianImputer,
    GaussianImputer,
    GaussianMixtureImputer,
    MixtureDataImputer,
)


def gaussian_moments(covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Of Gaussian knockoffs `x̃ = x − (x − μ) A + ε` the matrix `A = Σ⁻¹ S` and the covariance
    `2S − S Σ⁻¹ S` of ε.

    Args:
        covariance: Σ, `(D, D)`.

    Returns:
        both `(D, D)`, in double precision.
    """
    exact = covariance.double()
    variance = fill_zero_variances(exact.diagonal())
    exact = exact + (relative_jitter(covariance) * variance).diag_embed()
    scale = exact.diagonal().sqrt()
    smallest = torch.linalg.eigvalsh(exact / scale / scale.unsqueeze(-1))[0]
    share = (2.0 * smallest).clamp(0.0, 1.0)
    freed = (share * exact.diagonal()).diag_embed()
    regression = torch.linalg.solve(exact, freed)
    return regression, 2.0 * freed - freed @ regression


def _gaussian(x: Tensor, mean: Tensor, covariance: Tensor) -> Tensor:
    regression, rest = gaussian_moments(covariance)
    # Singular where λ_min decides, so by eigenvalues and not by Cholesky.
    values, vectors = torch.linalg.eigh((rest + rest.mT) / 2)
    root = vectors * values.clamp(min=0.0).sqrt()
    noise = torch.randn(x.shape, dtype=torch.float64, device=x.device)
    exact = x.double()
    return (exact - (exact - mean.double()) @ regression + noise @ root.mT).to(x.dtype)


def _of_components(imputer: MixtureImputer, x: Tensor, entry: Tensor) -> Tensor:
    everything = torch.ones(x.shape[1], dtype=torch.bool, device=x.device)
    probabilities = imputer.responsibilities(x, everything).double()
    component = torch.multinomial(probabilities, 1)
    features = imputer.component_features()
    drawn = torch.empty_like(x)
    for one in entry.unique():
        columns = entry == one
        drawn[:, columns] = features.draw(component)[:, columns]
    return drawn
