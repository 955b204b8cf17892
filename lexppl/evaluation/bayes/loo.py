"""Leave-one-out log scores of an explainer, with masks summed out."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from scipy.special import logsumexp
from torch import Tensor

from lexppl.argument_checks import int_at_least, shaped
from lexppl.arviz_compatibility import Posterior, pareto_smoothed, posterior_of
from lexppl.evaluation.bayes.mask_table import log_prior, row_log_likelihood
from lexppl.evaluation.bayes.simulated import (
    check_fit,
    check_rows,
    guide_draws,
    parts_of_program,
    seeds_of,
)
from lexppl.inference.posterior.global_draws import Samples
from lexppl.inference.predictive import sampled_masks
from lexppl.inference.training.result import FitResult
from lexppl.summary import Summarised, Summary, counted

HIGHEST_K = 0.7
Refit = Callable[[Tensor, Tensor, int], Samples]
"""From x, y and a seed to posterior draws of the shared latents, by site `(S, *event)`."""


@dataclass(frozen=True, eq=False, repr=False)
class Loo(Summarised):
    """Leave-one-out log scores in nats, see :func:`loo`: `pointwise` log p(y_n | x_n, y_−n) and
    Pareto k̂ `k`, −∞ of the rows `refitted`, `(B,)`; and the `log_likelihood` of draws, `(S,
    B)`."""

    pointwise: np.ndarray
    k: np.ndarray
    log_likelihood: np.ndarray
    refitted: tuple[int, ...] = ()

    @property
    def elpd(self) -> float:
        """The sum over rows, the expected log predictive density, in nats."""
        return float(self.pointwise.sum())

    @property
    def error(self) -> float:
        """Its standard error over rows, `√B sd`."""
        return float(np.sqrt(len(self.pointwise)) * self.pointwise.std(ddof=1))

    @property
    def high(self) -> np.ndarray:
        """The rows whose k̂ is above 0.7, whose scores are not to be trusted: see :func:`reloo`."""
        return np.flatnonzero(self.k > HIGHEST_K)

    def less(self, other: Loo) -> tuple[float, float]:
        """The difference to another model's `elpd` on the same rows, and its paired error."""
        shaped("pointwise", other.pointwise, self.pointwise.shape)
        apart = self.pointwise - other.pointwise
        return float(apart.sum()), float(np.sqrt(len(apart)) * apart.std(ddof=1))

    def posterior(self) -> Posterior:
        """The log-likelihood as ArviZ has it, one chain; refitted rows as their draws had them."""
        values = (("chain", "draw", "row"), self.log_likelihood[None])
        total = (("chain", "draw"), self.log_likelihood.sum(-1)[None])
        return posterior_of(
            {
                "posterior": xr.Dataset({"log_likelihood_sum": total}),
                "log_likelihood": xr.Dataset({"y": values}),
            },
            {"inference_library": "lexppl"},
        )

    def summarised(self) -> Summary:
        high = len(self.high)
        lines = {
            "elpd": f"{self.elpd:.2f} ± {self.error:.2f} nats",
            "rows": counted(len(self.pointwise), "row"),
            "k̂ above 0.7": f"{high}; leave them out by reloo()" if high else "none",
            "refitted": counted(len(self.refitted), "row") if self.refitted else None,
        }
        return Summary("Leave-one-out", lines)


class LooWarning(UserWarning):
    """Rows whose leave-one-out score is not to be trusted."""


def loo(
    program: Any,
    x: Tensor,
    y: Tensor,
    samples: Samples | None = None,
    *,
    draws: int = 1000,
    masks: float = math.inf,
    imputations: int = 1,
    seed: int = 0,
) -> Loo:
    """Leave-one-out log scores by Pareto-smoothed importance sampling.

    Use it to compare models by how well they predict rows which they have not seen, from one fit
    each. :func:`compare_loo` puts several side by side.

    Example:
        >>> import pyro, pyro.distributions as dist
        >>> def program(x, y=None):
        ...     mean = pyro.sample("mean", dist.Normal(0.0, 1.0))
        ...     with pyro.plate("data", len(x)):
        ...         pyro.sample("y", dist.Normal(mean, 1.0), obs=y)
        >>> drawn = torch.randn(1000, generator=torch.Generator().manual_seed(0)) / 2
        >>> loo(program, torch.zeros(3, 1), torch.zeros(3), {"mean": drawn}).pointwise.shape
        (3,)

    The score of row n is

        log p(y_n | x_n, y_−n) ≈ log Σ_s w̃_ns p(y_n | x_n, θ_s) / Σ_s w̃_ns,
        w_ns = p(θ_s, y | x) / q(θ_s) / p(y_n | x_n, θ_s),

    θ the latents that all rows share and p(y_n | x_n, θ) **marginal over the row's own masks**, as
    a mask drawn given y_n has seen y_n. Draws of the posterior have `p(θ, y) / q = 1`; those of a
    guide are weighed, so that k̂ speaks of the guide too; rows whose k̂ is above 0.7 are a
    `LooWarning`.

    Args:
        program: a fit with a guide or with a sampler's draws; or a program, with `samples`.
        x, y: **all rows learned from**, `(B, *event)`, and their labels or responses, `(B,)`.
        samples: posterior draws by site, `(S, *event)`, of a program.
        draws: S, where they are of a fit's guide.
        masks: `math.inf` to list all of a row, or L to draw.
        imputations: K.

    Raises:
        ValueError: a program without samples, samples beside a fit, a fit without global latents or
            of several guides, rows unlike those learned from.

    Source: Vehtari, Gelman and Gabry (2017); Magnusson, Andersen, Jonasson and Vehtari (2019).
    """
    draws = int_at_least("draws", draws, 100)
    check_rows(x)
    draw_seed = seeds_of(seed, 0, 1)[0]
    options: dict[str, Any] = {"masks": masks, "imputations": imputations, "seed": draw_seed}
    log_q = None
    if isinstance(program, FitResult):
        if samples is not None:
            raise ValueError("a fit has draws of its own; leave samples out, or give its program")
        check_fit(program, x, y)
        model = program.models[0]
        if program.sampler is not None:
            sites = [guide.sites for guide in program.guides]
            samples = {name: torch.cat([by_chain[name] for by_chain in sites]) for name in sites[0]}
        elif program.replicates > 1:
            raise ValueError(f"there are {program.replicates} replicates; give result.subset([r])")
        else:
            samples, log_q = guide_draws(program.guides[0], (x, y), draws, draw_seed)
    elif samples is None:
        raise ValueError("loo of a program needs posterior draws of its latents: samples=")
    else:
        model = parts_of_program(program).model
    sampled = isinstance(program, FitResult) and sampled_masks(program.guides[0])
    if not sampled:
        likelihood = row_log_likelihood(model, x, y, samples, **options).double()
    if sampled or likelihood.shape[-1] != len(x):
        raise ValueError(
            "rows share a mask, which would be left out with a row: explain(program, x, y) has "
            "draws of it, and arviz.loo reads its log_likelihood"
        )
    ratio = torch.zeros(len(likelihood), dtype=torch.float64)
    if log_q is not None:
        ratio = likelihood.sum(-1) + log_prior(model, x, y, samples) - log_q
    likelihoods, log_ratio = likelihood.cpu().numpy(), ratio.double().cpu().numpy()
    weights, k = pareto_smoothed((log_ratio[:, None] - likelihoods).T)
    scores = Loo(logsumexp(weights + likelihoods.T, axis=-1), k, likelihoods)
    if len(scores.high):
        warnings.warn(
            f"{len(scores.high)} of {len(x)} rows have a Pareto k̂ above {HIGHEST_K}, and their "
            "scores are not to be trusted: leave them out by refits, reloo()",
            LooWarning,
            stacklevel=2,
        )
    return scores


