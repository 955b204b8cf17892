"""What a report says of images: maps of rows by class, mean maps, and single rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import colormaps
from numpy.typing import NDArray

from lexppl.argument_checks import int_at_least
from lexppl.arviz_compatibility import Posterior
from lexppl.cli.report.images_and_texts.map_tiles import Tile, tile
from lexppl.cli.report.shown_rows import RowGroup, shown_rows
from lexppl.explanation.reading.images import ImageGeometry, image_geometry
from lexppl.explanation.reading.masks import (
    ATTRIBUTION,
    PROBABILITY,
    kind_of,
    mask_means,
    masks_of,
    responses_of,
)
from lexppl.explanation.reading.rows import RowOutcome, percent, row_outcomes, row_spread
from lexppl.plots.images import (
    Pixels,
    as_colours,
    only_kept,
    row_title,
    tinted,
    value_ends,
    widest_of,
)
from lexppl.plots.style import chosen_rows

LEAST = 1e-9
ROW_DRAWS = 3
SHOWN_CLASSES = 4


@dataclass(frozen=True)
class TileGroup:
    """Tiles under a heading."""

    heading: str
    tiles: tuple[Tile, ...]


@dataclass(frozen=True)
class ImageRow:
    """A single row's part of a page.

    Args:
        name: of the row.
        title: its heading.
        prediction: what is predicted, and why it is shown.
        tiles: its image, its map, how far that is from sure, and draws of its mask.
    """

    name: str
    title: str
    prediction: str
    tiles: tuple[Tile, ...]


@dataclass(frozen=True)
class ImageParts:
    """What a report says of images.

    Args:
        groups: rows by class, with the image and the map of each.
        means: the mean map of each class.
        rows: single rows.
        caption: how to read the maps.
        least: the smallest value of a map, 0 or below.
        most: the largest.
        label: what the values are.
    """

    groups: tuple[TileGroup, ...]
    means: tuple[Tile, ...]
    rows: tuple[ImageRow, ...]
    caption: str
    least: str
    most: str
    label: str


class _Maps:
    """The maps of a posterior's rows as colours."""

    def __init__(self, posterior: Posterior) -> None:
        self.geometry: ImageGeometry = image_geometry(posterior)
        self.kind = kind_of(posterior)
        self.posterior = posterior
        self.ends = value_ends(self.geometry.images)
        self.means: NDArray[np.float64] = mask_means(posterior).values.mean(0, dtype=np.float64)
        self.signed = self.kind is ATTRIBUTION
        largest = max(float(np.abs(self.means).max(initial=0.0)), LEAST)
        self.most = 1.0 if self.kind is PROBABILITY else largest
        masks = masks_of(posterior)
        count = len(self.means)
        self.names = masks["row"].values if "row" in masks.coords else np.arange(count)

    def image(self, place: int) -> Pixels:
        return as_colours(self.geometry.images[place], self.ends)

    def map_of(self, place: int) -> Pixels:
        return self.tint(self.image(place), self.means[place])

    def tint(self, colours: Pixels, values: NDArray[Any]) -> Pixels:
        return tinted(colours, self.geometry.on_pixels(values), self.most, self.signed)

    @property
    def word(self) -> str:
        """What the maps show, in words."""
        return "attributions" if self.signed else self.kind.label


def image_parts(
    posterior: Posterior,
    observed: Sequence[Any] | None = None,
    *,
    per_class: int = 3,
    selected: Sequence[Any] = (),
) -> ImageParts:
    """The parts of a report on images.

    Args:
        posterior: what :func:`lexppl.explain` returned of images.
        observed: the rows' labels or responses; those of `observed_data` if None, where they are.
        per_class: rows that are predicted right, and that are predicted wrong, of each class.
        selected: names of rows to be shown one by one; three of those above if none.

    Raises:
        TypeError, ValueError: not a posterior of :func:`lexppl.explain`; rows that are no images;
            names that it does not have.
    """
    per_class = int_at_least("per_class", per_class)
    maps = _Maps(posterior)
    outcomes = row_outcomes(posterior, observed)
    places = chosen_rows(list(maps.names), selected) if len(selected) else None
    groups = shown_rows(outcomes, per_class)
    if places is None:
        places = [place for group in groups[:3] for place in group.places[:1]]
    return ImageParts(
        tuple(_tiles(maps, outcomes, group) for group in groups),
        tuple(_mean_maps(maps, outcomes)),
        tuple(_rows(maps, outcomes, places)),
        _caption(maps),
        f"−{maps.most:.2g}" if maps.signed else "0",
        f"{maps.most:.2g}",
        maps.word,
    )


