"""What factories for tables share: the checks of their numbers, and a predictor of given sizes."""

from collections.abc import Sequence

from lexppl.argument_checks import int_at_least, int_between
from lexppl.models.grouping import Grouping
from lexppl.models.likelihoods import CategoricalLikelihood, NormalLikelihood
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


def table_predictor(
    features: int,
    classes: int | None,
    hidden: Sequence[int],
    activation: str = "relu",
    batch_norm: bool = False,
) -> Predictor:
    """A perceptron with the likelihood of labels, or of a real response where classes is None.

    Example:
        >>> table_predictor(3, None, (8,)).likelihood
        NormalLikelihood()
    """
    check_classes(classes)
    likelihood = NormalLikelihood() if classes is None else CategoricalLikelihood()
    outputs = 1 if classes is None else classes
    network = MLP(features, outputs, hidden, activation, batch_norm=batch_norm)
    return Predictor(network, likelihood)
