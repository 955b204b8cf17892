"""A step's losses and gradients by graphs, traced and compiled as they are needed."""

import warnings
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import torch
from pyro.poutine.messenger import Messenger
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from lexppl.inference.contexts import random_state, set_random_state
from lexppl.inference.objective.objective import Moving, Objective
from lexppl.inference.training.rows import StepRows
from lexppl.inference.training.settings import Backend, CompiledSteps
from lexppl.inference.training.step import MovedTerm, TermGradients, TrainingStep


class NotTraceableError(Exception):
    """A program of which no graph can be made; says why.

    `shares` of the fit, where they are known, at which the program may be traceable again.
    """

    shares: frozenset[float] = frozenset()


class _Operations(TorchDispatchMode):
    """Sees operations; without the import of torch's compiler, which takes a second."""

    _should_skip_dynamo = classmethod(lambda cls: False)


VIEWS = frozenset(f"aten::{n}" for n in ("alias", "detach", "view", "_unsafe_view", "expand"))
"""Of which one is left out where it has the shape and strides of its tensor."""
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


class _Name(str):
    """The name of a value in the source of a recorded run."""

    __slots__ = ()
    __repr__ = str.__str__


class Recorder(_Operations):
    """The operations of a run, forward and backward, to be run again on other inputs; other tensors
    that it reads are held as they are."""

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()
        self._inputs = [_Name(f"x{number}") for number in range(len(inputs))]
        # With the tensors, as an identity may be given again once a tensor is gone.
        self._known = {id(x): (x, name) for x, name in zip(inputs, self._inputs, strict=True)}
        self._held: dict[str, Any] = {}
        self.goes_back = False
        """Whether the run has gone back to an earlier state of the random numbers."""
        # Of each the names that it reads and makes, its line, and whether it stays in any case.
        self._operations: list[tuple[set[_Name], set[_Name], str, bool]] = []

    def _named(self, leaf: Any) -> Any:
        """The name of an argument; the argument itself where its text is one."""
        if leaf is None or type(leaf) in (bool, int, str):
            return leaf
        if id(leaf) not in self._known:
            name = _Name(f"held{len(self._held)}")
            self._held[name], self._known[id(leaf)] = leaf, (leaf, name)
        return self._known[id(leaf)][1]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        given, named = tree_map(self._named, (args, kwargs))
        found = func(*args, **kwargs)
        if torch.Tag.data_dependent_output in func.tags:
            return found
        is_view = func._schema.name in VIEWS and args[0].shape == found.shape
        if is_view and args[0].stride() == found.stride():
            self._known[id(found)] = found, given[0]
            return found
        stays = func._schema.is_mutable or torch.Tag.nondeterministic_seeded in func.tags
        self._note(func._op, given, named, found, stays)
        return found

    def state(self, function: Callable[..., Any], args: tuple[Any, ...], found: Any) -> None:
        """Record that the state of the random numbers is looked at, or set to an earlier one."""
        self.goes_back = self.goes_back or found is None
        self._note(function, tuple(map(self._named, args)), {}, found, stays=True)

    def _note(
        self, function: Any, given: Sequence[Any], named: dict[str, Any], found: Any, stays: bool
    ) -> None:
        number = len(self._operations)
        several = isinstance(found, tuple | list)
        made = list(found) if several else [found]
        names = [_Name(f"v{number}_{place}") for place in range(len(made))]
        self._known |= {id(v): (v, n) for v, n in zip(made, names, strict=True) if v is not None}
        self._held[f"f{number}"] = function
        words = ", ".join([*map(repr, given), *(f"{k}={v!r}" for k, v in named.items())])
        line = f"{', '.join(names)}{',' * several} = f{number}({words})"
        reads = {leaf for leaf in tree_leaves((given, named)) if isinstance(leaf, _Name)}
        self._operations.append((reads, {*names}, line, stays))

    def again(self, outputs: Sequence[Tensor]) -> Callable[..., tuple[Tensor, ...]]:
        """A function from inputs to these outputs, without operations that they do not need."""
        results = [self._named(value) for value in outputs]
        needed, lines = {*results, *self._inputs, *self._held}, [f"return {', '.join(results)},"]
        for reads, makes, line, stays in reversed(self._operations):
            if stays or makes & needed:
                # Values are let go after their last use.
                lines += [*(f"del {name}" for name in (reads | makes) - needed), line]
                needed |= reads
        source = "\n    ".join([f"def run({', '.join(self._inputs)}):", *reversed(lines)])
        names = dict(self._held)
        exec(source, names)
        run: Callable[..., tuple[Tensor, ...]] = names["run"]
        return run


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
            loss, *found = self.run(*inputs)
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
) -> _Graph:
    """The graph of a term, forward and backward together: an `autograd.Function` needs both."""
    runner = step.runner
    inputs = [value.detach().clone() for value in graph_inputs(step, rows, numbers)]
    given = iter(inputs)
    own = {name: next(given).requires_grad_() for name in runner.parameters}
    own |= {name: next(given) for name in runner.buffers}
    batch = tuple(next(given) for _ in rows.batch)
    weights = None if rows.weights is None else next(given)
    changing = objective.with_numbers({name: next(given) for name in numbers})
    recorder = Recorder(inputs)
    reads = _RunReads(recorder)
    with reads, runner.standing_in(own), torch.enable_grad(), _ReadsRefused(), recorder:
        found = step.evaluate(moved, replace(rows, batch=batch, weights=weights), changing)
    every = (*found.learned, *found.controls)
    present = [one is not None for one in every]
    graph = recorder.again([found.loss, *(one for one in every if one is not None)])
    if reads.number:
        error = NotTraceableError(
            "the program computes with the fit's progress, which a graph would keep"
        )
        error.shares = frozenset(share for share in reads.shares if share > rows.at)
        raise error
    shares = frozenset(reads.shares)
    return _Graph(graph, present, len(moved.learned), shares, recorder.goes_back)


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
    numbers: Mapping[str, float]

    @property
    def inputs(self) -> list[Tensor]:
        return graph_inputs(self.step, self.rows, self.numbers)

    @property
    def shapes(self) -> Hashable:
        rows = self.rows
        given = rows.batch if rows.weights is None else (*rows.batch, rows.weights)
        return rows.size, rows.weights is None, *((one.shape, one.dtype) for one in given)

    def key(self, known: _OfTerm, moving: Moving) -> Hashable:
        reached = tuple((share, self.rows.at >= share) for share in sorted(known.shares))
        return self.shapes, moving.kind, reached


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
        objective = moved.term.objective.at(rows.at)
        known, moving = self._terms[id(moved.term)], objective.moving
        one = _TermStep(step, moved, rows, objective, {} if moving is None else moving.numbers)
        if moving is None:
            name = type(objective).__name__
            self._give_up(one, f"{name} does not say what of it changes (Objective.moving)")
        if moving is None or known.is_eager:
            return self._eager(one)
        key = one.key(known, moving)
        if key in known.eager:
            return self._eager(one)
        graph = known.graphs.get(key)
        if graph is None and key not in known.met:
            known.met.add(key)
            return self._eager(one)
        if graph is None:
            graph = self._made(one, known)
            if graph is None:
                return self._eager(one)
            known.graphs[one.key(known, moving)] = graph
        graph.uses += 1
        if graph.uses >= graph.next_check:
            return self._checked(one, graph)
        self._counts["compiled" if graph.compiled else "traced"] += 1
        return graph.gradients(one.inputs)

    def _eager(self, one: _TermStep) -> TermGradients:
        self._counts["eager"] += 1
        return one.step.evaluate(one.moved, one.rows, one.objective)

    def _give_up(self, one: _TermStep, why: str) -> None:
        self._terms[id(one.moved.term)] = _OfTerm(is_eager=True)
        self._warn(one, why, "its steps are run as they are")

    def _warn(self, one: _TermStep, why: str, instead: str) -> None:
        reason = f"{type(one.moved.term.model).__name__} is not compiled: {why}"
        if reason not in self._reasons:
            self._reasons.append(reason)
            warnings.warn(f"{reason}; {instead}", RuntimeWarning, stacklevel=2)

    def _made(self, one: _TermStep, known: _OfTerm) -> _Graph | None:
        """The graph of a term for such rows; None, and a warning, where there is none."""
        if len(known.graphs) == MOST_GRAPHS:
            self._give_up(one, "its batch sizes keep changing")
            return None
        like = one.rows.batch[0]
        state = random_state(like.device)
        try:
            graph = traced_term(one.step, one.moved, one.rows, one.objective, one.numbers)
            known.shares |= graph.shares
            known.compiled_rows = known.compiled_rows or one.shapes
            # Compiling costs as much as thousands of steps; a last smaller batch has one an epoch.
            if self.backend == "inductor" and known.compiled_rows == one.shapes:
                graph.run, graph.compiled = self._compiled(one, graph)
            return graph
        # A program is any Python, and torch has no one error for what cannot be traced.
        except Exception as error:
            later: frozenset[float] = getattr(error, "shares", frozenset())
            moving = one.objective.moving
            if later and moving is not None:
                known.shares |= later
                known.eager.add(one.key(known, moving))
            else:
                self._give_up(one, _line(error))
            return None
        finally:
            set_random_state(like.device, state)

    def _compiled(self, one: _TermStep, graph: _Graph) -> tuple[Callable[..., Any], bool]:
        inputs = [value.detach() for value in one.inputs]
        try:
            if graph.goes_back:
                raise NotTraceableError("it goes back to an earlier state of the random numbers")
            trace = make_fx(graph.run, tracing_mode="fake", _allow_non_fake_inputs=True)
            with torch.no_grad():
                return _machine_code(trace(*inputs), inputs), True
        except Exception as error:
            self._warn(one, f"its graph cannot be, {_line(error)}", "the graph is run as traced")
            return graph.run, False

    def _checked(self, one: _TermStep, graph: _Graph) -> TermGradients:
        """The program's loss and gradients, against which its graph's are checked."""
        like, runner = one.rows.batch[0], one.step.runner
        buffers = [*runner.template.buffers(), *runner.buffers.values()]
        before, state = [b.clone() for b in buffers], random_state(like.device)
        found = self._eager(one)
        after, left = [b.clone() for b in buffers], random_state(like.device)
        _put(buffers, before)
        set_random_state(like.device, state)
        try:
            by_graph = graph.gradients(one.inputs)
            others = zip(after, buffers, strict=True)
            gap = disagreement(found, by_graph, others, self._rounded)
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
            self._give_up(one, why)
        return found


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
        _worst([eager.loss], [graph.loss]),
        _worst(eager.learned, graph.learned, more),
        _worst(eager.controls, graph.controls, more),
        *(_worst([one], [other]) for one, other in others),
    )


