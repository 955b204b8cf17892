"""`pyro.param` in models and guides: learned as parameters of the fit, by name, in their bounds."""

import math
from functools import partial

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import NUTS, SVI, Trace_ELBO
from pyro.infer.autoguide import AutoDelta
from pyro.nn import PyroModule, PyroParam
from torch import nn
from torch.distributions import constraints

from lexppl import explain, fit, load, save
from lexppl.effects import mask_particles
from lexppl.inference import (
    MCMC,
    Checkpoints,
    Enumerate,
    LossTerm,
    NestedIWAE,
    ReplicateData,
    SamplerWarning,
    Stage,
    TrainingOptions,
)
from lexppl.inference.training.cross_fitting import CrossFitted
from lexppl.models import MLP
from tests.refusals import refusals, refused

N, G, NOISE = 40, 2, math.sqrt(0.5)
DRAWN = torch.Generator().manual_seed(0)
X = torch.randn(N, G, generator=DRAWN)
Y = 5.0 + NOISE * torch.randn(N, generator=DRAWN)
SLOPED = 2.0 * X[:, 0] + 0.5 * torch.randn(N, generator=DRAWN)
EXACT = NestedIWAE(math.inf, estimator=Enumerate())
FALLING = {
    "optimizer": partial(torch.optim.Adam, lr=0.1, betas=(0.9, 0.9), weight_decay=1e-3),
    "training": TrainingOptions(partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=400)),
}
QUICK = {"epochs": 3, "learning_rate": 0.1, "batch_size": 20, "progress": False}


@pytest.fixture(autouse=True)
def store():
    """Another program's values, which no fit reads or writes."""
    pyro.clear_param_store()
    pyro.param("scale", torch.tensor(99.0), constraint=constraints.positive)
    pyro.param("loc", torch.tensor(-99.0))
    yield
    held = {name: float(value) for name, value in pyro.get_param_store().items()}
    pyro.clear_param_store()
    assert held == pytest.approx({"scale": 99.0, "loc": -99.0})


def respond(x, y, mean, scale=NOISE):
    """Masks that matter to nothing, and y around a mean."""
    with pyro.plate("data", len(x), dim=-1), mask_particles():
        pyro.sample("mask", dist.Bernoulli(torch.full((G,), 0.5)).to_event(1))
        return pyro.sample("y", dist.Normal(mean, scale), obs=y)


def respond_to_kept(x, y, logits, slope, scale):
    """y around what the masks keep."""
    with pyro.plate("data", len(x), dim=-1), mask_particles():
        z = pyro.sample("mask", dist.Bernoulli(logits=logits).expand((len(x), G)).to_event(1))
        return pyro.sample("y", dist.Normal((x * z * slope).sum(-1), scale), obs=y)


def conjugate(x, y=None):
    return respond(x, y, pyro.sample("mean", dist.Normal(0.0, 10.0)))


def positive(name, start=1.0):
    return pyro.param(name, torch.tensor(start), constraint=constraints.positive)


def of_mean(x, y=None):
    loc = pyro.param("loc", torch.tensor(0.0))
    scale = pyro.param("scale", lambda: torch.tensor(1.0), constraint=constraints.positive)
    return pyro.sample("mean", dist.Normal(loc, scale))


class GuideModule(nn.Module):
    def forward(self, x, y=None):
        of_mean(x)


PRECISION = 1 / 10.0**2 + N / NOISE**2
MEAN, DEVIATION = float(Y.sum()) / NOISE**2 / PRECISION, PRECISION**-0.5


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("guide", [of_mean, GuideModule()])
def test_a_posterior_is_the_closed_form(guide):
    options = {"objective": NestedIWAE(1, samples=20), "epochs": 400, "progress": False, **FALLING}
    result = fit(conjugate, (X, Y), guide=guide, **options)
    learned = result.guides[0].pyro_params
    assert float(learned.loc) == pytest.approx(MEAN, abs=0.2 * DEVIATION)
    assert float(learned.scale.exp()) == pytest.approx(DEVIATION, rel=0.1)
    draws = explain(result, X[:5], draws=300)["posterior"]["mean"].values.ravel()
    assert abs(draws.mean() - MEAN) < 0.2 * DEVIATION + 4 * DEVIATION / math.sqrt(300)
    assert abs(math.log(draws.std() / DEVIATION)) < 0.1 + 4 / math.sqrt(600)


