"""Runs of the command line without the time that drawing takes: half of a small one's."""

import pytest


@pytest.fixture(autouse=True)
def pictures(request, monkeypatch):
    """Pictures of a report are empty, but for tests that name this fixture and those of runs that
    a module shares. What a picture shows is tested in `tests/plots`."""
    if "pictures" not in request.node._fixtureinfo.argnames:
        monkeypatch.setattr(
            "lexppl.cli.report.figures._rendered",
            lambda figure, kind, **options: f"<{kind} {figure.get_size_inches()}/>".encode(),
        )
