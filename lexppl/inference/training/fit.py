"""Fit a program: check the arguments, train replicates of it, and return the best states."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyro
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from lexppl.inference.batches import Data, LoadedRows
from lexppl.inference.contexts import program_settings, seeded
from lexppl.inference.mixed_precision import Precision, refuse_unmixed
from lexppl.inference.posterior.automatic_guides import guide_kind
from lexppl.inference.replicates.replicate_rows import (
    ReplicateData,
    Rows,
    of_replicate,
    training_rows,
)
from lexppl.inference.replicates.replicates import Replicates
from lexppl.inference.sampled_fit import DefaultShare, refuse_training_arguments, sampled_fit
from lexppl.inference.schedules import Schedule
from lexppl.inference.stages import OptimizerFactory, Stage, System, TrainingModules
from lexppl.inference.training.checkpoint import Checkpoints, SavedState, identity_of
from lexppl.inference.training.collapse import collapses, report_collapse
from lexppl.inference.training.distributed.processes import (
    Processes,
    processes_of,
    refuse_processes,
)
from lexppl.inference.training.distributed.shared_step import refuse_loaded
from lexppl.inference.training.loop import TrainingLoop
from lexppl.inference.training.preparation import (
    builder_of,
    copies_of,
    first_batch,
    fit_to_rows,
    folds_of_systems,
    guides_of,
    replicates_of,
    set_up_guides,
    type_learned,
    with_guides,
)
from lexppl.inference.training.result import FitResult, History
from lexppl.inference.training.rows.row_weights import RowWeighting, divided_rows
from lexppl.inference.training.rows.rows import check_alike, data_fields, refuse_rows
from lexppl.inference.training.settings import WEIGHT_DECAY, Backend, FitSettings, refuse_instances
from lexppl.inference.training.settled import warn_if_moving
from lexppl.inference.training.watch import Callback, Progress, check_progress

Model = nn.Module | System | Callable[[], nn.Module]
"""A program, a published system, or a function that builds a program."""

VALID_SHARE = DefaultShare(0.2)
"""The default share of the training rows, set apart to choose the epoch; none beside an
inference."""
WATCHED_ROWS = 1000
"""Rows of the validation set on which a collapse is looked for."""


def fit(
    model: Model | Sequence[Model] | None,
    train: Data | ReplicateData,
    *,
    valid: Data | ReplicateData | float | None = VALID_SHARE,
    guide: nn.Module | Callable[..., Any] | None = None,
    inference: Any = None,
    objective: Any = None,
    stages: Sequence[Stage] | Callable[[], Sequence[Stage]] | None = None,
    epochs: int | None = None,
    batch_size: int = 500,
    folds: int | None = None,
    row_weights: Any = None,
    sample_weight: Any = None,
    learning_rate: float | Schedule | None = None,
    weight_decay: float = WEIGHT_DECAY,
    optimizer: OptimizerFactory | None = None,
    scheduler: Callable[[Optimizer], LRScheduler] | None = None,
    clip_norm: float | None = None,
    patience: int | None = None,
    replicates: int = 1,
    seed: int = 0,
    callbacks: Iterable[Callback] = (),
    checkpoint: str | Path | Checkpoints | None = None,
    compile: bool | Backend = False,
    precision: Precision | None = None,
    distributed: Any = None,
    progress: Progress = True,
    device: None = None,
) -> FitResult:
    """Fit a Pyro program by minimising an objective over epochs, and keep the best state.

    The model that is given is left as it is: the fit trains copies, and leaves the global random
    state, Pyro's settings and its parameter store untouched. The first step is run once with all
    of Pyro's argument checks, before any training.

    Args:
        model: a program called as `model(x, y)`, a module or a function of rows; a function without
            arguments that builds a module; or a published :class:`System`. A model that is
            given is fitted from the weights it has; with several replicates each draws initial
            weights of its own, by `reset_parameters()` or by calling the function again. What it
            or the guide states by `pyro.param` is learned as well, within its constraint, by name:
            a name is one parameter in both, as in Pyro's store, which is neither read nor written.
            The fitted programs hold the values (`result.model.pyro_params`).
            A list of R of them is R replicates, which may differ in numbers (λ, k, a constant to
            impute) and in given tensors, and are trained at once all the same.
        train: a data set with `x` and `y`, a tuple `(x, y)` of tensors or arrays, a
            `DataLoader`, :class:`lexppl.data.ParquetRows` of files larger than memory, or with
            :class:`ReplicateData` one data set for each replicate.
        valid: the same for validation, a share of the training rows to set apart, or None. The
            best epoch is the one with the least validation loss, under the objective at the end
            of its schedules and with the same draws at every epoch. A fifth by default, and None
            where guides alone learn: they are posteriors of all rows, and end with their last
            state (:class:`Stage`).
        guide: the guide `q(z | x, y)` or that of global latents, if there is one: a class of Pyro's
            automatic guides, as `AutoNormal` or `partial(AutoLowRankMultivariateNormal, rank=3)`;
            an instance of one; a module; or a function. An automatic guide covers what all rows
            share (weights with priors, a global scale), and no masks nor latents of rows: nothing
            is to be blocked. Replicates start from copies of it, whose networks, as whatever has
            `reset_parameters()`, draw weights of their own.
        inference: sample the posterior of what all rows share, in place of training:
            `pyro.infer.NUTS` or `HMC`, :class:`MCMC`, or another :class:`PosteriorInference`.
            Parameters without priors stay as they are given, all rows of train are conditioned on
            (`valid` is None), and of the other arguments seed and progress alone are read. The
            result has a "replicate" for each chain: one program, and its draws as guides.
        objective: a `pyro.infer.ELBO` with a `differentiable_loss`; :func:`annealed` if None. Under
            Pyro's own `Trace_ELBO`, `TraceMeanField_ELBO` and `TraceEnum_ELBO` the particle plates
            have size one, and a guide covers every latent that is not enumerated.
        stages: in place of model, guide and objective: terms to be minimised together, stage
            after stage, or a function that builds them.
        epochs: epochs of each stage that has none of its own; None for 300, and where guides alone
            learn for as many more as make 1,000 steps.
        batch_size: rows of a mini-batch (a loader has its own).
        folds: F ≥ 2 to cross-fit: the part of a program called `predictor` becomes F of them, each
            learning from all training rows but a fold's, and what else learns (the selector) is
            judged on each row by the predictor that has not seen it, so that a column that only
            lets a predictor memorise brings no gain. The fitted predictor is their average,
            :class:`CrossFitted`. One that is fitted to rows in one go, as
            :class:`lexppl.models.TreePredictor` is, is fitted so before the first step, by fold
            and replicate. A given predictor starts from its weights: give none that has
            learned from these rows. 1 for a single predictor; None for the :class:`System`'s
            own, where a predictor learns, else 1.
        row_weights: how often each training row counts; None for once.

            - `"dirichlet"`: replicate r has weights of its own, `w_r ~ N · Dirichlet(1, …, 1)`,
              drawn by the seed and the same in all epochs. The spread of the replicates is then
              what other rows, and other seeds, would change: the weighted-likelihood bootstrap
              (Newton & Raftery 1994; Rubin 1981).
            - weights `(N,)`, or `(R, N)` for each replicate, of the N rows of train: finite and at
              least 0. A weight of 2 is the row twice, of 0 the row left out.

            The objective is `Σ_n w_n ℒ_n`: a weight multiplies each term of its row, the bound,
            its penalties, its entropy; what stands outside the plate over rows, such as the prior
            of a global latent, has no weight. A row is still drawn once an epoch, and statistics
            of a batch (batch norm) count it once. Losses are by weight, `Σ_n w_n ℒ_n / Σ_n w_n`;
            validation rows have none.
        sample_weight: how often each row stands in the sample, `(N,)`; or a pair, of train `(N,)`
            and of valid `(M,)`, where validation rows are given. They multiply `row_weights`, which
            then are of each replicate beside them, and are those of the validation loss too.
        learning_rate: of Adam, a number or a schedule over each stage; None for a stage's own, and
            where it has none for 1e-3, or 1e-2 where guides alone learn, which falls to a twentieth
            over the second half.
        weight_decay: of Adam, as an L2 term of the gradient, at least 0. Never of a guide's
            parameters, of constrained ones, of those of `pyro.param` or with a prior, whoever made
            the optimizer: the bound itself holds them, and a decay would make a posterior narrower.
            A warning says so where a decay was given.
        optimizer: from parameters to a torch optimizer, in place of Adam. With replicates it must
            act on each entry by itself, as Adam and SGD do.
        scheduler: from the optimizer to a learning-rate schedule, stepped once an epoch.
        clip_norm: largest norm of a replicate's gradient.
        patience: end a stage after so many epochs without improvement in any replicate, counted
            from where the objective's schedules have settled; None to run all epochs, as a stage
            does that keeps its last state.
        replicates: R independent seeds trained at once; with a list of models or of data sets
            leave it out.
        seed: of initial weights, batches and draws; the same seed gives the same bits.
        callbacks: called after each epoch with an :class:`Epoch`.
        checkpoint: a folder for the fit's state, written at the end of an epoch, each minute, or
            :class:`Checkpoints` with how often. The same call goes on from there after a stop of
            whatever kind, and gives the same bits as one that was never stopped; where it had come
            to its end, it gives the result at once. Callbacks keep what they keep. None for none,
            at no cost.
        compile: True to compute each step's losses and gradients by compiled graphs, for long fits
            of small batches, where the program's own Python is most of a step: a minute of
            compiling a term, then steps in a fraction of the time, equal to rounding. "graph"
            leaves the compiling out: about half the time of a step, the same bits, in a second or
            two and without a compiler. Each step draws what the program would. Graphs are held
            against the program from the first on; what cannot be compiled is run as it is, and a
            warning and `FitResult.compiled` say why. A callback must not change the program
            meanwhile. Resumed from a checkpoint, a compiled fit is the same to rounding.
        precision: "bf16-mixed" to let linear layers and convolutions that are learned round the
            factors of their products to bf16, for wide networks on processors and GPUs with units
            for it; weights, all that the bound sums, validation and the fitted model stay float32
            (:class:`~lexppl.inference.mixed_precision.MixedPrecision`). None for the
            model's own.
        distributed: whether processes that `torchrun` has started share the fit: each learns from
            its part of every batch, and together they do what one does with the whole batch, but
            that each has draws of its own. Each is given the same rows and arguments and comes to
            the same result; callbacks are called in each, and the first alone shows and warns. None
            to share where a `torch.distributed` process group is initialised, and to refuse where
            `torchrun` has started several processes and there is none; True to share by a group
            that is then initialised; a group, to share among its processes; False for a fit of its
            own in each. On CUDA rows and model are to be on the device of `LOCAL_RANK`. What a
            program computes over a batch's rows together, such as batch norm or a penalty outside
            the plate of rows, it computes over a process's part, and their mean counts.
        progress: show a progress bar, on a terminal or in a notebook, and nothing elsewhere;
            "lines" for a line an epoch on standard error, as a run's log has it; False for nothing.
        device: None: a fit runs where its rows and its model are.

    Returns:
        FitResult: the fitted models. Ctrl-C ends the fit with the best state so far.

    Raises:
        ValueError, TypeError: a mistake in data or arguments, before any training; among them a
            checkpoint of another fit, or one that is damaged.
        FloatingPointError: a first epoch of which no step has a finite loss and gradient.
        RuntimeError: another process that shares the fit has failed or ended.

    Example:
        >>> import torch
        >>> from lexppl.models import (LEX, MLP, CategoricalLikelihood, GaussianImputer,
        ...     KSubsetSelector, Predictor)
        >>> x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
        >>> model = LEX(KSubsetSelector(MLP(3, 3, (8,), seed=0), k=1), GaussianImputer(),
        ...     Predictor(MLP(3, 2, (8,), seed=1), CategoricalLikelihood()))
        >>> result = fit(model, (x, (x[:, 0] > 0).long()), epochs=3, progress=False)
        >>> len(result.history)
        3
    """
    arguments = dict(locals())
    check_progress(progress)
    refuse_instances(optimizer, device)
    if inference is not None:
        refuse_training_arguments(fit, arguments)
        refuse_processes(distributed)
        return sampled_fit(model, train, inference, seed=seed, progress=bool(progress))
    if checkpoint is None or isinstance(checkpoint, Checkpoints):
        where = checkpoint
    else:
        where = Checkpoints(checkpoint)
    several = isinstance(model, list | tuple)
    models: list[Any] = list(model) if isinstance(model, list | tuple) else [model]
    kind = guide_kind(guide)
    guide = None if kind is not None else guide
    settings = FitSettings(**{one.name: arguments[one.name] for one in fields(FitSettings)})
    count = len(models) if several else None
    replicates = replicates_of(replicates, count, train, valid, row_weights)
    builders = [
        with_guides(builder_of(one, guide, objective, stages), kind, train) for one in models
    ]
    folds = folds_of_systems(models, builders) if folds is None else folds
    processes = processes_of(distributed)
    store = pyro.get_param_store().scope()
    with seeded(seed), program_settings(validate=False), store, processes.joined():
        given = [guide] if stages is None or callable(stages) else guides_of(stages)
        set_up_guides(given, models, train)
        first = cache(partial(first_batch, train, batch_size))
        copies = copies_of(builders, replicates, given, first, folds)
        dtype = type_learned(copies[0])
        if precision is not None:
            refuse_unmixed(copies[0], dtype)
        is_posterior = all(stage.learns_guides_alone for stage in copies[0].stages)
        rows = training_rows(train, dtype, "train", one_class=is_posterior)
        weighting = None
        if row_weights is not None or sample_weight is not None:
            weighting = RowWeighting.of(row_weights, rows, replicates, seed, sample_weight)
        with seeded(seed):
            if isinstance(valid, DefaultShare) and all(s.keeps_last for s in copies[0].stages):
                valid = None
            rows, held_out, learned_rows = divided_rows(valid, rows, dtype, weighting, folds)
        for name, some in (("rows to learn from", rows), ("validation rows", held_out)):
            refuse_rows(copies[0].stages, some, name, replicates)
        if isinstance(processes, Processes):
            for name, one in (("train", learned_rows), ("valid", held_out)):
                refuse_loaded(one, name)
            processes.device = rows.device
        fit_to_rows(copies, learned_rows, seed)
        saved = None
        if where is not None or processes.count > 1:
            identity = identity_of(settings.identity, copies, learned_rows, held_out)
            saved = None if where is None else SavedState(where, identity, processes.leads)
            processes.agree({**identity, "checkpoint": str(saved and saved.epochs)})
        runner = Replicates(copies, differ=several)
        if not isinstance(rows, LoadedRows):
            check_alike(rows.columns[0], next(iter(runner.parameters.values())))
        with seeded(seed + 1, rows.device):
            loop = TrainingLoop(runner, learned_rows, held_out, settings, saved, processes)
            loop.run()
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
    several, _ = next(watched.weighted_batches(WATCHED_ROWS, shuffle=False))
    batches = [
        tuple(c[:WATCHED_ROWS] for c in of_replicate(watched, several, replicate))
        for replicate in range(len(finished))
    ]
    terms = [one.stages[-1].terms[0] for one in finished]
    models, guides = [term.model for term in terms], [term.guide for term in terms]
    objective = terms[0].objective
    found: list[str | None] = [None] * len(terms)
    if objective.watched:
        found = collapses(models, guides, batches)
    sizes = steps = None
    if not isinstance(rows, LoadedRows):
        sizes = len(rows), len(loop.held_out or ())
        steps = len(loop.records) * math.ceil(len(rows) / loop.settings.batch_size)
    losses, valid, stage, seconds = (
        zip(*loop.records, strict=True) if loop.records else ((), (), (), ())
    )
    return FitResult(
        models=models,
        guides=guides,
        objective=objective.at(1.0),
        history=History(np.array(losses), np.array(valid), np.array(stage), np.array(seconds)),
        best_epoch=loop.best_epoch,
        best_valid=loop.best_valid,
        collapse=found,
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
