"""Fit a program: train replicates of it to their best states, or sample what all rows share."""

import copy
import inspect
import itertools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import torch
from torch import nn

from lexppl.inference.batches import (
    Data,
    LoadedRows,
    ReplicateData,
    Rows,
    TensorRows,
    of_replicate,
    training_rows,
)
from lexppl.inference.contexts import keep_parameters_local, program_settings, seeded
from lexppl.inference.mixed_precision import refuse_unmixed
from lexppl.inference.objective.objective import Schedule
from lexppl.inference.posterior.automatic_guides import guide_kind
from lexppl.inference.posterior.global_draws import SamplerWarning, warn_of, with_convergence
from lexppl.inference.posterior.global_latents import latents_of, refuse_none, refuse_of_rows
from lexppl.inference.posterior.mask_gibbs import MaskGibbs
from lexppl.inference.posterior.mcmc import as_inference
from lexppl.inference.pyro_parameters import (
    PyroParams,
    floating_type,
    holding,
)
from lexppl.inference.replicates import Replicates
from lexppl.inference.stages import OptimizerFactory, Stage, System, TrainingModules, terms_of
from lexppl.inference.training.checkpoint import Checkpoints, SavedState, identity_of
from lexppl.inference.training.diagnostics import collapses, report_collapse, warn_if_moving
from lexppl.inference.training.distributed import processes_of, refuse_processes
from lexppl.inference.training.loop import TrainingLoop
from lexppl.inference.training.preparation import (
    Builder,
    builder_of,
    copies_of,
    first_batch,
    fit_to_rows,
    folds_of_systems,
    replicates_of,
    set_up_guides,
    systems_at,
    type_learned,
    with_guides,
)
from lexppl.inference.training.result import FitResult, History, untrained
from lexppl.inference.training.rows import (
    RowWeighting,
    check_alike,
    data_fields,
    divided_rows,
    refuse_responses,
    refuse_rows,
    refuse_unlike,
    with_labels,
)
from lexppl.inference.training.settings import FitSettings, TrainingOptions
from lexppl.inference.training.watch import Progress, check_progress
from lexppl.summary import counted

READ = ("model", "train", "inference", "seed", "training", "distributed", "progress", "valid")
"""The arguments of `fit` that mean something to an inference."""
BY_ROWS = ("batch_size", "weight_decay")  # None where a system may choose them by the rows


class DefaultShare(float):
    """The share of rows that `fit` sets apart by default, as distinct from a given one."""


def refuse_training_arguments(named: Mapping[str, Any]) -> None:
    """Refuse arguments of training beside an inference, which has settings of its own."""
    defaults = {n: p.default for n, p in inspect.signature(fit).parameters.items()}
    defaults |= vars(TrainingOptions())
    # By their text, as comparing an array to a default has no single truth.
    meaningless = [n for n, v in named.items() if n not in READ and repr(v) != repr(defaults[n])]
    if meaningless:
        raise ValueError(
            f"{', '.join(f'{name}=' for name in meaningless)} mean nothing beside inference=, "
            "which trains nothing by epochs: leave them out; a sampler has settings "
            "itself, as MCMC(NUTS, samples=1000, chains=4)"
        )
    valid = named["valid"]
    if valid is not None and not isinstance(valid, DefaultShare):
        raise ValueError(
            "valid= means nothing beside inference=, which chooses no epoch and is given all rows "
            "of train: leave it out, and judge by rows that are not in train"
        )


def sampled_fit(model: Any, train: Data, inference: Any, *, seed: int, progress: bool) -> FitResult:
    """Draws of a program's global latents given all rows: a result of one "replicate" a chain."""
    method = as_inference(inference)
    program = _program_of(model, seed)
    rows = training_rows(train, floating_type([program]), "train", one_class=True)
    if not isinstance(rows, TensorRows) or rows.by_replicate:
        kind = "a data set for each replicate"
        if isinstance(rows, LoadedRows):
            kind = "a loader, which gives them in batches"
        raise TypeError(f"inference= is given all rows at once, and train is {kind}: give tensors")
    for held in itertools.islice(program.parameters(), 1):
        check_alike(rows.columns[0], held)
    refuse_unlike(program, rows.columns[0])
    for y in rows.columns[1:2]:
        refuse_responses(program, y)
    keep_parameters_local(program)
    columns = rows.columns
    with seeded(seed):
        program = holding(program, PyroParams(), lambda: columns)
    rows = with_labels([program], rows, "train", one_class=True)
    assert isinstance(rows, TensorRows)
    with seeded(seed, rows.columns[0].device), program_settings(validate=True), torch.no_grad():
        refuse_of_rows(latents := latents_of(program, tuple(c[:1] for c in rows.columns)))
        if not isinstance(method, MaskGibbs):
            refuse_none(latents.shared)
    fixed = {name: p.numel() for name, p in program.named_parameters() if p.requires_grad}
    if fixed and program.training:
        warnings.warn(
            f"{sum(fixed.values()):,} numbers of the program ({next(iter(fixed))} and what "
            "follows) have no prior: they stay at the values that they have, and the posterior is "
            "given these. Give them priors, or fit the program before and pass result.model; "
            "program.eval() says that they are meant",
            SamplerWarning,
            stacklevel=3,
        )
    drawn = method.run(program.eval(), rows.columns, seed=seed, progress=progress)
    record = with_convergence(drawn.sampler, drawn.samples)
    if fixed:
        without_prior = f"given {counted(sum(fixed.values()), 'number')} without a prior"
        record = replace(record, note="; ".join(filter(None, (record.note, without_prior))))
    warn_of(record)
    chains = drawn.chains
    return untrained(
        [drawn.model] * chains,
        drawn.guides(),
        seed=seed,
        rows=(len(rows), 0),
        sampler=record,
        **data_fields(train, rows, program, rows.columns[0]),
    )


