"""Missing values drawn by an imputer, as those that a mask hides."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pyro.distributions.torch_distribution import TorchDistribution
from torch import Tensor, nn

from lexppl.configured import Configured
from lexppl.models.missing.marked_rows import MarkedRows

__all__ = ["HiddenByNature"]


class HiddenByNature(Configured, nn.Module):
    r"""An imputer of rows of which some values are missing: they are hidden by nature, not by a
    choice.

    With `o_d = 1` where value d of the row is there and 0 where it is missing,

        x̃ ~ p_ι(x̃ | x, z ⊙ o),

    so that a missing value is drawn as one that the mask hides, given what is kept and there; the
    mask cannot keep it. A program's `E_{x̃}[Φ(y | f(x̃))]` then marginalises it, in a fit, in its
    validation and in prediction alike. That is right where values are missing at random given what
    is kept; where their absence says something of its own, give the program a feature that says it
    (`missing_indicator` of :func:`lexppl.data.read_table`).

    What stands in for a missing value in x is never seen, so that it is free, but finite: no NaN
    meets a gradient.

    Args:
        imputer: of the D values, `(B, D)`.
        markers: of the F features of x, as :attr:`lexppl.data.TableEncoding.markers` has them.

    Raises:
        ValueError: markers that are none; from a call, rows of other features.

    Example:
        >>> from lexppl.models import ConstantImputer
        >>> imputer = HiddenByNature(ConstantImputer(-1.0), markers=[-1, 2, 2])
        >>> x = torch.tensor([[5.0, 0.0, 1.0], [5.0, 7.0, 0.0]])
        >>> imputer(x, torch.tensor([1.0, 1.0])).sample()
        tensor([[ 5., -1.],
                [ 5.,  7.]])
    """

    def __init__(self, imputer: nn.Module, markers: Sequence[int]) -> None:
        super().__init__()
        self.imputer = imputer
        self.rows = MarkedRows(markers)

    @property
    def markers(self) -> tuple[int, ...]:
        """Of the F features."""
        return self.rows.markers

    @property
    def leaves_gaps(self) -> bool:
        """Whether hidden features become NaN."""
        return bool(getattr(self.imputer, "leaves_gaps", False))

    def forward(self, x: Tensor, keep: Tensor) -> TorchDistribution:
        """The distribution of the imputed values, batch shape `(…, B)` and event shape `(D,)`.

        Args:
            x: rows with their markers, `(B, F)`.
            keep: what the mask keeps of each value, boolean or in [0, 1], `(…, B, D)` or
                broadcastable to it.
        """
        observed = self.rows.observed(x)
        there = observed == 1.0 if keep.dtype == torch.bool else observed
        distribution: TorchDistribution = self.imputer(self.rows.values(x), keep * there)
        return distribution
