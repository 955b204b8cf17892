"""Which networks a system is made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import prod

from torch import nn

from lexppl.models.grouping import Grouping
from lexppl.models.imputers import ConstantImputer
from lexppl.models.imputers.imputer import Imputer


class Architecture(ABC):
    """Which networks a system is made of, for rows of one shape.

    Every factory of :mod:`lexppl.systems` takes one where it takes the number of columns of a
    table: `lex(images((1, 28, 28), patches=4), classes=10, k=5)`. The method is then the same, and
    its networks are these. A subclass says its :attr:`event_shape` and makes two networks,
    :meth:`selector` and :meth:`predictor`; the rest has defaults.

    Example:
        >>> from lexppl.models import images
        >>> architecture = images((1, 8, 8), patches=4, blocks=(4,), levels=1)
        >>> architecture
        ImageArchitecture(rows (1, 8, 8), 4 mask entries)
        >>> architecture.entries, architecture.event_dim, architecture.grouping.names[-1]
        (4, 3, 'r2 c2')
    """

    @property
    @abstractmethod
    def event_shape(self) -> tuple[int, ...]:
        """The shape of a row: `(D,)`, `(C, H, W)`, `(T,)`."""

    @property
    def hidden_shape(self) -> tuple[int, ...]:
        """The shape of a row of which :meth:`imputer` has hidden something; its networks read
        both."""
        return self.event_shape

    @property
    def event_dim(self) -> int:
        """The number of dimensions of a row."""
        return len(self.event_shape)

    @property
    def grouping(self) -> Grouping | None:
        """Which features an entry of a mask keeps; None for one entry a feature."""
        return None

    @property
    def entries(self) -> int:
        """G, the entries of a mask."""
        grouping = self.grouping
        return prod(self.event_shape) if grouping is None else grouping.entries

    @abstractmethod
    def selector(self, outputs: int, seed: int | None = None) -> nn.Module:
        """A network of a number, or of several, for each entry: `(N, *event)` to `(N, outputs)`.

        Args:
            outputs: G, or a multiple m · G of it: the G numbers of the first kind, then those of
                the second …
            seed: of the initial weights, which leaves the global random state as it is; None
                draws them from torch's default generator.
        """

    @abstractmethod
    def predictor(self, outputs: int, seed: int | None = None) -> nn.Module:
        """A network that predicts: `(N, *event)` to `(N, outputs)`.

        Args:
            outputs: such as the logits of C classes.
            seed: as :meth:`selector`.
        """

    def coefficients(self, outputs: int, seed: int | None = None) -> nn.Module:
        """A network of a coefficient for each feature and output: `(N, *event)` to
        `(N, outputs · D)`, by output and then by feature, row-major: what SENN multiplies rows
        with.

        Raises:
            ValueError: rows whose values are no quantities, or an architecture that has none.
        """
        raise ValueError(f"{self._called} has no network of a coefficient for each feature")

    def feedback(
        self, outputs: int, shown: int, seed: int | None = None
    ) -> tuple[nn.Module, nn.Module | None]:
        """A network of a number for each entry that is shown a model's output beside the row.

        Args:
            outputs: as :meth:`selector`.
            shown: numbers of the model's output, such as C probabilities.
            seed: as :meth:`selector`.

        Returns:
            the network, and what joins a row `(N, *event)` and the output `(N, shown)` for it;
            None for putting the one after the other.

        Raises:
            ValueError: an architecture that has none.
        """
        raise ValueError(
            f"{self._called} has no network that is shown a model's output beside the row: give "
            "output_feedback=False"
        )

    def imputer(self) -> Imputer:
        """What stands for `x ⊙ z`, where a method says no more of what it hides: 0."""
        return ConstantImputer(0.0)

    def multiple_imputer(self) -> Imputer:
        """What is drawn for hidden features where a method draws them (LEX) and none is given:
        what :meth:`imputer` puts there, where nothing better is known before the rows."""
        return self.imputer()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rows {self.event_shape}, {self.entries} mask entries)"

    @property
    def _called(self) -> str:
        return f"{type(self).__name__} of rows {self.event_shape}"
