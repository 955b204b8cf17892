"""Values of `pyro.param` as parameters of a fit: held by the programs that state them."""

import inspect
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pyro
import torch
from pyro.nn import PyroModule
from pyro.poutine.messenger import Messenger
from pyro.poutine.runtime import _MODULE_NAMESPACE_DIVIDER, _PYRO_PARAM_STORE
from pyro.poutine.trace_messenger import TraceHandler
from torch import Tensor, nn
from torch.distributions import transform_to

from lexppl.effects import ParticleCounts, weights_first
from lexppl.fingerprint import KNOWN, is_of
from lexppl.inference.batches import Columns
from lexppl.inference.contexts import keep_parameters_local
from lexppl.inference.objective.program import RefuseImproper, beneath_handlers, copied_rows
from lexppl.inference.stages import LossTerm, Stage, modules_of
from lexppl.threads import evaluating

HELD = "pyro_params"  # The part of a program that holds what its `pyro.param` statements learn

FirstRows = Callable[[torch.dtype], Columns]
"""Gives the first batch of the rows to learn from, in a floating type."""


class MisstatedError(ValueError):
    """A `pyro.param` statement that nothing can be learned by."""


class ProgramFunction(nn.Module):
    """A program written as a function, as a module; a module beneath Pyro's handlers, or whose
    method it is, is a part."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        while isinstance(function, TraceHandler):
            function = function.fn  # Its record would hold a run's tensors, which no copy may.
        self.function = function
        below = beneath_handlers(function)
        below = getattr(below, "__self__", below)
        if isinstance(below, nn.Module):
            self.program = below

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def with_module(program: Any) -> Any:
    """A program that handles a module, or is its method, as a module that has it; else itself."""
    if isinstance(program, nn.Module | type) or not callable(program):
        return program
    held = ProgramFunction(program)
    return held if held._modules else program


class PyroParams(nn.Module):
    """The unconstrained parameters of `pyro.param` statements by name, not in Pyro's store."""

    def __init__(self) -> None:
        super().__init__()
        self._pyro_stated: dict[str, tuple[Any, Any]] = {}
        self._pyro_open = False

    def hold(self, program: nn.Module) -> "_Calls":
        """Become a part of a program, and answer its statements but for parts that hold others."""
        held = [part for part in program.modules() if HELD in part._modules]
        apart = {id(below) for part in held for below in part.modules()}
        program.add_module(HELD, self)
        calls, hooks = _Calls(self), []
        for part in program.modules():
            if id(part) not in apart and not is_of(type(part), ("torch",)):
                hooks.append(part.register_forward_pre_hook(calls.begin))
                hooks.append(part.register_forward_hook(calls.end, always_call=True, prepend=True))
        calls.hooks = hooks
        return calls

    @contextmanager
    def stating(self) -> Iterator[None]:
        """Context in which `pyro.param` statements of programs become parameters."""
        self._pyro_open = True
        try:
            yield
        finally:
            self._pyro_open = False

    def value(self, name: str, start: Sequence[Any], constraint: Any) -> Any:
        """The constrained value of a statement."""
        key = name.replace("%", "%25").replace(".", "%2E")
        if start and self._pyro_open:
            first = _unconstrained(name, start[0], constraint)
            if key not in self._parameters:
                self.register_parameter(key, nn.Parameter(first))
            if first.shape != self.get_parameter(key).shape:
                raise MisstatedError(f"pyro.param({name!r}) is stated with two shapes")
        if start and key in self._parameters:
            self._pyro_stated[key] = constraint, start[0]
        if key not in self._pyro_stated:
            raise MisstatedError(
                f"pyro.param({name!r}) was not stated when the fit began, and has learned nothing: "
                "state it, with its start and its constraint, in each run of the program"
            )
        parameter: Any = self._parameters[key]
        value: Any = transform_to(self._pyro_stated[key][0])(parameter)
        # Pyro's own inference looks for the parameter in an attribute of the value.
        value = value.view_as(value) if value is parameter else value
        value.unconstrained = weakref.ref(parameter)
        return value

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Start again: elsewhere where a start is a function that draws."""
        for key, (constraint, start) in self._pyro_stated.items():
            self.get_parameter(key).copy_(_unconstrained(key, start, constraint))


@torch.no_grad()
def _unconstrained(name: str, start: Any, constraint: Any) -> Tensor:
    first = (start() if callable(start) else start).detach()
    if first.is_floating_point() and bool(constraint.check(first).all()):
        value: Tensor = transform_to(constraint).inv(first)
        if bool(value.isfinite().all()):
            return value.contiguous().clone()
    raise MisstatedError(
        f"pyro.param({name!r}) must start from floats inside its constraint, {constraint}; it "
        f"starts from {first.flatten()[:3].tolist()}"
    )


class _Calls(Messenger):
    """Answer the `pyro.param` statements of some programs' calls."""

    def __init__(self, params: PyroParams) -> None:
        super().__init__()
        self._params, self._depth, self._seen = params, 0, False
        self.hooks: list[Any] = []

    def _pyro_param(self, msg: Any) -> None:
        # Parameters of modules make statements too, which the modules have answered.
        if not msg["done"] and msg["fn"] == _PYRO_PARAM_STORE.get_param:
            name, *start = msg["args"]
            of_module = _MODULE_NAMESPACE_DIVIDER in name
            msg["done"] = True
            self._seen |= not of_module
            constraint = msg["kwargs"]["constraint"]
            msg["value"] = start[0] if of_module else self._params.value(name, start, constraint)

    def over(self, program: nn.Module) -> None:
        """The search is over: a program that has stated nothing is left as it was."""
        for hook in () if self._seen else self.hooks:
            hook.remove()
        if not self._seen:
            del program._modules[HELD]
        self.hooks = []

    def begin(self, *_: Any) -> None:
        if not self._depth:
            self.__enter__()
        self._depth += 1

    def end(self, *_: Any) -> None:
        self._depth -= 1
        if not self._depth:
            self.__exit__(None, None, None)


