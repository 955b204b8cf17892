"""Score function with a relaxed control variate."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyro
import torch
from pyro.infer.util import is_validation_enabled
from torch import Tensor, nn

from lexppl.argument_checks import finite_float
from lexppl.distributions import relaxation
from lexppl.distributions.relaxed import Relaxation
from lexppl.inference.contexts import random_state, set_random_state
from lexppl.inference.estimators.base import Estimate, SampledEstimator, imputation_score, per_mask
from lexppl.inference.estimators.sample_path import straight_through
from lexppl.inference.objective.bound import BoundSpec, BoundTerms, shared_with, zero_with_gradient
from lexppl.inference.objective.site import Site


class TunedControl(nn.Module):
    """Temperature and scale of a control variate, which `fit` tunes to lessen the variance.

    As the mean of the gradient g does not depend on them, `∇ Var g = ∇ E[g²]`, which is estimated
    without bias from the same draws (RELAX, Grathwohl et al. 2018, eq. 9).

    Args:
        temperature: where it starts; kept positive by its logarithm.
        scale: where it starts.

    Raises:
        ValueError: a temperature that is not positive.

    Example:
        >>> round(float(TunedControl(temperature=0.5).temperature), 3)
        0.5
    """

    def __init__(self, temperature: float = 0.5, scale: float = 1.0) -> None:
        super().__init__()
        temperature = finite_float("temperature", temperature, above=0.0)
        self._start = (math.log(temperature), float(scale))
        self.log_temperature = nn.Parameter(torch.empty(()))
        self.scale = nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set temperature and scale to their first values."""
        nn.init.constant_(self.log_temperature, self._start[0])
        nn.init.constant_(self.scale, self._start[1])

    @property
    def temperature(self) -> Tensor:
        """The temperature of the relaxed mask, t > 0."""
        return self.log_temperature.exp()


@dataclass
class _Drawn:
    """One site's hard draw, its noise, and where the random state stood after it."""

    relaxed: Relaxation
    noise: Tensor
    draw: Tensor
    state: Any = None


