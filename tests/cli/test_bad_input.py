"""Every mistake gets one line that names it, an exit code, and leaves nothing behind."""

import os
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from lexppl.cli import main
from lexppl.cli.image_text_rows import read_texts
from lexppl.cli.program import parse
from tests import needs
from tests.cli.shaped import folder_of_images, table_of_texts
from tests.cli.tables import cases, people, written
from tests.refusals import over

QUICK = ["--epochs", "2", "--replicates", "2", "--draws", "5", "--quiet"]


def refused(capsys, folder: Path, *words: str) -> tuple[int, str]:
    """Run a command that must fail: its exit code and its one line; of a table with several
    things wrong there is one more for each."""
    before = sorted(folder.rglob("*"))
    code = main(list(words))
    captured = capsys.readouterr()
    assert captured.out == ""
    first, *more = captured.err.splitlines()
    assert first.startswith("lexppl: error: ")
    assert all(line.startswith(("  - ", "all at once: --")) for line in more), captured.err
    assert bool(more) == first.endswith("problems:"), captured.err
    assert "Traceback" not in captured.err
    assert sorted(folder.rglob("*")) == before
    return code, "\n".join([first, *more])


def changed(**columns) -> pd.DataFrame:
    frame = people()
    for name, values in columns.items():
        frame[name] = values
    return frame


def with_cell(column: str, value: object) -> pd.DataFrame:
    frame = people()
    frame[column] = frame[column].astype(object)
    frame.loc[3, column] = value
    return frame


TABLES = {
    "missing": (with_cell("height", None), ["--strict"], ["'height' (1)", "give --drop-missing"]),
    "missing sign": (with_cell("height", "?"), ["--missing", "?", "--strict"], ["'height' (1)"]),
    "infinite": (with_cell("height", np.inf), [], ["'height'", "infinite"]),
    "no rows": (people().iloc[:0], [], ["empty"]),
    "one row": (people().iloc[:1], [], ["no column is left", "all are constant"]),
    "no target": (people(), ["--target", "incom"], ["'incom'", "did you mean 'income'?"]),
    "constant": (changed(height=170.0), ["--strict"], ["'height'", "--drop-constant"]),
    "one class": (changed(income="low"), [], ["'income'", "one class only", "'low'"]),
    "constant response": (
        changed(income=1.5),
        ["--task", "regression"],
        ["'income' is constant"],
    ),
    "words for numbers": (people(), ["--task", "regression"], ["'income' must hold numbers"]),
    "k too large": (people(), ["--k", "5"], ["--k must be a whole number from 1 to 4", "it is 5"]),
    "few rows": (people(8), ["--test-share", "0.01"], ["each part needs a row", "--test-share"]),
    "unknown categorical": (people(), ["--categorical", "sex"], ["'sex'"]),
}


@over(**TABLES)
def test_table(frame, options, named, tmp_path, capsys):
    path = written(frame, tmp_path)
    out = str(tmp_path / "results")
    code, line = refused(capsys, tmp_path, "explain", str(path), "--out", out, *QUICK, *options)
    assert code == 1
    for words in named:
        assert words in line


