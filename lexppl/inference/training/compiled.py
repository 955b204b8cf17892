"""A step's losses and gradients by graphs, traced and compiled as they are needed."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import torch
from pyro.poutine.messenger import Messenger
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode

from lexppl.inference.contexts import random_state, set_random_state
from lexppl.inference.objective.objective import Moving, Objective
from lexppl.inference.recording import Recorder, rounding_ratio
from lexppl.inference.training.rows import StepRows
from lexppl.inference.training.settings import Backend, CompiledSteps
from lexppl.inference.training.step import MovedTerm, TermGradients, TrainingStep


class NotTraceableError(Exception):
    """A program of which no graph can be made; says why.

    `shares` of the fit, where they are known, at which the program may be traceable again.
    """

    shares: frozenset[float] = frozenset()


_READS = ("__bool__", "__float__", "__int__", "__index__", "item", "equal", "allclose")
REFUSED: Mapping[Any, str] = MappingProxyType(
    {
        **dict.fromkeys(
            [torch.equal, torch.allclose, *(getattr(Tensor, name) for name in _READS)],
            "the program reads a number from a tensor, for a branch, a shape or an .item()",
        ),
        **dict.fromkeys(
            [Tensor.numpy, Tensor.__array__, Tensor.tolist],
            "the program takes a tensor out of torch, to NumPy",
        ),
    }
)


class _ReadsRefused(TorchFunctionMode):
    """Refuses what a program reads from tensors, but not what torch's own checks of values read."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in REFUSED:
            raise NotTraceableError(REFUSED[func])
        return func(*args, **(kwargs or {}))


class _RunReads(Messenger):
    """Notes whether a program reads the fit's progress, and the shares that it compares it with;
    records the states of random numbers that it reads and sets."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder
        self.number = False
        self.shares: set[float] = set()

    def _pyro_fit_progress(self, msg: Any) -> None:
        self.number = True

    def _pyro_fit_reaches(self, msg: Any) -> None:
        self.shares.add(msg["args"][0])

    def _pyro_post_random_state(self, msg: Any) -> None:
        self._recorder.state(random_state, msg["args"], msg["value"])

    def _pyro_post_set_random_state(self, msg: Any) -> None:
        self._recorder.state(set_random_state, msg["args"], None)


@dataclass
class _Graph:
    """The graph of a term's loss and gradients for rows of one shape, which gradients are
    `present`, how many are of learned parameters, the shares of the fit that decide branches, and
    whether it goes back to an earlier random state."""

    run: Callable[..., Any]
    present: Sequence[bool]
    learned: int
    shares: frozenset[float]
    goes_back: bool
    compiled: bool = False
    uses: int = 0
    next_check: int = 1
    misses: int = 0

    def gradients(self, inputs: Sequence[Tensor]) -> TermGradients:
        """The loss and gradients by the graph."""
        with torch.no_grad():
            loss, *values = self.run(*inputs)
        left = iter(values)
        gradients = [next(left) if there else None for there in self.present]
        return TermGradients(loss, gradients[: self.learned], gradients[self.learned :])


def graph_inputs(step: TrainingStep, rows: StepRows, numbers: Mapping[str, float]) -> list[Tensor]:
    """A graph's inputs: parameters, statistics, rows, weights and the objective's numbers."""
    runner = step.runner
    state = [*runner.parameters.values(), *runner.buffers.values()]
    like = state[0]
    # Of the parameters' type, as a number takes that of the tensor that it multiplies; filled in on
    # the device, which a copy from the host would wait for.
    scalars = [torch.full((), n, dtype=like.dtype, device=like.device) for n in numbers.values()]
    weights = [] if rows.weights is None else [rows.weights]
    return [*state, *rows.batch, *weights, *scalars]


MOST_GRAPHS = 8
"""Of a term; batch sizes that keep changing would otherwise be traced again and again."""
MOST_MISSES = 3
"""Checks in a row that a graph may fail. One may: a compiled probability differs in its last digit,
and a draw that falls between the two is another one."""
OPTIONS: Mapping[str, Any] = MappingProxyType({"fallback_random": True, "triton.cudagraphs": False})
"""Of inductor: torch's own random numbers; and no CUDA graphs, whatever TORCHINDUCTOR_CUDAGRAPHS
says, as these write the next step's losses and gradients over those of this one."""


@dataclass
class _OfTerm:
    """A term's graphs, by the shapes of rows and the phase of the objective."""

    graphs: dict[Hashable, _Graph] = field(default_factory=dict)
    met: set[Hashable] = field(default_factory=set)
    eager: set[Hashable] = field(default_factory=set)
    """Of a share of the fit in which the program computes with the progress."""
    shares: set[float] = field(default_factory=set)
    compiled_rows: Hashable = None
    """The shapes of the rows that graphs are compiled for; those of others are traced alone."""
    is_eager: bool = False


