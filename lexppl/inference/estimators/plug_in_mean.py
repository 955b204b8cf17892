"""The objective at the mean of the masks' distribution."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from lexppl.inference.estimators.base import SamplePathEstimator
from lexppl.inference.objective.site import Site


@dataclass(frozen=True)
class PlugInMean(SamplePathEstimator):
    """BIASED for the objective over draws; the exact gradient of the objective at the mean mask,

        z = E_q[z | x],

    such as Q-FIT's point estimate `f̄ = α / Σα` (Adamczewski et al., § 3). Reparameterised
    distributions are put at their mean too.

    Raises:
        ValueError: a distribution without a mean.

    Example:
        >>> PlugInMean().unbiased
        False
    """

    unbiased: ClassVar[bool] = False
    draws_reparameterised: ClassVar[bool] = True

    def draw(self, site: Site) -> Tensor | None:
        try:
            mean: Tensor = site.distribution.mean
        except NotImplementedError as error:
            raise ValueError(
                f"PlugInMean needs the mean of site {site.name!r}, and "
                f"{type(site.distribution).__name__} states none; use Pathwise() or LeaveOneOut()"
            ) from error
        return mean
