"""Draws from weighted proposals."""

import torch
from torch import Tensor


def systematic_resampling(probabilities: Tensor, draws: int) -> Tensor:
    """Choose proposals by their probabilities, with replacement.

    One uniform number `U` a row places an even grid, and draw `d` is the proposal at which the
    distribution function passes

        (d + U) / D,    d = 0 … D−1.

    Proposal `l` is chosen `⌊D p_l⌋` or `⌈D p_l⌉` times and `D p_l` times in expectation, which
    varies less than independent draws would. The order of a row's draws is then shuffled, so that
    they are exchangeable. Proposals of probability zero are never chosen. Randomness is that of
    torch's default generator.

    Args:
        probabilities: `p`, `(N, B)`: N proposals for each of B rows, columns summing to one.
        draws: D.

    Returns:
        indices of proposals, `(D, B)`.

    Source: Douc, Cappé and Moulines (2005), "Comparison of resampling schemes for particle
    filtering", section 2.4.

    Example:
        >>> systematic_resampling(torch.tensor([[0.0], [0.5], [0.5]]), 4).sort(0).values.T
        tensor([[1, 1, 2, 2]])
    """
    proposals, rows = probabilities.shape
    dtype, device = probabilities.dtype, probabilities.device
    reached = probabilities.T.cumsum(-1)
    reached = reached / reached[:, -1:]
    start = torch.rand(rows, 1, dtype=dtype, device=device)
    grid = (torch.arange(draws, dtype=dtype, device=device) + start) / draws
    # Rounding must not carry the grid to 1, past the last proposal that has a probability.
    grid = grid.clamp(max=1.0 - torch.finfo(dtype).eps)
    chosen = torch.searchsorted(reached, grid, right=True).clamp(max=proposals - 1)
    order = torch.rand(rows, draws, device=device).argsort(-1)
    return chosen.gather(-1, order).T
