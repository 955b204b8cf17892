"""Masks that all rows or groups share, sampled: flips and swaps with their slabs, and NUTS."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyro
import torch
from pyro.infer import NUTS
from pyro.infer.autoguide.initialization import init_to_uniform
from torch import Tensor
from torch.nn.functional import logsigmoid
from tqdm.auto import tqdm

from lexppl.distributions.masks import KHot
from lexppl.distributions.support import draws_zeros_and_ones
from lexppl.effects import WITH_MASK, weights_first
from lexppl.inference.batches import Columns
from lexppl.inference.contexts import held, program_settings, seeded
from lexppl.inference.mask_plates import is_random
from lexppl.inference.objective.dependence import match_program
from lexppl.inference.objective.program import ParticleProgram
from lexppl.inference.objective.site import Site
from lexppl.inference.posterior.global_draws import GlobalDraws, SamplerRecord
from lexppl.inference.posterior.global_latents import (
    Latents,
    latents_of,
    sites_of_run,
    values_of,
)
from lexppl.inference.posterior.log_posterior import log_joint
from lexppl.inference.posterior.mcmc import (
    COMPARED,
    MCMC,
    MOST_STARTS,
    WORTH_RECORDING,
    Potential,
    Recorded,
    SummedOut,
    chain_of,
    class_of,
)

AT_ONCE = 16  # Entries whose flips are weighed together
TRIES = 4  # Flips of them that are tried
ROUNDS = 2  # Parabolas of a Laplace approximation, each about the peak of the last
FARTHEST = 4.0  # A peak from where its parabola was measured, in its scales
RATE = 0.02  # Of running means of peaks and scales, in the end of the warm-up
ZERO = 1e-6  # A gradient relative to the largest
HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


class State(NamedTuple):
    """u `(…, D + 1)` and z `(…, G)`, the last number of u one that entries without pairs have."""

    place: Tensor
    masks: Tensor

    def at(self, draw: int) -> State:
        """The states of all chains at a draw, of `(C, S, …)`."""
        return State(self.place[:, draw], self.masks[:, draw])


class MaskedDensity:
    """`log p(u, z, y)` of a program's continuous globals u `(D,)` and masks z `(G,)`, in nats,

        log p(θ) + log |∂θ/∂u| + log p(z | θ) + Σ_n log p(y_n | x_n, z, θ),    θ = t(u),

    by the bound's own terms (:func:`log_joint`), both given. The entries of all mask sites stand in
    one z.

    Raises:
        ValueError: no mask that rows share, or other latents within its plate; a mask of other
            values than zeros and ones, or of a fixed size; as :class:`Potential`.
    """

    def __init__(self, model: Any, rows: Columns, seed: int) -> None:
        few = tuple(column[:1] for column in rows)
        with torch.no_grad():
            found, drawn = latents_of(model, few), sites_of_run(model, rows)
            self.masks = _shared_masks(found, drawn)
            program = pyro.poutine.condition(weights_first(model), data=values_of(found))
            match_program(ParticleProgram(program, None, rows))
        self._model, self._rows, self._few, self._seed = weights_first(model), rows, few, seed
        shapes = {name: torch.as_tensor(s.value).shape for name, s in self.masks.items()}
        self._shapes, self._sizes = shapes, [shape.numel() for shape in shapes.values()]
        self.entries = sum(self._sizes)
        given = self.given(self.prior_draw())
        self.globals, self.fixed, self._objective = given.globals, given.fixed, given.objective
        self.dimensions = self.globals.dimensions

    def prior_draw(self) -> Tensor:
        """A draw of z from its prior, of the type of x."""
        sites, x = sites_of_run(self._model, self._rows), self._rows[0]
        drawn = torch.cat([torch.as_tensor(sites[n].value).flatten() for n in self.masks])
        return drawn.to(x) if x.is_floating_point() else drawn

    def by_site(self, masks: Tensor) -> dict[str, Tensor]:
        """z `(…, G)` by site, in the shapes of a run of one particle."""
        parts = zip(self._shapes.items(), masks.split(self._sizes, -1), strict=True)
        return {name: part.reshape(*masks.shape[:-1], *shape) for (name, shape), part in parts}

    def draws(self, masks: Tensor) -> dict[str, Tensor]:
        """Draws of z `(…, G)` by site, in the shapes of values that are not of particles."""
        parts = self.by_site(masks).items()
        return {n: v.reshape(*masks.shape[:-1], *_plain(self._shapes[n])) for n, v in parts}

    def given(self, masks: Tensor) -> Potential:
        """The potential of u given z."""
        program = pyro.poutine.condition(self._model, data=self.by_site(masks))
        return Potential(program, self._rows, seed=self._seed, least=0)

    def __call__(self, place: Tensor, masks: Tensor, few: bool = False) -> Tensor:
        """The log-density at u and z, a scalar; of a `few` of the rows."""
        values, log_jacobian = self.globals.constrained(place)
        values |= self.by_site(masks)
        rows = self._few if few else self._rows
        with self.fixed(), SummedOut():
            return log_jacobian + log_joint(self._model, values, self._objective, rows)

    def start(self, strategy: Any) -> State:
        """A state of finite density: z from its prior, u by Pyro's strategy."""
        for _ in range(MOST_STARTS):
            masks = self.prior_draw()
            place = masks.new_zeros(self.dimensions + 1)
            if self.dimensions:
                parts = self.given(masks).start(strategy)
                place[:-1] = torch.cat([parts[n].flatten() for n in self.globals.names])
            if bool(self(place[:-1], masks).isfinite()):
                return State(place, masks)
        raise ValueError(
            f"the posterior density is zero at {MOST_STARTS} masks drawn from their prior: look "
            "for rows that the program gives probability zero"
        )

    def pairs(self, place: Tensor) -> Tensor:
        """By entry of z the coordinates of u that it leaves out, `(G, P)`; D where it has fewer.

        A latent declares its mask by `infer={"with_mask": name}`. Of others with the mask's shape,
        numbers are paired whose gradient of the likelihood is zero where their entry is out and
        not zero where it is in. What is paired decides how u is proposed, not what is sampled.
        """
        sites = sites_of_run(self._model, self._few)
        found: list[list[int]] = [[] for _ in range(self.entries)]
        first = 0
        for name, size in zip(self.globals.names, self.globals.sizes, strict=True):
            declared = sites[name].infer.get(WITH_MASK)
            if declared is not None and declared not in self.masks:
                raise ValueError(
                    f"{name!r} is declared with the mask {declared!r}, and the masks that rows "
                    f"share are {list(self.masks)}"
                )
            coordinates = torch.arange(first, first + size).reshape(self.globals.shapes[name])
            first, after = first + size, 0
            for mask, entries in zip(self.masks, self._sizes, strict=True):
                before, after = after, after + entries
                if declared not in (None, mask):
                    continue
                own = _by_entry(coordinates, self._shapes[mask])
                if own is None and declared is not None:
                    raise ValueError(
                        f"{name!r} has shape {tuple(coordinates.shape)}, and {mask!r}, the mask it "
                        f"is declared with, {_plain(self._shapes[mask])}: give it a number for "
                        "each entry"
                    )
                if own is None or not (declared or self._leaves_out(place, own, before)):
                    continue
                for entry, numbers in enumerate(own.tolist()):
                    found[before + entry] += numbers
                break
        most = max(map(len, found))
        padded = [numbers + [self.dimensions] * (most - len(numbers)) for numbers in found]
        return torch.tensor(padded, dtype=torch.long, device=place.device)

    def _leaves_out(self, place: Tensor, own: Tensor, first: int) -> bool:
        """Whether entries of z from the `first` on leave their coordinates `(G', P)` out."""
        even = (torch.arange(self.entries, device=place.device) % 2).to(place)
        slope = torch.func.grad(lambda u, z: self(u, z) - self(u, z, few=True))
        for masks in (even, 1.0 - even):
            size = slope(place, masks)[own].abs()
            out = masks[first : first + len(own)] == 0
            largest = size.max()
            if not bool((size[out] <= ZERO * largest).all() & (size[~out] > ZERO * largest).any()):
                return False
        return True


