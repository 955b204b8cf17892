"""Numbers are taken as what they are, and all else is refused by name."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch

from lexppl import ExplainerClassifier
from lexppl.argument_checks import (
    finite_float,
    fraction,
    int_at_least,
    int_between,
    one_of,
    shaped,
)
from lexppl.choices.settings import check_settings
from lexppl.compare import compare
from lexppl.data import load
from lexppl.models import MLP
from lexppl.models.imputers import imputer_of
from lexppl.models.regimes import regime_targets
from lexppl.systems import system_for
from tests.refusals import over, refused

NO_INTS = [True, False, np.True_, 1.0, np.float64(1.0), "1", None, 1j, [1], torch.tensor(1)]
NO_REALS = [True, np.False_, "0.5", None, 0.5j, [0.5], Decimal("0.5"), torch.ones(1)]
NO_REALS += [torch.tensor(True)]


@pytest.mark.parametrize("given", [3, np.int64(3), np.uint8(3)])
def test_whole_numbers_of_any_kind_become_plain_ones(given):
    for number in (int_at_least("k", given), int_between("k", given, 1, 3)):
        assert type(number) is int and number == 3


@pytest.mark.parametrize("given", [0.5, np.float32(0.5), Fraction(1, 2), torch.tensor(0.5)])
def test_real_numbers_of_any_kind_become_plain_ones(given):
    for number in (finite_float("t", given), fraction("t", given)):
        assert type(number) is float and number == 0.5


@pytest.mark.parametrize("given", NO_INTS, ids=repr)
def test_what_is_no_whole_number_is_refused(given):
    refused(r"^k must be a whole number of at least 0; it is ", int_at_least, "k", given, 0)
    refused(r"^k must be a whole number from 0 to 5; it is ", int_between, "k", given, 0, 5)


@pytest.mark.parametrize("given", NO_REALS, ids=repr)
def test_what_is_no_real_number_is_refused(given):
    refused(r"^t must be a finite number; it is ", finite_float, "t", given)
    refused(r"^t must be a share in \[0, 1\]; it is ", fraction, "t", given, zero=True, one=True)


@pytest.mark.parametrize("given", [math.nan, math.inf, -math.inf, np.float32("nan")], ids=repr)
def test_numbers_that_are_not_finite_are_refused(given):
    for limits in ({}, {"least": 0.0}, {"above": 0.0}):
        refused("t must be a finite number", finite_float, "t", given, **limits)
    refused("t must be a share", fraction, "t", given, zero=True, one=True)


def test_ends_of_ranges():
    assert int_at_least("k", 0, 0) == 0 and int_at_least("k", 1) == 1
    assert int_between("k", 1, 1, 3) == 1 and int_between("k", 3, 1, 3) == 3
    assert finite_float("t", 0, least=0.0) == 0.0 and finite_float("t", -2) == -2.0
    assert fraction("t", 0, zero=True) == 0.0 and fraction("t", 1, one=True) == 1.0
    for outside in (
        lambda: int_at_least("k", 0),
        lambda: int_between("k", 0, 1, 3),
        lambda: int_between("k", 4, 1, 3),
        lambda: finite_float("t", -1e-9, least=0.0),
        lambda: finite_float("t", 0.0, above=0.0),
        lambda: fraction("t", 0.0, one=True),
        lambda: fraction("t", 1.0, zero=True),
    ):
        refused("must be", outside)


def test_messages_say_of_what_and_what_else():
    with pytest.raises(ValueError) as error:
        fraction("valid", 2, of="the rows", zero=True, note="or None")
    assert str(error.value) == "valid must be a share of the rows in [0, 1), or None; it is 2"
    with pytest.raises(ValueError) as error:
        int_at_least("classes", 1, 2, note="or None for a response")
    assert str(error.value) == (
        "classes must be a whole number of at least 2, or None for a response; it is 1"
    )


TABLE, LABELS = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
TABLES = (torch.zeros(4, 3), torch.arange(4) % 2), (torch.zeros(4, 3), torch.arange(4) % 2)
NEAR = {
    "method": (
        lambda: system_for("invse", {"features": 3, "classes": 2}),
        "'invse': did you mean 'invase'?",
    ),
    "estimator": (lambda: ExplainerClassifier("invse").fit(TABLE, LABELS), "mean 'invase'?"),
    "compared": (lambda: compare(["shapp"], *TABLES), "'shapp': did you mean 'shap'?"),
    "imputer": (lambda: imputer_of("marginl", torch.zeros(5, 3), 0), "'marginl': did you .*nal'?"),
    "regime": (
        lambda: regime_targets("free insitu", torch.zeros(2, 3)),
        "did you mean 'free in-situ', 'fixed in-situ'?",
    ),
    "activation": (lambda: MLP(3, 2, activation="Relu"), "did you mean 'relu', 'selu', 'gelu'?"),
    "data set": (lambda: load("breast_cancr"), "'breast_cancr'; .*. did you mean 'breast_cancer'?"),
    "capitals": (lambda: one_of(["S1", "s3"], "name", "S3"), "'S3': did you mean 's3'?"),
    "none near": (lambda: one_of(["lex"], "method", "shap"), "it is 'shap'$"),
    "no name": (lambda: one_of(["lex"], "method", 3), "it is 3$"),
}


@over(**NEAR)
def test_names_that_may_have_been_meant(call, message):
    refused(message.replace("?", r"\?"), call)


def test_a_setting_that_may_have_been_meant():
    with pytest.raises(TypeError, match="no setting 'penlty'; did you mean 'penalty'"):
        check_settings("lex", "{}", penlty=0.1)


@over(
    ((3, 2), "N D", True),
    ((3,), "N D", False),
    ((3, 2), ("N", 2), True),
    ((3, 2), ("N", 3), False),
    ((3,), "N *event", False),
    ((3, 1, 4), "N *event", True),
    ((3,), "N …", True),
    ((), "N …", False),
    ((7, 3, 2), ("…", 3, 2), True),
    ((3, 2), ("…", 3, 2), True),
    ((2,), ("…", 3, 2), False),
    ((0, 2), "N D", True),
)
def test_a_shape_is_returned_or_refused_by_its_forms(shape, form, fits):
    for value in (np.zeros(shape), torch.zeros(shape)):
        if fits:
            assert shaped("x", value, (9, 9, 9, 9), form) == shape
            continue
        refused(r"^x must have shape \(.*; the shape is \(", shaped, "x", value, form)


def test_what_has_no_shape_or_is_empty_is_refused():
    assert shaped("names", ["a", "b"], (2,)) == (2,)
    with pytest.raises(ValueError, match=r"^y must have shape \(4,\), a note; it is None$"):
        shaped("y", None, (4,), note="a note")
    with pytest.raises(ValueError, match=r"\(N, D\), none of them 0; the shape is \(0, 2\)$"):
        shaped("x", torch.zeros(0, 2), "N D", filled=True)
