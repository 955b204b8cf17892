"""Masks that all rows or groups share, sampled: flips and swaps with their slabs, and NUTS."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyro
import torch
from pyro.infer import NUTS
from pyro.infer.autoguide.initialization import init_to_uniform
from torch import Tensor
from torch.utils.data import default_collate
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
from lexppl.inference.posterior.global_latents import Latents, latents_of, sites_of_run, values_of
from lexppl.inference.posterior.log_posterior import log_joint
from lexppl.inference.posterior.mask_moves import AT_ONCE, MaskMoves, State
from lexppl.inference.posterior.mcmc import MCMC, Chain, Potential, Recorded, SummedOut, class_of

MOST_STARTS = 100
ZERO = 1e-6  # A gradient relative to the largest


class _PotentialGivenMasks(Potential):
    least = 0


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
            latents, sites = latents_of(model, few), sites_of_run(model, rows)
            masks = _shared_masks(latents, sites)
            program = pyro.poutine.condition(weights_first(model), data=values_of(latents))
            match_program(ParticleProgram(program, None, rows))
        self._model, self._rows, self._few, self._seed = weights_first(model), rows, few, seed
        self._sites = {n: torch.as_tensor(s.value).shape for n, s in masks.items()}
        self.shapes = {n: tuple(d for d in s if d > 1) or (1,) for n, s in self._sites.items()}
        self._sizes = [math.prod(shape) for shape in self.shapes.values()]
        self.entries = sum(self._sizes)
        potential = self.given_masks(self.prior_draw())
        self.globals, self.fixed = potential.globals, potential.fixed
        self._objective = potential.objective
        self.dimensions = self.globals.dimensions

    def prior_draw(self) -> Tensor:
        """A draw of z from its prior, of the type of x."""
        sites, x = sites_of_run(self._model, self._rows), self._rows[0]
        drawn = torch.cat([torch.as_tensor(sites[n].value).flatten() for n in self.shapes])
        return drawn.to(x) if x.is_floating_point() else drawn

    def by_site(self, masks: Tensor, of_run: bool = True) -> dict[str, Tensor]:
        """z `(…, G)` by site, in the shapes of a run of one particle, or without that."""
        shapes = self._sites if of_run else self.shapes
        parts = zip(shapes.items(), masks.split(self._sizes, -1), strict=True)
        return {name: part.reshape(*masks.shape[:-1], *shape) for (name, shape), part in parts}

    def given_masks(self, masks: Tensor) -> Potential:
        """The potential of u given z."""
        program = pyro.poutine.condition(self._model, data=self.by_site(masks))
        return _PotentialGivenMasks(program, self._rows, seed=self._seed)

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
            state = State((z := self.prior_draw()).new_zeros(self.dimensions + 1), z)
            if self.dimensions:
                parts = self.given_masks(z).start(strategy)
                state.place[:-1] = torch.cat([parts[n].flatten() for n in self.globals.names])
            if bool(self(state.place[:-1], z).isfinite()):
                return state
        raise ValueError(f"the density is zero at {MOST_STARTS} masks drawn from their prior")

    def pairs(self, place: Tensor) -> Tensor:
        """By entry of z the coordinates of u that it leaves out, `(G, P)`; D where it has fewer.

        A latent declares its mask by `infer={"with_mask": name}`. Of others with the mask's shape,
        numbers are paired whose gradient of the likelihood is zero where their entry is out and
        not zero where it is in. What is paired decides how u is proposed, not what is sampled.
        """
        sites = sites_of_run(self._model, self._few)
        left_out: list[list[int]] = [[] for _ in range(self.entries)]
        coordinates = range(self.dimensions)
        for name, size in zip(self.globals.names, self.globals.sizes, strict=True):
            declared, shape = sites[name].infer.get(WITH_MASK), tuple(self.globals.shapes[name])
            of_latent, coordinates, entry = coordinates[:size], coordinates[size:], 0
            if declared is not None and shape != self.shapes.get(declared):
                raise ValueError(
                    f"{name!r}, of shape {shape}, is declared with the mask {declared!r}; it needs "
                    f"the shape of a mask that rows share, which are {self.shapes}"
                )
            for mask, count in zip(self.shapes, self._sizes, strict=True):
                if mask == declared or (
                    declared is None
                    and shape == self.shapes[mask]
                    and self._leaves_out(place, of_latent, entry)
                ):
                    for paired, coordinate in enumerate(of_latent, entry):
                        left_out[paired].append(coordinate)
                    break
                entry += count
        most = max(map(len, left_out))
        padded = [numbers + [self.dimensions] * (most - len(numbers)) for numbers in left_out]
        return torch.tensor(padded, dtype=torch.long, device=place.device)

    def _leaves_out(self, place: Tensor, coordinates: range, first: int) -> bool:
        """Whether entries of z from the `first` on leave these coordinates of u out."""
        even = (torch.arange(self.entries, device=place.device) % 2).to(place)
        slope = torch.func.grad(lambda u, z: self(u, z) - self(u, z, few=True))
        sizes = torch.stack([slope(place, z)[list(coordinates)].abs() for z in (even, 1.0 - even)])
        inside = torch.stack([even, 1.0 - even])[:, first : first + len(coordinates)].bool()
        left = sizes > ZERO * sizes.max()
        return bool(left[inside].any()) and not bool(left[~inside].any())


def _shared_masks(latents: Latents, sites: Mapping[str, Site]) -> dict[str, Site]:
    """The masks that rows share, or a refusal of what else is latent in their plate."""
    if costs := [site.name for site in sites.values() if site.is_penalty]:
        raise ValueError(
            f"the program has penalties {costs}, under which masks have no posterior: write them "
            "as priors of the masks, by pyro.factor"
        )
    if not any(site.in_particles for site in latents.observed.values()):
        raise ValueError("the program observes nothing inside mask_particles(): give y beside x")
    masks = {name: sites[name] for name, s in latents.in_particles.items() if is_random(s)}
    for name, site in masks.items():
        law, here = site.distribution, f"MaskGibbs samples masks that rows share, and {name!r}"
        grows = law.shape() != latents.in_particles[name].distribution.shape()
        if grows or latents.row_plates & set(site.plate_names):
            raise ValueError(f"{here} is of each row: use MCMC, which sums masks of rows out")
        if site.in_imputations or not draws_zeros_and_ones(law):
            kind = f"{type(law).__name__} inside mask_particles()"
            raise ValueError(f"{here} is a {kind}: sample it outside, or sum it out")
        if isinstance(law.support, KHot):
            raise ValueError(
                f"{here} has a fixed size, so that none of its entries can be flipped: give sizes "
                "a prior, as RandomSizeSubset does"
            )
    if not masks:
        raise ValueError("MaskGibbs samples masks that rows share, and there are none: use MCMC")
    return masks


class _Potential:
    """log p of many states at once, `(M,)`, or U = −log p with its gradient by u; to be recorded.

    Under `vmap` a program that decides by a number ends with an error, and is run state by state:
    no recording is of one decision.
    """

    sites = State._fields
    constrained = None

    def __init__(self, density: MaskedDensity, sign: float) -> None:
        self._density, self._sign, self.fixed = density, sign, density.fixed

    def __call__(self, numbers: Mapping[str, Tensor]) -> Tensor:
        """Of each state, as autograd sees it."""
        return self._each(self._value, *(numbers[name] for name in self.sites))

    def with_gradient(self, *numbers: Tensor) -> Columns:
        """What is recorded: a recording writes into no tensor."""
        if self._sign > 0:
            return (torch.func.functionalize(partial(self._each, self._value))(*numbers),)
        both = torch.func.functionalize(partial(self._each, torch.func.grad_and_value(self._value)))
        gradient, value = both(*numbers)
        return value, gradient, torch.zeros_like(numbers[1])

    def _value(self, place: Tensor, masks: Tensor) -> Tensor:
        return self._sign * (self._density(place[:-1], masks) - 0.5 * place[-1].square())

    @staticmethod
    def _each(function: Callable[..., Any], *numbers: Tensor) -> Any:
        try:
            return torch.func.vmap(function, randomness="different")(*numbers)
        except RuntimeError:  # The program's own is raised again.
            return default_collate([function(*state) for state in zip(*numbers, strict=True)])


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
    need no pairing. Chains go on together, and share the warm-up of their proposals.

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
        ...             pyro.sample("y", dist.Normal((z * slope * x).sum(-1), 1.0), obs=y)
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
        warmup = self.samples if self.warmup is None else self.warmup
        sweeps = range(-warmup, self.samples)
        with seeded(seed, rows[0].device):
            with program_settings(validate=True):
                density = MaskedDensity(held(model), rows, seed)
                starts = [density.start(strategy) for _ in range(self.chains)]
            with program_settings(validate=False):
                start = State(*(torch.stack(numbers) for numbers in zip(*starts, strict=True)))
                pairs = density.pairs(start.place[0, :-1])
                many = min(AT_ONCE, len(pairs)) * 2 * (1 + 2 * pairs.shape[1]) + 1
                log_density = _recorded(density, 1.0, start, many * self.chains)
                moves = MaskMoves(log_density, pairs, start, warmup)
                kernels = []
                if density.dimensions:
                    energy = _recorded(density, -1.0, start, 1)
                    kernels = [
                        class_of(self.kernel)(
                            potential_fn=partial(_energy, energy, moves, chain), **of_kernel
                        )
                        for chain in range(self.chains)
                    ]
                with tqdm(sweeps, disable=None if progress else True, unit="sweep") as bar:
                    states, stats = _chains(moves, kernels, bar)
            samples, _ = density.globals.constrained(states.place[..., :-1])
        samples |= density.by_site(states.masks, of_run=False)
        draws = {name: values.detach() for name, values in samples.items()}
        record = SamplerRecord(self.name, True, stats, _note(states.masks, stats))
        return GlobalDraws(draws, record, model, tuple(density.shapes))


def _recorded(density: MaskedDensity, sign: float, start: State, count: int) -> Any:
    """log p, or −log p with its gradient, of so many states, recorded where that is possible."""
    potential = _Potential(density, sign)
    copies = -(-count // len(start.masks))
    place = {n: v.repeat(copies, 1)[:count] for n, v in start._asdict().items()}
    return Recorded.of(potential, [place]) or potential


def _energy(energy: Any, moves: MaskMoves, chain: int, place: Mapping[str, Tensor]) -> Tensor:
    """U at v of a chain, given its masks."""
    state = moves.unscaled(place["v"], moves.state.masks[chain])
    value: Tensor = energy({name: numbers[None] for name, numbers in state._asdict().items()})
    return value.sum()


def _chains(
    moves: MaskMoves, kernels: Sequence[Any], sweeps: Collection[int]
) -> tuple[State, dict[str, np.ndarray]]:
    """The states `(C, S, …)` of chains that go on together, and their statistics `(C, S)`."""
    warmup = moves.warmup
    starts = zip(kernels, moves.scaled(moves.state), strict=False)
    chains = [Chain(kernel, {"v": start}, warmup) for kernel, start in starts]
    masks, shares = [], []
    for _ in sweeps:
        before = moves.state.masks
        with torch.no_grad():
            taken = moves.sweep()
        masks.append(moves.state.masks)
        shares.append((*taken, (before != masks[-1]).any(-1).cpu()))
        places = moves.scaled(moves.state)
        for place, chain in zip(places, chains, strict=False):
            place.copy_(chain.step({"v": place.clone()})["v"])
        moves.state = moves.unscaled(places, masks[-1])
    drawn = torch.stack(masks[warmup:], 1)
    places = places[:, None].expand(-1, drawn.shape[1], -1)
    if chains:
        places = torch.stack([torch.stack([at["v"] for at in chain.draws]) for chain in chains])
    names = ("flip_acceptance", "swap_acceptance", "masks_changed")
    by_name = zip(names, zip(*shares[warmup:], strict=True), strict=True)
    stats = {name: torch.stack(values, 1).numpy() for name, values in by_name}
    of_chains = [chain.statistics() for chain in chains]
    for name in of_chains[0] if of_chains else ():
        stats[name] = np.stack([of_chain[name] for of_chain in of_chains])
    return moves.unscaled(places, drawn), stats


def _note(masks: Tensor, stats: Mapping[str, np.ndarray]) -> str:
    """How often flips and swaps were taken, and the most frequent masks `(C, S, G)` were left."""
    flips, swaps = (stats[f"{name}_acceptance"].mean() for name in ("flip", "swap"))
    models, counts = masks.flatten(0, 1).unique(dim=0, return_counts=True)
    top = (masks == models[counts.argmax()]).all(-1)
    left = (top[:, :-1] & ~top[:, 1:]).sum() / top[:, :-1].sum().clamp(min=1)
    return (
        f"flips taken in {flips:.0%} of tries, swaps in {swaps:.0%}, the most frequent of "
        f"{len(models):,} masks ({top.double().mean():.0%} of draws) left after {left:.0%} of them"
    )