def _by_entry(coordinates: Tensor, shape: Sequence[int]) -> Tensor | None:
    """Coordinates `(G', P)` by entry of a mask, whose shape they begin or end with."""
    own, count = _plain(shape), math.prod(shape)
    if tuple(coordinates.shape[: len(own)]) == own:
        return coordinates.reshape(count, -1)
    if tuple(coordinates.shape[-len(own) :]) == own:
        return coordinates.reshape(-1, count).mT
    return None


def _plain(shape: Sequence[int]) -> tuple[int, ...]:
    """A mask's shape without the particle's dimension, and the plate's where there is none."""
    own = tuple(shape)
    while len(own) > 1 and own[0] == 1:
        own = own[1:]
    return own


def _shared_masks(found: Latents, drawn: Mapping[str, Site]) -> dict[str, Site]:
    """The masks that rows share, or a refusal of what else is latent in their plate."""
    if costs := [site.name for site in drawn.values() if site.is_penalty]:
        raise ValueError(
            f"the program has penalties {costs}, under which masks have no posterior: write them "
            "as priors of the masks, by pyro.factor"
        )
    if not any(site.in_particles for site in found.observed.values()):
        raise ValueError("the program observes nothing inside mask_particles(): give y beside x")
    masks = {name: drawn[name] for name, s in found.in_particles.items() if is_random(s)}
    for name, site in masks.items():
        grows = site.distribution.shape() != found.in_particles[name].distribution.shape()
        if grows or found.row_plates & set(site.plate_names):
            raise ValueError(
                f"{name!r} is of each row, and MaskGibbs samples masks that all rows or groups "
                "share: take it out of the plate over rows, or use MCMC, which sums masks of rows "
                "out"
            )
        if site.in_imputations or not draws_zeros_and_ones(site.distribution):
            raise ValueError(
                f"{name!r} ({type(site.distribution).__name__}) inside mask_particles() is no mask "
                "of zeros and ones: MaskGibbs samples no other latents there; sample it outside, "
                "or sum it out in the program"
            )
        if isinstance(site.distribution.support, KHot):
            raise ValueError(
                f"the mask {name!r} has a fixed size, so that no entry can be flipped: give sizes "
                "a prior, as RandomSizeSubset does"
            )
    if not masks:
        raise ValueError(
            "the program draws no mask inside mask_particles() that all rows or groups share, so "
            "that MaskGibbs has nothing to flip: use MCMC"
        )
    return masks


