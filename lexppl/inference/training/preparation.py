"""From what is given to a fit to the modules that it trains: stages, copies, guides."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from pyro.infer.autoguide import AutoGuide
from torch import nn

from lexppl.inference.annealed import annealed
from lexppl.inference.batches import Data
from lexppl.inference.contexts import keep_parameters_local
from lexppl.inference.objective.grammar import refuse_uncovered_latents
from lexppl.inference.posterior.automatic_guides import GuideKind, set_up
from lexppl.inference.posterior.global_latents import latents_of, refuse_none
from lexppl.inference.pyro_objectives import as_objective
from lexppl.inference.pyro_parameters import (
    FirstRows,
    ProgramFunction,
    floating_type,
    is_program,
    with_parameters,
)
from lexppl.inference.replicates.replicate_rows import of_replicate, training_rows
from lexppl.inference.replicates.replicates import redraw, reinitialised
from lexppl.inference.stages import LossTerm, Stage, TrainingModules
from lexppl.inference.system import System
from lexppl.inference.training.cross_fitting import (
    PREDICTOR,
    cross_fitted,
    learned_predictors,
    refuse_cross_fitted,
)
from lexppl.weights_drawn_first import weights_with_priors

Builder = tuple[Callable[[], Sequence[Stage]], bool]
"""What builds the stages, and whether each call builds new modules."""


def builder_of(model: Any, guide: Any, objective: Any, stages: Any) -> Builder:
    """How the stages are built, and whether each call builds new modules.

    Args:
        model, guide, objective, stages: as given to :func:`fit`.

    Raises:
        ValueError: not one of model and stages; what stages have of their own given beside them.
        TypeError: an objective that cannot be fitted; when built, a model that is no module.
    """
    if isinstance(model, System):
        if stages is not None:
            raise ValueError("a System has stages of its own; give one of the two")
        model, stages = None, model.build
    if (model is None) == (stages is None):
        raise ValueError("fit takes either a model or stages")
    if stages is not None:
        if guide is not None or objective is not None:
            raise ValueError(
                "stages, and a System, have guides and objectives of their own; leave out "
                "guide and objective"
            )
        return (stages, True) if callable(stages) else (lambda: stages, False)
    chosen = annealed() if objective is None else as_objective(objective)
    if is_program(model):
        program = ProgramFunction(model)
        model = program if list(program.children()) else partial(ProgramFunction, model)
    built_anew = not isinstance(model, nn.Module) and isinstance(model, Callable)  # type: ignore[arg-type]

    def build() -> Sequence[Stage]:
        program = model() if built_anew else model
        if not isinstance(program, nn.Module):
            raise TypeError(
                "model must be a torch or Pyro module, or a function that builds one; it is "
                f"{type(program).__name__}"
            )
        if not built_anew:
            return [Stage([LossTerm(program, chosen, guide)])]
        return [Stage([LossTerm(program, *copy.deepcopy((chosen, guide)))])]

    return build, built_anew


def own_folds(models: Sequence[Any], builders: Sequence[Builder]) -> int:
    """The number of folds that the systems among the models ask for, where a predictor learns.

    Raises:
        ValueError: systems of other numbers.
    """
    asked = {one.folds if isinstance(one, System) else 1 for one in models}
    if len(asked) > 1:
        raise ValueError(
            f"replicates are cross-fitted alike; their systems have folds {sorted(asked)}: give one"
        )
    folds = next(iter(asked), 1)
    if folds == 1:
        return 1
    with torch.random.fork_rng(devices=[]):
        return folds if learned_predictors(builders[0][0]()) else 1


def copies_of(
    builders: Sequence[Builder],
    replicates: int,
    guides: Sequence[Any],
    first: FirstRows,
    folds: int = 1,
) -> list[TrainingModules]:
    """The replicates' own modules, made anew where they can be, else copies of what is given.

    Args:
        builders: of :func:`builder_of`, one, or one for each replicate.
        replicates: R.
        guides: those given, which Pyro makes forget their model when they are copied.
        first: gives the first batch of the rows to learn from.
        folds: F, above one to cross-fit the predictors.
    """
    with _models_kept(guides):
        copies = _copies(builders, replicates, first, folds)
    for one in copies:
        if replicates > 1 and any(isinstance(guide, nn.Module) for guide in guides):
            redraw(one, guides_alone=True)
        keep_parameters_local(one)
    return copies


def _copies(
    builders: Sequence[Builder],
    replicates: int,
    first: FirstRows,
    folds: int,
) -> list[TrainingModules]:
    def own(make: Callable[[], Sequence[Stage]], anew: bool) -> TrainingModules:
        stages = list(make()) if anew else copy.deepcopy(list(make()))
        refuse_cross_fitted(stages)
        stages = with_parameters(stages, first, PREDICTOR if folds > 1 else None)
        return TrainingModules(stages if folds == 1 else cross_fitted(stages, folds))

    if len(builders) > 1:
        return [own(*builder) for builder in builders]
    (builder,) = builders
    if builder[1]:
        return [own(*builder) for _ in range(replicates)]
    given = own(*builder)
    if replicates == 1:
        return [given]
    return [reinitialised(given) for _ in range(replicates)]


def guides_of(stages: Sequence[Stage]) -> list[Any]:
    """The guides of all terms."""
    return [term.guide for stage in stages for term in stage.terms]


@contextmanager
def _models_kept(guides: Sequence[Any]) -> Iterator[None]:
    """Pyro's automatic guides forget their model when they are copied; remind them after."""
    known = [(g, g._model) for g in guides if isinstance(g, AutoGuide)]
    try:
        yield
    finally:
        for guide, model in known:
            guide._model = model


