"""Texts: words shaded by how much of them is kept, and what an explanation reads in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from lexppl.arviz_compatibility import Posterior
from lexppl.explanation.reading.masks import ImportanceKind, kind_of, mask_means
from lexppl.explanation.reading.picture_values import chosen_rows
from lexppl.explanation.reading.rows import row_interval
from lexppl.explanation.reading.sentences import html as bold
from lexppl.explanation.reading.sentences import plain, reading_of
from lexppl.plots.style import BLUE, ORANGE

STRONGEST = 0.55
"""Opacity of a word that is always kept: black and white text can both be read on it."""


@dataclass(frozen=True, repr=False)
class HighlightedText:
    """A text with its words shaded, or its names in bold: `html`, without scripts, and `plain`,
    kept words in brackets."""

    html: str
    plain: str

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.plain


def highlighted_text(posterior: Posterior, row: Any, words: Sequence[str]) -> HighlightedText:
    """A text, each word the bluer the more often its entry is kept, mean over replicates; of
    attributions blue above 0 and orange below, of those and shares by the text's largest.

    The pointer over a word shows its number and the 95 % t-interval over R replicates, mean ±
    t_{.975, R−1} s / √R; there is none of one fit.

    Args:
        posterior: what :func:`explain` returned of texts, an entry a word.
        row: the name of the text's row.
        words: of the text as they are to stand, in the order of the entries, such as
            `data.words[row]`; entries beyond them are padding.

    Raises:
        TypeError: not a posterior of :func:`explain`, or words in one string.
        ValueError: a row that it does not have, no words, more words than a row has entries.

    Example:
        >>> import xarray as xr
        >>> from lexppl.arviz_compatibility import posterior_of
        >>> mask = np.array([[[[1, 0, 0]]]], np.int8)
        >>> posterior = posterior_of({
        ...     "predictions": xr.Dataset({"mask": (("chain", "draw", "row", "feature"), mask)}),
        ...     "sample_stats": xr.Dataset({"selection_probability": (
        ...         ("chain", "row", "feature"), mask.mean(1), {"site": "mask"})}),
        ... }, {})
        >>> highlighted_text(posterior, 0, ["good", "<film>"])
        [good] <film>
    """
    if isinstance(words, str):
        raise TypeError("words must be a list of the text's words; it is one string")
    means, kind = mask_means(posterior), kind_of(posterior)
    names = means["row"].values if "row" in means.coords else np.arange(means.sizes["row"])
    place = chosen_rows(list(names), [row])[0]
    entries = means.shape[-1]
    if not 0 < len(words) <= entries:
        raise ValueError(f"words must be 1 to {entries}, an entry each; there are {len(words)}")
    values = means.values[:, place].mean(0, dtype=np.float64)[: len(words)]
    interval = row_interval(posterior, [place])
    ends = None if interval is None else interval[0][:, 0]
    most = kind.end(values)
    spans = [
        _span(word, value, None if ends is None else ends[:, entry], most, kind)
        for entry, (word, value) in enumerate(zip(words, values, strict=True))
    ]
    caption = escape(f"row {row}: {kind.signed_label}")
    html = (
        '<figure style="margin:0.5em 0;max-width:48em" dir="auto">'
        f'<figcaption style="font-size:0.85em;opacity:0.75">{caption}</figcaption>'
        f'<p style="margin:0.25em 0;line-height:1.7;color:inherit">{" ".join(spans)}</p></figure>'
    )
    marked = (
        f"[{word}]" if abs(value) > most / 2 else str(word)
        for word, value in zip(words, values, strict=True)
    )
    return HighlightedText(html, " ".join(marked))


def _span(
    word: str, value: float, ends: NDArray[np.float64] | None, most: float, kind: ImportanceKind
) -> str:
    title = f"{kind.signed_label} {value:.2f}"
    if ends is not None:
        title += f", 95 % interval {ends[0]:.2f} to {ends[1]:.2f}"
    colour = BLUE if value >= 0 else ORANGE
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    opacity = STRONGEST * min(1.0, abs(value) / most)
    style = (
        f"background-color:rgba({red},{green},{blue},{opacity:.3f});"
        "border-radius:0.2em;padding:0.1em 0.15em;color:inherit"
    )
    return f'<span style="{style}" title="{escape(title)}">{escape(str(word))}</span>'


def answers(posterior: Posterior) -> HighlightedText:
    """What the predictions of a table's rows rest on, and how far the fits agree, in sentences, as
    in the report of `lexppl explain`. Nothing here says what a feature is worth: that takes labels
    (:func:`lexppl.evaluation.importance`).

    Raises:
        TypeError: not a posterior of :func:`explain`.
        ValueError: masks that rows share, or rows that are no table.

    Example:
        >>> import torch, lexppl
        >>> from lexppl.systems import lex
        >>> x, y = torch.ones(9, 3), torch.arange(9) % 2
        >>> result = lexppl.fit(lex(3, classes=2, k=3), (x, y), epochs=1, progress=False)
        >>> shown = answers(lexppl.explain(result, x, entry_names=["age", "height", "weight"]))
        >>> "age" in shown.plain, "<strong>age</strong>" in shown.html
        (True, True)
    """
    lines = reading_of(posterior).answers()
    parts = [Markup("<p><strong>{}</strong><br>{}</p>").format(q, bold(text)) for q, text in lines]
    return HighlightedText(Markup().join(parts), "\n".join(f"{q}\n{plain(t)}" for q, t in lines))
