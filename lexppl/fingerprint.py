"""What tells one setting, model or data set from another: a hash of all that is in it.

:func:`fingerprint` answers whether two values are alike, in one word, and refuses what it cannot
tell: what is kept under it is never taken for another's. Which of a fit's parts differ, in words,
is told by `lexppl.inference.training.checkpoints.fit_identity`, which reads values by the same
means.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Transform

if TYPE_CHECKING:
    import pandas as pd

Content = bytes | memoryview

OF_TORCH = frozenset(vars(nn.Module()))
"""What every module has beside its own attributes."""
PRIORS = "_pyro_samples"
"""Where a `PyroModule` has the priors of its weights, by name."""
KNOWN = ("lexppl", "torch", "pyro", "numpy", "builtins")
"""Packages whose code is told by their version."""
LIBRARIES = frozenset({*KNOWN, "sklearn", "scipy", "pandas", *sys.stdlib_module_names})
"""Packages whose classes are told by their names."""

KEPT, KEPT_BY_LAWS = "cached_property", "_lazy_property_and_property"
"""The kinds of attributes that are computed once, of Python's objects and of torch's
distributions."""
KEPT_BY_TRANSFORMS = ("_inv", "_cached_x_y")
INVERSE = "_InverseTransform"
"""Torch's name of the inverse of a transform that has no class for it."""


def fingerprint(value: Any) -> str:
    """A hash of a value: 32 letters, the same in every process and on every machine.

    It is of numbers, words, tensors, arrays, tables; of modules by their class, weights and
    settings; of functions by their code, their defaults and what they close over (not by the global
    names that they read); of other objects by their class and attributes. Of a class that is none
    of a library's it is the code too, so that one that was changed is another.

    Args:
        value: anything of these.

    Raises:
        TypeError: what cannot be told from another, such as a generator, by its place.

    Example:
        >>> fingerprint({"k": 3}) == fingerprint({"k": 3}), fingerprint({"k": 3.0}) == fingerprint(
        ...     {"k": 3})
        (True, False)
        >>> fingerprint(torch.zeros(2)) == fingerprint(torch.zeros(3))
        False
        >>> fingerprint({"rows": object()})
        Traceback (most recent call last):
        TypeError: it['rows'] is a object, which cannot be told from another; give numbers, words,
        arrays, tensors, modules or functions
    """
    found = hashlib.sha256()
    for part in _parts(value, "it", ()):
        # The length first, so that no two sequences of parts run together alike.
        found.update(f"{len(part)}:".encode())
        found.update(part)
    return found.hexdigest()[:32]


def attributes_of(value: Any) -> dict[str, Any] | None:
    """An object's attributes by name, those in slots too; None of one that has neither. What was
    computed from the others and kept, as `cached_property` does, and a distribution the `logits` of
    its `probs`, is none of them.

    Example:
        >>> attributes_of(PurePath) is None, attributes_of(1)
        (False, None)
        >>> law = torch.distributions.Bernoulli(probs=torch.tensor(0.5))
        >>> before = set(attributes_of(law))
        >>> law.logits, set(attributes_of(law)) == before
        (tensor(0.), True)
    """
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    if not (hasattr(value, "__dict__") or slots):
        return None
    held = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    every = {**getattr(value, "__dict__", {}), **held}
    return {name: every[name] for name in _not_computed(type(value), every)}


def closure_of(function: FunctionType) -> dict[str, Any]:
    """What a function closes over, by name; what has no value yet is left out.

    Example:
        >>> def scaled(by):
        ...     return lambda x: by * x
        >>> closure_of(scaled(3))
        {'by': 3}
    """
    found = {}
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        with suppress(ValueError):
            found[name] = cell.cell_contents
    return found


def code_parts(code: CodeType) -> tuple[bytes, tuple[str, ...], tuple[str, ...], tuple[Any, ...]]:
    """What a function does, and not where it stands: its code, its names, and its constants, of
    which the functions within it are."""
    return code.co_code, code.co_names, code.co_varnames, code.co_consts


