"""The one sampler of fitted programs: runs on new rows, with draws of what rows share."""

import copy
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor, nn

from lexppl.effects import MASK_PLATE, weights_first
from lexppl.inference.contexts import keep_parameters_local, program_settings, seeded
from lexppl.inference.objective.program import Draw, ParticleProgram, ParticleTrace, sample_nodes
from lexppl.inference.objective.site import Site
from lexppl.inference.posterior.global_draws import DrawIndex, SampledGuide
from lexppl.inference.posterior.global_latents import latents_of

Guide = Callable[..., Any]

LARGEST_TENSOR = 2**24  # Numbers that a tensor of all particles of a chunk of rows may hold

LEAST_WIDTH = 128  # Numbers that a particle is taken to need at least: a network's hidden layer


class FittedProgram:
    """A fitted model and its guide, to be run on new rows without gradients.

    A program with latents outside `mask_particles()` is run once for each of their D draws, which
    are the same for all rows; any other once with D masks.

    Args:
        model: the program.
        guide: its guide, or None.
        few: a few rows as arguments of model and guide.
        draws: D.
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
        outer: bool | None = None,
        plates: Collection[str] | None = None,
        from_prior: bool = False,
    ) -> None:
        keep_parameters_local(model, guide)
        if outer is None:
            outer = guide is not None and bool(_outside(model, few))
        self.model, self._draws, self._from_prior = model, draws, from_prior
        self._guide = model if from_prior else guide
        self._shared: list[dict[str, Any]] = []
        self._drawn_with_rows = False
        masks = sampled_masks(self._guide)
        self._masks = [self._guide.masks_of(d, draws) for d in range(draws)] if masks else []
        # A guide may need y, and is not called without it where there is nothing to draw.
        if self._guide is not None and (outer or masks):
            if plates is None:
                with seeded(0, few[0].device):
                    plates = latents_of(model, few).row_plates
            for draw in range(draws):
                with DrawIndex(draw, draws):
                    drawn = _outside(self._guide, few)
                unplated = {name: n for name, n in drawn.items() if not _in_plates(n, plates)}
                self._drawn_with_rows |= len(unplated) < len(drawn)
                self._shared.append(unplated)
        self._guides = self._guides_of(False)

    def _guides_of(self, propose_masks: bool) -> list[Guide | None]:
        """The guides to run rows with: one for all draws, or one a draw of shared latents."""
        if not self._shared:
            return [self._guide if propose_masks else None]
        if self._from_prior or not (propose_masks or self._drawn_with_rows):
            return [partial(_give, nodes) for nodes in self._shared]
        program = None if self._guide is None else weights_first(self._guide)
        guides = []
        for nodes in self._shared:
            trace = pyro.poutine.Trace()
            for name, node in nodes.items():
                trace.add_node(name, **node)
            guide = pyro.poutine.replay(program, trace=trace)
            hidden = pyro.poutine.block(guide, hide_fn=_is_of_masks)
            guides.append(guide if propose_masks else hidden)
        return guides

    def proposing(self) -> Self:
        """The same program and draws of shared latents, with masks proposed from the guide."""
        other = copy.copy(self)
        other._guides = self._guides_of(propose_masks=True)
        return other

    def shared(self, names: Collection[str]) -> dict[str, Tensor]:
        """The draws `(D, *value)` of latents that rows share, by site."""
        return {
            name: torch.stack([nodes[name]["value"].detach() for nodes in self._shared])
            for name in names
        }

    def runs(
        self,
        args: tuple[Any, ...],
        imputations: int = 1,
        *,
        masks: int | None = None,
        draw: Draw | None = None,
    ) -> Iterator[tuple[ParticleTrace, int]]:
        """Runs of the program on rows, and how many of the D draws each is to give; with the masks
        of a sampler, where it has drawn them."""
        count = 1 if self._shared else self._draws
        for number, guide in enumerate(self._guides):
            program = ParticleProgram(self.model, guide, args)
            if self._masks:
                masks, draw = 1, partial(_given, self._masks[number])
            yield program.run(count if masks is None else masks, imputations, draw), count

    def again(self, x: Tensor, latents: Mapping[str, Tensor], masks: int) -> dict[str, Site]:
        """The sites of the program alone, run without y."""
        program = pyro.poutine.condition(weights_first(self.model), data=latents)
        return _sites_of(program, (x, None), masks)

    def guided(self, args: tuple[Any, ...]) -> Iterator[dict[str, Site]]:
        """The sites of the guide: of all draws at once, or of a run a draw."""
        count = 1 if self._shared else max(1, self._draws)
        for guide in self._guides_of(propose_masks=True):
            if guide is None:
                raise ValueError("the program has no guide")
            yield _sites_of(weights_first(guide), args, count)


def sampled_masks(guide: Any) -> tuple[str, ...]:
    """The masks that a sampler has drawn with what rows share."""
    return guide.masks if isinstance(guide, SampledGuide) else ()


def _given(values: Mapping[str, Tensor], site: Site) -> Tensor | None:
    """The value of a mask of one particle, None of another site."""
    value = values.get(site.name)
    return None if value is None else value.reshape(site.distribution.shape())


def sites_of_guide(guide: Guide, args: tuple[Any, ...]) -> tuple[str, ...]:
    """The names of what a guide samples outside the mask plate."""
    return tuple(_outside(guide, args))


def _outside(guide: Guide, args: tuple[Any, ...]) -> dict[str, Any]:
    """The latents of a run that are outside the mask plate."""
    nodes = sample_nodes(weights_first(guide), args)
    return {
        name: node
        for name, node in nodes.items()
        if not (node["is_observed"] or _is_of_masks(node))
    }


def _is_of_masks(message: Mapping[str, Any]) -> bool:
    return message["type"] == "sample" and _in_plates(message, [MASK_PLATE])


def _in_plates(message: Mapping[str, Any], names: Collection[str]) -> bool:
    return any(plate.name in names for plate in message["cond_indep_stack"])


def _give(nodes: Mapping[str, Any], *_: Any, **__: Any) -> None:
    """A guide of the values that a guide's run gives a model, and of nothing else."""
    for name, node in nodes.items():
        if not (node["infer"] or {}).get("is_auxiliary", False):
            value = node["value"]
            pyro.sample(name, dist.Delta(value, event_dim=value.dim()))


def _sites_of(program: Any, args: tuple[Any, ...], masks: int) -> dict[str, Site]:
    return {name: Site.of(node) for name, node in sample_nodes(program, args, masks).items()}


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
