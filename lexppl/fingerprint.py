"""Identity of values: what an object holds, by path, and a hash of it."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from enum import Enum
from functools import partial
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, EllipsisType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Transform

Leaf = str | Tensor | np.ndarray

OF_TORCH = frozenset(vars(nn.Module()))  # Attributes that every module has
PRIORS = "_pyro_samples"  # Where a `PyroModule` has the priors of its weights, by name
KNOWN = ("lexppl", "torch", "pyro", "numpy", "builtins")
"""Packages whose code is identified by their version."""
LIBRARIES = frozenset({*KNOWN, "sklearn", "scipy", "pandas", *sys.stdlib_module_names})
"""Packages whose classes are identified by name."""
PLAIN = (
    *(bool, int, float, complex, str, bytes, PurePath, Enum, range),
    *(type(None), EllipsisType, torch.dtype, torch.device, np.generic),
)
"""Types of values that are identified by their representation."""
RANDOM_STATES = (torch.Generator, np.random.Generator, np.random.RandomState)
LONGEST = 200  # Characters of a representation; a longer one is hashed
COMPUTED = ("cached_property", "_lazy_property_and_property")
"""Types of attributes that Python's objects and torch's distributions compute once."""


def fingerprint(value: Any) -> str:
    """A hash of a value: 32 letters, the same in every process and on every machine.

    Of modules by class, weights and settings; of functions by code, defaults and closure, not by
    the global names that they read; of other objects by class and attributes, of own classes by
    their code.
    """
    return _hash({path: digest(leaf) for path, leaf in contents(value, "it", strict=True).items()})


def contents(
    value: Any, path: str, strict: bool = False, opaque: tuple[type, ...] = ()
) -> dict[str, Leaf]:
    """What a value holds, by path: representations, tensors and arrays; of `opaque` types the class
    alone.

    Not `strict`: what has neither a representation nor attributes is identified by its class,
    private attributes other than numbers, words and arrays are left out, and random states are
    refused.
    """
    walk = _Walk(strict, opaque)
    walk.add(path, value)
    return walk.found


def digest(leaf: Leaf) -> str:
    """A leaf in words, of an array or tensor by type, shape and hash.

    Example:
        >>> digest(torch.zeros(2))[:13], digest("3")
        ('float32 (2,) ', '3')
    """
    if isinstance(leaf, str):
        return leaf
    kind = str(leaf.dtype).removeprefix("torch.")
    numbers = tensor_bytes(leaf) if isinstance(leaf, Tensor) else np.ascontiguousarray(leaf)
    return f"{kind} {tuple(leaf.shape)} {_hash(numbers)}"


def is_of(value: Any, packages: Collection[str]) -> bool:
    """Whether a class, function or object is defined in one of some packages."""
    return (getattr(value, "__module__", None) or "").split(".")[0] in packages


def tensor_bytes(tensor: Tensor) -> np.ndarray:
    """The bytes of a tensor's numbers in their order, on any device."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def _hash(value: Any) -> str:
    import joblib  # noqa: PLC0415 - slow to import

    return str(joblib.hash(value))


class _Walk:
    """A walk through what a value holds."""

    def __init__(self, strict: bool, opaque: tuple[type, ...]) -> None:
        self.strict, self.opaque = strict, opaque
        self.found: dict[str, Leaf] = {}
        # The value is kept beside its path: another would else have its place in memory.
        self._seen: dict[int, tuple[str, Any]] = {}

    def add(self, path: str, value: Any) -> None:
        leaf = self._leaf(path, value)
        if leaf is not None:
            self.found[path] = leaf
            return
        if id(value) in self._seen:
            self.found[path] = f"as {self._seen[id(value)][0]}"
            return
        self._seen[id(value)] = (path, value)
        self.found[path], parts = self._parts(path, value)
        for name, part in parts.items():
            self.add(f"{path}.{name}", part)

    def _leaf(self, path: str, value: Any) -> Leaf | None:
        """A value without parts."""
        if isinstance(value, RANDOM_STATES) and not self.strict:
            raise TypeError(
                f"{path} is a random state of its own ({type(value).__name__}), which a checkpoint "
                "does not hold: draw from torch's default generator, as torch.randn(…) does, or "
                "leave checkpoint out"
            )
        if isinstance(value, Tensor):
            return value
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            return value
        if isinstance(value, self.opaque):
            return _qualified(type(value))
        if isinstance(value, type):
            return _qualified(value) + _code_of_class(value)
        if isinstance(value, BuiltinFunctionType):
            return _qualified(value)
        if isinstance(value, PLAIN) or _is_plain_list(value):
            text = repr(value.item() if isinstance(value, np.generic) else value)
            return text if len(text) <= LONGEST else f"{type(value).__name__} {_hash(text)}"
        return None

    def _parts(self, path: str, value: Any) -> tuple[str, Mapping[str, Any]]:
        """The class of a value, in words, and its parts by name."""
        name = _qualified(type(value))
        if isinstance(value, np.ndarray):
            return name, {"values": value.tolist()}
        if (table := _table(value)) is not None:
            return name, table
        if isinstance(value, Mapping):
            return f"{name} of {len(value)}", {str(key): part for key, part in value.items()}
        if isinstance(value, Set):
            members = sorted(
                _hash(contents(member, "", self.strict, self.opaque)) for member in value
            )
            return f"{name} of {len(value)}", {"members": members}
        if isinstance(value, Sequence):
            return f"{name} of {len(value)}", {str(n): member for n, member in enumerate(value)}
        if isinstance(value, partial):
            return name, {"of": value.func, "args": value.args, "keywords": value.keywords}
        if isinstance(value, MethodType):
            return name, {"of": value.__self__, "method": value.__func__}
        if isinstance(value, FunctionType):
            return _qualified(value), _parts_of_function(value)
        if hasattr(value, "identified_by"):
            return name, {"identity": value.identified_by()}
        code = _code_of_class(type(value))
        parts = {"code": code.strip()} if code else {}
        if isinstance(value, nn.Module):
            return name, {**parts, **self._parts_of_module(value)}
        attributes = attributes_of(value)
        if attributes is None:
            return name, self._pickled(path, value)
        held = {n: v for n, v in attributes.items() if self._counts(n, v, (Tensor, np.ndarray))}
        return name, {**parts, **held}

    def _parts_of_module(self, module: nn.Module) -> dict[str, Any]:
        settings = {
            name: value
            for name, value in vars(module).items()
            if name not in OF_TORCH and not name.startswith("_pyro") and self._counts(name, value)
        }
        held = {**module._parameters, **module._buffers, **module._modules}
        parts = {name: part for name, part in held.items() if part is not None}
        priors = vars(module).get(PRIORS, {})
        return {
            **settings,
            **parts,
            **{f"prior of {name}": prior for name, prior in priors.items()},
        }

    def _counts(self, name: str, value: Any, more: tuple[type, ...] = ()) -> bool:
        return self.strict or not name.startswith("_") or isinstance(value, (*PLAIN, *more))

    def _pickled(self, path: str, value: Any) -> dict[str, Any]:
        """What pickling keeps of an object without attributes, such as scikit-learn's trees."""
        with suppress(TypeError):
            reduced = value.__reduce_ex__(4)
            if isinstance(reduced, tuple) and any(state is not None for state in reduced[2:3]):
                return {"state": reduced[1:3]}
        if not self.strict:
            return {}
        raise TypeError(
            f"{path} is a {type(value).__name__}, which cannot be identified; give numbers, words, "
            "arrays, tensors, modules or functions"
        )


