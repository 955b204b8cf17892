r"""Draws of independent Bernoullis given their sum.

The entries stand at the leaves of a binary tree. From the top, the number that is to be placed is
divided between the two halves of the entries,

    P(j left | c in all) ∝ P(S_left = j) P(S_right = c − j),

and so on until each entry knows whether it is on: log2 G rounds, each for all nodes of a level.
The distributions of the nodes' counts are sums of products of probabilities, without differences,
depend on the distribution's rows alone, and serve any number of draws.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad, threshold

_FEW = 16
"""Up to so many entries in a half its counts are gone through one by one: few passes over many
nodes. Beyond, all counts of few nodes are laid side by side."""


@torch.no_grad()
def count_tables(levels: list[Tensor], max_k: int) -> list[Tensor]:
    """The distributions of the counts of all nodes but the root, ``(count + 1, *batch, nodes)``.

    Args:
        levels: of ``products``.
        max_k: no count is larger.
    """
    tables = [level.detach() for level in levels if level.shape[-1] > 1]
    if not tables or levels[-1].shape[-1] == 1:
        return tables
    # Processors are slow at numbers next to underflow. Of many entries the tilt makes the sum
    # likely, so that counts rarer than the root of the least number are in no draw.
    least = torch.finfo(tables[0].dtype).tiny ** 0.5
    tables[-1] = threshold(tables[-1], least, 0.0)
    while (n := tables[-1].shape[-1]) > 2:
        first, second, last = tables[-1].split([n // 2, n // 2, n % 2], -1)
        # Copies, because the nodes of a slice do not lie side by side.
        counts = _multiply_in_place(first.contiguous(), second.contiguous(), max_k)
        if n % 2:
            counts = torch.cat([counts, _pad_degree(last, 0, len(counts) - len(last))], -1)
        tables.append(threshold(counts, least, 0.0))
    return tables


@torch.no_grad()
def draw(
    tables: list[Tensor], weights: Tensor, k: int | Tensor, number: int, batch_shape: torch.Size
) -> Tensor:
    """``number`` draws of shape ``(number, *batch_shape, G)``.

    Args:
        tables: of ``count_tables``.
        weights: of the entries, ``(*batch, G)``.
        k: the sum, an int or ``batch``.
        number: of draws.
        batch_shape: has as many dimensions as ``batch``, and may expand those of size 1.
    """
    # Every draw has the batch of the weights, of which a function transform may hide a dimension.
    total = torch.zeros_like(weights[..., :1], dtype=torch.long)
    total = total + (k.unsqueeze(-1) if isinstance(k, Tensor) else k)
    total = total.expand(number, *batch_shape, 1)
    for counts in reversed(tables):
        n = counts.shape[-1]
        left, right = counts[..., : n // 2], counts[..., n // 2 : n // 2 * 2]
        pairs, alone = total.split([n // 2, n % 2], -1)
        divide = _divide_one_by_one if left.shape[0] <= _FEW + 1 else _divide_at_once
        first = divide(left, right, pairs)
        # Where no division is possible, by weights that underflow, the sum is right all the same.
        degree = left.shape[0] - 1
        first = torch.minimum(torch.maximum(first, pairs - degree), pairs)
        total = torch.cat([first, pairs - first, alone], -1)
    return total.to(weights.dtype)


def _divide_one_by_one(left: Tensor, right: Tensor, total: Tensor) -> Tensor:
    """Counts of the left halves, given the sums ``total``, ``(number, *batch, nodes)``."""
    degree = left.shape[0] - 1
    shape = total.shape
    # Counts below 0 and above the degree have probability 0.
    right = _pad_degree(right, degree, degree).unsqueeze(1).expand(-1, *shape)
    below = []
    reached = torch.zeros(shape, dtype=left.dtype, device=left.device)
    for share in range(degree + 1):
        rest = right.gather(0, (total - share + degree).unsqueeze(0)).squeeze(0)
        reached = torch.addcmul(reached, left[share], rest)
        below.append(reached)
    return _first_above(torch.stack(below), 0)


def _divide_at_once(left: Tensor, right: Tensor, total: Tensor) -> Tensor:
    degree = left.shape[0] - 1
    left, right = left.movedim(0, -1), right.movedim(0, -1)
    share = torch.arange(degree + 1, device=total.device)
    rest = total.unsqueeze(-1) - share
    possible = (rest >= 0) & (rest <= degree)
    right = right.expand(*total.shape, -1).gather(-1, rest.clamp(0, degree))
    return _first_above((left * right * possible).cumsum(-1), -1)


def _first_above(below: Tensor, dim: int) -> Tensor:
    """The first place at which cumulative weights exceed a uniform share of their sum."""
    most = below.narrow(dim, below.shape[dim] - 1, 1)
    level = torch.rand_like(most) * most
    # `below < most` because a product with a uniform just under 1 may round up to `most`.
    return ((below <= level) & (below < most)).sum(dim)


def _multiply_in_place(a: Tensor, b: Tensor, max_degree: int) -> Tensor:
    """Products of polynomials, one coefficient of ``b`` after the other; no gradients."""
    product = _pad_degree(a * b[0], 0, b.shape[0] - 1)[: max_degree + 1]
    for degree in range(1, min(b.shape[0], max_degree + 1)):
        rows = min(a.shape[0], product.shape[0] - degree)
        product[degree : degree + rows] += a[:rows] * b[degree]
    return product


def _pad_degree(polynomials: Tensor, below: int, above: int) -> Tensor:
    return pad(polynomials, (0, 0) * (polynomials.dim() - 1) + (below, above))
