"""Steps by graphs of them: equal to the program's, or not taken and told why."""

import shutil
import sys
import warnings

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import Trace_ELBO
from torch import nn

from lexppl import load, save
from lexppl.effects import fit_progress, mask_particles
from lexppl.inference import (
    REBAR,
    LearnedConstant,
    LeaveOneOut,
    Linear,
    LossTerm,
    NestedIWAE,
    Objective,
    ScoreFunction,
    Stage,
    TunedControl,
    fit,
)
from lexppl.inference.contexts import seeded
from lexppl.inference.random_state import random_state, set_random_state
from lexppl.inference.training.compiled import compiled_terms
from lexppl.inference.training.compiled.agreement import disagreement
from lexppl.inference.training.compiled.record import CompiledSteps
from lexppl.inference.training.compiled.repeated_draws import NotTraceableError, RepeatedDraws
from lexppl.inference.training.step import TermGradients
from lexppl.models import LEX, MLP, CategoricalLikelihood, ConstantImputer, GaussianImputer
from lexppl.models import BernoulliSelector, Predictor, SizePenalty, penalty
from lexppl.models.table_parts import table_predictor
from lexppl.systems import METHODS, Settings, invase, l2x, real_x, system_for

X = torch.randn(90, 4, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long() + (X[:, 1] > 1).long()
FIT = {"epochs": 2, "batch_size": 18, "valid": None, "progress": False}
SMALL = {"hidden": (5,), "predictor_hidden": (5,)}

EAGER = {
    "fastshap": "reads a number from a tensor",
    "meed": "reckons with the fit's progress",
    "suwr": "reckons with the fit's progress",
}
"""Methods of which a term is run as it is, and what is said of it."""
GOING_BACK = ("real_x", "base_x")
"""Those whose estimator goes back to an earlier random state, where a graph goes on: from step to
step they draw other numbers than the program."""


def small_system(name):
    with seeded(1):
        model = table_predictor(4, 3, (5,))
    k = 2 if METHODS[name].needs("k") else None
    return system_for(name, Settings(4, 3, k=k, black_box=model, **SMALL))


def small_lex(seed=0, imputer=None):
    return LEX(
        BernoulliSelector(MLP(4, 4, (3,), seed=seed)),
        GaussianImputer() if imputer is None else imputer,
        Predictor(MLP(4, 3, (3,), seed=seed + 1), CategoricalLikelihood()),
        [SizePenalty(0.05)],
    )


def state_of(result):
    modules = [m for one in result.modules for m in (one, *result.guides) if m is not None]
    return [value for m in modules for value in m.state_dict().values()]


def same_bits(one, other):
    pairs = zip(state_of(one), state_of(other), strict=True)
    return all(torch.equal(a, b) for a, b in pairs) and np.array_equal(
        one.history.train, other.history.train
    )


@pytest.fixture
def gaps(monkeypatch):
    """The disagreement of every check, at every use of a graph."""
    found = []

    def heard(*given):
        found.append(disagreement(*given))
        return found[-1]

    class Always(compiled_terms._Graph):
        next_check = property(lambda self: 0, lambda self, value: None)

    monkeypatch.setattr(compiled_terms, "disagreement", heard)
    monkeypatch.setattr(compiled_terms, "_Graph", Always)
    return found


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.filterwarnings("ignore:.*is not compiled")
def test_every_system_has_the_same_bits_by_its_graph_or_says_why_not(name, gaps):
    result = fit(small_system(name), (X, Y), compile="graph", **FIT)
    record = result.compiled
    if name in EAGER:
        assert all(EAGER[name] in reason for reason in record.reasons) and record.reasons
    else:
        assert record.reasons == () and len(gaps) > 3
    assert all(gap == 0.0 for gap in gaps)
    assert record.eager == len(gaps) + record.eager - len(gaps)


@pytest.mark.parametrize(
    ("name", "replicates"), [("lex", 1), ("lex", 3), ("l2x", 2), ("invase", 2), ("q_fit", 2)]
)
def test_a_whole_fit_by_graphs_ends_with_the_same_bits(name, replicates):
    options = {**FIT, "epochs": 3, "valid": 0.2, "replicates": replicates}
    eager = fit(small_system(name), (X, Y), **options)
    graph = fit(small_system(name), (X, Y), compile="graph", **options)
    assert same_bits(eager, graph)
    assert eager.compiled is None
    assert graph.compiled.traced > graph.compiled.eager / 2 > 0
