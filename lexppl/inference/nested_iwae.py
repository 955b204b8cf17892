"""The nested importance-weighted bound on a masked predictor's likelihood."""

import copy
import math
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar

import torch
from pyro.infer.util import is_validation_enabled
from torch import Tensor, nn

from lexppl.argument_checks import finite_float, fraction, int_at_least
from lexppl.effects import Progress
from lexppl.inference.estimators.base import GradientEstimator
from lexppl.inference.estimators.leave_one_out import LeaveOneOut
from lexppl.inference.objective.bound import BoundSpec
from lexppl.inference.objective.dependence import refuse_dependent_rows
from lexppl.inference.objective.objective import Linear, Moving, Objective, Schedule, at, settles
from lexppl.inference.objective.program import ParticleProgram, Program


class NestedIWAE(Objective):
    """Importance-weighted bound with `L` masks and `K` imputations a mask, as a Pyro ELBO.

    Use it as `objective=` of :func:`lexppl.fit` for a program with masks. More masks L and
    imputations K bring it nearer to the log-likelihood; without it, `fit` takes the one that suits
    the system.

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

    For rows `x_n` with masks `z_{n,l} ~ q(z|x_n)` and imputations `x̃_{n,l,k} ~ p(x̃|x_n, z_{n,l})`
    (LEX, Senetaire et al. 2023, eq. 8)

        ℒ_{L,K} = Σ_n E[ log 1/(LK) Σ_{l,k} w_{n,l,k} ]  −  c_R Σ_n E[R]  +  β Σ_n H(q(z|x_n)),
        w = p(y|x̃) p(z|x) p(x̃|x,z) / (q(z|x,y) q(x̃|…)),

    with `ℒ_{1,1} ≤ ℒ_{L,K} → Σ_n log p(y_n|x_n)`, in nats. A site that no guide covers is proposed
    from the model and cancels from `w`. Penalties `R` (:func:`lexppl.models.penalty`), the entropy
    and latents outside the particle plates stand outside the log.

    Plates entered before `mask_particles()` stand outside the log, those inside it are summed
    inside: a mask that rows share has them in one log, `log 1/L Σ_l Π_n p(y_n | z_l)`. The theory
    of the objective lists what a program may hold; others are refused by the name of the site.

    The scale `N/B` and any `pyro.poutine.scale` stand outside the log, in which sites share scale
    and plates; with `masks=1, imputations=1` there is no log, as in `Trace_ELBO`. A scale of y
    alone tempers what is learned, and not :func:`lexppl.explain`; a power of the likelihood in both
    is `pyro.factor("y", s * log_likelihood)`.

    Use it in :func:`lexppl.inference.fit`, through `pyro.infer.SVI`, or as
    `NestedIWAE(masks=10)(model, guide)`. Schedules stand at their end outside `fit` (:meth:`at`).

    Args:
        masks: `L ≥ 1`, or `math.inf` for the exact log-likelihood with `Enumerate()`.
        imputations: `K ≥ 1`.
        samples: `S ≥ 1` independent copies of the bound, averaged.
        estimator: of gradients of discrete masks; a site's `infer={"estimator": …}` has priority.
        entropy: weight β of the mask distributions' exact entropy, a constant or a schedule.
        towards: ρ in (0, 1): the bonus is `−β KL(q(z|x) ‖ Bernoulli(ρ))`, at ½ the entropy; of
            :class:`lexppl.distributions.SequentialMask` `−β KL(q ‖ u)`, unbiased, u going on with
            probability ρ to any entry alike.
        penalty: factor `c_R` of all penalties, a constant or a schedule.
        random_masks: share of the fit, in [0, 1), with masks of the uniform law of their family.
        copies: `C` draws of latents outside the particle plates, a run each; None for two where the
            guide has some that are not reparameterised, else one.

    Raises:
        ValueError: a count below 1, a negative factor at the start or end of its schedule.

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
        estimator = LeaveOneOut() if estimator is None else estimator
        if not isinstance(estimator, GradientEstimator):
            raise TypeError(f"estimator must be a GradientEstimator; it is {estimator!r}")
        for name, schedule in (("entropy", entropy), ("penalty", penalty)):
            ends = (at(schedule, 0.0), at(schedule, 1.0))
            if not all(math.isfinite(value) and value >= 0.0 for value in ends):
                raise ValueError(f"{name} must be finite and at least 0; it goes {ends}")
        self.masks = math.inf if masks == math.inf else int_at_least("masks", masks)
        self.imputations = int_at_least("imputations", imputations)
        self.samples = int_at_least("samples", samples)
        self.estimator, self.entropy, self.penalty = estimator, entropy, penalty
        self.towards = fraction("towards", towards)
        self.random_masks = fraction("random_masks", random_masks, of="the fit", zero=True)
        self.copies = None if copies is None else int_at_least("copies", copies)
        self.progress = 1.0
        self._numbers: Mapping[str, Tensor] = {}
        self._matched: weakref.WeakKeyDictionary[Any, None] = weakref.WeakKeyDictionary()

    def at(self, progress: float) -> "NestedIWAE":
        other = self._copied()
        other.progress = float(progress)
        return other

    @property
    def moving(self) -> Moving | None:
        if (type(self).at, type(self).spec) != (NestedIWAE.at, NestedIWAE.spec):
            return None
        schedules = {"entropy": self.entropy, "penalty": self.penalty}
        # A constant is the same in every step; a schedule's 0 is multiplied by like any number.
        numbers = {n: at(s, self.progress) for n, s in schedules.items() if callable(s)}
        return Moving((self.progress < self.random_masks, *numbers), numbers)

    def with_numbers(self, numbers: Mapping[str, Tensor]) -> "NestedIWAE":
        other = self._copied()
        other._numbers = dict(numbers)
        return other

    def _copied(self) -> "NestedIWAE":
        other = copy.copy(self)
        other._matched = self._matched
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
        number = self._numbers.get(name)
        return at(schedule, self.progress) if number is None else number

    def differentiable_loss(
        self, model: Program, guide: Program | None, *args: Any, **kwargs: Any
    ) -> Tensor:
        """Minus the bound, a scalar whose gradient is the estimator's.

        Raises:
            ValueError: the program holds what the objective has no meaning for, by the site's name.
        """
        program = ParticleProgram(model, guide, args, kwargs)
        if is_validation_enabled():
            self._match_once(program)
        with Progress(self.progress):
            return -self.estimator.estimate(program, self.spec)

    def _match_once(self, program: ParticleProgram) -> None:
        """Refuse rows that depend on other rows' latents, at the first loss of a model."""
        with suppress(TypeError):  # Of some models no weak reference can be had.
            if program.model in self._matched:
                return
        refuse_dependent_rows(program)
        with suppress(TypeError):
            self._matched[program.model] = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_matched"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _matched=weakref.WeakKeyDictionary())

    def loss(self, model: Program, guide: Program | None, *args: Any, **kwargs: Any) -> float:
        """Minus the bound, as a number."""
        with torch.no_grad():
            return float(self.differentiable_loss(model, guide, *args, **kwargs))

    def loss_and_grads(
        self, model: Program, guide: Program | None, *args: Any, **kwargs: Any
    ) -> float:
        """Minus the bound, as a number; gradients are added to the parameters'."""
        loss = self.differentiable_loss(model, guide, *args, **kwargs)
        if loss.requires_grad:
            loss.backward()
        return float(loss.detach())


ENTROPY = 0.1  # Weight of the annealing at the start of a fit, in units of the information in y
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
    to their full weight between 30 % and 80 % (measured in `benchmarks/README.md`).

    Args:
        masks, imputations: `L` and `K`.
        unit: factor of the 0.1 nats, :func:`lexppl.inference.entropy_unit` of y.
        course: the shares of the fit in place of 60, 30 and 80 %.
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
