"""Masks of all rows, of groups and of rows, all listed, and their weights given y.

p(y) = Σ_s p(s) Π_j Σ_z p(z_j = z | s) Π_{n in j} Σ_u p(u_n = u | s, z) p(y_n | s, z, u).
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pyro.distributions.util import scale_and_mask
from torch import Tensor

from lexppl.distributions import uniform_masks
from lexppl.effects import LABEL_PLATE, MASK_DIM
from lexppl.inference.batches import Columns
from lexppl.inference.objective.listed_latents import (
    ListedLatents,
    draw_log_prob,
    is_point,
    support_of,
)
from lexppl.inference.objective.program import Draw, ParticleTrace
from lexppl.inference.objective.site import Site

PAIRS = 32  # Pairs of masks that are exchanged to see on which group's a row depends
SAME = 1e-3  # Of a change, what rounding may make of it

Again = Callable[[int, Draw], ParticleTrace]  # Another run with so many masks, and these values


def plate_of(site: Site) -> str | None:
    """The plate at dim −1 that a site is in; None for one of all rows."""
    names = [plate.name for plate in site.plates if plate.vectorized and plate.dim == -1]
    return names[0] if names else None


def is_random(site: Site) -> bool:
    """Whether a site is drawn, and no function of others."""
    return not (site.observed or site.is_deterministic or is_point(site.distribution))


def entry_log_prob(site: Site, listed: bool = False) -> Tensor:
    """log p of each entry of the plate at dim −1, `(…, K or 1, M or 1, E or 1)`; of a listed latent
    also where it is masked."""
    if listed:
        value = draw_log_prob(site)
    else:
        value = scale_and_mask(site.distribution.log_prob(site.value), 1.0, site.mask)
    dims = [p.dim for p in site.inner if p.vectorized and p.dim != -1 and value.dim() >= -p.dim]
    value = value.sum(dims, keepdim=True) if dims else value
    while value.dim() > 3 and len(value) == 1:
        value = value[0]
    return value.reshape((1,) * (3 - value.dim()) + tuple(value.shape))


@dataclass(frozen=True)
class MaskTree:
    """The plates of a program's masks and of what it observes, from all rows to a row.

    `plates`: names, first None for all rows; it is the only one where the tree does not hold, and
    masks have one weight together. `above`: for each further plate the entry above, `(E,)`.
    `levels`: the place in `plates` of each mask site.
    """

    plates: tuple[str | None, ...]
    above: Columns
    levels: Mapping[str, int]

    @classmethod
    def of(cls, run: ParticleTrace, again: Again, masks: Sequence[str] = ()) -> "MaskTree":
        """The tree of a program's random latents in the mask plate."""
        others = [site.name for site in run.mask_sites if is_random(site)]
        masks = list(dict.fromkeys([*masks, *others]))
        own = {plate_of(run.sites[name]) for name in masks}
        observed = {plate_of(site) for site, _ in run.weighted if site.observed}
        imputed = {plate_of(s) for s in run.drawn if s.in_imputations and is_random(s)}
        rows, groups = observed - {None}, own - observed - {None}
        one_each = len(rows) <= 1 and len(groups) <= 1
        coupled = (None in observed and own != {None}) or not imputed <= rows
        if not one_each or coupled:
            return cls((None,), (), dict.fromkeys(masks, 0))
        plates = (None, *groups, *rows)
        levels = {name: plates.index(plate_of(run.sites[name])) for name in masks}
        sizes = {p.name: p.size for s in run.sites.values() for p in s.plates}
        device = run.arguments[0].device
        above = [torch.zeros(sizes[str(p)], dtype=torch.long, device=device) for p in plates[1:2]]
        if len(plates) == 3:
            of_groups = [name for name, level in levels.items() if level == 1]
            above.append(_groups_of_rows(run, again, of_groups, plates[2], sizes[str(plates[1])]))
        return cls(plates, tuple(above), levels)

    def above_of(self, level: int, run: ParticleTrace) -> Tensor:
        if level and not self.is_of_rows:
            return self.above[level - 1]
        rows = run.arguments[0]
        return torch.zeros(len(rows) if level else 1, dtype=torch.long, device=rows.device)

    def of_one_weight(self) -> "MaskTree":
        return MaskTree((None,), (), dict.fromkeys(self.levels, 0))

    @property
    def is_of_rows(self) -> bool:
        """Whether every mask is one of a row."""
        return len(self.plates) == 2 and set(self.levels.values()) == {1}

    def log_weights(
        self,
        run: ParticleTrace,
        counts: Sequence[int],
        imputations: int = 1,
        priors: Collection[str] = (),
    ) -> list[Tensor]:
        """By plate the log-weights of its masks given those above, lower plates summed out,
        `(C_0, …, C_i, E_i)`; the C of the last plate are pairs of a mask and an imputation."""
        last = len(self.plates) - 1
        terms: list[Any] = [0.0] * (last + 1)
        for site, sign in [*run.weighted, *((run.sites[name], 1.0) for name in priors)]:
            value = sign * entry_log_prob(site, site.name in priors)
            if value.dim() > 3 and not (self.is_of_rows and LABEL_PLATE in site.plate_names):
                raise ValueError(
                    f"site {site.name!r} has plates of its own outside mask_particles(), "
                    f"{[n for n, _ in site.outer]}, and no masks there: enter them inside it. "
                    "Where rows share masks y must hold labels, and no probabilities of them"
                )
            level = self.plates.index(plate_of(site)) if last else 0
            summed = value if level or value.shape[-1] == 1 else value.sum(-1, keepdim=True)
            terms[level] = terms[level] + summed
        found: list[Tensor] = []
        below: Tensor | float = 0.0
        for level in range(last, -1, -1):
            above = self.above_of(level, run)
            own = torch.as_tensor(terms[level], device=above.device)
            own = own.expand(*own.shape[:-3], imputations, math.prod(counts), len(above))
            own = _over_labels(own, run.arguments[1]) if own.dim() > 3 else own
            own = own.reshape(imputations, *counts, len(above))
            if level == last:
                own = own.movedim(0, -2).flatten(-3, -2) - math.log(imputations)
            else:
                every: tuple[Any, ...] = (slice(None),) * (level + 1)
                own = own[(0, *every, *[0] * (last - level))]
            found.insert(0, own + below)
            if level:
                up = torch.logsumexp(found[0], -2)
                entries = len(self.above_of(level - 1, run))
                below = up.new_zeros(*up.shape[:-1], entries).index_add(-1, above, up)
        return found


