"""Runs of a program with several sets of masks, made as one run with all of them."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from pyro.poutine.messenger import Messenger
from pyro.poutine.runtime import effectful
from torch import Tensor

from lexppl.effects import MASK_DIM
from lexppl.inference.objective.bound import Average, BoundSpec, BoundTerms, LogWeight

Program = Callable[..., Any]


@effectful(type="runs_together")
def can_run_together(program: Program) -> bool:
    """Whether a program is known to give each of its masks what it gives it without the others.

    Example:
        >>> with RunsTogether([print]):
        ...     can_run_together(print), can_run_together(repr)
        (True, False)
        >>> can_run_together(print)
        False
    """
    return False


@effectful(type="run_apart")
def run_apart(program: Program) -> None:
    """Say that a program turned out to be none of those, so that it is not tried at each step.

    Example:
        >>> with RunsTogether([print]):
        ...     run_apart(print)
        ...     can_run_together(print)
        False
    """


class RunsTogether(Messenger):
    """Let estimators that run some programs several times a step run them once.

    A step of a small network is mostly its statements, which then are made once. Not every program
    gives a mask the same beside others: draws of its own would be others, and batch norm would
    normalise over all.

    Args:
        programs: of which that is known.
    """

    def __init__(self, programs: Iterable[Program]) -> None:
        super().__init__()
        self._programs = {id(program): program for program in programs}

    def __bool__(self) -> bool:
        return bool(self._programs)

    def _pyro_runs_together(self, msg: Any) -> None:
        if not msg["done"]:
            msg["value"], msg["done"] = id(msg["args"][0]) in self._programs, True

    def _pyro_run_apart(self, msg: Any) -> None:
        self._programs.pop(id(msg["args"][0]), None)


class PartOfRun(BoundTerms):
    """The terms of one set of masks, of a run with several: those in a row from a place on.

    Args:
        whole: the terms of the run.
        spec: what is maximised with each set.
        place: 0 for the first set.
    """

    def __init__(self, whole: BoundTerms, spec: BoundSpec, place: int) -> None:
        self.run, self.spec = whole.run, spec
        own = slice(place * spec.particles, (place + 1) * spec.particles)
        count = whole.spec.particles

        def part(value: Tensor) -> Tensor:
            several = value.dim() >= -MASK_DIM and value.shape[MASK_DIM] == count
            return value[..., own, :] if several else value

        self.log_weights: list[LogWeight] = [
            replace(weight, value=part(weight.value), samples=spec.samples)
            for weight in whole.log_weights
        ]
        self.averages: list[Average] = [
            replace(average, value=part(average.value)) for average in whole.averages
        ]
