"""Programs run as in a fit: parameters local, all checks on."""

import pytest

from lexppl.inference.contexts import program_settings


@pytest.fixture(autouse=True)
def settings_of_a_fit():
    with program_settings(validate=True):
        yield
