"""What every gradient estimator is: a way to draw masks and a term that carries their gradient."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from lexppl.inference.estimators.leaving_one_out import imputation_score
from lexppl.inference.estimators.target import Target, sampled_bound
from lexppl.inference.program import Program, Run, Site


class GradientEstimator(ABC):
    """Estimate the objective of a program, with a gradient.

    `unbiased` says whether the expected gradient is that of the expected objective.
    `tuned` are modules that `fit` moves to lessen the gradient's variance.
    """

    unbiased: ClassVar[bool]

    @property
    def tuned(self) -> tuple[nn.Module, ...]:
        """Modules that `fit` tunes to lessen the gradient's variance."""
        return ()

    @abstractmethod
    def estimate(self, program: Program, target: Target) -> Tensor:
        """A scalar whose value estimates the objective (to maximise, in nats over the data) and
        whose gradient estimates the objective's gradient."""


@dataclass(frozen=True)
class Estimate:
    """One estimate as it stands after its run: what a site's estimator can build its term from.

    Args:
        program: to be run again, with other masks.
        target: what is maximised.
        run: the run with hard masks.
        memory: by site, what its estimator remembered of the draw.
    """

    program: Program
    target: Target
    run: Run
    memory: Mapping[str, Any]


class SampledEstimator(GradientEstimator):
    """An estimator that draws `S·L` masks and adds, for each site, a term of value zero whose
    gradient is what differentiating the weights alone would miss.

    A subclass gives :meth:`check`, :meth:`surrogate` and, where masks are not drawn from their
    law as it is, :meth:`draw`; one that remembers more of a draw than the mask, or runs the program
    again, gives :meth:`remembered_draw` and :meth:`surrogates` instead. A reparameterised law is
    drawn as it is: neither `check` nor `draw` is asked. A site's own `infer={"estimator": …}` takes
    the place of the objective's.
    """

    draws_reparameterised: ClassVar[bool] = False
    """Whether reparameterised laws are drawn by the estimator too."""

    def check(self, site: Site, target: Target) -> None:
        """Refuse, before the program goes on, a site that cannot be estimated so."""

    def draw(self, site: Site) -> Tensor | None:
        """The site's value; None leaves it to its law."""
        return None

    def remembered_draw(self, site: Site) -> tuple[Tensor | None, Any]:
        """The site's value, as :meth:`draw`, and what :meth:`surrogates` needs to know of it."""
        return self.draw(site), None

    def surrogate(self, site: Site, run: Run, target: Target) -> Tensor | float:
        """A term of value zero with the site's share of the gradient."""
        return 0.0

    def surrogates(self, sites: Sequence[Site], estimate: Estimate) -> Tensor | float:
        """The term of all the sites that this estimator has."""
        terms = [self.surrogate(site, estimate.run, estimate.target) for site in sites]
        return sum(terms[1:], terms[0])

    def estimate(self, program: Program, target: Target) -> Tensor:
        if math.isinf(target.masks):
            raise ValueError(
                "masks=inf is the exact log-likelihood, which only Enumerate() computes; "
                f"{type(self).__name__} draws a finite number of masks"
            )
        memory: dict[str, Any] = {}

        def draw(site: Site) -> Tensor | None:
            estimator = self._for(site)
            if estimator is None:
                return None
            if site.law.has_rsample and not estimator.draws_reparameterised:
                return None
            if torch.is_grad_enabled():
                estimator.check(site, target)
            value, kept = estimator.remembered_draw(site)
            if kept is not None:
                memory[site.name] = kept
            return value

        run = program.run(target.particles, target.imputations, draw, target.random_masks)
        total = target.around(run) + sampled_bound(run, target)
        shares: dict[int, tuple[SampledEstimator, list[Site]]] = {}
        for site in run.drawn:
            estimator = self._for(site)
            if estimator is None:
                total = total + imputation_score(site, run, target)
            else:
                shares.setdefault(id(estimator), (estimator, []))[1].append(site)
        estimate = Estimate(program, target, run, memory)
        for estimator, sites in shares.values():
            total = total + estimator.surrogates(sites, estimate)
        return total

    def _for(self, site: Site) -> "SampledEstimator | None":
        """The site's estimator; None for latents of an imputation, which leave one another out."""
        estimator = site.infer.get("estimator", self if site.is_mask else None)
        if estimator is not None and not isinstance(estimator, SampledEstimator):
            raise ValueError(
                f"site {site.name!r} asks for the estimator {estimator!r}; a site can choose among "
                "the sampled ones, such as LeaveOneOut(); Enumerate() is chosen for the whole "
                "objective"
            )
        return estimator


class DrawnEstimator(SampledEstimator):
    """An estimator whose gradient is all in how masks are drawn: it adds no term."""
