"""What is learned and in what order: terms of a loss, in stages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

import torch
from pyro.infer import ELBO
from torch import Tensor, nn
from torch.optim import Optimizer

from lexppl.argument_checks import int_at_least, one_of
from lexppl.effects import FoldShift
from lexppl.inference.batches import Columns
from lexppl.inference.objective.objective import Objective, Schedule, as_objective
from lexppl.summary import Summarised, Summary, parts_of, some_of
from lexppl.threads import evaluating, own_random_state

OptimizerFactory = Callable[[Iterable[Tensor]], Optimizer]


@dataclass(frozen=True)
class LossTerm:
    """One loss: a program, the objective that turns it into a number, and what it moves.

    Args:
        model: a Pyro program, called with the columns of a batch, `(x, y)`.
        objective: a `pyro.infer.ELBO` with a `differentiable_loss`: :class:`NestedIWAE`,
            `Trace_ELBO`, `TraceMeanField_ELBO` or `TraceEnum_ELBO`.
        guide: the guide, or None.
        learns: the modules whose parameters it moves; None for all of the model's and the guide's.
        weight: factor of the loss.
        spares: modules whose parameters it does not move all the same.
        fold_shift: in a cross-fitted fit, its predictors (:func:`lexppl.effects.fold_shift`).

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


def moved_parts(term: LossTerm) -> Sequence[Any]:
    """What a term moves: modules, or programs that may be some."""
    return (term.model, term.guide) if term.learns is None else term.learns


def learning_parameters(parts: Iterable[Any]) -> set[int]:
    """The parameters that learn, by identity, of those parts that are modules."""
    modules = (part for part in parts if isinstance(part, nn.Module))
    return {id(p) for module in modules for p in module.parameters() if p.requires_grad}


def modules_of(term: LossTerm) -> list[nn.Module]:
    """The modules of a term: its programs, what it learns and what it tunes."""
    parts = (term.model, term.guide, *(term.learns or ()), *term.objective.control_parameters)
    return [part for part in parts if isinstance(part, nn.Module)]


def terms_of(stages: Iterable[Stage]) -> list[LossTerm]:
    """The terms of all stages."""
    return [term for stage in stages for term in stage.terms]


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers of a module, by name."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def stacked_tensors(
    modules: Sequence[nn.Module], names: Iterable[str] | None = None
) -> dict[str, Tensor]:
    """The parameters and buffers of R modules of one architecture, or some of them, `(R, …)`.

    Raises:
        ValueError: modules whose parameters or buffers differ in name or shape.
    """
    tensors = [tensors_of(module) for module in modules]
    if names is not None:
        return {name: torch.stack([state[name].detach() for state in tensors]) for name in names}
    shapes = [{(name, tuple(t.shape)) for name, t in by_name.items()} for by_name in tensors]
    for others in shapes[1:]:
        if differing := sorted(others ^ shapes[0]):
            raise ValueError(
                "replicates must have parameters of the same names and shapes; "
                f"{differing[0][0]!r} is not in all of them alike, {differing}"
            )
    return {name: torch.stack([state[name].detach() for state in tensors]) for name in tensors[0]}


def differing(stacked: Mapping[str, Tensor]) -> list[str]:
    """Names of the tensors `(R, …)` that are not the same in all replicates."""
    return [name for name, values in stacked.items() if bool((values != values[:1]).any())]


def shifted(term: LossTerm) -> AbstractContextManager[Any]:
    """A context with the predictors that a term runs with on training rows."""
    return nullcontext() if term.fold_shift is None else FoldShift(term.fold_shift)


