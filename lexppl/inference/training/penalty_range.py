"""Programs whose selectors were fitted for a range of λ, at one λ of it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import nn


def at_penalty(model: Any, penalty: float) -> Any:
    """A copy of a program whose selectors for a range of λ have one of them."""
    copied = copy.deepcopy(model)
    for selector in conditioned(copied):
        selector.penalty = selector.checked(penalty)
    return copied


@contextmanager
def with_penalty(models: Sequence[Any], penalty: float) -> Iterator[None]:
    """Programs whose selectors for a range of λ have one of them inside; no copies."""
    selectors = [selector for model in models for selector in conditioned(model)]
    before = [(selector, selector.penalty) for selector in selectors]
    checked = [selector.checked(penalty) for selector in selectors]
    try:
        for selector, one in zip(selectors, checked, strict=True):
            selector.penalty = one
        yield
    finally:
        for selector, one in before:
            selector.penalty = one


def conditioned(model: Any) -> list[Any]:
    """The selectors of a program that are fitted for a range of λ."""
    parts = model.modules() if isinstance(model, nn.Module) else ()
    found = [part for part in parts if hasattr(part, "row_penalties")]
    if not found:
        raise ValueError(
            "a λ is chosen among those of one fit, and this program was fitted for one alone: give "
            "the system a range, as lex(…, penalty=(0.005, 0.16))"
        )
    return found
