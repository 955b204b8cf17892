"""Calls of a program without Pyro's statements of its parameters, where nobody reads them."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from pyro.nn import PyroModule
from pyro.poutine.messenger import Messenger
from pyro.poutine.runtime import effectful
from torch import nn

from lexppl.effects import weights_first

Program = Callable[..., Any]


@effectful(type="plain_call")
def _is_called_plainly(program: Program) -> bool:
    return False


class PlainCalls(Messenger):
    """Let some programs that run inside this context be called as torch calls a module.

    A `PyroModule` makes a `param` statement of each parameter of a part whenever that part is read,
    and each passes every handler and plate. They are for inference that collects parameters so;
    a fit knows its own, and of a step with small networks they were a sixth.

    Args:
        programs: those that :func:`can_be_called_plainly`.
    """

    def __init__(self, programs: Iterable[Program]) -> None:
        super().__init__()
        self._programs = {id(program): program for program in programs}

    def _pyro_plain_call(self, msg: Any) -> None:
        if not msg["done"]:
            msg["value"], msg["done"] = id(msg["args"][0]) in self._programs, True


def as_called(program: Program) -> Program:
    """A program as it is to be run here: plainly inside :class:`PlainCalls`, elsewhere by Pyro's
    own call, its weights with priors drawn first.

    Example:
        >>> class Program(PyroModule):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.network = nn.Linear(1, 1)
        ...     def forward(self):
        ...         return [type(self.network).__name__]
        >>> program, statements = Program(), []
        >>> class Heard(Messenger):
        ...     def _pyro_param(self, msg):
        ...         statements.append(msg["name"])
        >>> with PlainCalls([program]), Heard():
        ...     as_called(program)(), statements
        (['Linear'], [])
    """
    if _is_called_plainly(program):
        # The class's call, and not the program's own, is what leaves the statements out.
        return partial(nn.Module.__call__, program)
    return weights_first(program)


def can_be_called_plainly(program: Program) -> bool:
    """Whether a program's parameters are torch's alone: none has a prior or a constraint, which
    Pyro's own call sees to. That nothing within the program reads the statements remains to be
    seen from a run.

    Example:
        >>> can_be_called_plainly(nn.Linear(1, 1)), can_be_called_plainly(print)
        (True, False)
    """
    if not isinstance(program, nn.Module):
        return False
    if type(program).__call__ not in (PyroModule.__call__, nn.Module.__call__):
        return False
    parts = (part for part in program.modules() if isinstance(part, PyroModule))
    return not any(part._pyro_samples or part._pyro_params for part in parts)
