"""What can be typed: commands, options, and what each means to a newcomer."""

import argparse
import sys
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NoReturn

import lexppl
from lexppl.choices.data_sets import synthetic_names
from lexppl.choices.imputers import IMPUTERS, OF_PIXELS, OF_WORDS
from lexppl.choices.methods import DEFAULT_METHOD, METHODS
from lexppl.choices.posteriors import GUIDES, INFERENCES, PRIOR_SCALE
from lexppl.choices.regimes import Regime
from lexppl.choices.settings import PREDICTORS, USUAL_PREDICTOR, usual_imputer
from lexppl.cli.options.checkpoint_options import checkpoint_options
from lexppl.cli.options.explainer_folder import check_beside
from lexppl.cli.options.fit_options import fit_options, output_options
from lexppl.cli.options.help_texts import (
    COMPARE,
    COMPARE_MORE,
    DESCRIPTION,
    EVALUATE,
    EVALUATE_MORE,
    EXPLAIN,
    EXPLAIN_MORE,
    IMPUTE,
    IMPUTE_MORE,
)
from lexppl.cli.options.image_and_text_options import (
    FDR,
    SHARE,
    TABLE,
    image_and_text_options,
    image_options,
    kind_of_data,
)
from lexppl.cli.options.table_options import table_options
from lexppl.cli.options.typed_values import (
    finite_float,
    fraction,
    int_at_least,
    penalty_or_auto,
    rates,
    sizes,
)
from lexppl.cli.terminal.errors import UsageError

EVALUATED_BY: Mapping[str, Any] = MappingProxyType(
    {"epochs": 300, "batch_size": 1000, "penalty": 0.0225, "imputer": "gaussian"}
)
"""The fit of `lexppl evaluate` where nothing else is typed; the penalty in nats for each entry."""

BY_ROWS, WIDTH = "by the number of rows", 98
FOLDS, REPLICATES = 5, 4
"""Replicates of `lexppl explain`, of tables, where each is held out by one of them, and else."""