@dataclass(frozen=True)
class _TermStep:
    """One term of one step."""

    step: TrainingStep
    moved: MovedTerm
    rows: StepRows
    objective: Objective

    @cached_property
    def moving(self) -> Moving | None:
        return self.objective.moving

    @property
    def numbers(self) -> Mapping[str, float]:
        return {} if self.moving is None else self.moving.numbers

    @property
    def inputs(self) -> list[Tensor]:
        return graph_inputs(self.step, self.rows, self.numbers)

    @property
    def shapes(self) -> Hashable:
        rows = self.rows
        columns = rows.batch if rows.weights is None else (*rows.batch, rows.weights)
        return rows.size, rows.weights is None, *((c.shape, c.dtype) for c in columns)

    def key(self, shares: Iterable[float]) -> Hashable:
        reached = tuple((share, self.rows.at >= share) for share in sorted(shares))
        return self.shapes, None if self.moving is None else self.moving.kind, reached


def _traced(term_step: _TermStep) -> _Graph:
    """The graph of a term, forward and backward together: an `autograd.Function` needs both."""
    step, moved, rows = term_step.step, term_step.moved, term_step.rows
    runner = step.runner
    inputs = [value.detach().clone() for value in term_step.inputs]
    unread = iter(inputs)
    state = {name: next(unread).requires_grad_() for name in runner.parameters}
    state |= {name: next(unread) for name in runner.buffers}
    batch = tuple(next(unread) for _ in rows.batch)
    weights = None if rows.weights is None else next(unread)
    objective = term_step.objective.with_numbers({name: next(unread) for name in term_step.numbers})
    recorder = Recorder(inputs)
    reads = _RunReads(recorder)
    with reads, runner.standing_in(state), torch.enable_grad(), _ReadsRefused(), recorder:
        traced = step.evaluate(moved, replace(rows, batch=batch, weights=weights), objective)
    gradients = (*traced.learned, *traced.controls)
    present = [gradient is not None for gradient in gradients]
    run = recorder.again([traced.loss, *(g for g in gradients if g is not None)])
    if reads.number:
        error = NotTraceableError(
            "the program computes with the fit's progress, which a graph would keep"
        )
        error.shares = frozenset(share for share in reads.shares if share > rows.at)
        raise error
    shares = frozenset(reads.shares)
    return _Graph(run, present, len(moved.learned), shares, recorder.goes_back)


