"""A recording whose constants are computed once: lists of masks, imputations, networks of x."""

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Interpreter, Node


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
