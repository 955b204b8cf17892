"""The names that are public, by the module that a reader imports them from."""

import pkgutil
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import lexppl

FIRST = (
    "lexppl",
    "lexppl.models",
    "lexppl.inference",
    "lexppl.distributions",
    "lexppl.systems",
    "lexppl.explanation",
    "lexppl.evaluation",
    "lexppl.data",
    "lexppl.tabular",
    "lexppl.report",
    "lexppl.compare",
    "lexppl.plots",
)
"""In the order in which they are met; others stand behind them."""

NOT_FOR_PROGRAMS = ("lexppl.cli",)
"""Whose promises are the command line's."""


def packages() -> list[str]:
    """The package and those of its rooms that say what they promise, by `__all__`."""
    root = Path(lexppl.__file__).parent
    promising = ["lexppl"]
    for found in pkgutil.iter_modules([str(root)]):
        source = root / found.name / "__init__.py" if found.ispkg else root / f"{found.name}.py"
        if re.search(r"^__all__ = ", source.read_text(encoding="utf-8"), re.MULTILINE):
            promising.append(f"lexppl.{found.name}")
    known = [name for name in FIRST if name in promising]
    return known + sorted(set(promising) - {*FIRST, *NOT_FOR_PROGRAMS})


def public_names(package: str) -> list[str]:
    """What a package promises, in order.

    Raises:
        AttributeError: it has no `__all__`.
    """
    return sorted(import_module(package).__all__, key=str.lower)


def kind_of(value: Any) -> str:
    """`class`, `exception`, `function` or `data`, as autodoc has them."""
    if isinstance(value, type):
        return "exception" if issubclass(value, BaseException) else "class"
    return "function" if callable(value) and hasattr(value, "__code__") else "data"


def every_name() -> dict[str, Any]:
    """All of them: `{"lexppl.models.LEX": the class, …}`."""
    return {
        f"{package}.{name}": getattr(import_module(package), name)
        for package in packages()
        for name in public_names(package)
    }
