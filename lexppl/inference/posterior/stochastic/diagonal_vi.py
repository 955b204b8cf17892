"""Variational inference with independent normal distributions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lexppl.argument_checks import finite_float, int_at_least
from lexppl.inference.nested_iwae import NestedIWAE
from lexppl.inference.posterior.global_draws import GlobalDraws, SamplerRecord
from lexppl.inference.posterior.stochastic.bayes_extra import bayes_library
from lexppl.inference.posterior.stochastic.log_posterior import LogPosterior
from lexppl.inference.posterior.stochastic.run import check_bound, stepping
from lexppl.inference.posterior.stochastic.scaled_start import ScaledStart, climbing_steps

STARTS = 4
"""Climbs, of which the highest is gone on from."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DiagonalVI:
    """Variational inference by `posteriors`, with a normal distribution for each coordinate.

    Of unconstrained globals u, `q = N(μ, diag(σ²))` minimises

        KL(q ‖ p_T),    p_T ∝ exp(log p̂ / T),    log p̂ = log p(θ) + log |dθ/du| + N/B Σ ℒ_n,

    by one draw of q a step (Roeder et al. 2017 where `stl`). It leaves correlations out: a sd is
    that of one coordinate while the others stay, too small by `√(1 − R²)` where the others tell of
    it. `fit(guide=AutoNormal)` fits the same family, and parameters without a prior along with it.

    Args:
        samples: S, independent ones of q.
        steps: of Adam.
        climb: steps of Adam to a mode, and three times half as many once scales are known.
        batch_size: B; None for a tenth of the rows, at least 100.
        lr: Adam's first rate, in posterior sds; it falls to 0 as a cosine.
        temperature: T > 0; T = 1 for the posterior.
        stl: leave the score of q out of the gradient, which is noiseless at a normal posterior.
        objective: the bound ℒ; None to choose, as for :class:`SGHMC`.

    Raises:
        ValueError, TypeError: a number outside its range.

    Example:
        >>> DiagonalVI(steps=500).lr
        0.05

    Reference:
        Blei, Kucukelbir, McAuliffe. Variational inference: a review for statisticians. JASA 2017.
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
        for name in ("samples", "steps"):
            int_at_least(name, getattr(self, name))
        int_at_least("climb", self.climb, 0)
        finite_float("lr", self.lr, above=0.0)
        finite_float("temperature", self.temperature, above=0.0)
        check_bound(self.batch_size, self.objective)

    def run(
        self, model: Any, rows: tuple[Tensor, ...], *, seed: int, progress: bool
    ) -> GlobalDraws:
        """Draw; see :class:`lexppl.inference.posterior.global_draws.PosteriorInference`.

        Raises:
            ValueError, TypeError: rows fewer than a batch, a program without global latents or with
                discrete ones.
            FloatingPointError: a fit that left the finite numbers.
            ImportError: `posteriors` is not installed.
        """
        bayes_library()
        target = LogPosterior.of(model, rows, seed, self.batch_size, self.objective)
        with stepping(target, seed, climbing_steps(self.climb) + self.steps, progress) as bar:
            start = ScaledStart.find(target, STARTS, self.climb, bar).highest()
            state = self._fitted(start, bar)
            noise = torch.randn(self.samples, *state.params.shape).to(state.params)
            vectors = state.params + noise * state.log_sd_diag.exp()
        if not bool(vectors.isfinite().all()):
            raise FloatingPointError("the fit has left the finite numbers: give a smaller lr")
        samples = target.sites.samples(start.unscaled(vectors).unsqueeze(0))
        tempered = "" if self.temperature == 1.0 else f" at temperature {self.temperature:g}"
        record = SamplerRecord(f"diagonal VI{tempered}", are_chains=False, note=target.note)
        return GlobalDraws(samples, record, target.model)

    def _fitted(self, start: ScaledStart, bar: Any) -> Any:
        """The state after all steps, of v."""

        def log_posterior(vector: Tensor, batch: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
            return start.log_posterior(vector.unsqueeze(0), batch)

        def rate(step: Any) -> float:
            return 0.5 * self.lr * (1.0 + math.cos(math.pi * min(1.0, float(step) / self.steps)))

        transform = bayes_library().vi.diag.build(
            log_posterior,
            bayes_library("torchopt").adam(lr=rate),
            temperature=self.temperature,
            stl=self.stl,
        )
        state = transform.init(start.vectors[0])
        for _ in range(self.steps):
            state, _ = transform.update(state, start.target.batches(1), inplace=False)
            bar.update()
        return state
