"""Whether rankings from several seeds agree, and how far a rank of their average can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import chi2, rankdata
from torch import Tensor

from lexppl.argument_checks import fraction, int_at_least, int_between
from lexppl.arviz_compatibility import Posterior
from lexppl.explanation.layout.mask_groups import masks_of


@dataclass(frozen=True)
class Concordance:
    """How far R rankings of G features agree: see :func:`kendall_w`.

    Args:
        w: Kendall's W, 0 (ranks that cancel) … 1 (identical); NaN where all rankings are all ties.
        chi_square: `R (G − 1) W`.
        degrees: `G − 1`, its degrees of freedom.
        p_value: of a χ² at least as large, were the rankings independent and each order as likely.
    """

    w: float
    chi_square: float
    degrees: int
    p_value: float


@dataclass(frozen=True)
class TopKAgreement:
    """How far the sets of the k highest agree, means over the pairs of rankings (and over rows).

    Args:
        jaccard: `|A ∩ B| / |A ∪ B|`.
        overlap: `|A ∩ B| / k`.
        chance: the overlap expected of two random sets, `k / G`.
    """

    jaccard: float
    overlap: float
    chance: float


def kendall_w(importances: Tensor | np.ndarray) -> Concordance:
    r"""Kendall's coefficient of concordance of R rankings, corrected for ties:

        W = (12 Σ_g S_g² − 3 R² G (G + 1)²) / (R² G (G² − 1) − R Σ_r T_r),    T_r = Σ_ties (t³ − t),

    with `S_g` the sum of feature g's ranks (ties at their mean rank) and t the sizes of a ranking's
    groups of ties. The mean Spearman correlation of all pairs is `(R W − 1)/(R − 1)` where nothing
    is tied, and W of independent rankings is 1/R in expectation. The χ² distribution of `R (G − 1)
    W` is an approximation, poor for G below about 7 with few rankings.

    Args:
        importances: larger is more important, `(R, G)`, R and G at least 2.

    Raises:
        ValueError: another shape, or values that are not finite.

    Source: Kendall and Babington Smith (1939), "The problem of m rankings", Annals of Mathematical
    Statistics 10; Siegel and Castellan (1988), Nonparametric statistics, for ties.

    Example:
        >>> kendall_w(np.array([[3.0, 2.0, 1.0], [0.9, 0.5, 0.1]])).w
        1.0
        >>> kendall_w(np.array([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]])).w
        0.0
    """
    values = _checked(importances, dims=2)
    count, features = values.shape
    ranks = rankdata(values, axis=1)
    tied = sum(float((sizes**3 - sizes).sum()) for sizes in map(_tie_sizes, values))
    above = 12 * (ranks.sum(0) ** 2).sum() - 3 * count**2 * features * (features + 1) ** 2
    below = count**2 * features * (features**2 - 1) - count * tied
    w = float(above / below) if below > 0 else float("nan")
    statistic = count * (features - 1) * w
    return Concordance(w, statistic, features - 1, float(chi2.sf(statistic, features - 1)))


def top_k_agreement(importances: Tensor | np.ndarray, k: int) -> TopKAgreement:
    """Agreement of the k highest features between replicates, over all pairs of them.

    Of equal features the one that stands first is taken first.

    Args:
        importances: larger is more important, `(R, G)`, or `(R, B, G)` for rankings of B rows that
            are compared row by row; R at least 2.
        k: size of the sets, 1 … G.

    Raises:
        ValueError: another shape, values that are not finite, k outside 1 … G.

    Example:
        >>> top_k_agreement(np.array([[3.0, 2.0, 1.0], [3.0, 1.0, 2.0]]), 2)
        TopKAgreement(jaccard=0.3333333333333333, overlap=0.5, chance=0.6666666666666666)
    """
    values = _checked(importances, dims=(2, 3))
    features = values.shape[-1]
    k = int_between("k", k, 1, features, note="the features")
    rows = values.reshape(len(values), -1, features)
    highest = np.argsort(-rows, axis=-1, kind="stable")[..., :k]
    kept = np.zeros(rows.shape, dtype=np.float64)
    np.put_along_axis(kept, highest, 1.0, axis=-1)
    first, second = np.triu_indices(len(rows), 1)
    common = np.einsum("rbg,sbg->rsb", kept, kept)[first, second]
    return TopKAgreement(
        jaccard=float((common / (2 * k - common)).mean()),
        overlap=float((common / k).mean()),
        chance=k / features,
    )


def importance_agreement(posterior: Posterior) -> pd.Series:
    """Whether replicates keep a feature as often: 1/r̂² of its `importance`, at most 1.

    A chain is a replicate of the fit, a draw's importance is its mask's mean over rows, and r̂ is
    ArviZ's (rank-normalised and split): 1 where replicates agree, towards 0 where they do not. It
    does not see replicates that keep it as often
    in different rows; :func:`lexppl.explanation.selection_table` does. NaN where a feature is kept
    as often in every draw, which leaves nothing to compare.

    Args:
        posterior: what :func:`lexppl.explain` returned, of two or more chains and four or more
            draws.

    Returns:
        pandas.Series: indexed by `feature`.

    Raises:
        TypeError, ValueError: not a posterior of `explain`, one chain, or too few draws.

    Source: Vehtari, Gelman, Simpson, Carpenter, Bürkner (2021), "Rank-normalization, folding, and
    localization: an improved R̂", Bayesian Analysis 16.

    Example:
        >>> import xarray as xr
        >>> from lexppl.arviz_compatibility import posterior_of
        >>> values = np.random.default_rng(0).normal(size=(2, 500, 2))
        >>> values[1, :, 1] += 9.0
        >>> draws = xr.Dataset({"importance": (("chain", "draw", "feature"), values)},
        ...     {"feature": ["age", "height"]})
        >>> importance_agreement(posterior_of({"predictions": draws}, {})).round(1).to_dict()
        {'age': 1.0, 'height': 0.3}
    """
    draws = masks_of(posterior)
    if "importance" not in draws:
        raise ValueError(
            f"the posterior has no variable 'importance'; it has {list(draws)}. Give one that "
            "explain() made"
        )
    importance = draws["importance"]
    sizes = importance.sizes
    if sizes["chain"] < 2 or sizes["draw"] < 4:
        raise ValueError(
            "agreement compares chains of draws: it needs 2 chains (fit with replicates=2 or more) "
            f"and 4 draws; there are {sizes['chain']} and {sizes['draw']}"
        )
    import arviz  # noqa: PLC0415 - slow, and not needed to import the library

    with np.errstate(invalid="ignore"):
        r_hat = arviz.rhat(importance.to_dataset(name="importance"))["importance"]
    agreement = (1.0 / r_hat.values**2).clip(max=1.0)
    names = importance["feature"].values
    return pd.Series(agreement, index=pd.Index(names, name="feature"), name="agreement")


def bootstrap_ranks(
    importances: Tensor | np.ndarray,
    *,
    size: int | None = None,
    draws: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    names: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Ranks of the average of `size` replicates, by the bootstrap over replicates.

    Each draw takes `size` of the R replicates with replacement, averages their importances, and
    ranks the features: rank 1 is the most important, ties have their mean rank.

    What the interval covers: how far the rank in an average of `size` seeds moves with the seeds,
    as far as R seeds can tell; their spread stands for that of all seeds and is too small by about
    (R − 1)/R. The data are the same in all replicates, so that it says nothing of another sample of
    rows; nor of whether the ranking is right. Percentiles of ranks, which are few and discrete,
    have their level only roughly.

    Args:
        importances: of R replicates, larger is more important, `(R, G)`, R at least 2.
        size: replicates in an average; R if None.
        draws: bootstrap draws.
        level: of the interval between percentiles.
        seed: of the draws. Global random state is left alone.
        names: of the features.

    Returns:
        pandas.DataFrame: indexed by `feature`, sorted by `mean_rank`, with `mean_rank`, `sd`
        (standard deviation over draws, divisor draws − 1), `lower` and `upper`.

    Raises:
        ValueError: another shape, values that are not finite, counts below 1 (draws below 2), a
            level outside (0, 1), names of another number.

    Source: Uçar and Hajiramezanali 2022 (XTab), whose averages of models are bootstrapped so.

    Example:
        >>> table = bootstrap_ranks(np.array([[0.9, 0.5, 0.1], [0.8, 0.2, 0.4]]),
        ...     names=("age", "height", "weight"), seed=0)
        >>> float(table.loc["age", "mean_rank"]), float(table.loc["age", "sd"])
        (1.0, 0.0)
        >>> bool(table.loc["height", "lower"] < table.loc["height", "upper"])
        True
    """
    values = _checked(importances, dims=2)
    count, features = values.shape
    size = count if size is None else int_at_least("size", size)
    draws = int_at_least("draws", draws, 2)
    level = fraction("level", level)
    labels = [f"x{g + 1}" for g in range(features)] if names is None else list(names)
    if len(labels) != features:
        raise ValueError(f"names must be {features}, one a feature; there are {len(labels)}")
    chosen = np.random.default_rng(seed).integers(count, size=(draws, size))
    # Replicates are added in one order for every feature, so that equal features stay equal.
    total = sum(values[replicate] for replicate in chosen.T)
    ranks = rankdata(-np.asarray(total), axis=1)
    lower, upper = np.quantile(ranks, [(1 - level) / 2, (1 + level) / 2], axis=0)
    table = pd.DataFrame(
        {
            "mean_rank": ranks.mean(0),
            "sd": ranks.std(0, ddof=1),
            "lower": lower,
            "upper": upper,
        },
        index=pd.Index(labels, name="feature"),
    )
    return table.sort_values("mean_rank", kind="stable")


def _checked(importances: Tensor | np.ndarray, dims: int | tuple[int, ...]) -> np.ndarray:
    """Importances of replicates as float64."""
    given: Any = importances
    if isinstance(given, Tensor):
        given = given.detach().cpu()
    values = np.asarray(given, dtype=np.float64)
    allowed = (dims,) if isinstance(dims, int) else dims
    if values.ndim not in allowed or len(values) < 2 or values.shape[-1] < 2 or 0 in values.shape:
        shapes = "(R, G)" if allowed == (2,) else "(R, G) or (R, B, G)"
        raise ValueError(
            f"importances must have shape {shapes}, with 2 or more replicates and features; they "
            f"have {values.shape}"
        )
    if not np.isfinite(values).all():
        raise ValueError("importances must be finite; they have NaN or infinite values")
    return values


def _tie_sizes(values: np.ndarray) -> np.ndarray:
    """How many features have each value, as floats, whose cubes do not overflow."""
    return np.unique(values, return_counts=True)[1].astype(np.float64)
