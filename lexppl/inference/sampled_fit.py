"""A fit whose global latents are sampled from their posterior, and not trained."""

import copy
import inspect
import itertools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from lexppl.inference.batches import Data, LoadedRows, TensorRows, training_rows
from lexppl.inference.contexts import keep_parameters_local, program_settings, seeded
from lexppl.inference.posterior.global_draws import (
    SamplerRecord,
    SamplerWarning,
    warn_of,
    with_convergence,
)
from lexppl.inference.posterior.global_latents import latents_of, refuse_none, refuse_of_rows
from lexppl.inference.posterior.mcmc import as_inference
from lexppl.inference.pyro_parameters import (
    ProgramFunction,
    PyroParams,
    floating_type,
    holding,
    is_program,
)
from lexppl.inference.stages import System
from lexppl.inference.training.result import FitResult, History
from lexppl.inference.training.rows import check_alike, data_fields, refuse_responses
from lexppl.summary import counted

READ = ("model", "train", "inference", "seed", "distributed", "progress", "valid")
"""The arguments of `fit` that mean something to an inference."""


class DefaultShare(float):
    """The share of rows that `fit` sets apart by default, as distinct from a given one."""


def refuse_training_arguments(fit: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Refuse arguments of training beside an inference, which has settings of its own."""
    defaults = {n: p.default for n, p in inspect.signature(fit).parameters.items()}
    chosen = [name for name, value in given.items() if not _same(value, defaults[name])]
    meaningless = [name for name in chosen if name not in READ]
    if meaningless:
        raise ValueError(
            f"{', '.join(f'{name}=' for name in meaningless)} mean nothing beside inference=, "
            "which trains nothing by epochs: leave them out; a sampler has settings "
            "itself, as MCMC(NUTS, samples=1000, chains=4)"
        )
    valid = given["valid"]
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
        raise TypeError(
            f"inference= is given all rows at once, and train is {kind}: give tensors, "
            "arrays or a data set"
        )
    for held in itertools.islice(program.parameters(), 1):
        check_alike(rows.columns[0], held)
    for y in rows.columns[1:2]:
        refuse_responses(program, y)
    keep_parameters_local(program)
    with seeded(seed):
        program = holding(program, PyroParams(), lambda: rows.columns)
    with seeded(seed, rows.columns[0].device), program_settings(validate=True), torch.no_grad():
        refuse_of_rows(found := latents_of(program, tuple(c[:1] for c in rows.columns)))
        refuse_none(found.shared)
    _tell_of_fixed(program)
    drawn = method.run(program.eval(), rows.columns, seed=seed, progress=progress)
    record = _with_fixed(with_convergence(drawn.sampler, drawn.samples), program)
    warn_of(record)
    chains = drawn.chains
    none = np.zeros((0, chains))
    return FitResult(
        models=[drawn.model] * chains,
        guides=drawn.guides(),
        objective=None,
        history=History(none, none, np.zeros(0, dtype=int), np.zeros(0)),
        best_epoch=np.zeros(chains, dtype=int),
        best_valid=np.full(chains, np.nan),
        collapse=[None] * chains,
        interrupted=False,
        seed=seed,
        rows=(len(rows), 0),
        sampler=record,
        **data_fields(train, rows, program, rows.columns[0]),
    )


def _program_of(model: Any, seed: int) -> nn.Module:
    with seeded(seed):
        if isinstance(model, System):
            built = model.program()
        elif isinstance(model, nn.Module):
            built = copy.deepcopy(model)
        elif is_program(model):
            built = ProgramFunction(model)
        else:
            built = model() if callable(model) else model
    if not isinstance(built, nn.Module):
        raise TypeError(
            "inference= samples one program: a torch or Pyro module, a function that builds one, "
            f"or a System; model is {type(built).__name__}"
        )
    return built


def _fixed(program: nn.Module) -> dict[str, int]:
    """Sizes of the parameters that stay as they are."""
    return {name: p.numel() for name, p in program.named_parameters() if p.requires_grad}


def _tell_of_fixed(program: nn.Module) -> None:
    """Warn of parameters without priors that were not fitted."""
    fixed = _fixed(program)
    if fixed and program.training:
        warnings.warn(
            f"{sum(fixed.values()):,} numbers of the program ({next(iter(fixed))} and what "
            "follows) have no prior: they stay at the values that they have, and the posterior is "
            "given these. Give them priors, or fit the program before and pass result.model; "
            "program.eval() says that they are meant",
            SamplerWarning,
            stacklevel=4,
        )


def _with_fixed(record: SamplerRecord, program: nn.Module) -> SamplerRecord:
    """The record with a note of the numbers that the posterior is given."""
    fixed = sum(_fixed(program).values())
    if not fixed:
        return record
    note = f"given {counted(fixed, 'number')} without a prior"
    return replace(record, note=note if record.note is None else f"{record.note}; {note}")


def _same(value: Any, default: Any) -> bool:
    if value is default:
        return True
    return (
        type(value) is type(default)
        and isinstance(value, int | float | str | tuple)
        and bool(value == default)
    )
