"""Single rows of a posterior: what is predicted of each, and the spread of its mask means."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from lexppl.arviz_compatibility import Posterior, group_names, group_of
from lexppl.explanation.reading.masks import (
    ATTRIBUTION,
    PROBABILITY,
    SAMPLED,
    chains_are,
    fold_means,
    kind_of,
    mask_means,
    masks_of,
    responses_of,
)
from lexppl.explanation.reading.tables import covers_rows, mean_error
from lexppl.summary import number_text


@dataclass(frozen=True)
class RowOutcome:
    """A row's label or response, and what is predicted of it with which probability; None or NaN
    where that is not known."""

    observed: str | None
    predicted: str | None
    probability: float = float("nan")

    @property
    def right(self) -> bool | None:
        """Whether the label is predicted; None where it is not known, and of responses."""
        if self.observed is None or self.predicted is None or np.isnan(self.probability):
            return None
        return self.observed == self.predicted

    def lines(self) -> list[str]:
        """In lines of a few words."""
        words = [] if self.observed is None else [f"is {self.observed}"]
        if self.predicted is not None:
            sure = "" if np.isnan(self.probability) else f", {percent(self.probability)}"
            words.append(f"pred. {self.predicted}{sure}")
        return words


def row_outcomes(posterior: Posterior, observed: Sequence[Any] | None = None) -> list[RowOutcome]:
    """What each row is, by `observed` (classes by name or place) or `observed_data`, and its
    prediction."""
    rows = mask_means(posterior).sizes["row"]
    names, predictive = group_names(posterior), responses_of(posterior)
    known: Any = observed
    if known is None and "observed_data" in names:
        response = group_of(posterior, "observed_data")["y"]
        known = response.values if response.ndim == 1 else None
    if known is not None and len(known) != rows:
        raise ValueError(f"observed must be of the posterior's {rows} rows; there are {len(known)}")
    if "y_probability" in predictive:
        share = predictive["y_probability"]
        p = share.values.mean(0, dtype=np.float64)
        classes = [str(name) for name in share["class"].values]
        labels = [None] * rows if known is None else _labels(known, classes)
        best = p.argmax(1)
        return [
            RowOutcome(label, classes[c], float(p[i, c]))
            for i, (label, c) in enumerate(zip(labels, best, strict=True))
        ]
    texts = [None] * rows if known is None else [_text(value) for value in known]
    if "y" not in predictive or predictive["y"].ndim != 3:
        return [RowOutcome(text, None) for text in texts]
    middle = predictive["y"].values.mean((0, 1), dtype=np.float64)
    return [RowOutcome(t, _text(m)) for t, m in zip(texts, middle, strict=True)]


def percent(share: float) -> str:
    """A probability in percent, never a 100 or a 0 that it is not.

    >>> percent(0.5), percent(0.99999), percent(0.0004), percent(0.031)
    ('50 %', '> 99.9 %', '< 0.1 %', '3.1 %')
    """
    value = 100 * share
    if 0 < value < 0.1:
        return "< 0.1 %"
    if 99.9 < value < 100:
        return "> 99.9 %"
    return f"{value:.0f} %" if 10 <= value <= 90 else f"{value:.1f} %"


def _labels(known: Sequence[Any], classes: Sequence[str]) -> list[str | None]:
    labels = np.asarray(known)
    if labels.dtype.kind in "US":
        unknown = sorted(set(labels.tolist()) - set(classes))
        if not unknown:
            return [str(name) for name in labels]
    else:
        whole = labels.astype(np.int64)
        unknown = sorted(set(labels[(whole != labels) | (whole < 0) | (whole >= len(classes))]))
        if not unknown:
            return [classes[place] for place in whole]
    raise ValueError(
        f"observed must be of the posterior's classes {list(classes)[:10]}, as text, or of their "
        f"places 0 … {len(classes) - 1}; it has {[str(value) for value in unknown[:5]]}"
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else number_text(float(value))


@dataclass(frozen=True, eq=False)
class RowSpread:
    """The spread `(N, G)` of some rows' mask means, its label on an axis, and its meaning in a
    sentence."""

    values: NDArray[np.float64]
    label: str
    meaning: str


def row_spread(posterior: Posterior, rows: Any = slice(None)) -> RowSpread:
    """The width of the interval of a row's E[z | x]: of the 95 % t-interval over R replicates, mean
    ± t_{.975, R−1} s / √R, over R folds mean ± t_{.975, R−1} s, cut at 0 and at the largest
    value; of a single fit, or of a sampled posterior, the standard deviation of a draw, of
    selections √(p(1 − p))."""
    interval = row_interval(posterior, rows)
    if interval is None:
        return _of_draws(posterior, rows)
    ends, over = interval
    return RowSpread(
        ends[1] - ends[0],
        "width of 95\u00a0% interval",
        f"the width of the 95 % interval of the {kind_of(posterior).label} over {over}",
    )


def row_interval(
    posterior: Posterior, rows: Any = slice(None)
) -> tuple[NDArray[np.float64], str] | None:
    """The interval of :func:`row_spread`, its ends `(2, rows, G)`, and what it is over, or None."""
    means = mask_means(posterior)
    by_chain = means.values[:, rows].astype(np.float64)
    kind = kind_of(posterior)
    of_folds = fold_means(posterior)
    count = len(by_chain if of_folds is None else of_folds)
    sampled = of_folds is None and chains_are(posterior).startswith(SAMPLED)
    if count < 2 or sampled:
        return None
    if of_folds is not None:
        spread = of_folds.values[:, rows].astype(np.float64).std(0, ddof=1)
        over = f"{count} folds"
    else:
        spread = mean_error(by_chain, covers_rows(posterior))
        over = f"{count} replicates"
    half, middle = stdtrit(count - 1, 0.975) * spread, by_chain.mean(0)
    ends = np.stack([middle - half, middle + half])
    return (ends if kind is ATTRIBUTION else ends.clip(0.0, kind.most)), over


def _of_draws(posterior: Posterior, rows: Any) -> RowSpread:
    """The standard deviation of a draw, of a single fit or over all chains of a sampler."""
    means = mask_means(posterior)
    whose = ", of a single fit" if len(means) == 1 else ""
    label, meaning = "sd of a draw", f"the standard deviation of a draw of the mask{whose}"
    exact = means.values[:, rows].astype(np.float64).mean(0).clip(0.0, 1.0)
    if kind_of(posterior) is PROBABILITY:
        return RowSpread(np.sqrt(exact * (1.0 - exact)), label, meaning)
    drawn = masks_of(posterior)[means.attrs["site"]].values[:, :, rows]
    drawn = drawn.reshape(-1, *drawn.shape[2:])
    if len(drawn) < 2:
        return RowSpread(np.full(exact.shape, np.nan), label, meaning)
    return RowSpread(drawn.std(0, ddof=1, dtype=np.float64), label, meaning)
