"""Features ranked by how often they are kept, and whether replicates agree."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from scipy.special import stdtrit

from lexppl.argument_checks import fraction
from lexppl.arviz_compatibility import Posterior
from lexppl.explanation.beside.fold_means import fold_means, fold_means_over_rows
from lexppl.explanation.layout.importance_kind import (
    GUIDED,
    PROBABILITY,
    STATED,
    ImportanceKind,
    importance_kind,
    mask_means,
)
from lexppl.explanation.layout.mask_groups import masks_of, means_over_rows
from lexppl.explanation.meanings import MARKOV_CHAINS, SAMPLED, chains_are
from lexppl.inference.training.rows import DIRICHLET

ROWS_AT_ONCE = 1000
LEAST_DRAWS = 4
"""Of a chain, for a split r̂."""


def selection_table(posterior: Posterior, *, level: float = 0.95) -> pd.DataFrame:
    """Rank the features of an explanation.

    Columns, one row a feature, the most kept first:

    - `selection_probability` (of soft masks `mask_mean`, of signed attributions `attribution`): the
      mean over the rows and R chains of E[z | x]; of attributions, which cancel between rows, that
      of |E[z | x]|. Where the program's guide draws the masks given x alone it is the guide's
      q(z | x), and is called so: `<site>_by_guide_selection_probability`.
    - `lower`, `upper`: the 95 % t-interval over chains, mean ± t_{.975, R−1} · s / √R, with the
      standard deviation s of the chains' means over rows, cut at 0 and at the largest value there
      can be (1, but for attributions), which costs no coverage. It speaks of the seed of the fit,
      not of the sample of rows, and is NaN with one chain. Where each replicate has random weights
      of its rows (`fit(row_weights="dirichlet")`, attribute `row_weights` of the posterior), s is
      also what other rows would change, of which the mean of replicates has a share that does not
      shrink with R; with what other explained rows would change the interval is

          mean ± √(t²_{.975, R−1} s² (1 + 1/R) + t²_{.975, N−1} V_N),   V_N = var_n(mean_r) / N,

      of new rows to fit on, to explain, and new seeds. It counts the seeds' spread in full where
      s²/R would do, and so covers at least 95 %. The explained rows must not be those of the fit.
      Of rows in folds (:meth:`lexppl.evaluation.Folds.posterior`) they are no interval: the
      smallest and the largest mean of the R fits, of which each has learned from other rows.
      Where latents that all rows share were drawn from their posterior, by a sampler or a guide,
      it is the central 95 % posterior interval of the mean over these rows: quantiles of
      `mean_n E[z_n | x_n, θ_d]` over the draws d of all chains. NaN of a sampler's draws that have
      no such means.
    - `agreement`: whether replicates keep the feature in the same rows, from 0 to 1: the share of
      the masks' variance that is within replicates, pooled over rows n. Of selections whose
      distribution states `p_{rn} = E[z_{rn} | x_n]` it is exact, and rests on no draws,

          W / (W + V),    W = mean_n mean_r p_{rn} (1 − p_{rn}),    V = mean_n var_r(p_{rn});

      (of rows in folds r is each fold's fit, on all rows);
      of other masks, and of masks given y, it is that of their draws z, with the same limit in D,

          min(1, W / (W (D−1)/D + B/D)),
          W = mean_n mean_r var_d(z_{rdn}),    B/D = mean_n var_r(mean_d z_{rdn}),

      with sample variances (divisors D−1 and R−1): 1/r̂² as of chains, which replicates of a fit
      are not (r̂ = 1.1 is an agreement of .83). Every row has its own mean, so
      replicates that keep a feature equally often but in different rows are seen to disagree;
      `arviz.rhat` of `importance`, which averages over rows first, stays near 1 there. It is 1
      where W = B = 0 (all draws of a row agree), 0 where W = 0 < B (each replicate is sure, of
      different things), NaN with one chain, with fewer than two draws where draws are needed, and
      where soft masks are functions of x:
      nothing is drawn within a replicate then, to compare the replicates with. Fits that have
      learned nothing agree as well: read it beside the held-out scores.
    - `r_hat`, of Markov chains in its place: rank-normalised split r̂ of those means, by ArviZ;
      chains that have converged are below 1.01. NaN with one chain or fewer than four draws.

    Args:
        posterior: what :func:`explain` returned; of several mask sites the first is ranked.
        level: of the intervals, in (0, 1), where .95 stands above.

    Returns:
        pandas.DataFrame: indexed by `feature`; `attrs["interval"]` names what its intervals are.

    Raises:
        TypeError, ValueError: not a posterior of :func:`explain`; a level outside (0, 1).

    Source: Newton and Raftery (1994), "Approximate Bayesian inference with the weighted likelihood
    bootstrap", JRSS B 56. Gelman and Rubin (1992), "Inference from iterative simulation using
    multiple sequences", Statistical Science 7, with its variances pooled over rows.

    Example:
        >>> import numpy as np, xarray as xr
        >>> from lexppl.arviz_compatibility import posterior_of
        >>> mask = np.array([[[[1, 0]], [[1, 1]]], [[[1, 1]], [[1, 0]]]], dtype=np.int8)
        >>> dims = ("chain", "draw", "row", "feature")
        >>> posterior = posterior_of({
        ...     "predictions": xr.Dataset({"mask": (dims, mask)}, {"feature": ["age", "height"]}),
        ...     "sample_stats": xr.Dataset({"selection_probability": (
        ...         ("chain", "row", "feature"), mask.mean(1), {"site": "mask"})}),
        ... }, {})
        >>> selection_table(posterior)[["selection_probability", "agreement"]].round(3)
                 selection_probability  agreement
        feature
        age                        1.0        1.0
        height                     0.5        1.0
    """
    upper = (1 + fraction("level", level)) / 2
    draws = masks_of(posterior)
    by_chain = chain_probabilities(posterior)
    mask = draws[by_chain.attrs["site"]]
    kind = importance_kind(mask)
    variable = str(by_chain.name)
    mean = by_chain.values.mean(0)
    of_folds = fold_means_over_rows(posterior)
    interval = _posterior_interval(posterior, by_chain.attrs["site"], upper)
    what = "posterior interval"
    if of_folds is not None:
        interval, what = (of_folds.min(0), of_folds.max(0)), "range of the folds' fits"
    elif interval is None:
        half = _half_interval(posterior, by_chain.values, upper)
        interval = mean - half, mean + half
        what = f"t-interval over seeds{' and rows' if covers_rows(posterior) else ' of the fit'}"
    table = pd.DataFrame(
        {
            variable: mean,
            "lower": interval[0].clip(0.0, kind.most),
            "upper": interval[1].clip(0.0, kind.most),
            **_consistency(posterior, mask, kind),
        },
        index=pd.Index(draws[mask.dims[-1]].values, name="feature"),
    )
    table.attrs["interval"] = what if of_folds is not None else f"{level * 100:g} % {what}"
    return table.sort_values(variable, ascending=False, kind="stable")


def _half_interval(
    posterior: Posterior, by_chain: NDArray[np.float64], upper: float
) -> NDArray[np.float64]:
    """Half the t-interval over replicates, by feature; NaN where there is none."""
    chains = len(by_chain)
    if chains < 2 or chains_are(posterior).startswith(SAMPLED):
        return np.full(by_chain.shape[-1], np.nan)
    half: NDArray[np.float64] = stdtrit(chains - 1, upper) * mean_error(
        by_chain, covers_rows(posterior)
    )
    return np.hypot(half, _error_of_rows(posterior, upper)) if covers_rows(posterior) else half


def _posterior_interval(
    posterior: Posterior, site: str, upper: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Quantiles of the mean selection over draws of what rows share, by feature; None where none
    was drawn that moves the masks, or folds tell the interval."""
    drawn = means_over_rows(posterior, site)
    if drawn is None:
        return None
    values = drawn.values
    if not (values != values[:, :1]).any():
        return None
    lower, higher = np.quantile(values.reshape(-1, values.shape[-1]), [1 - upper, upper], axis=0)
    return lower, higher


def _consistency(
    posterior: Posterior, mask: xr.DataArray, kind: ImportanceKind
) -> dict[str, NDArray[np.float64]]:
    """Whether Markov chains have converged, or replicates agree, by feature."""
    if chains_are(posterior).startswith(MARKOV_CHAINS):
        return {"r_hat": _r_hat(posterior, mask)}
    if kind is PROBABILITY and _states_probabilities(posterior):
        of_folds = fold_means(posterior)
        each = mask_means(posterior, by_row=False) if of_folds is None else of_folds
        return {"agreement": _exact_agreement(each.values)}
    return {"agreement": _agreement(mask, drawn=kind is PROBABILITY)}


def _r_hat(posterior: Posterior, mask: xr.DataArray) -> NDArray[np.float64]:
    drawn = means_over_rows(posterior, str(mask.name))
    if drawn is None or drawn.sizes["chain"] < 2 or drawn.sizes["draw"] < LEAST_DRAWS:
        return np.full(mask.shape[-1], np.nan)
    with warnings.catch_warnings():
        # ArviZ 0.2x announces its successor on import.
        warnings.simplefilter("ignore", FutureWarning)
        # Slow, and needed for chains alone.
        import arviz  # noqa: PLC0415
    with np.errstate(invalid="ignore", divide="ignore"):
        found: NDArray[np.float64] = arviz.rhat(drawn.to_dataset(name="r_hat"))["r_hat"].values
    return found


def covers_rows(posterior: Posterior) -> bool:
    """Whether the spread of the chains is over rows of the fit too: each has weighted them at
    random."""
    return bool(masks_of(posterior).attrs.get("row_weights") == DIRICHLET)


def mean_error(replicates: NDArray[np.float64], weighted: bool) -> NDArray[np.float64]:
    """The standard error of the mean of R replicates, along the first axis: `s / √R`, or with
    random weights of their rows `s √(1 + 1/R)`.

    Weighted replicates scatter about the fit to the rows as they are as that fit scatters over
    samples of rows, with variance σ²: their mean has σ² of the sample, and σ²/R of the weights.

    Args:
        replicates: `(R, …)`, R at least 2.
        weighted: whether each has weights of its own.

    Example:
        >>> each = np.array([1.0, 2.0, 3.0, 4.0])
        >>> round(float(mean_error(each, False)), 3), round(float(mean_error(each, True)), 3)
        (0.645, 1.443)
    """
    count = len(replicates)
    spread = replicates.std(0, ddof=1)
    error: NDArray[np.float64] = spread * np.sqrt((1 + 1 / count) if weighted else 1 / count)
    return error


def _error_of_rows(posterior: Posterior, upper: float) -> NDArray[np.float64]:
    """Half the interval of the mean over the explained rows, by feature; 0 of a single row."""
    by_row = abs(mask_means(posterior, by_row=False)).mean("chain", dtype=np.float64).values
    by_row = by_row.reshape(-1, by_row.shape[-1])
    rows = len(by_row)
    if rows < 2:
        return np.zeros(by_row.shape[1])
    half: NDArray[np.float64] = stdtrit(rows - 1, upper) * by_row.std(0, ddof=1) / np.sqrt(rows)
    return half


def chain_probabilities(posterior: Posterior) -> xr.DataArray:
    """The masks' means of each chain, or the sizes of its attributions, averaged over rows:
    (chain, feature).

    Raises:
        TypeError, ValueError: not a posterior of :func:`explain`.
    """
    by_row = mask_means(posterior, by_row=False)
    entries = tuple(range(1, by_row.ndim - 1))
    mean = np.abs(by_row.values).mean(entries, dtype=np.float64)
    dims = (by_row.dims[0], by_row.dims[-1])
    variable = xr.Variable(dims, mean, by_row.attrs, fastpath=True)
    return xr.DataArray(variable, {d: by_row[d] for d in dims}, name=by_row.name)


def _states_probabilities(posterior: Posterior) -> bool:
    """Whether the masks were drawn from distributions that state E[z | x]."""
    return mask_means(posterior, by_row=False).attrs.get("source") in (STATED, GUIDED)


def _exact_agreement(probabilities: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """The share of variance within replicates by feature, from (chain, row, feature)."""
    if len(probabilities) < 2:
        return np.full(probabilities.shape[-1], np.nan)
    exact = probabilities.astype(np.float64).clip(0.0, 1.0)
    exact = exact.reshape(len(exact), -1, exact.shape[-1])
    within = (exact * (1.0 - exact)).mean((0, 1))
    # Differences from a chain are exact zeros where chains agree.
    between = (exact - exact[0]).var(0, ddof=1).mean(0)
    total = within + between
    return np.divide(within, total, out=np.ones_like(total), where=total > 0.0)


def _agreement(mask: xr.DataArray, drawn: bool) -> np.ndarray:
    """The share of variance within replicates by feature, from (chain, draw, row, feature)."""
    mask = mask if mask.ndim == 4 else mask.expand_dims("row", axis=2)
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
        share = within / (within * (draws - 1) / draws + between)
    return np.where((within == 0) & (between == 0), 1.0, share.clip(max=1.0))
