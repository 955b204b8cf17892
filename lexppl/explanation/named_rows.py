"""Rows to be explained, checked against the fit, and the names that they are spoken of by."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyro
import torch
from torch import Tensor

from lexppl.effects import ParticleCounts
from lexppl.explanation.masks.program_sites import Response
from lexppl.inference.predictive import drawing
from lexppl.inference.pyro_parameters import floating_type
from lexppl.inference.training.result import FitResult


@dataclass(frozen=True)
class NamedRows:
    """Rows x `(B, *event)`, their y if it is given, and their names."""

    x: Tensor
    y: Tensor | None
    names: Sequence[Any]

    def __len__(self) -> int:
        return len(self.x)

    def arguments(self, rows: slice) -> tuple[Tensor, Tensor | None]:
        """What the program is called with for a chunk of rows."""
        return self.x[rows], None if self.y is None else self.y[rows]

    @property
    def float_type(self) -> type:
        """The type in which log-probabilities are kept: that of x."""
        return np.float64 if self.x.dtype == torch.float64 else np.float32

    def check_response(self, response: Response | None) -> None:
        """Refuse labels or probabilities that the program's response cannot take."""
        y = self.y
        if y is None or response is None:
            # Without a site of its own it is observed as a factor, if at all.
            return
        rows = (len(self),)
        if response.labels is None:
            expected = (*rows, *response.event_shape)
            if tuple(y.shape) != expected:
                raise ValueError(f"y must have shape {expected}; it has shape {tuple(y.shape)}")
            return
        classes = len(response.labels)
        if y.dim() == 1:
            unknown = sorted(set(y.tolist()) - set(response.labels))
            if unknown:
                raise ValueError(
                    f"y has labels {unknown[:5]} that the model does not have; it has "
                    f"{list(response.labels)}"
                )
        elif tuple(y.shape) != (*rows, classes) or not y.is_floating_point():
            raise ValueError(
                f"y must hold labels, shape {rows}, or the probabilities of {classes} classes, "
                f"shape {(*rows, classes)}; it is {y.dtype} of shape {tuple(y.shape)}"
            )
        elif bool((y < 0).any()) or not bool(((y.sum(-1) - 1).abs() < 1e-3).all()):
            raise ValueError("y holds probabilities of classes, and they do not sum to 1 in a row")


def named_rows(result: FitResult, x: Any, y: Any, row_names: Sequence[Any] | None) -> NamedRows:
    """Rows, checked against the fit, as tensors of its type."""
    dtype = _float_type(result, x)
    x = _tensor(x, "x", dtype)
    y = None if y is None else _tensor(y, "y", dtype)
    if y is not None and y.dim() == 0:
        raise ValueError("y must have one value for each row; it is a single number")
    labels = y is not None and y.dim() == 1 and result.labels is not None
    if y is not None and labels and bool((y == y.double().round()).all()):
        result.check(x, y.long())
    else:
        result.check(x, y)
    if y is not None and y.is_floating_point() and not bool(y.isfinite().all()):
        raise ValueError("y must be finite; it has NaN or infinite values")
    if y is not None and y.device != x.device:
        raise ValueError(f"x is on {x.device} and y on {y.device}; move one to the other")
    names = range(len(x)) if row_names is None else _different(row_names, len(x), "row_names")
    return NamedRows(x, y, names)


def entry_names(result: FitResult, entries: int, given: Sequence[str] | None) -> Sequence[str]:
    """Names of the G mask entries: given, of the fit, of the model's grouping, or x1 … xG."""
    if given is not None:
        return _different(given, entries, "entry_names")
    grouping = getattr(result.model, "grouping", None)
    for names in (result.entry_names, getattr(grouping, "names", None)):
        if names is not None and len(names) == entries:
            return list(names)
    return _numbered(entries)


def feature_names(
    columns: int, given: Sequence[str] | None, entries: Sequence[str]
) -> Sequence[str]:
    """Names of the D columns of x: given, the entries' where they are as many, or x1 … xD."""
    if given is not None:
        return _different(given, columns, "feature_names")
    return entries if len(entries) == columns else _numbered(columns)


def _numbered(count: int) -> list[str]:
    return [f"x{i + 1}" for i in range(count)]


def _different(names: Sequence[Any], count: int, argument: str) -> list[Any]:
    if isinstance(names, str):
        raise TypeError(f"{argument} must be a sequence of {count} names; it is one string")
    names = list(names)
    if len(names) != count:
        raise ValueError(f"{argument} must be {count} names; there are {len(names)}")
    if len(set(map(str, names))) != count:
        raise ValueError(f"{argument} must be {count} different names; some repeat")
    return names


def _float_type(result: FitResult, x: Any) -> torch.dtype:
    """The program's type; of one without numbers an array's float64 where its sites run in nothing
    else."""
    modules = [m for m in (result.model, result.guides[0]) if isinstance(m, torch.nn.Module)]
    usual, given = floating_type(modules), getattr(x, "dtype", None)
    if isinstance(x, Tensor) or given != np.float64 or usual == torch.float64:
        return usual
    if any(t.is_floating_point() for m in modules for t in (*m.parameters(), *m.buffers())):
        return usual
    row = torch.as_tensor(np.ascontiguousarray(x[:1]))
    with suppress(Exception), drawing(0), ParticleCounts(1, 1):
        trace = pyro.poutine.trace(result.model).get_trace(row.to(usual), None)
        if all(
            trace.nodes[name]["value"].dtype != torch.float64 for name in trace.stochastic_nodes
        ):
            return usual
    return torch.float64


def _tensor(values: Any, name: str, dtype: torch.dtype) -> Tensor:
    if isinstance(values, Tensor):
        return values
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise TypeError(
            f"{name} must be a tensor or an array of numbers; it is {type(values).__name__} of "
            f"{array.dtype}"
        )
    tensor = torch.as_tensor(np.ascontiguousarray(array))
    if tensor.is_floating_point() or name == "x":
        return tensor.to(dtype)
    return tensor.long()
