"""A posterior of the weights as it was typed."""

import argparse
import importlib.util

from lexppl.choices.posteriors import (
    BAYES_LIBRARY,
    HAMILTONIAN,
    NEED_BAYES,
    PRIOR_SCALE,
    WITH_PRIOR,
    AskedPosterior,
)
from lexppl.cli.terminal.errors import UsageError

OF_EPOCHS = ("epochs", "masks", "imputations", "batch_size", "learning_rate")
"""Options of a fit, which an inference has none of."""
OF_ITS_OWN = ("predictor", "folds")
"""Options of what stands beside a fit, and beside no posterior."""


def posterior_of(options: argparse.Namespace) -> AskedPosterior | None:
    """The posterior that was typed, or None.

    Raises:
        UsageError: a prior without a posterior, a method whose weights can have none, options that
            mean nothing beside it.
        ImportError: the extra that has it is not installed.
    """
    values = {name: getattr(options, name, None) for name in ("inference", "guide", "prior")}
    named = next((name for name in ("inference", "guide") if values[name] is not None), None)
    if named is None:
        if values["prior"] is not None:
            raise UsageError(
                "--prior is that of a posterior: give --inference or --guide too, or leave it out"
            )
        return None
    typed = f"--{named} {values[named]}"
    if options.method not in WITH_PRIOR:
        raise UsageError(
            f"{typed}: the weights of {options.method} have no prior here; "
            f"--method {' or '.join(WITH_PRIOR)} has one"
        )
    if options.black_box or options.regime is not None:
        raise UsageError(f"{typed} explains the labels: leave --black-box and --regime out")
    if options.penalty == "auto":
        raise UsageError(f"{typed} chooses no penalty from the data: give nats, or leave it out")
    _refuse(typed, options, OF_ITS_OWN)
    if named == "inference":
        _refuse(typed, options, OF_EPOCHS)
        if values[named] in HAMILTONIAN and options.imputer not in (None, "constant"):
            raise UsageError(
                f"{typed} sums over masks, each with one imputation: give --imputer constant, or "
                "leave it out"
            )
    if values[named] in NEED_BAYES and importlib.util.find_spec(BAYES_LIBRARY) is None:
        raise ImportError(
            f"{typed} needs {BAYES_LIBRARY}, which is not installed; install the extra that has "
            'it: pip install "lexppl[bayes]"'
        )
    prior = PRIOR_SCALE if values["prior"] is None else values["prior"]
    return AskedPosterior(values["inference"], values["guide"], prior)


def _refuse(typed: str, options: argparse.Namespace, names: tuple[str, ...]) -> None:
    given = [name for name in names if getattr(options, name, None) not in (None, False)]
    if given:
        listed = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UsageError(f"{listed} mean nothing beside {typed}: leave them out")
