"""What hidden features can be replaced with, by name."""

from collections.abc import Mapping
from types import MappingProxyType

IMPUTERS: Mapping[str, str] = {
    "marginal": "those of a random training row",
    "gaussian": "standard normal noise",
    "conditional-gaussian": "draws from a Gaussian given the kept ones",
    "copula": "draws given the kept ones, by a Gaussian copula of few factors",
    "gaussian-mixture": "draws from a Gaussian mixture given the kept ones",
    "mixture-means": "the means of a mixture's component, drawn by the kept ones",
    "mixture-data": "those of a training row of a mixture's component, drawn by the kept ones",
    "kmeans-data": "those of a random training row of the cluster nearest to the kept ones",
    "constant": "their mean",
}
"""Names, and what hidden features are replaced with."""

OF_PIXELS: Mapping[str, str] = {
    "channel-mean": "the mean of their channel",
    "logistic-mixture": "draws from a mixture of discretised logistics given the kept ones",
    "logistic-means": "the means of such a mixture's component, drawn by the kept ones",
}
"""Those that are for images alone."""

OF_WORDS: Mapping[str, str] = {
    "padding": "padding, as if they were not there",
    "unigram": "words drawn by how frequent they are in the training texts",
    "bigram": "words drawn given the kept ones, by a hidden Markov chain of word classes",
}
"""Those that are for texts."""

NOT_OF_IMAGES = frozenset({"conditional-gaussian", "copula"})
"""Those of tables that images, of hundreds of pixels, have no form of."""

LEARNED: Mapping[str, str] = MappingProxyType(
    {"vaeac": "draws of a variational autoencoder that is given the kept ones"}
)
"""Those that are fitted by gradients, which takes longer: `lexppl impute` has them by name."""

GAP = "gap"
"""What trees take in place of an imputer: of their own accord, so that it is none to choose."""

HOLDING_ROWS = frozenset({"marginal", "mixture-data", "kmeans-data"})
"""Those that hold training rows, which are then saved with the explainer."""
HOLDING_VALUES = frozenset({"copula"})
"""Those that hold the values of each column, sorted, in the same way."""


def data_held_by(name: str) -> str | None:
    """What of the training data an imputer holds, by its name; None for nothing.

    Example:
        >>> data_held_by("copula"), data_held_by("constant")
        ('the values of each column of the training data', None)
    """
    if name in HOLDING_VALUES:
        return "the values of each column of the training data"
    return "rows of the training data" if name in HOLDING_ROWS else None


def hidden_by(name: str) -> str:
    """What hidden features are replaced with, by the imputer of a name.

    Example:
        >>> hidden_by("marginal"), hidden_by("gap")
        ('those of a random training row', 'nothing: they are missing')
    """
    if name == GAP:
        return "nothing: they are missing"
    return {**IMPUTERS, **OF_PIXELS, **OF_WORDS}[name]


def image_imputers() -> dict[str, str]:
    """What hidden pixels can be replaced with, by name.

    Example:
        >>> "logistic-mixture" in image_imputers(), "conditional-gaussian" in image_imputers()
        (True, False)
    """
    every = {**IMPUTERS, **OF_PIXELS, "constant": "0, which is black"}
    return {name: meaning for name, meaning in every.items() if name not in NOT_OF_IMAGES}