def _program_of(model: Any, seed: int) -> nn.Module:
    with seeded(seed):
        build, is_new = builder_of(model, None, None, None)
        program: nn.Module = build()[-1].terms[0].model  # type: ignore[assignment]
        return program if is_new else copy.deepcopy(program)


Model = nn.Module | System | Callable[[], nn.Module]
"""A program, a published system, or a function that builds a program."""

VALID_SHARE = DefaultShare(0.2)
"""The default share of the training rows, set apart to choose the epoch; none beside an
inference."""
WATCHED_ROWS = 1000  # Rows of the validation set on which a collapse is looked for


def fit(
    model: Model | Sequence[Model] | None,
    train: Data | ReplicateData,
    valid: Data | ReplicateData | float | None = VALID_SHARE,
    *,
    guide: nn.Module | Callable[..., Any] | None = None,
    inference: Any = None,
    objective: Any = None,
    stages: Sequence[Stage] | Callable[[], Sequence[Stage]] | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    folds: int | None = None,
    row_weights: Any = None,
    sample_weight: Any = None,
    learning_rate: float | Schedule | None = None,
    weight_decay: float | None = None,
    optimizer: OptimizerFactory | None = None,
    replicates: int = 1,
    seed: int = 0,
    checkpoint: str | Path | Checkpoints | None = None,
    training: TrainingOptions | None = None,
    progress: Progress = True,
) -> FitResult:
    """Fit a Pyro program by minimising an objective over epochs, and keep the best state.

    Use it on a program of your own or on a system such as :func:`lexppl.systems.lex`, with a table
    of rows and their labels. The result goes to :func:`lexppl.explain`, which returns the
    explanations.

    Example:
        >>> import torch
        >>> from lexppl.systems import lex
        >>> x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
        >>> system = lex(3, classes=2, k=1, hidden=(8,), predictor_hidden=(8,))
        >>> len(fit(system, (x, (x[:, 0] > 0).long()), epochs=3, progress=False).history)
        3

    The fit trains copies of the model, and leaves global random state, Pyro's settings and its
    parameter store as they are. The first step runs with all of Pyro's argument checks. A fit takes
    no device: it runs where its rows and its model are (`x.to("cuda")`, `model.to("cuda")`).

    Args:
        model: a program called as `model(x, y)`, a module or a function of rows; a function without
            arguments that builds a module; or a :class:`System`. A given model is fitted from its
            weights; of several replicates each draws its own, by `reset_parameters()` or by calling
            the function again. What model or guide states by `pyro.param` is learned by name
            (`result.model.pyro_params`). A list of R models is R replicates trained at once, which
            may differ in numbers (λ, k) and in given tensors.
        train: a data set with `x` and `y`, a tuple `(x, y)` of tensors or arrays, a `DataLoader`,
            :class:`lexppl.data.ParquetRows`, or :class:`ReplicateData`. x is dense, floats of the
            model's type, or whole numbers where the program reads these, as by `nn.Embedding`.
        valid: the same for validation, a share of the training rows, or None. The best epoch has
            the least validation loss, under the objective at the end of its schedules and with the
            same draws. A fifth by default; None where guides alone learn (:class:`Stage`).
        guide: `q(z | x, y)` or that of global latents: a class of Pyro's automatic guides, as
            `AutoNormal` or `partial(AutoLowRankMultivariateNormal, rank=3)`, an instance, a module
            or a function. An automatic guide covers what all rows share. Replicates start from
            copies, whose networks draw weights of their own.
        inference: sample the posterior of what all rows share: `pyro.infer.NUTS` or `HMC`,
            :class:`MCMC`, :class:`MaskGibbs`, or another :class:`PosteriorInference`, given all
            rows of train; parameters without priors stay. The result has a "replicate" for each
            chain.
        objective: a `pyro.infer.ELBO` with a `differentiable_loss`, the sum over the rows of a
            batch times N/B (:class:`Objective`); :func:`annealed` if None. Under `Trace_ELBO`,
            `TraceMeanField_ELBO` and `TraceEnum_ELBO` particle plates have size one, and a guide
            covers every latent that is not enumerated.
        stages: in place of model, guide and objective: stages, or a function that builds them.
        epochs: of each stage without its own; None for what a :class:`System` chooses by the rows
            (:func:`lexppl.systems.lex` does), else 300, and where guides alone learn for 1,000
            steps or more.
        batch_size: rows of a mini-batch (a loader has its own); None for the system's choice, else
            500.
        folds: F ≥ 2 to cross-fit: the program's `predictor` becomes F, each learning from all rows
            but a fold's, and the selector is judged on each row by the one that has not seen it.
            The fitted predictor is their average (:class:`CrossFitted`). A given predictor must not
            have learned from these rows. None for the :class:`System`'s own, else 1.
        row_weights: how often each training row counts, in `Σ_n w_n ℒ_n`; None for once.
            `"dirichlet"`: `w_r ~ N · Dirichlet(1, …, 1)` for replicate r, the weighted-likelihood
            bootstrap (Newton & Raftery 1994). Or weights `(N,)` or `(R, N)`, finite and at least 0.
            What stands outside the plate over rows has no weight, nor has batch norm.
        sample_weight: how often each row stands in the sample, `(N,)`; or a pair, of train `(N,)`
            and of valid `(M,)`. They multiply `row_weights`, and weigh the validation loss too.
        learning_rate: of Adam, a number or a schedule over each stage; None for the system's choice
            or a stage's own, else 1e-3, or 1e-2 where guides alone learn, falling to a twentieth
            over the second half.
        weight_decay: of Adam, an L2 term of the gradient, at least 0; None for the system's choice,
            else 1e-3; never of a guide's parameters, of constrained ones, of those of `pyro.param`
            or with a prior.
        optimizer: from parameters to a torch optimizer, in place of Adam. With replicates it must
            act on each entry by itself, as Adam and SGD do.
        replicates: R independent seeds trained at once.
        seed: of initial weights, batches and draws; the same seed gives the same bits.
        checkpoint: a folder for the fit's state, written each minute at the end of an epoch, or
            :class:`Checkpoints`. The same call goes on from there with the same bits.
        training: what few fits change, as patience, callbacks and compiled steps.
        progress: a progress bar on a terminal or in a notebook; "lines" for a line an epoch on
            standard error; False for nothing.

    Returns:
        FitResult: the fitted models. Ctrl-C ends the fit with the best state so far.

    Raises:
        ValueError, TypeError: a mistake in data or arguments, before any training.
        FloatingPointError: a first epoch of which no step has a finite loss and gradient.
        RuntimeError: another process that shares the fit has failed or ended.
    """
    arguments = dict(locals())
    if isinstance(valid, torch.Tensor | np.ndarray):
        raise TypeError("give x and y as one argument: fit(model, (x, y)), valid=(x, y) or (x,)")
    training = TrainingOptions() if training is None else training
    if not isinstance(training, TrainingOptions):
        raise TypeError(f"training must be TrainingOptions(patience=20, …); it is {training!r}")
    check_progress(progress)
    if inference is not None:
        refuse_training_arguments({**arguments, **vars(training)})
        refuse_processes(training.distributed)
        return sampled_fit(model, train, inference, seed=seed, progress=bool(progress))
    if not (checkpoint is None or isinstance(checkpoint, Checkpoints)):
        checkpoint = Checkpoints(checkpoint)
    several = isinstance(model, list | tuple)
    models: list[Any] = list(model) if isinstance(model, list | tuple) else [model]
    kind = guide_kind(guide)
    guide = None if kind is not None else guide
    stated = {f.name: arguments[f.name] for f in fields(FitSettings) if f.name in arguments}
    stated = {n: v for n, v in stated.items() if v is not None or n not in BY_ROWS}
    settings = FitSettings(**vars(training), **stated)
    count = len(models) if several else None
    replicates = replicates_of(replicates, count, train, valid, row_weights)

    def builders_of(models: Sequence[Any]) -> list[Builder]:
        return [with_guides(builder_of(m, guide, objective, stages), kind, train) for m in models]

    builders = builders_of(models)
    folds = folds_of_systems(models, builders) if folds is None else folds
    processes = processes_of(settings.distributed)
    store = pyro.get_param_store().scope()
    with seeded(seed), program_settings(validate=False), store, processes.joined():
        guides = [guide]
        if stages is not None and not callable(stages):
            guides = [term.guide for term in terms_of(stages)]
        set_up_guides(guides, models, train)
        first = cache(partial(first_batch, train, settings.batch_size))
        copies = copies_of(builders, replicates, guides, first, folds)
        dtype = type_learned(copies[0])
        if settings.precision is not None:
            refuse_unmixed(copies[0], dtype)
        is_posterior = all(stage.learns_guides_alone for stage in copies[0].stages)

        def read(data: Any, name: str, one_class: bool = False) -> Rows:
            checked = training_rows(data, dtype, name, one_class=one_class)
            programs = [term.model for term in terms_of(copies[0].stages)]
            return with_labels(programs, checked, name, one_class)

        rows = read(train, "train", is_posterior)
        weighting = None
        if row_weights is not None or sample_weight is not None:
            weighting = RowWeighting.of(row_weights, rows, replicates, seed, sample_weight)
        if not isinstance(rows, LoadedRows):
            check_alike(rows.columns[0], next(p for p in copies[0].parameters() if p.requires_grad))
        counts = None if weighting is None else weighting.samples
        completed, chosen = systems_at(models, rows, counts, arguments)
        settings = replace(settings, **{n: v for n, v in chosen.items() if arguments[n] is None})
        with seeded(seed):
            if completed != models:
                copies = copies_of(builders_of(completed), replicates, guides, first, folds)
        with seeded(seed):
            if isinstance(valid, DefaultShare) and all(s.keeps_last for s in copies[0].stages):
                valid = None
            rows, held_out, learned_rows = divided_rows(valid, rows, read, weighting, folds)
        for name, part in (("rows to learn from", rows), ("validation rows", held_out)):
            refuse_rows(copies[0].stages, part, name, replicates)
        processes.share(learned_rows, held_out)
        fit_to_rows(copies, learned_rows, seed)
        saved = None
        if checkpoint is not None or processes.count > 1:
            identity = identity_of(settings.identity, copies, learned_rows, held_out)
            if checkpoint is not None:
                saved = SavedState(checkpoint, identity, processes.leads)
            processes.agree({**identity, "checkpoint": str(saved and saved.epochs)})
        runner = Replicates(copies, differ=several)
        with seeded(seed + 1, rows.device):
            loop = TrainingLoop(runner, learned_rows, held_out, settings, saved, processes)
            loop.run()
        with seeded(seed + 2, rows.device):
            result = _result(runner.separated(), loop, train, rows)
    result.row_weights = None if weighting is None else weighting.kind
    if processes.leads:
        report_collapse(result.collapse)
        loop.skipped.report()
        if is_posterior:
            warn_if_moving(result)
    return result


