"""The architecture that a factory is given, or that its number of features means."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from lexppl.models.architectures.architecture import Architecture
from lexppl.models.architectures.table import TableArchitecture
from lexppl.models.grouping import Grouping
from lexppl.models.likelihoods import Likelihood
from lexppl.models.predictor import Predictor
from lexppl.models.table_parts import usual_likelihood

NONE_GIVEN: Mapping[str, Any] = MappingProxyType({})


def architecture_of(
    features: int | Architecture,
    grouping: Grouping | None = None,
    given: Mapping[str, Any] = NONE_GIVEN,
    **usual: Any,
) -> Architecture:
    """The architecture that is given, or the table's that a number of features means.

    Args:
        features: D of a table, or an architecture.
        grouping: of a table's columns; an architecture has its own.
        given: arguments of :class:`TableArchitecture` by name, as the user gave them; None for
            those left to the method.
        usual: the method's own for a table.

    Raises:
        ValueError: no features; a grouping of others; a grouping or widths beside an architecture,
            which has its own.

    Example:
        >>> architecture_of(4, given={"hidden": None}, hidden=(8,)).hidden
        (8,)
    """
    told = {name: value for name, value in given.items() if value is not None}
    if not isinstance(features, Architecture):
        if isinstance(features, list | tuple):
            raise ValueError(
                "features must be the number of a table's columns, or an architecture, such as "
                f"images((1, 28, 28), patches=4); it is {features!r}"
            )
        return TableArchitecture(features, grouping=grouping, **{**usual, **told})
    kind = type(features).__name__
    if grouping is not None:
        raise ValueError(f"grouping= is of a table's columns; give {kind} its own, not the method")
    if told:
        raise ValueError(
            f"{', '.join(f'{name}=' for name in told)} is of a table's perceptrons; "
            f"{kind} has networks of its own"
        )
    return features


def predictor_of(
    architecture: Architecture, classes: int | None, likelihood: Likelihood | None = None
) -> Predictor:
    """An architecture's predictor with the likelihood of labels, or of a real response where
    classes is None.

    A likelihood that is given takes the place of either; a copy of it is learned.

    Raises:
        ValueError: a likelihood of labels without their number, or of responses with one.

    Example:
        >>> predictor_of(TableArchitecture(3, predictor_hidden=(8,)), None).likelihood
        NormalLikelihood()
    """
    likelihood = copy.deepcopy(usual_likelihood(classes, likelihood))
    outputs = likelihood.outputs or classes or 1
    return Predictor(architecture.predictor(outputs), likelihood, architecture.event_dim)
