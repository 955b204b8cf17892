"""One plain run each of program and guide, from which a fit learns what it must know of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyro
import torch
from pyro.poutine.subsample_messenger import _Subsample

from lexppl.effects import ParticleCounts
from lexppl.inference.plain_calls import PlainCalls, as_called, can_be_called_plainly
from lexppl.inference.pyro_parameters import refusing_hidden


@dataclass(frozen=True)
class FirstLook:
    """The sample nodes of a run with one particle, by name.

    Args:
        model: the model's.
        guide: the guide's.
    """

    model: dict[str, Any]
    guide: dict[str, Any]

    @classmethod
    def at(
        cls,
        model: Callable[..., Any],
        guide: Callable[..., Any] | None,
        args: tuple[Any, ...],
    ) -> "FirstLook":
        """Run each by itself on a batch, without gradients."""
        return cls(_samples(model, args), {} if guide is None else _samples(guide, args))


def _samples(program: Callable[..., Any], args: tuple[Any, ...]) -> dict[str, Any]:
    with refusing_hidden(), torch.no_grad(), ParticleCounts(1, 1):
        trace = pyro.poutine.trace(as_called(program)).get_trace(*args)
    return {
        name: node
        for name, node in trace.nodes.items()
        if node["type"] == "sample" and not isinstance(node["fn"], _Subsample)
    }


def runs_alike_plainly(program: Callable[..., Any] | None, args: tuple[Any, ...]) -> bool:
    """Whether a program makes the same sample statements when it is called without those of its
    parameters: within it nothing (such as `poutine.lift`) turns parameters into latents.

    Args:
        program: a model or a guide, or None, which is not run.
        args: a batch.
    """
    if program is None or not can_be_called_plainly(program):
        return False
    statements = _samples(program, args)
    with PlainCalls([program]):
        return _kinds(_samples(program, args)) == _kinds(statements)


def _kinds(nodes: dict[str, Any]) -> list[tuple[str, type, bool]]:
    return [(name, type(node["fn"]), node["is_observed"]) for name, node in nodes.items()]
