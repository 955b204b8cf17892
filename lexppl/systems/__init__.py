"""Published systems: each a choice of parts, a bound and a gradient estimator, ready for `fit`."""

from collections.abc import Mapping
from typing import Any

from lexppl.argument_checks import one_of
from lexppl.choices.methods import METHODS, Method
from lexppl.inference import System
from lexppl.models.architectures.base import architecture_of
from lexppl.models.predictor import check_classes
from lexppl.systems.cxplain import cxplain, cxplain_targets
from lexppl.systems.fastshap import fastshap
from lexppl.systems.invase import invase
from lexppl.systems.l2x import l2x
from lexppl.systems.lex import lex
from lexppl.systems.meed import meed
from lexppl.systems.q_fit import q_fit
from lexppl.systems.rationale import rationale
from lexppl.systems.real_x import base_x, random_mask_predictor, real_x
from lexppl.systems.senn import senn
from lexppl.systems.suwr import suwr
from lexppl.systems.vaeac import fit_vaeac
from lexppl.systems.vibi import vibi
from lexppl.systems.xtab import xtab

__all__ = [
    "METHODS",
    "base_x",
    "cxplain",
    "cxplain_targets",
    "fastshap",
    "fit_vaeac",
    "invase",
    "l2x",
    "lex",
    "meed",
    "q_fit",
    "random_mask_predictor",
    "rationale",
    "real_x",
    "senn",
    "suwr",
    "vibi",
    "xtab",
]

SETTINGS = (
    *("features", "classes", "k", "penalty", "black_box", "predictor", "masks", "imputations"),
    *("folds", "unit", "imputer", "likelihood", "grouping", "hidden", "predictor_hidden"),
)
"""What a method is built from; a factory reads those that it takes."""


def system_for(method: str | Method, settings: Mapping[str, Any]) -> System:
    """The system of a method, or of a method's name.

    Args:
        settings: by name; None, or one that is left out, is the factory's default:

            - `features`: D of a table, or an architecture, such as :func:`lexppl.models.images`.
            - `classes`: C for labels, or None for a real response.
            - `k`: entries that a mask keeps.
            - `penalty`: nats for each entry kept, or a range of them as :func:`lexppl.systems.lex`
              takes it.
            - `black_box`: the explained model, a module from x to the distribution of y.
            - `predictor`: a given predictor, for LEX's regimes in which it does not learn.
            - `masks`, `imputations`: L and K.
            - `folds`: F, where the predictor is cross-fitted.
            - `unit`: of constants in nats.
            - `imputer`: distribution of the hidden features.
            - `likelihood`: of a response; normal if None.
            - `grouping`: which features an entry keeps.
            - `hidden`, `predictor_hidden`: widths of the selector's and the predictor's hidden
              layers.

    Raises:
        ValueError: another name of a method or setting; settings that the method lacks or cannot
            take.

    Example:
        >>> type(system_for("real_x", {"features": 11, "classes": 2}).program()).__name__
        'LEX'
    """
    if isinstance(method, str):
        method = METHODS[one_of(METHODS, "method", method)]
    for name in settings:
        one_of(SETTINGS, "setting", name)
    classes = settings["classes"]
    architecture_of(settings["features"], settings.get("grouping"))
    check_classes(classes)
    if method.labels_only and classes is None:
        raise ValueError(f"{method.name} explains labels; it has no form for a real response")
    if method.explains_model and settings.get("black_box") is None:
        raise ValueError(f"{method.name} explains a given model: give black_box=, a predictor")
    if method.needs("k") and settings.get("k") is None:
        raise ValueError(f"{method.name} keeps a given number of entries: give k")
    taken = {
        name: value
        for name, value in settings.items()
        if method.takes(name) and (value is not None or name == "classes")
    }
    return method.factory(**taken, **method.fixed)
