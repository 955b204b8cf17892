"""Imputers that take hidden features from rows, and other rows put in the place of theirs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, Self, runtime_checkable

import torch
from torch import Tensor, nn

__all__ = ["TakesRows", "taking_rows", "taking_rows_from"]


@runtime_checkable
class TakesRows(Protocol):
    """An imputer whose hidden features are those of reference rows, such as
    :class:`lexppl.models.MarginalImputer`."""

    @property
    def event_shape(self) -> torch.Size | None:
        """The shape of one row, or None where any will do."""

    def with_reference(self, reference: Tensor) -> Self:
        """The same imputer with other reference rows, `(N, *event)`."""


def taking_rows(modules: Iterable[object]) -> list[TakesRows]:
    """The imputers within modules that take hidden features from rows, each once."""
    found: dict[int, TakesRows] = {
        id(part): part
        for whole in modules
        if isinstance(whole, nn.Module)
        for part in whole.modules()
        if isinstance(part, TakesRows)
    }
    return list(found.values())


@contextmanager
def taking_rows_from(reference: Tensor, modules: Iterable[object]) -> Iterator[None]:
    """Inside, imputers that take hidden features from rows take them from these.

    A module around an imputer that gives it other rows than the program's has a method
    `reference_of(rows)`, which gives them.

    Args:
        reference: rows `(N, *event)`, as the programs take them, of the imputers' type and device.
        modules: programs; what is no module is passed over. A module that is itself such an imputer
            has no holder, and stays as it is.

    Raises:
        ValueError: rows of another shape than the imputers'.

    Example:
        >>> from lexppl.models import MarginalImputer
        >>> program = nn.ModuleDict({"imputer": MarginalImputer(torch.zeros(1, 2))})
        >>> with taking_rows_from(torch.ones(1, 2), [program]):
        ...     program["imputer"].reference
        tensor([[1., 1.]])
        >>> program["imputer"].reference
        tensor([[0., 0.]])
    """
    held: list[tuple[nn.Module, str, nn.Module]] = []
    others: dict[int, nn.Module] = {}
    for module in modules:
        if isinstance(module, nn.Module):
            _look(module, reference, held, others)
    try:
        for holder, name, child in held:
            setattr(holder, name, others[id(child)])
        yield
    finally:
        for holder, name, child in held:
            setattr(holder, name, child)


def _look(
    holder: nn.Module,
    reference: Tensor,
    held: list[tuple[nn.Module, str, nn.Module]],
    others: dict[int, nn.Module],
) -> None:
    """Put down the imputers that a module holds, and what takes their places."""
    given_to_parts = getattr(holder, "reference_of", None)
    if given_to_parts is not None:
        reference = given_to_parts(reference)
    for name, child in holder.named_children():
        if isinstance(child, TakesRows):
            held.append((holder, name, child))
            if id(child) not in others:
                others[id(child)] = _with_reference(child, reference)
        else:
            _look(child, reference, held, others)


def _with_reference(imputer: TakesRows, reference: Tensor) -> Any:
    own = imputer.event_shape
    if own is not None and reference.shape[1:] != own:
        raise ValueError(
            f"reference must have rows of shape {tuple(own)}, as those of "
            f"{type(imputer).__name__}; it has shape {tuple(reference.shape)}. A module that gives "
            "its imputer other rows than the program's needs a method reference_of(rows), which "
            "gives them"
        )
    return imputer.with_reference(reference)