def statements(x, y=None):
    """A selector, slopes and a scale that are stated."""
    logits = pyro.param("logits", torch.zeros(G))
    slope = pyro.param("a.slope", lambda: torch.randn(G))
    return respond_to_kept(x, y, logits, slope, positive("scale"))


class Stated(PyroModule):
    def forward(self, x, y=None):
        return statements(x, y)


class StatedByTorch(nn.Module):
    forward = Stated.forward


class Attributes(PyroModule):
    """The same by parameters of a module."""

    def __init__(self):
        super().__init__()
        self.logits, self.slope = nn.Parameter(torch.zeros(G)), nn.Parameter(torch.randn(G))
        self.scale = PyroParam(torch.tensor(1.0), constraint=constraints.positive)

    def forward(self, x, y=None):
        return respond_to_kept(x, y, self.logits, self.slope, self.scale)


@pytest.mark.parametrize("replicates", [1, 2])
@pytest.mark.parametrize("program", [statements, Stated, StatedByTorch])
def test_the_same_bits_as_parameters_of_a_module(program, replicates):
    options = {**QUICK, "objective": NestedIWAE(3), "weight_decay": 0.0, "replicates": replicates}
    stated = fit(program, (X, SLOPED), **options)
    expected = fit(Attributes, (X, SLOPED), **options)
    assert np.array_equal(stated.history.train, expected.history.train)
    for one, other in zip(stated.models, expected.models, strict=True):
        assert torch.equal(one.pyro_params._parameters["a%2Eslope"], other.slope)
    first, *others = [model.pyro_params.logits for model in stated.models]
    assert not any(torch.equal(first, another) for another in others)


def normal(start):
    def model(x, y=None):
        loc = pyro.param("loc", torch.tensor(0.0))
        scale = pyro.param("scale", torch.tensor(start), constraint=constraints.interval(0.1, 0.6))
        return respond(x, y, loc, scale)

    return model


def test_the_maximum_is_that_of_the_likelihood():
    with pytest.raises(ValueError, match=r"'scale'\) must start from floats inside its constraint"):
        fit(normal(1.0), (X, Y), **QUICK)
    options = {"valid": None, "objective": EXACT, "epochs": 200, "progress": False}
    learned = fit(normal(0.3), (X, Y), **FALLING, **options).model.pyro_params
    # No weight decay moves the mean, and the scale goes to the bound below the rows' deviation.
    assert float(learned.loc) == pytest.approx(float(Y.mean()), abs=0.02)
    assert 0.57 < 0.1 + 0.5 * float(learned.scale.sigmoid()) < 0.6 < float(Y.std())


def test_each_replicate_has_its_own():
    rows = ReplicateData([(X, SLOPED), (X, -SLOPED)])
    result = fit(Stated(), rows, objective=EXACT, valid=None, **{**QUICK, "epochs": 60})
    slopes = [float(model.pyro_params._parameters["a%2Eslope"][0]) for model in result.models]
    assert slopes[0] > 0.5 and slopes[1] < -0.5


def test_one_name_is_one_parameter_in_model_and_guide():
    def model(x, y=None):
        return respond(x, y, pyro.sample("mean", dist.Normal(pyro.param("loc"), 1.0)))

    result = fit(model, (X, Y), guide=of_mean, objective=NestedIWAE(1, samples=2), **QUICK)
    assert result.model.pyro_params is result.guides[0].pyro_params
    assert float(result.model.pyro_params.loc) > 0.1


class Parts(PyroModule):
    """A predictor that states its scale."""

    class Predictor(nn.Module):
        def __init__(self):
            super().__init__()
            self.network = MLP(G, 1, (3,), seed=0)

        def forward(self, x):
            return dist.Normal(self.network(x)[..., 0], positive("width"))

    def __init__(self):
        super().__init__()
        self.selector, self.predictor = MLP(G, G, (3,), seed=1), self.Predictor()

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            z = pyro.sample("mask", dist.Bernoulli(logits=self.selector(x)).to_event(1))
            return pyro.sample("y", self.predictor(x * z), obs=y)


