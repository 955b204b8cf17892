"""Build the modules that a fit trains: stages, R copies of them, guides."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import torch
from pyro.infer.autoguide import AutoGuide
from torch import Tensor, nn

from lexppl.argument_checks import int_at_least
from lexppl.effects import weights_with_priors
from lexppl.inference.batches import (
    Columns,
    Data,
    LoadedRows,
    ReplicateData,
    Rows,
    TensorRows,
    of_replicate,
    training_rows,
)
from lexppl.inference.contexts import keep_parameters_local
from lexppl.inference.nested_iwae import annealed
from lexppl.inference.objective.grammar import refuse_uncovered_latents
from lexppl.inference.objective.objective import as_objective
from lexppl.inference.posterior.automatic_guides import GuideKind, set_up
from lexppl.inference.posterior.global_latents import latents_of, refuse_none, refuse_of_rows
from lexppl.inference.pyro_parameters import (
    FirstRows,
    ProgramFunction,
    floating_type,
    is_program,
    with_module,
    with_parameters,
)
from lexppl.inference.replicates import redraw, reinitialised
from lexppl.inference.stages import LossTerm, Stage, System, TrainingModules, terms_of
from lexppl.inference.training.cross_fitting import (
    PREDICTOR,
    CrossFitted,
    cross_fitted,
    learned_predictors,
    predictors_of,
    refuse_cross_fitted,
)
from lexppl.inference.training.rows import refuse_unlike, weights_by_replicate
from lexppl.threads import own_random_state

Builder = tuple[Callable[[], Sequence[Stage]], bool]
"""What builds the stages, and whether each call builds new modules."""


def builder_of(model: Any, guide: Any, objective: Any, stages: Any) -> Builder:
    """How the stages are built, and whether each call builds new modules."""
    if isinstance(model, System):
        if stages is not None:
            raise ValueError("a System has stages of its own; give one of the two")
        model, stages = None, model.build
    if (model is None) == (stages is None):
        raise ValueError("fit takes either a model or stages")
    if stages is not None:
        if guide is not None or objective is not None:
            raise ValueError("stages, and a System, have their own: leave out guide and objective")
        return (stages, True) if callable(stages) else (lambda: stages, False)
    chosen = annealed() if objective is None else as_objective(objective)
    if is_program(model):
        program = ProgramFunction(model)
        model = program if list(program.children()) else partial(ProgramFunction, model)
    built_anew = not isinstance(model, nn.Module) and isinstance(model, Callable)  # type: ignore[arg-type]

    def build() -> Sequence[Stage]:
        program = with_module(model()) if built_anew else model
        if not isinstance(program, nn.Module):
            raise TypeError(
                "model must be a torch or Pyro module, or a function that builds one; it is "
                f"{type(program).__name__}"
            )
        if not built_anew:
            return [Stage([LossTerm(program, chosen, guide)])]
        return [Stage([LossTerm(program, *copy.deepcopy((chosen, guide)))])]

    return build, built_anew


def folds_of_systems(models: Sequence[Any], builders: Sequence[Builder]) -> int:
    """The number of folds of the systems among the models, where a predictor learns."""
    every = {model.folds if isinstance(model, System) else 1 for model in models}
    if len(every) > 1:
        raise ValueError(f"replicates are cross-fitted alike; folds are {sorted(every)}: give one")
    folds = next(iter(every), 1)
    if folds == 1:
        return 1
    with own_random_state():
        return folds if learned_predictors(builders[0][0]()) else 1


def systems_at(
    models: Sequence[Any], rows: Rows, counts: Tensor | None, arguments: Mapping[str, Any]
) -> tuple[list[Any], Mapping[str, Any]]:
    """The models, with what systems choose by the training rows, and arguments of `fit` that they
    choose."""
    completed: list[Any] = list(models)
    chosen: Mapping[str, Any] = {}
    if isinstance(rows, TensorRows) and len(rows.columns) > 1:
        for place, model in enumerate(models):
            if isinstance(model, System) and model.at_rows is not None:
                completed[place], chosen = model.at_rows(rows, counts, arguments)
    return completed, chosen


def copies_of(
    builders: Sequence[Builder],
    replicates: int,
    guides: Sequence[Any],
    first: FirstRows,
    folds: int = 1,
) -> list[TrainingModules]:
    """The replicates' own modules, made anew where they can be, else copies of what is given."""
    known = [(guide, guide._model) for guide in automatic_guides(guides)]
    try:
        copies = _copies(builders, replicates, first, folds)
    finally:
        # Pyro's automatic guides forget their model when they are copied.
        for guide, model in known:
            guide._model = model
    for modules in copies:
        if replicates > 1 and any(isinstance(guide, nn.Module) for guide in guides):
            redraw(modules, guides_alone=True)
        keep_parameters_local(modules)
    return copies


