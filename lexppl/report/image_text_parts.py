"""Images and texts of the report: maps of images, and shaded words, by class; ranked words."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib import colormaps
from matplotlib.image import imsave
from numpy.typing import NDArray

from lexppl.arviz_compatibility import Posterior
from lexppl.explanation.reading import masks
from lexppl.explanation.reading.picture_values import chosen_rows
from lexppl.explanation.reading.rows import percent, row_outcomes, row_spread
from lexppl.plots.images import Pixels, SelectionMaps, as_colours, row_title, widest_of
from lexppl.plots.texts import highlighted_text
from lexppl.report.data import RowGroup, shown_rows

LARGEST = 224  # Longest side in pixels; larger images are shrunk
GAP = 0.04  # Between two images of a tile, in shares of their width
IMAGES_PER_CLASS = 3  # Right rows, and wrong ones, of each class
ROW_DRAWS = 3
SHOWN_CLASSES = 4


def tile(images: list[Pixels], alt: str, lines: list[str]) -> dict[str, Any]:
    """Images `(H, W, 3)` side by side as a PNG in a data URI, with its text.

    Example:
        >>> one = tile([np.zeros((4, 4, 3)), np.ones((4, 4, 3))], "black and white", ["row 1"])
        >>> one["uri"][:22], one["width"], one["height"]
        ('data:image/png;base64,', 9, 4)
    """
    parts: list[NDArray[Any]] = []
    for image in map(shrunk, images):
        high, across = image.shape[:2]
        if parts:
            parts.append(np.zeros((high, max(1, round(GAP * across)), 4)))
        parts.append(np.concatenate([image.clip(0.0, 1.0), np.ones((high, across, 1))], -1))
    whole = np.concatenate(parts, 1)
    high, across = whole.shape[:2]
    return {"uri": png_uri(whole), "alt": alt, "lines": lines, "width": across, "height": high}


def png_uri(colours: NDArray[Any]) -> str:
    """Colours `(H, W, 3 or 4)` as a PNG in a data URI; equal colours have equal bytes."""
    buffer = io.BytesIO()
    # No version of matplotlib in the file.
    metadata: dict[str, Any] = {"Software": None}
    imsave(buffer, np.ascontiguousarray(colours), format="png", metadata=metadata)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"


def shrunk(image: Pixels, most: int = LARGEST) -> Pixels:
    """An image with sides of at most some pixels, each the mean of a block.

    Example:
        >>> shrunk(np.ones((450, 300, 3))).shape, shrunk(np.ones((28, 28, 3))).shape
        ((150, 100, 3), (28, 28, 3))
    """
    step = -(-max(image.shape[:2]) // most)
    if step == 1:
        return image
    high, across = (size - size % step for size in image.shape[:2])
    blocks = image[:high, :across].reshape(high // step, step, across // step, step, -1)
    return blocks.mean((1, 3))


def image_parts(posterior: Posterior, selected: Sequence[Any] = ()) -> dict[str, Any]:
    """Rows by class, mean maps of classes, single rows, and the scale of the maps.

    Args:
        selected: names of the single rows; of three of the classes' rows if none.

    Raises:
        ValueError: rows that are no images; unknown names.
    """
    maps = _Maps(posterior)
    groups = shown_rows(maps.outcomes, IMAGES_PER_CLASS)
    places = [place for group in groups[:3] for place in group.places[:1]]
    if len(selected):
        places = chosen_rows(list(maps.names), selected)
    return {
        "groups": [maps.group(group) for group in groups],
        "means": list(maps.means_of_classes()),
        "rows": list(maps.rows(places)),
        "signed": maps.signed,
        "meaning": maps.kind.meaning.replace("the feature", "the entry"),
        "most": f"{maps.most:.2g}",
        "label": maps.word,
    }


class _Maps(SelectionMaps):
    """The maps of a posterior's rows as tiles."""

    def __init__(self, posterior: Posterior) -> None:
        super().__init__(posterior)
        self.posterior, self.outcomes = posterior, row_outcomes(posterior)
        self.word = "attributions" if self.signed else self.kind.label

    def group(self, group: RowGroup) -> dict[str, Any]:
        """Tiles of rows under a heading."""
        tiles = []
        for place in group.places:
            lines = [row_title(self.names[place]), *self.outcomes[place].lines()]
            alt = f"{', '.join(lines)}: the image, and the map of its {self.word}"
            tiles.append(tile([self.image(place), self.map_of(place)], alt, lines))
        return {"heading": group.heading, "tiles": tiles}

    def means_of_classes(self) -> Iterator[dict[str, Any]]:
        """The mean map of the rows of each label, on their mean image."""
        labels = [o.observed if o.right is not None else None for o in self.outcomes]
        for label in sorted({name for name in labels if name is not None}):
            own = np.array([name == label for name in labels])
            rows = f"{int(own.sum())} row{'s' if own.sum() > 1 else ''}"
            image = as_colours(self.geometry.images[own].mean(0, dtype=np.float64), self.ends)
            yield tile(
                [self.tint(image, self.means[own].mean(0))],
                f"Mean map of the {self.word} over {rows} of {label}, on their mean image",
                [str(label), rows],
            )

    def rows(self, places: Sequence[int]) -> Iterator[dict[str, Any]]:
        """Single rows: image, map, how far it is from sure, and draws of the mask."""
        spread = row_spread(self.posterior, list(places))
        wide = self.geometry.on_pixels(spread.values)
        widest = widest_of(wide, self.most)
        draws = min(ROW_DRAWS, self.masks.shape[0] * self.masks.shape[1])
        for line, place in enumerate(places):
            title = row_title(self.names[place])
            start = title[0].upper() + title[1:]
            unsure = colormaps["Oranges"](np.nan_to_num(wide[line]) / widest)[..., :3]
            tiles = [
                tile([self.image(place)], f"{start}: the image", ["the image"]),
                tile([self.map_of(place)], f"{start}: its {self.word}", [self.word]),
                tile(
                    [unsure],
                    f"{start}: {spread.meaning}",
                    [f"{spread.label}, from 0 to {widest:.2g}"],
                ),
            ]
            for number in range(draws):
                keep, picture = self.draw(place, number)
                kept = "" if self.kind is not masks.PROBABILITY else f", {int(keep.sum())} kept"
                alt = f"{start}: a draw of its mask{kept}"
                tiles.append(tile([picture], alt, [f"a draw{kept}"]))
            yield {"title": start, "prediction": self._sentences(place), "tiles": tiles}

    def _sentences(self, place: int) -> str:
        outcome = self.outcomes[place]
        sentences = [] if outcome.observed is None else [f"Observed: {outcome.observed}."]
        if outcome.predicted is not None and np.isnan(outcome.probability):
            sentences.append(f"Predicted: {outcome.predicted}.")
        elif outcome.predicted is not None:
            share = masks.responses_of(self.posterior)["y_probability"]
            p = share.values[:, place].mean(0, dtype=np.float64)
            best = np.argsort(-p, kind="stable")[:SHOWN_CLASSES]
            names = [str(name) for name in share["class"].values]
            likely = ", ".join(f"{names[c]} ({percent(p[c])})" for c in best)
            sentences.append(f"Predicted: {likely}.")
        if self.kind is masks.PROBABILITY:
            size = float(self.means[place].sum())
            sentences.append(f"It keeps {size:.3g} of {self.means.shape[1]} entries on average.")
        return " ".join(sentences)


