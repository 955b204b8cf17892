"""The sample statements of a program, from one plain run with one particle."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyro
import torch
from pyro.poutine.subsample_messenger import _Subsample

from lexppl.effects import ParticleCounts
from lexppl.inference.plain_calls import PlainCalls, as_called, can_be_called_plainly
from lexppl.inference.pyro_parameters import refusing_hidden


@dataclass(frozen=True)
class SampleNodes:
    """The sample nodes of model and guide in a run with one particle, by name."""

    model: dict[str, Any]
    guide: dict[str, Any]

    @classmethod
    def of(
        cls, model: Callable[..., Any], guide: Callable[..., Any] | None, args: tuple[Any, ...]
    ) -> "SampleNodes":
        """Run each by itself on a batch, without gradients."""
        return cls(_samples(model, args), {} if guide is None else _samples(guide, args))


def _samples(program: Callable[..., Any], args: tuple[Any, ...]) -> dict[str, Any]:
    with plate_errors_explained(), refusing_hidden(), torch.no_grad(), ParticleCounts(1, 1):
        trace = pyro.poutine.trace(as_called(program)).get_trace(*args)
    found = {
        name: node
        for name, node in trace.nodes.items()
        if node["type"] == "sample" and not isinstance(node["fn"], _Subsample)
    }
    for name, node in found.items():
        if node["is_observed"] and isinstance(node["value"], torch.Tensor):
            _refuse_larger(name, node["fn"], tuple(node["value"].shape))
    return found


def _refuse_larger(name: str, law: Any, observed: tuple[int, ...]) -> None:
    """Refuse what is observed in another shape than the law's: `(B, 1)` would become `(B, B)`."""
    own = (*law.batch_shape, *law.event_shape)
    if np.broadcast_shapes(observed, own)[-len(observed) :] != own[-len(observed) :]:
        raise ValueError(
            f"site {name!r} observes values of shape {observed}, and its distribution has batch "
            f"shape {tuple(law.batch_shape)} and event shape {tuple(law.event_shape)}: give one "
            "value for each row, as y[:, 0] of y (B, 1), or make the last dimension an event, by "
            ".to_event(1)"
        )


@contextmanager
def plate_errors_explained() -> Iterator[None]:
    """Errors of Pyro about the plates of a program, with what mends them."""
    try:
        yield
    except ValueError as error:
        plates = re.search(r'plates "(.+)" and "(.+)", collide at dim=(-\d+)', str(error))
        shapes = re.search(
            r"inside plate\('(.+)'\) at site (\S+) dim (-\d+), (\d+) vs (\d+)", str(error)
        )
        if plates is not None:
            one, other, dim = plates.groups()
            raise ValueError(
                f"plates {one!r} and {other!r} are both at dim {dim}: mask_particles() is at dim "
                "-2 and imputation_particles() at dim -3, so that the plate over rows is at dim=-1"
            ) from error
        if shapes is not None:
            plate, site, dim, size, found = shapes.groups()
            raise ValueError(
                f"site {site!r} has {found} entries at dim {dim} of its batch shape, where the "
                f"plate {plate!r} has {size}: what belongs to one entry of the plate is an event, "
                "as Bernoulli(…).to_event(1) makes the features of a row"
            ) from error
        raise


def runs_alike_plainly(program: Callable[..., Any] | None, args: tuple[Any, ...]) -> bool:
    """Whether a program has the same sites when called plainly; `poutine.lift` changes them."""
    if program is None or not can_be_called_plainly(program):
        return False
    statements = _samples(program, args)
    with PlainCalls([program]):
        return _kinds(_samples(program, args)) == _kinds(statements)


def _kinds(nodes: dict[str, Any]) -> list[tuple[str, type, bool]]:
    return [(name, type(node["fn"]), node["is_observed"]) for name, node in nodes.items()]
