"""Random numbers that a traced program goes back to."""

from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import torch
from pyro.poutine.messenger import Messenger
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

BY_SHAPE = frozenset(
    f"aten::{name}"
    for name in (
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
    )
)
"""Draws that depend on no tensor's values, and so are the same when they are made again."""


class NotTraceableError(Exception):
    """A program of which no graph can be made; says why."""


class RepeatedDraws:
    """Let a program that goes back to an earlier random state have the draws made from there.

    A graph has no random state to set. What :func:`random_state` gives inside is a place among the
    draws made so far; after :func:`set_random_state` the draws from that place on are handed out
    again, which are the ones that the generator would make.

    Raises:
        NotTraceableError: what is drawn after going back is of another kind or shape, or depends
            on a tensor's values.

    Example:
        >>> from lexppl.inference.random_state import random_state, set_random_state
        >>> with RepeatedDraws():
        ...     place = random_state(torch.zeros(1))
        ...     first, other = torch.rand(2), torch.rand(2)
        ...     set_random_state(torch.zeros(1), place)
        ...     again = torch.rand(2)
        >>> torch.equal(first, again), torch.equal(first, other)
        (True, False)
    """

    def __init__(self) -> None:
        self._draws = _Draws()

    def __enter__(self) -> Self:
        self._within = ExitStack()
        self._within.enter_context(self._draws)
        self._within.enter_context(_Places(self._draws))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._within.__exit__(kind, error, trace)


class _Places(Messenger):
    """Where a program stands among the draws, and going back."""

    def __init__(self, draws: "_Draws") -> None:
        super().__init__()
        self._draws = draws

    def _pyro_random_state(self, msg: Any) -> None:
        self._draws.asked = True
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
        self.asked = False
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
            if self.asked:
                # The program may write over a draw before it is asked for again.
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
