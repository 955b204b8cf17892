"""What can be typed: commands, options, and what each means to a newcomer."""

import argparse
import math
from collections.abc import Callable
from typing import NoReturn

import lexppl
from lexppl.cli.errors import UsageError
from lexppl.compare import METHODS as OTHERS
from lexppl.data import shipped_names, synthetic_names
from lexppl.models import METHODS
from lexppl.models.imputers.by_name import IMPUTERS
from lexppl.models.regimes import Regime

EXPLAIN_PENALTY, EVALUATE_PENALTY = 0.02, 0.0225
"""Nats an entry: what an entry must be worth to be kept, where neither k nor λ is given."""

BY_ROWS = "by the number of rows"

DESCRIPTION = """\
Explain predictions: learn which features of each row a prediction needs, and how sure that is.

commands:
  explain    fit an explainer on a data set and write what it found: a report, tables, a posterior
  evaluate   fit an explainer on a synthetic set, whose relevant features are known, and judge it
  compare    put methods side by side on a data set, this library's and others, under one judge

examples:
  lexppl explain breast_cancer --out results
  lexppl explain houses.csv --target price --out results
  lexppl evaluate S3
  lexppl compare wine --methods lex,real_x,shap

`lexppl COMMAND --help` tells all options of a command."""

EXPLAIN = """\
Fit an explainer (LEX, or another --method) on a data set and write what it found.

For each row the explainer chooses the features that it needs to predict the target, hides the
others, and predicts. How often it chooses a feature is that feature's importance. Several
replicates are fitted from different seeds, so that you see whether they agree."""

EXPLAIN_MORE = f"""\
data sets that need no file:
  {", ".join(n for n in shipped_names() if n not in synthetic_names())}
  with known truth: {", ".join(synthetic_names())}

what is written to --out:
  report.html     everything in one page: open it in a browser
  importance.csv  the ranked features, with intervals and r-hat
  posterior.nc    the posterior of the masks, for ArviZ: arviz.from_netcdf("posterior.nc")
  explainer/      the fitted model: lexppl.load("explainer")
  encoding.json   how columns became features (not for synthetic sets)

examples:
  lexppl explain breast_cancer --out results
  lexppl explain wine --k 3 --replicates 8 --out results
  lexppl explain houses.csv --target price --drop-missing --out results
  lexppl explain wine --method l2x --k 3 --out results
  lexppl explain patients.csv --target outcome --black-box model.joblib --trust-black-box --out r

Ctrl-C ends the fit; the best state so far is still written. Ctrl-C again ends without."""

EVALUATE = """\
Fit an explainer on a synthetic set and judge it against the truth: how many of the relevant
features it finds (TPR), how many of those it selects are not relevant (FDR), and how far its
predictions are from the best possible ones (the oracle)."""

EVALUATE_MORE = f"""\
synthetic sets: {", ".join(synthetic_names())} (S1, S2, S3 are Syn4, Syn5, Syn6)

examples:
  lexppl evaluate S3
  lexppl evaluate S1 --k 5 --masks 10 --seed 1 --out scores.json"""


COMPARE = """\
Put methods side by side: each is fitted on the same rows, ranks the features of the same held-out
rows, and is judged by the same EVAL-X, a predictor that has seen every mask. Where the data set has
a truth, the share of it that is found is told too."""

