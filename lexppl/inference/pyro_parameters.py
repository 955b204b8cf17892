"""Values of `pyro.param` as parameters of a fit: held by the programs that state them."""

import inspect
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pyro
import torch
from pyro.nn import PyroModule
from pyro.poutine.messenger import Messenger
from pyro.poutine.runtime import _MODULE_NAMESPACE_DIVIDER, _PYRO_PARAM_STORE
from torch import Tensor, nn
from torch.distributions import transform_to

from lexppl.effects import ParticleCounts
from lexppl.evaluation_mode import evaluating
from lexppl.fingerprint import KNOWN, is_of
from lexppl.inference.contexts import keep_parameters_local, seeded
from lexppl.inference.stages import LossTerm, Stage, modules_of
from lexppl.weights_drawn_first import weights_first

HELD = "pyro_params"
"""The part of a program that holds what its `pyro.param` statements learn."""


class _MisstatedError(ValueError):
    """A `pyro.param` statement that nothing can be learned by."""


class ProgramFunction(nn.Module):
    """A program written as a function, as a module.

    Args:
        function: called as the program; a module beneath Pyro's handlers becomes a part.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        while isinstance(function, partial) and function.args:
            function = function.args[-1]
        if isinstance(function, nn.Module):
            self.program = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function."""
        return self.function(*args, **kwargs)


