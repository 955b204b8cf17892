"""Whether the runs of a program that an estimator needs can be made as one."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from lexppl.inference.contexts import program_settings, seeded
from lexppl.inference.estimators import REBAR
from lexppl.inference.runs_together import RunsTogether
from lexppl.inference.stages import LossTerm, TrainingModules
from lexppl.inference.training.compiled.agreement import disagreement
from lexppl.inference.training.step import TermGradients, shifted

Program = Callable[..., Any]


def alike_together(
    template: TrainingModules,
    terms: Sequence[LossTerm],
    programs: Sequence[Program],
    args: tuple[Any, ...],
    seed: int,
) -> list[Program]:
    """Those of some programs that an estimator runs several times a step, and that have the same
    loss and gradients, but for rounding, when those runs are made as one: nothing else is drawn in
    them, and nothing mixes the particles.

    Args:
        template: of the terms.
        terms: of a stage.
        programs: models of the terms.
        args: a batch.
        seed: of the draws.
    """
    return [
        program
        for program in programs
        if all(_is_alike(template, t, args, seed) for t in terms if t.model is program)
    ]


def _is_alike(template: TrainingModules, term: LossTerm, args: tuple[Any, ...], seed: int) -> bool:
    if not isinstance(getattr(term.objective, "estimator", None), REBAR) or term.guide is not None:
        return False
    learned = set(template.learned_by(term))
    moved = [value for name, value in template.named_parameters() if name in learned]

    def run(together: RunsTogether) -> TermGradients:
        with (
            seeded(seed, args[0].device),
            program_settings(validate=False),
            together,
            shifted(term),
        ):
            return _gradients(template(term, term.objective, args), moved)

    together = RunsTogether([term.model])
    agree = disagreement(run(RunsTogether(())), run(together)) <= 1.0
    # Empty where the one run was given up for three, which agree with three.
    return agree and bool(together)


def _gradients(loss: torch.Tensor, moved: list[torch.nn.Parameter]) -> TermGradients:
    if not loss.requires_grad:
        return TermGradients(loss.detach(), [None] * len(moved))
    return TermGradients(loss.detach(), torch.autograd.grad(loss, moved, allow_unused=True))
