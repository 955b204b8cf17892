"""A term's loss and gradients as one graph."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from pyro.poutine.messenger import Messenger
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from lexppl.inference.objective.objective import Objective
from lexppl.inference.training.rows.rows import StepRows
from lexppl.inference.training.step import MovedTerm, TermGradients, TrainingStep

BY_SHAPE = frozenset(
    f"aten::{name}"
    for name in [
        "rand",
        "randn",
        "rand_like",
        "randn_like",
        "randint",
        "randperm",
        "normal_",
        "uniform_",
        "exponential_",
        "cauchy_",
    ]
)
"""Draws that depend on no tensor's values, and so are the same when they are made again."""


class NotTraceableError(Exception):
    """A program of which no graph can be made; says why."""


class RepeatedDraws(Messenger):
    """Let a program that goes back to an earlier random state have the draws made from there, as a
    graph has no random state to set."""

    def __init__(self) -> None:
        super().__init__()
        self._draws = _Draws()

    def __enter__(self) -> Self:
        self._draws.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._draws.__exit__(*error)

    def _pyro_random_state(self, msg: Any) -> None:
        self._draws.repeats = True
        msg["value"], msg["done"] = self._draws.place, True

    def _pyro_set_random_state(self, msg: Any) -> None:
        self._draws.place = msg["args"][1]
        msg["done"] = True


class _Draws(TorchDispatchMode):
    """The draws in their order; those after `place` are given again."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[Any, Any]] = []
        self.place = 0
        self.repeats = False
        """Whether anything may go back."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        described = _described(func, args, kwargs)
        if self.place == len(self.made):
            value = func(*args, **kwargs)
            if self.repeats:
                # The program may write over a draw before it is repeated.
                self.made.append((described, value.clone()))
                self.place += 1
            return value
        known, value = self.made[self.place]
        if known != described or func._schema.name not in BY_SHAPE:
            raise NotTraceableError(
                f"after a return to an earlier random state the program draws by {func}, which is "
                "not what it drew before, or depends on a tensor's values"
            )
        self.place += 1
        return args[0].copy_(value) if func._schema.is_mutable else value.clone()


def _described(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A draw but for the values of its tensors."""
    leaves, _ = tree_flatten((args, kwargs))
    return str(func), tuple(
        (tuple(leaf.shape), leaf.dtype, leaf.device) if isinstance(leaf, Tensor) else str(leaf)
        for leaf in leaves
    )


class ProgressReads(Messenger):
    """Notes whether a program reads the fit's progress, and the shares that it compares it with."""

    def __init__(self) -> None:
        super().__init__()
        self.number = False
        self.shares: set[float] = set()

    def _pyro_fit_progress(self, msg: Any) -> None:
        self.number = True

    def _pyro_fit_reaches(self, msg: Any) -> None:
        self.shares.add(msg["args"][0])


@dataclass(frozen=True)
class TracedTerm:
    """The graph of a term's loss and gradients for rows of one shape, which gradients are
    `present`, how many are of learned parameters, and the shares of the fit that decide branches.
    """

    graph: GraphModule
    present: Sequence[bool]
    learned: int
    shares: frozenset[float]

    def gradients(self, run: Callable[..., Any], inputs: Sequence[Tensor]) -> TermGradients:
        """The loss and gradients by the graph."""
        with torch.no_grad():
            loss, *found = run(*inputs)
        values = iter(found)
        every = [next(values) if there else None for there in self.present]
        return TermGradients(loss, every[: self.learned], every[self.learned :])


def graph_inputs(step: TrainingStep, rows: StepRows, numbers: Mapping[str, float]) -> list[Tensor]:
    """A graph's inputs: parameters, statistics, rows, weights and the objective's numbers."""
    runner = step.runner
    own = [*runner.parameters.values(), *runner.buffers.values()]
    like = own[0]
    # Of the parameters' type, as a number takes that of the tensor that it multiplies; filled in on
    # the device, which a copy from the host would wait for.
    given = [torch.full((), n, dtype=like.dtype, device=like.device) for n in numbers.values()]
    weights = [] if rows.weights is None else [rows.weights]
    return [*own, *rows.batch, *weights, *given]


def traced_term(
    step: TrainingStep,
    moved: MovedTerm,
    rows: StepRows,
    objective: Objective,
    numbers: Mapping[str, float],
) -> TracedTerm:
    """The graph of a term, forward and backward together: an `autograd.Function` needs both."""
    runner = step.runner
    names = [*runner.parameters, *runner.buffers]
    learned = set(runner.parameters)
    columns, several = len(rows.batch), rows.weights is not None
    present: list[bool] = []

    def loss_and_gradients(*inputs: Tensor) -> list[Tensor]:
        given = iter(inputs)
        state = {name: next(given) for name in names}
        own = {n: v.detach().requires_grad_() if n in learned else v for n, v in state.items()}
        batch = tuple(next(given) for _ in range(columns))
        weights = next(given) if several else None
        changing = objective.with_numbers({name: next(given) for name in numbers})
        with runner.standing_in(own), torch.enable_grad(), RepeatedDraws():
            found = step.evaluate(moved, replace(rows, batch=batch, weights=weights), changing)
        every = (*found.learned, *found.controls)
        present[:] = [one is not None for one in every]
        return [found.loss, *(one.detach() for one in every if one is not None)]

    reads = ProgressReads()
    with reads:
        graph = make_fx(loss_and_gradients, tracing_mode="fake", _allow_non_fake_inputs=True)(
            *(value.detach() for value in graph_inputs(step, rows, numbers))
        )
    if reads.number:
        raise NotTraceableError(
            "the program computes with the fit's progress, which a graph would keep"
        )
    return TracedTerm(graph, tuple(present), len(moved.learned), frozenset(reads.shares))
