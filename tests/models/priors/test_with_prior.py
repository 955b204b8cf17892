"""Weights with priors: one latent for all rows, its density, its posterior, what is refused."""

import copy
import json
import pickle

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer.autoguide import AutoDelta, AutoNormal
from pyro.nn import PyroModule, PyroParam
from torch import nn

from lexppl import explain, fit, load, save
from lexppl.explanation.reading.masks import masks_of
from lexppl.inference import Linear, NestedIWAE, Unscored
from lexppl.inference.contexts import keep_parameters_local, program_settings
from lexppl.models import (
    LEX,
    MLP,
    CategoricalLikelihood,
    ConstantImputer,
    KSubsetSelector,
    NormalLikelihood,
    Predictor,
    frozen,
    with_prior,
)
from lexppl.models.priors import weight_priors, written_class
from lexppl.models.selectors import RandomSelector
from lexppl.saving.description import describe, rebuild
from lexppl.systems import base_x, invase, l2x, lex, rationale, real_x, vibi
from tests.refusals import refusals, refused

NORMAL = dist.Normal(0.0, 1.0)
SMALL = {"hidden": (3,), "predictor_hidden": (3,)}
X = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


def program(prior=NORMAL, **words):
    return lex(2, **{"classes": 2, "k": 1, "prior": prior, **SMALL, **words}).program()


def traced(model, *rows):
    keep_parameters_local(model)
    with torch.random.fork_rng(), program_settings(validate=True):
        return pyro.poutine.trace(model).get_trace(*rows)


def latents(model, *rows):
    trace = traced(model, *rows)
    return {
        name: node
        for name, node in trace.nodes.items()
        if node["type"] == "sample" and not node["is_observed"]
    }


def drawn(model, *rows):
    return [n for n in latents(model, *rows) if n.endswith(("weight", "bias", "log_scale"))]


def guide_of(model, kind=AutoNormal):
    return kind(pyro.poutine.block(model, hide=["mask", "x_imputed"]))


def quick(model, **words):
    return fit(model, (X, Y), **{"epochs": 2, "progress": False, **words})


def keeping_all(predictor):
    return LEX(RandomSelector(2, rate=1.0), ConstantImputer(), predictor)


# What it is


def test_the_density_is_prior_times_likelihood():
    """Against the plain network with the drawn weights in it."""
    plain = keeping_all(Predictor(MLP(2, 2, (3,), seed=0), CategoricalLikelihood())).double()
    prior = {"predictor.network.layers.0": dist.Laplace(0.3, 2.0), "predictor": NORMAL}
    model = with_prior(plain, prior)
    x, y = X.double(), Y
    trace = traced(model, x, y)
    weights = {
        n: node["value"]
        for n, node in trace.nodes.items()
        if node["type"] == "sample" and n.startswith("predictor.")
    }
    assert len(weights) == 4
    assert not plain.load_state_dict(weights, strict=False).unexpected_keys
    likelihood = traced(plain, x, y).log_prob_sum()
    expected = likelihood + sum(
        (dist.Laplace(0.3, 2.0) if ".0." in name else NORMAL).log_prob(value).sum()
        for name, value in weights.items()
    )
    assert float(trace.log_prob_sum()) == pytest.approx(float(expected.detach()), rel=1e-6)


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("scale", [0.1, 0.3])
def test_the_mode_is_ridge_regression(scale):
    """A linear predictor of all features with noise s: (XᵀX / s² + I / scale²)⁻¹ Xᵀy / s²."""
    x = X.double()
    y = x @ torch.tensor([1.0, -2.0]).double() + 0.5 * X[:, 1].double().sin()
    likelihood = NormalLikelihood(0.5, learn_scale=False)
    linear = keeping_all(Predictor(nn.Linear(2, 1, bias=False), likelihood)).double()
    model = with_prior(linear, dist.Normal(0.0, scale))
    options = {"objective": NestedIWAE(1, estimator=Unscored()), "batch_size": 40, "epochs": 300}
    options |= {"learning_rate": Linear(0.05, 1e-4, begin=0.3), "progress": False}
    result = fit(model, (x, y), valid=None, guide=guide_of(model, AutoDelta), **options)
    found = result.guides[0].predictor.network.weight.detach()[0]

    def ridge(scale):
        precision = x.T @ x / 0.25 + torch.eye(2).double() / scale**2
        return torch.linalg.solve(precision, x.T @ y / 0.25)

    assert float((found - ridge(scale)).abs().max()) < 1e-3
    assert float((found - ridge(1.5 * scale)).abs().max()) > 1e-2


