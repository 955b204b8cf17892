"""How an explainer of a table is fitted: what was asked for, checked, and defaults by the rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lexppl.argument_checks import finite_float, int_at_least, int_between
from lexppl.inference import Linear
from lexppl.systems import METHODS, Method

FEW_ROWS = 2000
"""Fewer rows to fit on than this get small networks: large ones overfit at once."""
STEPS = 3000
"""Steps that are enough where rows are many; epochs are cut so that there are no more."""
MOST_EPOCHS = 200
LARGEST_BATCH = 500
BATCHES_AN_EPOCH = 3
LEARNING_RATE = 1e-3
SHARE_KEPT = 0.25
"""Of the entries, where a method keeps a given number and none is given."""


@dataclass(frozen=True)
class FitPlan:
    """Sizes and lengths of a fit, with every default filled in.

    Args:
        hidden, predictor_hidden: widths of hidden layers.
        epochs, batch_size: of the fit.
        learning_rate: of Adam at the start; it falls to a twentieth over the second half.
    """

    hidden: tuple[int, ...]
    predictor_hidden: tuple[int, ...]
    epochs: int
    batch_size: int
    learning_rate: float

    @property
    def schedule(self) -> Linear:
        """The learning rate over the fit."""
        return decaying(self.learning_rate)


def decaying(rate: float) -> Linear:
    """The library's own schedule of the learning rate, at another height.

    Example:
        >>> decaying(0.1)(0.25)
        0.1
    """
    return Linear(rate, 0.05 * rate, begin=0.5)


def plan_for(
    rows: int,
    *,
    hidden: Any = None,
    predictor_hidden: Any = None,
    epochs: Any = None,
    batch_size: Any = None,
    learning_rate: Any = None,
) -> FitPlan:
    """The plan of a fit on so many rows; what is None is chosen by their number.

    Batches are a third of few rows and at most 500; epochs are 200, or fewer so that there are
    3000 steps; layers are 64 wide below 2000 rows and 200 above. A batch has a row more where the
    last one would have one row only, which batch norm cannot take.

    Raises:
        ValueError, TypeError: numbers that are not positive, or not whole where they must be.

    Example:
        >>> plan_for(90).batch_size, plan_for(90).epochs, plan_for(100_000).epochs
        (30, 200, 15)
    """
    few = rows < FEW_ROWS
    size = _count("batch_size", batch_size, math.ceil(min(LARGEST_BATCH, rows / BATCHES_AN_EPOCH)))
    size = min(size, rows)
    while rows % size == 1 % size and size < rows:
        size += 1
    lasting = max(1, min(MOST_EPOCHS, STEPS // math.ceil(rows / size)))
    return FitPlan(
        _widths("hidden", hidden, (64, 64) if few else (200, 200)),
        _widths("predictor_hidden", predictor_hidden, (64, 64) if few else (200, 200, 200)),
        _count("epochs", epochs, lasting),
        size,
        LEARNING_RATE
        if learning_rate is None
        else finite_float("learning_rate", learning_rate, above=0.0),
    )


def check_method(method: Any, k: Any, penalty: Any, imputer: Any, labels: bool) -> None:
    """Refuse a method that is not there, or is given what it does not have, before any work.

    Args:
        method: a name of :data:`lexppl.systems.METHODS`.
        k, penalty, imputer: as given; None where they are not.
        labels: whether y holds labels.

    Raises:
        ValueError, TypeError: as it says.

    Example:
        >>> check_method("l2x", None, 0.1, None, labels=True)
        Traceback (most recent call last):
        ...
        ValueError: l2x has no penalty: leave penalty=0.1 out; base_x, invase, lex, ...
    """
    if not isinstance(method, str) or method not in METHODS:
        raise ValueError(f"method must be one of {list(METHODS)}; it is {method!r}")
    known = METHODS[method]
    if known.labels_only and not labels:
        raise ValueError(
            f"{method} explains labels, and has no form for a real response: use another method, "
            "or ExplainerClassifier"
        )
    if k is not None and not known.takes("k"):
        with_k = [name for name, m in METHODS.items() if m.takes("k")]
        raise ValueError(f"{method} has no k: leave k={k!r} out; {', '.join(with_k)} have one")
    if penalty is not None and not known.takes("penalty"):
        with_penalty = [name for name, m in METHODS.items() if m.takes("penalty")]
        raise ValueError(
            f"{method} has no penalty: leave penalty={penalty!r} out; {', '.join(with_penalty)} "
            "have one"
        )
    if k is not None and penalty is not None:
        raise ValueError(
            f"give either k={k!r}, the entries a mask keeps, or penalty={penalty!r} for each of "
            "them"
        )
    if penalty is not None:
        finite_float("penalty", penalty, least=0.0)
    if k is not None:
        int_at_least("k", k)
    if imputer is not None and not known.takes("imputer"):
        raise ValueError(f"{method} has its own way to hide features: leave imputer out")


def usual_imputer(method: Method) -> str:
    """How a table's hidden features are replaced where nobody says: a bound of several imputations
    draws them from the margins, any other hides them by a constant.

    Example:
        >>> usual_imputer(METHODS["lex"]), usual_imputer(METHODS["real_x"])
        ('marginal', 'constant')
    """
    return "marginal" if method.takes("imputations") else "constant"


def kept_entries(method: str, k: Any, entries: int) -> int | None:
    """k as given, or a quarter of the G entries, rounded up, for a method that needs one.

    Raises:
        ValueError: k above G.

    Example:
        >>> kept_entries("l2x", None, 10), kept_entries("real_x", None, 10)
        (3, None)
    """
    if k is None:
        return math.ceil(SHARE_KEPT * entries) if METHODS[method].needs("k") else None
    return int_between("k", k, 1, entries, note="the mask entries of X")


def _count(name: str, value: Any, otherwise: int) -> int:
    return otherwise if value is None else int_at_least(name, value)


def _widths(name: str, given: Any, otherwise: tuple[int, ...]) -> tuple[int, ...]:
    if given is None:
        return otherwise
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ValueError(f"{name} must be a sequence of widths, such as (64, 64); it is {given!r}")
    return tuple(int_at_least(f"a width of {name}", width) for width in given)
