"""Whether what a description gives a part is of the types that its constructor has it."""

import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn


def refuse_types(part: type[nn.Module], config: Mapping[str, Any]) -> None:
    """Refuse arguments of other types than the constructor's annotations have it.

    Any module will do where one is expected, as parts of one's own need not be of the library's
    classes; where tensors are, any numbers, which the constructor checks. What is not annotated is
    not checked.

    Args:
        part: the class.
        config: its arguments, parts among them built.

    Raises:
        ValueError: an argument of another type.

    Example:
        >>> from lexppl.models import KSubsetSelector
        >>> refuse_types(KSubsetSelector, {"network": nn.Linear(2, 2), "k": "two"})
        Traceback (most recent call last):
        ...
        ValueError: k of a KSubsetSelector must be int; it is 'two'
    """
    hints = _hints(part)
    for name, value in config.items():
        if name in hints and not _fits(hints[name], value):
            told = repr(value)
            raise ValueError(
                f"{name} of a {part.__name__} must be {_said(hints[name])}; it is "
                f"{told if len(told) <= 60 else type(value).__name__}"
            )


def _hints(part: type[nn.Module]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind in reversed(part.__mro__):
        own = vars(kind).get("__init__")
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
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is Tensor:
        return isinstance(value, list | dict | int | float) and not isinstance(value, bool)
    if isinstance(hint, type) and issubclass(hint, nn.Module):
        return isinstance(value, nn.Module)
    return True


def _said(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
