"""Where an explainer looks in images."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from lexppl.argument_checks import int_at_least
from lexppl.arviz_compatibility import Posterior
from lexppl.explanation.beside.image_geometry import image_geometry
from lexppl.explanation.layout.importance_kind import ATTRIBUTION, PROBABILITY, kind_of, mask_means
from lexppl.explanation.layout.mask_groups import masks_of
from lexppl.explanation.reading.row_outcomes import row_outcomes
from lexppl.explanation.reading.row_spread import row_spread
from lexppl.plots.chosen_rows import chosen_rows
from lexppl.plots.images_and_texts.image_parts import (
    as_colours,
    only_kept,
    tinted,
    tints,
    value_ends,
    widest_of,
)
from lexppl.plots.images_and_texts.panels import colour_bar, name_line, panel_grid, row_title, show

LEAST = 1e-9


def plot_selection_map(
    posterior: Posterior,
    rows: int | Sequence[Any] = 4,
    draws: int = 3,
    width: float | None = None,
) -> Figure:
    """Selection maps over images, a line a row: the image; E[z | x], mean over replicates, as a
    blue tint on it; how far that is from sure; and some draws of the mask, with what they hide in
    lilac.

    How far it is from sure is the width of the 95 % interval over replicates, of a single fit the
    standard deviation of a draw (:func:`lexppl.explanation.reading.row_spread.row_spread`).
    Attributions are blue above 0 and orange below. Draws are of the replicates in turn.

    Args:
        posterior: what :func:`explain` returned of images.
        rows: how many rows, an even choice; or a list of their names.
        draws: how many draws of the mask.
        width: of the figure, in inches; by the number of panels if None.

    Raises:
        TypeError, ValueError: not a posterior of :func:`explain`; rows that are no images
            (:func:`lexppl.explanation.with_images` says of rows of pixels that they are); names it
            does not have.

    Example:
        >>> import xarray as xr
        >>> from lexppl.arviz_compatibility import posterior_of
        >>> mask = np.zeros((2, 5, 3, 2), np.int8)
        >>> posterior = posterior_of({
        ...     "predictions": xr.Dataset({"mask": (("chain", "draw", "row", "feature"), mask)},
        ...         {"row": ["a", "b", "c"]}),
        ...     "sample_stats": xr.Dataset({"selection_probability": (
        ...         ("chain", "row", "feature"), mask.mean(1), {"site": "mask"})}),
        ...     "constant_data": xr.Dataset({
        ...         "x": (("row", "channel", "height", "width"), np.zeros((3, 1, 4, 4))),
        ...         "feature_map": (("height", "width"), np.repeat([[0, 1]], 4, 0).repeat(2, 1))}),
        ... }, {})
        >>> figure = plot_selection_map(posterior, rows=["c", "a"])
        >>> figure.axes[0].get_ylabel(), figure.axes[6].get_ylabel()
        ('c', 'a')
    """
    geometry, kind = image_geometry(posterior), kind_of(posterior)
    means, drawn = mask_means(posterior), masks_of(posterior)
    names = drawn["row"].values if "row" in drawn.coords else range(means.sizes["row"])
    places = chosen_rows(list(names), rows)
    masks = drawn[means.attrs["site"]].values[:, :, places]
    chains = len(masks)
    draws = min(int_at_least("draws", draws, 0), masks.shape[1] * chains)
    colours = as_colours(geometry.images[places], value_ends(geometry.images))
    mean = geometry.on_pixels(means.values[:, places].mean(0, dtype=np.float64))
    spread = row_spread(posterior, places)
    wide = geometry.on_pixels(spread.values)
    signed = kind is ATTRIBUTION
    most = 1.0 if kind is PROBABILITY else max(float(np.abs(mean).max()), LEAST)
    widest = widest_of(wide, most)

    titles = ["image", "attribution" if signed else kind.label, spread.label, *["a draw"] * draws]
    figure, grid = panel_grid(len(places), titles, geometry.shape, width, bars=True)
    outcomes = row_outcomes(posterior)
    for line, place in enumerate(places):
        show(grid[line][0], colours[line])
        show(grid[line][1], tinted(colours[line], mean[line], most, signed))
        grid[line][2].imshow(wide[line], cmap="Oranges", vmin=0.0, vmax=widest)
        for i in range(draws):
            keep = geometry.on_pixels(masks[i % chains, i // chains, line])
            show(
                grid[line][3 + i],
                tinted(colours[line], keep, most, True)
                if signed
                else only_kept(colours[line], keep),
            )
        name_line(grid[line][0], [row_title(names[place]), *outcomes[place].lines()])
    least = -most if signed else 0.0
    colour_bar(figure, grid[-1][1], ScalarMappable(Normalize(least, most), tints(signed)))
    colour_bar(figure, grid[-1][2], ScalarMappable(Normalize(0.0, widest), "Oranges"))
    return figure
