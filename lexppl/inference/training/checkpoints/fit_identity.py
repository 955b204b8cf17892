"""Which fit it is that a folder has the state of: what it was asked for, its rows, its program.

An identity answers what is another in one fit than in another, by name, and so tells each part on
its own; whether two values are alike is `lexppl.fingerprint`'s question, by whose means the parts
are read. What an object keeps for itself is passed over here, as it may be what it has found so
far, and what cannot be told is told by its class: no program is refused for what it holds, but for
random states.
"""

import functools
import hashlib
import platform
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lexppl.fingerprint import (
    KNOWN,
    PRIORS,
    attributes_of,
    closure_of,
    code_parts,
    fingerprint,
    functions_of,
    is_of,
    tensor_bytes,
)
from lexppl.inference.batches import HasBatches, LoadedRows
from lexppl.inference.replicates.replicates import Replicates
from lexppl.inference.stages import TrainingModules
from lexppl.inference.training.rows.row_weights import TrainingRows, WeightedRows

Identity = dict[str, Any]
"""What makes a fit the fit that it is, by name: numbers, words and digests."""

DIGITS = 24
"""Of a digest."""
LONGEST = 64
"""Of lists whose numbers are told one by one."""
TOLD_ELSEWHERE = {
    *("model", "guide", "objective", "stages", "train", "valid", "row_weights", "sample_weight"),
    *("replicates", "inference", "callbacks", "progress", "checkpoint", "distributed"),
}
"""Arguments of `fit` that the modules and the rows tell of, and those that move no bit."""
NOT_TOLD = ("_pyro", "_parameters", "_buffers", "_modules", "_backward", "_forward", "_state_dict")
"""How attributes of modules begin that are torch's and Pyro's own."""


def identity_of(
    asked: Mapping[str, Any],
    copies: Sequence[TrainingModules],
    learned: TrainingRows,
    held_out: TrainingRows | None,
) -> Identity:
    """A fit's identity: the same for the same fit in any process, another for another.

    Args:
        asked: the arguments of `fit`.
        copies: the replicates' modules, as they are before the first step.
        learned: the rows to learn from, with their weights and in their folds.
        held_out: the validation rows.

    Raises:
        TypeError: a program that carries a random state of its own.
    """
    told: Identity = {}
    for name, value in asked.items():
        if name not in TOLD_ELSEWHERE:
            _tell(told, name, value, {})
    for name, rows in (("train", learned), ("valid", held_out)):
        _tell(told, name, _bytes_of(rows), {})
    told["replicates"] = len(copies)
    _tell_modules(told, "model", copies[0])
    for place, one in enumerate(copies[1:], 1):
        own: Identity = {}
        _tell_modules(own, "model", one)
        told[f"model.replicate {place}"] = _digest(repr(sorted(own.items())).encode())
    return told


def digest_of_fitted(runner: Replicates) -> str:
    """A digest of the buffers that were fitted to rows before the first step, such as trees."""
    parts = (part for part in runner.template.modules() if hasattr(part, "fit_rows"))
    one = {f"{at}.{n}": b for at, part in enumerate(parts) for n, b in part.named_buffers()}
    every = {**one, **runner.buffers}
    return _digest(repr(sorted((name, _of_tensor(b)) for name, b in every.items())).encode())


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What is another in one fit than in another, in words: where arguments are, those alone, as
    the rest follows from them.

    Example:
        >>> differences({"seed": 0, "train.x": "ab"}, {"seed": 1, "train.x": "cd"})
        ['seed was 0 and is 1']
    """
    names = [n for n in dict.fromkeys([*now, *before]) if _told(before, n) != _told(now, n)]
    arguments = [name for name in names if "." not in name]
    return [_difference(n, _told(before, n), _told(now, n)) for n in arguments or names]


def _told(identity: Mapping[str, Any], name: str) -> Any:
    return identity.get(name, "not there")


def _difference(name: str, before: Any, now: Any) -> str:
    # Of tensors and the like the kind and the shape are told, and then a digest.
    (of_before, _, first), (of_now, _, second) = (str(v).rpartition(" ") for v in (before, now))
    digests = len(first) == len(second) == DIGITS
    if digests and of_before == of_now:
        return f"{name} has other values"
    return f"{name} was {of_before if digests else before} and is {of_now if digests else now}"


def versions() -> dict[str, Any]:
    """What else the bits of a fit rest on: versions, the processor, the number of threads."""
    return {
        "lexppl": version("lexppl"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "the processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        "the number of threads": torch.get_num_threads(),
    }


def _bytes_of(rows: TrainingRows | None) -> Any:
    """Rows as what they hold."""
    if isinstance(rows, WeightedRows):
        rows = rows.rows
    if rows is None:
        return None
    if isinstance(rows, LoadedRows):
        loader = rows.loader
        if isinstance(loader, HasBatches):
            told = getattr(loader, "told_apart_by", None)
            return loader if told is None else told()
        names = ("batch_size", "drop_last", "num_workers", "collate_fn", "dataset")
        drawn = ("weights", "indices", "replacement", "num_samples")
        return {
            **{name: getattr(loader, name) for name in names},
            "sampler": type(loader.sampler),
            **{f"sampler's {name}": getattr(loader.sampler, name, None) for name in drawn},
        }
    return dict(zip(("x", "y"), rows.columns, strict=False)) | {
        f"column {place}": column for place, column in enumerate(rows.columns) if place > 1
    }


def _tell_modules(told: Identity, path: str, modules: TrainingModules) -> None:
    seen: dict[int, tuple[str, Any]] = {}
    for number, stage in enumerate(modules.stages):
        _tell(told, f"{path}.stage {number}", stage, seen)


def _tell(told: Identity, path: str, value: Any, seen: dict[int, tuple[str, Any]]) -> None:
    """Put down a value, part by part."""
    plain = _plain(value, path)
    if plain is not _PARTS:
        told[path] = plain
        return
    if id(value) in seen:
        told[path] = f"{seen[id(value)][0]}, which stands there too"
        return
    # The value is kept beside its name: another would else have its place in memory, and so its id.
    seen[id(value)] = (path, value)
    parts = _parts(value)
    told[path] = (
        f"{_name(value)} of {len(parts)}" if isinstance(value, _GROUPS) else _told_of(value)
    )
    for name, part in parts.items():
        _tell(told, f"{path}.{name}", part, seen)


def _told_of(value: Any) -> str:
    """The name of its kind; and a digest of what has no attributes, as scikit-learn's trees."""
    if attributes_of(value) is not None or _is_known(type(value)):
        return _name(value)
    try:
        return f"{_name(value)} {fingerprint(value)[:DIGITS]}"
    # What a library's objects say of themselves may raise anything.
    except Exception:
        return _name(value)


