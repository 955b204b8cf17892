"""What an imputer puts in the place of what is hidden."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from lexppl.argument_checks import int_at_least
from lexppl.evaluation.imputed_samples import imputed_samples
from lexppl.plots.images_and_texts.image_parts import as_colours, only_kept, value_ends
from lexppl.plots.images_and_texts.panels import name_line, panel_grid, row_title, show


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
    imputer makes of the rest, x̃ ~ p_ι(x̃ | x, z), as in the LEX paper's figure 1.

    Where the draws differ, the mask leaves open what is there; where they look like no image of the
    data, the predictor sees what it has not learned from.

    Args:
        program: a fit, or a Pyro program, with a site `x_imputed`
            (:func:`lexppl.evaluation.imputed_samples`).
        x: rows `(N, C, H, W)`, a line of the figure each.
        masks: one for each row, `(N, G)` of 0 and 1; a draw of p(z | x) if None.
        samples: how many draws.
        seed: of the draws.
        row_names: a name for each row; 0 … N−1 if None.
        width: of the figure, in inches; by the number of panels if None.

    Raises:
        TypeError: neither a fit nor a program.
        ValueError: rows that are no images, or as :func:`lexppl.evaluation.imputed_samples`.

    Source: Senetaire et al. 2023, figure 1.
    """
    samples = int_at_least("samples", samples)
    shape = np.shape(x)
    if len(shape) != 4:
        raise ValueError(
            f"x must be images (N, C, H, W); it has shape {tuple(shape)}. Of other rows "
            "lexppl.evaluation.imputed_samples() gives the draws"
        )
    names = range(shape[0]) if row_names is None else list(row_names)
    if len(names) != shape[0]:
        raise ValueError(f"row_names must be {shape[0]} names; there are {len(names)}")
    found = imputed_samples(program, x, masks, samples=samples, seed=seed)
    # Draws that go beyond the rows' own range would else take the contrast of all.
    every = as_colours(np.concatenate([found.x[:, None], found.samples], 1), value_ends(found.x))
    keep = found.keep.mean(1)
    titles = ["image", "kept", *["imputed"] * samples]
    figure, grid = panel_grid(len(every), titles, shape, width)
    for line, (colours, kept) in enumerate(zip(every, keep, strict=True)):
        show(grid[line][0], colours[0])
        show(grid[line][1], only_kept(colours[0], kept))
        for i in range(samples):
            show(grid[line][2 + i], colours[1 + i])
        name_line(grid[line][0], [row_title(names[line])])
    return figure