def _copies(
    builders: Sequence[Builder], replicates: int, first: FirstRows, folds: int
) -> list[TrainingModules]:
    same_gradients: dict[int, bool] = {}

    def made_of(make: Callable[[], Sequence[Stage]], anew: bool) -> TrainingModules:
        stages = list(make()) if anew else copy.deepcopy(list(make()))
        refuse_cross_fitted(stages)
        _place_controls(stages)
        stages = with_parameters(stages, first, PREDICTOR if folds > 1 else None)
        return TrainingModules(
            stages if folds == 1 else cross_fitted(stages, folds, first, same_gradients)
        )

    if len(builders) > 1:
        return [made_of(*builder) for builder in builders]
    (builder,) = builders
    if builder[1]:
        return [made_of(*builder) for _ in range(replicates)]
    modules = made_of(*builder)
    return [modules] if replicates == 1 else [reinitialised(modules) for _ in range(replicates)]


def _place_controls(stages: Sequence[Stage]) -> None:
    """Move what estimators tune to the device of the program; nobody else holds it."""
    for term in terms_of(stages):
        parameters = term.model.parameters() if isinstance(term.model, nn.Module) else ()
        for like in islice(parameters, 1):
            for part in term.objective.control_parameters:
                part.to(like.device)


def set_up_guides(guides: Sequence[Any], models: Sequence[Any], train: Data) -> None:
    """Run Pyro's automatic guides once, which makes their parameters, before they are copied."""
    modules = [model for model in models if isinstance(model, nn.Module)]
    keep_parameters_local(*modules)
    for guide in automatic_guides(guides):
        if guide.prototype_trace is None:
            set_up(guide, modules, _few(train, modules))


def automatic_guides(guides: Iterable[Any]) -> list[AutoGuide]:
    """Pyro's automatic guides among some guides and the parts of others."""
    modules = [guide for guide in guides if isinstance(guide, nn.Module)]
    parts = ([m] if isinstance(m, AutoGuide) else automatic_guides(m.children()) for m in modules)
    return [guide for part in parts for guide in part]


def with_guides(builder: Builder, kind: GuideKind | None, train: Data) -> Builder:
    """What builds the stages, with a guide of a kind for each program with shared latents."""
    if kind is None:
        return builder
    make, anew = builder

    def build() -> Sequence[Stage]:
        stages = make()
        made: dict[int, AutoGuide] = {}
        for term in terms_of(stages):
            program = term.model
            if term.guide is not None or not isinstance(program, nn.Module) or id(program) in made:
                continue
            keep_parameters_local(program)
            few = _few(train, [program])
            with torch.no_grad():
                latents = latents_of(program, few)
            if not latents.shared:
                refuse_of_rows(latents)
            else:
                made[id(program)] = kind(program)
                set_up(made[id(program)], [program], few)
        if not made:
            name = getattr(kind, "__name__", None) or kind.func.__name__  # type: ignore[attr-defined]
            refuse_none({}, f"{name} has nothing to cover", "Or leave guide= out")

        def guided(term: LossTerm) -> LossTerm:
            return replace(term, guide=made.get(id(term.model), term.guide))

        return [replace(stage, terms=[guided(term) for term in stage.terms]) for stage in stages]

    return build, anew


