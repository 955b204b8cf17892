"""The relaxed program's own gradient."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from lexppl.argument_checks import finite_float
from lexppl.distributions import relaxation
from lexppl.inference.estimators.base import SamplePathEstimator
from lexppl.inference.objective.site import Site


@dataclass(frozen=True)
class Pathwise(SamplePathEstimator):
    """BIASED for the discrete program: masks are relaxed, and the relaxed program's gradient,
    exact for that program, is taken by reparameterisation (Maddison et al. 2017; Jang et al. 2017).

    A distribution that is reparameterised itself (`MaxConcrete`, `RelaxedSubset`, a Dirichlet) is
    drawn as it is, and is not relaxed a second time: then there is no bias.

    Args:
        temperature: t > 0 of the relaxed mask.

    Raises:
        ValueError: a temperature that is not positive.
        TypeError: a distribution without a registered relaxation.

    Example:
        >>> Pathwise(0.5).unbiased
        False
    """

    temperature: float = 0.5
    unbiased: ClassVar[bool] = False

    def __post_init__(self) -> None:
        finite_float("temperature", self.temperature, above=0.0)

    def draw(self, site: Site) -> Tensor | None:
        relaxed = relaxation(site.distribution)
        return relaxed.relaxed(relaxed.noise(), self.temperature)
