"""The architecture of a table: perceptrons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from lexppl.argument_checks import int_at_least
from lexppl.models.architectures.architecture import Architecture
from lexppl.models.grouping import Grouping
from lexppl.models.imputers import GaussianImputer
from lexppl.models.imputers.imputer import Imputer
from lexppl.models.networks import MLP


class TableArchitecture(Architecture):
    """Perceptrons on the columns of a table, rows `(D,)`: what a number of features means, with the
    widths of the method.

    Args:
        features: D.
        hidden: widths of the selector's hidden layers.
        predictor_hidden: widths of the predictor's.
        activation: of both, as :class:`lexppl.models.MLP` has them.
        batch_norm: whether the predictor's hidden layers are normalised.
        grouping: which columns an entry keeps; one entry a column if None.

    Raises:
        ValueError: no features, or a grouping of another number of them.

    Example:
        >>> import torch
        >>> table = TableArchitecture(11, hidden=(8,), predictor_hidden=(8,))
        >>> table.selector(table.entries)(torch.zeros(5, 11)).shape
        torch.Size([5, 11])
    """

    def __init__(
        self,
        features: int,
        hidden: Sequence[int] = (200, 200),
        predictor_hidden: Sequence[int] = (200, 200, 200),
        activation: str = "relu",
        batch_norm: bool = False,
        grouping: Grouping | None = None,
    ) -> None:
        self.features = int_at_least("features", features)
        if grouping is not None and grouping.features != self.features:
            raise ValueError(
                f"the grouping carries masks to {grouping.features} features; there are {features}"
            )
        self.hidden, self.predictor_hidden = hidden, predictor_hidden
        self.activation, self.batch_norm = activation, batch_norm
        self._grouping = grouping

    @property
    def event_shape(self) -> tuple[int, ...]:
        """`(D,)`."""
        return (self.features,)

    @property
    def grouping(self) -> Grouping | None:
        """Which columns an entry keeps."""
        return self._grouping

    def selector(self, outputs: int, seed: int | None = None) -> nn.Module:
        """A perceptron, `(N, D)` to `(N, outputs)`."""
        return MLP(self.features, outputs, self.hidden, self.activation, seed)

    def predictor(self, outputs: int, seed: int | None = None) -> nn.Module:
        """A perceptron, `(N, D)` to `(N, outputs)`."""
        layers: dict[str, Any] = {"activation": self.activation, "batch_norm": self.batch_norm}
        return MLP(self.features, outputs, self.predictor_hidden, seed=seed, **layers)

    def coefficients(self, outputs: int, seed: int | None = None) -> nn.Module:
        """A perceptron, `(N, D)` to `(N, outputs · D)`."""
        return MLP(self.features, outputs * self.features, self.hidden, self.activation, seed)

    def feedback(
        self, outputs: int, shown: int, seed: int | None = None
    ) -> tuple[nn.Module, nn.Module | None]:
        """A perceptron of the row and the output after it."""
        seen = self.features + shown
        return MLP(seen, outputs, self.hidden, self.activation, seed), None

    def multiple_imputer(self) -> Imputer:
        """Standard normal noise, for standardised columns."""
        return GaussianImputer()
