"""Arguments of a constructor held against its annotations, where they come from a file."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from torch import Tensor, nn

Made = TypeVar("Made")


def made_of(kind: type[Made], fields: Mapping[str, Any]) -> Made:
    """An object of JSON's fields, each of the type that the class has it; lists become tuples."""
    refuse_types(kind, fields)
    return kind(**{n: tuple(v) if isinstance(v, list) else v for n, v in fields.items()})


def refuse_types(kind: type, arguments: Mapping[str, Any]) -> None:
    """Refuse arguments of other types than a constructor's annotations.

    Any module passes for a module, numbers for tensors; what is not annotated is not checked.
    """
    hints = _hints(kind)
    for name, value in arguments.items():
        if name in hints and not _fits(hints[name], value):
            hint, text = hints[name], repr(value)
            expected = hint.__name__ if isinstance(hint, type) else str(hint)
            raise ValueError(
                f"{name} of a {kind.__name__} must be {expected.replace('typing.', '')}; it is "
                f"{text if len(text) <= 60 else type(value).__name__}"
            )


def _hints(kind: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in reversed(kind.__mro__):
        own = vars(one).get("__init__")
        if not inspect.isfunction(own):
            continue
        try:
            found |= typing.get_type_hints(own)
        except (NameError, TypeError):
            # Names that stand for types while these are checked, and not when it runs.
            continue
    return found


def _fits(hint: Any, value: Any) -> bool:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(one, value) for one in inner)
    if origin is typing.Literal:
        return any(type(value) is type(one) and value == one for one in inner)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, dict)
    if isinstance(origin, type) and issubclass(origin, Sequence):
        fits = isinstance(value, list | tuple)
        return fits and all(_fits(inner[0], one) for one in value if inner)
    if hint is None or hint is type(None):
        return value is None
    if hint in (bool, str):
        return isinstance(value, hint)
    if hint is np.ndarray:
        return isinstance(value, list) and all(
            _fits(float | None | np.ndarray, one) for one in value
        )
    number = not isinstance(value, bool)
    if hint is int:
        return number and isinstance(value, int)
    if hint is float:
        return number and isinstance(value, int | float)
    if hint is Tensor:
        return number and isinstance(value, list | dict | int | float)
    if isinstance(hint, type) and issubclass(hint, nn.Module):
        return isinstance(value, nn.Module)
    return True
