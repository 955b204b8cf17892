"""The log posterior of global latents by mini-batches: masks summed out or a bound; starts."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyro
import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from tqdm.auto import tqdm

from lexppl.argument_checks import finite_float, int_at_least
from lexppl.distributions.support import DEFAULT_LIMIT
from lexppl.distributions.top_k import TopEntries
from lexppl.effects import BEFORE_PARTICLES, weights_first
from lexppl.extras import extra_library
from lexppl.inference.batches import Columns
from lexppl.inference.contexts import (
    MiniBatch,
    keep_parameters_local,
    program_settings,
    rows_plate,
    seeded,
)
from lexppl.inference.estimators.enumerate import Enumerate
from lexppl.inference.estimators.sample_path import Pathwise
from lexppl.inference.nested_iwae import NestedIWAE
from lexppl.inference.objective.dependence import refuse_outside_rows
from lexppl.inference.objective.listed_latents import is_point, support_of
from lexppl.inference.objective.program import Program, sample_nodes
from lexppl.inference.objective.site import Site
from lexppl.inference.posterior.global_draws import GlobalDraws, SamplerRecord
from lexppl.inference.posterior.global_latents import GlobalSites, Latents, values_of

MOST_PARTICLES = 2**22  # Default limit of the particles of all rows in one evaluation

INSTEAD = (
    'a guide (guide=AutoNormal), replicates of weighted rows (row_weights="dirichlet") or '
    "stochastic-gradient MCMC, which draw masks"
)


def log_joint(
    program: Program, values: Mapping[str, Tensor], objective: NestedIWAE, rows: Columns
) -> Tensor:
    """`log p(θ) + Σ_n ℒ_n(θ)` of some rows, a scalar in nats, with θ given by site."""
    conditioned = pyro.poutine.condition(program, data=values)
    return -objective.differentiable_loss(conditioned, None, *rows)


def likelihood_bound(
    latents: Latents,
    rows: int,
    imputations: int | None = None,
    *,
    most_particles: float = MOST_PARTICLES,
    most_masks: int = DEFAULT_LIMIT,
    drawn: int | None = None,
) -> NestedIWAE:
    """The objective that is `Σ_n log p(y_n | x_n, θ)` of a program conditioned on its globals θ,

        p(y | x, θ) = Σ_z p(z | x, θ) 1/K Σ_k p(y | x̃_k(z), θ),

    summed over every mask z; or a bound of `drawn` masks where that sum is refused.

    Args:
        latents: the program's, none of them of rows.
        rows: N, of one evaluation.
        imputations: K draws of each mask's imputation; None where it is not random.
        most_particles: of one evaluation, N K times the number of masks.
        most_masks: of a row, that are summed over; of several latents their joint values.
        drawn: L masks to draw where the exact sum is refused; None to raise.
    """
    inside = latents.in_particles.values()
    masks = [site for site in inside if not site.in_imputations]
    imputed = [s for s in inside if s.in_imputations and not is_point(s.distribution)]
    if drawn is None:
        _refuse_inexact(latents, imputed if imputations is None else ())
    count = 1 if imputations is None else imputations
    if all(is_point(site.distribution) for site in masks):
        if drawn is None:
            return NestedIWAE(1, count, estimator=Pathwise())
        return NestedIWAE(drawn if masks and imputed else 1, count)
    try:
        listed = _count_of(masks, most_masks)
        if listed * rows * count > most_particles:
            raise ValueError(
                f"every evaluation of the likelihood would run {listed * rows * count:,} particles "
                f"({listed:,} masks of {rows:,} rows, {count} imputations each), and at most "
                f"{most_particles:,} are: give fewer rows, or use {INSTEAD}"
            )
    except ValueError:
        if drawn is None:
            raise
        return NestedIWAE(drawn, count)
    return NestedIWAE(math.inf, count, estimator=Enumerate())


def _refuse_inexact(latents: Latents, imputed: Sequence[Site]) -> None:
    """Refuse a program whose likelihood is no finite sum over masks, whatever their number."""
    for site in latents.observed.values():
        if getattr(site.distribution, "couples_rows", False):
            raise ValueError(
                f"{site.name!r} is a partial likelihood of all rows together, and the masks of a "
                f"row alone cannot be summed out of it; use {INSTEAD}"
            )
    if not any(site.in_particles and not site.is_penalty for site in latents.observed.values()):
        raise ValueError("the program observes nothing inside mask_particles(): give y beside x")
    for site in latents.in_particles.values():
        # Within the plates it is a Delta like any other.
        if isinstance(site.infer.get(BEFORE_PARTICLES), TopEntries):
            raise ValueError(
                f"{site.name!r} keeps the largest entries of a relaxation, a choice that jumps and "
                "has no gradient for a chain to follow: give a selector whose masks are drawn, "
                f"KSubsetSelector or BernoulliSelector, or use {INSTEAD}"
            )
    for site in imputed:
        inner = getattr(site.distribution, "hidden_distribution", site.distribution)
        while isinstance(base := getattr(inner, "base_dist", None), Distribution):
            inner = base
        raise ValueError(
            f"{site.name!r} is drawn at random ({type(inner).__name__.lstrip('_')}), so that the "
            "likelihood is no finite sum: impute a constant (ConstantImputer), or give "
            "MCMC(imputations=K), which draws K imputations of each mask once and keeps them for "
            f"the whole chain. Or use {INSTEAD}"
        )


def _count_of(latents: Sequence[Site], most: int) -> int:
    """The number of joint values of a row's discrete latents."""
    latents = [site for site in latents if not is_point(site.distribution)]
    count = math.prod(len(support_of(site, most, f"use {INSTEAD}")) for site in latents)
    if count > most:
        raise ValueError(
            f"{[s.name for s in latents]} have {count:,} joint values (> {most:,}); use {INSTEAD}"
        )
    return count


