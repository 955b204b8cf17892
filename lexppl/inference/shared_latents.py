"""Latents that all rows share: one value for all rows of a draw, another for the next draw."""

from collections.abc import Callable, Mapping
from typing import Any

import pyro
from pyro.poutine.subsample_messenger import _Subsample
from torch import Tensor

from lexppl.effects import MASK_PLATE, ParticleCounts, weights_first
from lexppl.inference.posterior.draw_index import DrawIndex

Guide = Callable[..., Any]
ROW_DIM = -1


class SharedLatents:
    """Draws of what a guide samples outside `mask_particles()`.

    Such a program is drawn from one draw at a time: each draw has its own value of every latent
    outside the mask plate. Those in no plate over rows (weights, a global Dirichlet) are drawn
    here, once a draw, and given to every chunk of rows; those of a row are drawn with the chunk.

    Args:
        guide: the program's guide, or None.
        needed: whether the program has latents outside the mask plate. Where it has none, the guide
            is not called without y, which it may need.
        args: a few rows, to call the guide with.
        draws: D.
    """

    def __init__(
        self, guide: Guide | None, needed: bool, args: tuple[Any, ...], draws: int
    ) -> None:
        self._guide = guide
        self._traces: list[Any] = []
        if guide is None or not needed:
            return
        for draw in range(draws):
            with DrawIndex(draw, draws):
                trace = _trace(guide, args)
            outside = _outside(trace)
            for name in list(trace.nodes):
                if name not in outside or _of_a_row(trace.nodes[name]):
                    trace.remove_node(name)
            self._traces.append(trace)

    def guides(self, propose_masks: bool) -> list[tuple[Guide | None, int | None]]:
        """The guides to run a chunk of rows with, each with the number of draws it is good for
        (None for all).

        Args:
            propose_masks: whether masks are proposed from the guide, or drawn from the model.
        """
        if not self._traces:
            return [(self._guide if propose_masks else None, None)]
        program = None if self._guide is None else weights_first(self._guide)
        guides: list[tuple[Guide | None, int | None]] = []
        for trace in self._traces:
            guide = pyro.poutine.replay(program, trace=trace)
            if not propose_masks:
                guide = pyro.poutine.block(guide, hide_fn=_in_mask_plate)
            guides.append((guide, 1))
        return guides


def has_latents_outside(model: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Whether a program has latents outside the mask plate.

    Args:
        model: the program.
        args: a few rows, to call it with.
    """
    return bool(_outside(_trace(model, args)))


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


def _of_a_row(message: Mapping[str, Any]) -> bool:
    return any(plate.dim == ROW_DIM for plate in message["cond_indep_stack"])
