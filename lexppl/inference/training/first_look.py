"""The first look at a stage: each term runs once with every check, before its first step."""

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import constraints
from torch.optim import Optimizer

from lexppl.effects import MASK_PLATE
from lexppl.inference.batches import Columns, Rows, of_replicate
from lexppl.inference.contexts import MiniBatch, program_settings, rows_plate, seeded
from lexppl.inference.mixed_precision import refuse_rounded_away
from lexppl.inference.objective.dependence import refuse_masks_of_y, refuse_outside_rows
from lexppl.inference.objective.program import (
    PlainCalls,
    Program,
    as_called,
    can_be_called_plainly,
    steady_nodes,
)
from lexppl.inference.pyro_parameters import PyroParams, refuse_unheld, refusing_hidden
from lexppl.inference.replicates import Replicates, weighing
from lexppl.inference.stages import LossTerm, Stage, TrainingModules, shifted
from lexppl.inference.training.distributed import Dealt, OneProcess
from lexppl.inference.training.rows import refuse_unlike
from lexppl.inference.training.settings import FitSettings

Nodes = tuple[Mapping[str, Any], Mapping[str, Any]]
"""The sample nodes of model and guide, each in a run by itself with one particle, by name."""


def nodes_of(program: Program | None, args: tuple[Any, ...]) -> dict[str, Any]:
    """The sample nodes of a run on a batch without gradients, by name; none of no program."""
    if program is None:
        return {}
    with refusing_hidden(), torch.no_grad():
        nodes = steady_nodes(as_called(program), args)
    for name, node in nodes.items():
        if node["is_observed"] and isinstance(node["value"], torch.Tensor):
            _refuse_larger(name, node["fn"], tuple(node["value"].shape))
    return nodes


def _refuse_larger(name: str, law: Any, observed: tuple[int, ...]) -> None:
    """Refuse what is observed in another shape than the law's: `(B, 1)` would become `(B, B)`."""
    shape = (*law.batch_shape, *law.event_shape)
    if np.broadcast_shapes(observed, shape)[-len(observed) :] != shape[-len(observed) :]:
        raise ValueError(
            f"site {name!r} observes values of shape {observed}, and its distribution has batch "
            f"shape {tuple(law.batch_shape)} and event shape {tuple(law.event_shape)}: give one "
            "value for each row, as y[:, 0] of y (B, 1), or make the last dimension an event, by "
            ".to_event(1)"
        )


def runs_alike_plainly(program: Program | None, args: tuple[Any, ...]) -> bool:
    """Whether a program has the same sites when called plainly; `poutine.lift` changes them."""
    if program is None or not can_be_called_plainly(program):
        return False
    statements = nodes_of(program, args)
    with PlainCalls([program]):
        return _kinds(nodes_of(program, args)) == _kinds(statements)


def _kinds(nodes: dict[str, Any]) -> list[tuple[str, type, bool]]:
    return [(name, type(node["fn"]), node["is_observed"]) for name, node in nodes.items()]


def parameters_with_a_prior(term: LossTerm, nodes: Mapping[str, Any]) -> list[Tensor]:
    """The parameters of a term that the bound itself holds in place: a guide's own, constrained
    ones, those of `pyro.param`, and those observed under a prior, `pyro.sample("w", prior,
    obs=self.w)`."""
    parts = list(term.model.modules()) if isinstance(term.model, nn.Module) else []
    known = {id(p) for part in parts for p in part.parameters(recurse=False)}
    held: list[Any] = []
    if isinstance(term.guide, nn.Module):
        held += [p for p in term.guide.parameters() if id(p) not in known]
    for part in parts:
        if isinstance(part, PyroParams):
            held += part.parameters()
        for name, (constraint, _) in getattr(part, "_pyro_params", {}).items():
            if constraint is not constraints.real:
                held.append(part._parameters.get(f"{name}_unconstrained"))
    for node in nodes.values():
        value = node["value"]
        value = value.unconstrained() if hasattr(value, "unconstrained") else value
        inside = any(plate.name == MASK_PLATE for plate in node["cond_indep_stack"])
        if node["is_observed"] and not inside and id(value) in known:
            held.append(value)
    return held


def spare_from_decay(optimizer: Optimizer, spared: Mapping[str, Tensor], warns: bool) -> None:
    """Take parameters out of an optimizer's weight decay, into groups of their own."""
    ids = {id(parameter) for parameter in spared.values()}
    moved = False
    for group in list(optimizer.param_groups):
        taken_out = [p for p in group["params"] if id(p) in ids]
        if not taken_out or not group.get("weight_decay"):
            continue
        moved = True
        others = [p for p in group["params"] if id(p) not in ids]
        if not others:
            group["weight_decay"] = 0.0
            continue
        group["params"] = others
        settings = {k: v for k, v in group.items() if k != "params"}
        optimizer.add_param_group({**settings, "params": taken_out, "weight_decay": 0.0})
    if moved and warns:
        warnings.warn(
            f"the weight decay leaves out {sorted(spared)}: parameters of a guide, constrained "
            "ones and those with a prior are held by the bound itself",
            stacklevel=3,
        )


