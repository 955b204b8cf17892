"""Features by their gain: which are found at a false discovery rate, and those of one row."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import false_discovery_control, t

from lexppl.argument_checks import fraction, int_between
from lexppl.evaluation.gains import FeatureGains
from lexppl.explanation.reading.ranking import mean_error


def gain_table(gains: FeatureGains, fdr: float = 0.1, *, level: float = 0.95) -> pd.DataFrame:
    r"""The features by their gain, with intervals, and those found at a false discovery rate.

    With R replicates, N rows, and a feature's gains `d_{rn}`, columns:

    - `gain`: the mean over replicates and rows, in nats a row.
    - `lower`, `upper`: the 95 % interval `gain ± √(t_{N−1}² V_N + t_{R−1}² V_R)`,

          V_N = var_n(mean_r d_{rn}) / N,    V_R = var_r(mean_n d_{rn}) / R,

      of what other rows and other seeds of the fit would change, with Student's .975-quantiles t.
      Rows and replicates are the crossed random effects of `d_{rn} = μ + a_n + b_r + e_{rn}`. The
      interval covers μ in at least 95 % of cases, whichever of the two spreads is the larger
      (Banerjee; one with Satterthwaite's degrees of freedom covered 87 % with two replicates), and
      `e` is counted in both terms, which makes it wider yet. With one replicate `V_R` is left out,
      and the interval speaks of that fit alone. Two replicates say little of their spread (t is
      12.7): expect wide intervals. Of replicates that weight their rows at random (`bootstrapped`)
      the second term is `t_{R−1}² V_R (R + 1)`: their spread is also that over other rows to fit
      on, of which the mean of R has a share that does not shrink with R. Of rows in folds the
      second term is `t_{R−1}² s²`, s the standard deviation of the R fits' mean gains, each fit to
      other rows, on the same rows (:meth:`lexppl.evaluation.Folds.gains`).
    - `p`: of the hypothesis that there is no gain in *these* fits, one-sided: `P(T ≥ mean / √V_N)`,
      T Student's with N − 1 degrees of freedom, of what is lost where the value is exchanged for
      one imputed value (`exchanged`), whose mean is 0 of noise where that of the gain is below 0;
      of the gain itself where it is not above 0, and the larger of the two, so that nothing is
      found that gains nothing. Replicates share their rows: the mean over them comes first.
    - `found`: whether the feature is among those that the procedure of Benjamini and Hochberg
      rejects at the rate `fdr`: of the features found, at most that share is expected to have no
      gain. This holds for independent tests, and for such as are positively dependent.

    Assumptions: rows are independent of each other and of the fits, that is, held out; the fits
    are given; N is large enough for a mean over rows to be near normal. A feature whose interval
    covers 0 may be found where the seeds of the fit differ.

    Args:
        gains: of held-out rows.
        fdr: the rate, in (0, 1).
        level: of the intervals, in (0, 1), where 95 % stands above.

    Returns:
        indexed by `feature`, the largest gain first.

    Raises:
        ValueError: fewer than two rows, gains that are not finite, a rate or a level outside
            (0, 1).

    Source:
        Benjamini, Hochberg. Controlling the false discovery rate. JRSS B 1995. Banerjee.
        Approximate confidence interval for linear functions of means of k populations when the
        population variances are not equal. Sankhyā 1960.

    Example:
        >>> import torch
        >>> each = torch.tensor([[0.3, 0.1], [0.2, -0.2], [0.4, 0.1], [0.3, -0.1]])
        >>> gain_table(FeatureGains(each[None].double(), ("age", "noise"))).round(3)
                  gain  lower  upper      p  found
        feature
        age      0.300  0.170  0.430  0.003   True
        noise   -0.025 -0.264  0.214  0.620  False
    """
    rate = fraction("fdr", fdr)
    upper = (1 + fraction("level", level)) / 2
    values = gains.gains.detach().double().cpu().numpy()
    replicates, rows, _ = values.shape
    if rows < 2:
        raise ValueError(f"a spread over rows needs two rows or more; there are {rows}")
    given = (gains.gains, gains.refits, gains.exchanged)
    if not all(np.isfinite(v.cpu()).all() for v in given if v is not None):
        raise ValueError("gains must be finite; they have NaN or infinite values")
    by_row = values.mean(0)
    mean, of_rows = by_row.mean(0), by_row.var(0, ddof=1) / rows
    squared = t.ppf(upper, rows - 1) ** 2 * of_rows
    if gains.refits is not None:
        refits = gains.refits.detach().double().mean(1).cpu().numpy()
        squared = squared + (t.ppf(upper, len(refits) - 1) * refits.std(0, ddof=1)) ** 2
    elif replicates > 1:
        of_fits = mean_error(values.mean(1), gains.bootstrapped)
        squared = squared + (t.ppf(upper, replicates - 1) * of_fits) ** 2
    half = np.sqrt(squared)
    p = _above_zero(by_row)
    if gains.exchanged is not None:
        exchanged = _above_zero(gains.exchanged.detach().double().mean(0).cpu().numpy())
        p = np.where(mean > 0.0, exchanged, np.maximum(exchanged, p))
    table = pd.DataFrame(
        {
            "gain": mean,
            "lower": mean - half,
            "upper": mean + half,
            "p": p,
            "found": false_discovery_control(p) <= rate,
        },
        index=pd.Index(gains.entry_names, name="feature"),
    )
    return table.sort_values("gain", ascending=False, kind="stable")


def _above_zero(by_row: NDArray[np.float64]) -> NDArray[np.float64]:
    """One-sided p-values of Student's test that means over rows, `(N, G)`, are at most 0."""
    rows = len(by_row)
    mean, error = by_row.mean(0), by_row.std(0, ddof=1) / np.sqrt(rows)
    with np.errstate(divide="ignore", invalid="ignore"):
        # A feature that changes nothing has 0/0.
        score = np.where((mean == 0) & (error == 0), 0.0, mean / error)
    p: NDArray[np.float64] = t.sf(score, rows - 1)
    return p


def row_gains(gains: FeatureGains, row: int) -> pd.DataFrame:
    """What keeping each feature is worth for the prediction of one row.

    The gain is of the row's own y: it says whether the feature helped to predict what was observed,
    or, of a black box's probabilities, what the model says. One row has no interval over rows.

    Args:
        gains: of :func:`feature_gains`.
        row: its place among the rows that were judged, from 0.

    Returns:
        indexed by `feature`, the largest gain first, in nats: `gain`, the mean over replicates;
        `error`, its standard error by the draws of masks and imputations (more `masks` lessen it;
        NaN where it is not known); `spread`, the standard deviation of the gain over replicates,
        NaN with one.

    Raises:
        ValueError: no such row.

    Example:
        >>> import torch
        >>> each = torch.tensor([[[0.3, 0.1], [0.2, -0.2]], [[0.5, 0.1], [0.4, 0.0]]]).double()
        >>> found = FeatureGains(each, ("age", "noise"), 0.1 * torch.ones(2, 2, 2))
        >>> row_gains(found, 0).round(3)
                 gain  error  spread
        feature
        age       0.4  0.071   0.141
        noise     0.1  0.071   0.000
    """
    replicates, rows, _ = gains.gains.shape
    place = int_between("row", row, 0, rows - 1, note="the rows that were judged")
    values = gains.gains[:, place].detach().double().cpu().numpy()
    errors = np.full_like(values, np.nan)
    if gains.errors is not None:
        errors = gains.errors[:, place].detach().double().cpu().numpy()
    spread = np.full(values.shape[1], np.nan)
    if replicates > 1:
        spread = values.std(0, ddof=1)
    table = pd.DataFrame(
        {
            "gain": values.mean(0),
            "error": np.sqrt(np.square(errors).sum(0)) / replicates,
            "spread": spread,
        },
        index=pd.Index(gains.entry_names, name="feature"),
    )
    return table.sort_values("gain", ascending=False, kind="stable")
