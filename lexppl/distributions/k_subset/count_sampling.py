r"""Draws of independent Bernoullis given their sum.

The entries are cut into blocks. From the top, the number that is still to be placed is divided
between the two halves of the blocks, P(j left | c in all) ∝ P(S_left = j) P(S_right = c − j), until
each block knows its count; then every block is walked entry by entry, all blocks at once, with

    P(z_i = 1 | c still to place) = p_i P(S_{i+1..} = c − 1) / P(S_{i..} = c).

All tables are sums of products of probabilities, depend on the distribution's rows alone, and serve
any number of draws.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from lexppl.distributions.k_subset.counts import SMALL

_BLOCK = 32


@dataclass(frozen=True)
class CountTables:
    """What draws need of a distribution: tables ``(count + 1, *batch, blocks)``, all of them
    constants."""

    size: int
    keep: list[Tensor]
    """For each place in a block: the probability to be on given the count still to place."""
    halves: list[tuple[Tensor, Tensor]]
    """From the blocks up: the distributions of the counts of the left and of the right halves."""


@torch.no_grad()
def count_tables(off: Tensor, on: Tensor, max_k: int) -> CountTables:
    """Tables for draws given a sum of at most ``max_k``; ``off`` and ``on`` are ``(*batch, G)``."""
    size = off.shape[-1]
    length = size if size <= SMALL else _BLOCK
    blocks = -(-size // length)
    missing = blocks * length - size
    off = pad(off, (0, missing), value=1.0).unflatten(-1, (length, blocks)).movedim(-2, 0)
    on = pad(on, (0, missing)).unflatten(-1, (length, blocks)).movedim(-2, 0)

    counts = torch.ones_like(on[:1])
    keep = []
    for place in range(length - 1, -1, -1):
        taken = _pad_degree(on[place] * counts, 1, 0)
        counts = (taken + _pad_degree(off[place] * counts, 0, 1))[: max_k + 1]
        taken = taken[: max_k + 1]
        # A count of probability 0 is never reached; being on then keeps the sum right anyway.
        chance = torch.where(counts > 0, taken / counts, torch.ones_like(counts))
        keep.append(_pad_degree(chance[1:], 1, 0))
    keep.reverse()

    halves = []
    while (n := counts.shape[-1]) > 1:
        half = (n + 1) // 2
        left, right = counts[..., :half].contiguous(), counts[..., half:]
        if n % 2:
            nothing = _pad_degree(torch.ones_like(left[:1, ..., :1]), 0, left.shape[0] - 1)
            right = torch.cat([right, nothing], -1)
        right = right.contiguous()
        halves.append((left, right))
        counts = _multiply_in_place(left, right, max_k)
    return CountTables(size, keep, halves)


@torch.no_grad()
def draw(tables: CountTables, k: int | Tensor, number: int, batch_shape: torch.Size) -> Tensor:
    """``number`` draws of shape ``(number, *batch_shape, G)``.

    ``batch_shape`` has as many dimensions as the tables' own and may expand those of size 1.
    """
    example = tables.keep[0]
    dtype, device = example.dtype, example.device
    left_to_place = torch.as_tensor(k, device=device).unsqueeze(-1)
    left_to_place = left_to_place.expand(number, *batch_shape, 1)
    for left, right in reversed(tables.halves):
        left_to_place = _divide(left, right, left_to_place, number, batch_shape)
    blocks = example.shape[-1]
    left_to_place = left_to_place[..., :blocks]

    length = len(tables.keep)
    uniform = torch.rand(length, number, *batch_shape, blocks, dtype=dtype, device=device)
    places = []
    for place, keep in enumerate(tables.keep):
        chance = keep.expand(-1, *batch_shape, -1).gather(0, left_to_place)
        on = uniform[place] < chance
        places.append(on)
        left_to_place = left_to_place - on.to(left_to_place.dtype)
        # The tables shrink towards the end, as fewer places can hold fewer.
    masks = torch.stack(places, -2).flatten(-2)
    return masks[..., : tables.size].to(dtype)


def _divide(
    left: Tensor, right: Tensor, total: Tensor, number: int, batch_shape: torch.Size
) -> Tensor:
    """Counts of the left and right halves, ``(number, *batch_shape, 2 n)``, given their sums."""
    degree = left.shape[0] - 1
    blocks = left.shape[-1]
    total = total[..., :blocks]
    share = torch.arange(degree + 1, device=total.device).reshape(-1, *(1,) * total.dim())
    rest = total.unsqueeze(0) - share
    possible = (rest >= 0) & (rest <= degree)
    right = right.unsqueeze(1).expand(-1, number, *batch_shape, -1)
    weight = left.unsqueeze(1) * right.gather(0, rest.clamp(0, degree)) * possible
    below = weight.cumsum(0)
    most = below[-1:]
    threshold = torch.rand_like(most) * most
    # `below < most` because a product with a uniform just under 1 may round up to `most`.
    first = ((below <= threshold) & (below < most)).sum(0)
    first = torch.minimum(torch.maximum(first, total - degree), total)
    return torch.cat([first, total - first], -1)


def _multiply_in_place(a: Tensor, b: Tensor, max_degree: int) -> Tensor:
    """Products of polynomials, one coefficient of ``b`` after the other; no gradients."""
    product = _pad_degree(a * b[0], 0, b.shape[0] - 1)[: max_degree + 1]
    for degree in range(1, min(b.shape[0], max_degree + 1)):
        rows = min(a.shape[0], product.shape[0] - degree)
        product[degree : degree + rows] += a[:rows] * b[degree]
    return product


def _pad_degree(polynomials: Tensor, below: int, above: int) -> Tensor:
    return pad(polynomials, (0, 0) * (polynomials.dim() - 1) + (below, above))
