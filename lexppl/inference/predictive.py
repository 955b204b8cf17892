"""The one sampler of fitted programs: runs on new rows, chunk by chunk, all particles at once."""

import copy
import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import pyro
import torch
from torch import Tensor, nn

from lexppl.effects import ParticleCounts, weights_first
from lexppl.inference.contexts import keep_parameters_local, program_settings, seeded
from lexppl.inference.objective.program import Draw, ParticleProgram, ParticleTrace
from lexppl.inference.objective.site import Site
from lexppl.inference.shared_latents import SharedLatents, has_latents_outside

LARGEST_TENSOR = 2**24
"""Numbers that a tensor of all particles of a chunk of rows may hold."""

LEAST_WIDTH = 128
"""Numbers that a particle is taken to need at least: a network's hidden layer."""


class FittedProgram:
    """A fitted model and its guide, to be run on new rows without gradients.

    A program with latents outside `mask_particles()` is run once a draw of them; those in no plate
    over rows (weights, a global Dirichlet) are drawn here, D times, and are then the same in every
    run of the same draw, whatever its rows. Any other program is run once with D masks.

    Args:
        model: the program.
        guide: its guide, or None. Of the masks it is used only where it shall propose them.
        few: a few rows as arguments of model and guide, to see what they sample.
        draws: D.
        propose_masks: draw masks from the guide, as proposals for `p(z | x, y)`, and not from the
            model.
        outer: whether the program has latents outside the mask plate; looked for if None.
        plates: the names of its plates over rows; looked for if None.
        from_prior: draw what is outside the mask plate from its prior, and not from the guide.

    Example:
        >>> from lexppl.systems import lex
        >>> model = lex(3, classes=2, k=1, hidden=(4,), predictor_hidden=(4,)).program()
        >>> x = torch.zeros(5, 3)
        >>> with drawing(seed=0):
        ...     ((run, masks),) = FittedProgram(model, None, (x[:1],), draws=7).runs((x,))
        >>> masks, run.sites["mask"].value.shape
        (7, torch.Size([7, 5, 3]))
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
        """The same program with the same draws of what rows share, whose masks are proposed from
        the guide."""
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
        """Run the program on rows.

        Yields:
            a run, and how many of the D draws it is to give.
        """
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
    """Numbers of the largest layer of a program's networks, of a row: of images many more than a
    row has.

    Args:
        of_a_particle: of networks that see a row once for each of its particles: predictors.
        of_a_row: of networks that see it once: selectors.
    """

    of_a_particle: int = 0
    of_a_row: int = 0


NARROW = LayerWidths()


def layer_widths(model: Any) -> LayerWidths:
    """What the parts of a program say of themselves by an attribute `numbers_a_row`, those below a
    part that `sees_particles` and the others.

    Example:
        >>> from lexppl.models import images
        >>> from lexppl.systems import lex
        >>> layer_widths(lex(images((1, 8, 8), blocks=(4,), width=2), classes=2, k=1).program())
        LayerWidths(of_a_particle=256, of_a_row=384)
    """
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
    """How many rows to run at once so that all their particles fit.

    Args:
        x: the rows, `(N, *event)`.
        particles: of a row, masks times imputations.
        most: rows at most; as many as fit if None.
        entries: numbers of another site of a particle, where they may be more than a row's.
        layers: of the networks, where they may be wider.

    Example:
        >>> rows_at_once(torch.zeros(10, 3), particles=1000), rows_at_once(torch.zeros(10, 3), 1, 7)
        (131, 7)
    """
    if particles < 1:
        raise ValueError(f"masks and imputations must be at least 1; {particles} particles")
    if most is not None and (not isinstance(most, int) or most < 1):
        raise ValueError(f"rows_per_chunk must be a whole number of at least 1; it is {most!r}")
    width = max(math.prod(x.shape[1:]), entries, LEAST_WIDTH, layers.of_a_particle)
    fitting = max(1, LARGEST_TENSOR // max(particles * width, layers.of_a_row))
    return fitting if most is None else min(most, fitting)


def row_chunks(rows: int, size: int) -> Iterator[slice]:
    """Slices of at most `size` rows.

    Example:
        >>> list(row_chunks(5, 2))
        [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))
