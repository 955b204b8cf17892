"""What would be released: a wheel and an sdist, looked into and used on their own."""

import ast
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

import lexppl

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
BUILD = """
import sys
from setuptools import build_meta
print(build_meta.build_{kind}(sys.argv[1]))
"""
IMPORT = """
import importlib, pathlib, pkgutil, sys
sys.path.insert(0, sys.argv[1])
import lexppl
assert pathlib.Path(lexppl.__file__).is_relative_to(sys.argv[1]), lexppl.__file__
names = [one.name for one in pkgutil.walk_packages(lexppl.__path__, "lexppl.")]
for name in names:
    if name != "lexppl.__main__":
        importlib.import_module(name)
print(len(names), lexppl.__version__)
"""


def run(*words, **options):
    done = subprocess.run(
        [sys.executable, *map(str, words)], capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


def test_each_dependency_has_a_lowest_version():
    """`.ci/run` tries exactly these; docs/versions.md has some of them."""
    page = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
    lowest = dict(requirement.split(">=") for requirement in PROJECT["dependencies"])
    assert len(lowest) == len(PROJECT["dependencies"])
    libraries = {
        **{"torch": "torch", "pyro-ppl": "Pyro", "numpy": "NumPy", "pandas": "pandas"},
        **{"scikit-learn": "scikit-learn", "arviz": "ArviZ"},
    }
    for name, called in libraries.items():
        assert f"{called} {lowest[name]}" in page, name


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Wheel and sdist, of a copy of the tracked files, so that nothing is left in this one."""
    if find_spec("setuptools") is None:
        pytest.skip('setuptools is not here, which builds the wheel: pip install "lexppl[tests]"')
    from setuptools import __version__ as version

    needed = PYPROJECT["build-system"]["requires"][0].removeprefix("setuptools>=")
    if int(version.split(".")[0]) < int(needed):
        pytest.skip(f"setuptools {version} is older than {needed}, which pyproject.toml asks for")
    folder = tmp_path_factory.mktemp("release")
    source = folder / "source"
    for path in (*ROOT.glob("*.*"), ROOT / "LICENSE", *ROOT.glob("lexppl/**/*")):
        if path.is_file() and "__pycache__" not in path.parts:
            copy = source / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    found = {}
    for kind in ("wheel", "sdist"):
        printed = run("-c", BUILD.format(kind=kind), folder, cwd=source)
        found[kind] = folder / printed.splitlines()[-1]
    return found


@pytest.mark.complete
def test_the_wheel_has_the_library_and_nothing_else(built):
    with zipfile.ZipFile(built["wheel"]) as wheel:
        names = set(wheel.namelist())
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        metadata_text = wheel.read(metadata).decode()
    files = {
        str(path.relative_to(ROOT))
        for path in ROOT.glob("lexppl/**/*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files == {name for name in names if name.startswith("lexppl/")}
    assert "lexppl/py.typed" in files
    assert any(name.endswith("LICENSE") for name in names)
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"lexppl"}
    assert f"Version: {PROJECT['version']}\n" in metadata_text
    assert "License-Expression: Apache-2.0" in metadata_text
    assert built["wheel"].name == f"lexppl-{PROJECT['version']}-py3-none-any.whl"


@pytest.mark.complete
def test_the_sdist_can_be_built_from(built):
    with tarfile.open(built["sdist"]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "PKG-INFO", "lexppl/py.typed"} <= names
    sources = {str(path.relative_to(ROOT)) for path in ROOT.glob("lexppl/**/*.py")}
    assert sources <= names


@pytest.mark.complete
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_what_is_installed_is_whole(kind, built, tmp_path):
    target = tmp_path / "installed"
    # pip makes a wheel of an sdist first, by the build system that is here.
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--quiet", "--target", target]
    run("-m", "pip", "install", *options, built[kind], cwd=tmp_path)
    # Not the checkout: another folder, and nothing on the path but what is installed.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    printed = run("-W", "ignore", "-c", IMPORT, target, cwd=tmp_path, env=env)
    count, version = printed.splitlines()[-1].split()
    assert int(count) > 200
    assert version == PROJECT["version"]
    env["PYTHONPATH"] = str(target)
    assert PROJECT["version"] in run("-m", "lexppl", "--version", cwd=tmp_path, env=env)


def test_every_package_has_its_init():
    """`packages.find` leaves out a folder without one."""
    for path in (ROOT / "lexppl").rglob("*.py"):
        assert (path.parent / "__init__.py").is_file(), path


def test_one_version_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == PROJECT["version"] == lexppl.__version__
    newest = re.search(r"^## (\S+),", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert newest and newest[1] == PROJECT["version"]


def test_the_citation_has_what_its_schema_asks_for():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"authors", "cff-version", "message", "title"} <= set(citation)
    assert citation["cff-version"] == "1.2.0"
    assert citation["type"] == "software"
    assert citation["license"] == PROJECT["license"]
    for entry in (citation, *citation["references"]):
        assert entry["title"] and entry["authors"]
        for author in entry["authors"]:
            assert set(author) <= {"name", "family-names", "given-names"}
            assert ("name" in author) != ("family-names" in author)
    assert all(entry["type"] == "conference-paper" for entry in citation["references"])


def test_the_pythons_that_are_promised():
    named = {
        name.rpartition(" ")[2] for name in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", name)
    }
    assert named == {"3.11", "3.12", "3.13"}
    assert PROJECT["requires-python"] == ">=3.11"
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in named
    # Nothing newer than the oldest is written: it would fail to parse there.
    for path in (ROOT / "lexppl").rglob("*.py"):
        ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 11))


def test_extras_are_named_as_the_site_has_them():
    page = (ROOT / "docs" / "start" / "install.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert listed == set(PROJECT["optional-dependencies"])
