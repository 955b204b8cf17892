"""`lexppl explain` of images and texts: what it finds, prints, writes and loads again."""

import base64
import html
import io
import json
import re
from collections import Counter
from types import SimpleNamespace

import arviz
import numpy as np
import pandas as pd
import pytest
import torch
import xarray
from markupsafe import Markup
from matplotlib.image import imread
from scipy.stats import chi2_contingency, ttest_1samp

import lexppl
from lexppl import explain
from lexppl.arviz_compatibility import group_of, posterior_of
from lexppl.cli import main
from lexppl.cli.image_text_rows import left_out, read_texts
from lexppl.cli.options.checks import IMAGES, TABLE, TEXTS, kind_of_data
from lexppl.cli.program import parse
from lexppl.data import Vocabulary, divided_folder, encoded_texts, texts_of
from lexppl.evaluation import imputation, predictive
from lexppl.explanation import mask_means
from lexppl.explanation.reading.images import image_geometry
from lexppl.explanation.reading.rows import RowOutcome
from lexppl.models import Grouping
from lexppl.models.imputers import imputer_of
from lexppl.plots.images import as_colours, tinted
from lexppl.plots.texts import STRONGEST
from lexppl.report.data import MOST_CLASSES, KeptSize, shown_rows
from lexppl.report.image_text_parts import LARGEST, image_parts, png_uri, text_parts, tile
from lexppl.report.page import HEAD, rendered
from lexppl.report.results.words import UNKNOWN_WORDS, found_words, word_table
from tests import needs
from tests.cli.accessibility import DARK, LIGHT, checked
from tests.cli.shaped import TELLING, folder_of_images, folder_of_shapes, table_of_texts
from tests.data.images.written import write_mnist
from tests.plots.image_posteriors import image_posterior
from tests.plots.test_plots import random_posterior
from tests.refusals import over, refused

QUICK = ["--replicates", "2", "--draws", "10", "--quiet"]
FEW = ["--epochs", "1", "--replicates", "1", "--draws", "5", "--quiet"]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A run on images, with what it printed."""
    needs.torchvision()
    return ran(tmp_path_factory, lambda folder: [str(folder_of_images(folder / "squares"))], "2")


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A run on texts, with what it printed."""
    return ran(
        tmp_path_factory,
        lambda folder: [
            *(str(table_of_texts(folder / "reviews.csv")), "--text", "review"),
        ],
        "3",
    )


def ran(factory, words, row):
    folder = factory.mktemp("run")
    command = ["explain", *words(folder), "--k", "1", "--row", row, "--epochs", "40"]
    with pytest.MonkeyPatch.context() as patched:
        printed: list[str] = []
        patched.setattr("builtins.print", lambda *said, **_: printed.append(" ".join(said)))
        assert main([*command, "--out", str(folder / "out"), *QUICK]) == 0
    return folder, "\n".join(printed)


# What is found


def test_the_patch_that_tells_is_found(images):
    folder, _ = images
    table = pd.read_csv(folder / "out" / "importance.csv", index_col=0)
    assert sorted(table.index) == ["r1 c1", "r1 c2", "r2 c1", "r2 c2"]
    assert table.index[0] == "r1 c1"
    assert table.iloc[:, 0].iloc[0] > 0.9
    assert table.iloc[:, 0].iloc[1:].max() < 0.1


@pytest.mark.complete
def test_a_shape_is_found_wherever_it_stands(tmp_path):
    # Perceptrons, the default before, are right in about half of the images.
    needs.torchvision()
    folder, out = str(folder_of_shapes(tmp_path / "shapes")), tmp_path / "out"
    assert main(["explain", folder, "--out", str(out), "--replicates", "1", "--quiet"]) == 0
    posterior = arviz.from_netcdf(out / "posterior.nc")
    images = image_geometry(posterior).images
    test = divided_folder(folder, valid_share=0.2, test_share=0.2, seed=0).test
    predicted = predictive(lexppl.load(out / "explainer"), test.x)[:, :, 1] > 0.5
    assert (predicted == test.y).double().mean(1).min() > 0.9
    # A patch holds some of the bar where its mean is bright: noise has a mean of 80 ± 6. One is
    # enough where the bar lies one way, and none where it lies the other.
    bright = images.reshape(len(images), 4, 4, 4, 4).mean((2, 4)).reshape(len(images), -1) * 255
    for kept in mask_means(posterior).values > 0.5:
        assert (kept & (bright > 100)).any(1).mean() > 0.4
        assert (bright[kept] < 100).mean() < 0.3