@dataclass(frozen=True)
class REBAR(SampledEstimator):
    """Unbiased score function with a relaxed mask as control variate (Tucker et al. 2017, eq. 6).

    With noise ε, hard draw `z = H(ε)`, conditional noise `ε̃ | z` and relaxed masks `σ_t`,

        [f(z) − η f(σ_t(ε̃))] ∇ log q(z) + η ∇ f(σ_t(ε)) − η ∇ f(σ_t(ε̃)),

    where `f` is the objective as a function of all masks of a row. For Bernoulli masks, and top-k
    masks by Plackett–Luce (Gadetsky et al. 2020). The program runs three times with common random
    numbers.

    Args:
        temperature: t > 0 of the relaxed masks; tuned ones went from 0.5 to 0.14 … 0.38.
        scale: η; 0 is the plain score function.
        straight_through: hard masks with the relaxed gradient in the control variate, for imputers
            that need hard masks (LEX, App. E.2). BIASED.
        control: a :class:`TunedControl` in place of the two numbers, tuned by `fit` (RELAX).

    Raises:
        ValueError: a temperature that is not positive, a distribution whose relaxation has no noise
            given the draw, a latent drawn anew for each imputation, or a mask with another
            estimator whose distribution depends on a relaxed one.
        TypeError: a distribution without a registered relaxation.

    Example:
        >>> REBAR().unbiased, REBAR(straight_through=True).unbiased
        (True, False)
    """

    temperature: float = 0.2
    scale: float = 1.0
    straight_through: bool = False
    control: TunedControl | None = None

    def __post_init__(self) -> None:
        finite_float("temperature", self.temperature, above=0.0)
        if self.control is not None and not isinstance(self.control, TunedControl):
            raise TypeError(f"control must be a TunedControl; it is {type(self.control).__name__}")

    @property
    def unbiased(self) -> bool:  # type: ignore[override]
        return not self.straight_through

    @property
    def control_parameters(self) -> tuple[nn.Module, ...]:
        return () if self.control is None else (self.control,)

    def check(self, site: Site, spec: BoundSpec) -> None:
        if not site.is_mask:
            raise ValueError(
                f"REBAR is for masks, and site {site.name!r} is drawn anew for each imputation; "
                "LeaveOneOut() works for any latent"
            )
        if not relaxation(site.distribution).has_conditional:
            raise ValueError(
                f"REBAR needs the noise of {site.name!r} given its draw, which "
                f"{type(site.distribution).__name__} has none of; use TopKMask or Bernoulli masks, "
                "or LeaveOneOut(), which works for any distribution"
            )

    def remembered_draw(self, site: Site) -> tuple[Tensor | None, Any]:
        if not torch.is_grad_enabled():
            return None, None
        relaxed = relaxation(site.distribution)
        noise = relaxed.noise()
        draw = relaxed.draw(noise)
        memo = _Drawn(relaxed, noise, draw, random_state(draw.device))
        return relaxed.mask(draw).detach(), memo

    def score_terms(self, sites: Sequence[Site], estimate: Estimate) -> Tensor | float:
        hard, spec = estimate.terms, estimate.terms.spec
        drawn = {s.name: estimate.memory[s.name] for s in sites if s.name in estimate.memory}
        if not drawn or spec.random_masks:
            return 0.0
        # What f is at relaxed masks is free to choose; the guide's weights are left out where the
        # distribution has no log-probability of them.
        rough = [name for name, memo in drawn.items() if not memo.relaxed.extends_log_prob]
        held = {
            s.name: s.value
            for s in hard.run.drawn
            if s.is_mask and s.name not in drawn and not s.distribution.has_rsample
        }
        outside = {s.name: s.value for s in hard.run.guide_sites.values() if not s.in_particles}
        temperature, _ = self._numbers
        checked = is_validation_enabled()

        def with_noise(noises: dict[str, Tensor]) -> BoundTerms:
            def draw(site: Site) -> Tensor | None:
                if site.name in outside:
                    return outside[site.name]
                if site.name in held:
                    if checked:
                        _refuse_dependent(site, hard.run.sites, hard.run.guide_sites, list(drawn))
                    return held[site.name]
                if site.name not in drawn:
                    return None
                memo = drawn[site.name]
                # The distribution as it is in this run: it may depend on another site's relaxed
                # mask.
                value = relaxation(site.distribution).relaxed(noises[site.name], temperature)
                if self.straight_through:
                    value = straight_through(memo.relaxed.mask(memo.draw), value)
                set_random_state(memo.draw.device, memo.state)
                return value

            run = estimate.program.run(
                spec.particles,
                spec.imputations,
                draw,
                unweighted=rough,
                subsamples=hard.run.subsamples,
            )
            return BoundTerms(run, spec)

        # Relaxed masks are in no discrete distribution's support.
        with pyro.validation_enabled(False):
            free = with_noise({name: memo.noise for name, memo in drawn.items()})
            conditional = {n: d.relaxed.conditional_noise(d.draw) for n, d in drawn.items()}
            last = next(iter(drawn.values())).draw.device
            ahead = random_state(last)
            conditioned = with_noise(conditional)
            # Else the next step's masks would have this step's conditional noise.
            set_random_state(last, ahead)
            return self._score_term(sites, drawn, hard, free, conditioned)

    def _score_term(
        self,
        sites: Sequence[Site],
        drawn: Mapping[str, _Drawn],
        hard: BoundTerms,
        free: BoundTerms,
        conditioned: BoundTerms,
    ) -> Tensor:
        """A term of value zero with the gradient of the formula, from its three sets of masks."""
        _, scale = self._numbers
        control = _with_scores(free) - _with_scores(conditioned)
        # The score's value is zero, so that a tuned signal passes no gradient but its own
        # variance.
        total: Tensor = scale * zero_with_gradient(control)
        for site in sites:
            if site.name not in drawn:
                continue
            memo = drawn[site.name]
            with torch.set_grad_enabled(self.control is not None):
                signal = _benefit(site, hard).detach() - scale * _benefit(site, conditioned)
            score = site.summed(memo.relaxed.log_prob(memo.draw))
            total = total + (zero_with_gradient(score) * signal).sum()
        return total

    @property
    def _numbers(self) -> tuple[float | Tensor, float | Tensor]:
        """Temperature and scale."""
        if self.control is None:
            return self.temperature, self.scale
        return self.control.temperature, self.control.scale


def _refuse_dependent(
    site: Site, sites: Mapping[str, Site], guide_sites: Mapping[str, Site], relaxed: list[str]
) -> None:
    hard = guide_sites.get(site.name) or sites[site.name]
    if hard.value is None:
        return
    if not torch.allclose(
        site.distribution.log_prob(hard.value), hard.distribution.log_prob(hard.value)
    ):
        raise ValueError(
            f"the distribution of {site.name!r} depends on {relaxed}, which REBAR relaxes: its "
            f"draws cannot be held meanwhile. Choose REBAR for {site.name!r} too, or LeaveOneOut() "
            "for all"
        )


def _with_scores(terms: BoundTerms) -> Tensor:
    """The objective of a relaxed run, with the scores of what its imputations draw."""
    total = terms.inside
    for site in terms.run.drawn:
        if site.in_imputations:
            total = total + imputation_score(site, terms)
    return total


def _benefit(site: Site, terms: BoundTerms) -> Tensor:
    """The part of the objective that each draw of a site takes part in: `(…, S·L, B)`."""
    shares = [
        shared_with(site, weight.to_nats(weight.by_mask(weight.bounds)), weight.plates)
        for weight in terms.log_weights
    ]
    for average in terms.averages_of(site):
        value = per_mask(average.value) / terms.spec.particles
        shares.append(shared_with(site, value, average.plates))
    return sum(shares[1:], shares[0])
