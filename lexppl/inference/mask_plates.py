"""Masks of all rows, of groups and of rows, all listed, and their weights given y.

p(y) = Σ_s p(s) Π_j Σ_z p(z_j = z | s) Π_{n in j} Σ_u p(u_n = u | s, z) p(y_n | s, z, u).
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from pyro.distributions.util import scale_and_mask
from torch import Tensor

from lexppl.effects import LABEL_PLATE, MASK_DIM
from lexppl.inference.batches import Columns
from lexppl.inference.contexts import seeded
from lexppl.inference.objective.dependence import evenly
from lexppl.inference.objective.listed_latents import (
    MOST_JOINT,
    ListedLatents,
    draw_log_prob,
    is_point,
    refuse_missing,
    refuse_outside,
    support_of,
)
from lexppl.inference.objective.program import Draw, ParticleTrace
from lexppl.inference.objective.site import Site

MOST_CHECKED = 4_096  # Joint values with which a tree is checked, and all that are listed for it
MOST_DRAWN = 512  # Joint values that are drawn, where there are more
FEW_VALUES, FEW_SHIFTS = 5, 2  # Values of each latent, and shifts of them, where values are drawn

Again = Callable[[int, Draw], ParticleTrace]  # Another run with so many masks, and these values
Index = list[Tensor]  # By plate the place of a value in the list of each entry, `(M, E or 1)`


def plate_of(site: Site) -> str | None:
    """The plate at dim −1 that a site is in; None for one of all rows."""
    names = [plate.name for plate in site.plates if plate.vectorized and plate.dim == -1]
    return names[0] if names else None


def is_random(site: Site) -> bool:
    """Whether a site is drawn, and no function of others."""
    return not (site.observed or site.is_deterministic or is_point(site.distribution))


def refuse_scaled(sites: Iterable[Site]) -> None:
    """Refuse a density with a scale, which stands before the log in the bound."""
    for site in sites:
        if not bool((torch.as_tensor(site.scale) == 1.0).all()):
            raise ValueError(
                f"scaled site {site.name!r} has no posterior: leave poutine.scale, and plates of a "
                "part of the rows, out; a power s is pyro.factor(name, (s - 1) * log_prob)"
            )


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
    rows_apart: bool = False  # Whether the last plate has an entry for each row

    @classmethod
    def of(cls, run: ParticleTrace, again: Again, masks: Sequence[str] = ()) -> "MaskTree":
        """The tree of a program's random latents in the mask plate: masks of groups and rows have
        weights of their own where :func:`_confirmed` shows that no term depends on those of other
        entries; else all groups' are summed as one, or all together."""
        others = [s.name for s in run.mask_sites if is_random(s) and s.name not in run.unobserved]
        masks = list(dict.fromkeys([*masks, *others]))
        plates = {name: plate_of(run.sites[name]) for name in masks}
        observed = {plate_of(site) for site, _ in run.weighted if site.observed}
        imputed = {plate_of(s) for s in run.drawn if s.in_imputations and is_random(s)}
        rows = observed - {None}
        events = [name for name in masks if run.sites[name].distribution.event_shape]
        groups = {plates[name] for name in events} - observed - {None}
        trees = [(None, *rows)] if len(rows) <= 1 and imputed <= rows else []
        if trees and rows and len(groups) == 1:
            trees.insert(0, (None, *groups, *rows))
        for names in [*trees, (None,)]:
            levels = {n: names.index(p) if p in names else 0 for n, p in plates.items()}
            above = _under_all(run, names)
            apart = bool(above) and len(above[-1]) == len(run.arguments[0])
            tree = cls(names, above, levels, apart)
            # The last one, of a single weight, always holds.
            if (confirmed := _confirmed(tree, run, again)) is not None:
                tree = confirmed
                break
        if len(trees) > 1 and len(tree.plates) < 3:
            try:
                MaskList(run, tree, MOST_JOINT)
            except ValueError as error:
                of_groups = [name for name in events if plates[name] in groups]
                raise ValueError(
                    f"some rows depend on the masks {of_groups} of several groups, which have no "
                    "posterior group by group: give each row one group, such as mask[..., group, "
                    f":] with the numbers of groups in a column of x. Jointly, {error}"
                ) from None
        return tree

    def level_of(self, site: Site) -> int:
        """The place in `plates` of a site's plate, or of all rows."""
        plate = plate_of(site)
        return self.plates.index(plate) if plate in self.plates else 0

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
        return self.rows_apart and len(self.plates) == 2 and set(self.levels.values()) == {1}

    def terms(self, run: ParticleTrace, priors: Collection[str] = ()) -> list[Tensor]:
        """By plate the log-densities of what is weighed in its entries, `(…, K, M, E or 1)`, with
        the priors of listed latents."""
        terms: list[Tensor] = [run.arguments[0].new_zeros(1, 1, 1) for _ in self.plates]
        for site, sign in [*run.weighted, *((run.sites[name], 1.0) for name in priors)]:
            value = sign * entry_log_prob(site, site.name in priors)
            if value.dim() > 3 and not (self.is_of_rows and LABEL_PLATE in site.plate_names):
                raise ValueError(
                    f"site {site.name!r} has plates of its own outside mask_particles(), "
                    f"{[n for n, _ in site.outer]}, and no masks there: enter them inside it. "
                    "Where rows share masks y must hold labels, and no probabilities of them"
                )
            level = self.level_of(site)
            summed = value if level or value.shape[-1] == 1 else value.sum(-1, keepdim=True)
            terms[level] = terms[level] + summed
        return terms

    def refuse_missing(self, run: ParticleTrace, listed: "MaskList") -> None:
        """Refuse a list, of which a run is given, with values that cannot be, or whose
        probabilities do not add up to one."""
        for level in sorted({self.levels[name] for name in listed.names}):
            names = [name for name in listed.names if self.levels[name] == level]
            refuse_outside([run.sites[name] for name in names])
            total: Tensor | float = 0.0
            for name in names:
                value = entry_log_prob(run.sites[name], True)[0]
                if value.dim() > 2:
                    self.terms(run, [name])  # Refuses plates of its own
                total = total + (value if level else value.sum(-1, keepdim=True))
            log_p = torch.as_tensor(total).expand(len(listed), -1)
            log_p = log_p.reshape(*listed.counts[: level + 1], -1, log_p.shape[-1])[..., 0, :]
            refuse_missing(log_p.movedim(level, -2), names)

    def log_weights(
        self,
        run: ParticleTrace,
        counts: Sequence[int],
        imputations: int = 1,
        priors: Collection[str] = (),
    ) -> list[Tensor]:
        """By plate the log-weights of its masks given those above, lower plates summed out,
        `(C_0, …, C_i, E_i)`; the C of the last plate are pairs of a mask and an imputation."""
        last, terms = len(self.plates) - 1, self.terms(run, priors)
        weights: list[Tensor] = []
        below: Tensor | float = 0.0
        for level in range(last, -1, -1):
            above = self.above_of(level, run)
            term = torch.as_tensor(terms[level], device=above.device)
            term = term.expand(*term.shape[:-3], imputations, math.prod(counts), len(above))
            term = _over_labels(term, run.arguments[1]) if term.dim() > 3 else term
            term = term.reshape(imputations, *counts, len(above))
            if level == last:
                term = term.movedim(0, -2).flatten(-3, -2) - math.log(imputations)
            else:
                every: tuple[Any, ...] = (slice(None),) * (level + 1)
                term = term[(0, *every, *[0] * (last - level))]
            weights.insert(0, term + below)
            if level:
                up = torch.logsumexp(weights[0], -2)
                entries = len(self.above_of(level - 1, run))
                below = up.new_zeros(*up.shape[:-1], entries).index_add(-1, above, up)
        return weights


