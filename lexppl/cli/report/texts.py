"""Texts of the report: words by class, shaded by how much they are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import t
from torch import Tensor

from lexppl.arviz_compatibility import Posterior
from lexppl.cli.report.data import RowGroup, shown_rows
from lexppl.data import Vocabulary
from lexppl.data.texts import PADDING
from lexppl.explanation.layout.importance_kind import (
    ATTRIBUTION,
    PROBABILITY,
    ImportanceKind,
    kind_of,
    mask_means,
)
from lexppl.explanation.layout.mask_groups import masks_of
from lexppl.explanation.reading.row_outcomes import row_outcomes
from lexppl.plots.images import row_title
from lexppl.plots.style import chosen_rows

PER_CLASS = 2
"""Right rows, and wrong ones, of each class."""
SHADES = 5
LEAST = 1e-9
MOST_WORDS = 400
"""Words of a text that a page shows."""
UNKNOWN_WORDS = "(unknown words)"


def text_parts(
    posterior: Posterior, words: Sequence[Sequence[str]], selected: Sequence[Any] = ()
) -> dict[str, Any]:
    """Rows by class with their words, selected rows first.

    Args:
        words: of each row, in the order of its entries; further entries are padding.
        selected: names of rows.
    """
    means = mask_means(posterior)
    values = means.values.mean(0, dtype=np.float64)
    masks, kind = masks_of(posterior), kind_of(posterior)
    names = list(masks["row"].values) if "row" in masks.coords else list(range(len(values)))
    outcomes = row_outcomes(posterior)
    groups = shown_rows(outcomes, PER_CLASS)
    if len(selected):
        groups = [RowGroup("Selected rows", tuple(chosen_rows(names, selected))), *groups]
    largest = max(
        (float(np.abs(v[: len(w)]).max()) for v, w in zip(values, words, strict=True) if len(w)),
        default=0.0,
    )
    most = 1.0 if kind is PROBABILITY else max(largest, LEAST)

    def row(place: int) -> dict[str, Any]:
        title = row_title(names[place])
        return {
            "title": title[0].upper() + title[1:],
            "prediction": ", ".join([title, *outcomes[place].lines()]),
            "words": shaded(words[place][:MOST_WORDS], values[place], most),
            "left_out": max(0, len(words[place]) - MOST_WORDS),
        }

    return {
        "groups": [
            {"heading": group.heading, "rows": [row(place) for place in group.places]}
            for group in groups
        ],
        "signed": kind is ATTRIBUTION,
        "meaning": kind.meaning.replace("the feature", "the word"),
    }


def shaded(words: Sequence[str], values: NDArray[Any], most: float) -> list[dict[str, str]]:
    """Words with their values and shades, w1 (faint) to w5, o1 to o5 of negative ones.

    Example:
        >>> words = shaded(["a", "good", "film"], np.array([0.02, 0.95, -0.5]), 1.0)
        >>> [(word["text"], word["shade"]) for word in words]
        [('a', ''), ('good', 'w5'), ('film', 'o2')]
    """
    found = []
    for word, value in zip(words, values, strict=False):
        level = min(SHADES, int(np.ceil(SHADES * abs(value) / most - 0.5)))
        shade = f"{'w' if value > 0 else 'o'}{level}" if level > 0 else ""
        found.append({"text": str(word), "value": f"{value:.2f}", "shade": shade})
    return found


def ranked_words(
    values: NDArray[np.floating],
    x: Tensor,
    vocabulary: Vocabulary,
    kind: ImportanceKind,
    predicted: NDArray[np.int64],
    class_names: tuple[str, ...],
) -> pd.DataFrame:
    r"""Words of texts by what is kept of them:

        s_w = Σ_n Σ_t E[z_nt | x_n] 1{x_nt = w}.

    Args:
        values: E[z | x] of R replicates, `(R, N, T)`.
        x: word numbers, `(N, T)`.
        predicted: class of each text, `(N,)`.

    Returns:
        indexed by `word`, largest in size first: `kept`, s_w, mean over replicates; `lower` and
        `upper`, its 95 % t-interval over them, NaN of one; `count` of the word in the texts;
        `share`, kept / count; `mostly_in`, the predicted class whose texts keep most of it, by
        text.

    Example:
        >>> from lexppl.explanation.layout.importance_kind import PROBABILITY
        >>> x = Tensor([[2, 3, 0], [3, 3, 2]])
        >>> values = np.array([[[0.9, 0.1, 0.0], [0.2, 0.0, 1.0]]])
        >>> table = ranked_words(
        ...     values, x, Vocabulary(["good", "film"]), PROBABILITY, np.array([0, 1]), ("a", "b"))
        >>> table[["kept", "count", "mostly_in"]].round(1).to_dict("index")["good"]
        {'kept': 1.9, 'count': 2, 'mostly_in': 'b'}
    """
    numbers = x.detach().cpu().numpy().astype(np.int64)
    there = numbers != PADDING
    size, flat = len(vocabulary), numbers[there]
    sums = np.stack([np.bincount(flat, one[there], minlength=size) for one in values])
    counts = np.bincount(flat, minlength=size)
    mean = sums.mean(0)
    half = np.full(size, np.nan)
    if len(sums) > 1:
        half = t.ppf(0.975, len(sums) - 1) * sums.std(0, ddof=1) / np.sqrt(len(sums))
    lower = mean - half if kind is ATTRIBUTION else (mean - half).clip(0.0)
    classes = np.repeat(predicted[:, None], numbers.shape[1], axis=1)[there]
    texts = np.bincount(predicted, minlength=len(class_names)).clip(1)
    every = np.abs(values.mean(0))[there]
    in_class = np.stack(
        [
            np.bincount(flat[classes == c], every[classes == c], minlength=size) / texts[c]
            for c in range(len(class_names))
        ]
    )
    table = pd.DataFrame(
        {
            "kept": mean,
            "lower": lower,
            "upper": mean + half,
            "count": counts,
            "share": mean / counts.clip(1),
            "mostly_in": np.array(class_names, dtype=object)[in_class.argmax(0)],
        },
        index=pd.Index([vocabulary.word(n) or "" for n in range(size)], name="word"),
    )
    table = table[counts > 0].rename(index={"?": UNKNOWN_WORDS})
    return table.loc[table["kept"].abs().sort_values(ascending=False, kind="stable").index]