def reloo(
    found: Loo,
    program: Any,
    x: Tensor,
    y: Tensor,
    refit: Refit,
    *,
    rows: Any = None,
    masks: float = math.inf,
    imputations: int = 1,
    seed: int = 0,
) -> Loo:
    """Leave rows out by refits, by default those whose k̂ is above 0.7, and keep the others'
    scores:

        log p(y_n | x_n, y_−n) = log 1/S Σ_s p(y_n | x_n, θ_s),    θ_s ~ p(θ | x_−n, y_−n).

    Args:
        found: of :func:`loo`, on these rows.
        program, x, y, masks, imputations: as in :func:`loo`.
        refit: from x, y and a seed to posterior draws by site.
        rows: to leave out; None for those of high k̂.

    Example:
        >>> import pyro, pyro.distributions as dist
        >>> def program(x, y=None):
        ...     mean = pyro.sample("mean", dist.Normal(0.0, 1.0))
        ...     with pyro.plate("data", len(x)):
        ...         pyro.sample("y", dist.Normal(mean, 1.0), obs=y)
        >>> def refit(x, y, seed):
        ...     noise = torch.randn(500, generator=torch.Generator().manual_seed(seed))
        ...     return {"mean": y.sum() / (1 + len(y)) + noise * (1 + len(y)) ** -0.5}
        >>> x, y = torch.zeros(3, 1), torch.tensor([0.0, 1.0, 5.0])
        >>> reloo(loo(program, x, y, refit(x, y, 0)), program, x, y, refit, rows=[2]).refitted
        (2,)
    """
    shaped("x", x, (len(found.pointwise), "…"), note="as found")
    left_out = [int(row) for row in (found.high if rows is None else rows)]
    model = parts_of_program(program).model
    pointwise, k = found.pointwise.copy(), found.k.copy()
    for row, refit_seed in zip(left_out, seeds_of(seed, 3, len(left_out)), strict=True):
        others = torch.arange(len(x)) != row
        samples = refit(x[others], y[others], refit_seed)
        place = slice(row, row + 1)
        likelihood = row_log_likelihood(
            model,
            x[place],
            y[place],
            samples,
            masks=masks,
            imputations=imputations,
            seed=refit_seed,
        )
        pointwise[row] = float(torch.logsumexp(likelihood.double(), 0)) - math.log(len(likelihood))
        k[row] = -np.inf
    refitted = tuple(sorted({*found.refitted, *left_out}))
    return replace(found, pointwise=pointwise, k=k, refitted=refitted)


def compare_loo(models: dict[str, Loo]) -> pd.DataFrame:
    """Models on the same rows, the best first: `elpd`, its `error`, how far `behind` the best with
    the `behind_error` over rows in pairs, and `high_k`, the number of rows not to be trusted.

    Raises:
        ValueError: no models, or other rows.

    Example:
        >>> one = Loo(np.array([-1.0, -2.0]), np.zeros(2), np.zeros((5, 2)))
        >>> other = Loo(np.array([-1.5, -3.0]), np.zeros(2), np.zeros((5, 2)))
        >>> compare_loo({"b": other, "a": one})["behind"].to_dict()
        {'a': 0.0, 'b': 1.5}
    """
    if not models:
        raise ValueError("compare_loo takes at least one model")
    best = max(models.values(), key=lambda scores: scores.elpd)
    rows = {
        n: (scores.elpd, scores.error, *best.less(scores), len(scores.high))
        for n, scores in models.items()
    }
    columns = ["elpd", "error", "behind", "behind_error", "high_k"]
    table = pd.DataFrame.from_dict(rows, "index", columns=columns).rename_axis("model")
    return table.sort_values("elpd", ascending=False, kind="stable")
