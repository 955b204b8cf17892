"""The tensor operations of a run, recorded to be run again on other inputs."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

VIEWS = frozenset(f"aten::{n}" for n in ("alias", "detach", "view", "_unsafe_view", "expand"))
"""Operations that are left out where their result has the shape and strides of its tensor."""


class _Name(str):
    """The name of a value in the source of a recorded run."""

    __slots__ = ()
    __repr__ = str.__str__


class Recorder(TorchDispatchMode):
    """The operations of a run, forward and backward, to be run again on other inputs; other tensors
    that it reads are held as they are.

    With `folds` what does not depend on the inputs, random numbers too, is computed once, and a run
    that decides by a number of the inputs, draws by them or writes into a tensor is refused by a
    RuntimeError.
    """

    # Without the import of torch's compiler, which takes a second.
    _should_skip_dynamo = classmethod(lambda cls: False)

    def __init__(self, inputs: Sequence[Tensor], folds: bool = False) -> None:
        super().__init__()
        self._folds = folds
        self._inputs = [_Name(f"x{number}") for number in range(len(inputs))]
        # With the tensors, as an identity may be given again once a tensor is gone.
        self._known = {id(x): (x, name) for x, name in zip(inputs, self._inputs, strict=True)}
        self._held: dict[str, Any] = {}
        self._functions: dict[str, Any] = {}
        self.goes_back = False
        """Whether the run has gone back to an earlier state of the random numbers."""
        # Of each the names that it reads and makes, its line, and whether it stays in any case, or
        # is refused if it is needed (None).
        self._operations: list[tuple[set[_Name], set[_Name], str, bool | None]] = []

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
        arguments, named = tree_map(self._named, (args, kwargs))
        result = func(*args, **kwargs)
        reads = {leaf for leaf in tree_leaves((arguments, named)) if isinstance(leaf, _Name)}
        if self._folds and reads <= self._held.keys():
            return result
        by_value = torch.Tag.data_dependent_output in func.tags
        if self._folds and (by_value or func._schema.is_mutable):
            raise RuntimeError(f"{func} of an input cannot be recorded")
        if by_value:
            return result
        is_view = func._schema.name in VIEWS and args[0].shape == result.shape
        if is_view and args[0].stride() == result.stride():
            self._known[id(result)] = result, arguments[0]
            return result
        draws = torch.Tag.nondeterministic_seeded in func.tags
        stays = None if draws and self._folds else draws or func._schema.is_mutable
        self._note(func._op, arguments, named, result, stays)
        return result

    def state(self, function: Callable[..., Any], args: tuple[Any, ...], result: Any) -> None:
        """Record that the state of the random numbers is looked at, or set to an earlier one."""
        self.goes_back = self.goes_back or result is None
        self._note(function, tuple(map(self._named, args)), {}, result, stays=True)

    def _note(
        self, function: Any, arguments: Any, named: dict[str, Any], result: Any, stays: bool | None
    ) -> None:
        number = len(self._operations)
        several = isinstance(result, tuple | list)
        made = list(result) if several else [result]
        names = [_Name(f"v{number}_{place}") for place in range(len(made))]
        self._known |= {id(v): (v, n) for v, n in zip(made, names, strict=True) if v is not None}
        self._functions[f"f{number}"] = function
        words = ", ".join([*map(repr, arguments), *(f"{k}={v!r}" for k, v in named.items())])
        line = f"{', '.join(names)}{',' * several} = f{number}({words})"
        reads = {leaf for leaf in tree_leaves((arguments, named)) if isinstance(leaf, _Name)}
        self._operations.append((reads, {*names}, line, stays))

    def again(self, outputs: Sequence[Tensor]) -> Callable[..., tuple[Tensor, ...]]:
        """A function from inputs to these outputs, without operations that they do not need."""
        results = [self._named(value) for value in outputs]
        needed, lines = {*results, *self._inputs}, [f"return {', '.join(results)},"]
        for reads, makes, line, stays in reversed(self._operations):
            if stays or makes & needed:
                if stays is None:
                    raise RuntimeError("random numbers by an input cannot be recorded")
                # Values are let go after their last use.
                gone = (reads | makes) - needed - self._held.keys()
                lines += [*(f"del {name}" for name in gone), line]
                needed |= reads
        source = "\n    ".join([f"def run({', '.join(self._inputs)}):", *reversed(lines)])
        held = {name: self._held[name] for name in needed & self._held.keys()}
        names = {**held, **self._functions}
        exec(source, names)
        run: Callable[..., tuple[Tensor, ...]] = names["run"]
        return run


def rounding_ratio(
    ours: Sequence[Tensor | None], theirs: Sequence[Tensor | None], more: float = 0.0
) -> float:
    """The largest difference of two lists of tensors relative to what rounding explains,

    max |a − b| / ((√ε + more) max |a| + 100 ε max_over_all |a|).
    """
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