MOST_LISTED = 256  # Masks that are summed over by default

MASKS = 10  # L, the default where masks are too many to be listed

LEAST_BATCH = 100  # Rows of a mini-batch by default: at least so many, and a tenth of all


class LogPosterior:
    """`log p(θ) + log |dθ/du| + N/B Σ_batch ℒ_n(θ)` of global latents θ, at their vector u.

    ℒ_n is `log p(y_n | x_n, θ)` where at most 256 masks are summed over and nothing else is drawn;
    else a bound `ℒ_{L,K}` of ten masks, or the given one. B is a tenth of the rows, at least 100,
    by default.
    """

    def __init__(
        self,
        model: Any,
        rows: Columns,
        seed: int,
        batch_size: int | None,
        objective: NestedIWAE | None,
    ) -> None:
        count = len(rows[0])
        self.batch_size = size = batch_size or min(count, max(LEAST_BATCH, -(-count // 10)))
        if size > count:
            raise ValueError(f"a batch has {size} rows, more than {count}: give a lower batch_size")
        self.model = model = copy.deepcopy(model)
        keep_parameters_local(model)
        if isinstance(model, nn.Module):
            model.eval()
        self._program = weights_first(model)
        self.rows, self.device = rows, rows[0].device
        self._few = tuple(column[:size] for column in rows)
        with seeded(seed, self.device), program_settings(validate=True):
            self.sites, latents = GlobalSites.of(model, self._few)
            start = self.sites.vectors(values_of(latents))
            with torch.no_grad():
                nodes = sample_nodes(self._program, self._few)
            self._plate = rows_plate(nodes.values(), size)
            for node in nodes.values():
                if size < count and getattr(node["fn"], "couples_rows", False):
                    raise ValueError(
                        f"site {node['name']!r} is a likelihood of all rows together, of which a "
                        f"batch's is no share: give batch_size={count}"
                    )
            if size < count:
                refuse_outside_rows(nodes, model, self._few, self._plate, f"batch_size={count}")
            if objective is None:
                objective = likelihood_bound(
                    latents, size, most_particles=math.inf, most_masks=MOST_LISTED, drawn=MASKS
                )
            self.objective: NestedIWAE = objective.at(1.0)
            with torch.no_grad():
                value = self.of_batch(start, self._few)
        if not bool(torch.isfinite(value)):
            raise FloatingPointError(
                f"the log posterior of the first batch is {float(value)}; look for labels or "
                "features that the model gives probability zero"
            )
        again = []
        for other in (seed, seed + 1):
            with seeded(other, self.device), program_settings(validate=False), torch.no_grad():
                again.append(self.of_batch(start, self._few))
        self.exact = torch.equal(*again)
        """Whether ℒ is the log-likelihood itself: other draws give the same."""

    def __len__(self) -> int:
        return len(self.rows[0])

    @property
    def dimensions(self) -> int:
        """Number of unconstrained coordinates, D."""
        return self.sites.dimensions

    @property
    def note(self) -> str | None:
        """What is sampled, where it is not the posterior itself."""
        if self.exact:
            return None
        counts = f"L = {self.objective.masks:g}, K = {self.objective.imputations}"
        return f"of exp(lower bound with {counts}) in place of the likelihood"

    def of_batch(self, vector: Tensor, batch: Columns) -> Tensor:
        """The estimate of the log posterior at u `(D,)` by B rows, a scalar."""
        with MiniBatch(len(self), len(batch[0]), self._plate):
            return self._joint(vector, batch)

    def of_chains(self, vectors: Tensor, batches: Columns) -> tuple[Tensor, Tensor]:
        """Of C chains `(C, D)` with rows `(C, B, …)`: the sum, and each `(C,)`."""
        of_chains: Tensor = torch.func.vmap(self.of_batch, randomness="different")(vectors, batches)
        return of_chains.sum(), of_chains

    def log_likelihood(self, vector: Tensor, batch: Columns) -> Tensor:
        """`Σ ℒ_n` of some rows at u `(D,)`, a scalar."""
        return self._joint(vector, batch) - self.log_prior(vector)

    def log_prior(self, vector: Tensor) -> Tensor:
        """`log p(θ) + log |dθ/du|` at u `(D,)`, a scalar."""
        values, log_jacobian = self.sites.constrained(vector)
        program = pyro.poutine.condition(self._program, data=values)
        nodes = sample_nodes(program, tuple(column[:1] for column in self.rows))
        sites = [nodes[name] for name in values]
        terms = [(site["scale"] * site["fn"].log_prob(site["value"])).sum() for site in sites]
        return log_jacobian + sum(terms)

    def batches(self, chains: int, size: int | None = None) -> Columns:
        """Rows drawn with replacement, `(C, B, …)`, each chain's own; all rows where B is N."""
        size = self.batch_size if size is None else size
        if size >= len(self):
            return tuple(c.expand(chains, *c.shape) for c in self.rows)
        places = torch.randint(len(self), (chains, size), device=self.device)
        return tuple(column[places] for column in self.rows)

    def prior_vectors(self, count: int) -> Tensor:
        """Draws of u from the prior, `(count, D)`."""
        return torch.stack([self.sites.prior_draw(self.model, self._few) for _ in range(count)])

    def draws(
        self,
        name: str,
        vectors: Tensor,
        temperature: float = 1.0,
        stats: Mapping[str, np.ndarray] | None = None,
    ) -> GlobalDraws:
        """Draws of θ from u `(C, S, D)`, and their record; `stats` `(C, S)` of Markov chains."""
        values, _ = self.sites.constrained(vectors)
        named = name if temperature == 1.0 else f"{name} at temperature {temperature:g}"
        record = SamplerRecord(named, stats is not None, stats or {}, self.note)
        return GlobalDraws({n: v.detach() for n, v in values.items()}, record, self.model)

    @contextmanager
    def stepping(self, seed: int, steps: int, progress: bool) -> Iterator[Any]:
        """Context of a run: its seed, no argument checks, a progress bar of so many steps."""
        with (
            seeded(seed, self.device),
            program_settings(validate=False),
            tqdm(total=steps, disable=None if progress else True, unit="step") as bar,
        ):
            yield bar

    def _joint(self, vector: Tensor, batch: Columns) -> Tensor:
        values, log_jacobian = self.sites.constrained(vector)
        return log_jacobian + log_joint(self._program, values, self.objective, batch)


def check_settings(method: Any, **least: int) -> None:
    """Refuse settings of a method outside their range; `least` are of its counts by name."""
    for name, count in least.items():
        int_at_least(name, getattr(method, name), count)
    for name in ("lr", "temperature", "alpha", "sigma"):
        if getattr(method, name, None) is not None:
            finite_float(name, getattr(method, name), above=0.0)
    if getattr(method, "beta", None) is not None:
        finite_float("beta", method.beta, least=0.0)
    if method.batch_size is not None:
        int_at_least("batch_size", method.batch_size)
    if not (method.objective is None or isinstance(method.objective, NestedIWAE)):
        raise TypeError(f"objective must be a NestedIWAE or None; it is {method.objective!r}")


def bayes_library(module: str = "posteriors") -> Any:
    """A library of the `bayes` extra, imported where it is used."""
    # Its classes are declared in a way that its own libraries warn of, once each.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return extra_library(module, "bayes")


RATE = 0.05  # Adam's first rate, in units of u
SCALED_RATE = 0.5  # The same in posterior sds
CLIMBS = 3  # Climbs in posterior sds, each by scales measured where the last one ended
MOST_DENSE = 64  # Coordinates of which correlations are measured too
PROBES = 64  # Mini-batches, over all chains, whose gradients measure scales; for correlations 20 D
AT_ONCE = 32  # Of those, how many are run at once
PRIOR_DRAWS = 32
FARTHEST = 2.0  # A start is a draw from the prior, no coordinate of u farther than this from 0


@dataclass(frozen=True, eq=False)
class ScaledStart:
    """A start of each chain, and the linear map u = A v in whose v samplers step.

    With gradients `g_b` of mini-batches at the start,

        P = B/N Cov(g_b) + diag(1 / Var_prior(u)),    A Aᵀ = P⁻¹,    V = diag(Aᵀ Cov(g_b) A),

    so that posterior sds are about 1 in v, and V ≤ N/B is the noise of a gradient by v. Beyond 64
    coordinates P is its diagonal. A decides how fast a sampler moves, not what it samples.

    Args:
        target: the log posterior.
        vectors: v of each chain, `(C, D)`.
        factor: A, `(D, D)`, or its diagonal `(D,)`.
        noise: V, `(D,)`; 0 where every batch is all rows.
        prior_precision: `1 / Var_prior(u)`, `(D,)`.
        distance: to the mode in posterior sds, root mean square over coordinates and chains.
    """

    target: LogPosterior
    vectors: Tensor
    factor: Tensor
    noise: Tensor
    prior_precision: Tensor
    distance: float

    @classmethod
    def find(cls, target: LogPosterior, chains: int, steps: int, progress: Any) -> ScaledStart:
        """Climb from draws of the prior: Adam's steps in u, then three times half as many in v."""
        drawn = target.prior_vectors(max(chains, PRIOR_DRAWS))
        place = drawn[:chains].clamp(-FARTHEST, FARTHEST)
        precision = 1.0 / drawn.var(0).clamp_min(torch.finfo(drawn.dtype).eps)
        place = _climbed(target, place, torch.ones_like(place[0]), steps, RATE, progress)
        for _ in range(CLIMBS):
            at = cls.at(target, place, precision, dense=False)
            place = at.unscaled(
                _climbed(target, at.vectors, at.factor, steps // 2, SCALED_RATE, progress)
            )
        return cls.at(target, place, precision)

    @classmethod
    def at(
        cls, target: LogPosterior, place: Tensor, prior_precision: Tensor, dense: bool = True
    ) -> ScaledStart:
        """Measure scales and noise at u `(C, D)`; correlations where `dense` and D ≤ 64."""
        dimensions, rows = place.shape[-1], len(target)
        dense = dense and dimensions <= MOST_DENSE
        size = min(target.batch_size, max(1, rows // 10))
        gradients = _gradients(target, place, size, max(PROBES, 20 * dimensions * dense))
        mean = gradients.mean(0)
        apart = (gradients - mean) * math.sqrt(size / rows * len(gradients) / (len(gradients) - 1))
        # From the information of all rows to the variance of a batch's gradient.
        share = 0.0 if target.batch_size >= rows else rows / target.batch_size
        if dense:
            apart = apart.flatten(0, 1)
            information = apart.mT @ apart / len(apart)
            # P = R Rᵀ and A = R⁻ᵀ, so that A Aᵀ = P⁻¹.
            root = torch.linalg.cholesky(information + prior_precision.diag())
            eye = torch.eye(dimensions, dtype=root.dtype, device=root.device)
            factor = torch.linalg.solve_triangular(root.mT, eye, upper=True)
            noise = share * (factor.mT @ information @ factor).diagonal()
            vectors = place @ root
        else:
            information = apart.square().mean((0, 1))
            factor = (information + prior_precision).rsqrt()
            noise = share * information * factor**2
            vectors = place / factor
        distance = _times(mean, factor.mT if dense else factor).square().mean().sqrt()
        return cls(target, vectors, factor, noise, prior_precision, float(distance))

    def highest(self) -> ScaledStart:
        """The start with the highest log posterior, alone, with scales of its own."""
        target, places = self.target, self.unscaled(self.vectors)
        with torch.no_grad():
            _, heights = target.of_chains(places, target.batches(len(places), len(target)))
        best = int(heights.nan_to_num(-torch.inf).argmax())
        return self.at(target, places[best : best + 1], self.prior_precision, dense=False)

    def moved(self, vectors: Tensor) -> ScaledStart:
        """The start measured again where the chains are now, at v `(C, D)`."""
        return self.at(self.target, self.unscaled(vectors), self.prior_precision)

    def unscaled(self, vectors: Tensor) -> Tensor:
        """u of v, both `(…, D)`."""
        return _times(vectors, self.factor)

    def log_posterior(self, vectors: Tensor, batches: Columns) -> tuple[Tensor, Tensor]:
        """As :meth:`LogPosterior.of_chains`, of v."""
        return self.target.of_chains(self.unscaled(vectors), batches)


def climbing_steps(steps: int) -> int:
    """The number of steps that :meth:`ScaledStart.find` makes in all."""
    return steps + CLIMBS * (steps // 2)


def _times(vectors: Tensor, factor: Tensor) -> Tensor:
    """`A v`, for A or its diagonal."""
    return vectors * factor if factor.dim() == 1 else vectors @ factor.mT


def _climbed(
    target: LogPosterior, start: Tensor, scales: Tensor, steps: int, rate: float, progress: Any
) -> Tensor:
    """Adam's steps up the log posterior of `scales · v`, at a rate that falls to 0 as a cosine."""
    place = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([place], lr=rate, maximize=True)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 0.5 * rate * (1.0 + math.cos(math.pi * step / steps))
        optimizer.zero_grad()
        with torch.enable_grad():
            total, _ = target.of_chains(place * scales, target.batches(len(start)))
            total.backward()
        optimizer.step()
        progress.update()
    return place.detach()


def _gradients(target: LogPosterior, place: Tensor, size: int, probes: int) -> Tensor:
    """Gradients of mini-batches of some size at each chain's place, `(count, C, D)`."""
    chains = len(place)
    copies = max(1, AT_ONCE // chains)
    several = place.repeat(copies, 1)
    gradient = torch.func.grad(lambda u, batch: target.of_chains(u, batch)[0])
    count = max(2, -(-probes // (copies * chains)))
    drawn = torch.stack(
        [gradient(several, target.batches(len(several), size)) for _ in range(count)]
    )
    if not bool(drawn.isfinite().all()):
        raise FloatingPointError("the log posterior's gradient is not finite: give a smaller lr")
    return drawn.reshape(count * copies, chains, -1).detach()
