"""The options of each command: their texts as help has them, with argparse's arguments beside."""

import argparse
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from lexppl.argument_checks import finite_float
from lexppl.choices.data_sets import synthetic_names
from lexppl.choices.imputers import IMPUTERS, OF_PIXELS, OF_WORDS
from lexppl.choices.methods import DEFAULT_METHOD, LIBRARIES, METHODS
from lexppl.choices.settings import GUIDES, INFERENCES, PRIOR_SCALE, SETTINGS, usual_imputer
from lexppl.cli.options.readers import (
    Options,
    names_of,
    number,
    options_of,
    settings_of,
    several,
    share,
    whole,
    with_meanings,
)

EVALUATED_BY: Mapping[str, Any] = {
    "epochs": 300,
    "batch_size": 1000,
    "penalty": 0.0225,
    "imputer": "gaussian",
}
"""The fit of `lexppl evaluate` by default; the penalty in nats an entry."""
FOLDS, REPLICATES = 5, 2
"""Replicates of `lexppl explain` by default, of tables (a fold each) and of other data."""
SHARE, FDR = 0.2, 0.1
"""Share of rows to judge and false discovery rate of `lexppl explain` by default."""

ROWS, FILE, COLUMNS, TABLES = "rows", "file", "columns", "tables"
IMAGES, TEXTS, BOTH = "images", "texts", "images and texts"
KINDS: Mapping[str, str] = {
    ROWS: "--target --drop-missing --strict",
    FILE: "--separator --decimal --encoding --column-names --missing",
    COLUMNS: "--task --drop --keep --categorical --hide-missing --missing-indicator "
    "--drop-constant --rare --dates --include",
    TABLES: "--predictor --regime --black-box --max-calls --cache --inference --guide --prior "
    "--fwer --guarantee --groups --group --time",
    IMAGES: "--patches --size --grayscale --networks --download",
    TEXTS: "--vocabulary --length --keep-words",
    BOTH: "--root --rows",
}
"""Options that are not for DATA of every kind. ROWS and FILE: of tables and of columns of texts;
COLUMNS: of the other columns of a table."""
INSTEAD = (
    ("--drop-missing", "--hide-missing"),
    ("--k", "--penalty"),
    ("--inference", "--guide"),
    ("--checkpoint", "--resume"),
)
"""Options of which one alone may be typed."""
FIRST_OPTIONS: Mapping[str, str | None] = {
    **dict.fromkeys(("DATA", "--help", "--help-all", "--out", "--overwrite", "--target")),
    "--with": "explain new rows by the explainer of an earlier run, without a fit",
    "--method": "the method (default: lex); --help-all lists all",
    **dict.fromkeys(("--penalty", "--trust-black-box", "--seed", "--fdr")),
    "--black-box": "explain this fitted model, an .onnx, joblib or pickle file; LOADING A "
    "PICKLE RUNS THE CODE IN IT: give only files that you trust",
    "--k": SETTINGS["k"].text,
    "--row": "explain this row step by step, counted from 0 (repeat for more)",
    "--groups": "features that are judged together: a JSON file of names and columns",
    "--group": "rows with the same cell here, such as a patient's, stay in one fold",
    "--time": "the folds follow each other by this column of numbers or dates",
}
"""Options that `lexppl explain --help` lists, some with shorter texts."""
EACH = {"action": "append", "default": []}
MANY = {"action": "extend", "nargs": "+", "default": []}
WHOLE = {"type": whole(1)}
OUT_FILE = options_of("""
--out FILE  write the figures as JSON too
--overwrite  replace FILE""")
QUIET = options_of("--quiet  show no progress") | {
    "--debug": {"action": "store_true", "help": argparse.SUPPRESS}
}
SEED = settings_of({"seed": None}, seed={"default": 0}) | options_of(
    "--device  cpu, cuda, cuda:1, mps … (default: cpu)", device={"default": "cpu"}
)
TABLE = options_of(
    """
--target COLUMN  column to predict (default: the last)
--task  default: by the target; words and few different whole numbers are classes
--drop COLUMN  columns to leave out, such as an identifier
--keep COLUMN  the only columns to read beside the target
--include COLUMN  columns to read though they number the rows, or have as many levels as
    identifiers and free text (else left out)
--strict  refuse a table for which the first lines would name a decision
--categorical COLUMN  a column of numbers that are codes (repeat for more)
--drop-constant  drop constant columns, as is done without --strict
--rare N  pool the levels of a column that fewer than N rows to fit on have into one, which stands
    for unseen levels too (default: none, but 10 where a column has too many)
--dates  how 03/04/2026 is meant, where no date of its column settles it
--missing CELL  a cell that means "missing", such as "?" (repeat for more). Empty cells do, and NA,
    None and the like in columns of numbers; in columns of words these are levels, with a warning.
    After --missing "" only the cells that are given do
--drop-missing  drop rows with missing values, as is done where they cannot be hidden
--separator C  between cells, tab or space too (default: found out; tab in .tsv)
--decimal  before the decimals of numbers (default: .)
--encoding NAME  of the letters of a text file, such as cp1252 (default: by its byte-order mark,
    else utf-8)
--column-names A,B,…  for a file whose first line is data already""",
    task={"choices": ("classification", "regression")},
    drop=MANY,
    keep=MANY,
    include=MANY,
    categorical=EACH,
    rare=WHOLE,
    dates={"choices": ("dayfirst", "monthfirst")},
    missing=EACH,
    decimal={"choices": (".", ",")},
    column_names={"type": several(str)},
)
HIDDEN = options_of("""
--hide-missing  keep rows with missing values: such a value is hidden from the explainer, which
    draws it as it draws what a mask hides, and can never be kept; for lex, real_x, base_x and
    rationale (default there)
--missing-indicator  the same, with a feature of its own for each column with missing values, that
    says where it is missing""")
