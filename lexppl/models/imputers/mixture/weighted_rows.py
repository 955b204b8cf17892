"""Reference rows drawn by their weights under the component of a mixture."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["WeightedRows"]


class WeightedRows(NamedTuple):
    """The features of a reference row, drawn with the weights that a component gives the rows:

        x = r_i,    i | c ~ Categorical(w_c1, …, w_cN).

    An index is found by bisection in the cumulative weights: no tensor has a dimension N besides
    those of the weights, and a draw costs O(log CN).

    Args:
        reference: the rows `r`, shape `(N, D)`.
        row_weights: `w`, shape `(C, N)`, non-negative; each of the C rows has a positive sum, which
            need not be 1.

    Example:
        >>> rows = WeightedRows(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.eye(2))
        >>> rows.draw(torch.tensor([[0], [1], [1]]))
        tensor([[1., 2.],
                [3., 4.],
                [3., 4.]])
    """

    reference: Tensor
    row_weights: Tensor

    @property
    def means(self) -> Tensor:
        return self._probabilities @ self.reference

    @property
    def variances(self) -> Tensor:
        # About the overall mean, so that a large offset of the features costs no digits.
        centre = self.reference.mean(0)
        deviation = self.reference - centre
        second = self._probabilities @ deviation**2
        return (second - (self.means - centre) ** 2).clamp(min=0)

    def draw(self, component: Tensor) -> Tensor:
        # In float64: the weight of one of thousands of rows is near the resolution of float32.
        cumulative = self.row_weights.double().cumsum(-1)
        cumulative = cumulative / cumulative[..., -1:]
        components, rows = self.row_weights.shape
        offset = torch.arange(components, dtype=torch.float64, device=cumulative.device)
        ends = (cumulative + offset.unsqueeze(-1)).flatten()
        uniform = torch.rand(component.shape, dtype=torch.float64, device=cumulative.device)
        # Else the largest ones would round, with the offset, into the next component.
        uniform = uniform * (1 - 2**-40)
        place = torch.searchsorted(ends, component + uniform, right=True)
        row = (place - component * rows).clamp(0, rows - 1)
        feature = torch.arange(self.reference.shape[-1], device=self.reference.device)
        return self.reference[row, feature]

    def log_prob(self, value: Tensor, components: slice) -> Tensor:
        raise NotImplementedError(
            "the distribution of a random reference row is a set of point masses and has no "
            "density; objectives that propose x_imputed from the model do not need it, others can "
            "use a GaussianMixtureImputer or a ConditionalGaussianImputer"
        )

    @property
    def _probabilities(self) -> Tensor:
        return self.row_weights / self.row_weights.sum(-1, keepdim=True)


def check_reference(reference: Tensor, components: Tensor, name: str) -> None:
    """Refuses reference rows that do not fit the components.

    Args:
        reference: shape `(N, *event)`.
        components: what describes the components' features, shape `(C, *event)`.
        name: of `components`, as the user knows it.

    Raises:
        TypeError: when the types differ.
        ValueError: when the shape does not fit.

    Example:
        >>> check_reference(torch.ones(5, 3), torch.ones(4, 2), "means")
        Traceback (most recent call last):
        ValueError: reference must have shape (N, 2), as means has 2 features; it has shape (5, 3)
    """
    event = components.shape[1:]
    if reference.ndim < 2 or len(reference) == 0 or reference.shape[1:] != event:
        sizes = ", ".join(map(str, event))
        has = f"{sizes} features" if len(event) == 1 else f"rows of shape {tuple(event)}"
        raise ValueError(
            f"reference must have shape (N, {sizes}), as {name} has {has}; it has shape "
            f"{tuple(reference.shape)}"
        )
    if reference.dtype != components.dtype:
        raise TypeError(
            f"reference is {reference.dtype} and {name} {components.dtype}; they must be of one "
            "type"
        )


def check_row_weights(
    row_weights: Tensor, components: Tensor, name: str, reference: Tensor, values: bool
) -> None:
    """Refuses weights of rows under components that cannot be drawn by.

    Args:
        row_weights: shape `(C, N)`.
        components: what describes the components' features, shape `(C, *event)`.
        name: of `components`, as the user knows it.
        reference: the rows, shape `(N, *event)`.
        values: whether the values are there, or yet to be loaded.

    Raises:
        TypeError: when the types differ.
        ValueError: when the shape does not fit, or a component's weights are negative or all 0.

    Example:
        >>> one_row_for_two = torch.tensor([[1.0], [0.0]])
        >>> check_row_weights(one_row_for_two, torch.ones(2, 3), "centres", torch.ones(1, 3), True)
        Traceback (most recent call last):
        ValueError: each row of centres needs a reference row of positive weight; row 1 has none
    """
    shape = (len(components), len(reference))
    if row_weights.shape != shape:
        raise ValueError(
            f"row_weights must have shape {shape}, a row for each of {name} and a column for each "
            f"reference row; it has shape {tuple(row_weights.shape)}"
        )
    if row_weights.dtype != components.dtype:
        raise TypeError(
            f"row_weights is {row_weights.dtype} and {name} {components.dtype}; they must be of "
            "one type"
        )
    if not values:
        return
    if bool((row_weights < 0).any()):
        raise ValueError(
            f"row_weights must not be negative; the smallest is {float(row_weights.min()):g}"
        )
    empty = (row_weights.sum(-1) == 0).nonzero()
    if len(empty):
        raise ValueError(
            f"each row of {name} needs a reference row of positive weight; row {int(empty[0])} "
            "has none"
        )