def test_the_words_that_tell_are_found(texts):
    folder, _ = texts
    table = pd.read_csv(folder / "out" / "importance.csv", index_col=0)
    assert set(table.index[table["found"]]) == set(TELLING.values()) == set(table.index[:2])
    # A text without the one word is of the class of the other, and a fit may keep anything of it.
    assert table["share"].iloc[:2].max() > 0.9 and (table["share"].iloc[2:] < 0.2).all()
    assert {word: table.loc[word, "mostly_in"] for word in TELLING.values()} == {
        word: label for label, word in TELLING.items()
    }


def test_what_is_printed_of_images(images):
    _, shown = images
    assert "squares: 8 × 8 pixels, grey; 4 patches of 4 × 4 pixels, target 'class'" in shown
    assert "60 images to fit on, 20 to choose the best epoch on, 20 held out" in shown
    assert "To predict class, an image keeps 1 of 4 patches of 4 × 4 pixels." in shown
    assert "Row 2 (asked for): predicted bright" in shown
    assert re.search(r"the explainer +1 +1\.000 ± 0\.000", shown)
    assert re.search(r"EVAL-X on the explainer's features +1 +(1\.000|0\.9[89])", shown)
    assert "a predictor that sees everything" in shown and "the base rate" in shown


def test_what_is_printed_of_texts(texts):
    _, shown = texts
    assert "reviews: at most 9 words of 15 known; 9 words, target 'verdict' (bad, good)" in shown
    answer = " ".join(shown.split())
    assert re.search(
        r"rests on (awful \(bad\) and great \(good\)|great .* \(bad\)); together", answer
    )
    assert "they are in 100 of 100 texts, of which 100 of 100 are predicted right" in answer
    assert "on 120 texts that were judged by predictors which had not learned from them" in answer
    assert re.search(r"Row 3 \(asked for[^)]*\): predicted good", shown)
    assert re.search(r"word \d +great", shown)
    assert re.search(r"the explainer +1 +1\.000 ± 0\.000", shown)


# What is written


def test_files_of_images(images):
    folder, _ = images
    out = folder / "out"
    assert sorted(path.name for path in out.iterdir()) == [
        *("explainer", "importance.csv", "posterior.nc", "report.html", "rows.csv"),
    ]
    test = divided_folder(folder / "squares", seed=0).test
    posterior = arviz.from_netcdf(out / "posterior.nc")
    means = mask_means(posterior)
    again = mask_means(explain(lexppl.load(out / "explainer"), test.x, draws=0))
    assert np.allclose(means.values, again.values, atol=1e-6)
    assert list(means["feature"].values) == ["r1 c1", "r1 c2", "r2 c1", "r2 c2"]
    assert group_of(posterior, "constant_data")["x"].dims == ("row", "channel", "height", "width")
    lines = pd.read_csv(out / "rows.csv")
    assert set(lines["row"]) == {2} and "r1 c1" in set(lines["feature"])


def test_a_text_of_ones_own_is_read_by_what_was_written(texts):
    folder, _ = texts
    out = folder / "out"
    vocabulary = Vocabulary.load(out / "vocabulary.json")
    told = json.loads((out / "texts.json").read_text())
    assert told == {"length": 9, "keep": None}
    x, words = encoded_texts(["This scene had a great story!"], vocabulary, **told)
    means = mask_means(explain(lexppl.load(out / "explainer"), x, draws=0)).values.mean((0, 1))
    assert words[0][int(means.argmax())] == "great" and means.max() > 0.8


def test_a_row_is_told_by_its_number_in_the_table_and_by_its_part(tmp_path):
    table = table_of_texts(tmp_path / "reviews.csv", 100)
    words = ["explain", str(table), "--text", "review", "--out", "r", "--rows", "20"]
    typed = [word for row in range(100) for word in ("--row", str(row))]
    source = read_texts(parse([*words, *typed]), torch.device("cpu"))
    said = pd.read_csv(table)["review"]
    for number in (0, 7, 99):
        assert [" ".join(one) for one in source.by_number([number]).words] == [said[number]]
    told = Counter(source.part_of(number) for number in range(100))
    assert told == {
        "": 20,
        "; the explainer was fitted on it": 20,
        "; the best epoch was chosen on it": 20,
        "; it was left out of the fit": 40,
    }
    asked = {"; the explainer was fitted on it": source.train, "": source.test}
    for why, part in asked.items():
        rows = [number for number in range(100) if source.part_of(number) == why]
        assert torch.equal(source.by_number(rows).x, part.x)


def test_reports_say_what_was_found(images, texts):
    pictures = (images[0] / "out" / "report.html").read_text("utf-8")
    assert "Where it looks" in pictures and "bright: " in pictures
    # Three rows and a mean map of either class, and six pictures of the row that is asked for.
    assert pictures.count('<img src="data:image/png') == 2 * 3 + 2 + 6
    assert "Row 2" in pictures and "patches" in pictures
    words = (texts[0] / "out" / "report.html").read_text("utf-8")
    assert re.search(r'title="selection probability 1.00[^>]*>great</span>', words)
    assert "Selected rows" in words
    assert '<th scope="row">great</th>' in words
    assert "= great" in words.replace("\n", "")


