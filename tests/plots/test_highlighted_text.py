"""Words of a text, shaded in HTML."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest
import xarray as xr
from scipy.stats import t

from lexppl.arviz_compatibility import posterior_of
from lexppl.plots import highlighted_text
from tests.refusals import refusals, refused

DIMS = ("chain", "row", "feature")
WORDS = ["<b>Good</b>", 'a "film" &', "x"]


def posterior(means, folds=None, kind="selection", variable="selection_probability"):
    means = np.asarray(means, dtype=float)
    mask = np.zeros((len(means), 1, *means.shape[1:]), np.int8)
    rows = [f"r{row}" for row in range(means.shape[1])]
    stats = {variable: (DIMS, means, {"site": "mask"})}
    if folds is not None:
        stats[f"fold_{variable}"] = (("fold", "row", "feature"), np.asarray(folds))
    masks = xr.Dataset(
        {"mask": (("chain", "draw", "row", "feature"), mask, {"kind": kind})}, {"row": rows}
    )
    return posterior_of(
        {"predictions": masks, "sample_stats": xr.Dataset(stats, {"row": rows})}, {}
    )


class Spans(HTMLParser):
    """Texts, titles and opacities of the words, and every tag that there is."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.titles, self.texts, self.colours = [], [], [], []
        self.inside = False
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.inside = tag == "span"
        if self.inside:
            given = dict(attrs)
            self.titles.append(given["title"])
            numbers = re.search(r"background-color:rgba\((.*?)\)", given["style"]).group(1)
            self.colours.append([float(number) for number in numbers.split(",")])
            self.texts.append("")

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.texts[-1] += data


def test_words_are_escaped_and_nothing_else_stands_in_the_page():
    shown = highlighted_text(posterior([[[1.0, 0.5, 0.0, 0.0]]]), "r0", WORDS)
    found = Spans(shown._repr_html_())
    assert found.texts == WORDS
    assert set(found.tags) == {"figure", "figcaption", "p", "span"}
    assert "<b>" not in shown.html and "script" not in shown.html
    row = highlighted_text(posterior([[[1.0, 0.5, 0.0, 0.0]]]), "r0", ["x"]).html
    assert "row r0: selection probability" in row
    assert repr(shown).startswith("[<b>Good</b>] a")


def test_opacity_is_the_probability_s():
    shown = highlighted_text(posterior([[[1.0, 0.5, 0.0, 0.0]]]), "r0", WORDS)
    opacities = [colour[-1] for colour in Spans(shown.html).colours]
    assert opacities[2] == 0.0
    assert opacities[1] == pytest.approx(opacities[0] / 2, abs=1e-3)


def contrast(colour, ground, text):
    """WCAG 2's contrast of a text on a colour that lies over a ground."""

    def light(channels):
        shares = np.asarray(channels) / 255
        linear = np.where(shares <= 0.03928, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    *channels, opacity = colour
    mixed = opacity * np.asarray(channels) + (1 - opacity) * np.asarray(ground)
    high, low = sorted([light(mixed), light(text)], reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_text_can_be_read_on_light_and_dark_grounds(sign):
    shown = highlighted_text(
        posterior([[[sign, 0.0, 0.0]]], kind="attribution", variable="attribution"), "r0", WORDS
    )
    (colour, *_) = Spans(shown.html).colours
    assert contrast(colour, [255] * 3, [30] * 3) > 4.5
    assert contrast(colour, [17] * 3, [230] * 3) > 4.5
    assert "color:inherit" in shown.html


def test_signs_of_attributions_have_colours_and_no_interval_is_made_up():
    shown = Spans(
        highlighted_text(
            posterior([[[-2.0, 1.0, 0.0]]], kind="attribution", variable="attribution"), "r0", WORDS
        ).html
    )
    assert shown.colours[0][:3] != shown.colours[1][:3]
    assert shown.colours[1][-1] == pytest.approx(shown.colours[0][-1] / 2, abs=1e-3)
    assert shown.titles == ["attribution -2.00", "attribution 1.00", "attribution 0.00"]


def test_the_interval_is_over_replicates_or_folds():
    each = np.array([[[0.2, 0.9, 0.0]], [[0.4, 1.0, 0.0]], [[0.3, 0.8, 0.0]]])
    half = t.ppf(0.975, 2) * each[:, 0, 0].std(ddof=1) / np.sqrt(3)
    (title, cut, _) = Spans(highlighted_text(posterior(each), "r0", WORDS).html).titles
    assert title == (
        f"selection probability 0.30, 95 % interval {0.3 - half:.2f} to {0.3 + half:.2f}"
    )
    assert cut.endswith("to 1.00")
    in_folds = posterior(each[:1], folds=each)
    half = t.ppf(0.975, 2) * each[:, 0, 0].std(ddof=1)
    (title, *_) = Spans(highlighted_text(in_folds, "r0", WORDS).html).titles
    assert title.endswith(f"{max(0.2 - half, 0):.2f} to {0.2 + half:.2f}")


test_wrong_texts = refusals(
    ("r7", WORDS, ValueError, "1 rows, such as r0; \\['r7'\\] are not"),
    ("r0", [], ValueError, "words must be 1 to 3, an entry each; there are 0"),
    ("r0", ["a"] * 4, ValueError, "there are 4"),
    ("r0", "a film", TypeError, "it is one string"),
    of=lambda row, words: highlighted_text(posterior([[[1.0, 0.0, 0.0]]]), row, words),
)


def test_what_is_no_posterior_is_refused():
    refused("as explain", highlighted_text, {}, 0, WORDS, error=TypeError)
