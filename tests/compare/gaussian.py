"""A conditional Gaussian imputer of three features, and a linear model of them."""

import numpy as np
import torch

from lexppl.models.imputers.conditional_gaussian import ConditionalGaussianImputer

FAILURE = 1e-6
"""Probability that a right program fails one of the z-tests."""
MEAN = torch.tensor([1.0, -1.0, 0.5], dtype=torch.float64)
COVARIANCE = torch.tensor(
    [[1.0, 0.8, 0.2], [0.8, 2.0, -0.3], [0.2, -0.3, 0.5]], dtype=torch.float64
)
WEIGHTS = np.array([1.0, 2.0, -3.0])
ROWS = np.array([[2.0, 0.0, 0.0], [-1.0, 1.0, 1.5]])


def gaussian():
    return ConditionalGaussianImputer(MEAN, COVARIANCE)


def conditional_mean(row, kept):
    """E[x̃ | the kept columns of a row] under the Gaussian."""
    mean, covariance, on = MEAN.numpy(), COVARIANCE.numpy(), sorted(kept)
    gain = covariance[:, on] @ np.linalg.inv(covariance[np.ix_(on, on)])
    return mean + gain @ (row[on] - mean[on])