def is_program(model: Any) -> bool:
    """Whether a function is a program of rows; one without arguments builds a module."""
    if isinstance(model, type | nn.Module) or not callable(model):
        return False
    if isinstance(below := beneath_handlers(model), nn.Module):
        return True
    with suppress(ValueError):  # Of a function without a signature
        taken = inspect.signature(below).parameters.values()
        return any(
            p.name == "x" or (p.default is p.empty and p.kind is not p.VAR_KEYWORD) for p in taken
        )
    return False


def floating_type(modules: Sequence[nn.Module]) -> torch.dtype:
    """The floating type of the first number of some modules; torch's own where they have none."""
    held = (t for m in modules for t in (*m.parameters(), *m.buffers()) if t.is_floating_point())
    return next((tensor.dtype for tensor in held), torch.get_default_dtype())


def with_parameters(
    stages: Sequence[Stage], first: FirstRows, apart: str | None = None
) -> list[Stage]:
    """Stages whose programs hold what their `pyro.param` statements on a batch state."""
    params, made = PyroParams(), dict[int, Any]()
    terms = [term for stage in stages for term in stage.terms]
    modules = [module for term in terms for module in modules_of(term)]
    for term in terms:
        # The guide is first, as in Pyro's SVI: the model may read what it states.
        for program in (term.guide, term.model):
            if program is not None and id(program) not in made:
                rows = partial(first, floating_type(modules))
                made[id(program)] = holding(program, params, rows, apart)

    def of(term: LossTerm) -> LossTerm:
        unchanged = term.learns is None or not params._parameters
        learns = term.learns if unchanged else [*(term.learns or ()), params]
        guide = made.get(id(term.guide))
        return replace(term, model=made[id(term.model)], guide=guide, learns=learns)

    return [replace(stage, terms=[of(term) for term in stage.terms]) for stage in stages]