USAGE = cases("""
 => COMMAND
explian => explian | did you mean 'explain'?
expain t.csv --out r => did you mean 'explain'?
--out r explain wine => there is no option --out; lexppl explain has it
explain wine iris --out r => more words than are read | iris
explain my table.csv --out r => more words than are read | quotes | table.csv
explain wine --out r --tagret y => there is no option --tagret; did you mean '--target'
explain wine --otu r => there is no option --otu; did you mean '--out'
explain wine --out r -k 3 => there is no option -k; did you mean '--k'?
explain wine --out r --TARGET y => did you mean '--target'
explain wine --out r --xyz => there is no option --xyz (see lexppl explain --help)
explain wine --out r --sizes 1 => there is no option --sizes | did you mean '--size'
explain wine --out r --rates 0.5 => there is no option --rates
evaluate S3 --target y => there is no option --target; lexppl explain has it
compare wine --method lex => did you mean '--methods'?
compare wine --methods lex invase => more words than are read | lists take commas | invase
explain wine --out r --task classify => did you mean 'classification'?
explain wine --strict --out r => wine is a data set that comes along, and --strict is for tables
evaluate s3 => did you mean 'S3'?
explain brest_cancer --out r => did you mean 'breast_cancer'?
explain nothing --out r => the sets that come along are 'breast_cancer'
explain wine => --out
explain wine --out r --penalti 1 => --penalti
explain wine --out r --pen 1 => --pen
explain wine --out r --k 0 => --k | at least 1 | it is 0
explain wine --out r --k 1.5 => --k | whole number
explain wine --out r --k 2 --penalty 1 => --penalty | --k
explain wine --out r --penalty=-1 => --penalty | -1
explain wine --out r --penalty inf => --penalty
explain wine --out r --epochs 0 => --epochs | at least 1
explain wine --out r --masks 1 => --masks | at least 2
explain wine --out r --learning-rate 0 => above 0
explain wine --out r --test-share 1 => --test-share
explain wine --out r --test-share 0.6 --valid-share 0.5 => --valid-share and --test-share
explain wine --out r --imputer mice => mice | marginal
explain wine --out r --seed -1 => --seed
explain wine --out r --prior 2 => --prior | --inference or --guide
explain wine --out r --guide normal --prior 0 => --prior | above 0
explain wine --out r --inference nust => nuts
explain wine --out r --inference nuts --guide normal => --guide | --inference
explain wine --out r --inference nuts --method l2x => --inference nuts | l2x | --method lex
explain wine --out r --guide normal --black-box m.joblib => --guide normal | --black-box
explain wine --out r --guide normal --penalty auto => --guide normal | nats
explain wine --out r --inference sghmc --epochs 3 => --epochs | --inference sghmc
explain wine --out r --inference nuts --imputer marginal => --imputer constant
explain wein --out r => 'wein' | did you mean 'wine'?
explain no/such.csv --out r => no file 'no/such.csv'
explain wine --out r --target hue => --target | ./wine
explain wine --out r --device abacus => --device abacus
explain wine --out r --device meta => --device meta
explain wine --out r --regime surrogate-post-hoc => surrogate-post-hoc | --black-box
explain wine --out r --regime free-in-situ --black-box m => free-in-situ | --black-box
evaluate wine => wine | 'S3'
evaluate S3 --rows 1 => --rows | at least 10
explain wine --out r --method invse => invalid choice: 'invse'; did you mean 'invase'?
explain wine --out r --method real_x --k 3 => real_x has no --k: leave --k=3 out
explain wine --out r --method l2x --folds 2 => l2x has no --folds: leave --folds=2 out
explain wine --out r --method senn --penalty 1 => senn has no --penalty
explain wine --out r --method q_fit --imputer marginal => leave --imputer='marginal' out
explain wine --out r --method real_x --masks 8 => real_x has no --masks
explain wine --out r --method real_x --regime self-post-hoc => real_x has no --regime
compare wine --methods lex,foo --out f.json => foo given; the names are 'base_x', 'fastshap'
compare wine --methods lex,invse => invse given; did you mean 'invase'?
compare wine --methods , => none given
compare wine --methods lex,lex => names a method twice: lex,lex
compare wine --methods lex --sizes 1,x => must be a whole number of at least 1; it is 'x'
compare wine => the following arguments are required: --methods
impute wine --imputers mice => mice given; the names are 'marginal'
impute wine --imputers , => none given
impute wine --imputers gaussian,gaussian => names an imputer twice
impute wine --rates 0.5,2 => must be a share of the features in (0, 1); it is 2
impute wine --rates half => must be a share of the features
impute wine --draws 1 => at least 2
impute wine --hide-missing => there is no option --hide-missing; did you mean '--drop-missing'
impute vine => did you mean 'wine'?
""")