def _result(
    finished: list[TrainingModules], loop: TrainingLoop, train: Any, rows: Rows
) -> FitResult:
    """The result of a loop that has come to its end."""
    watched = loop.held_out if loop.held_out is not None else rows
    # In random order, as rows may be sorted by label or date.
    several, _ = next(watched.weighted_batches(WATCHED_ROWS, shuffle=True))
    batches = [
        tuple(c[:WATCHED_ROWS] for c in of_replicate(watched, several, replicate))
        for replicate in range(len(finished))
    ]
    terms = [modules.stages[-1].terms[0] for modules in finished]
    models, guides = [term.model for term in terms], [term.guide for term in terms]
    objective = terms[0].objective
    none: list[str | None] = [None] * len(terms)
    sizes = steps = None
    if not isinstance(rows, LoadedRows):
        sizes = len(rows), len(loop.held_out or ())
        steps = len(loop.records) * math.ceil(len(rows) / loop.settings.batch_size)
    course = zip(*loop.records, strict=True) if loop.records else ((), (), (), ())
    return FitResult(
        models=models,
        guides=guides,
        objective=objective.at(1.0),
        history=History(*map(np.array, course)),
        best_epoch=loop.best_epoch,
        best_valid=loop.best_valid,
        collapse=collapses(models, guides, batches) if objective.watched else none,
        interrupted=loop.interrupted,
        seed=loop.settings.seed,
        rows=sizes,
        steps=steps,
        modules=list(finished),
        compiled=None if loop.compiled is None else loop.compiled.record,
        skipped_steps=loop.skipped.count,
        ended=loop.skipped.ended,
        **data_fields(train, rows, models[0], batches[-1][0]),
    )
