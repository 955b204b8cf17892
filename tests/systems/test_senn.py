"""SENN: its loss and gradient by plain loops of autograd, and what it says of itself."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from lexppl import explain, fit
from lexppl.inference.contexts import seeded
from lexppl.inference.objective.program import ParticleProgram
from lexppl.models import MLP, CategoricalLikelihood, Grouping, NormalLikelihood
from lexppl.systems import senn, system_for
from lexppl.systems.senn import SENN
from tests.refusals import refused
from tests.systems.discrete import gradients_of, stages_of

X = torch.randn(5, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
LABELS = torch.tensor([0, 1, 1, 0, 2])
PROBABILITIES = torch.softmax(X @ torch.arange(9.0).double().reshape(3, 3) / 4, -1)
RESPONSE = X[:, 0] * 2.0 - 1.0


def settled(classes, robustness, activation="tanh"):
    system = senn(3, classes=classes, robustness=robustness, hidden=(6,), activation=activation)
    term = stages_of(system)[0].terms[0]
    with torch.no_grad():
        term.model.intercept.copy_(torch.linspace(-0.3, 0.4, term.model.outputs))
        for parameter in term.model.network.parameters():
            parameter.mul_(2.0)
    return term


def loss_by_hand(program, y, robustness, square=True):
    """−log p(y | f(x)) + λ Σ_c ‖∇_x f_c(x) − θ_c(x)‖², a row and a class at a time."""
    total = 0.0
    for row, x in enumerate(X):
        x = x.clone().requires_grad_()
        theta = program.network(x[None]).reshape(program.outputs, 3)
        f = theta @ x + program.intercept
        for c in range(program.outputs):
            (slope,) = torch.autograd.grad(f[c], x, create_graph=True)
            distance = (slope - theta[c]).square().sum()
            total = total + robustness * (distance if square else distance.sqrt())
        if y.dim() == 2:
            total = total - (y[row] * f.log_softmax(-1)).sum()
        elif y.is_floating_point():
            scale = program.likelihood.log_scale.exp()
            total = total - torch.distributions.Normal(f[0], scale).log_prob(y[row])
        else:
            total = total + cross_entropy(f[None], y[row : row + 1])
    return total


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize(
    ("classes", "y"),
    [(3, LABELS), (3, PROBABILITIES), (None, RESPONSE)],
    ids=["labels", "black box", "response"],
)
def test_the_loss_and_its_gradient_are_the_papers(classes, y, activation):
    term = settled(classes, 0.7, activation)
    ours = term.objective.differentiable_loss(term.model, None, X, y)
    exact = loss_by_hand(term.model, y, 0.7)
    assert float(ours.detach()) == pytest.approx(float(exact.detach()), abs=1e-10)
    difference = gradients_of(ours, term.model) - gradients_of(exact, term.model)
    assert difference.abs().max() < 1e-10
    # Negative controls: the norm unsquared, and no penalty, are other losses.
    for other in (loss_by_hand(term.model, y, 0.7, square=False), loss_by_hand(term.model, y, 0.0)):
        assert abs(float(other.detach()) - float(exact.detach())) > 1e-3


def test_a_linear_model_has_no_penalty():
    term = settled(3, 1.0)
    with torch.no_grad():
        term.model.network.layers[0].weight.zero_()
    assert term.model.unsteadiness(X).abs().max() < 1e-14


def test_attributions_add_up_to_the_likeliest_logit():
    program = settled(3, 0.1).model
    grouped = SENN(program.network, program.likelihood, 3, grouping=Grouping([0, 1, 0])).double()
    grouped.load_state_dict(program.state_dict())
    f = program.outputs_of(X)
    found = {}
    for name, one in (("features", program), ("groups", grouped)):
        distribution = ParticleProgram(one, None, (X,)).run().sites["mask"].distribution
        assert not distribution.mean.requires_grad  # nothing is learned through what is read off
        found[name] = distribution.mean[0]
        top = f.argmax(-1)
        total = found[name].sum(-1) + program.intercept[top]
        assert (total - f.gather(1, top[:, None]).squeeze(1)).abs().max() < 1e-12
    theta = program.network(X).reshape(5, 3, 3)
    for row in range(5):
        by_hand = theta[row, f[row].argmax()] * X[row]
        assert (found["features"][row] - by_hand).abs().max() < 1e-12
    pairs = found["features"][:, [0, 1]] + torch.stack([found["features"][:, 2], 0 * X[:, 0]], -1)
    assert (found["groups"] - pairs).abs().max() < 1e-12
    assert len({int(c) for c in f.argmax(-1)}) > 1


@pytest.mark.parametrize("classes", [3, None])
def test_an_explanation_has_attributions_by_group_and_its_own_evidence(classes):
    x = torch.randn(90, 3, generator=torch.Generator().manual_seed(0))
    y = x[:, 0] if classes is None else (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    settings = dict(features=3, classes=classes, grouping=Grouping([0, 0, 1]), hidden=(6,))
    result = fit(
        system_for("senn", settings), (x, y), epochs=2, replicates=2, batch_size=30, progress=False
    )
    assert result.collapse == [None, None]  # attributions are no selection probabilities
    posterior = explain(result, x[:5], y[:5], draws=3)
    assert posterior["sample_stats"]["attribution"].shape == (2, 5, 2)
    distribution = result.models[1].likelihood(result.models[1].outputs_of(x[:5]))
    log_likelihood = posterior["sample_stats"]["log_evidence"].values[1]
    assert log_likelihood == pytest.approx(distribution.log_prob(y[:5]).detach().numpy(), abs=1e-6)


def test_bad_parts_and_data_are_refused():
    with seeded(0):
        network = MLP(3, 6, (4,))
    with pytest.raises(ValueError, match="outputs must be a whole number of at least 1; it is 0"):
        SENN(network, CategoricalLikelihood(), 0)
    with pytest.raises(TypeError, match="likelihood must be a Likelihood; it is Linear"):
        SENN(network, nn.Linear(1, 1), 2)
    refused("a response has one output; outputs is 2", SENN, network, NormalLikelihood(), 2)
    with pytest.raises(ValueError, match=r"coefficients .* \(…, 9\), of 3 outputs and 3 features"):
        SENN(network, CategoricalLikelihood(), 3).coefficients(torch.zeros(2, 3))
    for bad in (-0.1, float("nan")):
        with pytest.raises(ValueError, match="robustness must be a finite number of at least 0"):
            senn(3, classes=2, robustness=bad).build()
