"""Masks of rows given x, or weighed given x and y: how many, of how many rows at once."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lexppl.argument_checks import int_at_least
from lexppl.explanation.names import FEATURE, NamedRows
from lexppl.explanation.program_sites import MaskSite, ProgramSites
from lexppl.explanation.reading.masks import GIVEN_X, GIVEN_XY, GUIDE, PRIOR
from lexppl.explanation.row_draws import RowDraws, draws_given_x, posterior_draws, together
from lexppl.inference.mask_plates import MaskList, MaskTree
from lexppl.inference.objective.program import of_first_particle
from lexppl.inference.objective.site import Site
from lexppl.inference.predictive import FittedProgram, row_chunks, rows_at_once, sampled_masks
from lexppl.inference.training.result import FitResult

# Masks of a run: a distribution that another latent of the particle moves differs between them.
PARTICLES = 2


class _AllSeen(Exception):  # noqa: N818 - ends a run, and is no error
    """Every mask site was reached."""


def needs_draws(sites: ProgramSites, y: Tensor | None) -> str | None:
    """Why masks must be drawn to be explained; None where their distribution states the means."""
    every = (*sites.masks, *sites.guided)
    unstated = [s.name for s in every if not s.states_mean or s.kind is None]
    if y is not None:
        return "masks given y are draws"
    if sites.beside:
        return f"{sorted(sites.beside)} are observed without y, by which masks are weighed"
    if sites.has_outer_latents:
        return "the program has latents outside mask_particles(), over which masks are averaged"
    if unstated:
        return f"the distribution of the masks {unstated} states no mean of selections"
    return None


def mask_law(model: Any) -> Callable[[Tensor], Any] | None:
    """The `mask_distribution` of the class whose `forward` a program runs; None where hooks or
    other code may change what is drawn."""
    owner = next((kind for kind in type(model).__mro__ if "forward" in vars(kind)), object)
    if "mask_distribution" not in vars(owner) or "forward" in vars(model):
        return None
    own_draws = getattr(type(model), "_sample_masks", None) is not vars(owner).get("_sample_masks")
    if own_draws or model._forward_hooks or model._forward_pre_hooks:
        return None
    return model.mask_distribution


def mask_means(
    program: FittedProgram, x: Tensor, masks: Sequence[MaskSite], agree: dict[int, bool], chain: int
) -> dict[str, Tensor]:
    """E[z | x] `(B, G)` by site: by the handlers, or by the `mask_distribution` of the program's
    class alone, once both have had the same bits, as `agree` has it by chain."""
    # At each call: a hook may have been set since.
    law = mask_law(program.model) if len(masks) == 1 else None
    if law is not None and agree.get(chain):
        return {masks[0].name: law(x).mean}
    means = stated_means(program, (x, None), masks)
    if chain not in agree:
        agree[chain] = law is not None and torch.equal(law(x).mean, means[masks[0].name])
    return means


def stated_means(
    program: FittedProgram, args: tuple[Any, ...], described: Sequence[MaskSite]
) -> dict[str, Tensor]:
    """E[z | x] `(B, G)` by site, from a run that ends at the last mask, before any imputation."""
    masks = {mask.name: mask for mask in described}
    means: dict[str, Tensor] = {}

    def see(site: Site) -> None:
        if site.name not in masks:
            return
        mean = masks[site.name].by_entry(site.distribution.mean)
        if mean.dim() == 3 and not bool((mean == mean[:1]).all()):
            raise ValueError(
                f"draws=0 takes E[z | x] from the distribution of {site.name!r}, which depends on "
                "another latent: give draws, over which it is averaged"
            )
        means[site.name] = of_first_particle(mean)
        if len(means) == len(masks):
            raise _AllSeen

    try:
        for _ in program.runs(args, masks=PARTICLES, draw=see):
            pass
    except _AllSeen:
        return means
    raise ValueError(f"the program drew no mask {sorted(masks.keys() - means.keys())} of its own")


BLOCK = 1000  # Rows of a longer table that are drawn from one seed: their number says which
# Masks proposed for a draw, where all draws share theirs, and where each has its own; masks that
# rows share, listed or proposed, for each draw of the other latents.
OF_A_POOL, OF_ITS_OWN, SHARED = 4, 100, 4096
USUAL_DRAWS, LEAST_DRAWS = 100, 10
# What the masks of a group take at most, where no number of draws is given, or they are fewest.
MOST_BYTES = 2**29


def usual_draws(sites: ProgramSites, rows: int) -> int:
    """Draws of each row where no number is given: 100, or as many as fit, and 10 at least."""
    bytes_of_draw = rows * sum(site.entries * site.dtype.itemsize for site in sites.masks)
    return min(USUAL_DRAWS, max(LEAST_DRAWS, MOST_BYTES // max(1, bytes_of_draw)))


@dataclass(frozen=True)
class ExplainOptions:
    """How rows are explained: the arguments of :func:`lexppl.explain` but the rows."""

    guide: Any = None
    samples: Mapping[str, Any] | None = None
    draws: int | None = None
    imputations: int = 1
    seed: int = 0
    rows_per_chunk: int = 1000
    entry_names: Sequence[str] | None = None
    proposals: float | None = None
    held_out: bool = False
    dims: Mapping[str, Sequence[str]] | None = None
    coords: Mapping[str, Sequence[Any]] | None = None
    from_prior: bool = False  # Of latents that rows share

    def names_along(self, dim: str, otherwise: Any = None) -> Any:
        """The names that `coords` has of a dimension's entries."""
        return (self.coords or {}).get(dim, otherwise)

    def check(self) -> None:
        """Refuse counts below 1, and entries that two arguments name."""
        if self.entry_names is not None and FEATURE in (self.coords or {}):
            raise ValueError(f"entry_names and coords[{FEATURE!r}] name the same; give one")
        int_at_least("imputations", self.imputations)
        int_at_least("rows_per_chunk", self.rows_per_chunk)
        if self.draws is not None:
            int_at_least("draws", self.draws, 0)
        if self.proposals is not None and not is_listed(self.proposals):
            int_at_least("proposals", self.proposals)
        int_at_least("seed", self.seed, 0)


