"""Estimators whose gradient is all in how masks are drawn: relaxed, straight-through, at a mean."""

from dataclasses import dataclass
from typing import ClassVar

from pyro.infer.util import is_validation_enabled
from torch import Tensor

from lexppl.argument_checks import finite_float
from lexppl.distributions import relaxation
from lexppl.inference.estimators.base import SamplePathEstimator
from lexppl.inference.objective.bound import BoundSpec, BoundTerms, score_of
from lexppl.inference.objective.site import Site


@dataclass(frozen=True)
class Pathwise(SamplePathEstimator):
    """BIASED for the discrete program: the exact gradient of the program with relaxed masks, by
    reparameterisation (Maddison et al. 2017; Jang et al. 2017).

    A distribution that is reparameterised itself (`MaxConcrete`, a Dirichlet) is drawn as it is,
    without bias.

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


def straight_through(hard: Tensor, soft: Tensor) -> Tensor:
    """The hard mask, bit by bit, with the gradient of the soft one."""
    return hard.detach() + (soft - soft.detach())


@dataclass(frozen=True)
class StraightThrough(Pathwise):
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

    For `KSubset` this is SIMPLE (Ahmed et al. 2023).

    Example:
        >>> MarginalStraightThrough().unbiased
        False
    """

    unbiased: ClassVar[bool] = False

    def draw(self, site: Site) -> Tensor | None:
        return straight_through(site.distribution.sample(), _mean(self, site))


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
        return _mean(self, site)


def _mean(estimator: SamplePathEstimator, site: Site) -> Tensor:
    try:
        mean: Tensor = site.distribution.mean
    except NotImplementedError as error:
        raise ValueError(
            f"{type(estimator).__name__} needs the mean of site {site.name!r}, and "
            f"{type(site.distribution).__name__} states none; use KSubset or Bernoulli masks, or "
            "another estimator, such as LeaveOneOut()"
        ) from error
    return mean


@dataclass(frozen=True)
class Unscored(SamplePathEstimator):
    """Exact where masks are drawn from distributions that do not learn: it adds no term.

    Raises:
        ValueError: a distribution that learns, where Pyro validates.

    Example:
        >>> Unscored().unbiased
        True
    """

    unbiased: ClassVar[bool] = True

    def score_term(self, site: Site, terms: BoundTerms) -> Tensor | float:
        if is_validation_enabled():
            score = score_of(site)
            if score is not None and score.requires_grad:
                raise ValueError(
                    f"the distribution of {site.name!r} learns, and Unscored() gives it no "
                    "gradient; use LeaveOneOut(), or detach the distribution's parameters"
                )
        return 0.0
