"""The one sampler of fitted programs: runs on new rows, with draws of what rows share."""

import copy
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import pyro
import pyro.distributions as dist
import torch
from pyro.poutine.subsample_messenger import _Subsample
from torch import Tensor, nn

from lexppl.effects import MASK_PLATE, ParticleCounts
from lexppl.inference.contexts import keep_parameters_local, program_settings, seeded
from lexppl.inference.objective.program import Draw, ParticleProgram, ParticleTrace
from lexppl.inference.objective.site import Site
from lexppl.inference.posterior.global_draws import DrawIndex
from lexppl.inference.posterior.global_latents import latents_of
from lexppl.weights_drawn_first import weights_first

Guide = Callable[..., Any]


class SharedLatents:
    """D draws of what a guide samples outside `mask_particles()`.

    Latents in no plate over rows are drawn here, once a draw, for every chunk of rows; those of a
    row are drawn with the chunk. `needed`: whether there are any, as the guide is called without y.
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
        """The guides to run rows with, each with the number of draws it serves (None: all)."""
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


LARGEST_TENSOR = 2**24
"""Numbers that a tensor of all particles of a chunk of rows may hold."""

LEAST_WIDTH = 128
"""Numbers that a particle is taken to need at least: a network's hidden layer."""


class FittedProgram:
    """A fitted model and its guide, to be run on new rows without gradients.

    A program with latents outside `mask_particles()` is run once for each of their D draws, which
    are the same for all rows; any other once with D masks.

    Args:
        model: the program.
        guide: its guide, or None.
        few: a few rows as arguments of model and guide.
        draws: D.
        propose_masks: draw masks from the guide, as proposals for `p(z | x, y)`.
        outer: whether latents stand outside the mask plate; None to look.
        plates: names of the plates over rows; None to look.
        from_prior: draw what is outside the mask plate from its prior.
    """

    def __init__(
        self,
        model: Any,
        guide: Any,
        few: tuple[Any, ...],
        draws: int,
        *,
        propose_masks: bool = False,
        outer: bool | None = None,
        plates: Collection[str] | None = None,
        from_prior: bool = False,
    ) -> None:
        for module in (model, guide):
            if isinstance(module, nn.Module):
                keep_parameters_local(module)
        if outer is None:
            outer = guide is not None and has_latents_outside(model, few)
        self.model, self._draws = model, draws
        self._shared = SharedLatents(model, guide, outer, few, draws, plates, from_prior=from_prior)
        self._guides = self._shared.guides(propose_masks)

    def proposing(self) -> Self:
        """The same program and draws of shared latents, with masks proposed from the guide."""
        other = copy.copy(self)
        other._guides = self._shared.guides(propose_masks=True)
        return other

    def shared(self, names: Collection[str]) -> dict[str, Tensor]:
        """The draws `(D, *value)` of latents that rows share, by site."""
        return self._shared.values(names)

    def runs(
        self,
        args: tuple[Any, ...],
        imputations: int = 1,
        *,
        masks: int | None = None,
        draw: Draw | None = None,
    ) -> Iterator[tuple[ParticleTrace, int]]:
        """Runs of the program on rows, and how many of the D draws each is to give."""
        for guide, good_for in self._guides:
            count = self._draws if good_for is None else good_for
            program = ParticleProgram(self.model, guide, args)
            yield program.run(count if masks is None else masks, imputations, draw), count

    def again(self, x: Tensor, latents: Mapping[str, Tensor], masks: int) -> dict[str, Site]:
        """The sites of the program alone, run without y."""
        program = pyro.poutine.condition(weights_first(self.model), data=latents)
        return _sites_of(program, (x, None), masks)

    def guided(self, args: tuple[Any, ...]) -> Iterator[dict[str, Site]]:
        """The sites of the guide: of all draws at once, or of a run a draw."""
        for guide, good_for in self._shared.guides(propose_masks=True):
            if guide is None:
                raise ValueError("the program has no guide")
            count = max(1, self._draws) if good_for is None else good_for
            yield _sites_of(weights_first(guide), args, count)


def _sites_of(program: Any, args: tuple[Any, ...], masks: int) -> dict[str, Site]:
    with ParticleCounts(masks, 1):
        nodes = pyro.poutine.trace(program).get_trace(*args).nodes
    return {name: Site.of(node) for name, node in nodes.items() if node["type"] == "sample"}


@contextmanager
def drawing(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Draw from fitted programs: from a seed, without gradients and argument checks."""
    with seeded(seed, device), program_settings(validate=False), torch.no_grad():
        yield


@dataclass(frozen=True)
class LayerWidths:
    """Numbers of the largest layer of predictors, which run once a particle, and of selectors."""

    of_a_particle: int = 0
    of_a_row: int = 0


NARROW = LayerWidths()


def layer_widths(model: Any) -> LayerWidths:
    """The largest `numbers_a_row` of parts below one that `sees_particles`, and of the others."""
    if not isinstance(model, nn.Module):
        return LayerWidths()
    seeing = [part for part in model.modules() if getattr(part, "sees_particles", False)]
    below = {id(part) for whole in seeing for part in whole.modules()}
    wide: dict[int, int] = {id(p): getattr(p, "numbers_a_row", 0) for p in model.modules()}
    return LayerWidths(
        max((count for key, count in wide.items() if key in below), default=0),
        max((count for key, count in wide.items() if key not in below), default=0),
    )


def rows_at_once(
    x: Tensor,
    particles: int,
    most: int | None = None,
    entries: int = 0,
    layers: LayerWidths = NARROW,
) -> int:
    """How many rows x `(N, *event)` to run at once so that all their particles fit."""
    if particles < 1:
        raise ValueError(f"masks and imputations must be at least 1; {particles} particles")
    if most is not None and (not isinstance(most, int) or most < 1):
        raise ValueError(f"rows_per_chunk must be a whole number of at least 1; it is {most!r}")
    width = max(math.prod(x.shape[1:]), entries, LEAST_WIDTH, layers.of_a_particle)
    fitting = max(1, LARGEST_TENSOR // max(particles * width, layers.of_a_row))
    return fitting if most is None else min(most, fitting)


def row_chunks(rows: int, size: int) -> Iterator[slice]:
    """Slices of at most `size` rows."""
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))
