"""What a black box was sent, and its answers by the content of a row."""

from __future__ import annotations

import os
import uuid
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lexppl.fingerprint import fingerprint
from lexppl.sealed_files import named, sync
from lexppl.summary import counted

KEY_BYTES = 16
SHAP_PERMUTATIONS, SHAP_BACKGROUND = 10, 100
"""Of SHAP: `PermutationExplainer.shap_values(npermutations=10)`, `Independent(max_samples=100)`."""


@dataclass
class Calls:
    """What a black box was sent.

    Args:
        rows: rows that were sent.
        calls: calls that they were sent in.
        seconds: time that the calls took.
        known: rows whose answer was there: sent before, of the same content, or in the cache.
        left_out: rows that `max_calls` did not allow.
    """

    rows: int = 0
    calls: int = 0
    seconds: float = 0.0
    known: int = 0
    left_out: int = 0

    def summary(self, features: int) -> str:
        """The calls in words, beside those of SHAP's permutation explainer for the same rows.

        Example:
            >>> Calls(200, 2, 1.5).summary(features=30)
            "200 rows sent to the black box in 2 calls, 1.5 s; SHAP's permutation explainer
            (10 permutations, 100 background rows) would send 12,200,000 for 200 rows"
        """
        explained = self.rows + self.known
        known = f" ({self.known:,} more had answers)" if self.known else ""
        limit = f"; {self.left_out:,} rows were left out by max_calls" if self.left_out else ""
        return (
            f"{counted(self.rows, 'row')} sent to the black box in {counted(self.calls, 'call')}, "
            f"{self.seconds:.2g} s{known}{limit}; SHAP's permutation explainer "
            f"({SHAP_PERMUTATIONS} permutations, {SHAP_BACKGROUND} background rows) would send "
            f"{shap_rows(explained, features):,} for {explained:,} rows"
        )


def shap_rows(rows: int, features: int, background: int = SHAP_BACKGROUND) -> int:
    """Rows that SHAP's permutation explainer sends to a model: `10 (2 D + 1) B` for each of N.

    Args:
        rows: N.
        features: D.
        background: B.

    Source: shap 0.51, `explainers/_permutation.py`: `explain_row` has 2 D + 1 masks a permutation,
    each of B rows; `shap_values` has 10 permutations by default.

    Example:
        >>> shap_rows(1, 10)
        21000
    """
    return rows * SHAP_PERMUTATIONS * (2 * features + 1) * background


@dataclass(eq=False)
class Answers:
    """Outputs of a model by the content of a row, in memory and in the files of a folder.

    A process appends to a file of its own and reads those of others; a record that was cut short
    is passed over.

    Args:
        folder: of the files, or None for memory alone.
        identity: of the model, the start of the files' names.
    """

    folder: Path | None = None
    identity: str = ""
    held: dict[bytes, NDArray[np.float64]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._own = uuid.uuid4().hex[:12]
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            for file in sorted(self.folder.glob(f"{self.identity}-*.rows")):
                self._read(file)

    def add(self, keys: Sequence[bytes], outputs: NDArray[np.float64]) -> None:
        """Keep outputs `(B, C)` of B rows; where there is a folder, on the disk."""
        self.held.update(zip(keys, outputs, strict=True))
        if self.folder is None or not len(outputs):
            return
        content = np.empty(len(outputs), _record(outputs.shape[1]))
        content["key"], content["outputs"] = np.array(keys, f"V{KEY_BYTES}"), outputs
        content["check"] = [_check(record) for record in content]
        file = self.folder / f"{self.identity}-{outputs.shape[1]}-{self._own}{os.getpid()}.rows"
        with named(file), file.open("ab") as opened:
            # A full disk may have cut a record short.
            opened.truncate(opened.tell() // content.itemsize * content.itemsize)
            opened.write(content.tobytes())
        sync(file)
        sync(self.folder)

    def _read(self, file: Path) -> None:
        kind = _record(int(file.stem.split("-")[1]))
        content = file.read_bytes()
        records = np.frombuffer(content, kind, len(content) // kind.itemsize)
        for record in records:
            if record["check"] == _check(record):
                self.held[record["key"].tobytes()] = record["outputs"]


def _record(width: int) -> np.dtype[Any]:
    parts = [("key", f"V{KEY_BYTES}"), ("outputs", "<f8", (width,)), ("check", "<u4")]
    return np.dtype(parts)


def _check(record: Any) -> int:
    return zlib.crc32(record["outputs"].tobytes(), zlib.crc32(record["key"].tobytes()))


def tensor_keys(rows: Tensor, context: str) -> list[bytes]:
    """A hash of each row of a tensor `(N, *event)`, and of what is read of it."""
    array = np.ascontiguousarray(rows.detach().cpu().numpy())
    return _hashes((row.tobytes() for row in array), f"{array.dtype} {array.shape[1:]} {context}")


def table_keys(cells: Any, context: str) -> list[bytes]:
    """A hash of each row of a data frame or array, words and dates among it, and of what is read
    of it."""
    is_frame = hasattr(cells, "itertuples")
    rows = cells.itertuples(index=False, name=None) if is_frame else cells.tolist()
    kind = list(cells.columns) if is_frame else cells.dtype
    return _hashes((repr(row).encode() for row in rows), f"{kind} {context}")


def _hashes(rows: Iterable[bytes], kind: str) -> list[bytes]:
    key = blake2b(kind.encode()).digest()
    return [blake2b(row, digest_size=KEY_BYTES, key=key).digest() for row in rows]


def identity_of(model: Any) -> str:
    """A hash of what a model holds, the same in every process.

    Raises:
        TypeError: a model that holds what cannot be hashed.
    """
    if hasattr(model, "identified_by"):
        return identity_of(model.identified_by())
    if isinstance(model, torch.jit.ScriptModule):
        return blake2b(model.save_to_buffer(), digest_size=KEY_BYTES).hexdigest()
    if isinstance(model, FunctionType | MethodType | nn.Module):
        return fingerprint(model)
    import joblib  # noqa: PLC0415 - slow to import

    # What another library's object does when it is pickled is not known.
    try:
        return str(joblib.hash(model))
    except Exception:
        return fingerprint(model)
