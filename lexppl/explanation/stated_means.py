"""E[z | x] of rows without draws, as the masks' distribution states it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lexppl.explanation.program_sites import ProgramSites
from lexppl.inference.objective.program import row_marginals
from lexppl.inference.objective.site import Site
from lexppl.inference.predictive import FittedProgram

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
    if sites.has_outer_latents:
        return "the program has latents outside mask_particles(), over which masks are averaged"
    if unstated:
        return f"the distribution of the masks {unstated} states no mean of selections"
    return None


@dataclass
class StatedMeans:
    """E[z | x] `(B, G)` by site of one fitted model's rows: by the handlers, or by its class's
    `mask_distribution` alone, once both have had the same bits."""

    names: Sequence[str]
    agree: bool | None = None

    def __call__(self, program: FittedProgram, args: tuple[Any, ...]) -> dict[str, Tensor]:
        # At each call: a hook may have been set since.
        law = mask_law(program.model) if len(self.names) == 1 else None
        if law is not None and self.agree:
            return {self.names[0]: law(args[0]).mean}
        means = stated_means(program, args, self.names)
        if self.agree is None:
            self.agree = law is not None and torch.equal(law(args[0]).mean, means[self.names[0]])
        return means


def mask_law(model: Any) -> Callable[[Tensor], Any] | None:
    """The `mask_distribution` of the class whose `forward` a program runs; None where hooks or
    other code may change what is drawn."""
    owner = next((kind for kind in type(model).__mro__ if "forward" in vars(kind)), object)
    if "mask_distribution" not in vars(owner) or "forward" in vars(model):
        return None
    own_draws = getattr(type(model), "_sample_masks", None) is not vars(owner).get("_sample_masks")
    if own_draws or model._forward_hooks or model._forward_pre_hooks:
        return None
    law: Callable[[Tensor], Any] = model.mask_distribution
    return law


def stated_means(
    program: FittedProgram, args: tuple[Any, ...], names: Sequence[str]
) -> dict[str, Tensor]:
    """E[z | x] `(B, G)` by site, from a run that ends at the last mask, before any imputation."""
    found: dict[str, Tensor] = {}

    def see(site: Site) -> None:
        if site.name not in names:
            return
        mean: Tensor = site.distribution.mean
        if mean.dim() == 3 and not bool((mean == mean[:1]).all()):
            raise ValueError(
                f"draws=0 takes E[z | x] from the distribution of {site.name!r}, which depends on "
                "another latent: give draws, over which it is averaged"
            )
        found[site.name] = row_marginals(site)
        if len(found) == len(names):
            raise _AllSeen

    try:
        for _ in program.runs(args, masks=PARTICLES, draw=see):
            pass
    except _AllSeen:
        return found
    raise ValueError(f"the program drew no mask {sorted(set(names) - set(found))} of its own")
