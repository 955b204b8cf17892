"""Features found against knockoffs of themselves, by a fit on both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from torch import nn

from lexppl.argument_checks import fraction
from lexppl.data import Dataset
from lexppl.evaluation.gains import FeatureGains
from lexppl.evaluation.refits.knockoff_draws import knockoff_draws

MARK = "{} (knockoff)"
"""What a knockoff of an entry or feature is called."""


def with_knockoffs(data: Dataset, imputer: nn.Module, seed: int = 0) -> Dataset:
    """A data set with a knockoff beside every entry, to fit an explainer on.

    Entries g and G + g are a feature and its knockoff. What is fitted must treat all entries alike:
    the library's networks do, also their hidden features' imputers where those are fitted on these
    rows. Whatever follows is a function of the rows, so they may be split and cross-fitted.

    Args:
        data: N rows of D features and G entries.
        imputer: whose distribution of the rows is believed: see :func:`knockoff_draws`.
        seed: of the draws.

    Returns:
        2D features, 2G entries, the same target; no encoding and no truth.

    Raises:
        ValueError, TypeError: as :func:`knockoff_draws`.

    Example:
        >>> from lexppl.data import synthetic
        >>> from lexppl.models import GaussianImputer
        >>> both = with_knockoffs(synthetic("S1", rows=20, seed=0), GaussianImputer())
        >>> both.n_entries, both.entry_names[11]
        (22, 'x1 (knockoff)')
    """
    drawn = knockoff_draws(imputer, data.x, data.groups, seed)
    return replace(
        data,
        x=torch.cat([data.x, drawn], 1),
        feature_names=_doubled(data.feature_names),
        groups=(*data.groups, *(g + data.n_entries for g in data.groups)),
        entry_names=_doubled(data.entry_names),
        truth=None,
        encoding=None,
        is_part=True,
    )


def knockoff_table(gains: FeatureGains, fdr: float = 0.1) -> pd.DataFrame:
    r"""The features that are found against their knockoffs, at a false discovery rate:

        W_g = mean gain of g − mean gain of its knockoff,
        found:  W_g ≥ T,   T = min{ t > 0 : (1 + #{W ≤ −t}) / max(1, #{W ≥ t}) ≤ fdr }

    (knockoff+). Of a feature that tells nothing of y beyond the others, W is as likely to be
    negative as positive, whatever the model and its gains; so the share of such features among
    those found is at most `fdr` on average, in any number of rows, if the features have the
    distribution that their knockoffs were drawn by. It is the stricter way beside
    :func:`lexppl.evaluation.gain_table`, whose test takes the fit as given: this one is of a fit on
    twice the features, and **at a rate q it finds at least 1/q features or none**, ten at .1.

    Args:
        gains: of a fit on :func:`with_knockoffs`, on held-out rows of it, 2G entries.
        fdr: the rate, in (0, 1).

    Returns:
        indexed by `feature`, the largest W first: `gain`, `knockoff_gain`, `statistic` (W) and
        `found`; `attrs["threshold"]` is T, infinite where nothing is found.

    Raises:
        ValueError: entries that are not G features and then their G knockoffs, gains that are not
            finite, a rate outside (0, 1).

    Source:
        Barber, Candès. Controlling the false discovery rate via knockoffs. Annals of Statistics
        2015, § 1.2. Candès, Fan, Janson, Lv 2018.

    Example:
        >>> names = [f"x{i}" for i in range(1, 5)]
        >>> each = torch.tensor([[0.4, 0.3, 0.5, 0.0, 0.0, 0.1, 0.0, 0.0]]).double()
        >>> gains = FeatureGains(each[None], (*names, *(f"{n} (knockoff)" for n in names)))
        >>> knockoff_table(gains, fdr=0.4)["found"].to_dict()
        {'x3': True, 'x1': True, 'x2': True, 'x4': False}
        >>> knockoff_table(gains, fdr=0.1)["found"].any()
        np.False_
    """
    rate = fraction("fdr", fdr)
    names, half = gains.entry_names, len(gains.entry_names) // 2
    if names[half:] != tuple(map(MARK.format, names[:half])):
        raise ValueError(
            "gains must be of features and then their knockoffs, as a fit on with_knockoffs(data, "
            f"imputer) has them; the entries are {list(names)}"
        )
    mean = gains.gains.double().mean((0, 1)).cpu().numpy()
    if not np.isfinite(mean).all():
        raise ValueError("gains must be finite; they have NaN or infinite values")
    statistic = mean[:half] - mean[half:]
    threshold = knockoff_threshold(statistic, rate)
    table = pd.DataFrame(
        {
            "gain": mean[:half],
            "knockoff_gain": mean[half:],
            "statistic": statistic,
            "found": statistic >= threshold,
        },
        index=pd.Index(names[:half], name="feature"),
    ).sort_values("statistic", ascending=False, kind="stable")
    table.attrs["threshold"] = threshold
    return table


def knockoff_threshold(statistics: Sequence[float] | np.ndarray, fdr: float) -> float:
    """The threshold T of knockoff+: see :func:`knockoff_table`.

    Example:
        >>> knockoff_threshold([3.0, 2.0, 1.0, -0.5], fdr=0.34)
        1.0
        >>> knockoff_threshold([3.0, -1.0], fdr=0.34)
        inf
    """
    values = np.asarray(statistics, dtype=float)
    # Of equal sizes all count at once: a threshold stands at a size that occurs.
    for size in np.unique(np.abs(values[values != 0])):
        false = 1 + int((values <= -size).sum())
        if false <= fdr * max(1, int((values >= size).sum())):
            return float(size)
    return float("inf")


def _doubled(names: Sequence[str]) -> tuple[str, ...]:
    return (*names, *map(MARK.format, names))
