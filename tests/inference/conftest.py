"""A fixture for programs that a test runs by themselves."""

import pytest

from lexppl.inference.contexts import program_settings, seeded


@pytest.fixture
def local_parameters():
    """Nothing is left in Pyro's parameter store, nor in the global random state."""
    with seeded(0), program_settings(validate=True):
        yield
