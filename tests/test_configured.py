"""What parts are written to files as: their constructor's arguments, under their own names."""

import json
from pathlib import Path

import pytest
import torch
from pyro.nn import PyroModule
from torch import nn

from lexppl.configured import Configured
from lexppl.models import MLP, CostPenalty, MarginalImputer, SizePenalty
from lexppl.models.imputers.imputer import Imputer
from lexppl.saving.description import describe, known_parts, rebuild
from lexppl.tabular.given_model import OnStandardisedRows
from tests import needs
from tests.refusals import over, refusals


def network():
    return MLP(2, 2, (3,), seed=0)


DESCRIPTIONS = json.loads((Path(__file__).parent / "descriptions.json").read_text("utf-8"))
"""What files of version 0.1.0 call these parts, argument by argument and in this order."""
NAMES = [description["part"] for description in DESCRIPTIONS]


def rebuilt(description):
    if description["part"] == "TorchvisionNetwork":
        needs.torchvision()
    return rebuild(description, {**known_parts(), "OnStandardisedRows": OnStandardisedRows})


@pytest.mark.parametrize("expected", DESCRIPTIONS, ids=NAMES)
def test_a_description_on_disk_builds_a_part_that_is_described_so(expected):
    assert json.dumps(describe(rebuilt(expected))) == json.dumps(expected)


@over(("UNet", "convolutions"), ("ConvolutionalNetwork", "pooled"))
def test_files_from_before_an_argument_are_read_with_its_default(name, added):
    (later,) = (description for description in DESCRIPTIONS if description["part"] == name)
    before = {key: value for key, value in later["config"].items() if key != added}
    assert describe(rebuilt({"part": name, "config": before})) == later


def test_arguments_are_described_as_they_are_kept():
    """Numbers in the constructor's types, tuples as lists, tensors by shape."""
    reference = {"shape": [4, 2], "dtype": "float64"}
    for part, expected in (
        (SizePenalty(1), {"weight": 1.0}),
        (CostPenalty((1, 2), 0.5), {"costs": [1.0, 2.0], "weight": 0.5}),
        (MarginalImputer(torch.zeros(4, 2).double()), {"reference": reference}),
    ):
        assert describe(part) == {"part": type(part).__name__, "config": expected}


def test_every_shipped_part_is_among_them():
    bases = {"CountLikelihood", "Imputer", "Likelihood", "MixtureImputer", "Penalty", "Selector"}
    bases |= {"PenaltyRangeSelector", "WordImputer"}
    assert {p.__name__ for p in known_parts().values()} - bases <= set(NAMES)


class Shift(Configured, nn.Module):
    def __init__(self, amount, parts=()):
        super().__init__()
        self.amount, self.parts = amount, nn.ModuleList(parts)


class Forgetful(Configured, nn.Module):
    def __init__(self, width):
        super().__init__()
        self.halved = width / 2


class ForgetfulImputer(Imputer):
    def __init__(self, width):
        super().__init__()
        self._register("halved", width / 2)


class Nameless(Configured, nn.Module):
    def __init__(self, *widths):
        super().__init__()
        self.widths = widths


class Named(Imputer):
    """Of arguments that are no tensors."""

    def __init__(self, value, name):
        super().__init__()
        self._register("value", value)
        self.name = name


class Further(Shift):
    """Arguments that are passed on belong to the part."""

    def __init__(self, times, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.times = times


class Twice(Shift):
    def __init__(self, half):
        super().__init__(2 * half)
        self.half = half


class Seeded(MLP):
    """What a parent leaves out is an argument of a subclass that keeps it."""

    def __init__(self, seed):
        super().__init__(2, 2, (3,), seed=seed)
        self.seed = seed


class Own(nn.Module):
    """A config written by hand."""

    def __init__(self, amount):
        super().__init__()
        self.doubled = 2 * amount

    def config(self):
        return {"amount": self.doubled / 2}


class Inherited(Shift):
    def config(self):
        return {"amount": 3.0}


@over(
    (Shift(torch.tensor([1.0, 2.0])), {"amount": [1.0, 2.0], "parts": []}),
    (Shift((1, 2)), {"amount": [1, 2], "parts": []}),
    (Named(1.0, "noise"), {"value": {"shape": [], "dtype": "float32"}, "name": "noise"}),
    (Further(2, 0.5), {"times": 2, "amount": 0.5, "parts": []}),
    (Further(**Further(2, 0.5).config()), {"times": 2, "amount": 0.5, "parts": []}),
    (Twice(0.5), {"half": 0.5}),
    (Seeded(7), {"seed": 7}),
    (Own(0.5), {"amount": 0.5}),
    (Inherited(0.5), {"amount": 3.0}),
    (PyroModule[MLP](2, 2, (3,)), network().config()),
)
def test_a_config_has_the_arguments_of_the_class(part, config):
    assert part.config() == config


def test_module_lists_are_lists_and_a_config_by_hand_is_read():
    first = network()
    assert Shift(0, [first]).config()["parts"] == [first]
    described = describe(Own(0.5))
    assert described == {"part": "Own", "config": {"amount": 0.5}}
    assert describe(Inherited(0.5)) == {"part": "Inherited", "config": {"amount": 3.0}}
    assert rebuild(described, {"Own": Own}).doubled == 1.0


test_arguments_that_cannot_be_read_again_are_refused = refusals(
    (Forgetful(4), r"Forgetful does not keep .* argument 'width'"),
    (ForgetfulImputer(4), r"ForgetfulImputer does not keep .* argument 'width'"),
    (Nameless(1, 2), r"Nameless takes arguments without names \(\*args\)"),
    of=lambda part: part.config(),
    error=TypeError,
)
