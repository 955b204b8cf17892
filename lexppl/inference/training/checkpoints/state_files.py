"""The state of a fit as files: tensors as safetensors, all else as JSON, checked when they are
read."""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

from lexppl.atomic_output import output_folder, sync_folder, write_through

SCHEMA = 1
"""Of the files; a reader knows its own and those before."""
TENSORS = "tensors.safetensors"
DESCRIPTION = "state.json"


class DamagedStateError(ValueError):
    """Files that are no whole state, or of a version that this one does not read."""


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
    description = {"schema": SCHEMA, "checksum": _checksum(content, weights), "state": content}
    text = json.dumps(description, allow_nan=False).encode()
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
        DamagedStateError: a file that is missing, cut short or changed, or of a later version.
    """
    try:
        text, weights = (folder / DESCRIPTION).read_bytes(), (folder / TENSORS).read_bytes()
        description = json.loads(text)
        schema = description["schema"]
        if schema != SCHEMA:
            raise DamagedStateError(
                f"{folder} has schema {schema!r}, and this version of lexppl reads {SCHEMA}: go on "
                "with the version that wrote it, or give another folder"
            )
        if description["checksum"] != _checksum(description["state"], weights):
            raise DamagedStateError(f"{folder} is damaged: its checksum is another")
        state: dict[str, Any] = _restored(description["state"], from_bytes(weights))
    except DamagedStateError:
        raise
    except (OSError, LookupError, ValueError, TypeError, RuntimeError, SafetensorError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise DamagedStateError(f"{folder} is damaged ({reason})") from error
    if not isinstance(state, dict):
        raise DamagedStateError(f"{folder} is damaged: it holds no state")
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


def _checksum(content: Any, weights: bytes) -> str:
    """SHA-256 of all that a state says."""
    told = json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    return hashlib.sha256(hashlib.sha256(weights).digest() + told).hexdigest()
