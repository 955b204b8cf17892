"""The sentences of a report's first screen, and its dial."""

import itertools
import math
import re

import numpy as np
import pandas as pd

from lexppl.explanation.reading.modes import Alternative
from lexppl.explanation.reading.sentences import ReadGroup, groups_read, html, plain, share_of
from lexppl.report.results.scores import BASE, EXPLAINER, FULL, Judgement, ScoreRow
from lexppl.report.results.words import WordFindings
from lexppl.report.sentences import FirstScreen, _of_words
from tests.refusals import over


def scored(who, size, right, rows=200, name="accuracy", wrong=None):
    losses = np.zeros(rows)
    losses[: round((1 - right) * rows if wrong is None else wrong * rows)] = 1.0
    return ScoreRow(who, size, {name: right}, {}, losses)


def labels(own=0.9, full=0.92, base=0.6):
    return [scored(EXPLAINER, 2.0, own), scored(FULL, 10, full), scored(BASE, 0, base)]


def screen(groups, scores=None, **options):
    kept = {"features": 10, "rows": 200, "fits": 5, "in_folds": True, "base": "no", **options}
    kept.setdefault("rate", "of such findings at most 10 in 100 are expected to be chance")
    judgement = Judgement(labels() if scores is None else scores)
    return FirstScreen("y", groups, judgement=judgement, **kept)


def group(name, kept=0.9, found=True, members=None, agreement=0.9, **options):
    options = {"lower": kept - 0.05, "upper": min(1.0, kept + 0.05), **options}
    return ReadGroup(
        name,
        members or (name,),
        kept,
        agreement=agreement,
        found=found,
        **options,
    )


def said(*args, **options):
    return [plain(answer) for _, answer in screen(*args, **options).answers()]


def test_what_is_found_is_read_and_of_the_rest_it_is_said_what_is_known():
    size = group("size", 0.98, members=("mean radius", "worst radius", "area"))
    groups = [size, group("age", 0.5), group("sex", 0.3, found=False), group("job", 0.2, False)]
    rests, sure, well = said(groups, features=6)
    assert rests == (
        "The prediction of y reads size (mean radius, worst radius, area) in nearly every row and "
        "age in half of the rows; for the other 2 features 200 rows are not enough to tell, though "
        "the prediction reads sex in 3 of 10 rows and job in 2 of 10 rows."
    )
    assert sure == (
        "Each of these says something, alone or beyond all others, on 200 rows that were judged by "
        "predictors which had not learned from them; of such findings at most 10 in 100 are "
        "expected to be chance; the 5 fits, each without one of 5 parts of the rows, agree on "
        "where these matter."
    )
    assert well == (
        "It predicts 90 of 100 rows right from 2 of 6 features of a row, less well than a "
        "predictor that always reads all 6 (92); always saying no is right in 60."
    )


def test_alternatives_are_named_in_place_of_means_over_fits():
    size, shape, texture = (
        group(name, 0.56, agreement=0.1) for name in ("size", "shape", "texture")
    )
    modes = [Alternative(("size",), 0.6, 3), Alternative(("shape", "texture"), 0.4, 2)]
    rests, sure, _ = said([group("age"), size, shape, texture], features=4, modes=modes)
    assert rests == (
        "The prediction of y reads age in 9 of 10 rows, and either size, or shape and texture: as "
        "good, with weights .60 and .40, of 3 and 2 fits."
    )
    # Fits do not differ on what either of them may read.
    assert "agree on where age matters" in sure
    rests, *_ = said([size, shape, texture], features=3, modes=modes)
    assert rests.startswith("The prediction of y reads either size, or shape and texture: as good")
    # Five fits that all differ are no alternatives, and a sentence holds three.
    names = ("age", "size", "shape", "texture")
    for count, fits in ((4, 2), (3, 1)):
        of_all = [Alternative((name,), 1.0 / count, fits) for name in names[:count]]
        rests, sure, _ = said([group("age"), size, shape, texture], features=4, modes=of_all)
        assert "either" not in rests and "size" in rests and "differ on" in sure
    # A group is read whichever of its members stands for it.
    of_one = [Alternative(("width",), 0.6, 3), Alternative(("height",), 0.4, 2)]
    rests, *_ = said([group("area", 0.97, members=("width", "height", "depth"))], modes=of_one)
    assert "reads area (width, height, depth) in nearly every row, and either width, or" in rests
    near = group("area", members=("width", "height"), stand_ins={"width": 0.5, "height": 0.5})
    assert "reads area (width or height: as good, weights .50 and .50) in 9" in said([near])[0]


