"""Conditional distributions of the hidden features given the kept ones, and those of a name."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from lexppl.argument_checks import one_of
from lexppl.choices.imputers import GAP, IMPUTERS, OF_PIXELS
from lexppl.models.imputers.conditional_gaussian import ConditionalGaussianImputer
from lexppl.models.imputers.copula import CopulaImputer
from lexppl.models.imputers.imputer import Imputer, repeated_rows, some_rows
from lexppl.models.imputers.logistics import (
    DiscretizedLogisticMeansImputer,
    DiscretizedLogisticMixtureImputer,
)
from lexppl.models.imputers.mixture import (
    GaussianMixtureImputer,
    MixtureImputer,
    MixtureMeansImputer,
)
from lexppl.models.imputers.rows import KMeansDataImputer, MixtureDataImputer
from lexppl.models.imputers.simple import (
    ConstantImputer,
    GapImputer,
    GaussianImputer,
    MarginalImputer,
)

REFERENCE_ROWS = 5000
"""Most training rows that an imputer keeps, and that are saved with the explainer."""

COMPONENTS = 20
"""Components of a mixture, or clusters; as many as there are rows where those are fewer."""

MIXTURES: dict[str, type[MixtureImputer]] = {
    "gaussian-mixture": GaussianMixtureImputer,
    "mixture-means": MixtureMeansImputer,
    "logistic-mixture": DiscretizedLogisticMixtureImputer,
    "logistic-means": DiscretizedLogisticMeansImputer,
}
OF_ROWS: dict[str, Any] = {"mixture-data": MixtureDataImputer, "kmeans-data": KMeansDataImputer}


def imputer_of(name: str, x: Tensor, seed: int, groups: Sequence[int] | None = None) -> Imputer:
    """The imputer of a name of :data:`lexppl.choices.imputers.IMPUTERS`, of images also of
    `OF_PIXELS`, fitted on training rows `(N, D)` or `(N, C, H, W)`; `groups` are the entries of a
    table's features."""
    known = [*IMPUTERS, *(OF_PIXELS if x.ndim > 2 else ())]
    if name != GAP:
        one_of(known, "imputer", name)
    components = min(COMPONENTS, len(x))
    if name in MIXTURES:
        return MIXTURES[name].fit(x, components, seed)
    if name in OF_ROWS:
        return OF_ROWS[name].fit(x, components, seed, reference=some_rows(x, REFERENCE_ROWS, seed))
    others: dict[str, Callable[[], Imputer]] = {
        "marginal": lambda: MarginalImputer(some_rows(x, REFERENCE_ROWS, seed)),
        "gaussian": lambda: GaussianImputer().to(x.device, x.dtype),
        "conditional-gaussian": lambda: ConditionalGaussianImputer.fit(x),
        "copula": lambda: CopulaImputer.fit(x, groups, seed=seed),
        "constant": lambda: ConstantImputer(0.0).to(x.device, x.dtype),
        "channel-mean": lambda: ConstantImputer(
            x.mean((0, 2, 3), keepdim=True)[0].expand(x.shape[1:]).clone()
        ),
        GAP: GapImputer,
    }
    return others[name]()


def imputer_by_dependence(
    x: Tensor, groups: Sequence[int] | None, seed: int, weights: Tensor | None = None
) -> Imputer:
    """A copula of training rows `(N, D)`, of which each counts as often as its weight says, where
    their columns depend, else their margins."""
    x = repeated_rows(x, weights, seed)
    copula = CopulaImputer.fit(x, groups, seed=seed)
    return copula if copula.factors else imputer_of("marginal", x, seed)