PICTURES = options_of(
    """
--root DIR  the folder with the files of a set by name, such as mnist
--download  let torchvision put files of images that are not there into --root
--patches P  keep or hide patches of P × P pixels (default: 4)
--size S  of a folder: bring every image to S × S pixels
--grayscale  of a folder: read images in shades of grey
--rows N  images or texts to fit on, at most, at random, and as many to choose the best epoch on and
    to judge (default: 2000)""",
    patches=WHOLE,
    size=WHOLE,
    rows={"type": whole(10)},
)
TEXT_OPTIONS = options_of(
    """
--networks  of images: a U-Net and a convolutional network, which finds things wherever they stand,
    or perceptrons of the pixels, which are faster (default: convolutional)
--text COLUMN  DATA is a table with a column of texts: explain by their words; the other columns but
    the target are not read
--vocabulary V  words that are known, the most frequent of the texts to fit on (default: 10000)
--length T  most words of a text (default: those of the longest, and at most 400)
--keep-words  of a longer text, keep its first or its last T words (default: refuse it; of imdb the
    end)""",
    networks={"choices": ("flat", "convolutional")},
    vocabulary=WHOLE,
    length=WHOLE,
    keep_words={"choices": ("start", "end")},
)
POSTERIOR = options_of(
    f"""
--inference NAME  sample the weights of a linear selector and predictor, given all rows that are not
    held out; --replicates are its chains: {with_meanings(INFERENCES)} (default: fit them)
--guide NAME  fit a posterior of a linear selector's weights, and a predictor along with it:
    {with_meanings(GUIDES)}
--prior SCALE  standard deviation of the weights' normal prior, features being standardised
    (default: {PRIOR_SCALE:g})""",
    inference={"choices": tuple(INFERENCES)},
    guide={"choices": tuple(GUIDES)},
    prior={"type": number(partial(finite_float, above=0.0))},
)
BLACK_BOX = options_of(
    """
--black-box FILE  explain this fitted model: ONNX in a file model.onnx; or a scikit-learn classifier
    or regressor, boosted trees or a torch module in a joblib or pickle file. LOADING SUCH A PICKLE
    RUNS THE CODE IN IT: give only files from sources that you trust, and --trust-black-box
--trust-black-box  yes, run the code in the black box's file
--black-box-input  what it was fitted on: the table's own columns, or the standardised and one-hot
    features of lexppl.data (table)
--black-box-output  what a torch module or an ONNX file returns
--black-box-rows N  rows of a call (default: 4096)
--max-calls N  most rows that the black box is sent, at random; only these are explained
--cache DIR  keep each of its answers in DIR as it comes, so that a run that was stopped pays for no
    row twice""",
    black_box_rows=WHOLE,
    max_calls=WHOLE,
    black_box_input={"choices": ("table", "encoded"), "default": "table"},
    black_box_output={"choices": ("logits", "probabilities", "response")},
)
FOUND = options_of(
    """
--row N  explain this row of the table feature by feature, counted from 0 after rows that are
    dropped, as in report.html and posterior.nc; of images, and of texts of a set by name, among
    those held out (repeat for more; default: three held-out rows)
--guarantee LEVEL  certify the features of each held-out row that are enough for its prediction, at
    this confidence, such as 0.9: certified.csv
--fdr RATE  false discovery rate: of the groups and features that are called found, at most this
    share is expected to say nothing of the target (default: 0.1)
--fwer RATE  family-wise error rate in its place: the probability that anything is called found that
    says nothing
--groups auto|none|FILE  features that are judged together: those that depend on each other, none,
    or those of a JSON file, {"size": ["width", "height"], …} (default: auto)
--group COLUMN  rows with the same cell here, such as a patient's, stay in one fold, and count as
    one in the errors of gains; no feature
--time COLUMN  the folds follow each other by this column of numbers or dates, rows of one time in
    one fold; no feature""",
    row={"type": whole(0), **EACH},
    guarantee={"type": share("the draws")},
    fdr={"type": share("the features found"), "default": FDR},
    fwer={"type": share("the tables")},
)
LONG_RUNS = options_of("""
--checkpoint DIR  keep the state of each fit in DIR, written each minute: after a stop of whatever
    kind the same command goes on from there, and its numbers are those of a run that was never
    stopped. DIR is yours to remove
--resume DIR  the same, where DIR must have the state of an earlier run of this command (with
    --overwrite where that run has written to --out)""")
