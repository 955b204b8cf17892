"""Posteriors of global latents by mini-batches and modes: SGHMC, SGLD, Laplace, VI, ensembles."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor

from lexppl.inference.batches import Columns
from lexppl.inference.nested_iwae import NestedIWAE
from lexppl.inference.posterior.global_draws import GlobalDraws
from lexppl.inference.posterior.log_posterior import (
    LogPosterior,
    ScaledStart,
    bayes_library,
    check_settings,
    climbing_steps,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Climbing:
    """Base of methods that begin with a climb to modes of the log posterior."""

    climb: int = 400
    batch_size: int | None = None
    objective: NestedIWAE | None = None

    least: ClassVar[Mapping[str, int]]  # The least value of its counts, by name

    def __post_init__(self) -> None:
        check_settings(self, **self.least)


@dataclass(frozen=True, kw_only=True, eq=False)
class StochasticGradientSampler(_Climbing):
    """Base of Markov chains whose steps follow mini-batch gradients of the log posterior, by
    `posteriors.sgmcmc`; the chains run at once, each with mini-batches of its own."""

    samples: int = 250
    chains: int = 4
    warmup: int = 400
    thin: int = 40
    lr: float | None = None
    beta: float | None = None
    temperature: float = 1.0
    cyclical: bool = True

    name: ClassVar[str]
    largest_step: ClassVar[float]  # The default ε, where a batch is not noisy
    least = MappingProxyType({"samples": 1, "chains": 1, "thin": 1, "warmup": 0, "climb": 0})

    @property
    def momenta(self) -> dict[str, float]:
        """Further arguments of the transform."""
        return {}

    def rate(self, noise: float) -> float:
        """The largest step size, given the largest variance of a gradient's noise.

        Raises:
            ValueError: a given lr at which a batch's noise is more than the chain's own.
        """
        friction = self.momenta.get("alpha", 1.0)
        beta = self.temperature * (noise if self.beta is None else self.beta)
        if self.lr is None:
            return self.largest_step if beta == 0.0 else min(self.largest_step, friction / beta)
        if self.lr * beta > 2.0 * friction:
            raise ValueError(
                f"lr={self.lr} is too large: a batch's gradients are noisier than the chain itself "
                f"(β = {beta:.3g}); give at most {2.0 * friction / beta:.2g}, a larger "
                "batch_size, or leave lr out"
            )
        return self.lr

    def run(self, model: Any, rows: Columns, *, seed: int, progress: bool) -> GlobalDraws:
        """Draws of the global latents by the sampler, in chains.

        Raises:
            ValueError, TypeError: rows fewer than a batch, a program without global latents or with
                discrete ones, an lr too large for the noise of a batch.
            FloatingPointError: a chain that left the finite numbers.
            ImportError: `posteriors` is not installed.
        """
        bayes_library()
        target = LogPosterior(model, rows, seed, self.batch_size, self.objective)
        total = climbing_steps(self.climb) + self.warmup + self.samples * self.thin
        with target.stepping(seed, total, progress) as bar:
            start = ScaledStart.find(target, self.chains, self.climb, bar)
            # Burnt in, in two halves: scales and noise are measured again where the first ends.
            for steps in (self.warmup // 2, self.warmup - self.warmup // 2):
                state, update, _ = self._begun(start)
                for _ in range(steps):
                    state, _ = update(state, target.batches(self.chains), inplace=False)
                    bar.update()
                start = start.moved(state.params)
            drawn, stats = self._drawn(start, bar)
        arrays = {name: values.cpu().numpy() for name, values in stats.items()}
        return target.draws(self.name, start.unscaled(drawn), self.temperature, arrays)

    def _begun(self, start: ScaledStart) -> tuple[Any, Any, Callable[[Any], float]]:
        """A state, the function that makes a step of it, and the step size by step."""
        largest = self.rate(float(start.noise.max()))

        def lr(step: Any) -> float:
            if not self.cyclical:
                return largest
            return 0.5 * largest * (1.0 + math.cos(math.pi * (int(step) % self.thin) / self.thin))

        transform = getattr(bayes_library().sgmcmc, self.name.lower()).build(
            start.log_posterior,
            lr,
            beta=start.noise if self.beta is None else self.beta,
            temperature=self.temperature,
            **self.momenta,
        )
        return transform.init(start.vectors), transform.update, lr

    def _drawn(self, start: ScaledStart, bar: Any) -> tuple[Tensor, dict[str, Tensor]]:
        """v of each draw `(C, S, D)`, and statistics of each `(C, S)`."""
        state, update, lr = self._begun(start)
        drawn, log_posteriors = [], []
        for _ in range(self.samples):
            for _ in range(self.thin):
                state, log_posterior = update(
                    state, start.target.batches(self.chains), inplace=False
                )
                bar.update()
            if not bool(state.params.isfinite().all()):
                raise FloatingPointError(
                    f"{self.name} has left the finite numbers: give a smaller lr ({lr(0):.3g})"
                )
            drawn.append(state.params)
            log_posteriors.append(log_posterior)
        stats = {
            "step_size": torch.full((self.chains, self.samples), lr(self.thin - 1)),
            "minibatch_log_posterior": torch.stack(log_posteriors, 1).detach(),
        }
        return torch.stack(drawn, 1).detach(), stats


@dataclass(frozen=True, kw_only=True, eq=False)
class SGHMC(StochasticGradientSampler):
    """Stochastic-gradient Hamiltonian Monte Carlo with cyclical steps, by `posteriors`.

    From unconstrained globals u = A v, in whose v posterior sds are about 1, and momenta m
    (Chen et al. 2014, eq. 15)

        v ← v + ε m / σ²
        m ← m + ε ∇ log p̂(v) − ε α m / σ² + N(0, ε T (2α − ε β T)),

    where `log p̂ = log p(θ) + log |dθ/du| + N/B Σ_batch ℒ_n`, ℒ_n the exact log-likelihood where at
    most 256 masks are summed over and nothing else is drawn; else a lower bound, and what is
    sampled is the posterior of `exp(Σ ℒ_n)`, as the record's note says. Parameters without a prior
    stay.

    Before each draw ε falls from its largest to 0 as half a cosine (Zhang et al. 2020), as the bias
    of a step is of order ε. Strong correlations slow the chains down: look at `az.ess`.

    Args:
        samples: S a chain.
        chains: C, each from a start of its own, run at once.
        warmup: steps after the climb that are thrown away.
        thin: steps before each draw, a cycle of ε.
        climb: steps of Adam to a mode, and half as many more once scales are known.
        batch_size: B, with replacement; None for a tenth of the rows, at least 100.
        lr: the largest ε, in (0, 2α/β); None for 0.15, or less where a batch is noisy.
        alpha: α > 0, friction.
        beta: β ≥ 0, the variance of a gradient's noise in units of v; None to measure it.
        sigma: σ > 0, the momenta's sd.
        temperature: T > 0; only T = 1 samples the posterior.
        cyclical: False for a constant ε = lr, and the bias of it.
        objective: the bound ℒ, such as `NestedIWAE(masks=50)`; None to choose.

    Raises:
        ValueError, TypeError: a number outside its range.

    Example:
        >>> SGHMC(samples=100, lr=0.1).alpha
        2.0

    Reference:
        Chen, Fox, Guestrin. Stochastic gradient Hamiltonian Monte Carlo. ICML 2014.
        Zhang et al. Cyclical stochastic gradient MCMC for Bayesian deep learning. ICLR 2020.
    """

    alpha: float = 2.0
    sigma: float = 1.0

    name: ClassVar[str] = "SGHMC"
    largest_step: ClassVar[float] = 0.15

    @property
    def momenta(self) -> dict[str, float]:
        return {"alpha": self.alpha, "sigma": self.sigma}


@dataclass(frozen=True, kw_only=True, eq=False)
class SGLD(StochasticGradientSampler):
    """Stochastic-gradient Langevin dynamics with cyclical steps, by `posteriors`.

    As :class:`SGHMC`, with its arguments, v and `log p̂`, without momenta (Welling & Teh 2011, eq.
    4)

        v ← v + ε ∇ log p̂(v) + N(0, ε T (2 − ε β T)).

    Args:
        lr: the largest ε, in (0, 2/β); None for 0.1, or less where a batch is noisy.

    Raises:
        ValueError, TypeError: a number outside its range.

    Example:
        >>> SGLD(samples=100, thin=20).chains
        4

    Reference:
        Welling, Teh. Bayesian learning via stochastic gradient Langevin dynamics. ICML 2011.
    """

    name: ClassVar[str] = "SGLD"
    largest_step: ClassVar[float] = 0.1


NEWTON_STEPS = 20
CLOSE = 0.01  # A mode is found where Newton's step is shorter, in posterior sds
FAR = 0.5  # The climb warns of a mode that is farther, in posterior sds
NUMBERS = 2**24  # Of gradients by row that are held at once
AT_ONCE = 64  # Rows of a Hessian that are computed together
MOST_DENSE = 2048  # Coordinates of a dense Hessian
STARTS = 4  # Climbs of a diagonal VI, of which it goes on from the highest


@dataclass(frozen=True, kw_only=True, eq=False)
class Laplace(_Climbing):
    """Laplace's approximation: a normal distribution at the mode.

    With û a mode of `log p(θ) + log |dθ/du| + Σ_n ℒ_n` in unconstrained globals u,

        u ~ N(û, H⁻¹),    H the negative Hessian there (MacKay 1992);

    diagonal, `H ≈ diag(−∂² log p / ∂u_i² + Σ_n (∂ℒ_n / ∂u_i)²)`, the empirical Fisher information
    of the rows (by `posteriors`): sds are too small where coordinates are correlated. The draws are
    independent, one chain of them; of several modes there is the highest that was found.

    Args:
        samples: S.
        diagonal: leave correlations out, for networks.
        starts: climbs, each from a draw of the prior.
        climb: steps of Adam of each, and three times half as many once scales are known.
        batch_size: of the climbs; None for all rows.
        objective: the bound ℒ; None to choose. A dense Hessian needs the exact log-likelihood; with
            drawn masks the diagonal is too large, and the sds too small.

    Raises:
        ValueError, TypeError: a number outside its range.

    Example:
        >>> Laplace(diagonal=True).samples
        1000

    Reference:
        MacKay. A practical Bayesian framework for backpropagation networks. Neural Computation
        1992. Daxberger et al. Laplace redux. NeurIPS 2021.
    """

    samples: int = 1000
    diagonal: bool = False
    starts: int = 4

    least = MappingProxyType({"samples": 1, "starts": 1, "climb": 1})

    def run(self, model: Any, rows: Columns, *, seed: int, progress: bool) -> GlobalDraws:
        """Draws of the global latents from the normal approximation.

        Raises:
            ValueError, TypeError: rows fewer than a batch, no global latents or discrete ones; for
                a dense Hessian masks that are drawn, or more than 2,048 coordinates.
            FloatingPointError: no mode found, or none there is.
            ImportError: `posteriors`, which the diagonal is by, is not installed.
        """
        if self.diagonal:
            bayes_library()
        size = len(rows[0]) if self.batch_size is None else self.batch_size
        target = LogPosterior(model, rows, seed, size, self.objective)
        if not self.diagonal and not target.exact:
            raise ValueError(
                "a dense Laplace needs the exact log-likelihood, and masks or imputations of this "
                "program are drawn: give one with at most 256 masks and imputations that are not "
                "random, or use Laplace(diagonal=True) or SGHMC()"
            )
        if not self.diagonal and target.dimensions > MOST_DENSE:
            raise ValueError(
                f"a dense Hessian of {target.dimensions} coordinates is too large (at most "
                f"{MOST_DENSE}): use Laplace(diagonal=True) or SGHMC()"
            )
        with target.stepping(seed, climbing_steps(self.climb), progress) as bar:
            start = ScaledStart.find(target, self.starts, self.climb, bar).highest()
            place = start.unscaled(start.vectors)[0]
            vectors = (_diagonal if self.diagonal else _dense)(target, place, self.samples)
        name = f"{'diagonal' if self.diagonal else 'dense'} Laplace"
        return target.draws(name, vectors.unsqueeze(0))


def _dense(target: LogPosterior, place: Tensor, draws: int) -> Tensor:
    """Newton's steps to the mode, and draws about it, `(S, D)`."""
    density = partial(target.of_batch, batch=target.rows)
    gradient = torch.func.grad(density)
    for _ in range(NEWTON_STEPS):
        # In float64 from here on: a root and an inverse add no rounding of their own.
        precision = -_second(gradient, place, lambda row, _: row).double()
        precision = 0.5 * (precision + precision.mT)
        root, failed = torch.linalg.cholesky_ex(precision)
        if bool(failed):
            least = float(torch.linalg.eigvalsh(precision)[0])
            raise FloatingPointError(
                "the log posterior has no maximum where the climb ended (its least curvature is "
                f"{least:.3g}): a larger climb or more starts may find one; weights that are free "
                "to change places or signs have none, for which Laplace(diagonal=True) or SGHMC() "
                "is"
            )
        step = gradient(place).double()
        move = torch.cholesky_solve(step.unsqueeze(-1), root).squeeze(-1)
        if float((step * move).sum().clamp_min(0.0).sqrt()) < CLOSE:
            normal = torch.distributions.MultivariateNormal(
                place.double(), precision_matrix=precision
            )
            return normal.sample((draws,)).to(place)
        # A whole step overshoots where a logistic curve is flat: the first that does not go down.
        places = [place + 0.5**halvings * move.to(place) for halvings in range(NEWTON_STEPS)]
        with torch.no_grad():
            here = density(place)
            place = next((other for other in places if density(other) >= here), places[0])
    raise FloatingPointError(
        f"no mode found in {NEWTON_STEPS} steps of Newton: give a larger climb or more starts"
    )