def attributes_of(value: Any) -> dict[str, Any] | None:
    """An object's attributes by name, in slots too, without those that it computes from the others.

    Example:
        >>> law = torch.distributions.Bernoulli(probs=torch.tensor(0.5))
        >>> before = set(attributes_of(law))
        >>> law.logits, set(attributes_of(law)) == before
        (tensor(0.), True)
    """
    kind = type(value)
    slots = [name for base in kind.__mro__ for name in getattr(base, "__slots__", ())]
    if not (hasattr(value, "__dict__") or slots):
        return None
    held = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    every = {**getattr(value, "__dict__", {}), **held}
    if isinstance(value, Transform):
        # An inverse is identified by the transform that it inverts.
        skipped = (
            ("_cached_x_y",) if kind.__name__ == "_InverseTransform" else ("_inv", "_cached_x_y")
        )
        return {name: attribute for name, attribute in every.items() if name not in skipped}
    how = {name: type(getattr(kind, name, None)).__name__ for name in every}
    made = {name: every[name] for name, of in how.items() if of not in COMPUTED}
    tensors = [tensor for tensor in made.values() if isinstance(tensor, Tensor)]
    # A distribution has its parameter twice, under the name by which it was given too.
    named = {
        name: every[name]
        for name, of in how.items()
        if of == COMPUTED[1] and (not tensors or any(every[name] is tensor for tensor in tensors))
    }
    return {**made, **named}


def _is_plain_list(value: Any) -> bool:
    return type(value) in (list, tuple) and all(isinstance(member, PLAIN) for member in value)


def _table(value: Any) -> dict[str, Any] | None:
    """The parts of a pandas table; None of any other value."""
    # A process that has a table has loaded pandas, which is slow to import.
    pandas: Any = sys.modules.get("pandas")
    kinds = () if pandas is None else (pandas.DataFrame, pandas.Series, pandas.Index)
    if not isinstance(value, kinds):
        return None
    is_frame = isinstance(value, pandas.DataFrame)
    names = list(value.columns) if is_frame else [value.name]
    types = list(value.dtypes) if is_frame else [value.dtype]
    rows = pandas.util.hash_pandas_object(value).to_numpy()
    return {"names": names, "types": list(map(str, types)), "rows": rows}


def _qualified(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _parts_of_function(function: FunctionType) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    if not is_of(function, KNOWN):
        parts["code"] = _code(function.__code__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # It has no value yet.
            parts[name] = cell.cell_contents
    for place, default in enumerate(function.__defaults__ or ()):
        parts[f"default {place}"] = default
    return parts | {
        f"default {n}": default for n, default in (function.__kwdefaults__ or {}).items()
    }


def _code_of_class(kind: type) -> str:
    """A hash of the functions of a class and its bases, but for libraries' classes."""
    code = [f"{name} {_code(function.__code__)}" for name, function in _functions_of(kind)]
    return f" {_hash(code)}" if code else ""


def _functions_of(kind: type) -> Iterator[tuple[str, FunctionType]]:
    for base in kind.__mro__:
        if is_of(base, LIBRARIES):
            continue
        for name, member in sorted(vars(base).items()):
            function = getattr(member, "__func__", getattr(member, "fget", member))
            if isinstance(function, FunctionType):
                yield name, function


def _code(code: CodeType) -> str:
    """A hash of what a function does, wherever it stands."""
    constants = [
        _code(constant)
        if isinstance(constant, CodeType)
        # The order of a set differs between processes.
        else repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)
        for constant in code.co_consts
    ]
    return _hash([code.co_code, repr(code.co_names), repr(code.co_varnames), *constants])