def type_learned(modules: TrainingModules) -> torch.dtype:
    """The floating type of what is learned."""
    learned = next((p for p in modules.parameters() if p.requires_grad), None)
    if learned is None:
        program = modules.stages[-1].terms[0].model
        refuse_uncovered_latents(
            weights_with_priors(program) if isinstance(program, nn.Module) else []
        )
        raise ValueError(
            "there is nothing to learn: no parameter of the model requires a gradient; networks "
            "that a function calls are parts of none: write it as a module that has them as parts"
        )
    return learned.dtype


def _few(train: Data, modules: Sequence[nn.Module]) -> tuple[torch.Tensor, ...]:
    few = first_batch(train, 2, floating_type(modules))
    for module in modules:
        refuse_unlike(module, few[0])
    return few


def first_batch(train: Data, size: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """The first rows to learn from, of the first replicate."""
    rows = training_rows(train, dtype, "train", one_class=True)
    return of_replicate(rows, next(iter(rows.batches(size, shuffle=False))), 0)


def replicates_of(
    replicates: int, models: int | None, train: Any, valid: Any, row_weights: Any = None
) -> int:
    """R, from the number of models, data sets or weights where there is one for each."""
    stated = {
        "replicates": int_at_least("replicates", replicates) if replicates != 1 else None,
        "models": models,
        "data sets of train": len(train) if isinstance(train, ReplicateData) else None,
        "data sets of valid": len(valid) if isinstance(valid, ReplicateData) else None,
        "rows of row_weights": weights_by_replicate(row_weights),
    }
    counts = {name: count for name, count in stated.items() if count is not None}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{count} {name}" for name, count in counts.items())
        raise ValueError(f"each replicate has its model and its data; there are {listed}")
    count = next(iter(counts.values()), 1)
    if count < 1:
        raise ValueError("a list of models needs at least one; it is empty")
    return count


@runtime_checkable
class FitsRows(Protocol):
    """A part that learns from rows by itself, such as `TreePredictor`."""

    def fit_rows(self, x: Tensor, y: Tensor, seed: int = 0, weights: Tensor | None = None) -> None:
        """Fit anew to x `(N, *event)`, y `(N,)` or `(N, C)`, weighted `(N,)`."""


def fit_to_rows(copies: Sequence[TrainingModules], rows: Rows, seed: int) -> None:
    """Fit predictors that learn from rows by themselves, one of fold f to all other folds."""
    for replicate, modules in enumerate(copies):
        for fold, predictor in _waiting(modules):
            if isinstance(rows, LoadedRows):
                raise ValueError(
                    f"{type(predictor).__name__} learns from all rows at once, and a loader gives "
                    "them in batches: give tensors, arrays or a data set"
                )
            weights = None
            columns = list(_of_replicate(rows, fold, replicate))
            if rows.is_weighted:
                weights = columns.pop()
                weights = weights if rows.by_replicate else weights[:, replicate]
            if len(columns) < 2:
                raise ValueError(f"{type(predictor).__name__} learns to predict y; give (x, y)")
            predictor.fit_rows(columns[0], columns[1], seed + replicate, weights)


def _waiting(modules: TrainingModules) -> Iterator[tuple[int | None, FitsRows]]:
    """The parts to be fitted, each once, with the fold that they are kept from."""
    for predictor in predictors_of(modules.stages):
        if isinstance(predictor, CrossFitted):
            by_fold = enumerate(predictor.predictors)
            yield from ((fold, part) for fold, part in by_fold if isinstance(part, FitsRows))
        elif isinstance(predictor, FitsRows):
            yield None, predictor


def _of_replicate(rows: TensorRows, fold: int | None, replicate: int) -> Columns:
    """All rows of a replicate, but for those of a fold."""
    columns = of_replicate(rows, rows.columns, replicate)
    if fold is None or not rows.sizes:
        return columns
    split = (column.split(rows.sizes) for column in columns)
    return tuple(torch.cat([*parts[:fold], *parts[fold + 1 :]]) for parts in split)
