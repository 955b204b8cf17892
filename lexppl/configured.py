"""How a part tells the arguments that rebuild it: read off its constructor's signature."""

import inspect
from typing import Any, ClassVar

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
    kept = {}
    for name in _argument_names(kind):
        try:
            kept[name] = getattr(part, name)
        except AttributeError:
            raise TypeError(
                f"{kind.__name__} does not keep its constructor's argument {name!r}, which "
                f"rebuilding it takes: set self.{name}, or give the class a method config() that "
                "returns its constructor's arguments"
            ) from None
    return kept


def _argument_names(kind: type) -> list[str]:
    names: list[str] = []
    # Behind the mix-in stand torch's and Pyro's own constructors, which take none of these.
    for ancestor in kind.__mro__[: kind.__mro__.index(Configured)]:
        if "__init__" not in vars(ancestor):
            continue
        given = list(inspect.signature(vars(ancestor)["__init__"]).parameters.values())[1:]
        kinds = {argument.kind for argument in given}
        if inspect.Parameter.VAR_POSITIONAL in kinds and inspect.Parameter.VAR_KEYWORD not in kinds:
            raise TypeError(
                f"{kind.__name__} takes arguments without names (*args), by which it cannot be "
                "rebuilt: name them, or give the class a method config() that returns its "
                "constructor's arguments by name"
            )
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        left_out = {*names, *vars(ancestor).get("not_described", ())}
        names += [a.name for a in given if a.kind in named and a.name not in left_out]
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            break
    return names


def _listed(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, Tensor):
        return value.tolist()
    return list(value) if isinstance(value, nn.ModuleList | tuple) else value
