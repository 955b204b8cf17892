"""The settings of a sweep: a grid or a list, checked against what is to take them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np
from torch import nn

from lexppl.inference import fit
from lexppl.summary import short, some_of

OF_THE_SWEEP = MappingProxyType(
    {
        "model": "build= gives it",
        "train": "all fits have the same rows, train=",
        "progress": "progress= is of the sweep",
        "checkpoint": "folder= keeps each fit as it ends",
        "distributed": "client= shares the fits out",
    }
)
"""Arguments of `fit` that no setting can be, and what there is in their place."""

FIT = tuple(name for name in inspect.signature(fit).parameters if name not in OF_THE_SWEEP)


@dataclass(frozen=True, eq=False)
class Setting:
    """One setting of a sweep.

    Args:
        labels: what the table says of it, by name: numbers and words.
        values: what it is.
    """

    labels: Mapping[str, Any]
    values: Mapping[str, Any]

    def __str__(self) -> str:
        return ", ".join(f"{name}={label}" for name, label in self.labels.items())


def settings_of(given: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> list[Setting]:
    """The settings of a grid, the last name's values changing fastest, or of a list.

    Args:
        given: values by name, all combinations of which are tried, or a list of dicts. The values
            of one name may be a dict of them by label.

    Raises:
        TypeError: what is neither, or a name with a single value in a grid.
        ValueError: no setting, or one twice.

    Example:
        >>> [str(one) for one in settings_of({"k": [1, 2], "seed": (0, 1)})]
        ['k=1, seed=0', 'k=1, seed=1', 'k=2, seed=0', 'k=2, seed=1']
        >>> [str(one) for one in settings_of([{"k": 1}, {"penalty": 0.02}])]
        ['k=1', 'penalty=0.02']
    """
    if isinstance(given, Mapping):
        axes = [_axis(name, values) for name, values in given.items()]
        every = [list(combined) for combined in product(*axes)] if axes else []
    elif isinstance(given, Iterable) and not isinstance(given, str):
        every = [_listed(one) for one in given]
    else:
        raise TypeError(
            "settings must be a dict of values by name, such as {'seed': range(4)}, or a list of "
            f"dicts; it is {given!r}"
        )
    found = [
        Setting({name: label for name, label, _ in one}, {name: value for name, _, value in one})
        for one in every
    ]
    if not found:
        raise ValueError("settings must be at least one; there is none")
    seen: set[tuple[Any, ...]] = set()
    for one in found:
        label_text = tuple((name, str(label)) for name, label in one.labels.items())
        if label_text in seen:
            raise ValueError(
                f"settings must differ; {one} stands there twice. Values that read alike can be "
                "given names, as in {'imputer': {'first': …, 'second': …}}"
            )
        seen.add(label_text)
    return found


def check_names(
    build: Callable[..., Any], settings: Sequence[Setting], common: Mapping[str, Any]
) -> None:
    """Refuse settings that neither the factory nor `fit` takes, before any work.

    Args:
        build: the factory.
        settings: of the sweep.
        common: what all fits have.

    Raises:
        TypeError: a factory that is none.
        ValueError: unknown names, names given twice, arguments that the factory lacks.
    """
    if not callable(build) or isinstance(build, nn.Module):
        raise TypeError(
            "build must be a function that takes settings and gives what fit takes, such as "
            f"functools.partial(lexppl.systems.lex, 11, classes=2); it is a {type(build).__name__}"
        )
    taken = inspect.signature(build).parameters
    known = {*taken, *FIT}
    open_ended = any(one.kind is one.VAR_KEYWORD for one in taken.values())
    for one in settings:
        names = [*one.values, *common]
        of_sweep = [name for name in names if name in OF_THE_SWEEP and name not in taken]
        if of_sweep:
            raise ValueError(
                f"{of_sweep[0]} can be no setting of a sweep: {OF_THE_SWEEP[of_sweep[0]]}"
            )
        unknown = [] if open_ended else [name for name in names if name not in known]
        if unknown:
            raise ValueError(
                f"settings have {some_of(unknown)}, which is no argument of "
                f"{name_of(build)} ({some_of(taken, 99)}) nor a setting of fit "
                f"({some_of(FIT, 99)})"
            )
        twice = [name for name in one.values if name in common]
        if twice:
            raise ValueError(f"{twice[0]} is a setting, and given for all fits too; give it once")
        try:
            inspect.signature(build).bind(**parted(build, one, common)[0])
        except TypeError as error:
            raise ValueError(
                f"{name_of(build)} cannot be called with {one or 'these settings'}: {error}"
            ) from None


def parted(
    build: Callable[..., Any], setting: Setting, common: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A setting's arguments of the factory, and of `fit`. A name that both take is the factory's.

    Args:
        build: the factory.
        setting: of the sweep.
        common: what all fits have.
    """
    taken = inspect.signature(build).parameters
    every = {**common, **setting.values}
    of_fit = {name for name in every if name in FIT and name not in taken}
    return (
        {name: value for name, value in every.items() if name not in of_fit},
        {name: value for name, value in every.items() if name in of_fit},
    )


def name_of(build: Callable[..., Any]) -> str:
    """What a factory is called.

    Example:
        >>> from functools import partial
        >>> name_of(partial(int, base=2))
        'int'
    """
    return str(getattr(build, "__name__", None) or getattr(build, "func", type(build)).__name__)


def label_of(value: Any) -> Any:
    """What a table says of a value: numbers, words and None as they are, tuples of them in words,
    others by their class and settings.

    Example:
        >>> from lexppl.models import MarginalImputer
        >>> label_of(0.02), label_of((64, 64)), label_of(MarginalImputer)
        (0.02, '(64, 64)', 'MarginalImputer')
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple | dict):
        return str(value)
    config = getattr(value, "config", None)
    if isinstance(value, nn.Module) and callable(config):
        plain = bool | int | float | str | tuple
        label_text = [f"{n}={short(v)}" for n, v in config().items() if isinstance(v, plain)]
        return f"{type(value).__name__}({', '.join(label_text)})"
    return name_of(value) if callable(value) else str(value)


def _axis(name: str, values: Any) -> list[tuple[str, Any, Any]]:
    if isinstance(values, Mapping):
        return [(name, label, value) for label, value in values.items()]
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(
            f"settings[{name!r}] must be a list of values to try; it is {values!r}. One value for "
            f"all fits is an argument beside: sweep(…, {name}={values!r})"
        )
    listed = [(name, label_of(value), value) for value in values]
    if not listed:
        raise ValueError(f"settings[{name!r}] has no values to try")
    return listed


def _listed(one: Any) -> list[tuple[str, Any, Any]]:
    if not isinstance(one, Mapping):
        raise TypeError(f"each of the settings must be a dict by name; one is {one!r}")
    return [(name, label_of(value), value) for name, value in one.items()]