def _over_labels(log_weight: Tensor, probabilities: Tensor) -> Tensor:
    """From weights given each label `(C, K, M, B)` those whose normalised values are the average
    Σ_c p(c) of the labels' and whose sum is the geometric one."""
    evidence = torch.logsumexp(log_weight, (-3, -2), keepdim=True)
    even = 1.0 / math.prod(log_weight.shape[-3:-1])
    share = torch.where(evidence.isneginf(), even, (log_weight - evidence).exp())
    weight = probabilities.T[:, None, None]
    return (weight * share).sum(0).log() + torch.where(weight > 0, weight * evidence, 0.0).sum(0)


def _groups_of_rows(
    run: ParticleTrace, again: Again, masks: Sequence[str], rows: str | None, groups: int
) -> Tensor:
    """For each row the group whose mask its likelihood depends on, `(B,)`, by masks that differ
    between groups in one binary digit of their number at a time."""
    digits = max(1, (groups - 1).bit_length())
    number = torch.arange(groups)
    second = torch.zeros(2 + digits, groups, dtype=torch.bool)
    second[1] = True
    second[2:] = (number >> torch.arange(digits)[:, None]) % 2 == 1

    def draw(site: Site) -> Tensor | None:
        if not site.in_particles:
            return None
        event = len(site.distribution.event_shape)
        if site.name not in masks:
            # The same in all particles of this run.
            value = site.distribution.sample()
            first = value.select(MASK_DIM - event, 0).unsqueeze(MASK_DIM - event)
            return first.expand_as(value)
        try:
            pair = uniform_masks(site.distribution).sample((2,))
        except TypeError:
            pair = site.distribution.sample((2,))
        one, other = (each[:: 2 + digits, :1].repeat_interleave(2 + digits, 0) for each in pair)
        chosen = second.repeat(PAIRS, 1).unsqueeze(-1).to(one.device)
        return torch.where(chosen, other, one)

    changed = again(PAIRS * (2 + digits), draw)
    values = [entry_log_prob(s) for s, _ in changed.weighted if plate_of(s) == rows]
    value = sum(values[1:], values[0]).mean(tuple(range(values[0].dim() - 2)))
    value = value.double().unflatten(0, (PAIRS, 2 + digits))
    first, other, mixed = value[:, :1], value[:, 1:2], value[:, 2:]
    change = (other - first).abs().sum((0, 1))
    nearer = ((mixed - first).abs() - (mixed - other).abs()).sum(0)
    if bool((nearer.abs() < (1 - SAME) * change - 1e-9).any()):
        raise ValueError(
            f"some rows depend on the masks {list(masks)} of several groups, which have no "
            "posterior group by group: give each row one group, such as mask[..., group, :] with "
            "the numbers of groups in a column of x"
        )
    power = 2 ** torch.arange(digits, device=nearer.device)
    return ((nearer > 0).long() * power[:, None]).sum(0)


class MaskList(ListedLatents):
    """Every joint value of a program's discrete latents, those of the last plate side by side."""

    def __init__(self, run: ParticleTrace, tree: MaskTree, most: int, exact: bool = True) -> None:
        others = [
            site.name
            for site in run.drawn
            if is_random(site)
            and site.name not in tree.levels
            and (exact or not site.in_imputations)
        ]
        if others:
            raise ValueError(
                f"{others} are random given the masks {list(tree.levels)}: p(y | x, z) would be "
                "approximated by K imputations, and not exact; impute by a function of the mask, "
                "such as ConstantImputer()"
            )
        sites = [run.sites[name] for name in tree.levels if is_random(run.sites[name])]
        sites.sort(key=lambda site: tree.levels[site.name])
        if not sites:
            raise ValueError(f"the masks {list(tree.levels)} are not random")
        # Without a tree every entry has a mask beside those of the others.
        super().__init__(
            run, sites, most=most, instead="draw them", apart={-1} if tree.above else ()
        )
        by_level = [1] * len(tree.plates)
        for site in sites:
            shape = site.distribution.batch_shape
            entries = math.prod(shape[:-1] if tree.above else shape)
            by_level[tree.levels[site.name]] *= len(support_of(site, most)) ** entries
        self.counts = tuple(by_level)

    def log_prior(self, run: ParticleTrace) -> Tensor:
        """log p(z) of the masks of a run of all of them, `(M, E)`, where all are of one plate."""
        priors = [entry_log_prob(run.sites[name], True)[0] for name in self.names]
        return torch.stack(torch.broadcast_tensors(*priors)).sum(0)