def is_of(value: Any, packages: Collection[str]) -> bool:
    """Whether a class, function or object stands in one of some packages.

    Example:
        >>> is_of(torch.nn.Linear, KNOWN), is_of(PurePath, KNOWN)
        (True, False)
    """
    return (getattr(value, "__module__", None) or "").split(".")[0] in packages


def functions_of(kind: type) -> Iterator[tuple[str, FunctionType]]:
    """The functions of a class and of those above it, by name, but for those of known packages.

    Example:
        >>> class Doubled:
        ...     __module__ = "mine"
        ...
        ...     def __call__(self, x):
        ...         return 2 * x
        >>> [name for name, function in functions_of(Doubled)], list(functions_of(torch.nn.Linear))
        (['__call__'], [])
    """
    for one in kind.__mro__:
        if is_of(one, KNOWN):
            continue
        for name, member in sorted(vars(one).items()):
            function = getattr(member, "__func__", getattr(member, "fget", member))
            if isinstance(function, FunctionType):
                yield name, function


def tensor_bytes(tensor: Tensor) -> memoryview:
    """The bytes of a tensor's numbers in their order, wherever it lies.

    Example:
        >>> len(tensor_bytes(torch.zeros(2, 3).mT))
        24
    """
    held = tensor.detach().cpu().contiguous().reshape(-1)
    return held.view(torch.uint8).numpy().data


def _parts(value: Any, place: str, above: tuple[int, ...]) -> Iterator[Content]:
    """What a value consists of, in order."""
    if value is None or value is ... or isinstance(value, bool | int | complex | str | PurePath):
        yield f"{type(value).__name__}={value}".encode()
    elif isinstance(value, float):
        yield f"float={'nan' if math.isnan(value) else value.hex()}".encode()
    elif isinstance(value, bytes):
        yield value
    elif isinstance(value, Tensor):
        yield from _tensor(value)
    elif isinstance(value, np.ndarray | np.generic):
        yield from _array(np.asarray(value), place, above)
    elif _is_table(value):
        yield from _table(value, place, above)
    elif isinstance(value, torch.dtype | torch.device | CodeType):
        yield from (
            _code(value, place, above) if isinstance(value, CodeType) else [str(value).encode()]
        )
    elif id(value) in above:
        # An object that holds itself is told by how far up it stands.
        yield f"above={above[::-1].index(id(value))}".encode()
    else:
        yield from _held(value, place, (*above, id(value)))


def _held(value: Any, place: str, above: tuple[int, ...]) -> Iterator[Content]:
    """Of what holds other values."""
    if isinstance(value, Mapping):
        yield f"mapping={len(value)}".encode()
        for name, one in value.items():
            yield from _parts(name, place, above)
            yield from _parts(one, f"{place}[{name!r}]", above)
    elif isinstance(value, Set):
        yield f"set={len(value)}".encode()
        yield from sorted(fingerprint(one).encode() for one in value)
    elif isinstance(value, Sequence):
        yield f"{type(value).__name__}={len(value)}".encode()
        for number, one in enumerate(value):
            yield from _parts(one, f"{place}[{number}]", above)
    elif isinstance(value, type):
        yield f"class={value.__module__}.{value.__qualname__}".encode()
        if not is_of(value, LIBRARIES):
            for name, function in functions_of(value):
                yield name.encode()
                yield from _parts(function.__code__, f"{place}.{name}", above)
    elif isinstance(value, partial):
        yield from _parts((value.func, value.args, value.keywords), place, above)
    elif isinstance(value, MethodType):
        yield from _parts((value.__func__, value.__self__), place, above)
    elif isinstance(value, FunctionType):
        yield from _function(value, place, above)
    elif isinstance(value, BuiltinFunctionType):
        yield f"function={value.__module__}.{value.__qualname__}".encode()
    elif isinstance(value, nn.Module):
        yield from _module(value, place, above)
    else:
        yield from _object(value, place, above)


def _object(value: Any, place: str, above: tuple[int, ...]) -> Iterator[Content]:
    """Of what is told by its attributes, or by what it says of itself."""
    if hasattr(value, "told_apart_by"):
        yield from _parts((type(value), value.told_apart_by()), place, above)
        return
    own: Any = attributes_of(value)
    if own is None:
        own = _pickled_state(value, place)
    yield from _parts((type(value), own), place, above)