class _Batch:
    """Log-densities of many states at once, `(M,)`, as a potential to record; the last number of u
    is a standard normal one."""

    sites = State._fields
    constrained = None

    def __init__(self, density: MaskedDensity) -> None:
        self._density, self.fixed = density, density.fixed

    def with_gradient(self, *numbers: Tensor) -> Columns:
        place, masks = numbers
        own = place[:, : self._density.dimensions]
        try:
            each = torch.func.vmap(self._density, randomness="different")
            # A recording writes into no tensor.
            values = torch.func.functionalize(each)(own, masks)
        except RuntimeError as error:
            if "vmap" not in str(error) and "data-dependent" not in str(error):
                raise
            values = torch.stack([self._density(u, z) for u, z in zip(own, masks, strict=True)])
        return (values - 0.5 * place[:, -1].square(),)

    def __call__(self, numbers: Mapping[str, Tensor]) -> Tensor:
        return self.with_gradient(*(numbers[name] for name in self.sites))[0]


class _Conditional(_Batch):
    """The potential of u `(D + 1,)` given z, with its gradient."""

    def with_gradient(self, *numbers: Tensor) -> Columns:
        place, masks = numbers
        own = place.detach().requires_grad_()
        with torch.enable_grad():
            value = -self._density(own[:-1], masks)
        return value.detach(), *torch.autograd.grad(value, own), torch.zeros_like(masks)

    def __call__(self, numbers: Mapping[str, Tensor]) -> Tensor:
        place, masks = (numbers[name] for name in self.sites)
        return -self._density(place[:-1], masks)