def _over_labels(log_weight: Tensor, probabilities: Tensor) -> Tensor:
    """From weights given each label `(C, K, M, B)` those whose normalised values are the average
    Σ_c p(c) of the labels' and whose sum is the geometric one."""
    evidence = torch.logsumexp(log_weight, (-3, -2), keepdim=True)
    even = 1.0 / math.prod(log_weight.shape[-3:-1])
    share = torch.where(evidence.isneginf(), even, (log_weight - evidence).exp())
    weight = probabilities.T[:, None, None]
    return (weight * share).sum(0).log() + torch.where(weight > 0, weight * evidence, 0.0).sum(0)


def _under_all(run: ParticleTrace, plates: Sequence[str | None]) -> Columns:
    """The entry above each of further plates, 0 for all."""
    sizes = {p.name: p.size for s in run.sites.values() for p in s.plates}
    device = run.arguments[0].device
    return tuple(torch.zeros(sizes[str(p)], dtype=torch.long, device=device) for p in plates[1:])


def _confirmed(tree: MaskTree, run: ParticleTrace, again: Again) -> MaskTree | None:
    """The tree with the group of each row, where every term of an entry depends on the latents of
    its entry and of those above alone; else None.

    The terms of a run in which all entries have the same place in their list of values are compared
    with those of runs in which entries with a 1 in a binary digit of their number are shifted by s
    places, for each digit and each s, so that every two entries take every two values; and of a run
    of all joint values, or of 512 drawn ones where there are more than 4,096. −∞ equals −∞.
    """
    below = {level for level in tree.levels.values() if level}
    rows = (tree.plates[-1], 0)
    outside = all(rows in site.outer for site, _ in run.weighted)
    if not below or (tree.is_of_rows and outside):
        return tree
    check = _TreeCheck(tree, run, again)
    if len(tree.plates) == 3:
        tree = check.with_groups()
    return tree if check.holds(tree) else None


