"""The arguments that rebuild a part, off its constructor's signature, and checks of their types."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
from torch import Tensor, nn


class Configured:
    """A part that keeps its constructor's arguments under their own names, and can so be saved.

    It stands before the torch class: `class Mine(Configured, nn.Module)`. A constructor with
    `**kwargs` has the arguments of the next one too. Weights are no arguments. A part that cannot
    keep an argument may define `config()` itself.
    """

    not_described: ClassVar[frozenset[str]] = frozenset()
    """Arguments of the class's own constructor that only say how its first weights are made."""

    def config(self) -> dict[str, Any]:
        """The constructor's arguments, but for what the weights hold; tensors, tuples and module
        lists as lists."""
        return {name: _listed(value) for name, value in constructor_arguments(self).items()}


def constructor_arguments(part: Configured) -> dict[str, Any]:
    """What a part keeps under the names of its constructor's arguments, in their order."""
    kind = type(part)
    values = {}
    for name in _argument_names(kind):
        try:
            values[name] = getattr(part, name)
        except AttributeError:
            raise TypeError(
                f"{kind.__name__} does not keep its constructor's argument {name!r}, which "
                f"rebuilding it takes: set self.{name}, or give the class a method config() that "
                "returns its constructor's arguments"
            ) from None
    return values


def _argument_names(kind: type) -> list[str]:
    names: list[str] = []
    # Behind the mix-in stand torch's and Pyro's own constructors, which take none of these.
    for ancestor in kind.__mro__[: kind.__mro__.index(Configured)]:
        if "__init__" not in vars(ancestor):
            continue
        parameters = list(inspect.signature(vars(ancestor)["__init__"]).parameters.values())[1:]
        kinds = {argument.kind for argument in parameters}
        if inspect.Parameter.VAR_POSITIONAL in kinds and inspect.Parameter.VAR_KEYWORD not in kinds:
            raise TypeError(
                f"{kind.__name__} takes arguments without names (*args), by which it cannot be "
                "rebuilt: name them, or give the class a method config() that returns its "
                "constructor's arguments by name"
            )
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        left_out = {*names, *vars(ancestor).get("not_described", ())}
        names += [a.name for a in parameters if a.kind in named and a.name not in left_out]
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            break
    return names


def _listed(value: Any) -> Any:
    """A value that JSON can hold: lists in place of tensors, tuples and module lists."""
    if isinstance(value, Tensor):
        return value.tolist()
    return list(value) if isinstance(value, nn.ModuleList | tuple) else value


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
    hints: dict[str, Any] = {}
    for ancestor in reversed(kind.__mro__):
        constructor = vars(ancestor).get("__init__")
        if not inspect.isfunction(constructor):
            continue
        try:
            hints |= typing.get_type_hints(constructor)
        except (NameError, TypeError):
            # Names that stand for types while these are checked, and not when it runs.
            continue
    return hints


def _fits(hint: Any, value: Any) -> bool:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(part, value) for part in inner)
    if origin is typing.Literal:
        return any(type(value) is type(part) and value == part for part in inner)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, dict)
    if isinstance(origin, type) and issubclass(origin, Sequence):
        fits = isinstance(value, list | tuple)
        return fits and all(_fits(inner[0], part) for part in value if inner)
    if hint is None or hint is type(None):
        return value is None
    if hint in (bool, str):
        return isinstance(value, hint)
    if hint is np.ndarray:
        return isinstance(value, list) and all(
            _fits(float | None | np.ndarray, part) for part in value
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
