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
from lexppl.choices.settings import GUIDES, INFERENCES, PRIOR_SCALE, usual_imputer
from lexppl.cli.options.readers import (
    Options,
    names_of,
    number,
    options_of,
    sections,
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
FOLDS, OF_IMAGES, OF_TEXTS = 5, 2, 4
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
    inferences=with_meanings(INFERENCES),
    guides=with_meanings(GUIDES),
    prior_scale=f"{PRIOR_SCALE:g}",
)
"""Texts of the options by group."""
FIRST_OPTIONS: Mapping[str, str | None] = {
    flag: option["help"] or None for flag, option in options_of(GROUPS["first options"]).items()
}
"""Options that `lexppl explain --help` lists, some with shorter texts."""


def _options(group: str, **arguments: Mapping[str, Any]) -> Options:
    return options_of(GROUPS[group], **arguments)


def _settings(defaults: Mapping[str, object], **arguments: Mapping[str, Any]) -> Options:
    return settings_of(GROUPS["settings of a fit"], defaults, **arguments)


EACH = {"action": "append", "default": []}
MANY = {"action": "extend", "nargs": "+", "default": []}
WHOLE = {"type": whole(1)}
OUT_FILE = _options("figures in a file")
QUIET = _options("progress") | {"--debug": {"action": "store_true", "help": argparse.SUPPRESS}}
SEED = _settings({"seed": None}, seed={"default": 0}) | _options(
    "the device", device={"default": "cpu"}
)
TABLE = _options(
    "the table",
    drop=MANY,
    keep=MANY,
    include=MANY,
    categorical=EACH,
    missing=EACH,
    separator={"type": str},
    column_names={"type": several(str)},
)
PICTURES = _options("images", rows={"type": whole(10)})
OUTPUT = _options("draws", draws={"type": whole(2), "default": 100}) | _options("lines") | QUIET
EXPLAINER = _options(
    "the explainer", method={"choices": METHODS, "default": DEFAULT_METHOD}
) | _settings(
    {
        "k": "",
        "penalty": None,
        "imputer": "",
        "predictor": None,
        "replicates": f"{FOLDS}, of images {OF_IMAGES}, of texts {OF_TEXTS}",
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
    return _settings({name: defaults.get(name) for name in names}) | valid | SEED | test


@dataclass(frozen=True)
class Command:
    """A command: usage, and options by the title of their group."""

    usage: str
    options: Mapping[str, Options]


COMMANDS: Mapping[str, Command] = {
    "explain": Command(
        "DATA --out DIR",
        {
            "": _options("explain", out={"required": True}, **{"with": {"dest": "explainer"}}),
            "the table": TABLE | _options("missing values"),
            "images and texts": PICTURES | _options("texts"),
            "the explainer": EXPLAINER,
            "a posterior of the weights, for lex": _options(
                "a posterior of the weights",
                inference={"choices": tuple(INFERENCES)},
                guide={"choices": tuple(GUIDES)},
                prior={"type": number(partial(finite_float, above=0.0))},
            ),
            "explaining a model of yours (a black box)": _options(
                "a black box", black_box_input={"default": "table"}
            )
            | _settings({"regime": None}),
            "the fit": _fit(*_shares(None, "held out, scored and explained")),
            "what is found": _options(
                "what is found",
                row={"type": whole(0), **EACH},
                guarantee={"type": share("the draws")},
                fdr={"type": share("the features found"), "default": FDR},
                fwer={"type": share("the tables")},
            ),
            "long runs": _options("long runs"),
            "the output": OUTPUT,
        },
    ),
    "evaluate": Command(
        "SET",
        {
            "": _options(
                "evaluate",
                set={"choices": synthetic_names()},
                rows={"type": whole(10), "default": 10_000},
            )
            | OUT_FILE,
            "the explainer": _settings(
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
            "": _options(
                "compare",
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
            "the methods": _options(
                "the compared methods",
                k=WHOLE,
                sizes={"type": several(whole(1))},
                replicates={"default": 1},
            ),
            "the fit": _fit(*_shares(SHARE, "held out and judged")),
        },
    ),
    "change": Command(
        "DATA --old FILE --new FILE --refits FILE …",
        {
            "": _options(
                "change",
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
            "": _options("impute") | OUT_FILE | QUIET,
            "the table": TABLE,
            "images": PICTURES,
            "the imputers": _options(
                "the imputers",
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
