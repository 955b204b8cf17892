"""Two fits have one identity if and only if they are alike, and what is another is told by name."""

import threading

import numpy as np
import pyro.distributions as dist
import pytest
from pyro.nn import PyroModule, PyroSample
from sklearn.tree import DecisionTreeClassifier

from lexppl.inference.stages import TrainingModules
from lexppl.inference.training.checkpoint import differences, identity_of
from lexppl.models import MLP, with_prior


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
    "value.tree_.state.1.nodes has other values": (tree, 9, 12),
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
    "value.layers.0.prior of weight.family was 'Normal' and is 'Laplace'": (
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
