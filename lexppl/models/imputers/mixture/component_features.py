"""What a component of a mixture says of a row: of its features, and by them of itself."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

__all__ = ["ComponentFeatures", "Evidence"]


class ComponentFeatures(Protocol):
    """The features of a row under each of C components; images are flat here.

    `means` and `variances` are those of the features, shape `(C, D)`.
    """

    @property
    def means(self) -> Tensor: ...

    @property
    def variances(self) -> Tensor: ...

    def draw(self, component: Tensor) -> Tensor:
        """Features of rows, shape `(…, D)`.

        Args:
            component: whole numbers below C, of shape `(…, 1)`, one for a whole row, or `(…, D)`:
                then each entry is drawn on its own.
        """

    def log_prob(self, value: Tensor, components: slice) -> Tensor:
        """The log-density of each entry of `value` `(…, D)` under each of some components, shape
        `(…, D, c)`.

        Raises:
            NotImplementedError: where the features are points.
        """


class Evidence(Protocol):
    """How well each feature of the rows fits each of C components, in nats.

    `x` are the rows, shape `(B, D)`.
    """

    @property
    def x(self) -> Tensor: ...

    def of(self, components: slice) -> Tensor:
        """The evidence for some of the components, shape `(B, D, c)`, up to a constant of the
        row's feature.
        """
