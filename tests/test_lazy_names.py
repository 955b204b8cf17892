"""The package's names come from their homes at their first use, and nothing before."""

import pkgutil
import subprocess
import sys
from importlib import import_module

import pytest

import lexppl


def ran(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.complete
def test_public_names_and_submodules_are_there():
    names = ", ".join(lexppl.__all__)
    assert ran(f"from lexppl import {names}; print(all([{names}]))") == "True"
    assert ran("import lexppl; print(lexppl.argument_checks.__name__)") == "lexppl.argument_checks"


@pytest.mark.smoke
def test_dir_lists_what_is_public():
    """The names of the package, and the modules that say what they promise, by `__all__`."""
    promising = {
        module.name
        for module in pkgutil.iter_modules(lexppl.__path__)
        if module.name != "cli" and hasattr(import_module(f"lexppl.{module.name}"), "__all__")
    }
    assert dir(lexppl) == sorted({*lexppl.__all__, *promising, "__version__"})


def test_what_is_not_there_is_refused():
    with pytest.raises(AttributeError, match="has no attribute 'explian'"):
        _ = lexppl.explian
    assert ran("import lexppl; print(hasattr(lexppl, '__wrapped__'))") == "False"


NOT_LOADED = {
    "lexppl.inference": ("sklearn", "pandas", "scipy", "xarray", "matplotlib"),
    "lexppl.systems": ("xarray", "matplotlib"),
    "lexppl.explanation": ("sklearn", "joblib", "pyarrow.parquet", "matplotlib"),
    "lexppl.tabular": ("matplotlib", "jinja2"),
    "lexppl.cli.compare_command": ("matplotlib", "jinja2"),
    "lexppl.cli.evaluate_command": ("matplotlib", "jinja2"),
    "lexppl.cli.explain_table": (),
}
"""What a module does without, and loads neither itself nor by another."""


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("module", NOT_LOADED)
def test_what_a_module_does_without_is_not_loaded(module):
    loaded = ran(f"import sys, {module}; print(*sys.modules)").split()
    assert {"torch", module} <= set(loaded)
    for other in (*NOT_LOADED[module], "arviz", "captum", "lime", "shap", "torchvision"):
        assert other not in loaded
