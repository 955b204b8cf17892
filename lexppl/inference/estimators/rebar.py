"""Score function with a relaxed control variate."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from lexppl.distributions import Relaxation, relaxation
from lexppl.effects import IMPUTATION_DIM
from lexppl.inference.estimators.base import DrawnEstimator, SampledEstimator
from lexppl.inference.estimators.leaving_one_out import imputation_score
from lexppl.inference.estimators.straight_through import check_temperature, straight_through
from lexppl.inference.estimators.target import Target, per_draw, sampled_bound
from lexppl.inference.program import Program, Run, Site, no_gradient


@dataclass
class _Drawn:
    """One site's hard draw, its noise, and where the random state stood after it."""

    relaxed: Relaxation
    noise: Tensor
    draw: Tensor
    state: Any


@dataclass(frozen=True)
class REBAR(SampledEstimator):
    """Unbiased score function with a relaxed mask as control variate (Tucker et al. 2017, eq. 6).

    With noise ε, hard draw `z = H(ε)`, conditional noise `ε̃ | z` and relaxed masks `σ_t`,

        [f(z) − η f(σ_t(ε̃))] ∇ log q(z) + η ∇ f(σ_t(ε)) − η ∇ f(σ_t(ε̃)),

    where `f` is the objective as a function of all masks of a row. The law needs a registered
    relaxation with noise given the draw: Bernoulli masks (Tucker), and top-k masks by
    Plackett–Luce with the conditional of Gadetsky et al. 2020. The program is run three times, with
    common random numbers for what it draws besides masks.

    Args:
        temperature: t > 0 of the relaxed masks.
        scale: η; 0 is the plain score function.
        straight_through: use hard masks with the relaxed mask's gradient in the control variate,
            for imputers that need hard masks (LEX, App. E.2). BIASED: the gradient that a hard
            mask is given is not that of its expectation.

    Raises:
        ValueError: a temperature that is not positive, a law whose relaxation has no noise given
            the draw, or a guide whose law has no log-probability of relaxed masks.
        TypeError: a law without a registered relaxation.

    Example:
        >>> REBAR().unbiased, REBAR(straight_through=True).unbiased
        (True, False)
    """

    temperature: float = 0.5
    scale: float = 1.0
    straight_through: bool = False

    def __post_init__(self) -> None:
        check_temperature(self.temperature)

    @property
    def unbiased(self) -> bool:  # type: ignore[override]
        return not self.straight_through

    def check(self, site: Site, target: Target) -> None:
        if site.law.has_rsample or not site.is_mask:
            return
        if not relaxation(site.law).has_conditional:
            raise ValueError(
                f"REBAR needs the noise of {site.name!r} given its draw, which "
                f"{type(site.law).__name__} has none of; use TopKMask or Bernoulli masks, or "
                "LeaveOneOut(), which works for any law"
            )

    def surrogate(self, site: Site, run: Run, target: Target) -> Tensor | float:
        raise NotImplementedError("REBAR is chosen for the whole objective")

    def estimate(self, program: Program, target: Target) -> Tensor:
        if not torch.is_grad_enabled() or target.random_masks:
            return _Plain().estimate(program, target)
        drawn: dict[str, _Drawn] = {}

        def hard(site: Site) -> Tensor | None:
            if site.law.has_rsample or not site.is_mask:
                return None
            self.check(site, target)
            relaxed = relaxation(site.law)
            noise = relaxed.noise()
            draw = relaxed.draw(noise)
            drawn[site.name] = _Drawn(relaxed, noise, draw, _random_state(draw))
            return relaxed.mask(draw).detach()

        def soft(noises: dict[str, Tensor]) -> Any:
            def draw(site: Site) -> Tensor | None:
                if site.name not in drawn:
                    return None
                one = drawn[site.name]
                value = one.relaxed.relaxed(noises[site.name], self.temperature)
                if self.straight_through:
                    value = straight_through(one.relaxed.mask(one.draw), value)
                _set_random_state(one.draw, one.state)
                return value

            return draw

        counts = (target.particles, target.imputations)
        run = program.run(*counts, hard)
        _refuse_guided(run, drawn)
        total = target.around(run) + sampled_bound(run, target)
        for site in run.drawn:
            if site.name not in drawn:
                total = total + imputation_score(site, run, target)
        if not drawn:
            return total
        free = program.run(*counts, soft({name: one.noise for name, one in drawn.items()}))
        given = program.run(
            *counts,
            soft({name: one.relaxed.conditional_noise(one.draw) for name, one in drawn.items()}),
        )
        control = sampled_bound(free, target) - sampled_bound(given, target)
        with torch.no_grad():
            signal = _benefit(run, target) - self.scale * _benefit(given, target)
        score = sum(one.relaxed.log_prob(one.draw) for one in drawn.values())
        if not isinstance(score, Tensor):
            return total
        return total + (no_gradient(score) * signal).sum() + self.scale * no_gradient(control)


def _refuse_guided(run: Run, drawn: dict[str, _Drawn]) -> None:
    for name, one in drawn.items():
        if run.sites[name].guided and not one.relaxed.extends_log_prob:
            raise ValueError(
                f"REBAR takes the guide's weights at relaxed masks of {name!r}, where "
                f"{type(one.relaxed.law).__name__} has no smooth log_prob; use Bernoulli masks in "
                "the guide, or LeaveOneOut()"
            )


@dataclass(frozen=True)
class _Plain(DrawnEstimator):
    """The value alone."""

    unbiased: ClassVar[bool] = False


def _benefit(run: Run, target: Target) -> Tensor:
    """The part of the objective that each draw takes part in: `(S·L, B)`."""
    masks = int(target.masks)
    bound = target.bounds(run).unsqueeze(-2)
    benefit = per_draw(bound.expand(*bound.shape[:-2], masks, bound.shape[-1]), run, target)
    for value in run.penalties:
        cost = target.penalty * run.row_scale * value
        cost = cost.mean(IMPUTATION_DIM) if cost.dim() >= -IMPUTATION_DIM else cost
        benefit = benefit - cost / target.particles
    return benefit


def _random_state(like: Tensor) -> Any:
    if like.is_cuda:
        return torch.cuda.get_rng_state(like.device)
    return torch.get_rng_state()


def _set_random_state(like: Tensor, state: Any) -> None:
    if like.is_cuda:
        torch.cuda.set_rng_state(state, like.device)
    else:
        torch.set_rng_state(state)
