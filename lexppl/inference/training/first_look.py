"""The first look at a stage: each term is run once with every check on, before its first step."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lexppl.inference.contexts import MiniBatch, program_settings, rows_plate, seeded
from lexppl.inference.mixed_precision import refuse_rounded_away
from lexppl.inference.plain_calls import PlainCalls
from lexppl.inference.pyro_parameters import refuse_unheld
from lexppl.inference.replicates.replicate_rows import Rows, of_replicate
from lexppl.inference.replicates.replicates import Replicates, weighing
from lexppl.inference.sample_nodes import SampleNodes, runs_alike_plainly
from lexppl.inference.stages import LossTerm, Stage, TrainingModules, shifted
from lexppl.inference.training.distributed.processes import OneProcess
from lexppl.inference.training.distributed.shared_step import Dealt, refuse_unshared
from lexppl.inference.training.rows.row_weights import refuse_unweighted
from lexppl.inference.training.settings import FitSettings
from lexppl.inference.training.weight_decay import parameters_with_a_prior


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
                own = of_replicate(rows, batch, replicate)
                if settings.precision is not None:
                    refuse_rounded_away(own[0], template)
                names = {id(value): name for name, value in template.named_parameters()}
                for term in stage.terms:
                    with seeded(settings.seed, rows.device), program_settings(validate=True):
                        of_rows = None if weights is None else weights[replicate]
                        shared = processes.count > 1
                        plate, held = _run(template, term, own, of_rows, len(rows), shared)
                    plates[id(term)] = plate
                    spared |= {names[id(one)] for one in held if id(one) in names}
                with seeded(settings.seed, rows.device):
                    plain = [program for program in plain if runs_alike_plainly(program, own)]
        with torch.no_grad():
            for name, buffer in runner.template.named_buffers():
                buffer.copy_(buffers[name])
        return cls(plates, PlainCalls(plain), frozenset(spared))


def _run(
    template: TrainingModules,
    term: LossTerm,
    batch: tuple[Tensor, ...],
    weights: Tensor | None,
    rows: int,
    shared: bool,
) -> tuple[str | None, list[Tensor]]:
    """A term's plate over rows, and its parameters that have a prior."""
    nodes = SampleNodes.of(term.model, term.guide, batch)
    plate = rows_plate((*nodes.model.values(), *nodes.guide.values()), len(batch[0]))
    if weights is not None:
        refuse_unweighted(term, plate, "row_weights", "leave row_weights out")
    if shared:
        refuse_unshared(term, nodes, plate, batch)
    term.objective.refuse_uncovered(nodes.model, nodes.guide)
    with MiniBatch(rows, len(batch[0]), plate), shifted(term), weighing(weights, plate):
        loss = template(term, term.objective, batch)
    parts = (template, *term.objective.modules)
    refuse_unheld(loss, (p for part in parts for p in part.parameters()))
    if not bool(torch.isfinite(loss.detach())):
        raise FloatingPointError(
            f"the loss of the first batch is {float(loss.detach())}; look for labels or features "
            "that the model gives probability zero"
        )
    return plate, parameters_with_a_prior(term, nodes.model)