class Peaks(NamedTuple):
    """Laplace approximations of n entries' coordinates, given all else, by chain and by entry out
    and in: peaks and sds `(C, n, 2, P)`, logs of the integrals `(C, n, 2)`; and log p of other
    states, `(C,)`."""

    mean: Tensor
    scale: Tensor
    log_mass: Tensor
    log_density: Tensor

    def of(self, chosen: Tensor, side: Tensor) -> tuple[Tensor, Tensor]:
        """Peak and sd `(C, P)` of an entry of each chain that is out or in."""
        chains = torch.arange(len(chosen), device=chosen.device)
        return self.mean[chains, chosen, side], self.scale[chains, chosen, side]

    def log_prob(self, chosen: Tensor, side: Tensor, numbers: Tensor) -> Tensor:
        """Log-densities `(C,)` of an entry's coordinates `(C, P)`."""
        mean, scale = self.of(chosen, side)
        return -(0.5 * ((numbers - mean) / scale).square() + scale.log() + HALF_LOG_2PI).sum(-1)

    def draw(self, chosen: Tensor, side: Tensor) -> Tensor:
        """Coordinates `(C, P)` of an entry of each chain."""
        mean, scale = self.of(chosen, side)
        return mean + scale * torch.randn_like(mean)


class MaskMoves:
    """Flips and swaps of entries of z with their coordinates of u, of C chains at once, which leave
    p(u, z | y) as it is.

    Given all else, entry j is out or in (a = 0, 1) with coordinates u_j; a Laplace approximation
    N(m_a, s_a²) of p(u_j | z_j = a, rest) has the mass M_a ≈ ∫ p(z_j = a, u_j, rest) du_j. It is
    measured by parabolas from places that stay after the warm-up, and so depends on the rest alone.
    A *flip* of one of n entries J, chosen at random, is balanced (Zanella 2020),

        j ~ w_j / Σ_J w,    w_j = g(M_{1 − z_j} / M_{z_j}),    g(t) = t / (1 + t),

    with u_j from the approximation at its other value. A *swap* takes an entry i out and puts one
    of J in, i itself among them, by M_1 / M_0 given that i is out. Both are accepted by
    Metropolis' and Hastings' rule with the densities of what they draw.
    """

    def __init__(
        self,
        log_density: Callable[[Mapping[str, Tensor]], Tensor],
        pairs: Tensor,
        state: State,
        warmup: int,
    ) -> None:
        self._log_density, self._pairs, self.state = log_density, pairs, state
        self._chains = torch.arange(len(state.masks), device=pairs.device)
        self.count = min(AT_ONCE, len(pairs))
        unit = torch.eye(pairs.shape[1]).to(state.place)
        self._offsets = torch.cat([unit.new_zeros(1, len(unit)), unit, -unit])
        self.centre = state.place.new_zeros(len(pairs), 2, pairs.shape[1])
        self.scale = torch.ones_like(self.centre)
        self._measured = state.place.new_zeros(len(pairs))
        self._warmup, self.sweeps = warmup, 0

    def sweep(self) -> tuple[Tensor, Tensor]:
        """Some flips and a swap of each chain: shares of flips that were taken, and whether another
        entry was put in, `(C,)`."""
        keys = torch.rand(self.state.masks.shape, device=self._pairs.device)
        entries = keys.argsort(-1)[:, : self.count]
        peaks = self.peaks(self.state, entries, self.state)
        flips = torch.zeros(len(self._chains))
        for _ in range(TRIES):
            peaks, taken = self._flipped(entries, peaks)
            flips += taken.cpu() / TRIES
        swapped = self._swapped()
        self.sweeps += 1
        return flips, swapped.cpu()

    def peaks(self, rest: State, entries: Tensor, other: State) -> Peaks:
        """Laplace approximations of some entries `(C, n)` given the rest, and log p of others."""
        where = self._pairs[entries]
        mean, scale = self.centre[entries], self.scale[entries]
        numbers = where.shape[-1]
        shape = (*entries.shape, 2, len(self._offsets))
        masks = rest.masks[:, None, None, None].repeat(1, *shape[1:], 1)
        both = torch.arange(2, device=entries.device).to(masks).reshape(1, 1, 2, 1, 1)
        masks.scatter_(-1, entries[..., None, None, None].expand(*shape, 1), both.expand(*shape, 1))
        masks = torch.cat([masks.flatten(0, 3), other.masks])
        for _ in range(ROUNDS if numbers else 1):
            points = mean.unsqueeze(-2) + scale.unsqueeze(-2) * self._offsets
            place = rest.place[:, None, None, None].repeat(1, *shape[1:], 1)
            place.scatter_(-1, where[:, :, None, None].expand_as(points), points)
            place = torch.cat([place.flatten(0, 3), other.place])
            density = self._log_density({"place": place, "masks": masks})
            values, others = density.split([math.prod(shape), len(other.masks)])
            middle, up, down = values.reshape(shape).split([1, numbers, numbers], -1)
            slope, bend = 0.5 * (up - down), 2.0 * middle - up - down
            bend = torch.where(bend > ZERO, bend, 1.0)
            step = (slope / bend).nan_to_num(0.0).clamp(-FARTHEST, FARTHEST)
            rise = (slope * step - 0.5 * bend * step.square()).nan_to_num(0.0)
            mean, scale = mean + scale * step, scale * bend.rsqrt()
        log_mass = middle.squeeze(-1)
        if numbers:
            log_mass = log_mass + (rise + scale.log() + HALF_LOG_2PI).sum(-1)
        if self.sweeps < self._warmup:
            self._learn(entries.flatten(), mean.flatten(0, 1), scale.flatten(0, 1))
        return Peaks(mean, scale, log_mass.nan_to_num(-torch.inf), others)

    def _learn(self, entries: Tensor, mean: Tensor, scale: Tensor) -> None:
        """Move the places from which peaks are measured, in the warm-up, the same of all chains."""
        counts = torch.zeros_like(self._measured).index_add(0, entries, mean.new_ones(len(entries)))
        self._measured += counts
        rate = (counts / self._measured.clamp_min(1.0)).clamp_min(RATE) * (counts > 0)
        for known, new in ((self.centre, mean), (self.scale, scale)):
            total = torch.zeros_like(known).index_add(0, entries, new)
            average = total / counts.clamp_min(1.0)[:, None, None]
            known += rate[:, None, None] * (average - known)

    def moved(self, state: State, entry: Tensor, side: Tensor, numbers: Tensor) -> State:
        """The states with an entry of each chain `(C,)` out or in, and its coordinates."""
        place, masks = state.place.clone(), state.masks.clone()
        place[self._chains[:, None], self._pairs[entry]] = numbers
        masks[self._chains, entry] = side.to(masks)
        return State(place, masks)

    def taken(self, log_ratio: Tensor) -> Tensor:
        """Which chains go to what was proposed, by the log ratio of densities `(C,)`."""
        return torch.rand_like(log_ratio).log() < log_ratio

    def _go(self, taken: Tensor, state: State) -> None:
        """Go to other states where they are taken."""
        own = zip(state, self.state, strict=True)
        self.state = State(*(torch.where(taken[:, None], new, old) for new, old in own))

    def _numbers(self, state: State, entry: Tensor) -> Tensor:
        """Coordinates `(C, P)` of an entry of each chain."""
        return state.place[self._chains[:, None], self._pairs[entry]]

    def _flipped(self, entries: Tensor, peaks: Peaks) -> tuple[Peaks, Tensor]:
        """Flip one of some entries of each chain: the peaks after it, and which were taken."""
        weights, possible = _log_shares(_balanced(peaks, self.state.masks.gather(1, entries)))
        chosen = weights.exp().multinomial(1)[:, 0]
        entry = entries[self._chains, chosen]
        side = self.state.masks[self._chains, entry].long()
        after = peaks.draw(chosen, 1 - side)
        state = self.moved(self.state, entry, 1 - side, after)
        back = self.peaks(state, entries, state)
        returns, _ = _log_shares(_balanced(back, state.masks.gather(1, entries)))
        ratio = back.log_density - peaks.log_density
        ratio = ratio + returns[self._chains, chosen] - weights[self._chains, chosen]
        ratio = ratio + back.log_prob(chosen, side, self._numbers(self.state, entry))
        taken = possible & self.taken(ratio - peaks.log_prob(chosen, 1 - side, after))
        self._go(taken, state)
        kept = zip(back, peaks, strict=True)
        shaped = (torch.where(taken.reshape(-1, *[1] * (b.dim() - 1)), b, p) for b, p in kept)
        return Peaks(*shaped), taken

    def _swapped(self) -> Tensor:
        """Put another entry, or the same with other coordinates, in the place of one that is in;
        which chains have another."""
        before, keys = self.state, torch.rand_like(self.state.masks)
        # One that is in comes first, those that are out follow, at random.
        first = (keys + before.masks).argmax(-1)
        keys[self._chains, first] -= 2.0
        entries = (keys + before.masks).argsort(-1)[:, : self.count]
        none = torch.zeros_like(first)
        out, inside = none, none + 1
        candidates = before.masks.gather(1, entries) == 0
        candidates[:, 0] = before.masks.sum(-1) > 0
        rest = self.moved(before, first, out, self.centre[first, 0])
        peaks = self.peaks(rest, entries, before)
        weights, possible = _log_shares(_gain(peaks).masked_fill(~candidates, -torch.inf))
        chosen = weights.exp().multinomial(1)[:, 0]
        entry, other = entries[self._chains, chosen], chosen > 0
        after, left = peaks.draw(chosen, inside), peaks.draw(none, out)
        state = self.moved(self.moved(rest, first, out, left), entry, inside, after)
        back = self.peaks(self.moved(state, entry, out, self.centre[entry, 0]), entries, state)
        returns, _ = _log_shares(_gain(back).masked_fill(~candidates, -torch.inf))
        ratio = back.log_density - peaks.log_density
        ratio = ratio + returns[:, 0] + back.log_prob(none, inside, self._numbers(before, first))
        ratio = ratio - weights[self._chains, chosen] - peaks.log_prob(chosen, inside, after)
        of_two = back.log_prob(chosen, out, self._numbers(before, entry))
        of_two = of_two - peaks.log_prob(none, out, left)
        ratio = ratio + torch.where(other, of_two, 0.0)
        taken = possible & candidates[:, 0] & self.taken(ratio)
        self._go(taken, state)
        return taken & other

    # u = c_z + s_z v is what a Hamiltonian kernel moves, so that an entry's slab is of about one
    # size whether it is out or in.

    def scaled(self, state: State) -> Tensor:
        """v `(…, D)` of states."""
        centre, scale = self._units(state.masks)
        return ((state.place - centre) / scale)[..., :-1]

    def unscaled(self, numbers: Tensor, masks: Tensor) -> State:
        """The states of v `(…, D)` and z."""
        centre, scale = self._units(masks)
        padded = torch.cat([numbers, torch.zeros_like(centre[..., :1])], -1)
        return State(centre + scale * padded, masks)

    def _units(self, masks: Tensor) -> tuple[Tensor, Tensor]:
        inside, size = masks.bool().unsqueeze(-1), self.state.place.shape[-1]
        centre, scale = (masks.new_full((*masks.shape[:-1], size), v) for v in (0.0, 1.0))
        centre[..., self._pairs] = torch.where(inside, self.centre[:, 1], self.centre[:, 0])
        scale[..., self._pairs] = torch.where(inside, self.scale[:, 1], self.scale[:, 0])
        centre[..., -1], scale[..., -1] = 0.0, 1.0
        return centre, scale


