"""Features ranked by how often they are kept, and whether replicates agree."""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy.stats import t

from lexppl.arviz_compatibility import Posterior, group_of
from lexppl.explanation.importance_kind import PROBABILITY, importance_kind

ROWS_AT_ONCE = 1000


def selection_table(posterior: Posterior) -> pd.DataFrame:
    """Rank the features of an explanation.

    Columns, one row a feature, the most kept first:

    - `selection_probability`: the mean over the rows and R chains of E[z | x]; of signed
      attributions, which cancel between rows, that of |E[z | x]|.
    - `lower`, `upper`: the 95 % t-interval over chains, mean ± t_{.975, R−1} · s / √R, with the
      standard deviation s of the chains' means over rows, cut at 0 and at the largest value there
      can be (1, but for attributions), which costs no coverage. It speaks of the seed of the fit,
      not of the sample of rows, and is NaN with one chain.
    - `r_hat`: whether chains keep the feature in the same rows, pooled over rows n,

          r̂ = √((W (D−1)/D + B/D) / W),
          W = mean_n mean_r var_d(z_{rdn}),    B/D = mean_n var_r(mean_d z_{rdn}),

      with sample variances (divisors D−1 and R−1) of the mask draws z. Every row has its own mean,
      so replicates that keep a feature equally often but in different rows are seen to disagree:
      an r̂ of `importance` (`arviz.rhat`), which averages over rows first, stays near 1 there. It
      is 1 where W = B = 0 (all draws of a row agree), infinite where W = 0 < B (each replicate is
      sure, of different things), NaN with one chain or one draw, and where soft masks are functions
      of x: nothing is drawn within a replicate then, to compare the replicates with.

    Args:
        posterior: what :func:`explain` returned; of several mask sites the first is ranked.

    Returns:
        pandas.DataFrame: indexed by `feature`.

    Raises:
        TypeError, ValueError: not a posterior of :func:`explain`.

    Source: Gelman and Rubin (1992), "Inference from iterative simulation using multiple
    sequences", Statistical Science 7, with its variances pooled over rows.

    Example:
        >>> import numpy as np, xarray as xr
        >>> from lexppl.arviz_compatibility import posterior_of
        >>> mask = np.array([[[[1, 0]], [[1, 1]]], [[[1, 1]], [[1, 0]]]], dtype=np.int8)
        >>> dims = ("chain", "draw", "row", "feature")
        >>> posterior = posterior_of({
        ...     "posterior": xr.Dataset({"mask": (dims, mask)}, {"feature": ["age", "height"]}),
        ...     "sample_stats": xr.Dataset({"selection_probability": (
        ...         ("chain", "row", "feature"), mask.mean(1), {"site": "mask"})}),
        ... }, {})
        >>> selection_table(posterior)[["selection_probability", "r_hat"]].round(3)
                 selection_probability  r_hat
        feature
        age                        1.0  1.000
        height                     0.5  0.707
    """
    draws = group_of(posterior, "posterior")
    by_chain = chain_probabilities(posterior)
    mask = draws[by_chain.attrs["site"]]
    kind = importance_kind(mask)
    chains = by_chain.sizes["chain"]
    mean = by_chain.values.mean(0)
    half = np.full_like(mean, np.nan)
    if chains > 1:
        spread = by_chain.values.std(0, ddof=1)
        half = t.ppf(0.975, chains - 1) * spread / np.sqrt(chains)
    table = pd.DataFrame(
        {
            "selection_probability": mean,
            "lower": (mean - half).clip(0.0, kind.most),
            "upper": (mean + half).clip(0.0, kind.most),
            "r_hat": _pooled_r_hat(mask, drawn=kind is PROBABILITY),
        },
        index=pd.Index(draws[mask.dims[-1]].values, name="feature"),
    )
    return table.sort_values("selection_probability", ascending=False, kind="stable")


def chain_probabilities(posterior: Posterior) -> xr.DataArray:
    """The selection probabilities of each chain, or the sizes of its attributions, averaged over
    rows: (chain, feature).

    Raises:
        TypeError, ValueError: not a posterior of :func:`explain`.
    """
    stats = group_of(posterior, "sample_stats")
    if "selection_probability" not in stats:
        raise ValueError(
            "the posterior has no sample_stats 'selection_probability'; give one that explain() "
            "made"
        )
    probability = stats["selection_probability"]
    mean = abs(probability).mean("row", dtype=np.float64)
    mean.attrs = dict(probability.attrs)
    return mean


def _pooled_r_hat(mask: xr.DataArray, drawn: bool) -> np.ndarray:
    """r̂ by feature, its variances averaged over rows, from (chain, draw, row, feature)."""
    chains, draws, rows, features = mask.shape
    if chains < 2 or draws < 2:
        return np.full(features, np.nan)
    within, between = np.zeros(features), np.zeros(features)
    for start in range(0, rows, ROWS_AT_ONCE):
        part: Any = mask[:, :, start : start + ROWS_AT_ONCE].values
        part = part.astype(np.float64)
        # Differences from a chain's first draw are exact zeros where its draws agree.
        first = part[:, 0].copy()
        part -= first[:, None]
        within += part.var(1, ddof=1).mean(0).sum(0) / rows
        means = first + part.mean(1)
        between += (means - means[0]).var(0, ddof=1).sum(0) / rows
    if not drawn and not within.any() and between.any():
        return np.full(features, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        r_hat = np.sqrt((within * (draws - 1) / draws + between) / within)
    return np.where((within == 0) & (between == 0), 1.0, r_hat)