class _TreeCheck:
    """Terms of a program by plate, at any values of the latents of each entry."""

    def __init__(self, tree: MaskTree, run: ParticleTrace, again: Again) -> None:
        self.tree, self._again = tree, again
        random = [s for s in run.drawn if is_random(s) and s.name not in run.unobserved]
        self.exact = all(site.name in tree.levels for site in random)
        self._sites = [s for s in random if s.name in tree.levels]
        try:
            listed = MaskList(run, tree, MOST_CHECKED)
            self._values, self.counts = dict(listed.values), list(listed.counts)
            self._steps = [math.prod(self.counts[i + 1 :]) for i in range(len(tree.plates))]
        except ValueError:
            self.exact = False
        if not self.exact:
            # Values that are drawn, or those of few, of each entry by itself.
            with seeded(0, run.arguments[0].device):
                drawn = again(FEW_VALUES, evenly)
            self._values = {s.name: _full(drawn.sites[s.name]) for s in self._sites}
            used = {tree.levels[s.name] for s in self._sites}
            self.counts = [FEW_VALUES if i in used else 1 for i in range(len(tree.plates))]
            self._steps = [1] * len(tree.plates)
        every = torch.arange(math.prod(self.counts), device=run.arguments[0].device)
        self.base = [place.unsqueeze(-1) for place in torch.unravel_index(every, self.counts)]
        terms = self.terms(self.base)
        self._table = [value.reshape(*self.counts, value.shape[-1]) for value in terms]

    def terms(self, index: Index) -> list[Tensor]:
        """By plate the terms at the values of these places, `(M, E)`."""
        values = {}
        for site in self._sites:
            level = self.tree.levels[site.name]
            places = index[level] * self._steps[level]
            values[site.name] = _gathered(self._values[site.name], places, site)

        def run_at(chosen: slice) -> list[Tensor]:
            def draw(site: Site) -> Tensor | None:
                value = values.get(site.name)
                if value is None:
                    return None
                place = value.dim() + MASK_DIM - len(site.distribution.event_shape)
                value = value.movedim(place, 0)[chosen].movedim(0, place)
                return value.expand(*site.distribution.batch_shape, *site.distribution.event_shape)

            run = self._again(len(places[chosen]), draw)
            listed = [s.name for s in self._sites] if self.exact else ()
            terms = self.tree.terms(run, listed)
            above = [self.tree.above_of(level, run) for level in range(len(terms))]
            return [
                value.flatten(0, -3).sum(0).expand(len(places[chosen]), len(entries))
                for value, entries in zip(terms, above, strict=True)
            ]

        # What is drawn beside them has the same random numbers in all runs.
        count = len(index[0])
        runs = []
        for place in range(1 if self.exact else count):
            with seeded(0, index[0].device):
                runs.append(run_at(slice(0, None) if self.exact else slice(place, place + 1)))
        return [torch.cat(values) for values in zip(*runs, strict=True)]

    def shifted(self, digit: int, shift: int, level: int | None = None) -> Index:
        """Places in which entries with a 1 in a binary digit of their number are moved on."""
        places_of_plates = []
        for i, (places, size) in enumerate(zip(self.base, self.counts, strict=True)):
            entries = self._table[i].shape[-1]
            bits = (torch.arange(entries, device=places.device) >> digit) % 2
            moved = i > 0 and level in (None, i)
            places_of_plates.append((places + shift * bits) % size if moved else places)
        return places_of_plates

    @property
    def digits(self) -> int:
        below = [self._table[i].shape[-1] for i in {*self.tree.levels.values()} - {0}]
        return max(1, *((entries - 1).bit_length() for entries in below))

    def with_groups(self) -> MaskTree:
        """The tree in which each row stands below the group whose mask its terms follow."""
        rows = self._table[2]
        group = torch.zeros(rows.shape[-1], dtype=torch.long, device=rows.device)
        every = torch.arange(len(group), device=group.device)
        for digit in range((self._table[1].shape[-1] - 1).bit_length()):
            terms = self.terms(self.shifted(digit, 1, level=1))[2]
            first, second, third = self.base
            moved = rows[first, (second + 1) % self.counts[1], third, every]
            follows = _same(terms, moved).all(0) & ~_same(
                terms, rows[first, second, third, every]
            ).all(0)
            group = group + (follows.long() << digit)
        most = self._table[1].shape[-1] - 1
        return replace(self.tree, above=(self.tree.above[0], group.clamp(max=most)))

    def holds(self, tree: MaskTree) -> bool:
        """Whether no term depends on the latents of other entries."""
        shifts = range(1, max(self.counts[1:]))
        if not self.exact:
            shifts = shifts[:FEW_SHIFTS]
        most_shifts = max(1, MOST_CHECKED * 16 // (len(self.base[0]) * self.digits))
        designs = [self.base]
        designs += [self.shifted(d, s) for s in shifts[:most_shifts] for d in range(self.digits)]
        designs += [self._jointly(tree)]
        return all(self._is_as_known(tree, index) for index in designs)

    def _jointly(self, tree: MaskTree) -> Index:
        """Places of all joint values of all entries, or of drawn ones where there are too many, in
        which any three entries and more take any values together."""
        entries = [1, *(len(above) for above in tree.above)]
        sizes = [n if c > 1 else 1 for c, n in zip(self.counts, entries, strict=True)]
        counts = [c for c, n in zip(self.counts, sizes, strict=True) for _ in range(n)]
        device = self.base[0].device
        if self.exact and math.prod(counts) <= MOST_CHECKED:
            grid = torch.cartesian_prod(*(torch.arange(c, device=device) for c in counts))
            return list(grid.reshape(len(grid), -1).split(sizes, -1))
        number = MOST_DRAWN if self.exact else len(self.base[0])
        with seeded(0, device):
            pairs = zip(self.counts, sizes, strict=True)
            return [torch.randint(c, (number, n), device=device) for c, n in pairs]

    def _is_as_known(self, tree: MaskTree, index: Index) -> bool:
        for level, terms in enumerate(self.terms(index)):
            entry = torch.arange(terms.shape[-1], device=terms.device)
            places: list[Tensor] = []
            at = entry
            for i in range(level, -1, -1):
                place = index[i].expand(len(terms), -1)
                places.insert(0, place[:, at if place.shape[-1] > 1 else at * 0])
                at = tree.above[i - 1][at] if i else at
            places += [place[:, :1] * 0 for place in index[level + 1 :]]
            known = self._table[level][(*places, entry)]
            if not bool(_same(terms, known).all()):
                return False
        return True


def _same(terms: Tensor, known: Tensor) -> Tensor:
    """Whether numbers are equal but for rounding; −∞ is equal to −∞."""
    close = torch.finfo(terms.dtype).eps ** 0.55
    return torch.isclose(terms, known, close, close, equal_nan=True)


def _full(site: Site) -> Tensor:
    """A latent's values in all entries of its batch."""
    return torch.as_tensor(site.value).expand(site.distribution.shape())


def _gathered(values: Tensor, places: Tensor, site: Site) -> Tensor:
    """The values `(…, M, E, *event)` of some places `(M, E)` in a list `(…, C, E or 1, *event)`."""
    first = values.dim() - len(site.distribution.event_shape) - 2
    listed = values.movedim((first, first + 1), (0, 1))
    entries = torch.arange(listed.shape[1], device=places.device)
    return listed[places, entries].movedim((0, 1), (first, first + 1))


class MaskList(ListedLatents):
    """Every joint value of a program's discrete latents, those of plates below all rows side by
    side."""

    def __init__(self, run: ParticleTrace, tree: MaskTree, most: int) -> None:
        sites = [run.sites[name] for name in tree.levels if is_random(run.sites[name])]
        sites.sort(key=lambda site: tree.levels[site.name])
        if not sites:
            raise ValueError(f"the masks {list(tree.levels)} are not random")
        apart = {site.name: {-1} if tree.levels[site.name] else set() for site in sites}
        super().__init__(run, sites, most=most, instead="draw them", apart=apart)
        by_level = [1] * len(tree.plates)
        for site in sites:
            level, shape = tree.levels[site.name], site.distribution.batch_shape
            entries = math.prod(shape[:-1] if level else shape)
            by_level[level] *= len(support_of(site, most)) ** entries
        self.counts = tuple(by_level)

    def refuse_imputations(self, run: ParticleTrace) -> None:
        """Refuse a single imputation a mask where these are random."""
        known = self.values.keys() | run.unobserved
        others = [s.name for s in run.drawn if is_random(s) and s.name not in known]
        if others:
            raise ValueError(
                f"{others} are random given the masks {self.names}: p(y | x, z) would be "
                "approximated by one imputation; give imputations=K for each mask, or impute by a "
                "function of the mask, such as ConstantImputer()"
            )

    def log_prior(self, run: ParticleTrace) -> Tensor:
        """log p(z) of the masks of a run of all of them, `(M, E)`, where all are of one plate."""
        priors = [entry_log_prob(run.sites[name], True)[0] for name in self.names]
        return torch.stack(torch.broadcast_tensors(*priors)).sum(0)