OUTPUT = (
    options_of(
        "--draws D  mask draws a row (default: 100)", draws={"type": whole(2), "default": 100}
    )
    | options_of("""
--epoch-lines  write a line for each epoch to standard error, as for a log; else there is a bar on a
    terminal, and nothing without one""")
    | QUIET
)
EXPLAINER = options_of(
    f"""
--method NAME  {with_meanings({name: method.summary for name, method in METHODS.items()}, ": ")}
    (default: lex)""",
    method={"choices": METHODS, "default": DEFAULT_METHOD},
) | settings_of(
    {
        "k": "",
        "penalty": None,
        "imputer": "",
        "predictor": None,
        "replicates": f"{FOLDS}, of images and texts {REPLICATES}",
    },
    k={"more": " (default, for methods that need a number: a quarter of all)"},
    imputer={
        "choices": (*IMPUTERS, *OF_PIXELS, *OF_WORDS),
        "more": f" (default: {usual_imputer(METHODS[DEFAULT_METHOD])}, and constant for methods of "
        f"one imputation). Of images also {with_meanings(OF_PIXELS)}. Of texts "
        f"{with_meanings(OF_WORDS)} (default: padding)",
    },
    replicates={
        "more": "; of a table each leaves a part of the rows out, which it then explains, where no "
        "share is held out from all"
    },
)


def _shares(kept: float | None, tested: str = "") -> tuple[Options, Options]:
    """Options of the validation and the test share; `tested` names the use of the latter."""
    none = "none, as a replicate leaves out each row"
    rows, default = {"type": share("the rows")}, None if kept is None else SHARE
    valid = options_of(
        "--valid-share SHARE  share of rows on which the best epoch is chosen (default: "
        f"{none if kept is None else kept})",
        valid_share={**rows, "default": kept},
    )
    test = options_of(
        f"--test-share SHARE  share of rows {tested} (default: {default or none})",
        test_share={**rows, "default": default},
    )
    return valid, test if tested else {}


def _fit(valid: Options, test: Options, **defaults: object) -> Options:
    """Options of a fit's length, steps and rows."""
    names = ("epochs", "masks", "imputations", "folds", "batch_size", "learning_rate")
    return settings_of({name: defaults.get(name) for name in names}) | valid | SEED | test


@dataclass(frozen=True)
class Command:
    """A command: usage, and options by the title of their group."""

    usage: str
    options: Mapping[str, Options]


