"""Two fits have one identity if and only if they are alike, and what is another is told by name."""

import threading

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroModule, PyroSample
from sklearn.tree import DecisionTreeClassifier

from lexppl.inference.stages import TrainingModules
from lexppl.inference.training.checkpoints.fit_identity import differences, identity_of
from lexppl.models import MLP, ConstantImputer, with_prior


def identity(value):
    """Of a fit that was asked for with a value, and has no rows and no stages."""
    return identity_of({"value": value}, [TrainingModules([])], None, None)


def tree(above):
    x = np.arange(20.0)[:, None]
    return DecisionTreeClassifier(max_depth=1, random_state=0).fit(x, x[:, 0] > above)


class Slotted:
    __slots__ = ("rate",)

    def __init__(self, rate):
        self.rate = rate


class Line(PyroModule):
    def __init__(self, prior):
        super().__init__()
        self.slope = PyroSample(prior)


def stepping(rate):
    def step(x, *, rate=rate):
        return rate * x

    return step


PAIRS = {
    "value.tree_ has other values": (tree, 9, 12),
    "value.rate was 1 and is 2": (Slotted, 1, 2),
    "value.default rate was 1 and is 2": (stepping, 1, 2),
    "value.prior of slope.scale has other values": (
        lambda scale: Line(dist.Normal(0.0, scale)),
        1.0,
        2.0,
    ),
    "value.prior of slope was pyro.distributions.torch.Normal and is pyro.distributions.torch.La": (
        lambda law: Line(law(0.0, 1.0)),
        dist.Normal,
        dist.Laplace,
    ),
    "value.layers.0.prior of weight.family was Normal and is Laplace": (
        lambda law: with_prior(MLP(2, 1, (3,), seed=0), law(0.0, 1.0)),
        dist.Normal,
        dist.Laplace,
    ),
}


@pytest.mark.smoke
@pytest.mark.parametrize("told", PAIRS)
def test_what_is_another_is_told(told):
    make, one, other = PAIRS[told]
    assert differences(identity(make(one)), identity(make(one))) == []
    found = differences(identity(make(one)), identity(make(other)))
    assert any(told in difference for difference in found), found


def test_what_cannot_be_told_is_no_reason_to_refuse_a_fit():
    lock = identity(threading.Lock())
    assert lock["value"] == "_thread.lock"


# As it was told before values were read by the means of `lexppl.fingerprint`.
BEFORE = {
    "value": "builtins.dict of 3",
    "value.numbers": "builtins.list of 2",
    "value.numbers.0": 1,
    "value.numbers.1": "0.5",
    "value.x": "float32 (3, 2) e2c0a71510b5394df7773b63",
    "value.imputer": "lexppl.models.imputers.simple.ConstantImputer",
    "value.imputer.value": "float32 (2,) af5570f5a1810b7af78caf4b",
    "train": None,
    "valid": None,
    "replicates": 1,
}


def test_states_of_the_version_before_are_still_this_fits():
    rows = torch.arange(6.0).reshape(3, 2)
    value = {"numbers": [1, 0.5], "x": rows, "imputer": ConstantImputer(torch.zeros(2))}
    assert identity(value) == BEFORE
    rows[0, 0] = 1.0
    assert differences(BEFORE, identity(value)) == ["value.x has other values"]
