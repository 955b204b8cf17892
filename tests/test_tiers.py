"""The tiers of the suite and the guard of its shared fixtures."""

import shutil
from pathlib import Path

import pytest

from tests.refusals import over

ROOT = Path(__file__).resolve().parents[1]
CASES = """
import pytest

@pytest.mark.complete(but=2)
@pytest.mark.parametrize("n", range(6))
def test_cases(n):
    pass

@pytest.mark.complete
def test_long():
    pass

@pytest.mark.smoke
def test_quick():
    pass
"""
SHARED = """
import pytest

@pytest.fixture(scope="module")
def numbers():
    return {"a": [1.0, 2.0]}

def test_reads(numbers):
    assert numbers["a"][0] == 1.0

def test_changes(numbers):
    numbers["a"].append(3.0)
"""


@pytest.fixture
def suite(pytester):
    """A folder with the project's conftest and markers."""
    shutil.copy(ROOT / "conftest.py", pytester.path)
    pytester.makeini("[pytest]\nmarkers =\n    complete\n    smoke")
    pytester.mkdir("tests")
    return pytester


@over(
        ("not complete", ["test_cases[0]", "test_cases[3]", "test_quick"]),
        ("smoke", ["test_quick"]),
        ("complete", [*(f"test_cases[{n}]" for n in (1, 2, 4, 5)), "test_long"]),
        ("", [*(f"test_cases[{n}]" for n in range(6)), "test_long", "test_quick"]),
    )  # fmt: skip
def test_tiers_by_marker(tier, expected, suite):
    (suite.path / "tests" / "test_cases.py").write_text(CASES)
    (suite.path / "tests" / "test_broken.py").write_text("raise ImportError")
    ignored = [] if tier == "smoke" else ["--ignore=tests/test_broken.py"]
    result = suite.runpytest_inprocess(
        "-p", "no:randomly", "-p", "no:xdist", "--collect-only", "-q", "-m", tier, *ignored
    )
    names = [line.split("::")[1] for line in result.outlines if "::" in line]
    assert names == expected


def test_a_changed_shared_fixture_is_an_error(suite):
    (suite.path / "tests" / "test_shared.py").write_text(SHARED)
    result = suite.runpytest_inprocess("-p", "no:randomly", "-p", "no:xdist")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*a test changed the fixture 'numbers'*"])


@pytest.mark.smoke
def test_an_unchanged_shared_fixture_passes(suite):
    text = SHARED.replace('numbers["a"].append(3.0)', 'assert len(numbers["a"]) == 2')
    (suite.path / "tests" / "test_shared.py").write_text(text)
    suite.runpytest_inprocess("-p", "no:randomly", "-p", "no:xdist").assert_outcomes(passed=2)
