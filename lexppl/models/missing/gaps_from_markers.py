"""Boosted trees fitted to rows with markers: what is missing is a gap to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor, nn

from lexppl.configured import Configured
from lexppl.models.missing.marked_rows import MarkedRows

__all__ = ["GapsFromMarkers"]


class GapsFromMarkers(Configured, nn.Module):
    """A predictor that reads gaps and is fitted to rows in one go, for rows with markers.

    It predicts from values as :class:`lexppl.models.HiddenByNature` over a
    :class:`lexppl.models.GapImputer` gives them; only the rows that it is fitted to have markers,
    and become values with NaN where they are missing.

    Args:
        predictor: such as a :class:`lexppl.models.TreePredictor`, of the D values.
        markers: of the F features of x, as :attr:`lexppl.data.TableEncoding.markers` has them.

    Example:
        >>> from lexppl.models import tree_predictor
        >>> x = torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> x[:100, 0], marker = 0.0, (torch.arange(300) < 100).float()
        >>> predictor = GapsFromMarkers(tree_predictor(x, classes=2), markers=[2, -1, 2])
        >>> predictor.fit_rows(torch.cat([x, marker[:, None]], 1), y)
        >>> predictor(torch.tensor([[1.5, 0.0]])).probs.argmax().item()
        1
    """

    reads_gaps = True

    def __init__(self, predictor: nn.Module, markers: Sequence[int]) -> None:
        super().__init__()
        self.predictor = predictor
        self.rows = MarkedRows(markers)

    @property
    def markers(self) -> tuple[int, ...]:
        """Of the F features."""
        return self.rows.markers

    @property
    def event_dim(self) -> int:
        """Dimensions of a row."""
        return 1

    @property
    def likelihood(self) -> Any:
        """That of the predictor."""
        return self.predictor.likelihood

    def forward(self, x: Tensor) -> TorchDistribution:
        """The distribution of y given values with gaps, `(…, D)`."""
        distribution: TorchDistribution = self.predictor(x)
        return distribution

    def fit_rows(self, x: Tensor, y: Tensor, seed: int = 0, weights: Tensor | None = None) -> None:
        """Fit the predictor to rows with markers, `(N, F)`; the rest is as it has it."""
        self.predictor.fit_rows(with_gaps(self.rows, x), y, seed, weights)  # type: ignore[operator]


def with_gaps(rows: MarkedRows, x: Tensor) -> Tensor:
    """The values of rows `(N, F)` with NaN where they are missing, `(N, D)`.

    Example:
        >>> with_gaps(MarkedRows([1, 1]), torch.tensor([[0.0, 1.0], [3.0, 0.0]]))
        tensor([[nan],
                [3.]])
    """
    return torch.where(rows.observed(x) == 1.0, rows.values(x), torch.nan)