def test_next_to_nothing_is_said_only_where_both_upper_ends_are():
    age, lines = group("age"), {}
    for ends in ([0.009, 0.009], [0.009, 0.02], [0.02, 0.009]):
        table = pd.DataFrame(
            {
                **{"selection_probability": [0.9, 0.1], "lower": 0.0, "upper": 1.0},
                **{"first_upper": [0.3, ends[0]], "gain_upper": [0.3, ends[1]]},
                **{"found": [True, False], "agreement": 0.9},
            },
            index=pd.Index(["age", "sex"], name="group"),
        )
        ranking = table.assign(group=table.index)[["selection_probability", "group"]]
        lines[max(ends)] = [one.nothing for one in groups_read(ranking, table)]
    assert lines == {0.009: [False, True], 0.02: [False, False]}
    none, open_ = (group(name, 0.05, found=False, nothing=name == "sex") for name in ("sex", "job"))
    of_none, of_both = said([age, none])[0], said([age, none, open_])[0]
    assert "the other feature says next to nothing, alone or beyond all others." in of_none
    line = "of the other 2 features 1 says next to nothing, and for the rest 200 rows are not"
    assert line in of_both


def test_nothing_found_is_no_finding():
    rests, sure, _ = said([group("age", 0.08, found=False), group("sex", 0.02, found=False)])
    assert rests == "200 rows do not show that any of the 10 features helps to predict y."
    assert sure.startswith("200 rows may be too few to show what little there is.")
    sure = said([group("age", 0.6, found=False)], learned=True)[1]
    assert sure.startswith("It predicts better than guessing, by what these rows do not show")
    # Of a response that is in its likelihood, and may not be in its mean.
    few = "200 rows may be too few to show"
    assert said([group("age", found=False)], learned=True, base=None)[1].startswith(few)
    rests, *_ = said([group("age", 0.6, found=False)], features=1, rows=1)
    assert rests.startswith("1 row does not show that age helps to predict y.")
    assert "The prediction reads age in 6 of 10 rows, which may be noise." in rests


def test_of_responses_it_is_said_how_much_of_their_variance_is_explained():
    scores = [scored(EXPLAINER, 2.0, 0.81, name="r2"), scored(FULL, 10, 0.82, name="r2")]
    _, _, well = said([group("age")], scores, base=None)
    assert well.startswith("It explains 81 % of the variance of y from 2 of 10 features")
    scores[0] = scored(EXPLAINER, 2.0, -0.1, name="r2")
    well = said([], scores, base=None)[-1]
    assert well.endswith(
        "always saying its mean; a predictor that always reads all 10 explains 82 %."
    )


def test_an_explainer_of_a_black_box_is_as_good_as_it_agrees_with_it():
    own = scored(EXPLAINER, 2.0, 0.5)
    own.figures["agreement"] = 0.97
    # Fidelity comes first.
    how_well, rests, *_ = said(
        [group("age"), group("job", 0.05, found=False)], [own, *labels()[1:]], of_model=True
    )
    assert (
        how_well == "It agrees with the black box on 97 of 100 rows from 2 of 10 features of a row."
    )
    assert "; for the other feature 200 rows are not enough to tell." in rests
    assert "The model itself may use it." in rests
    how_well = said([group("age")], [own], base=None)[0]
    assert how_well == "It explains 97 % of the variance of y from 2 of 10 features of a row."


def test_a_worse_likelihood_is_less_sure():
    scores = labels(own=0.9, full=0.91)
    scores[0] = scored(EXPLAINER, 2.0, 0.9, wrong=0.09)
    about = "about as well as a predictor that always reads all 10 (91)"
    assert f"{about}; always" in said([group("age")], scores)[-1]
    answers = said([group("age")], scores, behind="it is worse")
    assert f"{about}, but less surely; always" in answers[-1]
    assert answers[0].startswith("It is worse. ")


def test_images_are_not_rows_of_features():
    scores = [scored(EXPLAINER, 32.4, 0.9), scored(FULL, 49, 0.92), scored(BASE, 0, 0.5)]
    how = {"features": 49, "entries": "patches", "row": "image", "rate": None, "fits": 1}
    _, sure, well = said([], scores, **how)
    assert well.startswith("It predicts 90 of 100 images right from 32.4 of 49 patches of an image")
    assert sure == "There is one fit, so nothing says how far this depends on its seed."
    scores[0] = scored(EXPLAINER, 49.0, 0.9)
    assert "from all 49 patches of an image" in said([], scores, **how)[-1]


def test_fits_that_differ_and_one_fit():
    apart = [group("age", 0.5, agreement=0.3), group("size (cm)", 0.9)]
    sure = said(apart)[1]
    assert "agree on size (cm), but differ on which rows read age (45 to 55 of 100)." in sure
    assert said([group("age")], fits=1)[1].endswith("depends on its seed.")
    rarely = [group("age", 0.9), group("size", 0.01)]
    assert "agree on where age matters." in said(rarely)[1]
    named = group("size (+2)", members=("size", "area", "mass"))
    assert "reads size (with area and mass) in 9 of 10 rows" in said([named])[0]
    unseen = said([group("age", found=False)], learned=False)[1]
    assert "no better than guessing, so that what it reads says little." in unseen
    unseen = said([group("age", 0.0, found=False)], learned=False)[1]
    assert unseen.endswith("its predictions are no better than guessing.")
    assert "; beyond that its predictions" in said([group("age")], learned=False)[1]