@dataclass(frozen=True)
class MaskSampler:
    """Draws of the masks and the responses of rows, D of each row and chain.

    `tree` has the plates of masks that are weighed, by y or by what is observed without it, and
    `listed` all masks, None for proposals. Rows that are part of a longer table begin there with
    `block`, a number of blocks. `agree` is that of :func:`mask_means`.
    """

    result: FitResult
    rows: NamedRows
    options: ExplainOptions
    sites: ProgramSites
    draws: int
    agree: dict[int, bool]
    tree: MaskTree | None
    listed: MaskList | None
    block: int | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        """What is drawn, of each chain."""
        sites, from_prior = self.sites, self.options.from_prior
        drawn = {
            GIVEN_X: True,
            GIVEN_XY: self.rows.y is not None,
            PRIOR: sites.has_prior
            and not from_prior
            and (not sites.beside if self.are_sampled else sites.has_outer_latents),
            GUIDE: bool(sites.guided),
        }
        return tuple(source for source, is_drawn in drawn.items() if is_drawn)

    @property
    def is_joint(self) -> bool:
        """Whether masks of several rows are weighed together, given y."""
        return self.tree is not None and not self.tree.is_of_rows

    @property
    def are_sampled(self) -> bool:
        """Whether the masks are draws of a sampler, as what else rows share."""
        return not self.options.from_prior and bool(sampled_masks(self.result.guides[0]))

    def are_weighed(self, source: str) -> bool:
        """Whether masks are weighed, and not drawn from their law."""
        if self.are_sampled and source == GIVEN_X:
            return False
        return source == GIVEN_XY or (source != GUIDE and bool(self.sites.beside))

    @property
    def masks(self) -> int:
        """L, the masks that are weighed, for each draw of latents outside the mask plate."""
        if self.are_sampled:
            return 1
        if self.listed is not None:
            return len(self.listed)
        by_draw = self.sites.has_outer_latents
        if self.options.proposals is None and self.is_joint:
            return SHARED
        if self.options.proposals is None:
            return OF_ITS_OWN if by_draw else OF_A_POOL * self.draws
        return int(self.options.proposals) * (1 if by_draw else self.draws)

    def rows_at_once(self, are_weighed: bool) -> int:
        """Number of rows of a chunk, B."""
        rows, sites = self.rows, self.sites
        if sites.are_together or (are_weighed and self.is_joint):
            return len(rows)
        draws = 1 if sites.has_outer_latents else self.draws
        masks = self.masks if are_weighed else draws
        particles = max(1, masks * self.options.imputations, draws)
        most = self.options.rows_per_chunk
        return rows_at_once(rows.x, particles, most, sites.widest, sites.layers)

    def chunks(self, source: str) -> Iterator[tuple[int, slice]]:
        """Rows that are drawn at once, with the number in the table of a block that begins there,
        or 0: each but the first is drawn from a seed of its own."""
        size, of_block = self.rows_at_once(self.are_weighed(source)), BLOCK
        number = self.block
        if number is None:
            number, of_block = 0, len(self.rows)
        for block in row_chunks(len(self.rows), of_block):
            for start in range(block.start, block.stop, size):
                rows = slice(start, min(start + size, block.stop))
                yield number if start == block.start else 0, rows
            number += 1

    def drawn(self, chain: int, program: FittedProgram, chunk: slice, source: str) -> RowDraws:
        """Draws of a chunk of rows, of one of `sources`."""
        x, y = self.rows.arguments(chunk)
        sites, imputations = self.sites.masks, self.options.imputations
        if self.are_weighed(source):
            return self._weighed(program, (x, y if source == GIVEN_XY else None))
        if source == GUIDE:
            runs_of_guide = program.guided((x, None))
            of_guide = partial(draws_given_x, described=self.sites.guided, most=self.draws)
            return together([of_guide(run) for run in runs_of_guide])
        if self.draws == 0:
            means = mask_means(program, x, sites, self.agree, chain)
            masks = {name: mean.new_zeros(0, *mean.shape) for name, mean in means.items()}
            return RowDraws(masks, means)
        runs = program.runs((x, None), imputations)
        drawn = together([draws_given_x(run.sites, sites, imputations) for run, _ in runs])
        if self.are_sampled and source == GIVEN_X:
            means = {name: mask.mean(0, dtype=torch.float64) for name, mask in drawn.masks.items()}
            drawn = replace(drawn, means=means)
        return drawn

    def _weighed(self, program: FittedProgram, args: tuple[Tensor, Tensor | None]) -> RowDraws:
        if self.tree is None:
            raise ValueError("masks that are weighed need a tree")
        if self.listed is None and args[1] is not None and not self.are_sampled:
            program = program.proposing()
        give = None if self.listed is None else self.listed.give
        again, imputations = partial(program.again, args[0]), self.options.imputations
        beside = () if args[1] is None else self.sites.beside
        weighed = (self.tree, self.listed, self.sites.masks, self.masks, imputations)
        runs = program.runs(args, imputations, masks=self.masks, draw=give)
        drawn = together([posterior_draws(run, *weighed, n, again, beside) for run, n in runs])
        if args[1] is None:
            drawn = replace(drawn, log_evidence=None)
        # Beside y stands how far to trust its own weights; draws of a sampler have none.
        if self.are_sampled or (args[1] is None and self.rows.y is not None):
            drawn = replace(drawn, weight_ess=None, weight_pareto_k=None)
        return drawn


def is_listed(proposals: float | None) -> bool:
    """Whether all masks are to be listed."""
    return proposals is not None and math.isinf(proposals)
