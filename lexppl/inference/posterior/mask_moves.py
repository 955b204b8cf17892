"""Flips and swaps of the entries of masks, with the coordinates that go with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Independent, Normal
from torch.nn.functional import logsigmoid

AT_ONCE = 16  # Entries whose flips are weighed together
TRIES = 4  # Flips of them that are tried
ROUNDS = 2  # Parabolas of a Laplace approximation, each about the peak of the last
FARTHEST = 4.0  # A peak from where its parabola was measured, in its scales
RATE = 0.02  # Of running means of peaks and scales, in the end of the warm-up
FLAT = 1e-6  # Nats, below which a parabola has no peak
HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


class State(NamedTuple):
    """u `(…, D + 1)` and z `(…, G)`, the last number of u a standard normal one for entries that
    have fewer coordinates than others."""

    place: Tensor
    masks: Tensor


class Peaks(NamedTuple):
    """Laplace approximations of n entries' coordinates, given all else, by chain and by entry out
    and in: peaks and sds `(C, n, 2, P)`, logs of the integrals `(C, n, 2)`; and log p of other
    states, `(C,)`."""

    mean: Tensor
    scale: Tensor
    log_mass: Tensor
    log_density: Tensor

    def normal(self, chosen: Tensor, side: Tensor) -> Independent:
        """The approximation `(C, P)` of an entry of each chain that is out or in."""
        at = torch.arange(len(chosen), device=chosen.device), chosen, side
        return Independent(Normal(self.mean[at], self.scale[at], validate_args=False), 1)


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
        self.warmup, self.sweeps = warmup, 0

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
            bend = torch.where((bend > FLAT) & bend.isfinite(), bend, 1.0)
            step = (slope / bend).nan_to_num(0.0).clamp(-FARTHEST, FARTHEST)
            rise = (slope * step - 0.5 * bend * step.square()).nan_to_num(0.0, 0.0, 0.0)
            mean, scale = mean + scale * step, scale * bend.rsqrt()
        log_mass = middle.squeeze(-1)
        if numbers:
            log_mass = log_mass + (rise + scale.log() + HALF_LOG_2PI).sum(-1)
        if self.sweeps < self.warmup:
            self._learn(entries.flatten(), mean.flatten(0, 1), scale.flatten(0, 1))
        return Peaks(mean, scale, log_mass, others)

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
        pairs = zip(state, self.state, strict=True)
        self.state = State(*(torch.where(taken[:, None], new, old) for new, old in pairs))

    def _numbers(self, state: State, entry: Tensor) -> Tensor:
        """Coordinates `(C, P)` of an entry of each chain."""
        return state.place[self._chains[:, None], self._pairs[entry]]

    def _flipped(self, entries: Tensor, peaks: Peaks) -> tuple[Peaks, Tensor]:
        """Flip one of some entries of each chain: the peaks after it, and which were taken."""
        weights = _balanced(peaks, self.state.masks.gather(1, entries))
        chosen = weights.exp().multinomial(1)[:, 0]
        entry = entries[self._chains, chosen]
        side = self.state.masks[self._chains, entry].long()
        after = peaks.normal(chosen, 1 - side).sample()
        state = self.moved(self.state, entry, 1 - side, after)
        back = self.peaks(state, entries, state)
        returns = _balanced(back, state.masks.gather(1, entries))
        ratio = back.log_density - peaks.log_density
        ratio = ratio + returns[self._chains, chosen] - weights[self._chains, chosen]
        ratio = ratio + back.normal(chosen, side).log_prob(self._numbers(self.state, entry))
        taken = self.taken(ratio - peaks.normal(chosen, 1 - side).log_prob(after))
        self._go(taken, state)
        pairs = zip(back, peaks, strict=True)
        shaped = (torch.where(taken.reshape(-1, *[1] * (b.dim() - 1)), b, p) for b, p in pairs)
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
        weights = _shares(_gain(peaks).masked_fill(~candidates, -torch.inf))
        chosen = weights.exp().multinomial(1)[:, 0]
        entry, other = entries[self._chains, chosen], chosen > 0
        after, left = peaks.normal(chosen, inside).sample(), peaks.normal(none, out).sample()
        state = self.moved(self.moved(rest, first, out, left), entry, inside, after)
        back = self.peaks(self.moved(state, entry, out, self.centre[entry, 0]), entries, state)
        returns = _shares(_gain(back).masked_fill(~candidates, -torch.inf))
        ratio = back.log_density - peaks.log_density + returns[:, 0]
        ratio = ratio + back.normal(none, inside).log_prob(self._numbers(before, first))
        ratio = ratio - weights[self._chains, chosen] - peaks.normal(chosen, inside).log_prob(after)
        of_two = back.normal(chosen, out).log_prob(self._numbers(before, entry))
        of_two = of_two - peaks.normal(none, out).log_prob(left)
        ratio = ratio + torch.where(other, of_two, 0.0)
        taken = candidates[:, 0] & self.taken(ratio)
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
    """log M_1 / M_0 of each entry, `(C, n)`."""
    return peaks.log_mass[..., 1] - peaks.log_mass[..., 0]


def _balanced(peaks: Peaks, masks: Tensor) -> Tensor:
    """Log probabilities with which each entry `(C, n)` is chosen for a flip."""
    return _shares(logsigmoid(torch.where(masks > 0, -1.0, 1.0) * _gain(peaks)))


def _shares(weights: Tensor) -> Tensor:
    """Logs of weights `(C, n)` that add up to one; what is no number is as good as zero."""
    return weights.nan_to_num(torch.finfo(weights.dtype).min).log_softmax(-1)
