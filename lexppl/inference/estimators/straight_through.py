"""Biased estimators that differentiate through a hard mask as if it were soft."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from lexppl.argument_checks import finite_float
from lexppl.distributions import relaxation
from lexppl.inference.estimators.base import SamplePathEstimator
from lexppl.inference.objective.bound import BoundSpec
from lexppl.inference.objective.site import Site


def straight_through(hard: Tensor, soft: Tensor) -> Tensor:
    """The hard mask, bit by bit, with the gradient of the soft one.

    Example:
        >>> import torch
        >>> soft = torch.tensor([0.3, 0.9], requires_grad=True)
        >>> straight_through(torch.tensor([0.0, 1.0]), soft).tolist()
        [0.0, 1.0]
    """
    return hard.detach() + (soft - soft.detach())


@dataclass(frozen=True)
class StraightThrough(SamplePathEstimator):
    """BIASED: hard masks forward, the relaxed mask's gradient backward (Bengio et al. 2013).

        z = hard(ε) + (soft_t(ε) − stop(soft_t(ε))),   both of one noise ε.

    Args:
        temperature: t > 0 of the relaxed mask.

    Raises:
        ValueError: a temperature that is not positive.
        TypeError: a distribution without a registered relaxation.

    Example:
        >>> StraightThrough(0.5).unbiased
        False
    """

    temperature: float = 0.5
    unbiased: ClassVar[bool] = False

    def __post_init__(self) -> None:
        finite_float("temperature", self.temperature, above=0.0)

    def check(self, site: Site, spec: BoundSpec) -> None:
        if not relaxation(site.distribution).exact:
            raise ValueError(
                "StraightThrough needs hard and soft masks of one noise, and "
                f"{type(site.distribution).__name__} of site {site.name!r} has none; use TopKMask, "
                "or MarginalStraightThrough()"
            )

    def draw(self, site: Site) -> Tensor | None:
        relaxed = relaxation(site.distribution)
        noise = relaxed.noise()
        return straight_through(relaxed.hard(noise), relaxed.relaxed(noise, self.temperature))


@dataclass(frozen=True)
class MarginalStraightThrough(SamplePathEstimator):
    """BIASED, and of low variance: hard masks forward, the distribution's exact marginals backward.

        z = hard + (E[z|x] − stop(E[z|x])).

    For `KSubset` this is SIMPLE (Ahmed et al. 2023), whose marginals are those of the k-subset
    distribution itself; no relaxation and no temperature.

    Example:
        >>> MarginalStraightThrough().unbiased
        False
    """

    unbiased: ClassVar[bool] = False

    def draw(self, site: Site) -> Tensor | None:
        try:
            mean = site.distribution.mean
        except NotImplementedError as error:
            raise ValueError(
                "MarginalStraightThrough needs exact marginals, and "
                f"{type(site.distribution).__name__} of site {site.name!r} states none; use "
                "KSubset or Bernoulli masks"
            ) from error
        return straight_through(site.distribution.sample(), mean)