_PARTS = object()
_KEPT = bool | int | float | str | Tensor | np.ndarray
_GROUPS = (list, tuple, set, frozenset, Mapping)


def _plain(value: Any, path: str) -> Any:
    """A value that is told in one; else :data:`_PARTS`."""
    if isinstance(value, torch.Generator | np.random.Generator | np.random.RandomState):
        raise TypeError(
            f"{path} is a random state of its own ({type(value).__name__}), which a checkpoint "
            "does not hold: draw from torch's default generator, as torch.randn(…) does, or leave "
            "checkpoint out"
        )
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | complex | torch.dtype | torch.device | range | Path):
        return repr(value) if not isinstance(value, Path) else str(value)
    if isinstance(value, Enum):
        return str(value)
    if isinstance(value, Tensor):
        return _of_tensor(value)
    if hasattr(value, "to_numpy"):
        value = value.to_numpy()
    if isinstance(value, np.ndarray):
        # Of objects an array has the places in memory.
        held = repr(value.tolist()).encode() if value.dtype == object else value.tobytes()
        return f"{value.dtype} {value.shape} {_digest(held)}"
    if isinstance(value, bytes):
        return _digest(value)
    if isinstance(value, type | BuiltinFunctionType):
        return _qualified(value)
    if isinstance(value, list | tuple) and len(value) > LONGEST and _are_numbers(value):
        return f"{len(value)} numbers {_digest(repr(value).encode())}"
    return _PARTS


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float | str) for value in values)


def _parts(value: Any) -> dict[str, Any]:
    """What a value is made of, by name."""
    if isinstance(value, Mapping):
        return {str(key): part for key, part in value.items()}
    if isinstance(value, list | tuple):
        return {str(place): part for place, part in enumerate(value)}
    if isinstance(value, set | frozenset):
        return {str(place): part for place, part in enumerate(sorted(map(repr, value)))}
    if isinstance(value, functools.partial):
        return {"of": value.func, "args": value.args, "keywords": value.keywords}
    if isinstance(value, MethodType):
        return {"of": value.__self__, "method": value.__func__.__name__}
    if isinstance(value, FunctionType):
        return _parts_of_function(value)
    parts: dict[str, Any] = {}
    if not _is_known(type(value)):
        parts["code"] = _code_of_class(type(value))
    for name, part in (attributes_of(value) or {}).items():
        is_module = isinstance(value, nn.Module)
        own = is_module and (name == "training" or name.startswith(NOT_TOLD))
        # What an object keeps for itself may be what it has found so far.
        kept = bool | int | float | str if is_module else _KEPT
        hidden = name.startswith("_") and not isinstance(part, kept)
        if not own and not hidden:
            parts[name] = part
    if isinstance(value, nn.Module):
        for held in (value._parameters, value._buffers, value._modules):
            parts |= {name: part for name, part in held.items() if part is not None}
        priors = getattr(value, PRIORS, {})
        parts |= {f"prior of {name}": prior for name, prior in priors.items()}
    return parts


def _parts_of_function(function: FunctionType) -> dict[str, Any]:
    if _is_known(function) and function.__closure__ is None:
        return {}
    parts: dict[str, Any] = {} if _is_known(function) else {"code": _code(function.__code__)}
    parts |= closure_of(function)
    for place, default in enumerate(function.__defaults__ or ()):
        parts[f"default {place}"] = default
    for name, default in (function.__kwdefaults__ or {}).items():
        parts[f"default {name}"] = default
    return parts


def _is_known(value: Any) -> bool:
    return is_of(value, KNOWN)


def _code_of_class(kind: type) -> str:
    """The code of a class's functions, and of those above it, but for known packages'."""
    told = [f"{name} {_code(function.__code__)}" for name, function in functions_of(kind)]
    return _digest("\n".join(told).encode())


def _code(code: CodeType) -> str:
    """What a function does; neither where it stands nor what it says of itself."""
    did, names, variables, held = code_parts(code)
    constants = [
        _code(one)
        if isinstance(one, CodeType)
        # The order of a set is another in each process.
        else repr(sorted(map(repr, one)) if isinstance(one, frozenset) else one)
        for one in held
    ]
    return _digest(repr((did, names, variables, constants)).encode())


def _name(value: Any) -> str:
    if isinstance(value, FunctionType):
        return _qualified(value)
    return _qualified(type(value))


def _qualified(value: Callable[..., Any] | type) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _of_tensor(tensor: Tensor) -> str:
    kind = str(tensor.dtype).removeprefix("torch.")
    return f"{kind} {tuple(tensor.shape)} {_digest(tensor_bytes(tensor))}"


def _digest(content: bytes | memoryview) -> str:
    return hashlib.sha256(content).hexdigest()[:DIGITS]
