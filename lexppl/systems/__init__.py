"""Published systems: each a choice of parts, a bound and a gradient estimator, ready for `fit`."""

from lexppl.choices.methods import METHODS
from lexppl.systems.cxplain import cxplain, cxplain_targets
from lexppl.systems.fastshap import fastshap
from lexppl.systems.joint import invase, l2x, rationale, vibi
from lexppl.systems.lex import lex
from lexppl.systems.meed import meed
from lexppl.systems.q_fit import q_fit
from lexppl.systems.real_x import base_x, random_mask_predictor, real_x
from lexppl.systems.senn import senn
from lexppl.systems.suwr import suwr
from lexppl.systems.vaeac import fit_vaeac
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
