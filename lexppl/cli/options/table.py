"""The options of each command: their texts as help has them, with argparse's arguments beside."""

import argparse
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lexppl.argument_checks import finite_float
from lexppl.choices.data_sets import synthetic_names
from lexppl.choices.imputers import IMPUTERS, OF_PIXELS, OF_WORDS
from lexppl.choices.methods import DEFAULT_METHOD, LIBRARIES, METHODS
from lexppl.choices.settings import GUIDES, INFERENCES, PRIOR_SCALE, SETTINGS, usual_imputer
from lexppl.cli.options.readers import (
    NONE,
    Options,
    names_of,
    number,
    options_of,
    sections,
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
GROUPS = sections(
    (Path(__file__).parent / "help" / "options.txt").read_text(encoding="utf-8"),
    methods=with_meanings({name: method.summary for name, method in METHODS.items()}, ": "),
    imputers=with_meanings(IMPUTERS),
    usual_imputer=usual_imputer(METHODS[DEFAULT_METHOD]),
    of_pixels=with_meanings(OF_PIXELS),
    of_words=with_meanings(OF_WORDS),
    inferences=with_meanings(INFERENCES),
    guides=with_meanings(GUIDES),
    prior_scale=f"{PRIOR_SCALE:g}",
    folds=FOLDS,
    replicates=REPLICATES,
    share=SHARE,
)
"""Texts of the options by group."""
FIRST_OPTIONS: Mapping[str, str | None] = {
    flag: option["help"] or None for flag, option in options_of(GROUPS["first options"], {}).items()
}
"""Options that `lexppl explain --help` lists, some with shorter texts."""
REQUIRED = {"required": True}
EACH = {"action": "append", "default": []}
MANY = {"action": "extend", "nargs": "+", "default": []}
ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    **{
        name: {"choices": s.choices} if s.choices else {"type": number(s.check)}
        for name, s in SETTINGS.items()
    },
    "imputer": {"choices": (*IMPUTERS, *OF_PIXELS, *OF_WORDS)},
    "seed": {"type": whole(0), "default": 0},
    "device": {"default": "cpu"},
    "debug": {"action": "store_true", "help": argparse.SUPPRESS},
    "method": {"choices": METHODS, "default": DEFAULT_METHOD},
    "methods": {
        "required": True,
        # A view: methods may be registered later.
        "type": partial(
            names_of,
            item="a method",
            known=ChainMap(dict.fromkeys(LIBRARIES), METHODS),  # type: ignore[arg-type]
        ),
    },
    "set": {"choices": synthetic_names()},
    "with": {"dest": "explainer"},
    **dict.fromkeys(("drop", "keep", "include", "refits"), MANY),
    **dict.fromkeys(("categorical", "missing"), EACH),
    "separator": {"type": str},
    "column_names": {"type": several(str)},
    "rows": {"type": whole(10)},
    "inference": {"choices": tuple(INFERENCES)},
    "guide": {"choices": tuple(GUIDES)},
    "prior": {"type": number(partial(finite_float, above=0.0))},
    "old": REQUIRED,
    "new": REQUIRED,
    "black_box_input": {"default": "table"},
    "row": {"type": whole(0), **EACH},
    "guarantee": {"type": share("the draws")},
    "fdr": {"type": share("the features found"), "default": FDR},
    "fwer": {"type": share("the tables")},
    "sizes": {"type": several(whole(1))},
    "rates": {"type": several(share("the features"))},
    "draws": {"type": whole(2), "default": 100},
    "valid_share": {"type": share("the rows")},
    "test_share": {"type": share("the rows"), "default": SHARE},
}
"""Further arguments of argparse's `add_argument`, by the option's name."""


def _options(*groups: str, usual: Mapping[str, object] = NONE, **more: Any) -> Options:
    """Options of some groups, with defaults in words, and defaults or other arguments of some."""
    changed = {name: {**ARGUMENTS.get(name, NONE), **of} for name, of in more.items()}
    arguments = {**ARGUMENTS, **changed}
    options: Options = {}
    for group in groups:
        options |= options_of(GROUPS[group], arguments, usual)
    return options


@dataclass(frozen=True)
class Command:
    """A command: usage, and options by the title of their group."""

    usage: str
    options: Mapping[str, Options]


COMMANDS: Mapping[str, Command] = {
    "explain": Command(
        "DATA --out DIR",
        {
            "": _options("explain", out=REQUIRED),
            "the table": _options("the table", "missing values"),
            "images and texts": _options("images", "texts"),
            "the explainer": _options("the explainer"),
            "a posterior of the weights, for lex": _options("a posterior of the weights"),
            "explaining a model of yours (a black box)": _options("a black box"),
            "the fit": _options(
                "the fit",
                "rows held out by explain",
                usual={"valid_share": "none, as a replicate leaves out each row"},
                test_share={"default": None},
            ),
            "what is found": _options("what is found"),
            "long runs": _options("long runs"),
            "the output": _options("the output", "progress"),
        },
    ),
    "evaluate": Command(
        "SET",
        {
            "": _options("evaluate", "figures in a file", rows={"default": 10_000}),
            "the explainer": _options(
                "the evaluated explainer", usual=EVALUATED_BY, replicates={"default": 1}
            ),
            "the fit": _options(
                "the fit", usual={**EVALUATED_BY, "valid_share": 0.1}, valid_share={"default": 0.1}
            ),
            "the output": _options("the output", "progress"),
        },
    ),
    "compare": Command(
        "DATA --methods A,B,…",
        {
            "": _options("compare", "figures in a file", "progress"),
            "the table": _options("the table"),
            "the methods": _options("the compared methods", replicates={"default": 1}),
            "the fit": _options(
                "the fit", "rows held out by compare", valid_share={"default": SHARE}
            ),
        },
    ),
    "change": Command(
        "DATA --old FILE --new FILE --refits FILE …",
        {
            "": _options("change", "figures in a file", "progress"),
            "the table": _options("the table"),
            "the fits": _options("the seed"),
        },
    ),
    "impute": Command(
        "DATA",
        {
            "": _options("impute", "figures in a file", "progress"),
            "the table": _options("the table"),
            "images": _options("images"),
            "the imputers": _options(
                "the imputers", "the seed", "rows held out by impute", draws={"default": 50}
            ),
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
