"""Steps by graphs of them: equal to the program's, or not taken and told why."""

import shutil
import sys
import warnings
from functools import partial

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer.autoguide import AutoLowRankMultivariateNormal, AutoNormal
from torch import nn

from lexppl import load, save
from lexppl.effects import fit_progress, mask_particles
from lexppl.inference import (
    REBAR,
    LeaveOneOut,
    Linear,
    LossTerm,
    NestedIWAE,
    Objective,
    ScoreFunction,
    Stage,
    TrainingOptions,
    TunedControl,
    batch_scale,
    fit,
)
from lexppl.inference.contexts import seeded
from lexppl.inference.training import compiled as compiled_terms
from lexppl.inference.training.compiled import disagreement
from lexppl.inference.training.step import TermGradients
from lexppl.models import GaussianImputer, SizePenalty
from lexppl.models.predictor import table_predictor
from lexppl.systems import METHODS, lex, system_for
from tests.refusals import refused
from tests.small_models import explainer, state_of

X = torch.randn(90, 4, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long() + (X[:, 1] > 1).long()
FIT = {"epochs": 2, "batch_size": 18, "valid": None, "progress": False}
SMALL = {"hidden": (5,), "predictor_hidden": (5,)}
GRAPH = TrainingOptions(compile="graph")

ROUNDED = ("suwr",)
"""Methods whose graphs ask a network of all rows, and whose steps of some: alike to rounding."""
EAGER = {"meed": "computes with the fit's progress"}
"""Methods of which a term is run as it is, and what is said of it."""


def small_system(name):
    with seeded(1):
        model = table_predictor(4, 3, (5,))
    k = 2 if METHODS[name].needs("k") else None
    return system_for(name, dict(features=4, classes=3, k=k, black_box=model, **SMALL))


def small_lex():
    sizes = {"features": 4, "outputs": 3, "hidden": (3,)}
    return explainer(imputer=GaussianImputer(), penalties=[SizePenalty(0.05)], **sizes)


def fitted(model=None, **options):
    return fit(small_lex() if model is None else model, (X, Y), **{**FIT, **options})


def same_bits(one, other):
    pairs = zip(state_of(one), state_of(other), strict=True)
    same = np.array_equal(one.history.train, other.history.train)
    return same and all(torch.equal(a, b) for a, b in pairs)


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


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.filterwarnings("ignore:.*is not compiled")
def test_every_system_has_the_same_bits_by_its_graph_or_says_why_not(name, gaps):
    rounded = name in ROUNDED
    system = small_system(name).to(torch.float64) if rounded else small_system(name)
    x = X.double() if rounded else X
    record = fit(system, (x, Y), training=GRAPH, **FIT).compiled
    if name in EAGER:
        assert all(EAGER[name] in reason for reason in record.reasons) and record.reasons
    else:
        assert record.reasons == () and len(gaps) > 3
    assert all(gap <= (1e-6 if rounded else 0.0) for gap in gaps)


ANNEALED = {"entropy": Linear(0.3, 0.0, end=0.6), "penalty": Linear(0.0, 1.0, begin=0.3, end=0.8)}


@pytest.mark.complete(but=1)
@pytest.mark.parametrize(
    "objective",
    [
        NestedIWAE(1, samples=2, estimator=REBAR(0.5)),
        NestedIWAE(1, samples=2, estimator=REBAR(control=TunedControl())),
        NestedIWAE(3, estimator=ScoreFunction(0.5)),
        NestedIWAE(3, 2, random_masks=0.4, **ANNEALED),
        NestedIWAE(3, estimator=LeaveOneOut(labels="averaged", labels_from=0.4)),
    ],
    ids=["goes back", "tuned", "baseline", "phases", "averaged labels"],
)
def test_estimators_and_schedules_have_the_same_numbers_in_a_graph(objective, gaps):
    # A Gaussian imputer draws in each of REBAR's three runs.
    result = fitted(objective=objective, training=GRAPH)
    assert result.compiled.reasons == () and len(gaps) >= 6
    assert all(gap == 0.0 for gap in gaps)


class Forgetful(NestedIWAE):
    """Leaves out what of it changes."""

    @property
    def moving(self):
        found = super().moving
        return type(found)(found.kind)


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("R", [1, 2])
def test_a_number_that_a_graph_kept_is_found_by_a_later_check(R):
    objective = Forgetful(3, entropy=Linear(1.0, 0.0))
    with pytest.warns(RuntimeWarning, match="differ from the program's"):
        found = fitted(objective=objective, training=GRAPH, epochs=12, replicates=R)
    (reason,) = found.compiled.reasons
    assert reason.startswith("LEX is not compiled: its graph's loss or gradients differ")
    assert found.compiled.eager > found.compiled.traced


class Program(nn.Module):
    """Masks and labels, with what a case adds to the logits."""

    def __init__(self):
        super().__init__()
        self.network = nn.Linear(4, 4)
        self.classes = nn.Linear(4, 3)
        self.calls = 0

    def added(self, x):
        return 0.0

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            law = dist.Bernoulli(logits=self.network(x)).to_event(1)
            mask = pyro.sample("mask", law)
            logits = self.classes(mask * x) + self.added(x)
            pyro.sample("y", dist.Categorical(logits=logits), obs=y)


class ReadsANumber(Program):
    def added(self, x):
        return 1.0 if x.sum().item() > 0 else 0.0


class GoesToNumPy(Program):
    def added(self, x):
        return float(np.abs(x.detach().numpy()).max())


class ChangesByItself(Program):
    def added(self, x):
        self.calls += 1
        return self.classes.bias * (self.calls % 7)


class ReadsTheProgress(Program):
    def added(self, x):
        return fit_progress() * self.classes.bias


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (ReadsANumber, "reads a number from a tensor"),
        (GoesToNumPy, "out of torch, to NumPy"),
        (ChangesByItself, "differ from the program's"),
        (ReadsTheProgress, "computes with the fit's progress"),
    ],
)
def test_what_a_graph_would_misread_is_run_as_it_is(program, why):
    with seeded(0):
        model = program()
    # Validation rows would run a program that counts its calls.
    eager = fitted(model, objective=NestedIWAE(2))
    with pytest.warns(RuntimeWarning, match=why) as told:
        graph = fitted(model, objective=NestedIWAE(2), training=GRAPH)
    assert len([w for w in told if w.category is RuntimeWarning]) == 1
    assert graph.compiled.traced == 0
    if program is not ChangesByItself:
        assert same_bits(eager, graph)
    assert program.__name__ in graph.compiled.reasons[0]


