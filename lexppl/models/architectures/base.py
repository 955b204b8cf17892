"""Which networks a system is made of: the base of all architectures, and that of tables."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any, Self

from torch import nn

from lexppl.argument_checks import int_at_least
from lexppl.models.grouping import Grouping
from lexppl.models.imputers.imputer import Imputer
from lexppl.models.imputers.simple import ConstantImputer, GaussianImputer
from lexppl.models.lex import LEX
from lexppl.models.likelihoods import Likelihood
from lexppl.models.networks import MLP
from lexppl.models.penalties import Penalty
from lexppl.models.predictor import Predictor, predictor_with
from lexppl.models.priors import Prior, explainer_with_prior

NONE: Mapping[str, Any] = MappingProxyType({})


class Architecture(ABC):
    """Which networks a system is made of, for rows of one shape.

    Every factory of :mod:`lexppl.systems` takes one where it takes the number of columns of a
    table: `lex(images((1, 28, 28), patches=4), classes=10, k=5)`. A subclass says its
    :attr:`event_shape` and makes two networks, :meth:`selector` and :meth:`predictor`; the rest has
    defaults.
    """

    _fitted: Any = None

    @property
    @abstractmethod
    def event_shape(self) -> tuple[int, ...]:
        """The shape of a row: `(D,)`, `(C, H, W)`, `(T,)`."""

    @property
    def hidden_shape(self) -> tuple[int, ...]:
        """The shape of a row of which :meth:`imputer` has hidden something."""
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
    def selector(self, outputs: int) -> nn.Module:
        """A network of a number, or of several, for each entry: `(N, *event)` to `(N, outputs)`,
        outputs G or m · G: the G numbers of the first kind, then those of the second …"""

    @abstractmethod
    def predictor(self, outputs: int, seed: int | None = None) -> nn.Module:
        """A network that predicts: `(N, *event)` to `(N, outputs)`; `seed` draws its weights,
        leaving the global random state as it is, None from torch's default generator."""

    def starting_from(self, predictor: nn.Module) -> Self:
        """The same with networks that start from one that :meth:`predictor` made and that is
        fitted, if it has such: predictors from a copy, selectors of images from its blocks of their
        shapes, and selectors of texts from its vectors of words."""
        started = copy.copy(self)
        started._fitted = predictor
        return started

    def coefficients(self, outputs: int) -> nn.Module:
        """A network of a coefficient for each feature and output: `(N, *event)` to `(N, outputs ·
        D)`, by output and then by feature, row-major: what SENN multiplies rows with.

        Raises:
            ValueError: an architecture that has none.
        """
        raise ValueError(f"{self._called} has no network of a coefficient for each feature")

    def feedback(self, outputs: int, shown: int) -> tuple[nn.Module, nn.Module | None]:
        """A network of `outputs` numbers, as :meth:`selector`, that is shown a model's output
        beside the row, and what joins a row `(N, *event)` and the output `(N, shown)` for it; None
        for the one after the other.

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
        """What is drawn for hidden features where a method draws them (LEX) and none is given: here
        :meth:`imputer`'s."""
        return self.imputer()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rows {self.event_shape}, {self.entries} mask entries)"

    @property
    def _called(self) -> str:
        return f"{type(self).__name__} of rows {self.event_shape}"


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
        >>> TableArchitecture(11, grouping=Grouping([0] * 10 + [1]))
        TableArchitecture(rows (11,), 2 mask entries)
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
            raise ValueError(f"grouping is of {grouping.features} features; there are {features}")
        self.hidden, self.predictor_hidden = hidden, predictor_hidden
        self.activation, self.batch_norm = activation, batch_norm
        self._grouping = grouping

    @property
    def event_shape(self) -> tuple[int, ...]:
        """Shape of a row, `(D,)`."""
        return (self.features,)

    @property
    def grouping(self) -> Grouping | None:
        """Which columns an entry keeps."""
        return self._grouping

    def selector(self, outputs: int) -> nn.Module:
        """A perceptron, `(N, D)` to `(N, outputs)`."""
        return MLP(self.features, outputs, self.hidden, self.activation)

    def predictor(self, outputs: int, seed: int | None = None) -> nn.Module:
        """A perceptron, `(N, D)` to `(N, outputs)`."""
        widths, norm = self.predictor_hidden, self.batch_norm
        return MLP(self.features, outputs, widths, self.activation, seed, batch_norm=norm)

    def coefficients(self, outputs: int) -> nn.Module:
        """A perceptron, `(N, D)` to `(N, outputs · D)`."""
        return self.selector(outputs * self.features)

    def feedback(self, outputs: int, shown: int) -> tuple[nn.Module, nn.Module | None]:
        """A perceptron of the row and the output after it."""
        return MLP(self.features + shown, outputs, self.hidden, self.activation), None

    def multiple_imputer(self) -> Imputer:
        """Standard normal noise, for standardised columns."""
        return GaussianImputer()


def architecture_of(
    features: int | Architecture,
    grouping: Grouping | None = None,
    usual: Mapping[str, Any] = NONE,
    hidden: Sequence[int] | None = None,
    predictor_hidden: Sequence[int] | None = None,
    **settings: Any,
) -> Architecture:
    """The architecture itself, or that of a table of D `features`; `usual` arguments are the
    method's, widths and `settings` the user's, None where they are left to the method."""
    settings = {"hidden": hidden, "predictor_hidden": predictor_hidden, **settings}
    settings = {name: value for name, value in settings.items() if value is not None}
    if not isinstance(features, Architecture):
        if isinstance(features, list | tuple):
            raise ValueError(
                "features must be the number of a table's columns, or an architecture, such as "
                f"images((1, 28, 28), patches=4); it is {features!r}"
            )
        return TableArchitecture(features, grouping=grouping, **{**usual, **settings})
    kind = type(features).__name__
    if grouping is not None:
        raise ValueError(f"grouping= is of a table's columns; give {kind} its own, not the method")
    if settings:
        raise ValueError(
            f"{', '.join(f'{name}=' for name in settings)} is of a table's perceptrons; "
            f"{kind} has networks of its own"
        )
    return features


def predictor_of(
    architecture: Architecture, classes: int | None, likelihood: Likelihood | None = None
) -> Predictor:
    """An architecture's predictor, over the likelihood of `classes` labels, of a real response
    (None), or over a copy of the one given."""
    return predictor_with(architecture.predictor, classes, likelihood, architecture.event_dim)


def joint_explainer(
    architecture: Architecture,
    selector: nn.Module,
    classes: int | None,
    imputer: nn.Module | None = None,
    prior: Prior | None = None,
    penalties: Sequence[Penalty] = (),
) -> LEX:
    """An explainer whose predictor, the architecture's, learns from the selector's own masks."""
    program = LEX(
        selector,
        architecture.imputer() if imputer is None else imputer,
        predictor_of(architecture, classes),
        penalties,
        architecture.grouping,
    )
    return explainer_with_prior(program, prior)
