"""The nested importance-weighted bound on a masked predictor's likelihood."""

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from lexppl.argument_checks import finite_float, fraction, int_at_least
from lexppl.effects import Progress
from lexppl.inference.estimators.base import GradientEstimator
from lexppl.inference.estimators.leave_one_out import LeaveOneOut
from lexppl.inference.objective.bound import BoundSpec
from lexppl.inference.objective.objective import Moving, Objective
from lexppl.inference.objective.program import ParticleProgram
from lexppl.inference.schedules import Linear, Schedule, at, settles


class NestedIWAE(Objective):
    """Importance-weighted bound with `L` masks and `K` imputations a mask, as a Pyro ELBO.

    For rows `x_n` with masks `z_{n,l} ~ q(z|x_n)` and imputations `x̃_{n,l,k} ~ p(x̃|x_n, z_{n,l})`
    (LEX, Senetaire et al. 2023, eq. 8)

        ℒ_{L,K} = Σ_n E[ log 1/(LK) Σ_{l,k} w_{n,l,k} ]  −  c_R Σ_n E[R]  +  β Σ_n H(q(z|x_n)),
        w = p(y|x̃) p(z|x) p(x̃|x,z) / (q(z|x,y) q(x̃|…)),

    with `ℒ_{1,1} ≤ ℒ_{L,K} → Σ_n log p(y_n|x_n)`. A site that the guide does not cover is proposed
    from the model and cancels from `w`, so that without a guide `w = p(y|x̃)`. Penalties `R`
    (:func:`lexppl.models.penalty`) and the entropy bonus stand outside the log, and so do latents
    outside the particle plates, with their own `log p − log q`.

    **Plates.** Those entered before `mask_particles()` stand outside the log (each row has its
    own), those entered inside it are summed inside. A mask that several rows share, one for all
    rows or one for a group of them, has its rows in one log, `log 1/L Σ_l Π_n p(y_n | z_l)`: enter
    `mask_particles()` before the rows' plate. What else a program may hold is one table, in the
    theory of the objective; a program that it does not hold is refused where Pyro validates, as in
    the first run of a fit, by the name of the site. Without scales the bound is at most log p(y).

    **Scales.** The mini-batch scale `N/B`, and any `pyro.poutine.scale`, stands outside the log.
    With `masks=1, imputations=1` there is no log, and every site has its own scale and plates, as
    in `Trace_ELBO`; with more, sites that share a log must share scale and plates. A scale s of y
    alone, without a guide, tempers what is learned, `s log 1/(LK) Σ w`, and no more:
    :func:`lexppl.explain` weighs masks by the program's own p(y | x, z), as if s were 1. For a
    likelihood to a power in both, write it as `pyro.factor("y", s * log_likelihood)`.

    Use it as `loss = NestedIWAE(masks=10)(model, guide)` with a torch optimizer (the guide may be
    None), through `pyro.infer.SVI`, or in :func:`lexppl.inference.fit`. The value is in nats,
    summed over rows. Schedules are functions of a fit's progress; outside `fit` they stand at
    their end (see :meth:`at`).

    Args:
        masks: `L ≥ 1`, or `math.inf` for the exact log-likelihood with `Enumerate()`.
        imputations: `K ≥ 1`.
        samples: `S ≥ 1` independent copies of the bound, averaged: the same bound, less noise.
            `masks=1, samples=S` is the average of `S` single-mask bounds.
        estimator: how gradients of discrete masks are estimated; a site's own
            `infer={"estimator": …}` takes its place.
        entropy: weight β of the mask distributions' exact entropy (a constant or a schedule);
            fading to 0 it anneals the selector and keeps it from saturating early.
        towards: ρ in (0, 1), the rate of keeping that the annealing draws masks to: the bonus is
            `−β KL(q(z|x) ‖ Bernoulli(ρ))`, which at ½ is the entropy but for a constant. It acts on
            the masks' sizes, and so not on those of a given size. Of masks that are drawn step by
            step (:class:`lexppl.distributions.SequentialMask`) it is `−β KL(q ‖ u)`, at ½ too, u
            going on with probability ρ to any entry alike: an unbiased value by the steps of their
            draws, each exact, which the draws are then judged by.
        penalty: factor `c_R` of all penalties (a constant or a schedule).
        random_masks: share of the fit, in [0, 1), in which masks come from the uniform distribution
            of their family, so that the predictor learns before the selector does.
        copies: `C`, independent draws of the latents outside the particle plates, each with a run
            of the program of its own; None for two where the guide draws some of them from a
            distribution that is not reparameterised, which are then scored against one another,
            else one.

    Raises:
        ValueError: a count below 1, a negative factor at the start or end of its schedule.

    Example:
        >>> import pyro, pyro.distributions as dist, torch
        >>> from lexppl.inference import Enumerate
        >>> from lexppl.models import mask_particles
        >>> def model(y):
        ...     with pyro.plate("data", 1, dim=-1), mask_particles():
        ...         mask = pyro.sample("mask", dist.Bernoulli(torch.full((1,), 0.5)).to_event(1))
        ...         pyro.sample("y", dist.Bernoulli(0.2 + 0.6 * mask[..., 0]), obs=y)
        >>> exact = NestedIWAE(masks=math.inf, estimator=Enumerate())
        >>> round(exact.loss(model, None, torch.ones(1)), 6) == round(-math.log(0.5), 6)
        True

    Reference:
        Senetaire, Garreau, Frellsen, Mattei. Explainability as statistical inference. ICML 2023.
        Burda, Grosse, Salakhutdinov. Importance weighted autoencoders. ICLR 2016.
    """

    reads_scales: ClassVar[bool] = True

    def __init__(
        self,
        masks: float = 10,
        imputations: int = 1,
        *,
        samples: int = 1,
        estimator: GradientEstimator | None = None,
        entropy: float | Schedule = 0.0,
        towards: float = 0.5,
        penalty: float | Schedule = 1.0,
        random_masks: float = 0.0,
        copies: int | None = None,
    ) -> None:
        super().__init__(max_plate_nesting=3)
        masks = math.inf if masks == math.inf else int_at_least("masks", masks)
        imputations = int_at_least("imputations", imputations)
        samples = int_at_least("samples", samples)
        if copies is not None:
            copies = int_at_least("copies", copies)
        for name, schedule in (("entropy", entropy), ("penalty", penalty)):
            ends = (at(schedule, 0.0), at(schedule, 1.0))
            if not all(math.isfinite(value) and value >= 0.0 for value in ends):
                raise ValueError(f"{name} must be finite and at least 0; it goes {ends}")
        random_masks = fraction("random_masks", random_masks, of="the fit", zero=True)
        if estimator is None:
            estimator = LeaveOneOut()
        if not isinstance(estimator, GradientEstimator):
            raise TypeError(f"estimator must be a GradientEstimator; it is {estimator!r}")
        self.masks = masks
        self.imputations = imputations
        self.samples = samples
        self.estimator = estimator
        self.entropy = entropy
        self.towards = fraction("towards", towards)
        self.penalty = penalty
        self.random_masks = random_masks
        self.copies = copies
        self.progress = 1.0
        self._numbers: Mapping[str, Tensor] = {}

    def at(self, progress: float) -> "NestedIWAE":
        other = copy.copy(self)
        other.progress = float(progress)
        return other

    @property
    def moving(self) -> Moving | None:
        own = (type(self).at, type(self).spec)
        if own != (NestedIWAE.at, NestedIWAE.spec):
            return None
        schedules = {"entropy": self.entropy, "penalty": self.penalty}
        # A constant is the same in every step; a schedule's 0 is multiplied by like any number.
        numbers = {n: at(s, self.progress) for n, s in schedules.items() if callable(s)}
        return Moving((self.progress < self.random_masks, *numbers), numbers)

    def with_numbers(self, numbers: Mapping[str, Tensor]) -> "NestedIWAE":
        other = copy.copy(self)
        other._numbers = dict(numbers)
        return other

    @property
    def settled(self) -> float:  # type: ignore[override]
        """The progress from which no schedule changes any more, nor the estimator."""
        schedules = (settles(self.entropy), settles(self.penalty))
        return max(*schedules, self.random_masks, self.estimator.settled)

    @property
    def control_parameters(self) -> tuple[nn.Module, ...]:
        """Modules of the estimator that `fit` tunes to lessen the gradient's variance."""
        return self.estimator.control_parameters

    @property
    def modules(self) -> tuple[nn.Module, ...]:
        return tuple(p for p in vars(self.estimator).values() if isinstance(p, nn.Module))

    @property
    def summary(self) -> str:
        return f"NestedIWAE(masks={self.masks}, imputations={self.imputations})"

    @property
    def spec(self) -> BoundSpec:
        """What is maximised at the present progress."""
        return BoundSpec(
            masks=self.masks,
            imputations=self.imputations,
            samples=self.samples,
            entropy=self._number("entropy", self.entropy),
            towards=self.towards,
            penalty=self._number("penalty", self.penalty),
            random_masks=self.progress < self.random_masks,
            copies=self.copies,
        )

    def _number(self, name: str, schedule: float | Schedule) -> float | Tensor:
        given = self._numbers.get(name)
        return at(schedule, self.progress) if given is None else given

    def differentiable_loss(
        self, model: Callable[..., Any], guide: Callable[..., Any] | None, *args: Any, **kwargs: Any
    ) -> Tensor:
        """Minus the bound, a scalar whose gradient is the estimator's.

        Raises:
            ValueError: the program holds what the objective has no meaning for; the message names
                the site.
        """
        with Progress(self.progress):
            return -self.estimator.estimate(ParticleProgram(model, guide, args, kwargs), self.spec)

    def loss(
        self, model: Callable[..., Any], guide: Callable[..., Any] | None, *args: Any, **kwargs: Any
    ) -> float:
        """Minus the bound, as a number."""
        with torch.no_grad():
            return float(self.differentiable_loss(model, guide, *args, **kwargs))

    def loss_and_grads(
        self, model: Callable[..., Any], guide: Callable[..., Any] | None, *args: Any, **kwargs: Any
    ) -> float:
        """Minus the bound, as a number; gradients are added to the parameters'."""
        loss = self.differentiable_loss(model, guide, *args, **kwargs)
        if loss.requires_grad:
            loss.backward()
        return float(loss.detach())


