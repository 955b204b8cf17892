"""End with an error where an installed version is not the lowest that pyproject.toml allows."""

import tomllib
from importlib.metadata import version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
for requirement in map(Requirement, project["dependencies"]):
    (bound,) = requirement.specifier
    installed = Version(version(requirement.name))
    if bound.operator != ">=" or Version(installed.public) != Version(bound.version):
        there = f"{requirement.name} {installed} is installed"
        raise SystemExit(f"{there}, and pyproject.toml has {requirement}")