FIRST_OPTIONS: Mapping[str, str | None] = MappingProxyType(
    {
        **dict.fromkeys(("data", "--help", "--help-all", "--out", "--overwrite", "--target")),
        "--with": "explain new rows by the explainer of an earlier run, without a fit",
        "--method": "the method (default: lex); --help-all lists all",
        **dict.fromkeys(("--penalty", "--trust-black-box", "--seed", "--fdr")),
        "--black-box": "explain this fitted model, a joblib or pickle file; LOADING SUCH A FILE "
        "RUNS THE CODE IN IT: give only files that you trust",
        "--k": "features that each row keeps, as many in every row",
        "--row": "explain this row step by step, counted from 0 (repeat for more)",
        "--groups": "features that are judged together: a JSON file of names and columns",
        "--group": "rows with the same cell here, such as a patient's, stay in one fold",
        "--time": "the folds follow each other by this column of numbers or dates",
    }
)
"""What `lexppl explain --help` lists, with shorter texts of some; `--help-all` lists all."""
EXAMPLES, SHOWN_EXAMPLES = "examples:", 7


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line, and whose help may be of its first options alone."""

    first: Mapping[str, str | None] = MappingProxyType({})

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")

    def format_help(self) -> str:
        """The help of the first options and the examples, where there are some; else of all."""
        if not self.first:
            return super().format_help()
        epilog, texts = self.epilog, [(action, action.help) for action in self._actions]
        for action in self._actions:
            names = [name for name in (*action.option_strings, action.dest) if name in self.first]
            action.help = (self.first[names[0]] or action.help) if names else argparse.SUPPRESS
        examples = str(epilog)[max(0, str(epilog).find(EXAMPLES)) :].splitlines()
        self.epilog = "\n".join(examples[:SHOWN_EXAMPLES])
        try:
            return super().format_help()
        finally:
            self.epilog = epilog
            for action, text in texts:
                action.help = text


class _HelpAll(argparse.Action):
    """Print the help of all options."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(argparse.ArgumentParser.format_help(parser), end="")
        parser.exit()


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line.

    Raises:
        UsageError: what was typed is not a command.
        SystemExit: after --help and --version.

    Example:
        >>> parse(["explain", "wine", "--out", "results"]).replicates
        5
    """
    options = parser().parse_args(argv)
    if options.command == "explain":
        if options.explainer is not None:
            check_beside(sys.argv[1:] if argv is None else argv)
        shares = ("valid_share", "test_share")
        options.holds_out = any(getattr(options, name) is not None for name in shares)
        for name in shares:
            if getattr(options, name) is None:
                setattr(options, name, SHARE)
        if options.replicates is None:
            options.replicates = FOLDS if kind_of_data(options) == TABLE else REPLICATES
    return options


def parser() -> OneLineParser:
    """The parser of all commands."""
    top = OneLineParser(
        prog="lexppl",
        allow_abbrev=False,
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="lexppl [--help] [--version] COMMAND …",
    )
    top.add_argument("--version", action="version", version=f"lexppl {lexppl.__version__}")
    commands = top.add_subparsers(
        prog="lexppl", dest="command", metavar="COMMAND", required=True, help=argparse.SUPPRESS
    )
    usage = "DATA --out DIR", "SET", "DATA --methods A,B,…", "DATA"
    texts = (
        (EXPLAIN, EXPLAIN_MORE),
        (EVALUATE, EVALUATE_MORE),
        (COMPARE, COMPARE_MORE),
        (IMPUTE, IMPUTE_MORE),
    )
    fill = {"explain": _explain, "evaluate": _evaluate, "compare": _compare, "impute": _impute}
    for (name, options), needed, (text, more) in zip(fill.items(), usage, texts, strict=True):
        options(
            commands.add_parser(
                name,
                allow_abbrev=False,
                description=text,
                epilog=more,
                formatter_class=partial(argparse.RawDescriptionHelpFormatter, width=WIDTH),
                usage=f"lexppl {name} {needed} [options]",
            )
        )
    return top


def _compare(command: argparse.ArgumentParser) -> None:
    command.add_argument("data", metavar="DATA", help="as in explain: a name or a table")
    command.add_argument("--methods", metavar="A,B,…", required=True, help="see below")
    command.add_argument("--out", metavar="FILE", help="write the figures as JSON too")
    command.add_argument("--overwrite", action="store_true", help="replace FILE")
    table_options(command.add_argument_group("the table"))
    group = command.add_argument_group("the methods")
    group.add_argument(
        "--k",
        type=int_at_least(1),
        help="features that a row keeps, for methods that take a number of them (default: a "
        "quarter of all, rounded up; lex: as many as pay)",
    )
    group.add_argument(
        "--sizes",
        type=sizes,
        metavar="K,L,…",
        help="numbers of features by which rankings are judged (default: 1,3,5)",
    )
    group.add_argument(
        "--replicates",
        type=int_at_least(1),
        default=1,
        metavar="R",
        help="fits of each method from different seeds, averaged (default: 1)",
    )
    group.add_argument(
        "--leaks",
        action="store_true",
        help="also how much each method's choice of features encodes of the answer, beyond "
        "their values: networks are fitted for each method and each of --sizes",
    )
    command.set_defaults(penalty=None, imputer=None)
    fit_options(command, BY_ROWS, BY_ROWS, 0.2, tested="held out and judged")
    command.add_argument("--quiet", action="store_true", help="show no progress")
    command.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)


def _explain(command: OneLineParser) -> None:
    command.first = FIRST_OPTIONS
    command.add_argument("--help-all", action=_HelpAll, nargs=0, help="list all options")
    command.add_argument(
        "data",
        metavar="DATA",
        help="a data set's name, a table: .csv, .tsv (also .gz), .parquet or .xlsx, or a "
        "folder that has a folder of images for each class",
    )
    command.add_argument("--out", metavar="DIR", required=True, help="folder to write to")
    command.add_argument(
        "--overwrite", action="store_true", help="replace what an earlier run left in DIR"
    )
    command.add_argument(
        "--with",
        dest="explainer",
        metavar="DIR",
        help="explain the rows of the file DATA by the explainer of an earlier run, without "
        "a fit: importance.csv, and rows.csv of all rows, or step by step of those of --row",
    )
    table_options(command.add_argument_group("the table"))
    image_and_text_options(command.add_argument_group("images and texts"))
    _model_options(command, None, replicates=None, penalty=None, methods=True)
    _posterior_options(command.add_argument_group("a posterior of the weights, for lex"))
    _black_box_options(command.add_argument_group("explaining a model of yours (a black box)"))
    fit_options(command, BY_ROWS, BY_ROWS, None, tested="held out, scored and explained")
    found = command.add_argument_group("what is found")
    found.add_argument(
        "--row",
        type=int_at_least(0),
        action="append",
        default=[],
        metavar="N",
        help="explain this row of the table feature by feature, counted from 0 after rows that "
        "are dropped, as in report.html and posterior.nc; of images, and of texts of a set by "
        "name, among those held out (repeat for more; default: three held-out rows)",
    )
    found.add_argument(
        "--fdr",
        type=fraction(of="the features found"),
        default=FDR,
        metavar="RATE",
        help="false discovery rate: of the groups and features that are called found, at most "
        "this share is expected to say nothing of the target (default: 0.1)",
    )
    found.add_argument(
        "--fwer",
        type=fraction(of="the tables"),
        metavar="RATE",
        help="family-wise error rate in its place: the probability that anything is called found "
        "that says nothing",
    )
    found.add_argument(
        "--groups",
        metavar="auto|none|FILE",
        help="features that are judged together: those that depend on each other, none, or those "
        'of a JSON file, {"size": ["width", "height"], …} (default: auto)',
    )
    found.add_argument(
        "--group",
        metavar="COLUMN",
        help="rows with the same cell here, such as a patient's, stay in one fold, and count as "
        "one in the errors of gains; no feature",
    )
    found.add_argument(
        "--time",
        metavar="COLUMN",
        help="the folds follow each other by this column of numbers or dates; no feature",
    )
    checkpoint_options(command.add_argument_group("long runs"))
    output_options(command)


def _evaluate(command: argparse.ArgumentParser) -> None:
    command.add_argument("data", metavar="SET", choices=synthetic_names(), help="see below")
    command.add_argument(
        "--rows",
        type=int_at_least(10),
        default=10_000,
        help="rows to fit on, as many to test on (default: 10000)",
    )
    command.add_argument("--out", metavar="FILE", help="write the figures as JSON too")
    command.add_argument("--overwrite", action="store_true", help="replace FILE")
    _model_options(command, EVALUATED_BY["imputer"], replicates=1, penalty=EVALUATED_BY["penalty"])
    fit_options(command, EVALUATED_BY["epochs"], EVALUATED_BY["batch_size"], 0.1)
    output_options(command)


def _impute(command: argparse.ArgumentParser) -> None:
    command.add_argument("data", metavar="DATA", help="as in explain: a name or a table")
    command.add_argument("--out", metavar="FILE", help="write the figures as JSON too")
    command.add_argument("--overwrite", action="store_true", help="replace FILE")
    table_options(command.add_argument_group("the table"))
    image_options(command.add_argument_group("images"))
    group = command.add_argument_group("the imputers")
    group.add_argument(
        "--imputers", metavar="A,B,…", help="see below (default: all but those that take longer)"
    )
    group.add_argument(
        "--rates",
        type=rates,
        metavar="RATE,…",
        help="shares of the features that are hidden (default: 0.1,0.3,0.5,0.7,0.9)",
    )
    group.add_argument(
        "--draws",
        type=int_at_least(2),
        default=50,
        metavar="D",
        help="draws of each row and rate (default: 50)",
    )
    group.add_argument(
        "--seed",
        type=int_at_least(0),
        default=0,
        help="the same seed gives the same numbers (default: 0)",
    )
    group.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, mps … (default: cpu)")
    group.add_argument(
        "--test-share",
        type=fraction(of="the rows"),
        default=SHARE,
        metavar="SHARE",
        help=f"share of rows held out and scored (default: {SHARE:g})",
    )
    # All others are fitted on.
    command.set_defaults(valid_share=None)
    command.add_argument("--quiet", action="store_true", help="show no progress")
    command.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)


def _model_options(
    command: argparse.ArgumentParser,
    imputer: str | None,
    replicates: int | None,
    penalty: float | None,
    methods: bool = False,
) -> None:
    usual = METHODS[DEFAULT_METHOD]
    usual_penalty = "auto, and for other methods their own" if penalty is None else f"{penalty:g}"
    imputer = usual_imputer(usual) if imputer is None else imputer
    group = command.add_argument_group("the explainer")
    if methods:
        group.add_argument(
            "--method",
            choices=tuple(METHODS),
            default=DEFAULT_METHOD,
            metavar="NAME",
            help="; ".join(f"{name}: {method.summary}" for name, method in METHODS.items())
            + " (default: lex)",
        )
    size = group.add_mutually_exclusive_group()
    size.add_argument(
        "--k",
        type=int_at_least(1),
        help="features that each row keeps, as many in every row"
        + " (default, for methods that need a number: a quarter of all)" * methods,
    )
    size.add_argument(
        "--penalty",
        type=penalty_or_auto,
        metavar="LAMBDA",
        help="instead: each row keeps as many as pay, at LAMBDA nats each; auto chooses it from "
        f"the data, for lex (default: {usual_penalty})",
    )
    others = {**OF_PIXELS, **OF_WORDS} if methods else {}
    group.add_argument(
        "--imputer",
        choices=(*IMPUTERS, *others),
        metavar="LAW",
        help="what hidden features are replaced with: "
        + "; ".join(f"{name}, {meaning}" for name, meaning in IMPUTERS.items())
        + f" (default: {imputer}"
        + (", and constant for methods of one imputation)" * methods or ")")
        + (_of_others() if methods else ""),
    )
    if methods:
        group.add_argument(
            "--predictor",
            choices=PREDICTORS,
            help="what predicts from the features that are kept, for lex: a network; boosted "
            "trees, which read hidden features as missing and take no imputer; auto fits a "
            "network, and then "
            "trees to the features that its explainer keeps, which take the network's place where "
            "they predict the labels of held-out rows better by more than a standard error "
            f"(default: {USUAL_PREDICTOR}, and network with an --imputer)",
        )
    group.add_argument(
        "--replicates",
        type=int_at_least(1),
        default=replicates,
        metavar="R",
        help="fits from different seeds, trained at once"
        + (
            "; of a table each leaves a part of the rows out, which it then explains, where no "
            f"share is held out from all (default: {FOLDS}, and {REPLICATES} of images and texts)"
            if methods
            else f" (default: {replicates})"
        ),
    )


def _of_others() -> str:
    """What hides pixels and words."""
    pixels, words = (
        "; ".join(f"{name}, {meaning}" for name, meaning in named.items())
        for named in (OF_PIXELS, OF_WORDS)
    )
    return f". Of images also {pixels}. Of texts {words} (default: padding)"


def _posterior_options(group: argparse._ArgumentGroup) -> None:
    which = group.add_mutually_exclusive_group()
    which.add_argument(
        "--inference",
        choices=tuple(INFERENCES),
        metavar="NAME",
        help="sample the weights of a linear selector and predictor, given all rows that are not "
        "held out; --replicates are its chains: "
        + "; ".join(f"{name}, {meaning}" for name, meaning in INFERENCES.items())
        + " (default: fit them)",
    )
    which.add_argument(
        "--guide",
        choices=tuple(GUIDES),
        metavar="NAME",
        help="fit a posterior of a linear selector's weights, and a predictor along with it: "
        + "; ".join(f"{name}, {meaning}" for name, meaning in GUIDES.items()),
    )
    group.add_argument(
        "--prior",
        type=finite_float(above=0.0),
        metavar="SCALE",
        help="standard deviation of the weights' normal prior, features being standardised "
        f"(default: {PRIOR_SCALE:g})",
    )


def _black_box_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--black-box",
        metavar="FILE",
        help="explain this fitted model: a scikit-learn classifier or regressor, or a torch "
        "module, in a joblib or pickle file. LOADING SUCH A FILE RUNS THE CODE IN IT: give only "
        "files from sources that you trust, and --trust-black-box",
    )
    group.add_argument(
        "--trust-black-box",
        action="store_true",
        help="yes, run the code in the black box's file",
    )
    group.add_argument(
        "--black-box-input",
        choices=("table", "encoded"),
        default="table",
        help="what it was fitted on: the table's own columns, or the standardised and one-hot "
        "features of lexppl.data (table)",
    )
    group.add_argument(
        "--black-box-output",
        choices=("logits", "probabilities", "response"),
        help="what a torch module returns",
    )
    group.add_argument(
        "--regime",
        choices=tuple(regime.value.replace(" ", "-") for regime in Regime),
        metavar="REGIME",
        help="what is explained. free-in-situ: the labels, with a predictor that learns along "
        "(the default); surrogate-post-hoc: the black box (the default with one); "
        "fixed-in-situ: the labels, by a predictor that was fitted on all features before; "
        "self-post-hoc: what that predictor says",
    )
