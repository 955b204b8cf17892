"""The state of a fit as files: tensors as safetensors, all else as sealed JSON with the tensors'
checksum."""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

from lexppl.atomic_output import output_folder, sync_folder, write_through
from lexppl.sealed_files import (
    UnreadableFileError,
    checksum_of,
    read_sealed,
    refuse_changed,
    refuse_formats,
    refused_by_name,
    sealed,
)

SCHEMA = 2
"""Of the files; a reader knows its own and those before. Those of 1 are not sealed."""
TENSORS = "tensors.safetensors"
DESCRIPTION = "state.json"


def write_state(folder: Path, state: Mapping[str, Any]) -> int:
    """Write a state aside, wait until the disk has it, and give it its name.

    Args:
        folder: of a name that is not taken.
        state: mappings, lists, tuples, numbers, words, arrays and tensors, in one another.

    Returns:
        the bytes that were written.

    Raises:
        TypeError: something else in the state, by its place.
        OSError: it cannot be written; nothing is left of it.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as place:
        ...     _ = write_state(Path(place) / "one", {"w": torch.ones(2), "rate": (0.1, None)})
        ...     read_state(Path(place) / "one")
        {'w': tensor([1., 1.]), 'rate': (0.1, None)}
    """
    tensors: dict[str, Tensor] = {}
    content = _described(dict(state), "", tensors)
    weights = to_bytes(tensors)
    description = {"schema": SCHEMA, "checksum": checksum_of(weights), "state": content}
    text = sealed(description, indent=None).encode()
    with output_folder(folder) as aside:
        write_through(aside / TENSORS, weights)
        write_through(aside / DESCRIPTION, text)
        sync_folder(aside)
    sync_folder(folder.parent)
    return len(weights) + len(text)


def read_state(folder: Path) -> dict[str, Any]:
    """Read what :func:`write_state` wrote. No code runs from the files.

    Args:
        folder: of the state.

    Raises:
        UnreadableFileError: a file that is missing, cut short or changed, or of a later version.
    """
    place = folder / DESCRIPTION
    try:
        description, is_sealed = read_sealed(place)
        weights = (folder / TENSORS).read_bytes()
    except OSError as error:
        raise UnreadableFileError(folder, f"{type(error).__name__}: {error}") from error
    with refused_by_name(place):
        schema, content, written = (description[name] for name in ("schema", "state", "checksum"))
        refuse_formats(place, schema, SCHEMA, is_sealed)
    with refused_by_name(folder):
        found = checksum_of(weights) if schema == SCHEMA else _first_checksum(content, weights)
        refuse_changed(folder, found, written)
        state: dict[str, Any] = _restored(content, from_bytes(weights))
        if not isinstance(state, dict):
            raise ValueError("it holds no state")
        return state


def refuse_unwritable(value: Any, name: str) -> None:
    """Refuse what :func:`write_state` cannot write.

    Args:
        value: part of a state.
        name: what it is.

    Raises:
        TypeError: by its place.

    Example:
        >>> refuse_unwritable({"rate": print}, "the optimizer")
        Traceback (most recent call last):
        ...
        TypeError: the optimizer/rate is a builtin_function_or_method, which a checkpoint ...
    """
    _described(value, name, {})


def _described(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """A value as JSON, and its tensors by their places."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    is_array = isinstance(value, np.ndarray)
    if is_array or isinstance(value, Tensor):
        tensor = torch.from_numpy(np.array(value)) if is_array else value.detach()
        name = path if path not in tensors else f"{path}#{len(tensors)}"
        tensors[name] = tensor.cpu().clone(memory_format=torch.contiguous_format)
        if is_array:
            return {"array": name}
        return {"tensor": name, "device": str(tensor.device)}
    if isinstance(value, Mapping):
        items = [(_described(k, path, tensors), k, v) for k, v in value.items()]
        return {"items": [[key, _described(v, f"{path}/{k}", tensors)] for key, k, v in items]}
    if isinstance(value, list | tuple):
        each = [_described(v, f"{path}/{i}", tensors) for i, v in enumerate(value)]
        return each if isinstance(value, list) else {"tuple": each}
    raise TypeError(
        f"{path.lstrip('/')} is a {type(value).__name__}, which a checkpoint cannot hold: it holds "
        "numbers, words, tensors, and lists and mappings of them"
    )


def _restored(described: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(described, list):
        return [_restored(one, tensors) for one in described]
    if not isinstance(described, dict):
        return described
    if "items" in described:
        return {_restored(k, tensors): _restored(v, tensors) for k, v in described["items"]}
    if "tuple" in described:
        return tuple(_restored(one, tensors) for one in described["tuple"])
    if "array" in described:
        return tensors[described["array"]].numpy()
    if "tensor" in described:
        return tensors[described["tensor"]].to(torch.device(described["device"]))
    return float(described["float"])


def _first_checksum(content: Any, weights: bytes) -> str:
    """Of all that a state of schema 1 says."""
    told = json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    return hashlib.sha256(hashlib.sha256(weights).digest() + told).hexdigest()
