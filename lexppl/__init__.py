"""Explanations of predictions, as statistical inference; nothing is imported before it is used."""

from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lexppl.explanation.explain import explain, prior
    from lexppl.inference import fit
    from lexppl.saving import load, save
    from lexppl.tabular import ExplainerClassifier, ExplainerRegressor

__version__ = version("lexppl")
__all__ = ["ExplainerClassifier", "ExplainerRegressor", "explain", "fit", "load", "prior", "save"]


def __getattr__(name: str) -> Any:
    """The public names from their homes, and submodules, at their first use."""
    homes = {
        "ExplainerClassifier": "lexppl.tabular",
        "ExplainerRegressor": "lexppl.tabular",
        "explain": "lexppl.explanation",
        "fit": "lexppl.inference",
        "load": "lexppl.saving",
        "prior": "lexppl.explanation",
        "save": "lexppl.saving",
    }
    if name in homes:
        value = getattr(import_module(homes[name]), name)
        globals()[name] = value
        return value
    if not name.startswith("_") and find_spec(f"lexppl.{name}") is not None:
        return import_module(f"lexppl.{name}")
    raise AttributeError(f"module 'lexppl' has no attribute {name!r}")


def __dir__() -> list[str]:
    modules = (
        "compare data distributions evaluation explanation inference models plots report saving"
    )
    return sorted([*__all__, *modules.split(), "systems", "tabular", "__version__"])
