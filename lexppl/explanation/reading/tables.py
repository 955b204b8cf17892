"""Tables of an explanation: features ranked, with their agreement; a line a row and feature."""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from scipy.special import stdtrit

from lexppl.argument_checks import fraction, int_between
from lexppl.arviz_compatibility import Posterior, group_of
from lexppl.explanation.reading.masks import (
    GUIDED,
    MARKOV_CHAINS,
    PROBABILITY,
    SAMPLED,
    STATED,
    ImportanceKind,
    chains_are,
    fold_means,
    importance_kind,
    mask_means,
    masks_of,
    means_over_rows,
    responses_of,
)
from lexppl.explanation.reading.modes import modes_of
from lexppl.extras import arviz_library
from lexppl.inference.training.rows import DIRICHLET

ROWS_AT_ONCE = 1000
LEAST_DRAWS = 4  # Of a chain, for a split r̂


def selection_table(posterior: Posterior, *, level: float = 0.95) -> pd.DataFrame:
    """Rank the features of an explanation: one row a feature, the most kept first.

    Use it first on what `explain` returned: how often each feature is kept, and whether fits from
    several seeds agree. It is a data frame, for further arithmetic.

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

    - `selection_probability` (`mask_mean` of soft masks, `attribution` of signed contributions):
      the mean over rows and R chains of E[z | x], of attributions of |E[z | x]|. Where the guide
      draws the masks given x alone it is the guide's, `<site>_by_guide_selection_probability`.
    - `lower`, `upper`: the 95 % t-interval over chains, mean ± t_{.975, R−1} · s / √R, with the
      standard deviation s of the chains' means over rows, cut at 0 and at the largest value there
      can be. It covers the seed of the fit, not the sample of rows, and is NaN with one chain.
      Where replicates have random weights of their rows (`fit(row_weights="dirichlet")`), it is

          mean ± √(t²_{.975, R−1} s² (1 + 1/R) + t²_{.975, N−1} V_N),   V_N = var_n(mean_r) / N,

      of new rows to fit on, new rows to explain, and new seeds, and covers at least 95 %; the
      explained rows must not be those of the fit. Of rows in folds
      (:meth:`lexppl.evaluation.Folds.posterior`) these are the smallest and the largest of the R
      fits' means over all rows, learned from or not, and the mean over rows by the fits that hold
      them out. Where latents that all rows share were drawn from their posterior, it is the central
      95 % interval of `mean_n E[z_n | x_n, θ_d]` over the draws d of all chains.
    - `agreement`: whether replicates keep the feature in the same rows, from 0 to 1: the share of
      the masks' variance that is within replicates, pooled over rows n. Of selections whose
      distribution states `p_{rn} = E[z_{rn} | x_n]` it is exact (of folds r is each fold's fit):

          W / (W + V),    W = mean_n mean_r p_{rn} (1 − p_{rn}),    V = mean_n var_r(p_{rn});

      of other masks, and of masks given y, it is that of their draws z, with the same limit in D,

          min(1, W / (W (D−1)/D + B/D)),
          W = mean_n mean_r var_d(z_{rdn}),    B/D = mean_n var_r(mean_d z_{rdn}),

      with sample variances: 1/r̂² as of chains (r̂ = 1.1 is an agreement of .83), but by row, so that
      replicates that keep a feature equally often in different rows are seen to disagree. It is 1
      where W = B = 0, 0 where W = 0 < B, NaN with one chain, with fewer than two draws where draws
      are needed, and where soft masks are functions of x. Fits that have learned nothing agree as
      well: read it beside the held-out scores.
    - `r_hat`, of Markov chains in its place: rank-normalised split r̂ of those means, by ArviZ;
      chains that have converged are below 1.01. NaN with one chain or fewer than four draws.
    - `mode_1`, `mode_2`, …, where fits keep different features and predict as well as each other:
      the selection probability by the fits of each mode of :func:`modes_of`, the heaviest first;
      `attrs["mode_weights"]` has their weights. "size, or shape with texture" is then read there,
      and not from means over all fits.

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
    """
    upper = (1 + fraction("level", level)) / 2
    draws = masks_of(posterior)
    by_chain = chain_probabilities(posterior)
    mask = draws[by_chain.attrs["site"]]
    kind = importance_kind(mask)
    variable = str(by_chain.name)
    mean = by_chain.values.mean(0)
    of_folds = fold_means(posterior)
    interval = _posterior_interval(posterior, by_chain.attrs["site"], upper)
    what = "posterior interval"
    if of_folds is not None:
        by_fold = abs(of_folds).mean("row", dtype=np.float64).values
        # On rows that fits have learned from the mean may lie elsewhere than on held-out ones.
        interval = np.minimum(by_fold.min(0), mean), np.maximum(by_fold.max(0), mean)
        what = "range of the folds' fits"
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
    if (modes := modes_of(posterior)) is not None:
        for number, masks in enumerate(modes[f"mode_{variable}"].values, 1):
            table[f"mode_{number}"] = masks.mean(0, dtype=np.float64)
        table.attrs["mode_weights"] = tuple(modes["mode_weight"].values.tolist())
    return table.sort_values(variable, ascending=False, kind="stable")