class PyroParams(nn.Module):
    """The unconstrained parameters of `pyro.param` statements, by name: one for each name in all
    programs of a fit, as in Pyro's global store, which is neither read nor written.

    A program that holds it has the values from here whenever it, or one of its parts, is called.

    Example:
        >>> def guide():
        ...     return pyro.param("scale", torch.tensor(2.0), constraint=constraints.positive)
        >>> program, params = ProgramFunction(guide), PyroParams()
        >>> with params.held_by(program):
        ...     program()
        >>> [name for name, _ in program.named_parameters()], len(pyro.get_param_store())
        (['pyro_params.scale'], 0)
    """

    def __init__(self) -> None:
        super().__init__()
        self._pyro_stated: dict[str, tuple[Any, Any]] = {}
        self._pyro_statements = _Statements(self)

    def hold(self, program: nn.Module) -> list[Any]:
        """Become a part of a program, and give the statements of its calls their values.

        Args:
            program: parts of which that hold others keep them.

        Returns:
            The handles of torch's hooks.
        """
        held = [part for part in program.modules() if HELD in part._modules]
        apart = {id(below) for part in held for below in part.modules()}
        program.add_module(HELD, self)
        statements, handles = self._pyro_statements, []
        for part in program.modules():
            if id(part) not in apart and not is_of(type(part), ("torch",)):
                handles.append(part.register_forward_pre_hook(statements.begin))
                handles.append(part.register_forward_hook(statements.end, always_call=True))
        return handles

    @contextmanager
    def held_by(self, program: nn.Module) -> Iterator[None]:
        """Take the parameters that a program states inside, which it holds from then on; one that
        states none is left as it was."""
        statements = self._pyro_statements
        handles = self.hold(program)
        statements.open, statements.seen = True, False
        try:
            yield
        finally:
            statements.open = False
            if not statements.seen:
                del program._modules[HELD]
                for handle in handles:
                    handle.remove()

    def value(self, name: str, start: Sequence[Any], constraint: Any) -> Tensor:
        """The constrained value of a statement.

        Args:
            name: of the parameter.
            start: its first value, or what gives it; empty where another statement has it.
            constraint: of this statement.

        Raises:
            ValueError: a name that is new, or of another shape, or whose constraint is not known; a
                start outside its constraint, or of whole numbers.
        """
        key = name.replace("%", "%25").replace(".", "%2E")
        if start and self._pyro_statements.open:
            first = _unconstrained(name, start[0], constraint)
            if key not in self._parameters:
                self.register_parameter(key, nn.Parameter(first))
            elif self._parameters[key].shape != first.shape:
                shapes = tuple(self._parameters[key].shape), tuple(first.shape)
                raise _MisstatedError(f"pyro.param({name!r}) is stated with two shapes, {shapes}")
        if key not in self._parameters:
            raise _MisstatedError(
                f"pyro.param({name!r}) was not stated when the fit began, and has learned nothing: "
                "state it, with its start, in each run of the program"
            )
        if start:
            self._pyro_stated[key] = constraint, start[0]
        elif key not in self._pyro_stated:
            raise _MisstatedError(
                f"pyro.param({name!r}) has no constraint here, where it is read: state its start "
                "and its constraint, as elsewhere"
            )
        parameter = self._parameters[key]
        value: Tensor = transform_to(self._pyro_stated[key][0])(parameter)
        # Pyro's own inference looks for the parameter in an attribute of the value.
        value = value.view_as(value) if value is parameter else value
        value.unconstrained = weakref.ref(parameter)  # type: ignore[attr-defined]
        return value

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Start again: elsewhere where a start is a function that draws."""
        for key, (constraint, start) in self._pyro_stated.items():
            self._parameters[key].copy_(_unconstrained(key, start, constraint))


def _unconstrained(name: str, start: Any, constraint: Any) -> Tensor:
    with torch.no_grad():
        first = (start() if callable(start) else start).detach()
        if not first.is_floating_point():
            raise _MisstatedError(
                f"pyro.param({name!r}) must start from floats; it is {first.dtype}"
            )
        found: Tensor = transform_to(constraint).inv(first)
        if not bool(constraint.check(first).all() and found.isfinite().all()):
            raise _MisstatedError(
                f"pyro.param({name!r}) must start inside its constraint {constraint}; it starts "
                f"from {first.flatten()[:3].tolist()}"
            )
        return found.contiguous().clone()


class _Statements(Messenger):
    """Give the `pyro.param` statements of the calls that it lasts for their values."""

    def __init__(self, params: PyroParams) -> None:
        super().__init__()
        self._params, self._depth = params, 0
        self.open = self.seen = False

    def _pyro_param(self, msg: Any) -> None:
        # Parameters of modules make statements too, which are answered by the modules.
        if msg["done"] or msg["fn"] != _PYRO_PARAM_STORE.get_param:
            return
        name, *start = msg["args"]
        msg["done"] = True
        if _MODULE_NAMESPACE_DIVIDER in name:
            msg["value"] = start[0]
            return
        self.seen = True
        msg["value"] = self._params.value(name, start, msg["kwargs"]["constraint"])

    def begin(self, *_: Any) -> None:
        """A program, or a part of one, is called."""
        if not self._depth:
            self.__enter__()
        self._depth += 1

    def end(self, *_: Any) -> None:
        """The call is over."""
        self._depth -= 1
        if not self._depth:
            self.__exit__(None, None, None)


def is_program(model: Any) -> bool:
    """Whether a function is a program of rows, or one of Pyro's handlers about a program, and no
    builder of a module, which is called without arguments.

    Example:
        >>> is_program(lambda x, y=None: None), is_program(lambda: nn.Linear(1, 1))
        (True, False)
    """
    if isinstance(model, type | nn.Module) or not callable(model):
        return False
    if isinstance(model, partial) and model.args and isinstance(model.args[0], Messenger):
        return is_program(model.args[-1]) or isinstance(model.args[-1], nn.Module)
    try:
        inspect.signature(model).bind()
    except (TypeError, ValueError) as unbound:
        return isinstance(unbound, TypeError)
    return False


FirstBatch = Callable[[Sequence[nn.Module]], tuple[Tensor, ...]]
"""Gives the first rows to learn from, in the type of some modules."""


def with_parameters(
    stages: Sequence[Stage], first: FirstBatch, apart: str | None = None, replicate: int = 0
) -> list[Stage]:
    """Stages whose programs hold what their `pyro.param` statements learn, as a run of each on a
    batch states them; a function that states some is a module then.

    Args:
        stages: no one else may hold their modules.
        first: gives a batch of the rows to learn from.
        apart: the part of a program, "predictor", that is to hold its own, to be copied with it.
        replicate: its number: starts that are drawn are its own.

    Raises:
        ValueError: a parameter with a value for each row, or one that a handler hides; as
            :meth:`PyroParams.value`.
    """
    params, made = PyroParams(), dict[int, Any]()
    terms = [term for stage in stages for term in stage.terms]
    modules = [module for term in terms for module in modules_of(term)]
    for part in (part for module in modules for part in module.modules()):
        if isinstance(part, PyroModule):
            # What Pyro's store had for another inference.
            part._pyro_context.param_state = {"params": {}, "constraints": {}}
    for term in terms:
        # The guide is first, as in Pyro's SVI: the model may read what it states.
        for program in (term.guide, term.model):
            if program is not None and id(program) not in made:
                rows = partial(first, modules)
                made[id(program)] = holding(program, params, rows, apart, replicate)

    def of(term: LossTerm) -> LossTerm:
        guide, model = made.get(id(term.guide)), made[id(term.model)]
        learns = term.learns
        if learns is not None and any(HELD in getattr(p, "_modules", ()) for p in (guide, model)):
            learns = [*learns, params]
        return replace(term, model=model, guide=guide, learns=learns)

    return [replace(stage, terms=[of(term) for term in stage.terms]) for stage in stages]


def holding(
    given: Any,
    params: PyroParams,
    rows: Callable[[], tuple[Tensor, ...]],
    apart: str | None = None,
    replicate: int = 0,
) -> Any:
    """A program that holds the parameters that it states; as it is where it states none.

    Args:
        given: a module, to which they are added, or a function.
        params: to hold them.
        rows: gives a batch of rows.
        apart, replicate, and what is raised: as :func:`with_parameters`.
    """
    program = given if isinstance(given, nn.Module) else ProgramFunction(given)
    parts = list(program.modules())
    own = [part for part in parts if isinstance(part, ProgramFunction) or not _is_known(part)]
    if HELD in program._modules or not own:
        return given
    keep_parameters_local(program)
    batch = rows()
    copied = getattr(program, apart, None) if apart is not None else None
    with ExitStack() as held:
        if isinstance(copied, nn.Module):
            held.enter_context(PyroParams().held_by(copied))
        held.enter_context(params.held_by(program))
        try:
            _run(program, batch, replicate)
        except _MisstatedError:
            raise
        except Exception:
            # Of a program that learns something the first step says it, which looks at rows first.
            if not any(parameter.requires_grad for parameter in program.parameters()):
                raise
        stated = [one for one in program.modules() if isinstance(one, PyroParams)]
        for name, parameter in ((n, p) for one in stated for n, p in one.named_parameters()):
            if len(batch[0]) > 1 and len(batch[0]) in parameter.shape:
                _refuse_of_rows(name, program, batch)
    return program if HELD in program._modules or parts[1:] else given


def _is_known(part: nn.Module) -> bool:
    return is_of(type(part), KNOWN)


def _run(program: nn.Module, batch: tuple[Tensor, ...], replicate: int = 0) -> None:
    # Of a seed torch's generator of the CPU takes 32 bits.
    with (
        seeded((torch.initial_seed() + 7919 * (replicate + 1)) % 2**32, batch[0].device),
        refusing_hidden(),
        torch.no_grad(),
        ParticleCounts(1, 1),
        evaluating(program),
    ):
        pyro.poutine.trace(weights_first(program)).get_trace(*batch)


@contextmanager
def refusing_hidden() -> Iterator[None]:
    """Refuse `pyro.param` statements of programs run inside that no program of the fit answers.

    Raises:
        ValueError: naming them.
    """
    with pyro.get_param_store().scope() as state:
        yield
    if state["params"]:
        raise _MisstatedError(
            f"pyro.param({next(iter(state['params']))!r}) is hidden from the fit, by a handler in "
            "the program, such as poutine.block, or by one that fails before: let block hide the "
            "names of sites alone, block(hide=[…])"
        )


def _refuse_of_rows(name: str, program: nn.Module, batch: tuple[Tensor, ...]) -> None:
    """Refuse a parameter whose shape follows the rows, as a run on one less of them shows."""
    try:
        _run(program, tuple(column[:-1] for column in batch))
    except Exception as error:
        raise _MisstatedError(
            f"pyro.param({name!r}) has a value for each of the {len(batch[0])} rows of a batch, "
            "and other batches have other rows: compute it from x, by a module that the program "
            "holds, or sample it in the plate over rows"
        ) from error


def refuse_unheld(loss: Tensor, held: Iterable[Tensor]) -> None:
    """Refuse a loss with a parameter that no program holds, as one of a function's surroundings:
    nothing would move it.

    Args:
        loss: of the first step.
        held: the parameters of the fit.

    Raises:
        ValueError: naming its shape.
    """
    known, seen, nodes = {id(p) for p in held}, set[Any](), [loss.grad_fn]
    while nodes:
        node: Any = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        nodes += [before for before, _ in node.next_functions]
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, nn.Parameter) and id(leaf) not in known:
            raise ValueError(
                f"the loss has a parameter of shape {tuple(leaf.shape)} that neither model nor "
                "guide holds, so that nothing would move it: write the program as a module that "
                "has the network as a part, or state it by pyro.param; of what is not to learn, "
                "requires_grad_(False)"
            )


def hold_saved(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Let a program that is built anew hold the parameters that it has stated, as a file has them.

    Args:
        module: the program.
        weights: its weights by name.

    Raises:
        AttributeError: a part that the program does not have.
    """
    for key in sorted(weights, key=lambda name: -name.count(".")):
        path, _, name = key.rpartition(".")
        if path.rpartition(".")[2] == HELD:
            holder = module.get_submodule(path.rpartition(".")[0])
            if HELD not in holder._modules:
                PyroParams().hold(holder)
            held = holder.get_submodule(HELD)
            held.register_parameter(name, nn.Parameter(torch.empty_like(weights[key])))