@pytest.mark.parametrize(("width", "scheme"), [(400, DARK), (1280, LIGHT)])
@pytest.mark.parametrize("run", ["images", "texts"])
def test_reports_pass_axe(run, request, tmp_path, width, scheme):
    folder, _ = request.getfixturevalue(run)
    found = checked(folder / "out" / "report.html", tmp_path, width, scheme)
    assert found["violations"] == []
    assert {"color-contrast", "heading-order", "document-title"} <= set(found["passes"])
    assert found["dark"] == (scheme == DARK) and found["reach"] <= width


# Of every kind


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("method", ["real_x", "l2x", "invase", "fastshap", "senn", "q_fit"])
def test_methods_explain_images(method, tmp_path, capsys):
    needs.torchvision()
    folder = folder_of_images(tmp_path / "squares", 12)
    out = ["--out", str(tmp_path / "out"), "--method", method]
    assert main(["explain", str(folder), *out, *FEW]) == 0
    assert f"\n{method}: " in capsys.readouterr().out
    assert (tmp_path / "out" / "report.html").is_file()


@pytest.mark.complete(but=1)
@over(
    ["--method", "real_x"],
    ["--method", "fastshap"],
    ["--imputer", "unigram", "--penalty", "0.01"],
    ["--imputer", "bigram"],
    ["--length", "5", "--keep-words", "end", "--vocabulary", "8", "--replicates", "2"],
)
def test_options_of_texts(options, tmp_path):
    table = table_of_texts(tmp_path / "reviews.csv", 40)
    out = ["--out", str(tmp_path / "out")]
    assert main(["explain", str(table), "--text", "review", *out, *FEW, *options]) == 0
    if "--length" in options:
        told = json.loads((tmp_path / "out" / "texts.json").read_text())
        assert told == {"length": 5, "keep": "end"}
        assert len(Vocabulary.load(tmp_path / "out" / "vocabulary.json").words) == 8


@pytest.mark.complete
def test_a_set_by_name_is_read_and_cut_to_the_rows_that_are_asked_for(tmp_path, capsys):
    write_mnist(tmp_path / "data", train=60, test=30)
    before = sorted((tmp_path / "data").rglob("*"))
    words = ["--root", str(tmp_path / "data"), "--rows", "20", "--patches", "7"]
    out = ["--out", str(tmp_path / "out"), "--networks", "convolutional", "--row", "19"]
    assert main(["explain", "mnist", *words, *out, *FEW]) == 0
    shown = capsys.readouterr()
    assert "16 patches of 7 × 7 pixels" in shown.out
    assert "20 images to fit on, 12 to choose" in shown.out
    assert "at most 20 images of each part are read, at random; --rows takes more" in shown.out
    assert "Row 19 (asked for)" in shown.out
    assert sorted((tmp_path / "data").rglob("*")) == before


def test_what_data_is(tmp_path):
    folder_of_images(tmp_path / "squares", 1)

    def kind(*words):
        return kind_of_data(parse(["explain", *words, "--out", "r"]))

    assert kind("mnist") == kind(str(tmp_path / "squares")) == IMAGES
    assert kind("imdb") == kind("reviews.csv", "--text", "review") == TEXTS
    assert kind("wine") == kind("reviews.csv") == kind("digits") == TABLE


# The parts


def test_shares_kept_of_words_are_means_over_their_places():
    generator = np.random.default_rng(0)
    x = torch.from_numpy(generator.integers(1, 5, (20, 6))).float()
    values, y = generator.normal(size=(3, 20, 6)), torch.from_numpy(generator.integers(0, 2, 20))
    table = word_table(values, x, x, y, Vocabulary(["a", "b", "c"]), ("no", "yes"))
    names = {1: UNKNOWN_WORDS, 2: "a", 3: "b", 4: "c"}
    assert set(table.index) == set(names.values())
    for number, name in names.items():
        there = x.numpy() == number
        each = [value[there].mean() for value in values]
        assert np.isclose(table.loc[name, "share"], np.mean(each))
        # t_{.975, 2} = 4.3027
        half = 4.302653 * np.std(each, ddof=1) / np.sqrt(3)
        assert np.isclose(table.loc[name, "share_upper"] - np.mean(each), half)
        own = there.any(1)
        assert table.loc[name, "texts"] == own.sum()
        lift = [(y[own] == c).double().mean() / (y == c).double().mean() for c in range(2)]
        assert table.loc[name, "mostly_in"] == ("no", "yes")[int(np.argmax(lift))]
        if 0 < own.sum() < 20:
            counts = np.array([[(y[w] == c).sum() for c in range(2)] for w in (own, ~own)])
            test = chi2_contingency(counts, correction=False, lambda_="log-likelihood")
            assert np.isclose(table.loc[name, "deviance"], test.statistic)


