"""Values of pictures, as plots and reports draw them: choices of rows, swarms, heat maps."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
from scipy.stats import rankdata

from lexppl.argument_checks import int_at_least
from lexppl.arviz_compatibility import Posterior, group_of
from lexppl.explanation.reading.feature_values import GAIN, FeatureValues, feature_values
from lexppl.explanation.reading.masks import kind_of, mask_means, masks_of
from lexppl.explanation.reading.tables import chain_probabilities

LONGEST_LABEL, NARROW_LABEL = 28, 18
BINS = 70


def evenly(total: int, most: int) -> np.ndarray:
    """An even choice of at most so many places of a total."""
    return np.unique(np.linspace(0, total - 1, min(most, total)).round()).astype(int)


def short(name: Any, longest: int = LONGEST_LABEL) -> str:
    text = str(name)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def chosen_rows(names: Sequence[Any], rows: int | Sequence[Any]) -> list[int]:
    """Places of rows: an even choice of some number, or those of some names."""
    if isinstance(rows, str):
        raise TypeError(f"rows must be a number of rows or a list of names; it is {rows!r}")
    if not isinstance(rows, Sequence | np.ndarray):
        return evenly(len(names), int_at_least("rows", rows)).tolist()
    places = {str(name): i for i, name in enumerate(names)}
    unknown = [name for name in rows if str(name) not in places]
    if unknown or not len(rows):
        first = ", ".join(map(str, list(names)[:3]))
        raise ValueError(
            f"rows must be names of the posterior's {len(names)} rows, such as {first}; "
            f"{unknown or 'none'} are {'not' if unknown else 'given'}"
        )
    return [places[str(name)] for name in rows]


def view(losses: np.ndarray) -> tuple[float, float]:
    """Limits of the axis that leave out a few very large first losses."""
    finite = losses[np.isfinite(losses)]
    if finite.size == 0:
        return 0.0, 1.0
    low, high, typical = finite.min(), finite.max(), np.quantile(finite, 0.98)
    if high - low > 3 * (typical - low) > 0:
        high = typical
    margin = 0.06 * (high - low) or 0.05
    return float(low - margin), float(high + margin)


def means_by_row(
    posterior: Posterior, rows: int, order: Sequence[str] | None
) -> tuple[NDArray[np.float64], list[str], list[str]]:
    """Values of :func:`lexppl.plots.plot_heatmap`, `(B, G)`, and names of rows and features."""
    ranked, means = chain_probabilities(posterior), mask_means(posterior)
    columns = _columns(ranked, order)
    chosen = evenly(means.sizes["row"], int_at_least("rows", rows))
    values = means.isel(row=chosen).values.mean(0, dtype=np.float64)
    places = _clustered(values)
    draws = masks_of(posterior)
    names = [short(name) for name in draws[ranked.dims[-1]].values[columns]]
    row_names = [short(name) for name in draws["row"].values[chosen][places]]
    return values[places][:, columns], row_names, names


def _columns(ranked: xr.DataArray, order: Sequence[str] | None) -> np.ndarray:
    if order is None:
        return np.argsort(-ranked.values.mean(0), kind="stable")
    names = [str(name) for name in ranked[ranked.dims[-1]].values]
    if sorted(map(str, order)) != sorted(names):
        raise ValueError(f"order must have each of the features {names} once; it is {list(order)}")
    return np.array([names.index(str(name)) for name in order])


def _clustered(values: np.ndarray) -> np.ndarray:
    if len(values) < 3 or bool((values == values[:1]).all()):
        return np.arange(len(values))
    tree = linkage(values, method="average", metric="euclidean")
    if len(values) <= 300:
        tree = optimal_leaf_ordering(tree, values)
    return leaves_list(tree)


@dataclass(frozen=True, eq=False)
class Swarm:
    """Points of :func:`lexppl.plots.plot_beeswarm`, `(B, J)`, ranks in [0, 1], offsets down."""

    names: list[str]
    points: NDArray[np.float64]
    ranks: NDArray[np.float64]
    offsets: NDArray[np.float64]
    label: str
    span: tuple[float, float]


def swarm_of(posterior: Posterior, features: int | Sequence[str], rows: int) -> Swarm:
    """The points of :func:`lexppl.plots.plot_beeswarm`, whose arguments these are."""
    rows = int_at_least("rows", rows)
    stats = group_of(posterior, "sample_stats")
    means = mask_means(posterior)
    shown = stats.get(GAIN, means)
    each = shown.values.astype(np.float64)
    if GAIN not in stats:
        each = each.mean(0)
    # Of some features no gain is known.
    judged = ~np.isnan(each).all(0)
    names, each = means[means.dims[-1]].values[judged].astype(str).tolist(), each[:, judged]
    known = np.flatnonzero(~np.isnan(each).any(1))
    places = known[evenly(len(known), rows)]
    chosen = _chosen(features, names, each[known].mean(0))
    values = feature_values(posterior)
    points = each[places][:, [names.index(name) for name in chosen]]
    ranks = np.stack([_ranks(values.get(name), places) for name in chosen], 1)
    low, high = float(points.min(initial=0.0)), float(points.max(initial=0.0))
    return Swarm(
        chosen,
        points,
        ranks,
        np.stack([_offsets(*own, low, high) for own in zip(points.T, ranks.T, strict=True)], 1),
        "gain in this row, nats" if GAIN in stats else kind_of(posterior).label,
        (low, high),
    )


def _chosen(
    features: int | Sequence[str], names: list[str], mean: NDArray[np.float64]
) -> list[str]:
    if isinstance(features, int) and not isinstance(features, bool):
        order = np.argsort(-np.abs(mean), kind="stable")[: int_at_least("features", features)]
        return [names[g] for g in order]
    if isinstance(features, str) or not isinstance(features, Sequence):
        raise TypeError(f"features must be a number or a list of names; it is {features!r}")
    unknown = [name for name in features if name not in names]
    if unknown or not features:
        raise ValueError(f"features must be names among {names}; {unknown or 'none'} are given")
    return [str(name) for name in features]


def _offsets(
    across: NDArray[np.float64], ranks: NDArray[np.float64], low: float, high: float
) -> NDArray[np.float64]:
    """Downwards, so that points of the same place stand one below the other, high values first."""
    bins = np.floor((across - low) / ((high - low) / BINS or 1.0)).astype(int)
    counts = np.bincount(bins)
    unit = min(0.07, 0.76 / max(1, counts.max(initial=0)))
    order = np.lexsort((-np.nan_to_num(ranks), bins))
    own = counts[bins[order]]
    offsets = np.empty(len(across))
    offsets[order] = unit * (np.arange(len(own)) - np.cumsum(counts)[bins[order]] + (own + 1) / 2)
    return offsets


def _ranks(values: FeatureValues | None, places: NDArray[np.intp]) -> NDArray[np.float64]:
    ranks = np.full(len(places), np.nan)
    if values is not None and values.levels is None:
        numbers = values.numbers[places]
        seen = ~np.isnan(numbers)
        if seen.sum() > 1:
            ranks[seen] = (rankdata(numbers[seen]) - 1) / (seen.sum() - 1)
    return ranks