def test_steps_after_the_last_that_read_the_progress_are_traced(gaps):
    # k falls from 4 to 2 in the first 60 % of ten epochs of five steps.
    system = lex(4, classes=3, k=2, **SMALL)
    record = fit(system, (X, Y), training=GRAPH, **{**FIT, "epochs": 10}).compiled
    assert record.reasons == () and len(gaps) >= 10
    assert all(gap == 0.0 for gap in gaps)


class OfItsOwn(NestedIWAE):
    def at(self, progress):
        return super().at(progress)


class Squares(Objective):
    def differentiable_loss(self, model, guide, *args, **kwargs):
        return batch_scale() * (model(args[0]) - args[1]).square().sum()


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = nn.Linear(4, 1)

    def forward(self, x, y=None):
        return self.network(x).squeeze(-1)


def test_an_objective_is_asked_what_of_it_changes():
    with pytest.warns(RuntimeWarning, match="OfItsOwn does not say what of it changes"):
        fitted(objective=OfItsOwn(2), training=GRAPH)
    stages = [Stage([LossTerm(Line(), Squares())])]
    result = fit(None, (X, X[:, 0] * 2), stages=stages, training=GRAPH, **FIT)
    assert result.compiled.reasons == () and result.compiled.traced > 0


@pytest.mark.parametrize("options", [{"row_weights": "dirichlet", "replicates": 2}, {"folds": 2}])
def test_weighted_rows_and_folds_have_the_same_bits(options):
    assert same_bits(fitted(**options), fitted(training=GRAPH, **options))


@pytest.mark.complete(but=1)
@pytest.mark.parametrize(
    "guide", [AutoNormal, partial(AutoLowRankMultivariateNormal, rank=2)], ids=["mean", "low rank"]
)
def test_guides_of_weights_have_the_same_bits(guide):
    system = lex(4, classes=3, folds=1, prior=dist.Normal(0.0, 1.0), **SMALL)
    graph = fitted(system, guide=guide, epochs=3, training=GRAPH)
    assert same_bits(fitted(system, guide=guide, epochs=3), graph)
    assert graph.compiled.reasons == () and graph.compiled.traced > 5


def test_batches_of_other_sizes_have_graphs_of_their_own_and_those_are_counted():
    result = fitted(training=GRAPH, batch_size=40, epochs=5)
    assert same_bits(result, fitted(batch_size=40, epochs=5))
    # 3 batches an epoch, of 40, 40 and 10; each kind is seen twice, and checked at 1, 2, 4, 8.
    record = result.compiled
    assert record.eager + record.traced == 15
    assert record.eager == (1 + 4) + (1 + 3)


def test_a_loader_whose_batches_have_ever_other_sizes_is_given_up(monkeypatch):
    monkeypatch.setattr(compiled_terms, "MOST_GRAPHS", 1)
    with pytest.warns(RuntimeWarning, match="batch sizes keep changing"):
        result = fitted(training=GRAPH, batch_size=40, epochs=3)
    assert result.compiled.reasons == ("LEX is not compiled: its batch sizes keep changing",)


