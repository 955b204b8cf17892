"""Images and texts in a report: what stands there, and how it reads, by axe-core's checks."""

import base64
import html
import io
import re
from types import SimpleNamespace

import numpy as np
import pytest
from markupsafe import Markup
from matplotlib.image import imread

from lexppl.arviz_compatibility import group_of, posterior_of
from lexppl.explanation.reading.rows import RowOutcome
from lexppl.plots.images import as_colours, tinted
from lexppl.plots.texts import STRONGEST
from lexppl.report.data import MOST_CLASSES, shown_rows
from lexppl.report.image_text_parts import (
    LARGEST,
    image_parts,
    png_uri,
    text_parts,
    tile,
)
from lexppl.report.page import HEAD, rendered
from tests.cli.accessibility import LIGHT, checked
from tests.plots.image_posteriors import image_posterior
from tests.plots.test_plots import random_posterior
from tests.refusals import refused

WORDS = [["a", "<b>bold</b>", "film", "&", "cast"][: 2 + n % 4] for n in range(20)]


# A page of its own: what stands about the part of images or texts is that of a report.
PAGE = (*HEAD, "maps.css", "part.html")
ABOUT = "</style></head><body><main><h1>{}</h1>{}"


def page_of(part, title):
    part = Markup(ABOUT).format(title, part)
    plan = SimpleNamespace(replicates=1)
    source = SimpleNamespace(data=SimpleNamespace(rows="row"))
    about = {"distribution": "reads", "plan": plan, "entries": "entries", "source": source}
    report = SimpleNamespace(kind=SimpleNamespace(name="share"), **about)
    page = rendered(*PAGE, version="0", title=title, part=part, report=report)
    return f"{page}</main></body></html>"


def image_report(posterior, selected=()):
    parts = image_parts(posterior, selected)
    return page_of(rendered("image_part.html", parts=parts), "Images")


def text_report(posterior, words, selected):
    parts = text_parts(posterior, words, selected)
    return page_of(rendered("text_part.html", parts=parts), "Texts")


def picture(uri):
    return imread(io.BytesIO(base64.b64decode(uri.partition(",")[2])))


# Accessibility


def test_a_page_of_images_that_say_nothing_does_not_pass(tmp_path):
    page = tmp_path / "images.html"
    worse = re.sub(r' alt="[^"]*"', "", image_report(image_posterior((3, 6, 8)), [11]))
    page.write_text(worse, encoding="utf-8")
    found = checked(page, tmp_path, 1280, LIGHT)
    assert {one["id"] for one in found["violations"]} == {"image-alt"}


# Images


@pytest.mark.smoke
def test_tiles_are_the_image_and_its_map():
    posterior = image_posterior((1, 6, 8))
    parts = image_parts(posterior)
    assert [group["heading"] for group in parts["groups"]] == [
        "cat: 2 of 3 right",
        "dog: 2 of 2 right",
    ]
    names = [one["lines"][0] for group in parts["groups"] for one in group["tiles"]]
    assert names == ["row 12", "row 14", "row 10", "row 11", "row 13"]
    p = group_of(posterior, "sample_stats")["selection_probability"].values.mean(0)
    colours = as_colours(group_of(posterior, "constant_data")["x"].values)
    shown = picture(parts["groups"][0]["tiles"][2]["uri"])
    np.testing.assert_allclose(shown[:, :8, :3], colours[0], atol=1 / 255)
    expected = tinted(colours[0], p[0].reshape(6, 8), 1.0)
    np.testing.assert_allclose(shown[:, -8:, :3], expected, atol=1 / 255)
    assert (shown[:, 8, 3] == 0).all()


def test_mean_maps_are_of_the_rows_of_a_class():
    posterior = image_posterior((1, 6, 8))
    means = image_parts(posterior)["means"]
    assert [one["lines"] for one in means] == [["cat", "3 rows"], ["dog", "2 rows"]]
    p = group_of(posterior, "sample_stats")["selection_probability"].values.mean(0)
    colours = as_colours(group_of(posterior, "constant_data")["x"].values)
    own = [1, 3]
    expected = tinted(colours[own].mean(0), p[own].mean(0).reshape(6, 8), 1.0)
    np.testing.assert_allclose(picture(means[1]["uri"])[..., :3], expected, atol=1 / 255)


def test_rows_that_are_asked_for_are_those_that_are_shown():
    rows = image_parts(image_posterior(), [13, 10])["rows"]
    assert [row["title"] for row in rows] == ["Row 13", "Row 10"]
    told = "Observed: cat. Predicted: dog (80 %), cat (20 %). It keeps "
    assert rows[1]["prediction"].startswith(told)
    assert len(rows[0]["tiles"]) == 6 and "kept" in rows[0]["tiles"][-1]["lines"][0]
    refused("names of the posterior's 5 rows", image_parts, image_posterior(), [7])


def test_predictions_may_be_unknown():
    posterior = image_posterior()
    groups = {n: group_of(posterior, n) for n in ("predictions", "sample_stats", "constant_data")}
    groups["predictions"] = groups["predictions"].drop_vars("y_probability")
    unknown = image_parts(posterior_of(groups, {}))
    assert [group["heading"] for group in unknown["groups"]] == ["Some rows"]
    assert unknown["means"] == [] and len(unknown["groups"][0]["tiles"]) == 5


@pytest.mark.parametrize("chains", [1, 3])
def test_pages_of_other_masks_are_written_too(chains):
    values = np.random.default_rng(0).normal(size=(chains, 5, 24))
    page = image_report(image_posterior(chains=chains, attribution=values))
    assert 'class="signed"' in page and "−" in page
    shares = np.full((chains, 5, 24), 1 / 24)
    assert 'class="signed"' not in image_report(image_posterior(chains=chains, mask_mean=shares))


def test_large_images_are_shrunk():
    one = tile([np.random.default_rng(0).random((500, 700, 3))], "an image", ["a"])
    assert max(one["width"], one["height"]) <= LARGEST
    assert png_uri(np.ones((2, 2, 3))) == png_uri(np.ones((2, 2, 3)))


def test_what_is_no_image_is_refused():
    refused("no images", image_report, random_posterior())


# Rows


def test_wrong_rows_are_those_that_are_wrong_most_surely():
    sure = [0.5, 0.9, 0.7, 0.6]
    rows = [RowOutcome("a", "b", p) for p in sure] + [RowOutcome("a", "a", 0.9)] * 5
    (group,) = shown_rows(rows, 2)
    assert group.heading == "a: 5 of 9 right" and group.places == (4, 8, 1, 2)
    many = [RowOutcome(f"c{n:02d}", "c00", 0.5) for n in range(30)]
    assert len(shown_rows(many, 1)) == MOST_CLASSES


# Texts


def test_words_are_marked_as_they_are_kept_and_escaped():
    posterior = random_posterior(features=5)
    p = group_of(posterior, "sample_stats")["selection_probability"].values.mean(0)
    page = text_report(posterior, WORDS, [7])
    assert "<b>bold" not in page
    section = re.search(r'<section class="row" aria-label="Row 7">(.*?)</section>', page, re.DOTALL)
    marks = re.findall(
        r'rgba\(0,114,178,([\d.]+)\)[^>]* title="[a-z ]*([\d.]+),[^>]*>(.*?)</span>',
        section.group(1),
    )
    shown = {html.unescape(word): (float(shade), float(value)) for shade, value, word in marks}
    assert len(shown) == len(WORDS[7])
    for word, value in zip(WORDS[7], p[7], strict=False):
        assert shown[word] == (pytest.approx(STRONGEST * value, abs=0.001), round(float(value), 2))