@over(**USAGE)
def test_usage(words, named, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, line = refused(capsys, tmp_path, *words)
    assert code == 2
    for one in named:
        assert one in line


BY_DATA = cases("""
evaluate S3 --k 12 --out s.json => from 1 to 11
compare wine --methods lex --k 14 --out f.json => k must be a whole number from 1 to 13
impute wine --test-share 0.999 => another --test-share
""")


@over(**BY_DATA)
def test_what_the_data_cannot_serve(words, named, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, line = refused(capsys, tmp_path, *words, "--quiet")
    assert code == 1 and named[0] in line


@pytest.mark.smoke
def test_output_is_refused_before_any_work(tmp_path, monkeypatch, capsys):
    def work(*_):
        raise AssertionError("work began")

    monkeypatch.setattr("lexppl.cli.explain_table.read_source", work)
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "report.html").write_text("")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.txt").write_text("")
    for out, named in (
        ("file", "is a file"),
        ("file/below", "file"),
        ("full", "not empty; give --overwrite"),
    ):
        code, line = refused(capsys, tmp_path, "explain", "wine", "--out", str(tmp_path / out))
        assert code == 1 and named in line
    code, line = refused(
        capsys, tmp_path, "explain", "wine", "--overwrite", "--out", str(tmp_path / "foreign")
    )
    assert code == 1 and "'thesis.txt'" in line


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write in every folder"
)
def test_folder_without_permission(tmp_path, capsys):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    code, line = refused(capsys, tmp_path, "explain", "wine", "--out", str(closed / "results"))
    assert code == 1 and "Permission denied" in line


def test_folder_that_cannot_be_made(tmp_path, monkeypatch, capsys):
    def denied(self, *_, **__):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", denied)
    code, line = refused(capsys, tmp_path, "explain", "wine", "--out", str(tmp_path / "results"))
    assert code == 1 and "Permission denied" in line and "results" in line


def black_box(folder: Path, model: object) -> list[str]:
    path = folder / "model.joblib"
    joblib.dump(model, path)
    return ["--black-box", str(path), "--trust-black-box"]


def test_black_box_needs_trust(tmp_path, capsys):
    ran = tmp_path / "ran"

    class Mischief:
        def __reduce__(self):
            return Path.touch, (ran,)

    words = black_box(tmp_path, Mischief())
    out = ["--out", str(tmp_path / "results")]
    code, line = refused(capsys, tmp_path, "explain", "wine", *out, *words[:2])
    assert code == 2
    assert "runs the code in it" in line and "--trust-black-box" in line
    assert not ran.exists()


def test_black_box_that_does_not_fit(tmp_path, capsys):
    frame = people()
    path = str(written(frame, tmp_path))
    x, y = frame[["age", "height"]], frame["income"]
    strange = y.map({"high": "rich", "low": "poor"})
    models = {
        "fitted on 3 features; the table has 4": LogisticRegression().fit(np.c_[x, x.age], y),
        "columns that the table lacks: 'weight'": LogisticRegression().fit(
            x.assign(weight=x.age), y
        ),
        "must have labels among ['high', 'low']": LogisticRegression().fit(x, strange),
        "not fitted": LogisticRegression(),
        "predict_proba": LinearSVC().fit(x, y),
        "must be an nn.Module": {"a": 1},
    }
    for named, model in models.items():
        words = ["--out", str(tmp_path / "results"), *QUICK, *black_box(tmp_path, model)]
        code, line = refused(capsys, tmp_path, "explain", path, *words)
        assert code == 1
        assert named in line


def test_black_box_file_that_is_none(tmp_path, capsys):
    (tmp_path / "model.joblib").write_text("hello")
    words = ["--black-box", str(tmp_path / "model.joblib"), "--trust-black-box"]
    out = ["--out", str(tmp_path / "results")]
    code, line = refused(capsys, tmp_path, "explain", "wine", *out, *words)
    assert code == 1 and "cannot be loaded" in line and "model.joblib" in line
    words[1] += ".gone"
    code, line = refused(capsys, tmp_path, "explain", "wine", *out, *words)
    assert code == 1 and "there is no black box file" in line
    torch.save(torch.nn.Linear(2, 2).state_dict(), tmp_path / "model.pt")
    words[1] = str(tmp_path / "model.pt")
    code, line = refused(capsys, tmp_path, "explain", "wine", *out, *words)
    assert code == 1 and "a state_dict" in line and "torch.jit.script" in line