class CompiledTerms:
    """A term's loss and gradients by a graph of them.

    The first two steps of a kind (shape of rows, phase of the objective) run the program; then the
    term is traced, compiled, and checked against the program with the same draws, again at the
    graph's 2nd, 4th, 8th … use. A term whose graph cannot be made, or differs, runs as it is, with
    a warning.
    """

    def __init__(self, backend: Backend, rounded: torch.dtype | None = None) -> None:
        self.backend, self._rounded = backend, rounded
        self._terms: defaultdict[int, _OfTerm] = defaultdict(_OfTerm)
        self._counts = dict.fromkeys(("compiled", "traced", "eager"), 0)
        self._reasons: list[str] = []

    @property
    def record(self) -> CompiledSteps:
        """How the steps so far were computed."""
        return CompiledSteps(self.backend, **self._counts, reasons=tuple(self._reasons))

    def __call__(self, step: TrainingStep, moved: MovedTerm, rows: StepRows) -> TermGradients:
        known = self._terms[id(moved.term)]
        term_step = _TermStep(step, moved, rows, moved.term.objective.at(rows.at))
        if term_step.moving is None:
            name = type(term_step.objective).__name__
            self._give_up(term_step, f"{name} does not say what of it changes (Objective.moving)")
        if term_step.moving is None or known.is_eager:
            return self._eager(term_step)
        key = term_step.key(known.shares)
        graph = known.graphs.get(key)
        if graph is None and key in known.met - known.eager:
            graph = self._made(term_step, known)
            if graph is not None:
                known.graphs[term_step.key(known.shares)] = graph
        known.met.add(key)
        if graph is None:
            return self._eager(term_step)
        graph.uses += 1
        if graph.uses >= graph.next_check:
            return self._checked(term_step, graph)
        self._counts["compiled" if graph.compiled else "traced"] += 1
        return graph.gradients(term_step.inputs)

    def _eager(self, term_step: _TermStep) -> TermGradients:
        self._counts["eager"] += 1
        return term_step.step.evaluate(term_step.moved, term_step.rows, term_step.objective)

    def _give_up(self, term_step: _TermStep, why: str) -> None:
        self._terms[id(term_step.moved.term)] = _OfTerm(is_eager=True)
        self._warn(term_step, why, "its steps are run as they are")

    def _warn(self, term_step: _TermStep, why: str, instead: str) -> None:
        reason = f"{type(term_step.moved.term.model).__name__} is not compiled: {why}"
        if reason not in self._reasons:
            self._reasons.append(reason)
            warnings.warn(f"{reason}; {instead}", RuntimeWarning, stacklevel=2)

    def _made(self, term_step: _TermStep, known: _OfTerm) -> _Graph | None:
        """The graph of a term for such rows; None, and a warning, where there is none."""
        if len(known.graphs) == MOST_GRAPHS:
            self._give_up(term_step, "its batch sizes keep changing")
            return None
        like = term_step.rows.batch[0]
        state = random_state(like.device)
        try:
            graph = _traced(term_step)
            known.shares |= graph.shares
            known.compiled_rows = known.compiled_rows or term_step.shapes
            # Compiling costs as much as thousands of steps; a last smaller batch has one an epoch.
            if self.backend == "inductor" and known.compiled_rows == term_step.shapes:
                graph.run, graph.compiled = self._compiled(term_step, graph)
            return graph
        # A program is any Python, and torch has no term_step error for what cannot be traced.
        except Exception as error:
            later: frozenset[float] = getattr(error, "shares", frozenset())
            if later:
                known.shares |= later
                known.eager.add(term_step.key(known.shares))
            else:
                self._give_up(term_step, _line(error))
            return None
        finally:
            set_random_state(like.device, state)

    def _compiled(self, term_step: _TermStep, graph: _Graph) -> tuple[Callable[..., Any], bool]:
        inputs = [value.detach() for value in term_step.inputs]
        try:
            if graph.goes_back:
                raise NotTraceableError("it goes back to an earlier state of the random numbers")
            trace = make_fx(graph.run, tracing_mode="fake", _allow_non_fake_inputs=True)
            with torch.no_grad():
                return _machine_code(trace(*inputs), inputs), True
        except Exception as error:
            self._warn(
                term_step, f"its graph cannot be, {_line(error)}", "the graph is run as traced"
            )
            return graph.run, False

    def _checked(self, term_step: _TermStep, graph: _Graph) -> TermGradients:
        """The program's loss and gradients, against which its graph's are checked."""
        like, runner = term_step.rows.batch[0], term_step.step.runner
        buffers = [*runner.template.buffers(), *runner.buffers.values()]
        before, state = [b.clone() for b in buffers], random_state(like.device)
        gradients = self._eager(term_step)
        after, left = [b.clone() for b in buffers], random_state(like.device)
        _put(buffers, before)
        set_random_state(like.device, state)
        try:
            by_graph = graph.gradients(term_step.inputs)
            others = zip(after, buffers, strict=True)
            gap = disagreement(gradients, by_graph, others, self._rounded)
            why = (
                f"its graph's loss or gradients differ from the program's, {gap:.1e} times what "
                f"rounding explains, at its step {graph.uses}"
            )
        except Exception as error:
            gap, why = float("inf"), f"its graph fails, {_line(error)}"
            graph.misses = MOST_MISSES
        _put(buffers, after)
        set_random_state(like.device, left)
        graph.next_check = 2 * graph.uses if gap <= 1.0 else graph.uses + 1
        graph.misses = 0 if gap <= 1.0 else graph.misses + 1
        if graph.misses >= MOST_MISSES:
            self._give_up(term_step, why)
        return gradients


def _put(tensors: list[Tensor], values: list[Tensor]) -> None:
    with torch.no_grad():
        for tensor, value in zip(tensors, values, strict=True):
            tensor.copy_(value)


def _machine_code(graph: GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    """A graph as machine code, by inductor without `torch.compile`'s guards on each input."""
    from torch import _inductor  # noqa: PLC0415 - seconds to load, for those who compile

    with torch.no_grad():
        return _inductor.compile(graph, inputs, options=dict(OPTIONS))


def _line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


def disagreement(
    eager: TermGradients,
    graph: TermGradients,
    others: Iterable[tuple[Tensor, Tensor]] = (),
    rounded: torch.dtype | None = None,
) -> float:
    """The largest difference of two losses or gradients relative to what rounding explains,

        max |a − b| / (√ε max |a| + 100 ε max_over_all |a|);

    a gradient that is zero but for rounding is judged by the size of the others.
    """
    more = 0.0 if rounded is None else torch.finfo(rounded).eps
    return max(
        rounding_ratio([eager.loss], [graph.loss]),
        rounding_ratio(eager.learned, graph.learned, more),
        rounding_ratio(eager.controls, graph.controls, more),
        *(rounding_ratio([first], [second]) for first, second in others),
    )