def _gain(peaks: Peaks) -> Tensor:
    """log M_1 / M_0 of each entry, `(C, n)`; −∞ where neither can be."""
    return (peaks.log_mass[..., 1] - peaks.log_mass[..., 0]).nan_to_num(
        -torch.inf, posinf=torch.inf
    )


def _balanced(peaks: Peaks, masks: Tensor) -> Tensor:
    """log g of the ratio of masses by which each entry `(C, n)` would be flipped."""
    return logsigmoid(torch.where(masks > 0, -1.0, 1.0) * _gain(peaks))


def _log_shares(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Weights `(C, n)` that add up to one, in logs, and in which chains they can."""
    possible = weights.logsumexp(-1).isfinite()
    return torch.where(possible[:, None], weights, 0.0).log_softmax(-1), possible


@dataclass(frozen=True)
class MaskGibbs:
    """Sample masks that all rows or groups share, too many to be listed, with what is continuous.

    Spike and slab for any program: the target is

        p(θ, z | x, y) ∝ p(θ) p(z | θ) Π_n p(y_n | x_n, z, θ),

    z the masks inside `mask_particles()` and outside the plate over rows, θ the continuous latents
    outside it. A sweep tries flips and a swap (:class:`MaskMoves`), then a draw of θ by the kernel
    given z. Where entry j leaves numbers of θ out, its slab, both are proposed together: a latent
    of the mask's shape is paired with it where the likelihood has no gradient by the numbers of
    entries that are out, or by `infer={"with_mask": "mask"}`. Slabs that the program integrates out
    need no pairing. Chains run one after another.

    The draws of z stand beside those of θ: `posterior["mask"]` of :func:`lexppl.explain`. The
    sampler's statistics have the share of flips and of swaps that were taken (`flip_acceptance`,
    `swap_acceptance`), and whether the masks changed (`masks_changed`).

    Args:
        kernel: `NUTS` or `HMC`, as :class:`MCMC` takes it, for θ in units of its slabs.
        samples: S ≥ 4 sweeps of each chain that are kept.
        warmup: sweeps before them, in which kernel and proposals adapt; S if None.
        chains: C.

    Raises:
        ValueError, TypeError: as :class:`MCMC`.

    Example:
        >>> import pyro, pyro.distributions as dist
        >>> from lexppl.effects import mask_particles
        >>> from lexppl.inference import fit
        >>> def spike_and_slab(x, y=None):
        ...     slope = pyro.sample("slope", dist.Normal(x.new_zeros(3), 1.0).to_event(1))
        ...     with mask_particles():
        ...         z = pyro.sample("mask", dist.Bernoulli(x.new_full((3,), 0.5)).to_event(1))
        ...         with pyro.plate("data", len(x), dim=-1):
        ...             pyro.sample("y", dist.Normal((z * slope) @ x.mT, 1.0), obs=y)
        >>> x = torch.eye(3, dtype=torch.float64).repeat(8, 1)
        >>> sampler = MaskGibbs(partial(NUTS, max_tree_depth=3), samples=20, warmup=10, chains=2)
        >>> import warnings
        >>> with warnings.catch_warnings(action="ignore"):
        ...     result = fit(spike_and_slab, (x, 3 * x[:, 1]), inference=sampler, progress=False)
        >>> result.guides[0].sites["mask"].shape, bool(result.guides[0].sites["mask"][:, 1].all())
        (torch.Size([20, 3]), True)

    Source:
        Zanella. Informed proposals for local MCMC in discrete spaces. JASA 2020.
        George, McCulloch. Variable selection via Gibbs sampling. JASA 1993.
    """

    kernel: Any = NUTS
    samples: int = 1000
    warmup: int | None = 500
    chains: int = 4

    name: ClassVar[str] = "MaskGibbs"

    def __post_init__(self) -> None:
        MCMC(self.kernel, self.samples, self.warmup, self.chains)

    def run(self, model: Any, rows: Columns, *, seed: int, progress: bool) -> GlobalDraws:
        """Draw C chains, as :meth:`PosteriorInference.run`.

        Raises:
            ValueError: as :class:`MaskedDensity`; a density that is zero at all starts.
        """
        of_kernel = dict(self.kernel.keywords) if isinstance(self.kernel, partial) else {}
        strategy = of_kernel.pop("init_strategy", init_to_uniform)
        kernel = partial(class_of(self.kernel), **of_kernel)
        warmup = self.samples if self.warmup is None else self.warmup
        with seeded(seed, rows[0].device):
            with program_settings(validate=True):
                density = MaskedDensity(held(model), rows, seed)
                starts = [density.start(strategy) for _ in range(self.chains)]
            with (
                program_settings(validate=False),
                tqdm(
                    total=warmup + self.samples, disable=None if progress else True, unit="sweep"
                ) as bar,
            ):
                start = State(*(torch.stack(numbers) for numbers in zip(*starts, strict=True)))
                pairs = density.pairs(start.place[0, :-1])
                plain = _Batch(density), _Conditional(density)
                copies = min(AT_ONCE, len(pairs)) * 2 * (1 + 2 * pairs.shape[1]) + 1

                def places(state: State) -> tuple[list[dict[str, Tensor]], ...]:
                    """Where recordings are made and compared: all chains at once, and each."""
                    many = State(*(numbers.repeat(copies, 1) for numbers in state))
                    each = [State(*own)._asdict() for own in zip(*state, strict=True)]
                    return [many._asdict()], each

                def sampled(potentials: Sequence[Any]) -> tuple[State, dict[str, np.ndarray]]:
                    with seeded(seed, rows[0].device):
                        moves = MaskMoves(potentials[0], pairs, start, warmup)
                        own = kernel if density.dimensions else None
                        return _chains(moves, potentials[1], own, warmup, self.samples, bar.update)

                quick: list[Any] = list(plain)
                if self.chains * (warmup + self.samples) >= WORTH_RECORDING:
                    at = zip(plain, places(start), strict=True)
                    quick = [Recorded.of(one, own) or one for one, own in at]
                states, stats = sampled(quick)
                few = range(0, self.samples, max(1, self.samples // COMPARED))
                if not all(
                    one.agrees(own)
                    for draw in few
                    for one, own in zip(quick, places(states.at(draw)), strict=True)
                    if isinstance(one, Recorded)
                ):
                    bar.total *= 2
                    states, stats = sampled(plain)
            samples, _ = density.globals.constrained(states.place[..., :-1])
        samples |= density.draws(states.masks)
        record = SamplerRecord(self.name, True, stats, _note(states.masks, stats))
        return GlobalDraws(
            {name: values.detach() for name, values in samples.items()},
            record,
            model,
            tuple(density.masks),
        )


def _chains(
    moves: MaskMoves,
    potential: Callable[[Mapping[str, Tensor]], Tensor],
    kernel: Callable[..., Any] | None,
    warmup: int,
    samples: int,
    drawn: Callable[[], Any],
) -> tuple[State, dict[str, np.ndarray]]:
    """The states `(C, S, …)` of chains that go on together, and their statistics `(C, S)`; without
    a kernel z alone moves."""
    chains: list[Any] = []

    def potential_of(chain: int) -> Callable[[Mapping[str, Tensor]], Tensor]:
        return lambda place: potential(
            moves.unscaled(place["v"], moves.state.masks[chain])._asdict()
        )

    places = moves.scaled(moves.state)
    for chain, place in enumerate(places):
        if kernel is None:
            break
        own = kernel(potential_fn=potential_of(chain))
        own.initial_params = {"v": place}
        chains.append(chain_of(own, warmup, samples))
        next(chains[-1])
    masks, found, shares = [], [], []
    for number in range(-warmup, samples):
        before = moves.state.masks
        with torch.no_grad():
            flips, swaps = moves.sweep()
        after = moves.state.masks
        shares.append((flips, swaps, (before != after).any(-1).cpu()))
        masks.append(after)
        for chain, place in enumerate(moves.scaled(moves.state) if chains else ()):
            try:
                places[chain] = chains[chain].send({"v": place})["v"]
            except StopIteration as end:
                found.append(end.value)
        if chains and number < samples - 1:
            moves.state = moves.unscaled(places, after)
        drawn()
    kept = torch.stack(masks[-samples:], 1)
    numbers = [torch.stack([place["v"] for place in own]) for own, _ in found]
    states = moves.unscaled(torch.stack(numbers) if numbers else kept[..., :0], kept)
    names = ("flip_acceptance", "swap_acceptance", "masks_changed")
    every = zip(names, zip(*shares[-samples:], strict=True), strict=True)
    stats = {name: torch.stack(values, 1).numpy() for name, values in every}
    of_kernel = {n: np.stack([own[n] for _, own in found]) for n in (found[0][1] if found else ())}
    return states, of_kernel | stats


def _note(masks: Tensor, stats: Mapping[str, np.ndarray]) -> str:
    """How often flips and swaps were taken, and the most frequent masks `(C, S, G)` were left."""
    models, place, counts = masks.flatten(0, 1).unique(
        dim=0, return_inverse=True, return_counts=True
    )
    at_top = (place == counts.argmax()).reshape(masks.shape[:2])
    left = (at_top[:, :-1] & ~at_top[:, 1:]).sum() / at_top[:, :-1].sum().clamp(min=1)
    taken = {name: float(stats[f"{name}_acceptance"].mean()) for name in ("flip", "swap")}
    return (
        f"flips taken in {taken['flip']:.0%} of tries, swaps in {taken['swap']:.0%}, the most "
        f"frequent of {len(models):,} masks ({counts.max() / len(place):.0%} of draws) left after "
        f"{left:.0%} of its draws"
    )