@dataclass(frozen=True)
class FirstLook:
    """A stage's programs by one run of each: plates over rows by the term's id, programs that can
    be called plainly, and names of parameters that no weight decay may move."""

    plates: Mapping[int, str | None]
    plain_calls: PlainCalls
    spared: frozenset[str]

    @classmethod
    def at(
        cls,
        stage: Stage,
        runner: Replicates,
        rows: Rows,
        settings: FitSettings,
        processes: OneProcess,
    ) -> "FirstLook":
        """Run each term once; nothing else of the run stays."""
        batch, weights = next(rows.weighted_batches(settings.batch_size, shuffle=False))
        # The first one's share in each process: all see the same, and it is never empty.
        batch, weights, _ = Dealt(rows, 0, processes.count).of(batch, weights)
        template = runner.template
        buffers = {n: b.clone() for n, b in template.named_buffers()}
        plain: list[Any] = [part for t in stage.terms for part in (t.model, t.guide)]
        plates: dict[int, str | None] = {}
        spared: set[str] = set()
        alike = not (runner.differ or rows.by_replicate)
        for replicate in range(1 if alike else runner.count):
            with runner.replicate(replicate) as template:
                columns = of_replicate(rows, batch, replicate)
                if settings.precision is not None:
                    refuse_rounded_away(columns[0], template)
                names = {id(value): name for name, value in template.named_parameters()}
                for term in stage.terms:
                    refuse_unlike(term.model, columns[0])
                    with seeded(settings.seed, rows.device), program_settings(validate=True):
                        of_rows = None if weights is None else weights[replicate]
                        shared = processes.count > 1
                        plate, held = _run(template, term, columns, of_rows, len(rows), shared)
                    plates[id(term)] = plate
                    spared |= {names[id(parameter)] for parameter in held if id(parameter) in names}
                with seeded(settings.seed, rows.device):
                    plain = [program for program in plain if runs_alike_plainly(program, columns)]
        with torch.no_grad():
            for name, buffer in runner.template.named_buffers():
                buffer.copy_(buffers[name])
        return cls(plates, PlainCalls(plain), frozenset(spared))


def _run(
    template: TrainingModules,
    term: LossTerm,
    batch: Columns,
    weights: Tensor | None,
    rows: int,
    shared: bool,
) -> tuple[str | None, list[Tensor]]:
    """A term's plate over rows, and its parameters that have a prior."""
    nodes = of_model, of_guide = nodes_of(term.model, batch), nodes_of(term.guide, batch)
    refuse_masks_of_y(as_called(term.model), of_model, batch)
    plate = rows_plate((*of_model.values(), *of_guide.values()), len(batch[0]))
    if weights is not None:
        refuse_unweighted(term, plate, "row_weights", "leave row_weights out")
    if shared:
        refuse_unshared(term, nodes, plate, batch)
    term.objective.refuse_uncovered(*nodes)

    def loss_of(columns: Columns, count: int) -> Tensor:
        scaled = MiniBatch(count, len(columns[0]), plate)
        with seeded(0, columns[0].device), scaled, shifted(term), weighing(weights, plate):
            value: Tensor = template(term, term.objective, columns)
        return value

    loss = loss_of(batch, rows)
    if not term.objective.reads_scales and len(batch[0]) >= 4:
        refuse_unscaled(loss_of, batch, rows, type(term.objective).__name__)
    if len(batch[0]) < rows:
        refuse_apart(term, nodes, plate, batch, f"batch_size={rows} or more")
    parts = (template, *term.objective.modules)
    refuse_unheld(loss, (p for part in parts for p in part.parameters()))
    if not bool(torch.isfinite(loss.detach())):
        raise FloatingPointError(
            f"the loss of the first batch is {float(loss.detach())}; look for labels or features "
            "that the model gives probability zero"
        )
    return plate, parameters_with_a_prior(term, of_model)


def refuse_unscaled(
    loss: Callable[[Columns, int], Tensor], batch: Columns, rows: int, name: str
) -> None:
    """Refuse a loss, of some rows in place of N, that depends on the rows and not on N; of all rows
    at once, a mean."""
    size, half = len(batch[0]), len(batch[0]) // 2
    parts = [tuple(c[part] for c in batch) for part in (slice(half), slice(half, None))]
    runs = ((batch, rows), (batch, 2 * rows), *((part, rows) for part in parts))
    whole, twice, first, rest = (float(loss(*run).detach()) for run in runs)
    is_mean = math.isclose((half * first + (size - half) * rest) / size, whole, rel_tol=1e-3)
    unscaled = first != whole and math.isclose(whole, twice, rel_tol=1e-6)
    if unscaled and (size < rows or is_mean):
        raise ValueError(
            f"{name} gives {whole:.4g} for {size} rows of a batch and {first:.4g} for {half} of "
            f"them, whatever the number of rows N that they stand for, here {rows}: a fit expects "
            "the sum over the batch times N/B, which is lexppl.inference.batch_scale()"
        )


def refuse_unweighted(term: LossTerm, plate: str | None, why: str, instead: str) -> None:
    """Refuse a term whose rows cannot be scaled one by one."""
    name, objective = type(term.model).__name__, type(term.objective).__name__
    if not term.objective.reads_scales:
        raise ValueError(
            f"{why} scale the sites of each row, and {objective} does not say that it reads "
            f"scales: set its reads_scales = True if it does, or {instead}"
        )
    if plate is None:
        raise ValueError(
            f"{why} need a plate over the rows of a batch at dim -1, and {name} has none; observe "
            f'its rows in pyro.plate("data", len(x), dim=-1), or {instead}'
        )


def refuse_unshared(term: LossTerm, nodes: Nodes, plate: str | None, batch: Columns) -> None:
    """Refuse a program of whose rows processes cannot have a share each."""
    refuse_unweighted(term, plate, "processes", "give distributed=False")
    refuse_apart(term, nodes, plate, batch, "distributed=False")


def refuse_apart(
    term: LossTerm, nodes: Nodes, plate: str | None, batch: Columns, instead: str
) -> None:
    """Refuse a program whose rows are not apart in the plate over them."""
    for of_program, program in zip(nodes, (term.model, term.guide), strict=True):
        refuse_outside_rows(of_program, program, batch, plate, instead)