def test_a_part_that_is_called_by_itself_has_what_it_learned():
    result = fit(Parts(), (X, SLOPED), objective=NestedIWAE(2), **QUICK)
    learned = float(result.model.pyro_params.width.exp())
    assert learned != 1.0
    assert float(result.model.predictor(X[:1]).scale) == pytest.approx(learned)


def test_folds_have_their_own():
    result = fit(Parts(), (X, SLOPED), folds=2, objective=NestedIWAE(2), **QUICK)
    assert isinstance(result.model.predictor, CrossFitted)
    one, other = (float(p.pyro_params.width) for p in result.model.predictor.predictors)
    assert one != other and "pyro_params" not in result.model._modules["predictor"]._modules


def test_beside_an_automatic_guide(tmp_path):
    """The guide is built on the model, runs it, and is built again on load."""

    def scaled(x, y=None):
        spread = positive("spread")
        respond(x, y, pyro.sample("mean", dist.Normal(0.0, 10.0)), spread)

    options = {**QUICK, "epochs": 300, "batch_size": N, "objective": EXACT}
    result = fit(scaled, (X, Y), guide=AutoDelta, **options)
    (found,) = [p for name, p in result.model.named_parameters() if name.endswith("spread")]
    assert float(found.exp()) == pytest.approx(float(Y.std()), abs=0.05)
    save(result, tmp_path)
    read = load(tmp_path, model=scaled)
    one, other = (explain(each, X, draws=5)["posterior"]["mean"] for each in (result, read))
    assert np.array_equal(one.values, other.values)


@pytest.mark.parametrize("program", [statements, Stated, Stated()])
def test_saved_and_loaded(tmp_path, program):
    result = fit(program, (X, SLOPED), objective=NestedIWAE(2), replicates=2, **QUICK)
    save(result, tmp_path)
    read = load(tmp_path, model=program)
    before, after = (explain(one, X, SLOPED, draws=3, seed=1) for one in (result, read))
    for name in ("mask", "importance"):
        assert (before["posterior"][name] == after["posterior"][name]).all()
    evidence = [one["sample_stats"]["log_evidence"].values for one in (before, after)]
    assert np.array_equal(*evidence)


def test_resumed_with_the_same_bits(tmp_path):
    class KilledError(Exception):
        """In place of a signal that nothing survives."""

    def killed(epoch):
        if epoch.number == 1:
            raise KilledError

    options = {**QUICK, "objective": NestedIWAE(2), "guide": of_mean}
    whole = fit(conjugate, (X, Y), **options)
    kept = {**options, "checkpoint": Checkpoints(tmp_path, 0)}
    with pytest.raises(KilledError):
        fit(conjugate, (X, Y), training=TrainingOptions(callbacks=[killed]), **kept)
    resumed = fit(conjugate, (X, Y), **kept)
    assert np.array_equal(resumed.history.train, whole.history.train)
    for one, other in zip(resumed.modules[0].parameters(), whole.modules[0].parameters()):  # noqa: B905
        assert torch.equal(one, other)
    refused("another fit", fit, conjugate, (X, Y), **{**kept, "guide": GuideModule()})


def test_replicates_as_draws_and_by_graphs():
    options = {**QUICK, "objective": NestedIWAE(2), "replicates": 3}
    result = fit(statements, (X, SLOPED), **options)
    drawn = explain(result.as_draws(), X, draws=3)["posterior"]["pyro_params.scale"].values[0]
    assert sorted(drawn) == pytest.approx(
        sorted(float(model.pyro_params.scale) for model in result.models)
    )
    options["epochs"] = 20
    result = fit(statements, (X, SLOPED), **options)
    by_graphs = fit(statements, (X, SLOPED), training=TrainingOptions(compile="graph"), **options)
    assert by_graphs.compiled is not None and by_graphs.compiled.traced
    assert np.array_equal(by_graphs.history.train, result.history.train)


