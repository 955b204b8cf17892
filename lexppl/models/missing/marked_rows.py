"""Rows with markers: which features are values, and which say that a value is missing."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class MarkedRows(nn.Module):
    """Rows of F features of which some are markers, 1 where the features that they mark are missing
    and 0 where these are there.

    Args:
        markers: for each of the F features the place of its marker, −1 for one that is never
            missing; a marker's own is its own.

    Raises:
        ValueError: places that are no markers; no feature but markers.

    Example:
        >>> rows = MarkedRows([-1, 2, 2])
        >>> x = torch.tensor([[0.3, 0.0, 1.0], [0.1, 7.0, 0.0]])
        >>> rows.values(x), rows.observed(x)
        (tensor([[0.3000, 0.0000],
            [0.1000, 7.0000]]), tensor([[1., 0.],
            [1., 1.]]))
    """

    value_places: Tensor
    marker_places: Tensor
    marked: Tensor

    def __init__(self, markers: Sequence[int]) -> None:
        super().__init__()
        places = [int(place) for place in markers]
        wrong = [p for p in places if p < -1 or p >= len(places) or (p >= 0 and places[p] != p)]
        if wrong:
            raise ValueError(
                f"markers must be −1 or the place of a feature that marks itself; they are {places}"
            )
        values = [place for place, marker in enumerate(places) if marker != place]
        if not values:
            raise ValueError(f"each of the {len(places)} features is a marker; none is a value")
        self.markers = tuple(places)
        marks = [places[place] for place in values]
        self.register_buffer("value_places", torch.tensor(values), persistent=False)
        self.register_buffer(
            "marker_places", torch.tensor([max(m, 0) for m in marks]), persistent=False
        )
        self.register_buffer("marked", torch.tensor([m >= 0 for m in marks]), persistent=False)

    @property
    def features(self) -> int:
        """D, the values among the F features."""
        return len(self.value_places)

    def values(self, x: Tensor) -> Tensor:
        """The values `(…, D)` of rows `(…, F)`, with what stands in for the missing ones.

        Raises:
            ValueError: rows of another number of features.
        """
        if x.shape[-1] != len(self.markers):
            raise ValueError(
                f"x must have {len(self.markers)} features, the markers among them; it has shape "
                f"{tuple(x.shape)}"
            )
        return x.index_select(-1, self.value_places)

    def observed(self, x: Tensor) -> Tensor:
        """1 where a value is there and 0 where it is missing, `(…, D)`, in the type of x."""
        # Markers are facts: a gradient of x is none of theirs.
        markers = x.detach().index_select(-1, self.marker_places)
        return 1.0 - markers * self.marked.to(x.dtype)
