"""Texts as rows of word numbers."""

import json
import lzma
import os
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pandas as pd
import pytest
import torch

from lexppl.data.texts import TextDataset, Vocabulary, imdb, texts_of, words_of
from lexppl.sealed_files import write_sealed
from tests.refusals import over, refusals, refused

HERE = Path(__file__).parents[3]
SHARED = Path(os.environ.get("LEXPPL_DATA", HERE.parent / "shared" / "data"))
GOOD, BAD = "A good film, really good!", "A bad film."


@over(
    ("Don't STOP", ("don't", "stop")),
    ("don’t", ("don't",)),
    ("10/10 -- 3.5 stars", ("10", "10", "3", "5", "stars")),
    ("Été à Zürich", ("été", "à", "zürich")),
    ("snake_case 'quoted'", ("snake", "case", "quoted")),
    ("...", ()),
)
def test_words(text, words):
    found = words_of(text)
    assert found.words == words
    assert len(found.shown) == len(words)


TEXTS_WITH_MARKS = {
    "Hindi": "फिल्म बहुत अच्छी थी",
    "Bengali": "ছবিটি খুব ভালো লেগেছে",
    "Tamil": "படம் மிகவும் நன்றாக இருந்தது",
    "Malayalam, with joiners": "അവന്‍ നല്ല സിനിമ",
    "Telugu": "సినిమా చాలా బాగుంది",
    "Arabic, with vowels": "كِتَابٌ جَمِيلٌ جِدًّا",
    "Hebrew, with points": "סֵפֶר טוֹב מְאֹד",
    "Persian, with a non-joiner": "فیلم می\u200cخواهم خوب",
    "Thai, by phrases": "ภาพยนตร์เรื่องนี้ ดีมาก จริงๆ",
    "Vietnamese, decomposed": normalize("NFD", "phim rất tuyệt vời"),
    "French, decomposed": normalize("NFD", "c’était très élégant"),
    "Yoruba": "ẹ̀kọ́ dára púpọ̀",
}


@pytest.mark.parametrize("text", TEXTS_WITH_MARKS.values(), ids=TEXTS_WITH_MARKS)
def test_marks_belong_to_their_word(text):
    found = words_of(f"“{text}!”")
    composed = normalize("NFC", text).replace("’", "'")
    assert found.words == tuple(composed.split())
    # What is shown is the text as it was given, not composed.
    assert " ".join(found.shown) == f"“{text}!”"
    for form in ("NFC", "NFD"):
        assert words_of(normalize(form, text)).words == found.words
    data = texts_of([text, "b a"], [0, 1])
    assert set(data.vocabulary.words) == {*found.words, "a", "b"} and data.texts == (text, "b a")


def test_words_that_differ_in_a_mark_alone_are_two():
    pairs = ("कि की", "มา ม้า", "שָׁם שֵׁם", "كَتَبَ كُتُب", "cote côté", "ma má")
    for pair in pairs:
        assert len(set(words_of(normalize("NFD", pair)).words)) == 2


@pytest.mark.parametrize("text", ["\u0301a", "a_\u0301 b", "👩\u200d💻 a", "❤\ufe0f a", "\u200c"])
def test_a_mark_on_no_letter_is_no_word(text):
    assert {*words_of(text).words} <= {"a", "b"}


def test_texts_stay_with_their_rows():
    written = [f"{w} FILM, {w}!" for w in "abcdefgh"]
    data = texts_of(written, [0, 1] * 4, length=2, keep="start")
    for part in (*data.split(0.5, 0.5, seed=0), data.subset([6, 1]), data.take(3, seed=1)):
        assert [text[0] for text in part.texts] == [words[0] for words in part.words]
    assert data.texts == tuple(written) and data.to(dtype=torch.float64).texts is data.texts


def test_shown_words_read_as_the_text():
    text = '"Well," she said -- it\'s  (quite)\n fine...'
    assert " ".join(words_of(text).shown) == " ".join(text.split())


def test_vocabulary_has_the_most_frequent_words_of_the_training_part():
    vocabulary = Vocabulary.of([GOOD, BAD], size=3)
    # "good" and "film" and "a" stand twice each, the others once
    assert vocabulary.words == ("a", "film", "good")
    assert vocabulary.numbers(["good", "bad", "film"]) == [4, 1, 3]
    assert [vocabulary.word(number) for number in (0, 1, 4)] == ["", "?", "good"]
    train = texts_of([GOOD, BAD], ["g", "b"])
    assert "dull" not in train.vocabulary.words
    of_train = {"vocabulary": train.vocabulary, "length": 5, "class_names": train.class_names}
    test = texts_of(["A dull good film"], ["g"], **of_train)
    assert test.x.flatten().tolist() == [2.0, 1.0, 4.0, 3.0, 0.0]


def test_vocabulary_is_saved(tmp_path):
    vocabulary = Vocabulary(["été", 'a"b'])
    vocabulary.save(tmp_path / "words.json")
    assert Vocabulary.load(tmp_path / "words.json") == vocabulary
    decomposed = Vocabulary([normalize("NFD", "été")])
    assert decomposed.numbers(words_of("Été").words) == [2]
    # Those of before had words that were cut at their marks.
    write_sealed(tmp_path / "old.json", {"format": 2, "words": ["a"]})
    with pytest.raises(ValueError, match="wrote it in format 2, and this version reads format 3"):
        Vocabulary.load(tmp_path / "old.json")
    (tmp_path / "other.json").write_text(json.dumps({"words": ["a"]}))
    with pytest.raises(ValueError, match=r"other\.json cannot be read: its format is None"):
        Vocabulary.load(tmp_path / "other.json")