COMMANDS: Mapping[str, Command] = {
    "explain": Command(
        "DATA --out DIR",
        {
            "": options_of(
                """
DATA  a data set's name, a table: .csv, .tsv (also .gz), .parquet or .xlsx, or a folder that has a
    folder of images for each class
--out DIR  folder to write to
--overwrite  replace what an earlier run left in DIR
--with DIR  explain the rows of the file DATA by the explainer of an earlier run, without a fit:
    importance.csv, and rows.csv of all rows, or step by step of those of --row""",
                out={"required": True},
                **{"with": {"dest": "explainer"}},
            ),
            "the table": TABLE | HIDDEN,
            "images and texts": PICTURES | TEXT_OPTIONS,
            "the explainer": EXPLAINER,
            "a posterior of the weights, for lex": POSTERIOR,
            "explaining a model of yours (a black box)": BLACK_BOX | settings_of({"regime": None}),
            "the fit": _fit(*_shares(None, "held out, scored and explained")),
            "what is found": FOUND,
            "long runs": LONG_RUNS,
            "the output": OUTPUT,
        },
    ),
    "evaluate": Command(
        "SET",
        {
            "": {"SET": {"help": "see below", "choices": synthetic_names()}}
            | options_of(
                "--rows  rows to fit on, as many to test on (default: 10000)",
                rows={"type": whole(10), "default": 10_000},
            )
            | OUT_FILE,
            "the explainer": settings_of(
                {
                    "k": None,
                    "penalty": EVALUATED_BY["penalty"],
                    "imputer": EVALUATED_BY["imputer"],
                    "replicates": 1,
                },
                replicates={"default": 1},
            ),
            "the fit": _fit(*_shares(0.1), **EVALUATED_BY),
            "the output": OUTPUT,
        },
    ),
    "compare": Command(
        "DATA --methods A,B,…",
        {
            "": options_of(
                """
DATA  as in explain: a name or a table
--methods A,B,…  see below""",
                methods={
                    "required": True,
                    "type": partial(
                        names_of,
                        one="a method",
                        # A view: methods may be registered later.
                        known=ChainMap(dict.fromkeys(LIBRARIES), METHODS),  # type: ignore[arg-type]
                    ),
                },
            )
            | OUT_FILE
            | QUIET,
            "the table": TABLE,
            "the methods": options_of(
                """
--k  features that a row keeps, for methods that take a number of them (default: a quarter of all,
    rounded up; lex: as many as pay)
--sizes K,L,…  numbers of features by which rankings are judged (default: 1,3,5)
--replicates R  fits of each method from different seeds, averaged (default: 1)
--leaks  also how much each method's choice of features encodes of the answer, beyond their values:
    networks are fitted for each method and each of --sizes""",
                k=WHOLE,
                sizes={"type": several(whole(1))},
                replicates={**WHOLE, "default": 1},
            ),
            "the fit": _fit(*_shares(SHARE, "held out and judged")),
        },
    ),
    "change": Command(
        "DATA --old FILE --new FILE --refits FILE …",
        {
            "": options_of(
                """
DATA  rows that none of the models was fitted on: a name or a table
--old FILE  a fitted model: ONNX, or a joblib or pickle file, as --black-box of explain
--new FILE  the other model
--refits FILE  the old model fitted again, five times or more, from other seeds or rows drawn with
    replacement: what their differences depend on is no change
--trust-black-box  yes, run the code in the files of the models
--fdr RATE  false discovery rate of the columns that are found (default: 0.1)""",
                old={"required": True},
                new={"required": True},
                refits=MANY,
                fdr={"type": share("the features found"), "default": FDR},
            )
            | OUT_FILE
            | QUIET,
            "the table": TABLE,
            "the fits": SEED,
        },
    ),
    "impute": Command(
        "DATA",
        {
            "": options_of("DATA  as in explain: a name or a table") | OUT_FILE | QUIET,
            "the table": TABLE,
            "images": PICTURES,
            "the imputers": options_of(
                """
--imputers A,B,…  see below (default: all but those that take longer)
--rates RATE,…  shares of the features that are hidden (default: 0.1,0.3,0.5,0.7,0.9)
--draws D  draws of each row and rate (default: 50)""",
                rates={"type": several(share("the features"))},
                draws={"type": whole(2), "default": 50},
            )
            | SEED
            | _shares(SHARE, "held out and scored")[1],
        },
    ),
}


def typed_of(options: argparse.Namespace, *kinds: str) -> list[str]:
    """Flags of some kinds that were typed."""
    flags = [flag for kind in kinds for flag in KINDS[kind].split()]
    return [flag for flag in flags if value_of(options, flag) not in (None, False, [])]


def value_of(options: argparse.Namespace, flag: str) -> Any:
    """Value of an option by its flag; None if the command lacks it."""
    return getattr(options, name_of(flag), None)


def name_of(flag: str) -> str:
    """Name of an option's value by its flag."""
    return flag.strip("-").replace("-", "_")