def test_a_graph_may_differ_once_but_not_again_and_again(monkeypatch):
    answers = iter([9.0, 0.0, 9.0, 9.0, 0.0] + [0.0] * 100)
    monkeypatch.setattr(compiled_terms, "disagreement", lambda *given: next(answers))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        result = fitted(training=GRAPH, epochs=8)
    assert result.compiled.traced > 10
    monkeypatch.setattr(compiled_terms, "disagreement", lambda *given: 9.0)
    with pytest.warns(RuntimeWarning, match="differ from the program's, 9.0e"):
        result = fitted(training=GRAPH)
    assert result.compiled.traced == 0


def test_without_a_compiler_the_graph_is_run_as_it_was_traced(monkeypatch):
    def missing(graph, inputs):
        raise RuntimeError("No working C++ compiler found")

    monkeypatch.setattr(compiled_terms, "_machine_code", missing)
    with pytest.warns(RuntimeWarning, match="No working C\\+\\+ compiler found; the graph is run"):
        result = fitted(training=TrainingOptions(compile=True))
    assert same_bits(result, fitted())
    assert result.compiled.compiled == 0 and result.compiled.traced > 0


@pytest.mark.complete
@pytest.mark.skipif(not shutil.which("g++") and not shutil.which("clang++"), reason="no compiler")
def test_compiled_steps_are_the_programs_to_rounding(gaps):
    with seeded(0):
        model = Program()
    inductor = sys.modules.get("torch._inductor.config")
    before = None if inductor is None else inductor.fallback_random
    state = torch.get_rng_state()
    objective = NestedIWAE(2, **ANNEALED)
    result = fitted(model, objective=objective, training=TrainingOptions(compile=True))
    assert result.compiled.reasons == () and len(gaps) >= 6
    assert max(gaps) <= 1.0
    eager = fitted(model, objective=objective)
    np.testing.assert_allclose(result.history.train, eager.history.train, rtol=1e-3)
    assert torch.equal(torch.get_rng_state(), state)
    assert sys.modules["torch._inductor.config"].fallback_random is bool(before)


def test_no_cuda_graph_is_made_of_a_step(monkeypatch):
    """Whatever the environment says: it would write over losses that an epoch keeps."""
    from torch import _inductor

    given = []
    monkeypatch.setattr(_inductor, "compile", lambda graph, inputs, options: given.append(options))
    with _inductor.config.patch({"triton.cudagraphs": True}):
        compiled_terms._machine_code(None, [])
    (options,) = given
    assert options["triton.cudagraphs"] is False
    assert set(options) <= set(_inductor.list_options())


def test_the_record_is_shown_and_saved(tmp_path):
    result = fitted(training=GRAPH)
    assert result.compiled.summary in str(result)
    save(result, tmp_path)
    assert load(tmp_path).compiled == result.compiled
    save(fitted(), tmp_path / "plain")
    assert load(tmp_path / "plain").compiled is None


@pytest.mark.parametrize("asked", ["fast", None, 1.5])
def test_another_backend_is_refused(asked):
    refused("compile must be True, False or one of", TrainingOptions, compile=asked)


def gradients(*values):
    return TermGradients(torch.ones(1), [torch.tensor(v) for v in values])


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        (gradients([1.0, 2.0], [0.001]), True),
        (gradients([1.0, 2.000002], [0.001]), True),
        (gradients([1.0, 2.0], [0.0011]), False),
        (gradients([1.0, 2.01], [0.001]), False),
        (gradients([1.0, float("nan")], [0.001]), False),
        (gradients([1.0, 2.0, 3.0], [0.001]), False),
        (TermGradients(torch.ones(1) * 1.01, gradients([1.0, 2.0], [0.001]).learned), False),
        (TermGradients(torch.ones(1), [torch.tensor([1.0, 2.0]), None]), False),
    ],
)
def test_rounding_is_told_from_another_gradient(other, alike):
    assert (disagreement(gradients([1.0, 2.0], [0.001]), other) <= 1.0) is alike
    lost = TermGradients(torch.tensor([float("nan")]), [])
    assert disagreement(lost, lost) == 0.0


def test_a_program_that_goes_back_to_earlier_draws_is_run_as_it_was_traced():
    objective = NestedIWAE(1, samples=2, estimator=REBAR(0.5))
    with pytest.warns(RuntimeWarning, match="goes back to an earlier state.*; the graph is run"):
        result = fitted(objective=objective, training=TrainingOptions(compile=True), replicates=2)
    assert same_bits(result, fitted(objective=objective, replicates=2))
    assert result.compiled.compiled == 0 and result.compiled.traced > 0