def set_up_guides(guides: Sequence[Any], models: Sequence[Any], train: Data) -> None:
    """Run Pyro's automatic guides once, which is when they make their parameters: a copy of one no
    longer knows its model. They cover what all rows share (:func:`set_up`).

    Args:
        guides: those given.
        models: the programs that they are given with, or what builds them.
        train: the training data.
    """
    modules = [model for model in models if isinstance(model, nn.Module)]
    for model in modules:
        keep_parameters_local(model)
    for guide in guides:
        if isinstance(guide, AutoGuide) and guide.prototype_trace is None:
            set_up(guide, modules, _few(train, modules))


def with_guides(builder: Builder, kind: GuideKind | None, train: Data) -> Builder:
    """What builds the stages with a guide of a kind for each program that has none and has latents
    that all rows share.

    Args:
        builder: of :func:`builder_of`.
        kind: a class of automatic guides, or a partial of one; None leaves the builder as it is.
        train: the training data, on a few rows of which the guides are set up.

    Raises:
        ValueError: when built, where no program is left to be guided.
    """
    if kind is None:
        return builder
    make, anew = builder

    def build() -> Sequence[Stage]:
        stages = make()
        made: dict[int, AutoGuide] = {}
        for term in (term for stage in stages for term in stage.terms):
            program = term.model
            if term.guide is not None or not isinstance(program, nn.Module) or id(program) in made:
                continue
            keep_parameters_local(program)
            few = _few(train, [program])
            with torch.no_grad():
                latents = latents_of(program, few)
            if latents.shared:
                made[id(program)] = kind(program)
                set_up(made[id(program)], [program], few)
        if not made:
            name = getattr(kind, "__name__", None) or kind.func.__name__  # type: ignore[attr-defined]
            refuse_none({}, f"{name} has nothing to cover", "Or leave guide= out")
        return [
            replace(
                stage,
                terms=[
                    replace(term, guide=made.get(id(term.model), term.guide))
                    for term in stage.terms
                ],
            )
            for stage in stages
        ]

    return build, anew


def type_learned(modules: TrainingModules) -> torch.dtype:
    """The floating type of what is learned.

    Args:
        modules: of a replicate.

    Raises:
        ValueError: nothing is, by its latents where priors alone are left to learn.
    """
    learned = next((p for p in modules.parameters() if p.requires_grad), None)
    if learned is None:
        program = modules.stages[-1].terms[0].model
        refuse_uncovered_latents(
            weights_with_priors(program) if isinstance(program, nn.Module) else []
        )
        raise ValueError("there is nothing to learn: no parameter of the model requires a gradient")
    return learned.dtype


def _few(train: Data, modules: Sequence[nn.Module]) -> tuple[torch.Tensor, ...]:
    return first_batch(train, 2, floating_type(modules))


def first_batch(train: Data, size: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """The first rows to learn from, of the first replicate.

    Args:
        train: as given to `fit`.
        size: how many; a loader has its own.
        dtype: that arrays are converted to.
    """
    rows = training_rows(train, dtype, "train", one_class=True)
    return of_replicate(rows, next(iter(rows.batches(size, shuffle=False))), 0)
