"""Calls of a program without Pyro's statements of its parameters, where nobody reads them."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from pyro.nn import PyroModule
from pyro.poutine.messenger import Messenger
from pyro.poutine.runtime import effectful
from torch import nn

from lexppl.weights_drawn_first import weights_first

Program = Callable[..., Any]


@effectful(type="plain_call")
def _is_called_plainly(program: Program) -> bool:
    return False


class PlainCalls(Messenger):
    """Let programs that :func:`can_be_called_plainly` be called as torch calls a module.

    The `param` statements of each part, which every handler sees, took a sixth of a small step.
    """

    def __init__(self, programs: Iterable[Program]) -> None:
        super().__init__()
        self._programs = {id(program): program for program in programs}

    def _pyro_plain_call(self, msg: Any) -> None:
        if not msg["done"]:
            msg["value"], msg["done"] = id(msg["args"][0]) in self._programs, True


def as_called(program: Program) -> Program:
    """A program as it is run: plainly in :class:`PlainCalls`, else by Pyro, weights drawn first."""
    if _is_called_plainly(program):
        # The class's call, and not the program's own, is what leaves the statements out.
        return partial(nn.Module.__call__, program)
    return weights_first(program)


def can_be_called_plainly(program: Program) -> bool:
    """Whether a program's parameters are torch's alone, none with a prior or a constraint."""
    if not isinstance(program, nn.Module):
        return False
    if type(program).__call__ not in (PyroModule.__call__, nn.Module.__call__):
        return False
    parts = (part for part in program.modules() if isinstance(part, PyroModule))
    return not any(part._pyro_samples or part._pyro_params for part in parts)