def _worst(
    ours: Sequence[Tensor | None], theirs: Sequence[Tensor | None], more: float = 0.0
) -> float:
    """The largest of one list of tensors."""
    both = list(zip(ours, theirs, strict=True))
    pairs = [(a, b) for a, b in both if a is not None and b is not None]
    missing = any((a is None) != (b is None) for a, b in both)
    if missing or any(a.shape != b.shape or a.dtype != b.dtype for a, b in pairs):
        return float("inf")
    pairs = [(a, b) for a, b in pairs if a.numel()]
    if not pairs:
        return 0.0
    if not pairs[0][0].is_floating_point():
        return 0.0 if all(torch.equal(a, b) for a, b in pairs) else float("inf")
    precision = torch.finfo(pairs[0][0].dtype).eps
    sizes = torch.stack([a.nan_to_num(0.0, 0.0, 0.0).abs().max() for a, _ in pairs])
    gaps = torch.stack([_gap(a, b) for a, b in pairs])
    allowed = (precision**0.5 + more) * sizes + 100 * precision * sizes.max()
    ratios = torch.where(gaps == 0, 0.0, gaps / allowed)
    return float(ratios.nan_to_num(nan=float("inf")).max())


def _gap(ours: Tensor, theirs: Tensor) -> Tensor:
    """The largest difference; infinite or missing numbers in both are alike."""
    alike = (ours == theirs) | (ours.isnan() & theirs.isnan())
    return torch.where(alike, 0.0, (ours - theirs).abs()).max()