def test_words_are_ranked_by_what_is_kept_beyond_how_often_they_occur():
    # "the" is kept most in sum, for it is in every place but four.
    x, values = torch.full((100, 6), 2.0), np.full((1, 100, 6), 0.2)
    x[:3, 0], values[:, :3, 0] = 3.0, 0.9
    x[3, 0], values[:, 3, 0] = 1.0, 1.0
    vocabulary, y = Vocabulary(["the", "superb"]), torch.arange(100) % 2
    table = word_table(values, x, x, y, vocabulary, ("no", "yes"))
    assert list(table.index) == ["superb", "the", UNKNOWN_WORDS]


def planted(rows, seed, tells):
    """Texts of ten words of forty, and their classes, which two of the words may tell."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 2, rows)
    texts = [list(generator.choice([f"w{i}" for i in range(40)], 10)) for _ in range(rows)]
    for text, label in zip(texts, labels, strict=True):
        if tells and generator.random() < 0.6:
            text[0] = ("awful", "great")[label]
    return texts_of(map(" ".join, texts), labels)


def findings(data):
    masks = np.random.default_rng(0).random((1, *data.x.shape))
    table = word_table(masks, data.x, data.x, data.y, data.vocabulary, data.class_names)
    return found_words(table, data.x, data.y, data.vocabulary, seed=0)


def test_words_that_tell_the_class_are_found_whatever_the_masks_keep():
    words = findings(planted(300, 0, tells=True))
    found = words.table[words.table["found"]]
    assert set(found.index) == {"awful", "great"} == set(words.table.index[:2])
    assert found["mostly_in"].to_dict() == {"awful": "0", "great": "1"}
    assert (found["first_lower"] > 0).all()
    assert words.tested == 42 and words.measured == 24 and words.texts == 300


@pytest.mark.complete
def test_words_that_tell_nothing_are_not_found():
    # Chosen among forty by the same texts: without all of them in the rate some are found.
    found = [findings(planted(200, seed, tells=False)).table["found"].sum() for seed in range(8)]
    assert sum(count > 0 for count in found) <= 2


def test_the_number_kept_has_an_interval_over_replicates():
    posterior = random_posterior()
    sizes = mask_means(posterior).values.sum(-1)
    each, found = sizes.mean(1), KeptSize.of(posterior)
    assert np.isclose(found.mean, each.mean())
    interval = ttest_1samp(each, 0.0).confidence_interval(0.95)
    assert np.allclose([found.lower, found.upper], interval)


def test_the_interval_of_the_number_kept_ends_at_all_entries(monkeypatch):
    means = xarray.DataArray(
        [[[1.0] * 4], [[1.0, 0.0, 0.0, 0.0]]], dims=("chain", "row", "feature")
    )
    monkeypatch.setattr("lexppl.report.data.masks.mask_means", lambda posterior: means)
    assert KeptSize.of(None).interval == "95 % interval over replicates 0.0 – 4.0"


def test_what_is_left_out_is_told_where_something_is():
    assert left_out(10, "texts", [10, 3]).startswith("at most 10 texts of each part")
    assert left_out(10, "texts", [9, 3]) == ""


# Imputers


@pytest.mark.smoke
def test_imputers_of_images_are_scored_as_in_python(tmp_path, capsys):
    needs.torchvision()
    folder = folder_of_images(tmp_path / "squares")
    names = ("marginal", "gaussian-mixture", "logistic-mixture")
    out = tmp_path / "scores.json"
    words = ["--imputers", ",".join(names), "--rates", "0.5", "--draws", "10", "--quiet"]
    assert main(["impute", str(folder), "--out", str(out), *words]) == 0
    shown = capsys.readouterr().out
    assert "squares: 80 rows to fit on, 20 held out and scored, by the share of patches" in shown
    assert "CRPS of a hidden value, in shades, from 0 to 1" in shown
    parts = divided_folder(folder, valid_share=None, seed=0)
    given = {name: imputer_of(name, parts.train.x, 0) for name in names}
    grouping = Grouping.patches((1, 8, 8), 4)
    expected = imputation(given, parts.test.x, rates=[0.5], draws=10, grouping=grouping).table
    found = pd.DataFrame(json.loads(out.read_text())["scores"]).set_index(["imputer", "rate"])
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)


# Images and texts in a report: what stands there, and how it reads, by axe-core's checks.


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