ENTROPY = 0.1
"""Weight of the annealing at the start of a fit, in units of the information in y."""
COURSE = 0.6, 0.3, 0.8
EARLY_COURSE = 0.4, 0.2, 0.5
"""Of a fit of every λ, whose small λ let the predictor learn meanwhile: later, masks have not
settled when it ends."""


def annealed(
    masks: int = 4,
    imputations: int = 1,
    *,
    unit: float = 1.0,
    course: tuple[float, float, float] = COURSE,
    **options: Any,
) -> NestedIWAE:
    """The bound with the annealing that keeps discrete selectors from collapsing.

    The entropy bonus fades from 0.1 to 0 over the first 60 % of the fit, and penalties grow from 0
    to their full weight between 30 % and 80 %: a distribution that saturates before it depends on x
    has no gradient left, and a penalty must come after the predictor has learned what masks can
    buy. `benchmarks/README.md` measures it.

    Args:
        masks: `L`.
        imputations: `K`.
        unit: what the 0.1 nats are multiplied by: :func:`lexppl.inference.entropy_unit` of y, so
            that the bonus weighs the same against labels of any base rate.
        course: the shares of the fit at which the bonus has faded, and penalties begin and end to
            grow, where 60, 30 and 80 % stand above.
        options: other arguments of :class:`NestedIWAE`, in place of these.

    Raises:
        ValueError: a unit that is not above 0; as :class:`NestedIWAE`.

    Example:
        >>> annealed().settled, annealed(unit=0.5).at(0.0).spec.entropy
        (0.8, 0.05)
    """
    unit = finite_float("unit", unit, above=0.0)
    faded, begin, end = course
    schedule: dict[str, Any] = {
        "entropy": Linear(ENTROPY * unit, 0.0, end=faded),
        "penalty": Linear(0.0, 1.0, begin=begin, end=end),
    }
    return NestedIWAE(masks, imputations, **{**schedule, **options})
