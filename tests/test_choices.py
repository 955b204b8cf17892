"""What is known of the choices before they are loaded is what they are."""

import inspect

import pytest
import torch

from lexppl import systems
from lexppl.choices.data_sets import ALIASES, SYNTHETIC, TARGETS, shipped_names
from lexppl.choices.methods import LIBRARIES, METHODS
from lexppl.choices.settings import SETTINGS, USUAL_PREDICTOR
from lexppl.cli.options.checks import DEVICES
from lexppl.cli.options.table import COMMANDS, name_of
from lexppl.compare.compare import METHODS as COMPARED
from lexppl.data import load
from lexppl.data.synthetic import synthetic_set

WIDTHS = {"hidden", "predictor_hidden"}
OPEN = set(systems.SETTINGS)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_listed_with_what_its_factory_takes(name):
    method = METHODS[name]
    signature = set(inspect.signature(method.factory).parameters)
    assert method.settings == OPEN & signature - set(method.fixed)
    assert set(method.fixed) <= signature
    assert all(method.takes(setting) == (setting in signature) for setting in OPEN)


def test_settings_of_the_command_line_are_settings_of_methods():
    assert {setting.argument for setting in SETTINGS.values()} - {None} <= OPEN


def test_data_sets_are_there():
    for name, functions in SYNTHETIC.items():
        branches = synthetic_set(name).branches
        assert [branch.name for branch in branches] == [f"f_{letter}" for letter in functions]
    for name in shipped_names():
        data = load(name)
        assert data.target_name == TARGETS.get(name, "y")
    assert set(ALIASES.values()) <= set(SYNTHETIC)


def test_compared_methods_are_listed():
    assert set(COMPARED) == set(LIBRARIES)


def test_devices_are_known_to_torch():
    for name in DEVICES:
        assert torch.device(name).type == name


def test_every_setting_of_the_command_line_is_described():
    groups = COMMANDS["explain"].options.values()
    described = {name_of(flag): option for group in groups for flag, option in group.items()}
    assert {name for name in SETTINGS if name in described} == {*SETTINGS} - WIDTHS
    assert all(option["help"] for option in described.values())
    assert f"(default: {USUAL_PREDICTOR}, " in described["predictor"]["help"]
