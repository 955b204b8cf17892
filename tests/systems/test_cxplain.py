"""CXPlain: its targets by plain loops, its objective, and ensembles."""

import numpy as np
import pytest
import torch
from torch import nn

from lexppl import explain, fit, load, save
from lexppl.inference import NestedIWAE, ScoreFunction
from lexppl.models import ConstantImputer, Grouping, MarginalImputer
from lexppl.systems import cxplain, cxplain_targets
from lexppl.systems.cxplain import CXPlain
from tests.refusals import refusals, refused_before_any_step
from tests.systems.discrete import gradients_of, interacting, minimise, stages_of

X = torch.randn(40, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
LABELS = (X[:, 0] > 0).long() + (X[:, 1] > 0.5).long()
PROBABILITIES = torch.softmax(X[:, :3], -1)
RESPONSE = X[:, 0] * 2.0 - X[:, 2]


def predictor(classes):
    return interacting(4, classes)


def targets_by_hand(model, y, groups=(0, 1, 2, 3), hidden=0.0):
    """Schwab and Karlen 2019, eqs. 1 to 4, a row and an entry at a time."""

    def loss(x, of):
        outputs = model.network(x[None])[0].detach()
        if of.is_floating_point() and of.dim() == 0:
            return float((of - outputs[0]).square())
        log_p = outputs.log_softmax(-1)
        return float(-(of * log_p).sum() if of.dim() else -log_p[of])

    shares = []
    for x, of in zip(X, y, strict=True):
        costs = []
        for entry in range(max(groups) + 1):
            without = x.clone()
            for feature, group in enumerate(groups):
                if group == entry:
                    without[feature] = hidden
            costs.append(max(loss(without, of) - loss(x, of), 0.0))
        total = sum(costs)
        shares.append([c / total if total else 1 / len(costs) for c in costs])
    return torch.tensor(shares, dtype=torch.float64)


@pytest.mark.parametrize("groups", [(0, 1, 2, 3), (0, 1, 0, 2)])
@pytest.mark.parametrize(
    ("classes", "y"),
    [(3, LABELS), (3, PROBABILITIES), (None, RESPONSE)],
    ids=["labels", "black box", "response"],
)
def test_targets_are_the_papers(classes, y, groups):
    model = predictor(classes)
    grouping = Grouping(groups)
    imputer = ConstantImputer(torch.tensor(0.25, dtype=torch.float64))
    found = cxplain_targets(model, X, y, grouping=grouping, imputer=imputer)
    exact = targets_by_hand(model, y, groups, 0.25)
    assert found.dtype == torch.float64
    assert (found - exact).abs().max() < 1e-9
    assert (found.sum(-1) - 1).abs().max() < 1e-12
    # Some rows have entries whose absence helps, which cost nothing.
    assert bool((found == 0).any())
    # Negative control: zeros in place of the constant.
    assert (targets_by_hand(model, y, groups) - exact).abs().max() > 1e-2


def test_rows_in_which_no_absence_costs_anything_have_equal_shares():
    def model(rows):
        return 1.0 / (1.0 + np.exp(-3.0 * rows[:, 0]))

    x = torch.tensor([[1.0, 5.0, -2.0], [1.0, 5.0, -2.0]])
    found = cxplain_targets(model, x, torch.tensor([1, 0]))
    assert torch.equal(found[0], torch.tensor([1.0, 0.0, 0.0]))
    assert torch.equal(found[1], torch.full((3,), 1 / 3))


def test_the_loss_is_the_divergence_and_the_entropy_of_the_targets():
    shares = cxplain_targets(predictor(3), X, LABELS)
    term = stages_of(cxplain(4, hidden=(6,)))[0].terms[0]
    ours = term.objective.differentiable_loss(term.model, None, X, shares)
    log_told = term.model.network(X).log_softmax(-1)
    divergence = torch.special.xlogy(shares, shares) - shares * log_told
    entropy = -torch.special.xlogy(shares, shares).sum()
    exact = divergence.sum()
    assert float(ours.detach()) == pytest.approx(float((exact + entropy).detach()), abs=1e-9)
    difference = gradients_of(ours, term.model) - gradients_of(exact, term.model)
    assert difference.abs().max() < 1e-9
    # Negative control: the divergence the other way has another gradient.
    other = (log_told.exp() * (log_told - shares.clamp(min=1e-3).log())).sum()
    difference = gradients_of(other, term.model) - gradients_of(exact, term.model)
    assert difference.abs().max() > 1e-2


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(40, 4, dtype=torch.float64))

    def forward(self, x):
        return self.logits


