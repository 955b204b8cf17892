"""The options that say how a table is read."""

import argparse

from lexppl.cli.options.typed_values import int_at_least, names


def table_options(group: argparse._ArgumentGroup) -> None:
    """Add them to a command.

    Args:
        group: of the command's options.
    """
    group.add_argument("--target", metavar="COLUMN", help="column to predict (default: the last)")
    group.add_argument(
        "--task",
        choices=("classification", "regression"),
        help="default: by the target; words and few different whole numbers are classes",
    )
    _column_options(group)
    _missing_options(group)
    _file_options(group)


def _column_options(group: argparse._ArgumentGroup) -> None:
    for option, text in (
        ("--drop", "columns to leave out, such as an identifier"),
        ("--keep", "the only columns to read beside the target"),
    ):
        group.add_argument(
            option, action="extend", nargs="+", default=[], metavar="COLUMN", help=text
        )
    group.add_argument(
        "--categorical",
        action="append",
        default=[],
        metavar="COLUMN",
        help="a column of numbers that are codes (repeat for more)",
    )
    group.add_argument(
        "--drop-constant", action="store_true", help="drop constant columns (else refused)"
    )
    group.add_argument(
        "--rare",
        type=int_at_least(1),
        metavar="N",
        help="pool the levels of a column that fewer than N rows to fit on have into one, which "
        "stands for unseen levels too (default: none are pooled)",
    )
    group.add_argument(
        "--dates",
        choices=("dayfirst", "monthfirst"),
        help="how 03/04/2026 is meant, where no date of its column settles it",
    )


def _missing_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--missing",
        action="append",
        default=[],
        metavar="CELL",
        help='a cell that means "missing", such as "?"; empty, NA and NaN always do (repeat for '
        "more)",
    )
    what = group.add_mutually_exclusive_group()
    what.add_argument(
        "--drop-missing", action="store_true", help="drop rows with missing values (else refused)"
    )
    what.add_argument(
        "--hide-missing",
        action="store_true",
        help="keep them: a missing value is hidden from the explainer, which draws it as it draws "
        "what a mask hides, and can never be kept; for lex, real_x, base_x and rationale",
    )
    group.add_argument(
        "--missing-indicator",
        action="store_true",
        help="with --hide-missing: a feature of its own for each column with missing values, that "
        "says where it is missing",
    )


def _file_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--separator",
        metavar="C",
        help="between cells, tab or space too (default: found out; tab in .tsv)",
    )
    group.add_argument(
        "--decimal", choices=(".", ","), help="before the decimals of numbers (default: .)"
    )
    group.add_argument(
        "--encoding",
        metavar="NAME",
        help="of the letters of a text file, such as cp1252 (default: by its byte-order mark, "
        "else utf-8)",
    )
    group.add_argument(
        "--column-names",
        type=names,
        metavar="A,B,…",
        help="for a file whose first line is data already",
    )
