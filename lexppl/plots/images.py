"""Images: selection maps over them, and imputed ones."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgb
from matplotlib.figure import Figure
from numpy.typing import NDArray

from lexppl.argument_checks import int_at_least
from lexppl.arviz_compatibility import Posterior
from lexppl.evaluation.imputation import imputed_samples
from lexppl.explanation.reading.images import image_geometry
from lexppl.explanation.reading.masks import ATTRIBUTION, kind_of, mask_means, masks_of
from lexppl.explanation.reading.picture_values import chosen_rows, short
from lexppl.explanation.reading.rows import row_outcomes, row_spread
from lexppl.plots.style import BLUE, GREY, INK, ORANGE, empty_figure

Pixels = NDArray[np.float64]  # Colours of pixels `(…, H, W, 3)`, in [0, 1]

STRONGEST = 0.9  # How much of a tint covers a pixel of the largest value
DARKEST = 0.65  # What a black pixel becomes below a tint, so that it is seen
NARROWEST = 0.1
"""The least that a map of widths ends at, in shares of the largest value: narrow ones are faint."""
HIDDEN = "#CDB4DB"
"""The colour of what a mask hides: in no grey image, and in few photographs."""


def value_ends(images: Any) -> tuple[float, float]:
    """What is shown black and white: 0 and 1, or of values outside the ends."""
    low, high = float(np.min(images, initial=0.0)), float(np.max(images, initial=0.0))
    return (0.0, 1.0) if low >= 0.0 and high <= 1.0 else (low, high)


def as_colours(images: Any, ends: tuple[float, float] | None = None) -> Pixels:
    """Images `(…, C, H, W)` as colours `(…, H, W, 3)`, grey unless C is 3, between `ends`."""
    values = np.asarray(images, dtype=np.float64)
    low, high = value_ends(values) if ends is None else ends
    values = ((values - low) / (high - low)).clip(0.0, 1.0)
    if values.shape[-3] == 3:
        return np.moveaxis(values, -3, -1)
    return np.repeat(values.mean(-3)[..., None], 3, axis=-1)


def tinted(colours: Pixels, values: NDArray[Any], most: float, signed: bool = False) -> Pixels:
    """Light grey images `(…, H, W, 3)` below a map `(…, H, W)`, blue above 0, orange below."""
    light = DARKEST + (1.0 - DARKEST) * colours.mean(-1, keepdims=True)
    share = np.asarray(values, dtype=np.float64)[..., None] / most
    strength = STRONGEST * (np.abs(share) if signed else share).clip(0.0, 1.0)
    hue = np.where(share < 0.0, to_rgb(ORANGE), to_rgb(BLUE)) if signed else np.array(to_rgb(BLUE))
    return (1.0 - strength) * light + strength * hue


def tints(signed: bool = False) -> LinearSegmentedColormap:
    """The colours of :func:`tinted` over a white pixel, for a colour bar."""
    white = np.ones((1, 2, 3))
    ends = tinted(white, np.array([[-1.0, 1.0]]), 1.0, signed)[0]
    return LinearSegmentedColormap.from_list(
        "tints", [ends[0], (1.0, 1.0, 1.0), ends[1]] if signed else [(1.0, 1.0, 1.0), ends[1]]
    )


def only_kept(colours: Pixels, keep: NDArray[Any]) -> Pixels:
    """Images `(…, H, W, 3)` of which a mask `(…, H, W)`, between 0 and 1, hides a part, lilac."""
    share = np.asarray(keep, dtype=np.float64)[..., None].clip(0.0, 1.0)
    return share * colours + (1.0 - share) * np.array(to_rgb(HIDDEN))


def widest_of(widths: NDArray[Any], most: float) -> float:
    """Where a map of the widths of intervals, NaN where they are not known, ends."""
    return max(float(np.nan_to_num(widths).max(initial=0.0)), NARROWEST * most)


class SelectionMaps:
    """Images of a posterior's rows, their maps and draws of their masks as colours, on one scale.

    Args:
        rows: that the scale is of: how many, an even choice, or their names; all if None.

    Attributes:
        places: of these rows.
        means: E[z | x] of all rows, mean over replicates, `(N, G)`.
        masks: draws `(R, D, N, G)`.
        most: end of the scale.
    """

    def __init__(self, posterior: Posterior, rows: int | Sequence[Any] | None = None) -> None:
        self.geometry, self.kind = image_geometry(posterior), kind_of(posterior)
        means, drawn = mask_means(posterior), masks_of(posterior)
        count = means.sizes["row"]
        self.names = drawn["row"].values if "row" in drawn.coords else np.arange(count)
        self.places = list(range(count)) if rows is None else chosen_rows(list(self.names), rows)
        self.means: NDArray[np.float64] = means.values.mean(0, dtype=np.float64)
        self.masks: NDArray[Any] = drawn[means.attrs["site"]].values
        self.ends = value_ends(self.geometry.images)
        self.signed = self.kind is ATTRIBUTION
        self.most = self.kind.end(self.means[self.places])

    def image(self, place: int) -> Pixels:
        """The image of a row."""
        return as_colours(self.geometry.images[place], self.ends)

    def tint(self, colours: Pixels, values: NDArray[Any]) -> Pixels:
        """A map of values, `(G,)`, on an image."""
        return tinted(colours, self.geometry.on_pixels(values), self.most, self.signed)

    def map_of(self, place: int) -> Pixels:
        """The map of a row on its image."""
        return self.tint(self.image(place), self.means[place])

    def draw(self, place: int, number: int) -> tuple[NDArray[Any], Pixels]:
        """A draw of a row's mask, `(G,)`, of the replicates in turn, and what it keeps."""
        chains = len(self.masks)
        keep, image = self.masks[number % chains, number // chains, place], self.image(place)
        if self.signed:
            return keep, self.tint(image, keep)
        return keep, only_kept(image, self.geometry.on_pixels(keep))


SIDE, WIDEST, HIGHEST = 1.25, 12.0, 30.0  # Inches of a panel, and of a figure
LEFT, TOP, BOTTOM, GAP, RIGHT = 1.05, 0.15, 0.5, 0.08, 0.1
"""Inches for names, a line of a title, colour bars, and between panels."""
LETTERS, FEWEST = 15.5, 11
"""Letters of a title that an inch has room for, and of a line of one at least."""


def panel_grid(
    lines: int,
    titles: Sequence[str],
    shape: Sequence[int],
    width: float | None = None,
    *,
    bars: bool = False,
) -> tuple[Figure, list[list[Axes]]]:
    """A figure of panels of images' proportions, edge to edge, with room for colour bars below."""
    columns = len(titles)
    height, across = shape[-2:]
    if width is None:
        width = min(LEFT + columns * (SIDE + GAP) + RIGHT, WIDEST)
    side = (width - LEFT - RIGHT) / columns - GAP
    high = side * height / across
    letters = max(FEWEST, int(LETTERS * side))
    wrapped = [textwrap.fill(title, letters, break_long_words=False) for title in titles]
    below = BOTTOM if bars else GAP
    top = TOP * max(1 + title.count("\n") for title in wrapped) + GAP
    total = min(top + lines * (high + GAP) + below, HIGHEST)
    high = (total - top - below) / lines - GAP
    figure = empty_figure(width, total, layout=None)
    grid = []
    for line in range(lines):
        bottom = total - top - (line + 1) * high - line * GAP
        places = [(LEFT + i * (side + GAP), bottom, side, high) for i in range(columns)]
        grid.append([_panel(figure, place, width, total) for place in places])
    for axes, title in zip(grid[0], wrapped, strict=True):
        axes.set_title(title, fontsize=8, color=INK, pad=3)
    return figure, grid


def show(axes: Axes, colours: Any) -> None:
    """Show an image `(H, W, 3)` in a panel, pixel by pixel."""
    axes.imshow(np.clip(colours, 0.0, 1.0), interpolation="nearest")


def name_line(axes: Axes, words: Sequence[str]) -> None:
    """Say beside the first panel of a line what it is of."""
    text = "\n".join(short(line, 16) for line in words)
    axes.set_ylabel(text, rotation=0, ha="right", va="center", fontsize=8, color=INK)


def row_title(name: Any) -> str:
    """What a row is called: numbers are of rows."""
    text = str(name)
    return f"row {text}" if text.isdigit() else text


def colour_bar(figure: Figure, above: Axes, colours: ScalarMappable) -> None:
    """A colour bar below a panel."""
    box = above.get_position()
    high = figure.get_figheight()
    place = (box.x0, box.y0 - 0.2 / high, box.width, 0.08 / high)
    bar = figure.colorbar(colours, cax=figure.add_axes(place), orientation="horizontal")
    bar.outline.set_linewidth(0.5)
    low, top = colours.get_clim()
    bar.set_ticks([low, 0.0, top] if low else [low, top])
    bar.ax.tick_params(length=2, labelsize=7, colors=INK)
    bar.ax.xaxis.set_major_formatter(lambda value, _: f"{value:.2g}")
    # Those at the ends would run into the next bar's.
    first, *_, last = bar.ax.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")


def _panel(
    figure: Figure, place: tuple[float, float, float, float], width: float, high: float
) -> Axes:
    left, bottom, across, up = place
    axes = figure.add_axes((left / width, bottom / high, across / width, up / high))
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set(color=GREY, linewidth=0.5)
    return axes


def plot_selection_map(
    posterior: Posterior, rows: int | Sequence[Any] = 4, draws: int = 3, width: float | None = None
) -> Figure:
    """Selection maps over images, a line a row: the image; E[z | x], mean over replicates, as a
    blue tint on it; how far that is from sure; and some draws of the mask, with what they hide in
    lilac.

    How far it is from sure is the width of the 95 % interval over replicates, of a single fit the
    standard deviation of a draw. Attributions are blue above 0 and orange below. Draws are of the
    replicates in turn.

    Args:
        posterior: what :func:`explain` returned of images.
        rows: how many rows, an even choice; or a list of their names.
        width: of the figure, in inches; by the number of panels if None.

    Raises:
        TypeError, ValueError: not a posterior of :func:`explain`; rows that are no images
            (`with_images` says of rows of pixels that they are); names it
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
    maps = SelectionMaps(posterior, rows)
    places, most, signed = maps.places, maps.most, maps.signed
    draws = min(int_at_least("draws", draws, 0), maps.masks.shape[0] * maps.masks.shape[1])
    spread = row_spread(posterior, places)
    wide = maps.geometry.on_pixels(spread.values)
    widest = widest_of(wide, most)

    titles = ["image", maps.kind.signed_label, spread.label, *["a draw"] * draws]
    figure, grid = panel_grid(len(places), titles, maps.geometry.shape, width, bars=True)
    outcomes = row_outcomes(posterior)
    for line, place in enumerate(places):
        show(grid[line][0], maps.image(place))
        show(grid[line][1], maps.map_of(place))
        grid[line][2].imshow(wide[line], cmap="Oranges", vmin=0.0, vmax=widest)
        for number in range(draws):
            show(grid[line][3 + number], maps.draw(place, number)[1])
        name_line(grid[line][0], [row_title(maps.names[place]), *outcomes[place].lines()])
    least = -most if signed else 0.0
    colour_bar(figure, grid[-1][1], ScalarMappable(Normalize(least, most), tints(signed)))
    colour_bar(figure, grid[-1][2], ScalarMappable(Normalize(0.0, widest), "Oranges"))
    return figure


def plot_imputed(
    program: Any,
    x: Any,
    masks: Any = None,
    *,
    samples: int = 4,
    seed: int = 0,
    row_names: Any = None,
    width: float | None = None,
) -> Figure:
    """What an explainer predicts from: an image, what a mask keeps of it, and draws of what its
    imputer makes of the rest, x̃ ~ p_ι(x̃ | x, z). Where the draws look like no image of the data,
    the predictor sees what it has not learned from.

    Args:
        program: a fit, or a Pyro program, with a site `x_imputed`
            (`imputed_samples`).
        x: rows `(N, C, H, W)`, a line of the figure each.
        masks: one for each row, `(N, G)` of 0 and 1; a draw of p(z | x) if None.
        width: of the figure, in inches; by the number of panels if None.

    Raises:
        TypeError: neither a fit nor a program.
        ValueError: rows that are no images, or as `imputed_samples`.

    Source: Senetaire et al. 2023, figure 1.
    """
    samples = int_at_least("samples", samples)
    shape = np.shape(x)
    if len(shape) != 4:
        raise ValueError(
            f"x must be images (N, C, H, W); it has shape {tuple(shape)}. Of other rows "
            "lexppl.evaluation.imputation() gives the draws"
        )
    names = range(shape[0]) if row_names is None else list(row_names)
    if len(names) != shape[0]:
        raise ValueError(f"row_names must be {shape[0]} names; there are {len(names)}")
    drawn = imputed_samples(program, x, masks, samples=samples, seed=seed)
    # Draws that go beyond the rows' own range would else take the contrast of all.
    every = as_colours(np.concatenate([drawn.x[:, None], drawn.samples], 1), value_ends(drawn.x))
    keep = drawn.keep.mean(1)
    titles = ["image", "kept", *["imputed"] * samples]
    figure, grid = panel_grid(len(every), titles, shape, width)
    for line, (colours, mask) in enumerate(zip(every, keep, strict=True)):
        show(grid[line][0], colours[0])
        show(grid[line][1], only_kept(colours[0], mask))
        for i in range(samples):
            show(grid[line][2 + i], colours[1 + i])
        name_line(grid[line][0], [row_title(names[line])])
    return figure