def _half_interval(
    posterior: Posterior, by_chain: NDArray[np.float64], upper: float
) -> NDArray[np.float64]:
    """Half the t-interval over replicates, by feature; NaN where there is none."""
    chains = len(by_chain)
    if chains < 2 or chains_are(posterior).startswith(SAMPLED):
        return np.full(by_chain.shape[-1], np.nan)
    weighted = covers_rows(posterior)
    half: NDArray[np.float64] = stdtrit(chains - 1, upper) * mean_error(by_chain, weighted)
    return np.hypot(half, _error_of_rows(posterior, upper)) if weighted else half


def _posterior_interval(
    posterior: Posterior, site: str, upper: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Quantiles of the mean selection over draws of θ, by feature; None where none moves it."""
    drawn = means_over_rows(posterior, site)
    if drawn is None or not (drawn.values != drawn.values[:, :1]).any():
        return None
    values = drawn.values.reshape(-1, drawn.shape[-1])
    lower, higher = np.quantile(values, [1 - upper, upper], axis=0)
    return lower, higher


def _consistency(
    posterior: Posterior, mask: xr.DataArray, kind: ImportanceKind
) -> dict[str, NDArray[np.float64]]:
    """Whether Markov chains have converged, or replicates agree, by feature."""
    if chains_are(posterior).startswith(MARKOV_CHAINS):
        return {"r_hat": _r_hat(posterior, mask)}
    means = mask_means(posterior, by_row=False)
    if kind is PROBABILITY and means.attrs.get("source") in (STATED, GUIDED):
        of_folds = fold_means(posterior)
        return {"agreement": _exact_agreement((means if of_folds is None else of_folds).values)}
    return {"agreement": _agreement(mask, drawn=kind is PROBABILITY)}


def _r_hat(posterior: Posterior, mask: xr.DataArray) -> NDArray[np.float64]:
    drawn = means_over_rows(posterior, str(mask.name))
    if drawn is None or drawn.sizes["chain"] < 2 or drawn.sizes["draw"] < LEAST_DRAWS:
        return np.full(mask.shape[-1], np.nan)
    rhat = arviz_library().rhat
    with np.errstate(invalid="ignore", divide="ignore"):
        return rhat(drawn.to_dataset(name="r_hat"))["r_hat"].values


def covers_rows(posterior: Posterior) -> bool:
    """Whether the spread of the chains is over rows of the fit too, by random weights."""
    return bool(masks_of(posterior).attrs.get("row_weights") == DIRICHLET)


def mean_error(replicates: NDArray[np.float64], weighted: bool) -> NDArray[np.float64]:
    """The standard error of the mean of R replicates `(R, …)`: `s / √R`, or, as replicates with
    random weights of their rows scatter like fits to other samples of rows, `s √(1 + 1/R)`.

    >>> each = np.array([1.0, 2.0, 3.0, 4.0])
    >>> round(float(mean_error(each, False)), 3), round(float(mean_error(each, True)), 3)
    (0.645, 1.443)
    """
    count = len(replicates)
    spread = replicates.std(0, ddof=1)
    return spread * np.sqrt((1 + 1 / count) if weighted else 1 / count)


def _error_of_rows(posterior: Posterior, upper: float) -> NDArray[np.float64]:
    """Half the interval of the mean over the explained rows, by feature; 0 of a single row."""
    by_row = abs(mask_means(posterior, by_row=False)).mean("chain", dtype=np.float64).values
    by_row = by_row.reshape(-1, by_row.shape[-1])
    rows = len(by_row)
    if rows < 2:
        return np.zeros(by_row.shape[1])
    return stdtrit(rows - 1, upper) * by_row.std(0, ddof=1) / np.sqrt(rows)


def chain_probabilities(posterior: Posterior) -> xr.DataArray:
    """The masks' means of each chain, or the sizes of its attributions, over rows: (chain,
    feature)."""
    by_row = mask_means(posterior, by_row=False)
    entries = tuple(range(1, by_row.ndim - 1))
    mean = np.abs(by_row.values).mean(entries, dtype=np.float64)
    dims = (by_row.dims[0], by_row.dims[-1])
    variable = xr.Variable(dims, mean, by_row.attrs, fastpath=True)
    return xr.DataArray(variable, {d: by_row[d] for d in dims}, name=by_row.name)


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


def tidy_frame(posterior: Posterior) -> pd.DataFrame:
    """An explanation with a line for each row and feature.

    Columns: `row`, `feature`, `value` as it is read (None where it is not known),
    `selection_probability` (of soft masks `mask_mean`, of signed ones `attribution`), the mean over
    R replicates; `spread`, their standard deviation, NaN of one; and `gain`, in nats, where there
    are gains of rows. `to_parquet` and `to_csv` write it.

    Args:
        posterior: what :func:`lexppl.explain` returned.

    Raises:
        TypeError, ValueError: not such a posterior, or masks that rows share.

    Example:
        >>> import xarray as xr
        >>> from lexppl.arviz_compatibility import posterior_of
        >>> stated = (("chain", "row", "feature"), [[[1.0, 0.5]]], {"site": "mask"})
        >>> posterior = posterior_of({"sample_stats": xr.Dataset(
        ...     {"selection_probability": stated}, {"row": [7], "feature": ["age", "dose"]})}, {})
        >>> tidy_frame(posterior)[["row", "feature", "selection_probability"]]
           row feature  selection_probability
        0    7     age                    1.0
        1    7    dose                    0.5
    """
    from lexppl.explanation.reading.feature_values import (  # noqa: PLC0415 - slow, tables alone
        GAIN,
        feature_values,
    )

    means = mask_means(posterior)
    chains, rows, features = means.shape
    names = [str(name) for name in means[means.dims[-1]].values]
    known = feature_values(posterior)
    values = [
        known[name].text(row) if name in known else None for row in range(rows) for name in names
    ]
    spread = np.full((rows, features), np.nan) if chains < 2 else means.values.std(0, ddof=1)
    frame = pd.DataFrame(
        {
            "row": np.repeat(means["row"].values, features),
            "feature": names * rows,
            "value": values,
            str(means.name): means.values.mean(0, dtype=np.float64).ravel(),
            "spread": spread.ravel(),
        }
    )
    gains = group_of(posterior, "sample_stats").get(GAIN)
    return frame if gains is None else frame.assign(gain=gains.values.ravel())


def row_dict(posterior: Posterior, row: int) -> dict[str, Any]:
    """One row of an explanation as `json.dumps` takes it: its name, what is predicted of it, and
    its features as :func:`tidy_frame` has them, the most kept first.

    Args:
        posterior: what :func:`lexppl.explain` returned.
        row: its place, from 0.

    Raises:
        TypeError, ValueError: no such row; as :func:`tidy_frame`.

    Example:
        >>> import xarray as xr
        >>> from lexppl.arviz_compatibility import posterior_of
        >>> stated = (("chain", "row", "feature"), [[[0.5, 1.0]]], {"site": "mask"})
        >>> posterior = posterior_of({"sample_stats": xr.Dataset(
        ...     {"selection_probability": stated}, {"row": [7], "feature": ["age", "dose"]})}, {})
        >>> row_dict(posterior, 0)["features"][0]
        {'feature': 'dose', 'value': None, 'selection_probability': 1.0, 'spread': None}
    """
    means = mask_means(posterior)
    place = int_between("row", row, 0, means.sizes["row"] - 1, note="rows of the explanation")
    tidy = tidy_frame(posterior).iloc[place * means.shape[2] : (place + 1) * means.shape[2]]
    tidy = tidy.sort_values(str(means.name), ascending=False, key=abs, kind="stable")
    lines = tidy.drop(columns="row").astype(object).where(tidy.drop(columns="row").notna(), None)
    summary: dict[str, Any] = {"row": means["row"].values[place : place + 1].tolist()[0]}
    response = responses_of(posterior)
    if "y_probability" in response:
        p = response["y_probability"].isel(row=place).mean("chain", dtype=np.float64)
        classes = [str(name) for name in p["class"].values]
        summary["probabilities"] = dict(zip(classes, p.values.tolist(), strict=True))
    elif "y" in response:
        summary["response"] = float(response["y"].isel(row=place).mean())
    return {**summary, "features": lines.to_dict("records")}
