"""Published systems: each a choice of parts, a bound and a gradient estimator, ready for `fit`."""

from lexppl.choices.methods import DEFAULT_METHOD, METHODS, Method, Registry
from lexppl.systems.cxplain import CXPlain, cxplain, cxplain_targets
from lexppl.systems.fastshap import FastSHAP, fastshap
from lexppl.systems.joint import invase, l2x, rationale, vibi
from lexppl.systems.lex import lex
from lexppl.systems.meed import FadingPrior, meed
from lexppl.systems.q_fit import importance_divergence, q_fit
from lexppl.systems.real_x import base_x, random_mask_predictor, real_x
from lexppl.systems.registry import Settings, system_for
from lexppl.systems.senn import SENN, senn
from lexppl.systems.suwr import suwr
from lexppl.systems.vaeac import fit_vaeac
from lexppl.systems.xtab import xtab

__all__ = [
    "DEFAULT_METHOD",
    "METHODS",
    "SENN",
    "CXPlain",
    "FadingPrior",
    "FastSHAP",
    "Method",
    "Registry",
    "Settings",
    "base_x",
    "cxplain",
    "cxplain_targets",
    "fastshap",
    "fit_vaeac",
    "importance_divergence",
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
    "system_for",
    "vibi",
    "xtab",
]
