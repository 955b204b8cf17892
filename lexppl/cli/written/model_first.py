"""The model is written before what follows from it, and stays where that fails or is cut short."""

import argparse
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from lexppl.atomic_output import is_full_disk, output_folder
from lexppl.choices.methods import METHODS
from lexppl.choices.settings import TREES
from lexppl.cli.outputs import ENCODING, EXPLAINER, MODEL, OUTPUTS
from lexppl.cli.terminal.exit_codes import INTERRUPTED
from lexppl.cli.terminal.signals import deferred_interrupts
from lexppl.cli.terminal.standard_error import tell
from lexppl.data import DividedTable
from lexppl.inference import FitResult
from lexppl.saving import save
from lexppl.tabular.fit_plan import FitPlan

LEAST_REPORT = 200_000
"""Bytes of the smallest report, with the posterior and the tables beside it."""
BYTES_OF_A_WEIGHT = 4

Fit = TypeVar("Fit")
Found = TypeVar("Found")


@dataclass
class Rest:
    """What became of the work after the model was written.

    Args:
        error: what ended it, or None.
    """

    error: BaseException | None = None

    def tell(self, out: Path) -> None:
        """Say where the model is, and raise what ended the work, where that was no Ctrl-C."""
        if self.error is None:
            return
        ended = "interrupted" if isinstance(self.error, KeyboardInterrupt) else "not all was done"
        tell(f"{ended}: {out} holds the fitted explainer, and not what follows from it")
        if not isinstance(self.error, KeyboardInterrupt):
            raise self.error


def run_model_first(
    options: argparse.Namespace,
    fit: Callable[[Path], Fit],
    find: Callable[[Fit], tuple[Found, bool]],
    write: Callable[[Path, Found], None],
    show: Callable[[Found, Path, bool], None],
) -> int:
    """Carry out `lexppl explain`, of whatever data: the model first, then what follows from it.

    Args:
        options: as typed.
        fit: read, fit, and write the model into the folder.
        find: judge and draw; and whether Ctrl-C has left all of it alone.
        write: what was found, into the folder.
        show: print it, of the folder, and whether rows were asked for.

    Returns:
        the exit code: 0, or 130 if the fit or what follows was interrupted.

    Raises:
        OSError: the folder is there, or cannot be written.
        KeyboardInterrupt: interrupted before there was anything to write.
    """
    with output_folder(options.out, options.overwrite, OUTPUTS) as folder:
        fitted = fit(folder)
        with what_follows(folder) as rest:
            found, complete = find(fitted)
            write(folder, found)
    if rest.error is not None:
        rest.tell(Path(options.out))
        return INTERRUPTED
    show(found, Path(options.out), bool(options.row))
    return 0 if complete else INTERRUPTED


def write_model(folder: Path, result: FitResult, source: DividedTable) -> None:
    """Write what loads the explainer again, whole: Ctrl-C waits until it is there.

    Args:
        folder: where.
        result: the fit.
        source: the table, whose encoding is written if it has one.

    Raises:
        OSError: it cannot be written.
        KeyboardInterrupt: after it was written.
    """
    with deferred_interrupts():
        save(result, folder / EXPLAINER)
        encoding = source.data.encoding
        if encoding is not None:
            encoding.save(folder / ENCODING)


@contextmanager
def what_follows(folder: Path) -> Iterator[Rest]:
    """Work whose failure leaves the model in the folder, alone.

    A full disk is passed on: what has no room for the results is to be left as it was.

    Args:
        folder: with the model.
    """
    rest = Rest()
    try:
        yield rest
    except (Exception, KeyboardInterrupt) as error:
        if is_full_disk(error):
            raise
        with deferred_interrupts(raises=False):
            for path in folder.iterdir():
                if path.name not in MODEL:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            rest.error = error


def least_bytes(plan: FitPlan, source: DividedTable) -> int:
    """Bytes that the results need at least: the report's, and the weights' of the networks.

    Args:
        plan: of the fit.
        source: the table.
    """
    columns, entries = source.data.x.shape[1], source.data.n_entries
    outputs = len(source.data.class_names or ("a mean",))
    weights = 0
    method = METHODS[plan.method]
    if method.takes("hidden"):
        weights += _weights(columns, *plan.hidden, entries)
    if method.takes("predictor_hidden") and plan.predictor_kind != TREES:
        weights += (plan.folds or 1) * _weights(columns, *plan.predictor_hidden, outputs)
    return LEAST_REPORT + BYTES_OF_A_WEIGHT * plan.replicates * weights


def _weights(*widths: int) -> int:
    """Numbers of a perceptron.

    >>> _weights(3, 5, 2)
    32
    """
    return sum((a + 1) * b for a, b in pairwise(widths))