@pytest.mark.smoke
def test_its_minimum_is_the_targets():
    shares = cxplain_targets(predictor(3), X, PROBABILITIES)
    shares = (shares + 0.01) / (1 + 4 * 0.01)  # so that the minimum is not at infinity
    program = CXPlain(Table())
    objective = NestedIWAE(1, estimator=ScoreFunction())
    minimise(program, lambda: objective.differentiable_loss(program, None, X, shares))
    assert (program(X)[0] - shares).abs().max() < 1e-6


def test_an_ensemble_is_fitted_explained_saved_and_loaded(tmp_path):
    x = torch.randn(600, 4, generator=torch.Generator().manual_seed(0))

    def model(rows):
        return 1.0 / (1.0 + np.exp(-4.0 * np.where(rows[:, 0] > 0, rows[:, 1], rows[:, 2])))

    labels = torch.as_tensor(model(x.numpy()) > 0.5).long()
    shares = cxplain_targets(model, x, labels)
    system = cxplain(4, hidden=(32,))
    options = {"batch_size": 50, "learning_rate": 1e-2, "replicates": 4, "progress": False}
    result = fit(system, (x, shares), epochs=25, **options)
    posterior = explain(result, x, draws=2)
    found = posterior["sample_stats"]["mask_mean"].values
    assert found.shape == (4, 600, 4)
    first = x[:, 0] > 0.5
    assert (found[:, first, 1] - found[:, first, 2]).mean() > 0.4
    second = x[:, 0] < -0.5
    assert (found[:, second, 2] - found[:, second, 1]).mean() > 0.4
    assert np.ptp(found, axis=0).max() > 0.05
    save(result, tmp_path / "explainer")
    again = explain(load(tmp_path / "explainer"), x, draws=2)
    assert again["predictions"].equals(posterior["predictions"])
    # Shares that are functions of x are the same given y, which is observed as `entry`.
    given_y = explain(result, x, shares, draws=2)["sample_stats"]["mask_mean_given_y"].values
    np.testing.assert_allclose(given_y, found, atol=1e-6)


def targets_of(options):
    given = {"model": predictor(3), "x": X, "y": LABELS, **options}
    return cxplain_targets(*[given.pop(name) for name in ("model", "x", "y")], **given)


test_bad_targets_are_refused = refusals(
    ({"x": X[0]}, r"x must have shape \(N, \*event\)"),
    ({"y": LABELS[:5]}, r"of shape \(5,\)"),
    ({"y": LABELS + 1}, "y must hold labels 0 to 2.*from 1 to 3"),
    ({"y": RESPONSE}, r"shape \(40,\).* it is torch.float64"),
    ({"y": PROBABILITIES[:, :2]}, r"of shape \(40, 2\)"),
    ({"y": PROBABILITIES / 0.0}, "y must be finite"),
    ({"y": LABELS.numpy()}, TypeError, "y must be a torch.Tensor; it is a ndarray"),
    ({"model": predictor(None), "y": PROBABILITIES}, r"must have shape \(40,\)"),
    ({"grouping": Grouping([0, 1])}, "the grouping is of rows"),
    ({"imputer": MarginalImputer(X)}, TypeError, "a ConstantImputer.*it is MarginalImputer"),
    ({"model": 3.0}, TypeError, "a black box must be"),
    of=targets_of,
)


@pytest.mark.parametrize(("y", "shape"), [(LABELS, r"\(32,\)"), (PROBABILITIES, r"\(32, 3\)")])
def test_what_are_no_shares_is_refused_before_any_step(y, shape):
    y = y.float() if y.is_floating_point() else y
    message = rf"\(32, 4\), as cxplain_targets gives them; .* is {shape}"
    refused_before_any_step(message, cxplain(4), (X.float(), y))