# Which weights


@pytest.mark.parametrize(
    ("system", "count", "folds"),
    [
        (lex(2, classes=2, prior=NORMAL, **SMALL), 8, 1),
        (lex(2, classes=None, prior=NORMAL, **SMALL), 8, 1),
        (lex(2, classes=2, prior={"selector": NORMAL}, **SMALL), 4, 2),
        (vibi(2, classes=2, k=1, prior=NORMAL, **SMALL), 8, 1),
        (rationale(2, classes=2, prior=NORMAL, **SMALL), 8, 1),
        (base_x(2, classes=2, prior={"predictor": NORMAL}, **SMALL), 4, 1),
        (real_x(2, classes=2, prior=NORMAL, **SMALL), 4, 1),
        (l2x(2, classes=2, k=1, prior={"selector": NORMAL}, **SMALL), 4, 1),
        (invase(2, classes=2, prior={"selector": NORMAL}, **SMALL), 4, 1),
    ],
)
def test_factories_give_their_networks_priors(system, count, folds):
    real = isinstance(system.program().predictor.likelihood, NormalLikelihood)
    y = X[:, 0] if real else Y
    assert len(drawn(system.program(), X, y)) == count
    assert system.folds == folds


def test_a_function_chooses_by_name():
    def selects(name, weight):
        return dist.Normal(0.0, weight.dim()) if name.startswith("selector") else None

    system = lex(2, classes=2, k=1, prior=selects, **SMALL)
    assert system.folds == 2
    found = weight_priors(system.program())
    assert {name.split(".")[0] for name in found} == {"selector"}
    assert found["selector.network.layers.0.weight"]["config"]["scale"] == 2.0


def test_frozen_weights_stay():
    given = frozen(Predictor(MLP(2, 2, (3,), seed=0), CategoricalLikelihood()))
    assert len(drawn(program(predictor=given), X, Y)) == 4
    with pytest.raises(ValueError, match=r"'predictor'.*no weight that is learned"):
        program({"predictor": NORMAL}, predictor=given)


@pytest.mark.smoke
@pytest.mark.parametrize(
    "network",
    [
        nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)),
        nn.LSTM(2, 3, batch_first=True),
        nn.MultiheadAttention(2, 1, batch_first=True),
        nn.Conv1d(2, 3, 1),
    ],
    ids=lambda network: type(network).__name__,
)
def test_any_module_is_that_module_with_the_drawn_weights(network):
    drawing = with_prior(network, NORMAL)
    rows = torch.randn(4, 2, 2, generator=torch.Generator().manual_seed(3))
    args = (rows, rows, rows) if isinstance(network, nn.MultiheadAttention) else (rows,)
    trace = traced(drawing, *args)
    values = {n: v["value"] for n, v in trace.nodes.items() if v["type"] == "sample"}
    assert set(values) == {n for n, _ in network.named_parameters()}
    found = trace.nodes["_RETURN"]["value"]
    expected = torch.func.functional_call(network, values, args)
    found, expected = (v if isinstance(v, torch.Tensor) else v[0] for v in (found, expected))
    assert torch.allclose(found, expected, atol=1e-6)


# Fits, files


@pytest.mark.parametrize("replicates", [1, 2])
def test_a_fit_and_its_files(tmp_path, replicates):
    model = program({"selector": NORMAL, "predictor": dist.StudentT(3.0, 0.0, 1.0)})
    guide = guide_of(model)
    result = quick(model, guide=guide, replicates=replicates)
    save(result, tmp_path)
    again = load(tmp_path, guide=lambda: copy.deepcopy(guide))
    assert written_class(again.model.selector) is KSubsetSelector
    assert weight_priors(again.model) == weight_priors(model)
    means = [masks_of(explain(r, X[:4], draws=3))["mask"] for r in (result, again)]
    assert (means[0].values == means[1].values).all()


