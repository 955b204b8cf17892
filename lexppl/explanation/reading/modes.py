"""Modes of the masks: fits that keep different features and predict as well as each other."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from lexppl.arviz_compatibility import Posterior, group_names, group_of, like
from lexppl.explanation.reading.masks import (
    PROBABILITY,
    SAMPLED,
    chains_are,
    fold_means,
    kind_of,
    mask_means,
)

APART = 0.25
"""Share of the rows in which either of two fits keeps a feature that the other does not, from which
on they are of two modes."""
ERRORS, LEAST = 2.0, 0.01
"""Standard errors of the held-out log-likelihood by which an alternative may be behind the best,
and nats a row that count for nothing: fits from two seeds differ by as much."""
MEMBER, HELD_OUT_BY = "mode_of_fit", "held_out_by"

Array = NDArray[np.float64]


def modes_of(posterior: Posterior) -> xr.Dataset | None:
    """The modes of the masks, the heaviest first: a posterior over alternatives. None where all
    fits keep the same features, or where one mode predicts better than the others.

    Use it where `agreement` is low: two copies of a column are each kept with probability ½ on
    average, but no fit keeps both.

    With `p_{rng} = E[z_{ng} | x_n]` of R fits (replicates, or one for each fold), fits r and s are

        S_{rs} = mean_n  max_g (p_{rng} − p_{sng})₊  max_g (p_{sng} − p_{rng})₊

    apart, the share of the rows in which either keeps what the other hides: 0 where one of two
    masks is part of the other. Modes are the clusters of complete linkage in which no two fits are
    more than ¼ apart. Mode k of R_k fits has

        w_k ∝ R_k exp(−δ_k² / 2 s_k²),

    δ_k how much lower its mean held-out log p(y | x) is than that of the best mode, and s_k² the
    squared standard error of this difference (of the same rows in pairs, or in folds of the rows
    that the fits of each hold out) and .01², as fits from two seeds differ by .01 nats a row. It is
    the number of fits that end in the mode, times the likelihood ratio of its being as good as the
    best. A mode with δ_k > 2 s_k is no alternative. Without y all δ are 0.

    Args:
        posterior: of :func:`lexppl.explain`, of rows that fits have not learned from, or of
            :meth:`lexppl.evaluation.Folds.posterior`.

    Returns:
        by `mode`, 1 to K: `mode_weight`; `mode_log_likelihood`, nats a row, where y was given;
        `mode_selection_probability` (mode, row, feature), the mean over its fits; and
        `mode_of_fit` (fit), 0 of fits that are of no alternative.

    Example:
        >>> from lexppl.arviz_compatibility import posterior_of
        >>> kept = [[[1.0, 0.0]] * 4, [[0.0, 1.0]] * 4, [[1.0, 0.0]] * 4]
        >>> stats = {"selection_probability": (("chain", "row", "feature"), kept, {"site": "mask"})}
        >>> mask = (("chain", "draw", "row", "feature"), np.ones((3, 1, 4, 2), int))
        >>> names = {"feature": ["size", "area"]}
        >>> posterior = posterior_of({"sample_stats": xr.Dataset(stats, names),
        ...     "predictions": xr.Dataset({"mask": mask}, names)}, {})
        >>> modes_of(posterior)["mode_weight"].values.round(2)
        array([0.67, 0.33])
    """
    means = mask_means(posterior, by_row=False)
    sampled = chains_are(posterior).startswith(SAMPLED)
    if "row" not in means.dims or sampled or kind_of(posterior) is not PROBABILITY:
        return None
    of_folds = fold_means(posterior)
    probability = means if of_folds is None else of_folds
    p = probability.values.astype(np.float64)
    far = np.zeros((len(p), len(p)))
    for r, s in combinations(range(len(p)), 2):
        more = p[r] - p[s]
        swapped = more.max(-1).clip(min=0.0) * (-more).max(-1).clip(min=0.0)
        far[r, s] = far[s, r] = swapped.mean()
    if far.max(initial=0.0) <= APART:
        return None
    label = fcluster(linkage(squareform(far), "complete"), APART, "distance")
    members = [np.flatnonzero(label == cluster) for cluster in np.unique(label)]
    mean, behind = _held_out(posterior, members, of_folds is not None)
    weight = weights(np.array([len(fits) for fits in members]), behind)
    order = [k for k in np.argsort(-weight, kind="stable") if weight[k] > 0.0]
    if len(order) < 2:
        return None
    of_fit = np.zeros(len(p), np.int64)
    for number, k in enumerate(order, 1):
        of_fit[members[k]] = number
    dims = ("mode", *probability.dims[1:])
    by_mode = np.stack([p[members[k]].mean(0) for k in order]).astype(probability.dtype)
    variables = {
        "mode_weight": ("mode", weight[order]),
        f"mode_{means.name}": (dims, by_mode),
        MEMBER: ("fit", of_fit),
    }
    if not np.isnan(mean).all():
        variables["mode_log_likelihood"] = ("mode", mean[order])
    coordinates = {
        name: probability[name] for name in probability.dims[1:] if name in probability.coords
    }
    return xr.Dataset(variables, {"mode": np.arange(1, len(order) + 1), **coordinates})


def weights(count: Array, behind: Array) -> Array:
    """Weights of alternatives, of so many fits and so many standard errors behind the best: as of
    :func:`modes_of`, 0 of those more than two behind.

    >>> weights(np.array([3, 2, 1]), np.array([0.0, 1.0, 2.1])).round(3)
    array([0.712, 0.288, 0.   ])
    """
    unscaled = count * np.exp(-np.square(behind) / 2.0) * (behind <= ERRORS)
    return np.asarray(unscaled / unscaled.sum())


def _held_out(
    posterior: Posterior, members: list[NDArray[np.int64]], in_folds: bool
) -> tuple[Array, Array]:
    """Mean held-out log-likelihood of each mode, and by how many standard errors it is behind the
    best; NaN and 0 where it is not known."""
    stats, count = group_of(posterior, "sample_stats"), len(members)
    if "log_evidence" not in stats or (in_folds and HELD_OUT_BY not in stats):
        return np.full(count, np.nan), np.zeros(count)
    evidence = stats["log_evidence"].values.astype(np.float64)
    if in_folds:
        fit_of_row = stats[HELD_OUT_BY].values
        rows = [evidence[0, np.isin(fit_of_row, fits)] for fits in members]
        mean = np.array([values.mean() for values in rows])
        variance = np.array([values.var(ddof=1) / len(values) for values in rows])
        best = mean.argmax()
        error = np.sqrt(variance + variance[best] + LEAST**2)
    else:
        by_mode = np.stack([evidence[fits].mean(0) for fits in members])
        mean = by_mode.mean(1)
        best = mean.argmax()
        variance = (by_mode - by_mode[best]).var(1, ddof=1) / by_mode.shape[1]
        error = np.sqrt(variance + LEAST**2)
    return mean, (mean[best] - mean) / error


def with_modes(posterior: Posterior) -> Posterior:
    """A posterior with :func:`modes_of` in its `sample_stats`; as it is where there are none."""
    modes = modes_of(posterior)
    if modes is None:
        return posterior
    groups = {name: group_of(posterior, name) for name in group_names(posterior)}
    groups["sample_stats"] = groups["sample_stats"].merge(modes)
    return like(posterior, groups)


@dataclass(frozen=True)
class Alternative:
    """Features that fits of a mode keep where fits of other modes keep others, the weight of the
    mode, and how many fits are of it."""

    features: tuple[str, ...]
    weight: float
    fits: int


def alternatives_of(posterior: Posterior) -> list[Alternative]:
    """The alternatives among the fits of a posterior, the heaviest first; none of one mode."""
    modes = modes_of(posterior)
    if modes is None:
        return []
    fits = (modes[MEMBER].values[:, None] == modes["mode"].values).sum(0)
    every = zip(special_features(modes), modes["mode_weight"].values, fits, strict=True)
    return [
        Alternative(tuple(features), float(weight), int(count)) for features, weight, count in every
    ]


def special_features(modes: xr.Dataset) -> list[list[str]]:
    """The features of each mode that it keeps where another one does not, in a quarter of the rows
    or more (else the first of them), the most so first."""
    (name,) = [key for key in modes if "row" in modes[key].dims]
    p = modes[name].values.astype(np.float64)
    names = [str(feature) for feature in modes[modes[name].dims[-1]].values]
    lists = []
    for of_mode in p:
        more = (of_mode - p).clip(min=0.0).mean(1).max(0)
        order = np.argsort(-more, kind="stable")
        lists.append([names[g] for place, g in enumerate(order) if more[g] >= APART or not place])
    return lists