def _pickled_state(value: Any, place: str) -> Any:
    """What pickling keeps of an object without attributes, such as scikit-learn's trees."""
    with suppress(TypeError):
        reduced = value.__reduce_ex__(4)
        if isinstance(reduced, tuple) and any(one is not None for one in reduced[2:3]):
            return reduced[1:3]
    raise TypeError(
        f"{place} is a {type(value).__name__}, which cannot be told from another; give numbers, "
        "words, arrays, tensors, modules or functions"
    )


def _not_computed(kind: type, attributes: Mapping[str, Any]) -> list[str]:
    """The names of the attributes that an object was made with."""
    if issubclass(kind, Transform):
        # Only what is made as an inverse is told by the transform that it inverts.
        kept = KEPT_BY_TRANSFORMS[kind.__name__ == INVERSE :]
        return [name for name in attributes if name not in kept]
    how = {name: type(getattr(kind, name, None)).__name__ for name in attributes}
    made = [name for name, of in how.items() if of not in (KEPT, KEPT_BY_LAWS)]
    holders = [one for name in made if isinstance(one := attributes[name], Tensor)]
    return [
        name
        for name, of in how.items()
        # A distribution has its parameter twice where it was given, under the name by which it was
        # given too; one that has it under that name alone is told by it.
        if name in made
        or (of == KEPT_BY_LAWS and (not holders or any(attributes[name] is h for h in holders)))
    ]


def _module(value: nn.Module, place: str, above: tuple[int, ...]) -> Iterator[Content]:
    """Of a module: the classes and settings of all its parts, and its weights."""
    for path, part in value.named_modules():
        yield path.encode()
        yield from _parts(type(part), place, above)
        for name, setting in sorted(vars(part).items()):
            # What Pyro keeps of a call is no setting; priors are.
            of_pyro = name.startswith("_pyro") and not (name == PRIORS and setting)
            if name in OF_TORCH or of_pyro or isinstance(setting, nn.Module):
                continue
            yield name.encode()
            yield from _parts(setting, f"{place}.{path}.{name}", above)
    for name, tensor in value.state_dict().items():
        yield name.encode()
        yield from _tensor(tensor)


def _tensor(value: Tensor) -> Iterator[Content]:
    yield f"tensor={value.dtype}{tuple(value.shape)}".encode()
    yield tensor_bytes(value)


def _array(value: np.ndarray, place: str, above: tuple[int, ...]) -> Iterator[Content]:
    yield f"array={value.dtype.str}{value.shape}".encode()
    if value.dtype.hasobject:
        yield from _parts(value.tolist(), place, above)
    else:
        yield np.ascontiguousarray(value).tobytes()


def _is_table(value: Any) -> bool:
    # Who has a table has loaded pandas, which takes a while.
    pandas: Any = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.DataFrame | pandas.Series | pandas.Index)


def _table(
    value: pd.DataFrame | pd.Series | pd.Index, place: str, above: tuple[int, ...]
) -> Iterator[Content]:
    import pandas as pd  # noqa: PLC0415

    names = list(value.columns) if isinstance(value, pd.DataFrame) else [value.name]
    kinds = list(value.dtypes) if isinstance(value, pd.DataFrame) else [value.dtype]
    yield from _parts((names, list(map(str, kinds))), place, above)
    yield from _array(pd.util.hash_pandas_object(value).to_numpy(), place, above)


def _function(value: FunctionType, place: str, above: tuple[int, ...]) -> Iterator[Content]:
    yield f"function={value.__module__}.{value.__qualname__}".encode()
    cells = list(closure_of(value).values())
    own = (value.__code__, value.__defaults__, value.__kwdefaults__, cells)
    yield from _parts(own, place, above)


def _code(value: CodeType, place: str, above: tuple[int, ...]) -> Iterator[Content]:
    code, *rest = code_parts(value)
    yield code
    yield from _parts(tuple(rest), place, above)