def holding(
    called: Any, params: PyroParams, rows: Callable[[], Columns], apart: str | None = None
) -> Any:
    """A program that holds the parameters that it states; a part of the library states none."""
    program = called if isinstance(called, nn.Module) else ProgramFunction(called)
    kinds = [type(part) for part in program.modules()]
    kinds_of_user = [kind for kind in kinds if kind is ProgramFunction or not is_of(kind, KNOWN)]
    keep_parameters_local(program)
    for part in program.modules():
        if isinstance(part, PyroModule):
            # What Pyro's store had for another inference, or an automatic guide of its model.
            part._pyro_context.param_state = {"params": {}, "constraints": {}}
    if HELD in program._modules or not kinds_of_user:
        return called
    holders, searches, batch = [params], dict[nn.Module, _Calls](), rows()
    if apart is not None and isinstance(copied := getattr(program, apart, None), nn.Module):
        holders.append(PyroParams())
        searches[copied] = holders[1].hold(copied)
    searches[program] = params.hold(program)
    try:
        _state(program, holders, batch)
    except MisstatedError:
        raise
    except Exception:
        # The first step says what it is, which looks at the rows before.
        if not any(parameter.requires_grad for parameter in program.parameters()):
            raise
    named = [pair for holder in holders for pair in holder.named_parameters()]
    for name in [name for name, p in named if 1 < len(batch[0]) in p.shape]:
        try:
            _state(program, holders, tuple(column[:-1] for column in batch))
        except Exception as error:
            raise MisstatedError(
                f"pyro.param({name!r}) has a value for each of the {len(batch[0])} rows of a "
                "batch, and other batches have other rows: compute it from x, by a network that "
                "the program has as a part, or sample it in the plate over rows"
            ) from error
    for part, search in searches.items():
        search.over(part)
    return program if HELD in program._modules or len(kinds) > 1 else called


def _state(program: nn.Module, holders: Sequence[PyroParams], batch: Columns) -> None:
    with ExitStack() as stating, torch.no_grad(), ParticleCounts(1, 1), evaluating(program):
        for holder in holders:
            stating.enter_context(holder.stating())
        with refusing_hidden(), RefuseImproper(), copied_rows(batch) as rows:
            pyro.poutine.trace(weights_first(program)).get_trace(*rows)


@contextmanager
def refusing_hidden() -> Iterator[None]:
    """Refuse `pyro.param` statements inside that no program of the fit answers."""
    with pyro.get_param_store().scope() as state:
        yield
    if state["params"]:
        name, of_module, _ = next(iter(state["params"])).partition(_MODULE_NAMESPACE_DIVIDER)
        raise MisstatedError(
            f"pyro.module({name!r}) is called in the program: leave it out, and write the program "
            "as a module that has the network as a part, which learns without it"
            if of_module
            else f"pyro.param({name!r}) is hidden from the fit by a handler in the program, such "
            "as poutine.block: let it hide sites alone, by block(hide=[…])"
        )


def refuse_unheld(loss: Tensor, held: Iterable[Tensor]) -> None:
    """Refuse a loss with a parameter that no program holds, so that nothing would move it."""
    known, seen, nodes = {id(p) for p in held}, set[Any](), [loss.grad_fn]
    while nodes:
        node: Any = nodes.pop()
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, nn.Parameter) and id(leaf) not in known:
            raise ValueError(
                f"the loss has a parameter of shape {tuple(leaf.shape)} that neither model nor "
                "guide holds, and nothing would move it: write the program as a module that has "
                "the network as a part; of what is not to learn, requires_grad_(False)"
            )
        if node is not None and node not in seen:
            seen.add(node)
            nodes += [before for before, _ in node.next_functions]


def hold_saved(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Let a program built anew hold the parameters that it has stated, as a file has them."""
    for key in sorted(weights, key=lambda name: -name.count(".")):
        *above, held, name = ["", *key.split(".")]
        if held == HELD:
            holder = module.get_submodule(".".join(above[1:]))
            if HELD not in holder._modules:
                PyroParams().hold(holder)
            parameter = nn.Parameter(torch.empty_like(weights[key]))
            holder.get_submodule(HELD).register_parameter(name, parameter)
