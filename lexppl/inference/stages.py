"""What is learned and in what order: terms of a loss, in stages."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from pyro.infer import ELBO
from torch import Tensor, nn
from torch.optim import Optimizer

from lexppl.argument_checks import int_at_least
from lexppl.effects import FoldShift
from lexppl.inference.objective.objective import Objective
from lexppl.inference.pyro_objectives import as_objective
from lexppl.inference.schedules import Schedule
from lexppl.summary import Summarised, Summary, parts_of, some_of
from lexppl.threads import evaluating, own_random_state

OptimizerFactory = Callable[[Iterable[Tensor]], Optimizer]


@dataclass(frozen=True)
class LossTerm:
    """One loss: a program, the objective that turns it into a number, and what it moves.

    Args:
        model: a Pyro program, called with the columns of a batch, `(x, y)`.
        objective: a `pyro.infer.ELBO` with a `differentiable_loss`: :class:`NestedIWAE`, or Pyro's
            own `Trace_ELBO`, `TraceMeanField_ELBO` or `TraceEnum_ELBO`, under which a guide covers
            every latent that is not enumerated.
        guide: the guide, or None.
        learns: the modules whose parameters this term's gradient moves; None for all of the
            model's and the guide's. Modules shared by several terms are shared after the fit too.
        weight: factor of the loss.
        spares: modules whose parameters it does not move all the same.
        fold_shift: in a cross-fitted fit, which predictors it runs with
            (:func:`lexppl.effects.fold_shift`).

    Raises:
        TypeError: an objective without a `differentiable_loss`.

    Example:
        >>> from lexppl.inference import NestedIWAE
        >>> LossTerm(lambda x, y: None, NestedIWAE(masks=2)).weight
        1.0
    """

    model: Callable[..., Any]
    objective: ELBO
    guide: Callable[..., Any] | None = None
    learns: Sequence[nn.Module] | None = None
    weight: float = 1.0
    spares: Sequence[nn.Module] = ()
    fold_shift: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "objective", as_objective(self.objective))


def _learns(term: LossTerm) -> bool:
    """Whether a term moves anything but its guide."""
    moved = (term.model,) if term.learns is None else term.learns
    others = [m for m in moved if isinstance(m, nn.Module) and m is not term.guide]
    return any(p.requires_grad for m in others for p in m.parameters())


def learning_parameters(parts: Iterable[Any]) -> set[int]:
    """The parameters that learn, by identity, of those parts that are modules.

    Example:
        >>> len(learning_parameters([nn.Linear(2, 1), None, print]))
        2
    """
    return {
        id(parameter)
        for part in parts
        if isinstance(part, nn.Module)
        for parameter in part.parameters()
        if parameter.requires_grad
    }


def modules_of(term: LossTerm) -> list[nn.Module]:
    """The modules of a term: its programs, what it learns and what it tunes."""
    parts = (term.model, term.guide, *(term.learns or ()), *term.objective.control_parameters)
    return [part for part in parts if isinstance(part, nn.Module)]


def shifted(term: LossTerm) -> AbstractContextManager[Any]:
    """A context with the predictors that a term runs with on training rows.

    Args:
        term: of a stage.
    """
    return nullcontext() if term.fold_shift is None else FoldShift(term.fold_shift)


@dataclass(frozen=True)
class Stage:
    """Terms that are minimised together for a number of epochs.

    Args:
        terms: the terms; the first one's validation bound chooses the best epoch.
        epochs: how many, or None for the fit's.
        optimizer: from parameters to a torch optimizer, or None for the fit's.
        learning_rate: of the stage's optimizer, or of the fit's, over the stage; that which the fit
            is given takes its place. None for the fit's, or the optimizer's own.
        keep: the state that the stage ends with: "best" of its epochs by the validation loss, or
            "last". A posterior that alone is learned wants its last: the bound itself holds it, its
            loss on other rows is that of another posterior, and is taken at a draw. Validation
            losses are then for the record, and patience has no say. None for the last where all
            that learns is guides, else the best.

    Raises:
        ValueError: no terms, fewer than one epoch, another state to keep.
    """

    terms: Sequence[LossTerm]
    epochs: int | None = None
    optimizer: OptimizerFactory | None = None
    learning_rate: Schedule | None = None
    keep: Literal["best", "last"] | None = None

    def __post_init__(self) -> None:
        if not self.terms:
            raise ValueError("a stage needs at least one term")
        if self.epochs is not None:
            int_at_least("epochs of a stage", self.epochs)
        if self.keep not in (None, "best", "last"):
            raise ValueError(f"a stage keeps its 'best' or its 'last' state; it is {self.keep!r}")

    @property
    def keeps_last(self) -> bool:
        """Whether it ends with its last state, and so chooses none by validation rows."""
        if self.keep is not None:
            return self.keep == "last"
        return self.learns_guides_alone

    @property
    def learns_guides_alone(self) -> bool:
        """Whether all that it moves is guides: a posterior, of a model that is given."""
        return all(term.guide is not None and not _learns(term) for term in self.terms)


class TrainingModules(nn.Module):
    """All terms of all stages as one module, so that what they share is one parameter.

    A predictor that a term does not move is run in that term as it will predict: without dropout,
    and by the statistics that it has, which stay. REAL-X's selector would else learn from a
    predictor whose batch norm adapts to the selector's own masks.
    """

    def __init__(self, stages: Sequence[Stage]) -> None:
        super().__init__()
        self.stages = list(stages)
        modules: list[nn.Module] = []
        for stage in stages:
            for term in stage.terms:
                modules += modules_of(term)
        self.programs = nn.ModuleList(modules)
        # A list, as copies of terms and modules are made together.
        self._standing = [
            (term, self._unmoved_predictors(term)) for stage in self.stages for term in stage.terms
        ]

    def forward(self, term: LossTerm, objective: Objective, batch: tuple[Tensor, ...]) -> Tensor:
        with ExitStack() as modes:
            for predictor in next((held for own, held in self._standing if own is term), ()):
                modes.enter_context(evaluating(predictor))
            return objective.differentiable_loss(term.model, term.guide, *batch)

    def _unmoved_predictors(self, term: LossTerm) -> list[nn.Module]:
        """Parts that see a row once for each particle, of whose parameters the term moves none."""
        if not isinstance(term.model, nn.Module):
            return []
        moved = set(self.learned_by(term))
        names = {id(p) for name, p in self.named_parameters() if name in moved}
        return [
            part
            for part in term.model.modules()
            if getattr(part, "sees_particles", False)
            and not any(id(p) in names for p in part.parameters())
        ]

    def learned_by(self, term: LossTerm) -> list[str]:
        """Names of the parameters that a term moves."""
        moved = self._names(term.learns if term.learns is not None else (term.model, term.guide))
        spared = set(self._names(term.spares))
        return [name for name in moved if name not in spared]

    def controls_of(self, term: LossTerm) -> list[str]:
        """Names of the parameters that a term tunes on the variance of its gradient."""
        return self._names(term.objective.control_parameters)

    def _names(self, parts: Sequence[Any]) -> list[str]:
        moved = learning_parameters(parts)
        return [name for name, p in self.named_parameters() if id(p) in moved]


def _no_settings() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, repr=False)
class System(Summarised):
    """Programs, bounds and estimators that belong together, ready for `fit`.

    The program that explains is that of the last stage's first term.

    Args:
        build: makes the stages, with new modules at each call, so that replicates differ.
        published: arguments of `fit` as the system's paper has them; `fit` alone uses its own.
        folds: F, which `fit` cross-fits the predictors with by default and a
            predictor learns; 1 for a single predictor.

    Example:
        >>> from lexppl.inference import fit
        >>> from lexppl.systems import l2x
        >>> system = l2x(3, classes=2, k=1, hidden=(8,), predictor_hidden=(8,))
        >>> import torch
        >>> x = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
        >>> data = (x, (x[:, 0] > 0).long())
        >>> result = fit(system, data, **{**system.published, "epochs": 2}, progress=False)
        >>> type(result.model).__name__
        'LEX'
    """

    build: Callable[[], Sequence[Stage]]
    published: Mapping[str, Any] = field(default_factory=_no_settings)
    folds: int = 1

    def __post_init__(self) -> None:
        # Built once, so that a mistake in its numbers is refused where it is made.
        with own_random_state():
            self.build()
        object.__setattr__(self, "published", MappingProxyType(dict(self.published)))

    def summarised(self) -> Summary:
        """The explaining program's parts by role, with how many numbers each learns, and how they
        are learned."""
        with own_random_state():
            stages = list(self.build())
        term = stages[-1].terms[0]
        estimator = getattr(term.objective, "estimator", None)
        others = [_described(one) for stage in stages for one in stage.terms if one is not term]
        lines = {
            **parts_of(term.model),
            "guide": None if term.guide is None else type(term.guide).__name__,
            "bound": term.objective.summary,
            "estimator": None if estimator is None else type(estimator).__name__,
            "other terms": some_of(others, most=3),
            "stages": None if len(stages) == 1 else str(len(stages)),
            "folds": f"{self.folds} predictors, each without a fold" if self.folds > 1 else None,
            "published": some_of(f"{name}={value!r}" for name, value in self.published.items()),
        }
        return Summary(f"System: {type(term.model).__name__}", lines)

    def program(self) -> Any:
        """The program that explains, built anew.

        Example:
            >>> from lexppl.systems import lex
            >>> type(lex(3, classes=2, k=1, hidden=(4,)).program()).__name__
            'LEX'
        """
        return self.build()[-1].terms[0].model

    def to(self, *args: Any, **kwargs: Any) -> "System":
        """The system on another device or in another type, as `torch.nn.Module.to` has it.

        Args:
            args, kwargs: of `torch.nn.Module.to`.

        Example:
            >>> import torch
            >>> from lexppl.systems import real_x
            >>> stages = real_x(3, classes=2, hidden=(4,)).to(torch.float64).build()
            >>> next(stages[0].terms[0].model.parameters()).dtype
            torch.float64
        """

        def build() -> Sequence[Stage]:
            stages = self.build()
            for stage in stages:
                for term in stage.terms:
                    for part in modules_of(term):
                        part.to(*args, **kwargs)
            return stages

        return System(build, self.published, self.folds)


def _described(term: LossTerm) -> str:
    """A term beside the explainer's, in a few words."""
    return f"{type(term.model).__name__} by {type(term.objective).__name__}"