def _tiles(maps: _Maps, outcomes: Sequence[RowOutcome], group: RowGroup) -> TileGroup:
    tiles = []
    for place in group.places:
        lines = [row_title(maps.names[place]), *outcomes[place].lines()]
        alt = f"{', '.join(lines)}: the image, and the map of its {maps.word}"
        tiles.append(tile([maps.image(place), maps.map_of(place)], alt, lines))
    return TileGroup(group.heading, tuple(tiles))


def _mean_maps(maps: _Maps, outcomes: Sequence[RowOutcome]) -> Iterator[Tile]:
    """The mean map of the rows of each label, on their mean image."""
    labels = [o.observed if o.right is not None else None for o in outcomes]
    if not any(labels):
        labels = [o.predicted if not np.isnan(o.probability) else None for o in outcomes]
    for label in dict.fromkeys(sorted(name for name in labels if name is not None)):
        own = np.array([name == label for name in labels])
        rows = f"{int(own.sum())} row{'s' if own.sum() > 1 else ''}"
        picture = maps.tint(
            as_colours(maps.geometry.images[own].mean(0, dtype=np.float64), maps.ends),
            maps.means[own].mean(0),
        )
        yield tile(
            [picture],
            f"Mean map of the {maps.word} over {rows} of {label}, on their mean image",
            [str(label), rows],
        )


def _rows(maps: _Maps, outcomes: Sequence[RowOutcome], places: Sequence[int]) -> Iterator[ImageRow]:
    spread = row_spread(maps.posterior, list(places))
    wide = maps.geometry.on_pixels(spread.values)
    widest = widest_of(wide, maps.most)
    masks = masks_of(maps.posterior)[mask_means(maps.posterior).attrs["site"]].values
    for line, place in enumerate(places):
        title, outcome = row_title(maps.names[place]), outcomes[place]
        start = title[0].upper() + title[1:]
        unsure = colormaps["Oranges"](np.nan_to_num(wide[line]) / widest)[..., :3]
        tiles = [
            tile([maps.image(place)], f"{start}: the image", ["the image"]),
            tile([maps.map_of(place)], f"{start}: its {maps.word}", [maps.word]),
            tile(
                [unsure],
                f"{start}: {spread.meaning}",
                [f"{spread.label}, from 0 to {widest:.2g}"],
            ),
        ]
        drawn = masks[:, :, place]
        for i in range(min(ROW_DRAWS, drawn.shape[0] * drawn.shape[1])):
            keep = drawn[i % len(drawn), i // len(drawn)]
            picture = (
                maps.tint(maps.image(place), keep)
                if maps.signed
                else only_kept(maps.image(place), maps.geometry.on_pixels(keep))
            )
            kept = "" if maps.kind is not PROBABILITY else f", {int(keep.sum())} kept"
            tiles.append(tile([picture], f"{start}: a draw of its mask{kept}", [f"a draw{kept}"]))
        yield ImageRow(
            str(maps.names[place]), start, _sentences(maps, outcome, place), tuple(tiles)
        )


def _sentences(maps: _Maps, outcome: RowOutcome, place: int) -> str:
    sentences = [] if outcome.observed is None else [f"Observed: {outcome.observed}."]
    if outcome.predicted is not None and np.isnan(outcome.probability):
        sentences.append(f"Predicted: {outcome.predicted}.")
    elif outcome.predicted is not None:
        share = responses_of(maps.posterior)["y_probability"]
        p = share.values[:, place].mean(0, dtype=np.float64)
        best = np.argsort(-p, kind="stable")[:SHOWN_CLASSES]
        names = [str(name) for name in share["class"].values]
        sentences.append(
            "Predicted: " + ", ".join(f"{names[c]} ({percent(p[c])})" for c in best) + "."
        )
    if maps.kind is PROBABILITY:
        size = float(maps.means[place].sum())
        sentences.append(f"It keeps {size:.3g} of {maps.means.shape[1]} entries on average.")
    return " ".join(sentences)


def _caption(maps: _Maps) -> str:
    what = (
        "blue where an entry speaks for the prediction, orange where it speaks against it"
        if maps.signed
        else f"the bluer, the larger {maps.kind.meaning.replace('the feature', 'the entry')}"
    )
    return (
        f"Left the image, right its map, mean over replicates: {what}. Pixels of one entry have "
        "one colour; the image below it is in light grey. Of each class stand rows that are "
        "predicted right, an even choice, and those that are predicted wrong most surely."
    )
