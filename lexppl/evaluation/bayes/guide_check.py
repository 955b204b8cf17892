"""Checks of fitted guides by their importance weights: Pareto k̂, effective draws, KL."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import logsumexp
from torch import Tensor

from lexppl.argument_checks import int_at_least
from lexppl.arviz_compatibility import pareto_smoothed
from lexppl.evaluation.bayes.mask_table import log_joint, mask_table
from lexppl.evaluation.bayes.simulated import check_fit, check_rows, guide_draws, seeds_of
from lexppl.inference.predictive import drawing
from lexppl.inference.training.result import FitResult
from lexppl.summary import Summarised, Summary, counted

HIGHEST_K = 0.7
MOST_LISTED = 4_096
DRAWN_MASKS = 1_000


class GuideWarning(UserWarning):
    """A fitted guide that is not near the posterior."""


@dataclass(frozen=True, eq=False, repr=False)
class GuideCheck(Summarised):
    """Importance weights of fitted guides by replicate, see :func:`guide_check`: Pareto k̂ `k`,
    `ess` of the smoothed weights, `log_evidence` and `bound`, its ELBO, in nats, all `(R,)`,
    `log_weights` log p(y, θ | x) − log q(θ), `(R, S)`, `samples` of each by site, and how `masks`
    were treated."""

    k: np.ndarray
    ess: np.ndarray
    log_evidence: np.ndarray
    bound: np.ndarray
    log_weights: np.ndarray
    samples: list[dict[str, Tensor]]
    masks: str

    @property
    def highest_k(self) -> float:
        """Above which k̂ warns: `min(0.7, 1 − 1 / log₁₀ S)`."""
        return min(HIGHEST_K, 1.0 - 1.0 / math.log10(self.log_weights.shape[1]))

    @property
    def trusted(self) -> np.ndarray:
        """Whether k̂ is low enough, `(R,)`."""
        return self.k <= self.highest_k

    @property
    def table(self) -> pd.DataFrame:
        """One row a replicate: `k`, `ess`, `bound`, `log_evidence`, `gap` = KL(q ‖ posterior),
        `trusted`."""
        names = ("k", "ess", "bound", "log_evidence")
        table = pd.DataFrame({name: getattr(self, name) for name in names})
        table["gap"], table["trusted"] = self.log_evidence - self.bound, self.trusted
        return table.rename_axis("replicate")

    @property
    def warning(self) -> str | None:
        """Which guides do not cover the posterior, in words; None where all do."""
        bad = np.flatnonzero(~self.trusted)
        if not len(bad):
            return None
        worst = float(self.k[bad].max())
        return (
            f"the guide of {counted(len(bad), 'replicate')} of {len(self.k)} does not cover the "
            f"posterior: Pareto k̂ is {worst:.2f}, above {self.highest_k:.2f}, so its intervals are "
            "not to be trusted, nor means reweighted from it; fit longer or at a higher rate, take "
            "a richer guide, or sample by MCMC"
        )

    def summarised(self) -> Summary:
        def span(values: np.ndarray, digits: int) -> str:
            low, high = f"{values.min():.{digits}f}", f"{values.max():.{digits}f}"
            return low if low == high else f"{low} to {high}"

        lines = {
            "Pareto k̂": f"{span(self.k, 2)}, to be below {self.highest_k:.2f}",
            "ESS": f"{span(self.ess, 0)} of {self.log_weights.shape[1]}",
            "KL(q ‖ posterior)": f"about {span(self.log_evidence - self.bound, 2)} nats",
            "masks": self.masks,
            "verdict": self.warning or "covers the posterior",
        }
        return Summary(f"GuideCheck: {counted(len(self.k), 'replicate')}", lines)


def guide_check(
    result: FitResult,
    x: Tensor,
    y: Tensor,
    *,
    draws: int = 1000,
    masks: float | None = None,
    imputations: int = 1,
    seed: int = 0,
) -> GuideCheck:
    """Pareto k̂ of each fitted guide of latents that all rows share: is q(θ) near p(θ | x, y)?

        log w_s = log p(θ_s) + Σ_n log p(y_n | x_n, θ_s) − log q(θ_s),   θ_s ~ q,

    masks marginalised. k̂ is the shape of the weights' tail: below ½ their variance is finite;
    above 0.7 q misses part of the posterior, a `GuideWarning`, and its intervals are not to be
    trusted. A low k̂ says that q covers the posterior, be it too wide; how much so is KL(q ‖
    posterior), the gap between log-evidence and bound.

    Args:
        result: a fit with a guide of latents outside `mask_particles()`.
        x, y: **all rows that the guide learned from**, `(B, *event)` and `(B,)`: fit with
            `valid=None`.
        draws: S, at least 100.
        masks: `math.inf` to list all, L to draw so many; None to list up to 4,096 and else to draw
            1,000. Drawn ones lower log w and add noise: k̂ is then rather too high.
        imputations: K.

    Raises:
        ValueError: no guide, one that puts θ at a point or gives stored draws, other rows than
            those learned from, weighted rows, a program without a likelihood.

    Source: Yao, Vehtari, Simpson and Gelman (2018); Vehtari et al. (2024) for the threshold.

    Example:
        >>> import torch
        >>> from lexppl.inference import fit
        >>> from lexppl.models import MLP, CategoricalLikelihood, Predictor
        >>> from lexppl.systems import q_fit
        >>> x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> given = Predictor(MLP(3, 2, (8,), seed=0), CategoricalLikelihood())
        >>> system = q_fit(3, given, scope="global")
        >>> result = fit(system, (x, y), valid=None, epochs=200, learning_rate=0.1, progress=False)
        >>> guide_check(result, x, y).masks
        'all listed'
    """
    draws = int_at_least("draws", draws, 100)
    seed = int_at_least("seed", seed, 0)
    check_rows(x)
    if result.sampler is not None or result.row_weights is not None:
        raise ValueError(
            f"draws of {result.sampler.name} have no density to be weighed by: look at r̂ and the "
            "effective sample size, or at calibration()"
            if result.sampler is not None
            else f"the rows had weights ({result.row_weights}); check a fit without"
        )
    check_fit(result, x, y)
    if masks is None:
        masks = _listable(result.models[0], x, y, result.guides[0])
    every, rows = [], []
    seeds = seeds_of(seed, 0, result.replicates)
    for model, guide, seed in zip(result.models, result.guides, seeds, strict=True):
        samples, log_q = guide_draws(guide, (x, y), draws, seed)
        if all(bool((v == v[:1]).all()) for v in samples.values()):
            raise ValueError("the guide is a point; take one with a density, as AutoNormal")
        joint = log_joint(model, x, y, samples, masks=masks, imputations=imputations, seed=seed)
        every.append(samples)
        rows.append((joint - log_q).cpu().numpy())
    weights = np.stack(rows)
    if np.isnan(weights).any():
        raise FloatingPointError("some importance weights are NaN: the guide left θ's support")
    smoothed, k = pareto_smoothed(weights)
    check = GuideCheck(
        k=k,
        ess=1.0 / np.exp(2 * smoothed).sum(1),
        log_evidence=logsumexp(weights, 1) - math.log(draws),
        bound=weights.mean(1),
        log_weights=weights,
        samples=every,
        masks="all listed" if masks == math.inf else f"{int(masks)} drawn",
    )
    if check.warning:
        warnings.warn(check.warning, GuideWarning, stacklevel=2)
    return check


def _listable(model: Any, x: Tensor, y: Tensor, guide: Any) -> float:
    samples, _ = guide_draws(guide, (x[:1], y[:1]), 1, 0)
    at = {name: values[0] for name, values in samples.items()}
    try:
        with drawing(0, x.device):
            table = mask_table(model, x[:1], y[:1], at)
    except ValueError as error:
        if "masks" not in str(error):
            raise
        return DRAWN_MASKS
    return math.inf if len(table.masks) <= MOST_LISTED else DRAWN_MASKS
