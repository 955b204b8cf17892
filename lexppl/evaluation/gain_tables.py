"""Features and groups by their gain: intervals, and those found at an error rate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.stats import t

from lexppl.argument_checks import fraction, int_between
from lexppl.evaluation.gains import FeatureGains
from lexppl.explanation.reading.feature_values import strata_of

FDR, LEVEL = 0.1, 0.9
INTERACTION = ["gain", "standard_error", "lower", "upper", "difference"]
INTERACTION += ["difference_error", "difference_lower", "difference_upper"]


def group_table(
    gains: FeatureGains, fdr: float | None = FDR, *, fwer: float | None = None, level: float = LEVEL
) -> pd.DataFrame:
    r"""The groups of features by their gain, with intervals, and those that are found.

    With the gains `d_n` of N rows, columns:

    - `gain`: their mean, in nats a row.
    - `lower`, `upper`: the interval `gain ± t_{1−α, N−1} √V`, α as below. V is var(d_n) / N, or of
      rows in R folds `var_r(mean_{n in r} d_n) / R` where that is larger: folds differ by their
      rows and by their fits. Where rows belong to C units (`gains.unit`) it is the variance by
      units, C / (C − 1) Σ_c (Σ_{n in c} (d_n − gain))² / N², with C − 1 degrees of freedom.
    - `p`: of the hypothesis that the gain is not above 0, one-sided, by the same statistic.
    - `found`: whether p ≤ α, that is, whether the interval is above 0.

    - `error` and `error_without`, where errors are known: the share of rows whose likeliest label
      is wrong, or the mean distance of a response from its prediction, with everything that is
      kept and without the group.

    α is that of Benjamini and Hochberg's procedure, fdr · k / m for the k found of m groups (of
    none, k = 1), but at most (1 − level) / 2. So of the groups found at most a share `fdr` is
    expected to have no gain (for tests that are independent, or positively dependent), and of
    their intervals at most that share to lie above the truth (Benjamini and Yekutieli, false
    coverage): intervals are adjusted for the selection. With `fwer` α is fwer / m (Bonferroni), or
    half of it where groups have several members, which :func:`gain_table` tests by the other half:
    the probability that anything is found that has no gain. With neither (`fdr=None`) α is
    (1 − level) / 2: intervals of one group at a time, not adjusted.

    The mean gain of a group that says nothing of y is below 0 where the predictor has learned noise
    from it, so that the test is conservative. It is of the predictors as they were fitted: rows
    must be independent of each other and of the fits, and N large enough for a normal mean.

    Args:
        gains: of held-out rows.
        fdr: the false discovery rate, in (0, 1), or None.
        fwer: the family-wise error rate in its place.
        level: least level of an interval, in (0, 1).

    Returns:
        indexed by `group`, the largest gain first, with `members`, how many there are.

    Raises:
        ValueError: fewer than two rows, gains that are not finite, a rate or a level outside
            (0, 1).

    Source:
        Benjamini, Hochberg. Controlling the false discovery rate. JRSS B 1995. Benjamini,
        Yekutieli. False discovery rate-adjusted multiple confidence intervals for selected
        parameters. JASA 2005.

    Example:
        >>> import torch
        >>> each = torch.tensor([[0.3, 0.1], [0.2, -0.2], [0.4, 0.1], [0.3, -0.1]])
        >>> table = group_table(FeatureGains(each.double(), ("age", "noise")))
        >>> table[["gain", "p"]].round(2).loc["age"].tolist(), table["found"].tolist()
        ([0.3, 0.0], [True, False])
    """
    values = gains.gains if gains.of_groups is None else gains.of_groups
    names, sizes = gains.entry_names, [1] * values.shape[1]
    if gains.groups is not None:
        names, sizes = gains.groups.names, [len(group) for group in gains.groups.members]
    if fwer is not None and max(sizes) > 1:
        fwer = fraction("fwer", fwer) / 2.0
    table = _tested(gains, values, fdr, fwer, level)
    table["members"] = sizes
    if gains.errors is not None:
        errors = gains.errors.mean(0).cpu().numpy()
        table["error"], table["error_without"] = errors[0], errors[1:]
    table.index = pd.Index(names, name="group")
    return table.sort_values("gain", ascending=False, kind="stable")


def gain_table(
    gains: FeatureGains, fdr: float | None = FDR, *, fwer: float | None = None, level: float = LEVEL
) -> pd.DataFrame:
    """The features by their gain given all others, with intervals, and those that are found.

    Columns as in :func:`group_table`, with the `group` of each in place of its size. A feature that
    is a group by itself has the group's line. The members of groups of several are tested where
    their group is found, as a family of their own (with `fwer`, at half of it over all members of
    such groups, found or not): a member is found if it says something of y beyond the other
    members, to the judge. Of copies, or of a column and a function of it, a little may be found
    that the judge has not learned to do without. Members of groups that are not found are not
    found.

    Args:
        gains, fdr, fwer, level: as in :func:`group_table`.

    Returns:
        indexed by `feature`, groups by their gain and in each the largest gain first.

    Raises:
        ValueError: as :func:`group_table`.

    Example:
        >>> import torch
        >>> each = torch.tensor([[0.3, 0.1], [0.2, -0.2], [0.4, 0.1], [0.3, -0.1]])
        >>> gain_table(FeatureGains(each.double(), ("age", "noise")))["found"].to_dict()
        {'age': True, 'noise': False}
    """
    names = pd.Index(gains.entry_names, name="feature")
    by_group = group_table(gains, fdr, fwer=fwer, level=level)
    groups = gains.groups
    table = _tested(gains, gains.gains, fdr, fwer, level)
    table.index = names
    table["group"] = names if groups is None else [groups.names[k] for k in groups.of_entries()]
    own = by_group.loc[table["group"]]
    alone = (own["members"] == 1).to_numpy()
    shared = ["gain", "lower", "upper", "p", "found"]
    for column in shared:
        table[column] = np.where(alone, own[column], table[column])
    table["found"] &= alone
    tested = ~alone & own["found"].to_numpy(dtype=bool)
    if tested.any():
        members = np.flatnonzero(tested)
        share = None if fwer is None else fwer / 2.0 * len(members) / (~alone).sum()
        family = _tested(gains, gains.gains[:, members], fdr, share, level)
        table.loc[tested, shared[:-1]] = family[shared[:-1]].to_numpy()
        table.loc[tested, "found"] = family["found"].to_numpy()
    place = by_group.index.get_indexer(pd.Index(table["group"]))
    order = np.lexsort((-table["gain"].to_numpy(), place))
    return table.iloc[order]


def interaction_table(
    gains: FeatureGains, feature: str, by: Any, *, bins: int = 2, level: float = LEVEL
) -> pd.DataFrame:
    r"""The gain of a feature or group by strata of another: "A matters only where B is high".

    With the gains `d_n` of N rows, N_s of them in stratum s with mean m_s and the rest with m_r,
    columns:

    - `rows`, N_s; `gain`, m_s; `standard_error`, of the per-row values whose mean it is,

          m_s + 𝟙[n ∈ s] (d_n − m_s) √(N (N − 1) / (N_s (N_s − 1))),

      by rows, units or folds as in :func:`group_table`: √(s²_s / N_s) of independent rows.
    - `difference`, m_s − m_r: whether the feature matters more here than in all other rows. Its
      `difference_error` is of the differences of such values, so that units with rows in several
      strata count as one; of independent rows it is Welch's, √(s²_s / N_s + s²_r / (N − N_s)).
    - `lower`, `upper`, `difference_lower`, `difference_upper`: t-intervals over rows, given the
      fits, of the smaller part's degrees of freedom. Each is at `level` by itself: they are not
      adjusted for the number of strata, nor for a choice of `feature` and `by` from these rows.

    Args:
        gains: of held-out rows.
        feature: name of a mask entry or of a group.
        by: values of the same rows, `(N,)`: levels, each a stratum, or numbers, which are cut at
            quantiles. Rows without a value and strata of one row are left out.
        bins: into how many strata numbers are cut.
        level: of the intervals, in (0, 1).

    Returns:
        indexed by `stratum`.

    Raises:
        ValueError: no such feature; values of another number of rows; fewer than two strata.

    Example:
        >>> each = torch.tensor([[0.1], [-0.1], [0.5], [0.3]]).double()
        >>> age = [30.0, 40.0, 60.0, 80.0]
        >>> table = interaction_table(FeatureGains(each, ("dose",)), "dose", age)
        >>> table[["rows", "gain", "standard_error", "difference"]].round(3)
                        rows  gain  standard_error  difference
        stratum
        (29.999, 50.0]     2   0.0             0.1        -0.4
        (50.0, 80.0]       2   0.4             0.1         0.4
    """
    columns = dict(zip(gains.entry_names, gains.gains.T, strict=True))
    if gains.groups is not None and gains.of_groups is not None:
        columns |= dict(zip(gains.groups.names, gains.of_groups.T, strict=True))
    if feature not in columns:
        raise ValueError(f"feature must be one of {list(columns)}; it is {feature!r}")
    inside = pd.get_dummies(strata_of(by, len(gains.gains), bins))
    inside = inside.loc[:, inside.sum() > 1]
    seen = inside.any(axis=1).to_numpy()
    if inside.shape[1] < 2:
        raise ValueError("by must have two strata of two rows or more")
    gains, own = gains.where(torch.tensor(seen)), inside.to_numpy()[seen]
    values = columns[feature].detach().double().cpu().numpy()[seen, None]
    parts = np.hstack([own, ~own])
    sizes = parts.sum(0)
    mean = (values * parts).sum(0) / sizes
    scale = np.sqrt(len(own) * (len(own) - 1) / (sizes * (sizes - 1)))
    here, elsewhere = np.hsplit(mean + parts * (values - mean) * scale, 2)
    each = np.hstack([here, here - elsewhere])
    unit = np.arange(len(own)) if gains.unit is None else gains.unit.cpu().numpy()
    counts = [min(len(np.unique(unit[s])), len(np.unique(unit[~s]))) for s in own.T]
    free = np.tile(counts, 2) - 1
    error = np.sqrt(_variance(each, gains))
    half = t.isf((1.0 - fraction("level", level)) / 2.0, free) * error
    found = np.stack([each.mean(0), error, each.mean(0) - half, each.mean(0) + half], 1)
    table = pd.DataFrame(np.hstack(np.split(found, 2)), inside.columns, INTERACTION)
    table.insert(0, "rows", own.sum(0))
    return table.rename_axis("stratum")


def _tested(
    gains: FeatureGains, given: object, fdr: float | None, fwer: float | None, level: float
) -> pd.DataFrame:
    """Mean, interval, p and whether found of each column of gains, `(N, K)`, as one family."""
    most = (1.0 - fraction("level", level)) / 2.0
    values = np.asarray(given.detach().cpu() if hasattr(given, "detach") else given, np.float64)
    rows, count = values.shape
    if rows < 2:
        raise ValueError(f"a spread over rows needs two rows or more; there are {rows}")
    if not np.isfinite(values).all():
        raise ValueError("gains must be finite; they have NaN or infinite values")
    mean, error = values.mean(0), np.sqrt(_variance(values, gains))
    with np.errstate(divide="ignore", invalid="ignore"):
        # A feature that changes nothing has 0/0.
        score = np.where((mean == 0) & (error == 0), 0.0, mean / error)
    free = rows - 1 if gains.unit is None else len(gains.unit.unique()) - 1
    p = t.sf(score, free)
    alpha = most
    if fwer is not None:
        alpha = min(fraction("fwer", fwer) / count, most)
    elif fdr is not None:
        steps = np.minimum(fraction("fdr", fdr) * np.arange(1, count + 1) / count, most)
        passed = np.flatnonzero(np.sort(p) <= steps)
        alpha = steps[passed[-1] if len(passed) else 0]
    half = t.isf(alpha, free) * error
    return pd.DataFrame(
        {"gain": mean, "lower": mean - half, "upper": mean + half, "p": p, "found": p <= alpha}
    )


def _variance(values: NDArray[np.float64], gains: FeatureGains) -> NDArray[np.float64]:
    """Of means over rows, by the rows, their units, or the folds."""
    of_rows: NDArray[np.float64] = values.var(0, ddof=1) / len(values)
    if gains.unit is not None:
        _, unit = np.unique(gains.unit.cpu().numpy(), return_inverse=True)
        count = unit.max() + 1
        if count < 2:
            raise ValueError("errors by groups of rows need two groups or more; there is one")
        sums = np.zeros((count, values.shape[1]))
        np.add.at(sums, unit, values - values.mean(0))
        of_rows = np.square(sums).sum(0) * count / (count - 1) / len(values) ** 2
    if gains.part is None:
        return of_rows
    part = gains.part.cpu().numpy()
    means = np.stack([values[part == fold].mean(0) for fold in np.unique(part)])
    return np.maximum(of_rows, means.var(0, ddof=1) / len(means)) if len(means) > 1 else of_rows


def row_gains(gains: FeatureGains, row: int) -> pd.Series:
    """What each feature is worth for the prediction of one row, in nats, the largest first.

    The gain is of the row's own y: it says whether the feature helped to predict what was observed,
    or, of a black box's probabilities, what the model says. One row has no interval over rows.

    Args:
        gains: of :func:`feature_gains`.
        row: its place among the rows that were judged, from 0.

    Raises:
        ValueError: no such row.

    Example:
        >>> import torch
        >>> each = torch.tensor([[0.3, 0.1], [0.2, -0.2]]).double()
        >>> row_gains(FeatureGains(each, ("age", "noise")), 1).to_dict()
        {'age': 0.2, 'noise': -0.2}
    """
    place = int_between("row", row, 0, len(gains.gains) - 1, note="the rows that were judged")
    names = pd.Index(gains.entry_names, name="feature")
    own = pd.Series(gains.gains[place].cpu().numpy(), names, name="gain")
    return own.sort_values(ascending=False, kind="stable")
