"""Rows to be explained, checked against the fit, and the names of rows, entries and dimensions."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyro
import torch
from torch import Tensor

from lexppl.effects import ParticleCounts
from lexppl.explanation.program_sites import FEATURE, Response, SharedSite
from lexppl.inference.batches import tensor_of
from lexppl.inference.predictive import drawing
from lexppl.inference.pyro_parameters import floating_type
from lexppl.inference.training.result import FitResult
from lexppl.inference.training.rows import as_read


@dataclass(frozen=True)
class NamedRows:
    """Rows x `(B, *event)`, their y if it is given, their names, and the type of their floats or,
    of whole numbers, the program's."""

    x: Tensor
    y: Tensor | None
    names: Sequence[Any]
    dtype: torch.dtype

    def __len__(self) -> int:
        return len(self.x)

    def arguments(self, rows: slice) -> tuple[Tensor, Tensor | None]:
        """What the program is called with for a chunk of rows."""
        return self.x[rows], None if self.y is None else self.y[rows]

    def check_response(
        self, response: Response | None, observed: Callable[[], Tensor | None]
    ) -> None:
        """Refuse y that the program's response cannot take, and that is not made into such in the
        program, whose site has the values `observed()` given y; None where that is not known."""
        reason = self.unlike(response)
        if reason is None:
            return
        made = observed()
        if made is None or replace(self, y=made).unlike(response) is not None:
            raise ValueError(reason)

    def unlike(self, response: Response | None) -> str | None:
        """Why y is no labels, probabilities or values of the program's response; None if it is."""
        y = self.y
        if y is None or response is None:
            # Without a site of its own it is observed as a factor, if at all.
            return None
        rows = (len(self),)
        if response.labels is None:
            expected = (*rows, *response.event_shape)
            same = tuple(y.shape) == expected
            return None if same else f"y must have shape {expected}; it has shape {tuple(y.shape)}"
        classes = len(response.labels)
        if y.dim() == 1:
            unknown = sorted(set(y.tolist()) - set(response.labels))
            has = f"y has labels {unknown[:5]} that the model does not have; it has "
            return f"{has}{list(response.labels)}" if unknown else None
        if tuple(y.shape) != (*rows, classes) or not y.is_floating_point():
            return (
                f"y must hold labels, shape {rows}, or the probabilities of {classes} classes, "
                f"shape {(*rows, classes)}; it is {y.dtype} of shape {tuple(y.shape)}"
            )
        if bool((y < 0).any()) or not bool(((y.sum(-1) - 1).abs() < 1e-3).all()):
            return "y holds probabilities of classes, and they do not sum to 1 in a row"
        return None


def named_rows(result: FitResult, x: Any, y: Any, names: Any = None) -> NamedRows:
    """Rows, checked against the fit, as tensors of its type."""
    dtype = _float_type(result, x)
    x = x if isinstance(x, Tensor) else as_read(result.model, tensor_of(x, "x", dtype), dtype)
    y = None if y is None else tensor_of(y, "y", dtype)
    result.check(x, y)
    if y is not None and y.device != x.device:
        raise ValueError(f"x is on {x.device} and y on {y.device}; move one to the other")
    names = range(len(x)) if names is None else _different(names, len(x), "coords['row']")
    return NamedRows(x, y, names, dtype)


def entry_names(result: FitResult, entries: int, stated: Sequence[str] | None) -> Sequence[str]:
    """Names of the G mask entries: given, of the fit, of the model's grouping, or x1 … xG."""
    if stated is not None:
        return _different(stated, entries, "entry_names")
    grouping = getattr(result.model, "grouping", None)
    for names in (result.entry_names, getattr(grouping, "names", None)):
        if names is not None and len(names) == entries:
            return list(names)
    return _numbered(entries)


def feature_names(
    columns: int, stated: Sequence[str] | None, entries: Sequence[str]
) -> Sequence[str]:
    """Names of the D columns of x: given, the entries' where they are as many, or x1 … xD."""
    if stated is not None:
        return _different(stated, columns, "coords['input']")
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
    """Floating type of the rows: their own as a tensor; of others the program's, or float64 of an
    array where the program has no numbers and its sites run in nothing else."""
    if isinstance(x, Tensor) and x.is_floating_point():
        return x.dtype
    modules = [m for m in (result.model, result.guides[0]) if isinstance(m, torch.nn.Module)]
    usual, dtype = floating_type(modules), getattr(x, "dtype", None)
    if isinstance(x, Tensor) or dtype != np.float64 or usual == torch.float64:
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


RESERVED = ("chain", "draw", "row")


@dataclass(frozen=True)
class SharedDims:
    """A caller's names: `dims={"slope": ["feature"]}, coords={"feature": ["age", "dose"]}`."""

    dims: Mapping[str, Sequence[str]] = field(default_factory=dict)
    coords: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def check(self, shared: Sequence[SharedSite], others: Collection[str] = ()) -> None:
        """Refuse dims of what is no latent that all rows share, and coords of no dimension of these
        or of `others`."""
        unknown = sorted(set(self.dims) - {site.name for site in shared})
        if unknown:
            raise ValueError(
                f"dims names {unknown}; the latents that all rows share are "
                f"{[site.name for site in shared]}"
            )
        for site in shared:
            stated, free = self.dims.get(site.name), site.plates.count(None)
            names = [] if stated is None else list(stated)
            right = not isinstance(stated, str) and len(set(names) - set(RESERVED)) == free
            if stated is not None and not (right and len(names) == free):
                raise ValueError(
                    f"dims[{site.name!r}] must be {free} names, of the dimensions of its value "
                    f"{site.shape} that are no plate, none of {RESERVED}; it is {stated!r}"
                )
        known = {FEATURE, *others, *(name for names in self.dims.values() for name in names)}
        known |= {plate for site in shared for plate in site.plates if plate is not None}
        strange = sorted(set(self.coords) - known)
        if strange:
            raise ValueError(f"coords names {strange}; dimensions to name are {sorted(known)}")

    def of(
        self, site: SharedSite, entries: int, coordinates: Mapping[str, Sequence[Any]]
    ) -> list[str]:
        """The dimensions of a latent: given, its plates, `feature` where it shares out a unit among
        the G mask entries, or `<site>_dim_<i>`."""
        stated = iter(self.dims.get(site.name, ()))
        sizes = [size for size, plate in zip(site.shape, site.plates, strict=True) if plate is None]
        # A weight of as many numbers as there are features need not be one of each.
        usual = FEATURE if site.is_share and sizes == [entries] else None
        dims = []
        for i, (size, plate) in enumerate(zip(site.shape, site.plates, strict=True)):
            named = plate or next(stated, None)
            name = named or usual or f"{site.name}_dim_{i}"
            count = len(coordinates.get(name, range(size)))
            if count != size and (name in self.coords or (plate is None and named)):
                raise ValueError(
                    f"dimension {name!r} has {count} names, and {site.name!r} has {size} entries "
                    "there"
                )
            dims.append(name if count == size else f"{site.name}_dim_{i}")
        return dims
