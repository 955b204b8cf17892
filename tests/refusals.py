"""Tests over rows, and calls that are refused: one in a line, or the rows of a test."""

from inspect import signature

import pytest

from lexppl.inference import TrainingOptions, fit


def over(*rows, **cases):
    """A test over rows, or over cases by name: the values of a row, `(first, second)`, are the
    test's first arguments, and fixtures stand behind them."""
    rows = rows or [pytest.param(*case, id=name) for name, case in cases.items()]
    values = rows[0].values if hasattr(rows[0], "marks") else rows[0]
    count = len(values) if isinstance(values, tuple) else 1

    def parametrized(test):
        names = ",".join([*signature(test).parameters][:count])
        return pytest.mark.parametrize(names, rows)(test)

    return parametrized


def refused(message, call, *args, error=ValueError, **options):
    """Require that a call is refused with a message; its error."""
    with pytest.raises(error, match=message) as caught:
        call(*args, **options)
    return caught.value


def refused_before_any_step(message, system, rows, **options):
    """Require that a fit is refused with a message, before an epoch is over."""
    seen = []
    options |= {"progress": False, "training": TrainingOptions(callbacks=[seen.append])}
    refused(message, fit, system, rows, error=(ValueError, TypeError), **{"epochs": 1, **options})
    assert not seen


def refusals(*rows, of=None, error=ValueError):
    """A test that each row is refused, `(call, words)`, or where all are calls `of` one function
    `(*arguments, words)`; an error of another kind stands before a row's words."""

    @pytest.mark.parametrize("row", rows, ids=[str(row[-1]) for row in rows])
    def test(row):
        *arguments, words = row
        kind = arguments.pop() if _is_error(arguments[-1]) else error
        call = arguments.pop(0) if of is None else of
        refused(words, call, *arguments, error=kind)

    return test


def _is_error(value):
    return isinstance(value, type) and issubclass(value, Exception)