def test_onnx_needs_no_trust_and_calls_stay_within_their_number(tmp_path, capsys):
    converter = pytest.importorskip("skl2onnx")
    pytest.importorskip("onnxruntime")
    frame = people()
    path = str(written(frame[["age", "height", "income"]], tmp_path))
    model = LogisticRegression().fit(frame[["age", "height"]].to_numpy(), frame["income"])
    made = converter.to_onnx(model, np.float32([[40, 170]]))
    (tmp_path / "model.onnx").write_bytes(made.SerializeToString())
    (tmp_path / "none.onnx").write_text("hello")
    out = ["--out", str(tmp_path / "r"), *QUICK]
    words = ["--black-box", str(tmp_path / "none.onnx")]
    code, line = refused(capsys, tmp_path, "explain", path, *out, *words)
    assert code == 1 and "none.onnx is no ONNX model that onnxruntime reads" in line
    code, line = refused(capsys, tmp_path, "explain", path, *out, "--max-calls", "9")
    assert code == 2 and "are of a --black-box" in line
    words = ["--black-box", str(tmp_path / "model.onnx"), "--max-calls", "1", "--row", "0"]
    code, line = refused(capsys, tmp_path, "explain", path, *out, *words)
    assert code == 2 and "--row 0 is not among the 1 rows of --max-calls" in line
    words[3] = "40"
    assert main(["explain", path, *out, *words[:4], "--cache", str(tmp_path / "c")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "40 rows sent to the black box in 1 call" in shown
    assert "50 rows were left out by max_calls; SHAP's permutation explainer" in shown
    page = (tmp_path / "r" / "report.html").read_text()
    assert "would send 200,000 for 40 rows" in page and "answered for 40 rows of 90" in page
    assert (
        main(["explain", path, *out, *words[:4], "--cache", str(tmp_path / "c"), "--overwrite"])
        == 0
    )
    assert "(40 more had answers)" in " ".join(capsys.readouterr().out.split())


def test_debug_shows_where(tmp_path):
    with pytest.raises(OSError, match=r"/results'"):
        main(["explain", "wine", "--out", str(Path(__file__) / "results"), "--debug"])


def test_rows_that_stay_together_need_folds(tmp_path, capsys):
    file = str(written(changed(day=range(90)), tmp_path))
    words = ["explain", file, "--target", "income", "--out", str(tmp_path / "o"), *QUICK]
    code, error = refused(capsys, tmp_path, *words, "--group", "job", "--replicates", "1")
    assert code == 2 and "--group job: of rows in folds: two --replicates or more" in error
    code, error = refused(capsys, tmp_path, *words, "--group", "job", "--time", "day")
    assert code == 2 and "--time day: give one of the two" in error


@pytest.mark.parametrize("words", ["explain", "explain --target income", "compare", "impute"])
def test_a_folder_of_tables_is_no_table(tmp_path, capsys, words):
    (tmp_path / "tables").mkdir()
    for name in ("one", "two"):
        people().to_csv(tmp_path / "tables" / f"{name}.csv", index=False)
    command, *options = words.split()
    if command == "explain":
        options += ["--out", str(tmp_path / "results")]
    if command == "compare":
        options += ["--methods", "lex"]
    code, line = refused(capsys, tmp_path, command, str(tmp_path / "tables"), *options)
    assert code == 2
    assert "tables is a folder with 'one.csv': give a file for a table" in line


# What is wrong with images and texts, or with what was typed of them, gets one line.


ONE_FIT = ["--epochs", "1", "--replicates", "1", "--draws", "5", "--quiet"]

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
"""By command line: the words of its error."""


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
    words = ["--root", "data", "--out", "results", *ONE_FIT]
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
    words = ["explain", "squares", "--out", "results", *ONE_FIT, *options]
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
    words = ["explain", str(table), "--text", "review", "--out", str(tmp_path / "out"), *ONE_FIT]
    code, line = refused(capsys, tmp_path, *words, "--target", "verdict", *options)
    assert code == 1
    for one in named:
        assert one in line


def test_unknown_words_only(tmp_path, capsys):
    """Whether such a row is among those to fit on, whose words are known, depends on the seed."""
    table = table_of_texts(tmp_path / "reviews.csv", 40, review="qwertz uiop")
    words = ["explain", str(table), "--text", "review", "--target", "verdict", *ONE_FIT]
    messages = []
    for seed in range(40):
        options = parse([*words, "--out", "r", "--seed", str(seed), "--vocabulary", "12"])
        try:
            read_texts(options, torch.device("cpu"))
        except ValueError as error:
            messages.append(str(error))
    assert messages
    for line in messages:
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
    words = ["explain", str(table), "--out", str(tmp_path / "out"), *ONE_FIT, *options]
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
    for number, said in zip(source.part_numbers[2], source.test.words, strict=True):
        assert " ".join(said) == frame["review"][number]
