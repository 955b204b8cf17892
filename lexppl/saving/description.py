"""Parts as JSON, and parts made again of it, by the library's own classes alone."""

import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from torch import nn

import lexppl.inference
import lexppl.models
import lexppl.systems  # noqa: F401
from lexppl.configured import Configured
from lexppl.models.priors.families import prior_from
from lexppl.models.priors.with_prior import weight_priors, with_prior, written_class
from lexppl.type_checks import refuse_types

ROOMS = ("lexppl.models.", "lexppl.inference.", "lexppl.systems.")
"""Where the parts are that a file may name."""


def known_parts() -> Mapping[str, type[nn.Module]]:
    """The library's parts that can describe themselves, by class name."""
    found: dict[str, type[nn.Module]] = {}
    kinds: list[type] = list(Configured.__subclasses__())
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        name, home = kind.__name__, kind.__module__
        # Not the classes that Pyro makes of these, nor those of a user.
        own = getattr(sys.modules.get(home), name, None) is kind and not name.startswith("_")
        if own and issubclass(kind, nn.Module) and home.startswith(ROOMS):
            found[name] = kind
    return MappingProxyType(found)


def describe(part: Any, path: str = "model") -> Any:
    """A part as JSON: its class and the arguments that rebuild it, parts within parts, with the
    prior of weights that have one (:func:`lexppl.models.with_prior`).

    Raises:
        TypeError: something that cannot be described, by its place.

    Example:
        >>> from lexppl.models import MLP
        >>> describe(MLP(2, 1, hidden=(4,), seed=0))["config"]["hidden"]
        [4]
    """
    if isinstance(part, nn.Module):
        priors = weight_priors(part)
        described = _describe(part, path)
        return {"module": described, "prior": priors} if priors else described
    return _describe(part, path)


def _describe(part: Any, path: str) -> Any:
    if isinstance(part, nn.Module):
        config: Callable[[], dict[str, Any]] | None = getattr(part, "config", None)
        if config is None:
            raise TypeError(
                f"{path} is a {type(part).__name__}, which cannot describe itself: make the class "
                "a lexppl.configured.Configured, or give it a method config() that returns its "
                f"constructor's arguments, and load with parts=[{type(part).__name__}]"
            )
        return {
            "part": written_class(part).__name__,
            "config": {k: _describe(v, f"{path}.{k}") for k, v in config().items()},
        }
    if isinstance(part, Mapping):
        return {str(k): _describe(v, f"{path}.{k}") for k, v in part.items()}
    if isinstance(part, list | tuple):
        return [_describe(v, f"{path}[{i}]") for i, v in enumerate(part)]
    if part is None or isinstance(part, bool | int | float | str):
        return part
    if isinstance(part, np.generic):
        return part.item()
    raise TypeError(f"{path} is a {type(part).__name__}, which is neither a part nor JSON")


def rebuild(description: Any, parts: Mapping[str, type[nn.Module]] | None = None) -> Any:
    """A part from what :func:`describe` returned, with weights yet to be loaded.

    Args:
        parts: the classes that may be built, by name; the library's if None.

    Raises:
        ValueError: a class that is not among the parts, an argument that no description has or
            of another type, a prior of an unknown distribution.

    Example:
        >>> from lexppl.models import MLP
        >>> rebuild(describe(MLP(2, 1, hidden=(4,), seed=0))).hidden
        (4,)
    """
    parts = known_parts() if parts is None else parts
    if isinstance(description, dict) and set(description) == {"part", "config"}:
        name = description["part"]
        if name not in parts:
            raise ValueError(
                f"the file describes a {name}, which is not among the known parts: give its class "
                f"to load as parts=[{name}]; known are {sorted(parts)}"
            )
        _refuse_beginnings(parts[name], description["config"])
        config = {k: rebuild(v, parts) for k, v in description["config"].items()}
        refuse_types(parts[name], config)
        return parts[name](**config)
    if isinstance(description, dict) and set(description) == {"module", "prior"}:
        priors = {name: prior_from(prior) for name, prior in description["prior"].items()}
        return with_prior(rebuild(description["module"], parts), priors)
    if isinstance(description, dict):
        return {k: rebuild(v, parts) for k, v in description.items()}
    if isinstance(description, list):
        return [rebuild(v, parts) for v in description]
    return description


def _refuse_beginnings(part: type[nn.Module], config: Mapping[str, Any]) -> None:
    """Refuse arguments that say how first weights are made: one of them fetches files."""
    kept_out = {name for kind in part.__mro__ for name in vars(kind).get("not_described", ())}
    text = sorted(kept_out & set(config))
    if text:
        raise ValueError(f"the file gives {text[0]} of a {part.__name__}, which no file has")
