"""Options of the fit and of the output, which all commands have."""

import argparse

from lexppl.cli.options.image_and_text_options import SHARE
from lexppl.cli.options.typed_values import finite_float, fraction, int_at_least


def fit_options(
    command: argparse.ArgumentParser,
    epochs: object,
    batch: object,
    valid: float | None,
    tested: str | None = None,
) -> None:
    """How long, by which steps and on which rows.

    Args:
        command: whose options.
        epochs, batch: what help says of defaults.
        valid: the share to choose the best epoch on where none is typed; None for none, as each
            row is held out by one of the replicates.
        tested: what the held-out rows are for; None where none are held out.
    """
    shared = f"{SHARE:g}" if valid is not None else "none, as a replicate leaves out each row"
    group = command.add_argument_group("the fit")
    group.add_argument(
        "--epochs", type=int_at_least(1), help=f"passes over the rows (default: {epochs})"
    )
    group.add_argument(
        "--masks",
        type=int_at_least(2),
        metavar="L",
        help="masks a row and step of lex (default: 4)",
    )
    group.add_argument(
        "--imputations",
        type=int_at_least(1),
        metavar="K",
        help="imputations a mask of lex (default: 1)",
    )
    group.add_argument(
        "--folds",
        type=int_at_least(1),
        metavar="F",
        help="predictors of lex, each judging rows that it has not learned from (default: 2)",
    )
    group.add_argument(
        "--batch-size", type=int_at_least(1), metavar="B", help=f"rows a step (default: {batch})"
    )
    group.add_argument(
        "--learning-rate",
        type=finite_float(above=0.0),
        metavar="RATE",
        help="of Adam (default: 0.001, or the method's own optimizer)",
    )
    group.add_argument(
        "--valid-share",
        type=fraction(of="the rows"),
        default=valid,
        metavar="SHARE",
        help="share of rows on which the best epoch is chosen (default: "
        + (f"{valid:g})" if valid is not None else f"{shared})"),
    )
    group.add_argument(
        "--seed",
        type=int_at_least(0),
        default=0,
        help="the same seed gives the same numbers (default: 0)",
    )
    group.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, mps … (default: cpu)")
    if tested is not None:
        group.add_argument(
            "--test-share",
            type=fraction(of="the rows"),
            default=None if valid is None else SHARE,
            metavar="SHARE",
            help=f"share of rows {tested} (default: {shared})",
        )


def output_options(command: argparse.ArgumentParser) -> None:
    """What is written, and what is shown meanwhile.

    Args:
        command: whose options.
    """
    group = command.add_argument_group("the output")
    group.add_argument(
        "--draws",
        type=int_at_least(2),
        default=100,
        metavar="D",
        help="mask draws a row (default: 100)",
    )
    group.add_argument("--quiet", action="store_true", help="show no progress")
    group.add_argument(
        "--epoch-lines",
        action="store_true",
        help="write a line for each epoch to standard error, as for a log; else there is a bar on "
        "a terminal, and nothing without one",
    )
    group.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
