"""What factories for tables share: the checks of their numbers, and a predictor of given sizes."""

import copy
from collections.abc import Sequence

from lexppl.argument_checks import int_at_least, int_between
from lexppl.models.grouping import Grouping
from lexppl.models.likelihoods import (
    BernoulliLikelihood,
    CategoricalLikelihood,
    Likelihood,
    NormalLikelihood,
)
from lexppl.models.networks import MLP
from lexppl.models.predictor import Predictor


def mask_entries(features: int, grouping: Grouping | None) -> int:
    """G: one entry a feature where there is no grouping.

    Raises:
        ValueError: no features, or a grouping of another number of them.
    """
    features = int_at_least("features", features)
    if grouping is None:
        return features
    if grouping.features != features:
        raise ValueError(
            f"the grouping carries masks to {grouping.features} features; there are {features}"
        )
    return grouping.entries


def check_size(k: int, entries: int) -> None:
    """Refuse a k that is not from 1 to G."""
    int_between("k", k, 1, entries, note="the mask entries")


def check_classes(classes: int | None) -> None:
    """Refuse fewer than two classes."""
    if classes is not None:
        int_at_least("classes", classes, 2, note="or None for a response")


def check_likelihood(likelihood: Likelihood, classes: int | None) -> None:
    """Refuse a likelihood of labels without their number, or of responses with one."""
    if not isinstance(likelihood, Likelihood):
        named = getattr(likelihood, "__name__", type(likelihood).__name__)
        raise TypeError(
            f"likelihood must be a Likelihood, such as NormalLikelihood(); it is {named}"
        )
    name = type(likelihood).__name__
    if likelihood.discrete and classes is None:
        raise ValueError(f"{name} is of labels: give classes=, how many there are")
    if not likelihood.discrete and classes is not None:
        raise ValueError(f"{name} is of responses, which have no classes: give classes=None")
    own = getattr(likelihood, "classes", classes)
    if own != classes:
        raise ValueError(f"{name} is of {own} classes, and classes is {classes}")
    if isinstance(likelihood, BernoulliLikelihood) and classes != 2:
        raise ValueError(f"{name} is of two labels, and classes is {classes}")


def usual_likelihood(classes: int | None, likelihood: Likelihood | None) -> Likelihood:
    """The likelihood that is given, else that of labels, or of a real response.

    Raises:
        ValueError: a likelihood of labels without their number, or of responses with one.
    """
    check_classes(classes)
    if likelihood is None:
        likelihood = NormalLikelihood() if classes is None else CategoricalLikelihood()
    check_likelihood(likelihood, classes)
    return likelihood


def table_predictor(
    features: int,
    classes: int | None,
    hidden: Sequence[int],
    activation: str = "relu",
    batch_norm: bool = False,
    likelihood: Likelihood | None = None,
) -> Predictor:
    """A perceptron with the likelihood of labels, or of a real response where classes is None.

    A likelihood that is given takes the place of either; a copy of it is learned.

    Raises:
        ValueError: a likelihood of labels without their number, or of responses with one.

    Example:
        >>> table_predictor(3, None, (8,)).likelihood
        NormalLikelihood()
    """
    likelihood = copy.deepcopy(usual_likelihood(classes, likelihood))
    outputs = likelihood.outputs or classes or 1
    network = MLP(features, outputs, hidden, activation, batch_norm=batch_norm)
    return Predictor(network, likelihood)
