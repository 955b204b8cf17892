"""From attributions of columns to importances of mask entries."""

from __future__ import annotations

from torch import Tensor

from lexppl.models import Grouping


def grouped_importances(attributions: Tensor, grouping: Grouping | None) -> Tensor:
    """Importances of mask entries: the sum of the absolute attributions of an entry's columns,

        I_g = Σ_{d in g} |a_d| .

    Args:
        attributions: `(B, D)`, of either sign.
        grouping: which columns belong to an entry; None for one entry a column.

    Returns:
        `(B, G)`, at least 0.

    Example:
        >>> import torch
        >>> grouped_importances(torch.tensor([[1.0, -2.0, 3.0]]), Grouping([0, 1, 1]))
        tensor([[1., 5.]])
    """
    size = attributions.abs()
    if grouping is None:
        return size
    total = size.new_zeros(len(size), grouping.entries)
    return total.index_add_(1, grouping.index.to(size.device), size)


def likeliest_class(values: Tensor, probabilities: Tensor) -> Tensor:
    """Of what is known of each class, that of each row's likeliest one.

    Args:
        values: `(B, D, C)`.
        probabilities: `(B, C)`; of equal ones the first is the likeliest.

    Returns:
        `(B, D)`.

    Example:
        >>> import torch
        >>> likeliest_class(torch.tensor([[[1.0, 2.0]]]), torch.tensor([[0.1, 0.9]]))
        tensor([[2.]])
    """
    chosen = probabilities.argmax(1)
    index = chosen[:, None, None].expand(-1, values.shape[1], 1)
    return values.gather(2, index).squeeze(2)
