"""What is wrong with images and texts, or with what was typed of them, gets one line."""

import pandas as pd
import pytest
import torch

from lexppl.cli.image_text_rows import read_texts
from lexppl.cli.program import parse
from tests import needs
from tests.cli.shaped import folder_of_images, table_of_texts
from tests.cli.tables import cases
from tests.cli.test_bad_input import refused
from tests.refusals import over

QUICK = ["--epochs", "1", "--replicates", "1", "--draws", "5", "--quiet"]

TYPED = cases("""
explain mnist => mnist needs --root DIR | MNIST/raw
explain imdb => imdb needs --root DIR | imdb_reviews.csv.xz
explain mnist --root nowhere => --root must be a folder
explain mnist --root . --patches 29 => --patches must be at most 28 | 28 × 28 pixels | it is 29
explain squares --size 6 --patches 7 => --patches must be at most 6 | it is 7
explain squares --method xtab => --method xtab is for tables, and not for images
explain texts.csv --text review --method senn => --method senn is for tables, and not for texts
explain squares --imputer padding => --imputer padding is not for images | marginal
explain wine --imputer logistic-mixture => --imputer logistic-mixture is not for a table | marginal
explain texts.csv --text review --imputer marginal => marginal is not for texts | padding, unigram
explain squares --penalty auto => --penalty auto is for tables
explain squares --target y => --target is for tables
explain squares --text y => --text is for a table
explain squares --root . => --root is for a set by name, and this is a folder
explain mnist --root . --size 9 => --size is for a folder of images
explain wine --patches 2 => --patches is for images
explain wine --rows 50 => --rows is for images and texts
explain texts.csv --text review --patches 2 => --patches is for images
explain texts.csv --text review --drop id => --drop is for tables of other columns than texts
explain texts.csv --text review --target review => --text and --target name the same column
explain squares --length 9 => --length is for texts
explain squares --inference nuts => --inference is for tables
explain squares --black-box m.joblib --trust-black-box => --black-box is for tables
explain mnist --root . --test-share 0.5 => --test-share | mnist comes in parts
explain squares --fdr 0.2 => --fdr is for tables
explain mnits => did you mean 'mnist'?
explain mnist --root . --rows 3 => --rows | at least 10
compare mnist --methods lex => mnist has images, and lexppl compare has no form for them
impute imdb => imdb has texts, and lexppl impute has no form
impute mnist => mnist needs --root DIR
impute squares --imputers padding => --imputers | padding
""")
"""By what was typed: the words, and what is said."""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder_of_images(tmp_path / "squares", 12)
    table_of_texts(tmp_path / "texts.csv", 40)
    return tmp_path


@over(**TYPED)
def test_what_was_typed(words, named, here, capsys):
    out = ["--out", "results"] if words[0] == "explain" else []
    code, line = refused(capsys, here, *words, *out)
    assert code == 2
    for one in named:
        assert one in line


def test_files_that_are_not_there(here, capsys):
    (here / "data").mkdir()
    words = ["--root", "data", "--out", "results", *QUICK]
    code, line = refused(capsys, here, "explain", "mnist", *words)
    assert code == 1 and "MNIST/raw" in line and "cannot be read" in line
    code, line = refused(capsys, here, "explain", "imdb", *words)
    assert code == 1 and "imdb_reviews.csv.xz" in line and "aclImdb" in line
    code, line = refused(capsys, here, "impute", "mnist", "--root", "data", "--quiet")
    assert code == 1 and "MNIST/raw" in line


@over(
    (["--patches", "9"], "--patches must be at most 8, as the images are 8 × 8 pixels"),
    (["--k", "5"], "--k must be a whole number from 1 to 4"),
    (["--row", "99"], "--row must be 0 to"),
)
def test_numbers_that_do_not_fit_images(options, named, here, capsys):
    needs.torchvision()
    words = ["explain", "squares", "--out", "results", *QUICK, *options]
    _, line = refused(capsys, here, *words)
    assert named in line


CELLS = {
    "empty text": ("review", "", ["--strict"], ["'review' is missing in row 3", "--drop-missing"]),
    "no words": ("review", "--- !!!", [], ["row 3 of column 'review' is a text without words"]),
    "long text": (
        "review",
        "great film " * 10,
        ["--length", "12"],
        ["row 3 of column 'review' has 20 words, more than 12", "--keep-words"],
    ),
    "no label": ("verdict", None, ["--strict"], ["'verdict' is missing in row 3"]),
}


@over(**CELLS)
def test_cells(column, value, options, named, tmp_path, capsys):
    table = table_of_texts(tmp_path / "reviews.csv", 40, **{column: value})
    words = ["explain", str(table), "--text", "review", "--out", str(tmp_path / "out"), *QUICK]
    code, line = refused(capsys, tmp_path, *words, "--target", "verdict", *options)
    assert code == 1
    for one in named:
        assert one in line


def test_unknown_words_only(tmp_path, capsys):
    """Whether such a row is among those to fit on, whose words are known, depends on the seed."""
    table = table_of_texts(tmp_path / "reviews.csv", 40, review="qwertz uiop")
    words = ["explain", str(table), "--text", "review", "--target", "verdict", *QUICK]
    told = []
    for seed in range(40):
        options = parse([*words, "--out", "r", "--seed", str(seed), "--vocabulary", "12"])
        try:
            read_texts(options, torch.device("cpu"))
        except ValueError as error:
            told.append(str(error))
    assert told
    for line in told:
        assert "row 3 of column 'review' has unknown words only, such as 'qwertz'" in line
        assert "--vocabulary" in line


COLUMNS = {
    "no such text": (["--text", "reviews"], ["--text 'reviews' is no column", "mean 'review'"]),
    "no such target": (
        ["--text", "review", "--target", "verdit"],
        ["--target 'verdit' is no column", "'verdict'"],
    ),
    "numbers": (["--text", "id", "--target", "verdict"], ["'id' holds no texts: in row 0 it is 0"]),
    "many classes": (["--text", "review", "--target", "id"], ["'id' has 60 different values"]),
    "row": (["--text", "review", "--row", "60"], ["--row must be 0 to 59", "60 rows"]),
}


@over(**COLUMNS)
def test_columns(options, named, tmp_path, capsys):
    table = table_of_texts(tmp_path / "reviews.csv", 60)
    words = ["explain", str(table), "--out", str(tmp_path / "out"), *QUICK, *options]
    _, line = refused(capsys, tmp_path, *words)
    for one in named:
        assert one in line


def test_rows_with_missing_cells_are_left_out_and_counted(tmp_path):
    table = table_of_texts(tmp_path / "reviews.csv", 40, review=None)
    words = ["explain", str(table), "--text", "review", "--out", "r"]
    with pytest.warns(UserWarning, match="1 row without a text or a target: left out; --strict"):
        source = read_texts(parse(words), torch.device("cpu"))
    sizes = [len(part) for part in (source.train, source.valid, source.test)]
    assert sum(sizes) == 39
    frame = pd.read_csv(table).dropna().reset_index(drop=True)
    for number, said in zip(source.test_numbers, source.test.words, strict=True):
        assert " ".join(said) == frame["review"][number]
