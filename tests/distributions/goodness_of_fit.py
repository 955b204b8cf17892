"""Goodness of fit of draws of masks against probabilities known by enumeration."""

import torch
from scipy import stats
from torch import Tensor

FAILURE_RATE = 1e-6
"""A correct sampler fails one check with this probability (if its seed were drawn anew)."""

_LEAST_EXPECTED = 10.0


def p_value(draws: Tensor, support: Tensor, probabilities: Tensor) -> float:
    """Pearson's chi-square p-value of ``draws`` (N, G) over ``support`` (M, G) of masks.

    Masks expected fewer than ten times are taken together. A draw outside the support gives 0.
    """
    masks, place = torch.cat([support, draws.to(support.dtype)]).unique(dim=0, return_inverse=True)
    order, drawn = place[: len(support)], place[len(support) :]
    if len(masks) > len(support):
        return 0.0
    observed = torch.bincount(drawn, minlength=len(support))[order].double()
    expected = probabilities.double() * len(draws)
    rare = expected < _LEAST_EXPECTED
    if bool(rare.any()):
        observed = torch.cat([observed[~rare], observed[rare].sum(0, keepdim=True)])
        expected = torch.cat([expected[~rare], expected[rare].sum(0, keepdim=True)])
    if expected[-1] == 0:
        if observed[-1] > 0:
            return 0.0
        observed, expected = observed[:-1], expected[:-1]
    if len(observed) == 1:
        return 1.0
    statistic = ((observed - expected) ** 2 / expected).sum()
    return float(stats.chi2.sf(float(statistic), len(observed) - 1))


def assert_fits(draws: Tensor, support: Tensor, probabilities: Tensor) -> None:
    value = p_value(draws, support, probabilities)
    assert value > FAILURE_RATE, f"chi-square p-value {value:.2g}"