def test_the_description_is_json_and_is_built_again():
    model = program({"selector": dist.HalfCauchy(2.0), "predictor": NORMAL})
    described = json.loads(json.dumps(describe(model)))
    assert described["module"]["config"]["selector"]["part"] == "KSubsetSelector"
    assert describe(rebuild(described)) == described
    described["prior"]["selector.network.layers.0.bias"]["distribution"] = "Evil"
    refused("'Evil', none of", rebuild, described)


# What is refused


IMPROPER = dist.ImproperUniform(dist.constraints.real, (), ())


test_a_prior_that_is_none_is_refused = refusals(
    (dist.Normal, TypeError, "must be a distribution.*it is the class Normal"),
    (1.0, TypeError, "must be a distribution.*it is float"),
    ("normal", TypeError, "it is str"),
    (None, TypeError, "it is NoneType"),
    (dist.Bernoulli(0.5), TypeError, "is Bernoulli; a prior of weights is one of"),
    (dist.Delta(torch.tensor(0.0)), TypeError, "is Delta; a prior of weights is one of"),
    (IMPROPER, TypeError, "is ImproperUniform; a prior of weights is one of"),
    (dist.Normal(0.0, float("inf")), "scale inf"),
    (dist.Normal(0.0, -1.0, validate_args=False), "scale -1"),
    (dist.Uniform(1.0, 0.0, validate_args=False), "Uniform with low 1.0"),
    (dist.Normal(torch.zeros(3), 1.0), r"of shape \(3,\), and the weight"),
    (dist.Dirichlet(torch.ones(4)), r"Dirichlet of shape \(4,\)"),
    (dist.Normal(torch.zeros((), requires_grad=True), 1.0), "requires a gradient"),
    ({}, "names no part"),
    ({"selektor": NORMAL}, r"names 'selektor'.*there are some in \['layers'\]"),
    (lambda name, weight: None, "gives no weight"),
    (lambda name, weight: 2.0, TypeError, "'layers.0.weight' must be a distribution"),
    of=lambda prior: with_prior(MLP(2, 1, (3,)), prior),
)


def test_networks_that_cannot_have_one_are_refused():
    refused(r"'norms.0' is a batch norm", with_prior, MLP(2, 1, (3,), batch_norm=True), NORMAL)
    for factory in (l2x, invase):
        with pytest.raises(ValueError, match=r"'predictor.network.norms.0' is a batch norm"):
            factory(2, classes=2, prior=NORMAL, **({"k": 1} if factory is l2x else {}))
    tied = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    tied[1].weight = tied[0].weight
    refused(r"'0.weight' and '1.weight' are one parameter", with_prior, tied, NORMAL)
    constrained = PyroModule()
    constrained.scale = PyroParam(torch.ones(2), dist.constraints.positive)
    refused(r"'scale' is a constrained parameter", with_prior, constrained, NORMAL)
    parametrised = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    refused("parametrised weight", with_prior, parametrised, NORMAL)
    refused("takes a torch module", with_prior, print, NORMAL, error=TypeError)


def test_a_predictor_fitted_by_itself_has_none():
    with pytest.raises(ValueError, match=r"names \['predictor'\]; .* \['selector'\]"):
        real_x(2, classes=2, prior={"predictor": NORMAL})


@pytest.mark.parametrize("prior", [NORMAL, {"selector": NORMAL}])
def test_without_a_guide_a_fit_is_refused(prior):
    match = r"'selector.network.layers.0.weight' \(and \d+ more\).*no guide.*guide=AutoNormal"
    for model in (program(prior), lex(2, classes=2, k=1, prior=prior, **SMALL)):
        refused(match, quick, model)


def test_copies_have_priors_of_their_own():
    first = with_prior(nn.Linear(2, 1), NORMAL)
    second = copy.deepcopy(first)
    second.weight_prior_scale.fill_(50.0)
    for layer, scale in ((first, 1.0), (second, 50.0), (pickle.loads(pickle.dumps(second)), 50.0)):
        assert float(latents(layer, X)["weight"]["fn"].base_dist.scale.max()) == scale