def test_chains_are_given_what_is_stated():
    def model(x, y=None):
        width = positive("width", NOISE)
        return respond(x, y, pyro.sample("mean", dist.Normal(0.0, 10.0)), width)

    with pytest.warns(SamplerWarning, match="have no prior"):
        result = fit(model, (X, Y), inference=MCMC(NUTS, samples=60, warmup=60), progress=False)
    means = result.guides[0].sites["mean"]
    assert abs(float(means.mean()) - MEAN) < 5 * DEVIATION / math.sqrt(20)
    assert float(result.model.pyro_params.width.exp()) == pytest.approx(NOISE)


def test_a_term_with_modules_of_its_own_learns_them_too():
    model = Parts()
    stage = Stage([LossTerm(model, NestedIWAE(2), learns=[model.selector])])
    result = fit(None, (X, SLOPED), stages=[stage], **QUICK)
    assert float(result.model.pyro_params.width) != 0.0
    for one, other in zip(result.model.predictor.parameters(), model.predictor.parameters()):  # noqa: B905
        assert torch.equal(one, other)


def test_pyros_own_inference_goes_on_from_a_fit():
    result = fit(conjugate, (X, Y), guide=of_mean, objective=NestedIWAE(1, samples=2), **QUICK)
    guide, before = result.guides[0], float(result.guides[0].pyro_params.loc)
    svi = SVI(result.model, guide, pyro.optim.Adam({"lr": 0.1}), Trace_ELBO())
    for _ in range(5):
        svi.step(X, Y)
    assert float(guide.pyro_params.loc) > before + 0.1


def test_a_program_that_pyro_has_trained_is_explained_as_it_is():
    program = Stated()
    pyro.get_param_store().setdefault("logits", torch.full((G,), 9.0))
    try:
        shown = explain(program, X, draws=0)["sample_stats"]["selection_probability"].values
    finally:
        del pyro.get_param_store()["logits"]
    assert shown.min() > 0.99


# -- what cannot be learned


EACH = torch.zeros(20, G)


def for_each_row(start):
    def program(x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            logits = pyro.param("each", EACH if start == "given" else torch.zeros(len(x), G))
            pyro.sample("mask", dist.Bernoulli(logits=logits).to_event(1))

    return program


of_rows, of_given_rows = for_each_row("new"), for_each_row("given")


def hidden(x, y=None):
    with pyro.poutine.block():
        loc = pyro.param("loc", torch.tensor(0.0))
    pyro.sample("mean", dist.Normal(loc, 1.0))


def in_a_branch(x, y=None):
    of_mean(x)
    if torch.is_grad_enabled():
        pyro.param("late", torch.tensor(0.0))


def whole_numbers(x, y=None):
    pyro.sample("mean", dist.Normal(pyro.param("loc", torch.tensor(0)), 1.0))


CLOSED_OVER = nn.Linear(G, 1)


def surrounding(x, y=None):
    pyro.module("net", CLOSED_OVER)
    shift = pyro.param("shift", torch.tensor(0.0))
    pyro.sample("mean", dist.Normal(CLOSED_OVER(x).mean() + shift, 1.0))


def guided(guide):
    model = Parts() if guide in (of_rows, of_given_rows) else conjugate
    fit(model, (X, Y), guide=guide, objective=NestedIWAE(1, samples=2), valid=None, **QUICK)


test_refused_before_any_step = refusals(
    (of_rows, r"pyro.param\('each'\) has a value for each of the 20 rows.*compute it from x"),
    (of_given_rows, r"pyro.param\('each'\) has a value for each of the 20 rows"),
    (hidden, r"pyro.param\('loc'\) is hidden from the fit by a handler.*block\(hide="),
    (in_a_branch, r"pyro.param\('late'\) was not stated when the fit began"),
    (whole_numbers, r"pyro.param\('loc'\) must start from floats"),
    (surrounding, r"parameter of shape \(1, 2\) that neither model nor guide holds"),
    of=guided,
)