TEXTS_PER_CLASS = 2  # Right rows, and wrong ones, of each class
MOST_WORDS = 400  # Words of a text that a page shows


def text_parts(
    posterior: Posterior, words: Sequence[Sequence[str]], selected: Sequence[Any] = ()
) -> dict[str, Any]:
    """Rows by class with their words, selected rows first.

    Args:
        words: of each row, in the order of its entries; further entries are padding.
        selected: names of rows.
    """
    kind, names = masks.kind_of(posterior), list(masks.masks_of(posterior)["row"].values)
    outcomes = row_outcomes(posterior)
    groups = shown_rows(outcomes, TEXTS_PER_CLASS)
    if len(selected):
        groups = [RowGroup("Selected rows", tuple(chosen_rows(names, selected))), *groups]

    def row(place: int) -> dict[str, Any]:
        title, shown = row_title(names[place]), words[place][:MOST_WORDS]
        return {
            "title": title[0].upper() + title[1:],
            "prediction": ", ".join([title, *outcomes[place].lines()]),
            "text": Markup(highlighted_text(posterior, names[place], shown).html),
            "left_out": len(words[place]) - len(shown),
        }

    return {
        "groups": [
            {"heading": group.heading, "rows": [row(place) for place in group.places]}
            for group in groups
        ],
        "signed": kind is masks.ATTRIBUTION,
        "meaning": kind.meaning.replace("the feature", "the word"),
    }