@dataclass(frozen=True)
class Stage:
    """Terms that are minimised together for a number of epochs.

    Args:
        terms: the first one's validation bound chooses the best epoch.
        epochs: how many, or None for the fit's.
        optimizer: from parameters to a torch optimizer, or None for the fit's.
        learning_rate: over the stage, unless the fit is given one; None for the fit's.
        keep: the state to end with: "best" by the validation loss, or "last", as a posterior that
            alone is learned wants. None for "last" where all that learns is guides, else "best".

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
        one_of((None, "best", "last"), "keep", self.keep)

    @property
    def keeps_last(self) -> bool:
        """Whether it ends with its last state, and so chooses none by validation rows."""
        return self.keep == "last" if self.keep is not None else self.learns_guides_alone

    @property
    def learns_guides_alone(self) -> bool:
        """Whether all that it moves is guides: a posterior, of a model that is given."""
        return all(
            term.guide is not None
            and not learning_parameters(p for p in moved_parts(term) if p is not term.guide)
            for term in self.terms
        )


class TrainingModules(nn.Module):
    """All terms of all stages as one module, so that what they share is one parameter.

    A predictor that a term does not move runs as it will predict, without dropout and with
    statistics that stay, as batch norm would else adapt to REAL-X's own masks.
    """

    def __init__(self, stages: Sequence[Stage]) -> None:
        super().__init__()
        self.stages = list(stages)
        terms = terms_of(stages)
        self.programs = nn.ModuleList([module for term in terms for module in modules_of(term)])
        # A list, as copies of terms and modules are made together.
        self._standing = [(term, self._unmoved_predictors(term)) for term in terms]

    def forward(self, term: LossTerm, objective: Objective, batch: Columns) -> Tensor:
        with ExitStack() as modes:
            for predictor in next((held for known, held in self._standing if known is term), ()):
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
        moved = self._names(moved_parts(term))
        spared = set(self._names(term.spares))
        return [name for name in moved if name not in spared]

    def controls_of(self, term: LossTerm) -> list[str]:
        """Names of the parameters that a term tunes on the variance of its gradient."""
        return self._names(term.objective.control_parameters)

    def _names(self, parts: Sequence[Any]) -> list[str]:
        moved = learning_parameters(parts)
        return [name for name, p in self.named_parameters() if id(p) in moved]


@dataclass(frozen=True, repr=False)
class System(Summarised):
    """Programs, bounds and estimators that belong together, ready for `fit`.

    The program that explains is that of the last stage's first term.

    Args:
        build: makes the stages, with new modules at each call, so that replicates differ.
        published: arguments of `fit` as the system's paper has them; `fit` alone uses its own.
        folds: F, by which `fit` cross-fits predictors that learn; 1 for a single predictor.
        at_rows: called by `fit` with the training rows (:class:`TensorRows`), how often each
            counts `(N,)`, or None, and its arguments by name; gives the system that it takes in
            place of this one, and arguments in place of those that are None. None for this system.

    Example:
        >>> from lexppl.systems import l2x
        >>> l2x(3, classes=2, k=1, hidden=(8,), predictor_hidden=(8,)).folds
        1
    """

    build: Callable[[], Sequence[Stage]]
    published: Mapping[str, Any] = field(default_factory=dict)
    folds: int = 1
    at_rows: Callable[..., tuple[System, Mapping[str, Any]]] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "folds", int_at_least("folds", self.folds))
        # Built once, so that a mistake in its numbers is refused where it is made.
        with own_random_state():
            self.build()
        object.__setattr__(self, "published", MappingProxyType(dict(self.published)))

    def summarised(self) -> Summary:
        """The explaining program's parts by role, their parameters, and how they learn."""
        with own_random_state():
            stages = list(self.build())
        term = stages[-1].terms[0]
        estimator = getattr(term.objective, "estimator", None)
        others = [
            f"{type(other.model).__name__} by {type(other.objective).__name__}"
            for other in terms_of(stages)
            if other is not term
        ]
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
        """The program that explains, built anew."""
        return self.build()[-1].terms[0].model

    def to(self, *args: Any, **kwargs: Any) -> System:
        """The system on another device or in another type, as `torch.nn.Module.to` has it.

        Example:
            >>> import torch
            >>> from lexppl.systems import real_x
            >>> stages = real_x(3, classes=2, hidden=(4,)).to(torch.float64).build()
            >>> next(stages[0].terms[0].model.parameters()).dtype
            torch.float64
        """

        def moved(stages: Sequence[Stage]) -> Sequence[Stage]:
            for part in (part for term in terms_of(stages) for part in modules_of(term)):
                part.to(*args, **kwargs)
            return stages

        return self.changed(moved)

    def changed(self, change: Callable[[Sequence[Stage]], Sequence[Stage]]) -> System:
        """The system whose stages a function makes of this one's, also of those chosen by rows."""
        at: Any = self.at_rows

        def at_rows(*arguments: Any) -> tuple[System, Mapping[str, Any]]:
            system, chosen = at(*arguments)
            return system.changed(change), chosen

        return replace(self, build=lambda: change(self.build()), at_rows=at and at_rows)