COMPARE_MORE = f"""\
methods of this library: {", ".join(METHODS)}
others (pip install "lexppl[compare]"): {", ".join(OTHERS)}

examples:
  lexppl compare breast_cancer --methods lex,real_x,l2x
  lexppl compare wine --methods lex,shap,lime,permutation --sizes 1,2,4
  lexppl compare S3 --methods lex,tabnet --out figures.json"""


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line.

    Raises:
        UsageError: what was typed is not a command.
        SystemExit: after --help and --version.

    Example:
        >>> parse(["explain", "wine", "--out", "results"]).replicates
        4
    """
    options = parser().parse_args(argv)
    if options.command in ("explain", "compare"):
        _check_shares(options)
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
    usage = "DATA --out DIR", "SET", "DATA --methods A,B,…"
    texts = (EXPLAIN, EXPLAIN_MORE), (EVALUATE, EVALUATE_MORE), (COMPARE, COMPARE_MORE)
    fill = {"explain": _explain, "evaluate": _evaluate, "compare": _compare}
    for (name, options), needed, (text, more) in zip(fill.items(), usage, texts, strict=True):
        options(
            commands.add_parser(
                name,
                allow_abbrev=False,
                description=text,
                epilog=more,
                formatter_class=argparse.RawDescriptionHelpFormatter,
                usage=f"lexppl {name} {needed} [options]",
            )
        )
    return top


def _compare(command: argparse.ArgumentParser) -> None:
    command.add_argument("data", metavar="DATA", help="as in explain: a name or a table")
    command.add_argument("--methods", metavar="A,B,…", required=True, help="see below")
    command.add_argument("--out", metavar="FILE", help="write the figures as JSON too")
    command.add_argument("--overwrite", action="store_true", help="replace FILE")
    _table_options(command.add_argument_group("the table"))
    group = command.add_argument_group("the methods")
    group.add_argument(
        "--k",
        type=_whole(1),
        help="features that a row keeps, for methods that take a number of them (default: a "
        "quarter of all; lex: as many as pay)",
    )
    group.add_argument(
        "--sizes",
        type=_sizes,
        metavar="K,L,…",
        help="numbers of features by which rankings are judged (default: 1,3,5)",
    )
    group.add_argument(
        "--replicates",
        type=_whole(1),
        default=1,
        metavar="R",
        help="fits of each method from different seeds, averaged (default: 1)",
    )
    command.set_defaults(
        penalty=None, imputer=None, default_penalty=EXPLAIN_PENALTY, default_imputer="marginal"
    )
    fitting = _fit_options(command, BY_ROWS, BY_ROWS, 0.2)
    fitting.add_argument(
        "--test-share",
        type=_share,
        default=0.2,
        metavar="SHARE",
        help="share of rows held out and judged (default: 0.2)",
    )
    command.add_argument("--quiet", action="store_true", help="show no progress")
    command.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)


def _sizes(text: str) -> list[int]:
    return [_whole(1)(part) for part in text.split(",")]


def _explain(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "data",
        metavar="DATA",
        help="a data set's name (below), or a table: .csv, .tsv (also .gz) or .parquet",
    )
    command.add_argument("--out", metavar="DIR", required=True, help="folder to write to")
    command.add_argument(
        "--overwrite", action="store_true", help="replace what an earlier run left in DIR"
    )
    _table_options(command.add_argument_group("the table"))
    _model_options(command, "marginal", replicates=4, penalty=EXPLAIN_PENALTY, methods=True)
    _black_box_options(command.add_argument_group("explaining a model of yours (a black box)"))
    fitting = _fit_options(command, BY_ROWS, BY_ROWS, 0.2)
    fitting.add_argument(
        "--test-share",
        type=_share,
        default=0.2,
        metavar="SHARE",
        help="share of rows held out, scored and explained (default: 0.2)",
    )
    _output_options(command)


def _evaluate(command: argparse.ArgumentParser) -> None:
    command.add_argument("data", metavar="SET", choices=synthetic_names(), help="see below")
    command.add_argument(
        "--rows",
        type=_whole(10),
        default=10_000,
        help="rows to fit on, as many to test on (default: 10000)",
    )
    command.add_argument("--out", metavar="FILE", help="write the figures as JSON too")
    command.add_argument("--overwrite", action="store_true", help="replace FILE")
    _model_options(command, imputer="gaussian", replicates=1, penalty=EVALUATE_PENALTY)
    _fit_options(command, "300", "1000", 0.1)
    _output_options(command)


def _table_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--target", metavar="COLUMN", help="column to predict (default: the last)")
    group.add_argument(
        "--task",
        choices=("classification", "regression"),
        help="default: by the target; words and few different whole numbers are classes",
    )
    group.add_argument(
        "--categorical",
        action="append",
        default=[],
        metavar="COLUMN",
        help="a column of numbers that are codes (repeat for more)",
    )
    group.add_argument(
        "--missing",
        action="append",
        default=[],
        metavar="CELL",
        help='a cell that means "missing", such as "?"; empty, NA and NaN always do (repeat for '
        "more)",
    )
    group.add_argument(
        "--drop-missing", action="store_true", help="drop rows with missing values (else refused)"
    )
    group.add_argument(
        "--drop-constant", action="store_true", help="drop constant columns (else refused)"
    )
    group.add_argument(
        "--separator",
        metavar="C",
        help="between cells, tab or space too (default: by the file's name)",
    )
    group.add_argument(
        "--column-names",
        type=_names,
        metavar="A,B,…",
        help="for a file whose first line is data already",
    )


def _model_options(
    command: argparse.ArgumentParser,
    imputer: str,
    replicates: int,
    penalty: float,
    methods: bool = False,
) -> None:
    command.set_defaults(default_penalty=penalty, default_imputer=imputer)
    group = command.add_argument_group("the explainer")
    if methods:
        group.add_argument(
            "--method",
            choices=tuple(METHODS),
            default="lex",
            metavar="NAME",
            help="; ".join(f"{name}: {method.summary}" for name, method in METHODS.items())
            + " (default: lex)",
        )
    size = group.add_mutually_exclusive_group()
    size.add_argument(
        "--k", type=_whole(1), help="features that each row keeps, as many in every row"
    )
    size.add_argument(
        "--penalty",
        type=_at_least_zero,
        metavar="LAMBDA",
        help=f"instead: each row keeps as many as pay, at LAMBDA nats each (default: {penalty:g})",
    )
    group.add_argument(
        "--imputer",
        choices=tuple(IMPUTERS),
        metavar="LAW",
        help="what hidden features are replaced with: "
        + "; ".join(f"{name}, {meaning}" for name, meaning in IMPUTERS.items())
        + f" (default: {imputer}"
        + (", and constant for methods other than lex)" * methods or ")"),
    )
    group.add_argument(
        "--replicates",
        type=_whole(1),
        default=replicates,
        metavar="R",
        help=f"fits from different seeds, trained at once (default: {replicates})",
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


def _fit_options(
    command: argparse.ArgumentParser, epochs: str, batch: str, valid: float
) -> argparse._ArgumentGroup:
    group = command.add_argument_group("the fit")
    group.add_argument("--epochs", type=_whole(1), help=f"passes over the rows (default: {epochs})")
    group.add_argument(
        "--masks", type=_whole(2), metavar="L", help="masks a row and step of lex (default: 4)"
    )
    group.add_argument(
        "--imputations",
        type=_whole(1),
        metavar="K",
        help="imputations a mask of lex (default: 1)",
    )
    group.add_argument(
        "--batch-size", type=_whole(1), metavar="B", help=f"rows a step (default: {batch})"
    )
    group.add_argument(
        "--learning-rate",
        type=_positive,
        default=1e-3,
        metavar="RATE",
        help="of Adam (default: 0.001)",
    )
    group.add_argument(
        "--valid-share",
        type=_share,
        default=valid,
        metavar="SHARE",
        help=f"share of rows on which the best epoch is chosen (default: {valid:g})",
    )
    group.add_argument(
        "--seed",
        type=_whole(0),
        default=0,
        help="the same seed gives the same numbers (default: 0)",
    )
    group.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, mps … (default: cpu)")
    return group


def _output_options(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("the output")
    group.add_argument(
        "--draws", type=_whole(2), default=100, metavar="D", help="mask draws a row (default: 100)"
    )
    group.add_argument("--quiet", action="store_true", help="show no progress")
    group.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)


def _check_shares(options: argparse.Namespace) -> None:
    if options.valid_share + options.test_share >= 1.0:
        raise UsageError(
            "--valid-share and --test-share must leave rows to fit on; they are "
            f"{options.valid_share:g} and {options.test_share:g}"
        )


def _whole(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(
                f"must be a whole number of at least {least}; it is {text!r}"
            )
        return value

    return read


def _number(text: str, expected: str, fits: Callable[[float], bool]) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and fits(value)):
        raise argparse.ArgumentTypeError(f"must be {expected}; it is {text!r}")
    return value


def _positive(text: str) -> float:
    return _number(text, "a number above 0", lambda value: value > 0.0)


def _at_least_zero(text: str) -> float:
    return _number(text, "a finite number of at least 0", lambda value: value >= 0.0)


def _share(text: str) -> float:
    return _number(text, "a share of the rows between 0 and 1", lambda value: 0.0 < value < 1.0)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]