def test_of_a_rare_class_it_is_said_how_many_of_its_rows_are_predicted():
    scores = labels(own=0.95, full=0.95, base=0.94)
    scores[0].figures["auroc"] = 0.87
    well = said([group("age")], scores, recalls=[("yes", 12, 3), ("so", 4, 0)])[-1]
    assert well.endswith(
        "; 3 of the 12 rows of yes are predicted so; none of the 4 rows of so is predicted so; of "
        "100 pairs with different labels 87 are in the right order (by chance 50)."
    )


def test_names_are_escaped_and_bold():
    answers = screen([group("<b>shoe</b> (m)", agreement=0.2)]).answers()
    for _, answer in answers:
        page = str(html(answer))
        assert "<b>" not in page and page.count("<strong>") == page.count("</strong>")
    assert "<strong>&lt;b&gt;shoe" in str(html(answers[0][1]))


def test_sentences_of_any_numbers_have_no_nan_and_agree_in_number():
    random = np.random.default_rng(0)
    counts = itertools.product([0, 1, 2, 9], [1, 5], [True, False], [0.0, 0.5, 1.0])
    for found, fits, of_labels, kept in counts:
        missing = [math.nan if random.random() < 0.3 else 0.9 for _ in range(12)]
        groups = [group(f"g{k}", kept, k < found, agreement=missing[k]) for k in range(12)]
        scores = labels() if of_labels else [scored(EXPLAINER, 2.0, 0.5, name="r2")]
        base = "no" if of_labels else None
        for answer in said(groups, scores, fits=fits, features=12, base=base):
            assert not re.search(r"nan|inf\b|None|\x02|\x03| ,|\.\.|  ", answer), answer
            assert not re.search(r"\b1 (features|rows|fits|groups)\b", answer), answer
            assert answer[0].isupper() or answer[0].isdigit() or answer.startswith("−"), answer
            assert answer.endswith(".")


@over((1.0, "nearly every"), (0.5, "half"), (0.31, "3 of 10"), (0.06, "1 of 10"), (0.0, "fewer"))
def test_shares_in_words(kept, words):
    assert words in share_of(kept)


def words_screen(lines, tested=30, covered=0.85, right=0.95):
    columns = ["word", "first_lower", "mostly_in", "share", "texts", "p", "found"]
    table = pd.DataFrame(lines, columns=columns).set_index("word")
    words = WordFindings(table, 400, tested, covered, right)
    options = {"base": "good", "row": "text", "entries": "words", "first": "A text keeps 2."}
    before = FirstScreen("verdict", (), 20, 80, 2, judgement=Judgement(labels()), **options)
    return [plain(answer) for _, answer in _of_words(before, words).answers()]


def test_words_that_are_found_stand_by_their_class_and_interactions_last():
    rests, sure, _ = words_screen(
        [
            ("not", -0.01, "bad", 1.0, 100, 1e-9, True),
            ("superb", 0.02, "good", 1.0, 50, 1e-5, True),
            ("rude", 0.02, "bad", 0.5, 50, 1e-4, True),
            ("the", -0.01, "bad", 0.1, 400, 0.9, False),
            ("pool", -0.01, "bad", 0.1, 90, np.nan, False),
        ]
    )
    assert rests == (
        "The prediction of verdict rests on superb (good), rude (bad) and not (together with "
        "others); together they are in 85 of 100 texts, of which 95 of 100 are predicted right. "
        "The explainer keeps them in 88 of 100 places, other words in 10. Of the other 27 words 1 "
        "was measured, which is not shown to help."
    )
    assert sure.startswith("Each of these says something, alone or beyond all others, on 400 texts")


def test_masks_that_keep_every_word_alike_are_said():
    rests, *_ = words_screen(
        [
            ("rude", 0.02, "bad", 0.17, 50, 1e-4, True),
            ("the", -0.01, "bad", 0.18, 400, 0.9, False),
        ]
    )
    assert "in 17 of 100 places, other words in 18: its masks do not tell it from others." in rests


def test_of_words_that_tell_nothing_it_is_said_that_nothing_is_found():
    rests, *_ = words_screen([("the", -0.01, "bad", 0.9, 400, 0.9, False)])
    assert rests == (
        "400 texts do not show that any of the 30 words that are in 5 of them or more helps to "
        "predict verdict. A text keeps 2."
    )
