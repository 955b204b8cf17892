"""A potential and its gradient as the tensor operations of one evaluation, done again elsewhere."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

import torch
from torch import Tensor
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.experimental.proxy_tensor import make_fx

from lexppl.inference.contexts import program_settings
from lexppl.inference.posterior.mcmc.potential import Potential


def fold(recorded: GraphModule, numbers: Sequence[Tensor]) -> bool:
    """Replace what does not depend on a recording's arguments by the values that it has in one run.

    Random numbers are those of that run, unless some are drawn from a distribution of the arguments
    and read: then all are drawn again in each run, in their order.

    Args:
        recorded: by `make_fx`; it is changed.
        numbers: arguments of the run.

    Returns:
        Whether it still draws random numbers.

    Example:
        >>> from torch.fx.experimental.proxy_tensor import make_fx
        >>> double = make_fx(lambda x: x * torch.rand(2).clamp(2.0, 2.0))(torch.zeros(2))
        >>> fold(double, [torch.zeros(2)])
        False
        >>> [node.op for node in double.graph.nodes], double(torch.full((2,), 3.0))
        (['placeholder', 'get_attr', 'call_function', 'output'], tensor([6., 6.]))
    """
    graph = recorded.graph
    nodes, live = list(graph.nodes), set()
    for node in reversed(nodes):
        if node.op == "output" or node in live or _writes(node):
            live |= {node, *node.all_input_nodes}
    same = _constant(nodes)
    drawn = any(_is_random(node) for node in live - same)
    if drawn:
        same = _constant([node for node in nodes if not _is_random(node)])
    if any(_writes(node) and same & set(node.all_input_nodes) for node in live - same):
        return any(map(_is_random, nodes))
    read = [n for n in nodes if n in same and n.op == "call_function" and set(n.users) - same]
    run = _Run(recorded, read)
    run.run(*numbers)
    for place, node in enumerate(read):
        recorded.register_buffer(name := f"folded_{place}", run.values[node])
        with graph.inserting_before(node):
            node.replace_all_uses_with(graph.get_attr(name))
    kept = {node for node in nodes if _writes(node) or (drawn and _is_random(node))} - same
    graph.eliminate_dead_code(lambda node: node in kept or node.op in ("placeholder", "output"))
    recorded.recompile()
    return drawn


class _Run(Interpreter):
    """A run that keeps the values of some nodes."""

    def __init__(self, recorded: GraphModule, kept: Collection[Node]) -> None:
        super().__init__(recorded)
        self.values: dict[Node, Any] = dict.fromkeys(kept)

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        if n in self.values:
            self.values[n] = value
        return value


def _constant(nodes: Sequence[Node]) -> set[Node]:
    """Those of some nodes that have the same value whatever the arguments."""
    same: set[Node] = set()
    for node in nodes:
        if node.op in ("get_attr", "call_function") and same.issuperset(node.all_input_nodes):
            same.add(node)
    return same


def _is_random(node: Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _writes(node: Node) -> bool:
    return bool(getattr(getattr(node.target, "_schema", None), "is_mutable", False))


TOLERANCE = 1e-4
"""Of the largest number: of float32 sums in another order, and far below a step's energy."""


class Recorded:
    """A potential whose evaluations skip the program: its handlers are most of a small one's time.

    What is recorded is one evaluation, value and gradient together; what does not depend on the
    latents is computed once (:func:`lexppl.inference.posterior.mcmc.recorded.fold`). A program that
    decides by the value of a latent cannot be recorded (torch refuses it); one that is no such
    function of its latents for another reason is found out by :meth:`agrees`.

    Args:
        potential: to be recorded.
        place: an unconstrained place, at which it is.

    Raises:
        Exception: whatever torch raises of a program that it cannot record.

    Example:
        >>> import pyro, pyro.distributions as dist
        >>> from lexppl.effects import mask_particles
        >>> def program(x):
        ...     mean = pyro.sample("mean", dist.Normal(0.0, 1.0))
        ...     with pyro.plate("data", len(x)), mask_particles():
        ...         pyro.sample("x", dist.Normal(mean, 1.0), obs=x)
        >>> potential = Potential(program, (torch.ones(3),))
        >>> with pyro.validation_enabled(False):
        ...     recorded = Recorded(potential, {"mean": torch.tensor(0.0)})
        >>> recorded.agrees([{"mean": torch.tensor(2.0)}])
        True
    """

    def __init__(self, potential: Potential, place: Mapping[str, Tensor]) -> None:
        self._potential = potential
        self._graph = make_fx(self._both)(*self._numbers(place))
        with potential.fixed():
            drawn = fold(self._graph, self._numbers(place))
        self._within = potential.fixed if drawn else nullcontext

    @classmethod
    def of(cls, potential: Potential, places: Sequence[Mapping[str, Tensor]]) -> Self | None:
        """The recording at the first of some places; None of a program that torch cannot record, or
        that is another at one of them."""
        with program_settings(validate=False):
            try:
                recorded = cls(potential, places[0])
            except Exception:
                return None
        return recorded if recorded.agrees(places) else None

    def __call__(self, unconstrained: Mapping[str, Tensor]) -> Tensor:
        """U, in nats, with its gradient."""
        value: Tensor = _Replayed.apply(self._graph, self._within, *self._numbers(unconstrained))
        return value

    def constrained(self, unconstrained: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """θ = t(u), by name."""
        return self._potential.constrained(unconstrained)

    def agrees(self, places: Sequence[Mapping[str, Tensor]]) -> bool:
        """Whether value and gradient are the potential's own at some places."""
        with program_settings(validate=False):
            return all(self._agrees_at(self._numbers(place)) for place in places)

    def _agrees_at(self, numbers: list[Tensor]) -> bool:
        with self._within():
            again = self._graph(*numbers)
        own = self._both(*numbers)
        return all(
            bool(((a - b).abs() <= TOLERANCE * (1.0 + b.abs().max())).all())
            for a, b in zip(again, own, strict=True)
        )

    def _numbers(self, place: Mapping[str, Tensor]) -> list[Tensor]:
        return [place[name] for name in self._potential.sites]

    def _both(self, *numbers: Tensor) -> tuple[Tensor, ...]:
        given = [number.detach().requires_grad_() for number in numbers]
        with torch.enable_grad():
            value = self._potential(dict(zip(self._potential.sites, given, strict=True)))
        return value.detach(), *torch.autograd.grad(value, given)


class _Replayed(torch.autograd.Function):
    """The recorded value, whose gradient has come with it."""

    @staticmethod
    def forward(
        ctx: Any,
        graph: Callable[..., tuple[Tensor, ...]],
        fixed: Callable[[], AbstractContextManager[None]],
        *numbers: Tensor,
    ) -> Tensor:
        with fixed():
            value, *gradients = graph(*(number.detach() for number in numbers))
        ctx.save_for_backward(*gradients)
        return value

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        (slope,) = outer
        return None, None, *(slope * gradient for gradient in ctx.saved_tensors)