def _diagonal(target: LogPosterior, place: Tensor, draws: int) -> Tensor:
    """Draws about the mode with the empirical Fisher information, `(S, D)`."""
    each_row = torch.func.vmap(
        lambda vector, *row: target.log_likelihood(vector, tuple(c.unsqueeze(0) for c in row)),
        in_dims=(None, *(0 for _ in target.rows)),
        randomness="different",
    )

    def log_likelihoods(vector: Tensor, batch: Columns) -> tuple[Tensor, Tensor]:
        values = each_row(vector, *batch)
        return values, torch.zeros_like(values)

    curvature = -_second(torch.func.grad(target.log_prior), place, lambda row, unit: row @ unit)
    transform = bayes_library().laplace.diag_fisher.build(
        log_likelihoods, per_sample=True, init_prec_diag=curvature.clamp_min(0.0)
    )
    state = transform.init(place)
    size = max(1, NUMBERS // target.dimensions)
    for first in range(0, len(target), size):
        batch = tuple(column[first : first + size] for column in target.rows)
        state, _ = transform.update(state, batch, inplace=False)
    gradient = torch.func.grad(lambda vector: target.of_batch(vector, target.rows))(place)
    distance = float((gradient.square() / state.prec_diag).mean().sqrt())
    if not distance < FAR:
        warnings.warn(
            f"the climb ended about {distance:.2g} posterior sds from a mode, and the draws stand "
            "about where it ended: give a larger climb",
            stacklevel=4,
        )
    noise = torch.randn(draws, *place.shape, dtype=place.dtype, device=place.device)
    return place + state.prec_diag.rsqrt() * noise


def _second(
    gradient: Callable[[Tensor], Tensor], place: Tensor, part: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """A part of each row of a Hessian at u `(D,)`, by reverse mode, of the row and its unit."""
    pull: Any = torch.func.vjp(gradient, place)[1]
    eye = torch.eye(len(place), dtype=place.dtype, device=place.device)
    rows = torch.func.vmap(lambda unit: part(pull(unit)[0], unit), chunk_size=AT_ONCE)
    return rows(eye).detach()


@dataclass(frozen=True, kw_only=True, eq=False)
class DiagonalVI(_Climbing):
    """Variational inference by `posteriors`, with a normal distribution for each coordinate.

    Of unconstrained globals u, `q = N(μ, diag(σ²))` minimises, by one draw of q a step,

        KL(q ‖ p_T),    p_T ∝ exp(log p̂ / T),    log p̂ = log p(θ) + log |dθ/du| + N/B Σ ℒ_n.

    Correlations are left out: sds are those of one coordinate while the others stay.

    Args:
        samples: S, independent ones of q.
        steps: of Adam.
        climb: steps of Adam to a mode, and three times half as many once scales are known.
        batch_size: B; None for a tenth of the rows, at least 100.
        lr: Adam's first rate, in posterior sds; it falls to 0 as a cosine.
        temperature: T > 0; T = 1 for the posterior.
        stl: leave the score of q out of the gradient (Roeder et al. 2017).
        objective: the bound ℒ; None to choose, as for :class:`SGHMC`.

    Raises:
        ValueError, TypeError: a number outside its range.

    Example:
        >>> DiagonalVI(steps=500).lr
        0.05

    Reference:
        Roeder, Wu, Duvenaud. Sticking the landing. NeurIPS 2017.
    """

    samples: int = 1000
    steps: int = 2000
    lr: float = 0.05
    temperature: float = 1.0
    stl: bool = True

    least = MappingProxyType({"samples": 1, "steps": 1, "climb": 0})

    def run(self, model: Any, rows: Columns, *, seed: int, progress: bool) -> GlobalDraws:
        """Draws of the global latents from the normal approximation.

        Raises:
            ValueError, TypeError: rows fewer than a batch, no global latents or discrete ones.
            FloatingPointError: a fit that left the finite numbers.
            ImportError: `posteriors` is not installed.
        """
        library = bayes_library()
        target = LogPosterior(model, rows, seed, self.batch_size, self.objective)
        with target.stepping(seed, climbing_steps(self.climb) + self.steps, progress) as bar:
            start = ScaledStart.find(target, STARTS, self.climb, bar).highest()

            def rate(step: Any) -> float:
                done = min(1.0, float(step) / self.steps)
                return 0.5 * self.lr * (1.0 + math.cos(math.pi * done))

            transform = library.vi.diag.build(
                lambda vector, batch: start.log_posterior(vector.unsqueeze(0), batch),
                bayes_library("torchopt").adam(lr=rate),
                temperature=self.temperature,
                stl=self.stl,
            )
            state = transform.init(start.vectors[0])
            for _ in range(self.steps):
                state, _ = transform.update(state, target.batches(1), inplace=False)
                bar.update()
            noise = torch.randn(self.samples, *state.params.shape).to(state.params)
            vectors = state.params + noise * state.log_sd_diag.exp()
        if not bool(vectors.isfinite().all()):
            raise FloatingPointError("the fit has left the finite numbers: give a smaller lr")
        unscaled = start.unscaled(vectors).unsqueeze(0)
        return target.draws("diagonal VI", unscaled, self.temperature)


@dataclass(frozen=True, kw_only=True, eq=False)
class Ensemble(_Climbing):
    """A deep ensemble: R maxima a posteriori, each climbed to from a draw of the prior.

    Each member maximises `log p(θ) + log |dθ/du| + Σ_n ℒ_n` in unconstrained globals u; they stand
    as draws of one chain. About one mode their spread says nothing of its width.

    Args:
        members: R.
        climb: steps of Adam of each, and three times half as many once scales are known.
        batch_size: B, of each member's own rows; None for a tenth of the rows, at least 100.
        objective: the bound ℒ; None to choose, as for :class:`SGHMC`.

    Raises:
        ValueError, TypeError: a number outside its range.

    Example:
        >>> Ensemble(members=5).climb
        1000

    Reference:
        Lakshminarayanan, Pritzel, Blundell. Simple and scalable predictive uncertainty estimation
        using deep ensembles. NeurIPS 2017.
    """

    members: int = 10
    climb: int = 1000

    least = MappingProxyType({"members": 2, "climb": 1})

    def run(self, model: Any, rows: Columns, *, seed: int, progress: bool) -> GlobalDraws:
        """Modes that the members reach, as draws.

        Raises:
            ValueError, TypeError: rows fewer than a batch, no global latents or discrete ones.
        """
        target = LogPosterior(model, rows, seed, self.batch_size, self.objective)
        with target.stepping(seed, climbing_steps(self.climb), progress) as bar:
            start = ScaledStart.find(target, self.members, self.climb, bar)
        return target.draws("deep ensemble", start.unscaled(start.vectors).unsqueeze(0))
