"""Posteriors about modes of the log posterior: Laplace, diagonal VI, deep ensembles."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

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

NEWTON_STEPS = 20
CLOSE = 0.01
"""A mode is found where Newton's step is shorter, in posterior sds."""
FAR = 0.5
"""The climb warns of a mode that is farther, in posterior sds."""
NUMBERS = 2**24
"""Of gradients by row that are held at once."""
AT_ONCE = 64
"""Rows of a Hessian that are computed together."""
MOST_DENSE = 2048
"""Coordinates of a dense Hessian."""
STARTS = 4
"""Climbs of a diagonal VI, of which it goes on from the highest."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Laplace:
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
    climb: int = 400
    batch_size: int | None = None
    objective: NestedIWAE | None = None

    def __post_init__(self) -> None:
        check_settings(self, samples=1, starts=1, climb=1)

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
            place = next((each for each in places if density(each) >= here), places[0])
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
class DiagonalVI:
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
    climb: int = 400
    batch_size: int | None = None
    lr: float = 0.05
    temperature: float = 1.0
    stl: bool = True
    objective: NestedIWAE | None = None

    def __post_init__(self) -> None:
        check_settings(self, samples=1, steps=1, climb=0)

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
class Ensemble:
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
    batch_size: int | None = None
    objective: NestedIWAE | None = None

    def __post_init__(self) -> None:
        check_settings(self, members=2, climb=1)

    def run(self, model: Any, rows: Columns, *, seed: int, progress: bool) -> GlobalDraws:
        """Modes that the members reach, as draws.

        Raises:
            ValueError, TypeError: rows fewer than a batch, no global latents or discrete ones.
        """
        target = LogPosterior(model, rows, seed, self.batch_size, self.objective)
        with target.stepping(seed, climbing_steps(self.climb), progress) as bar:
            start = ScaledStart.find(target, self.members, self.climb, bar)
        return target.draws("deep ensemble", start.unscaled(start.vectors).unsqueeze(0))
