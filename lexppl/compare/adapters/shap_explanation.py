"""A posterior of masks as a `shap.Explanation`, for SHAP's plots."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import xarray as xr
from scipy.stats import t

from lexppl.argument_checks import fraction
from lexppl.arviz_compatibility import Posterior, group_of
from lexppl.compare.extra import library
from lexppl.explanation.layout.importance_kind import mask_means
from lexppl.explanation.layout.mask_groups import are_given_y, constants_name, masks_of

Over = Literal["chains", "draws"]


def shap_explanation(
    posterior: Posterior,
    *,
    over: Over | None = None,
    level: float = 0.95,
    given_y: bool = False,
) -> Any:
    r"""What :func:`lexppl.explain` returned as a `shap.Explanation`.

    - `values` `(B, G)`: the mean of the mask over R chains and D draws, the share of them in which
      row b keeps entry g. They are probabilities of being kept, between 0 and 1, and not parts of
      the model's output, to which they do not sum; there is no base value.
    - `error_std` `(B, G)`: the standard error of that mean. Over chains, s/√R with the standard
      deviation s of the R chains' means: what another seed of the fit would change. Over draws,
      s √(1/(RD) + 1/Σ_r ESS_r), with the standard deviation s of all draws and the effective
      number of proposals ESS of masks given y (without y, only s/√(RD)): what more draws would
      change.
    - `lower_bounds`, `upper_bounds` `(B, G)`: over chains, the t-interval of the mean,
      mean ± t_{R−1} · s/√R, cut at 0 and 1; over draws, the equal-tailed quantiles of the mask
      itself, which for masks of 0 and 1 say whether the entry is kept in nearly all draws (1, 1),
      nearly none (0, 0), or neither (0, 1).
    - `data`: the rows, where each entry is one column; else NaN. `feature_names`: of the entries.

    Args:
        posterior: of :func:`lexppl.explain`; of several mask sites the first.
        over: "chains" (needs two) or "draws"; if None chains where there are several.
        level: of the bounds.
        given_y: of masks given x and y, of a posterior that was given y; else given x alone.

    Returns:
        `shap.Explanation`.

    Raises:
        ImportError: without the `compare` extra.
        TypeError, ValueError: not a posterior of `explain`, chains that are not there, a level
            outside (0, 1).

    Example:
        >>> from lexppl.arviz_compatibility import posterior_of
        >>> mask = np.array([[[[1, 0]], [[1, 1]]]], dtype=np.int8)
        >>> dims = ("chain", "draw", "row", "feature")
        >>> posterior = posterior_of({
        ...     "predictions": xr.Dataset({"mask": (dims, mask)}, {"feature": ["age", "height"]}),
        ...     "sample_stats": xr.Dataset({"selection_probability": (
        ...         ("chain", "row", "feature"), mask.mean(1), {"site": "mask"})}),
        ... }, {})
        >>> explanation = shap_explanation(posterior)
        >>> explanation.values, explanation.feature_names
        (array([[1. , 0.5]]), ['age', 'height'])
    """
    if over not in (None, "chains", "draws"):
        raise ValueError(f"over must be 'chains', 'draws' or None; it is {over!r}")
    level = fraction("level", level)
    stats = group_of(posterior, "sample_stats")
    site = mask_means(posterior).attrs["site"]
    mask = masks_of(posterior, given_y)[site]
    ess = stats.get("weight_ess") if given_y or are_given_y(posterior) else None
    chains = mask.sizes["chain"]
    if over is None:
        over = "chains" if chains > 1 else "draws"
    if over == "chains" and chains < 2:
        raise ValueError(
            "bounds over chains need two or more, as fit(…, replicates=2) gives; the posterior "
            "has one. Say over='draws'"
        )
    shap = library("shap")
    mean = mask.mean(("chain", "draw"), dtype=np.float64).values
    bounds = _over_chains if over == "chains" else _over_draws
    error, lower, upper = bounds(mask, ess, mean, level)
    names = [str(name) for name in mask[mask.dims[-1]].values]
    return shap.Explanation(
        mean,
        data=_data(posterior, mean.shape),
        feature_names=names,
        lower_bounds=lower,
        upper_bounds=upper,
        error_std=error,
    )


Bounds = tuple[np.ndarray, np.ndarray, np.ndarray]


def _over_chains(
    mask: xr.DataArray, _: xr.DataArray | None, mean: np.ndarray, level: float
) -> Bounds:
    chains = mask.sizes["chain"]
    by_chain = mask.mean("draw", dtype=np.float64).values
    error = by_chain.std(0, ddof=1) / np.sqrt(chains)
    half = t.ppf(0.5 + level / 2, chains - 1) * error
    return error, (mean - half).clip(0.0, 1.0), (mean + half).clip(0.0, 1.0)


def _over_draws(
    mask: xr.DataArray, ess: xr.DataArray | None, mean: np.ndarray, level: float
) -> Bounds:
    count = mask.sizes["chain"] * mask.sizes["draw"]
    deviation = mask.astype(np.float64).std(("chain", "draw")).values
    share = np.full((len(mean), 1), 1.0 / count)
    if ess is not None:
        share = share + 1.0 / ess.sum("chain").values[:, None]
    tails = ((1 - level) / 2, (1 + level) / 2)
    lower, upper = mask.quantile(
        tails, ("chain", "draw"), method="inverted_cdf", skipna=False
    ).values
    return deviation * np.sqrt(share), lower, upper


def _data(posterior: Posterior, shape: tuple[int, ...]) -> np.ndarray:
    """The rows where they have a column for each entry, else NaN."""
    try:
        x = group_of(posterior, constants_name(posterior))["x"].values
    except (ValueError, KeyError):
        return np.full(shape, np.nan)
    return x if x.shape == shape else np.full(shape, np.nan)