test_wrong_vocabularies = refusals(
    (lambda: Vocabulary([]), "a vocabulary needs at least one word"),
    (lambda: Vocabulary(["a", "b", "a"]), "repeated: 'a'"),
    (lambda: Vocabulary.of([GOOD], size=0), "size must be a whole number of at least 1"),
    (lambda: Vocabulary(["a"]).word(3), "whole, from 0 to 2; it is 3"),
)


@pytest.mark.parametrize("keep", ["start", "end"])
def test_the_stated_end_of_a_long_text_is_kept(keep):
    data = texts_of(["one two three four", "one five"], [0, 1], length=2, keep=keep)
    kept = {"start": ("one", "two"), "end": ("three", "four")}[keep]
    assert data.words[0] == kept
    assert [data.vocabulary.word(number) for number in data.x[0].tolist()] == list(kept)
    assert data.words[1] == ("one", "five")


test_wrong_texts = refusals(
    ([GOOD, "  "], "gb", {}, r"row 1 is a text without words, '  '"),
    ([GOOD, "?!"], "gb", {}, r"row 1 is a text without words, '\?!'"),
    ([GOOD, np.nan], "gb", {}, "row 1 must be a text; it is nan"),
    ([GOOD, "xyz q"], "gb", {"vocabulary": Vocabulary(["good"])}, "row 1 has unknown words on"),
    ([BAD, GOOD, GOOD], "bgg", {"length": 3}, "row 1 has 5 words, more than 3, and 1 more"),
    ([GOOD, BAD], "g", {}, r"labels must have shape \(2,\); the shape is \(1,\)"),
    ([GOOD, BAD], "gg", {}, "there is one class only, 'g'"),
    ([GOOD, BAD], ["g", None], {}, "row 1 has no label"),
    ([GOOD, BAD], "gb", {"class_names": ["g", "h"]}, "row 1 has the label 'b', which is none"),
    ([GOOD, BAD], "gb", {"length": 3, "keep": "middle"}, "keep must be one of"),
    ([], "", {}, "there are no texts"),
    of=lambda texts, labels, options: texts_of(texts, list(labels), **options),
)


def test_one_string_is_no_list_of_texts():
    refused("it is one string", texts_of, GOOD, ["g"], error=TypeError)


def test_parts_have_the_words_of_their_rows():
    data = texts_of([f"{w} film {w}" for w in "abcdefgh"], [0, 1] * 4)
    for part in (*data.split(0.5, 0.5, seed=0), data.subset([6, 1]), data.subset(slice(2))):
        for row, words in zip(part.x.tolist(), part.words, strict=True):
            assert [part.vocabulary.word(number) for number in row] == list(words)
    assert data.split(0.5, 0.5, seed=0)[0].y.tolist().count(1) == 2
    refused("chooses none", data.subset, torch.zeros(8, dtype=torch.bool))
    assert "8 rows" in repr(data)


def test_padding_stands_after_the_words():
    data = texts_of([GOOD, BAD], "gb")
    for row in ([[0.0, 2.0]], [[2.0, 0.0, 3.0]], [[2.5, 0.0]], [[99.0, 0.0]]):
        with pytest.raises(ValueError, match=r"x must hold|padding, 0, after its last"):
            TextDataset(
                torch.tensor(row), torch.tensor([0]), ("b", "g"), (("a",),), data.vocabulary
            )


def reviews(folder, name, compress):
    frame = pd.DataFrame(
        {
            "split": ["train", "train", "test"],
            "label": [1, 0, 1],
            "text": ["Good.<br /><br />Film", "bad film", "good new film"],
        }
    )
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(compress(frame.to_csv(index=False).encode()))


@pytest.mark.smoke
def test_reviews_of_one_file_and_of_the_original_folder(tmp_path):
    reviews(tmp_path / "imdb", "imdb_reviews.csv.xz", lzma.compress)
    train, test = imdb(tmp_path, length=2)
    assert train.words == (("Good.", "Film"), ("bad", "film"))
    assert train.y.tolist() == [1, 0] and train.class_names == ("negative", "positive")
    # the end is kept, and "new" is not of the training part
    assert test.words == (("new", "film"),) and test.x[0, 0] == 1
    for split, name, text in (
        ("train", "pos/0_9", "Good.<br /><br />Film"),
        ("train", "neg/0_1", "bad film"),
        ("test", "pos/0_8", "good new film"),
    ):
        file = tmp_path / "other" / "aclImdb" / split / f"{name}.txt"
        file.parent.mkdir(parents=True)
        file.write_text(text)
    again, other = imdb(tmp_path / "other", length=2)
    assert again.vocabulary == train.vocabulary
    assert sorted(again.words) == sorted(train.words) and other.words == test.words


def test_missing_reviews_are_told(tmp_path):
    refused("root must be a folder that is there", imdb, tmp_path / "nowhere")
    for reviews in ("all", "5k"):
        refused(r"has no imdb_reviews.*unpack https://ai", imdb, tmp_path, reviews=reviews)
    pd.DataFrame({"text": ["a"]}).to_csv(tmp_path / "imdb_reviews_5k.csv.gz")
    refused("must have the columns split", imdb, tmp_path, reviews="5k")


@pytest.mark.complete
@pytest.mark.skipif(not (SHARED / "imdb").is_dir(), reason="no IMDB reviews here")
def test_shared_reviews():
    train, test = imdb(SHARED, reviews="5k")
    assert len(train) == len(test) == 2500 and train.length == 400
    assert train.y.bincount().tolist() == [1250, 1250]
    assert len(train.vocabulary) == 10_002 and test.vocabulary is train.vocabulary
    assert train.vocabulary.words[0] == "the"
