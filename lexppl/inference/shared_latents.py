"""Latents that all rows share: one value for all rows of a draw, another for the next draw."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro.poutine.subsample_messenger import _Subsample
from torch import Tensor

from lexppl.effects import MASK_PLATE, ParticleCounts, weights_first
from lexppl.inference.contexts import seeded
from lexppl.inference.posterior.global_draws import DrawIndex
from lexppl.inference.posterior.global_latents import latents_of

Guide = Callable[..., Any]


class SharedLatents:
    """Draws of what a guide samples outside `mask_particles()`.

    Such a program is drawn from one draw at a time: each draw has its own value of every latent
    outside the mask plate. Those in no plate over rows (weights, a global Dirichlet, effects of
    groups) are drawn here, once a draw, and given to every chunk of rows; those of a row are drawn
    with the chunk.

    Args:
        model: the program.
        guide: the program's guide, or None.
        needed: whether the program has latents outside the mask plate. Where it has none, the guide
            is not called without y, which it may need.
        args: a few rows, to call the guide with.
        draws: D.
        plates: the names of the program's plates over rows (:func:`latents_of`); looked
            for if None.
        from_prior: whether they are drawn from the program itself, without y, and not from its
            guide.
    """

    def __init__(
        self,
        model: Guide,
        guide: Guide | None,
        needed: bool,
        args: tuple[Any, ...],
        draws: int,
        plates: Collection[str] | None = None,
        *,
        from_prior: bool = False,
    ) -> None:
        guide = model if from_prior else guide
        self._guide = guide
        self._from_prior = from_prior
        self._traces: list[Any] = []
        self._drawn_with_rows = False
        if guide is None or not needed:
            return
        if plates is None:
            with seeded(0, args[0].device):
                plates = latents_of(model, args).row_plates
        for draw in range(draws):
            with DrawIndex(draw, draws):
                trace = _trace(guide, args)
            outside = _outside(trace)
            for name in list(trace.nodes):
                if name not in outside:
                    trace.remove_node(name)
                elif _in_plates(trace.nodes[name], plates):
                    trace.remove_node(name)
                    self._drawn_with_rows = True
            self._traces.append(trace)

    def values(self, names: Collection[str]) -> dict[str, Tensor]:
        """The draws `(D, *value)` of some of the latents that rows share, by site."""
        return {
            name: torch.stack([trace.nodes[name]["value"].detach() for trace in self._traces])
            for name in names
        }

    def guides(self, propose_masks: bool) -> list[tuple[Guide | None, int | None]]:
        """The guides to run a chunk of rows with, each with the number of draws it is good for
        (None for all)."""
        if not self._traces:
            return [(self._guide if propose_masks else None, None)]
        if self._from_prior or not (propose_masks or self._drawn_with_rows):
            return [(_Given(trace), 1) for trace in self._traces]
        program = None if self._guide is None else weights_first(self._guide)
        guides: list[tuple[Guide | None, int | None]] = []
        for trace in self._traces:
            guide = pyro.poutine.replay(program, trace=trace)
            if not propose_masks:
                guide = pyro.poutine.block(guide, hide_fn=_in_mask_plate)
            guides.append((guide, 1))
        return guides


class _Given:
    """A guide of the values that a guide's trace gives a model, and of nothing else."""

    def __init__(self, trace: Any) -> None:
        self._values = {
            name: node["value"]
            for name, node in trace.nodes.items()
            if node["type"] == "sample" and not (node["infer"] or {}).get("is_auxiliary", False)
        }

    def __call__(self, *_: Any, **__: Any) -> None:
        for name, value in self._values.items():
            pyro.sample(name, dist.Delta(value, event_dim=value.dim()))


def has_latents_outside(model: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Whether a program has latents outside the mask plate."""
    return bool(_outside(_trace(model, args)))


def sites_of_guide(guide: Guide, args: tuple[Any, ...]) -> tuple[str, ...]:
    """The names of what a guide samples outside the mask plate."""
    return tuple(_outside(_trace(guide, args)))


def _trace(guide: Guide, args: tuple[Any, ...]) -> Any:
    with ParticleCounts(1, 1):
        return pyro.poutine.trace(weights_first(guide)).get_trace(*args)


def _outside(trace: Any) -> dict[str, Tensor]:
    """The latents of a trace that are outside the mask plate."""
    return {
        name: node["value"]
        for name, node in trace.nodes.items()
        if node["type"] == "sample"
        and not node["is_observed"]
        and not isinstance(node["fn"], _Subsample)
        and not _in_mask_plate(node)
    }


def _in_mask_plate(message: Mapping[str, Any]) -> bool:
    return message["type"] == "sample" and any(
        plate.name == MASK_PLATE for plate in message["cond_indep_stack"]
    )


def _in_plates(message: Mapping[str, Any], names: Collection[str]) -> bool:
    return any(plate.name in names for plate in message["cond_indep_stack"])
