"""From what is given to a fit to the modules that it trains: stages, copies, guides."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from pyro.infer.autoguide import AutoGuide
from torch import nn

from lexppl.effects import drawing_weights_first
from lexppl.inference.annealed import annealed
from lexppl.inference.batches import Data
from lexppl.inference.contexts import keep_parameters_local
from lexppl.inference.pyro_objectives import as_objective
from lexppl.inference.replicates.replicate_rows import of_replicate, training_rows
from lexppl.inference.replicates.replicates import reinitialised
from lexppl.inference.stages import LossTerm, Stage, TrainingModules
from lexppl.inference.system import System
from lexppl.inference.training.cross_fitting import (
    cross_fitted,
    learned_predictors,
    refuse_cross_fitted,
)

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
    builders: Sequence[Builder], replicates: int, guides: Sequence[Any], folds: int = 1
) -> list[TrainingModules]:
    """The replicates' own modules, made anew where they can be, else copies of what is given.

    Args:
        builders: of :func:`builder_of`, one, or one for each replicate.
        replicates: R.
        guides: those given, which Pyro makes forget their model when they are copied.
        folds: F, above one to cross-fit the predictors.
    """
    with _models_kept(guides):
        copies = _copies(builders, replicates, folds)
    for one in copies:
        keep_parameters_local(one)
    return copies


def _copies(builders: Sequence[Builder], replicates: int, folds: int) -> list[TrainingModules]:
    def own(make: Callable[[], Sequence[Stage]], anew: bool) -> TrainingModules:
        stages = list(make()) if anew else copy.deepcopy(list(make()))
        refuse_cross_fitted(stages)
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
    longer knows its model. The models' weights with priors are drawn before their plates."""
    modules = [model for model in models if isinstance(model, nn.Module)]
    for model in modules:
        keep_parameters_local(model)
    for guide in guides:
        if not isinstance(guide, AutoGuide) or guide.prototype_trace is not None:
            continue
        keep_parameters_local(guide)
        rows = training_rows(train, torch.get_default_dtype(), "train")
        with torch.no_grad(), ExitStack() as drawing:
            for model in modules:
                drawing.enter_context(drawing_weights_first(model))
            guide(*of_replicate(rows, next(iter(rows.batches(2, shuffle=False))), 0))
