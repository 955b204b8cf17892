"""FastSHAP: its loss by summing over all coalitions, its minimum, and what it is fitted to."""

import math
from itertools import permutations, product

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import kl_div

from lexppl import explain, fit
from lexppl.inference import NestedIWAE, ScoreFunction
from lexppl.inference.contexts import seeded
from lexppl.inference.objective.program import ParticleProgram
from lexppl.models import LEX, ConstantImputer, Grouping, MarginalImputer
from lexppl.models.predictor import table_predictor
from lexppl.systems import fastshap, system_for
from lexppl.systems.fastshap import FastSHAP, TeacherTargets
from tests.gradients.enumeration import threshold, z_scores
from tests.refusals import refusals, refused_before_any_step
from tests.systems.discrete import interacting, minimise, stages_of

ROWS = 3
X = torch.randn(ROWS, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
Y = torch.tensor([2, 0, 1])
ONE_A_FEATURE = [0, 1, 2, 3]
CASES = {
    "one player a feature": (ONE_A_FEATURE, 3, 0.0),
    "two features a player": ([0, 1, 1, 2], 2, 0.5),
    "response": (ONE_A_FEATURE, None, -0.3),
}


class Table(nn.Module):
    """What a network of unlimited size would say of a few rows: a number for each."""

    def __init__(self, outputs):
        super().__init__()
        start = torch.randn(ROWS, outputs, generator=torch.Generator().manual_seed(5))
        self.values = nn.Parameter(start.double())

    def forward(self, x):
        return self.values


class Game:
    """A program over a table, and its game by plain loops."""

    def __init__(self, groups, classes, hidden):
        self.groups, self.entries, self.hidden = groups, max(groups) + 1, hidden
        self.outputs = classes or 1
        self.surrogate = interacting(4, classes)
        self.network = Table(self.outputs * self.entries)
        self.program = FastSHAP(
            self.network,
            self.surrogate,
            self.entries,
            classes,
            ConstantImputer(torch.tensor(hidden, dtype=torch.float64)),
            Grouping(groups),
        )
        self.y = Y.double() if classes is None else Y % classes
        self.coalitions = list(product((0, 1), repeat=self.entries))
        self.value = {s: self.value_of(s) for s in self.coalitions}
        none, everything = (0,) * self.entries, (1,) * self.entries
        self.none, self.everything = self.value[none], self.value[everything]
        self.proper = [s for s in self.coalitions if s not in (none, everything)]

    def value_of(self, coalition):
        """v(S) for all rows, `(B, C)`."""
        keep = torch.tensor([bool(coalition[g]) for g in self.groups])
        outputs = self.surrogate.network(torch.where(keep, X, self.hidden)).detach()
        return outputs.softmax(-1) if self.outputs > 1 else outputs

    def kernel(self, coalition):
        s = sum(coalition)
        return (self.entries - 1) / (math.comb(self.entries, s) * s * (self.entries - s))

    def phi(self):
        phi = self.network.values.reshape(ROWS, self.outputs, self.entries)
        return phi + (self.everything - self.none - phi.sum(-1)).unsqueeze(-1) / self.entries

    def loss(self, weight=None):
        """The paper's expected loss, the mean over classes, summed over rows."""
        weight = self.kernel if weight is None else weight
        total = sum(weight(s) for s in self.proper)
        loss = 0.0
        for s in self.proper:
            fitted = self.none + (self.phi() * torch.tensor(s)).sum(-1)
            loss = loss + weight(s) / total * (self.value[s] - fitted).square().mean(-1)
        return loss.sum()

    def shapley(self):
        """By the definition: what a player adds, on average over all orders of joining."""
        phi = torch.zeros(ROWS, self.outputs, self.entries, dtype=torch.float64)
        orders = list(permutations(range(self.entries)))
        for order in orders:
            joined = [0] * self.entries
            for player in order:
                before = self.value[tuple(joined)]
                joined[player] = 1
                phi[..., player] += (self.value[tuple(joined)] - before) / len(orders)
        return phi

    def log_likelihood(self):
        distribution = self.surrogate(X)
        return distribution.log_prob(self.y).sum().detach()

    def exact(self):
        """The program's own loss, with every coalition in place of draws."""
        masks = torch.tensor(self.proper, dtype=torch.float64)

        def draw(site):
            if site.name != "coalition":
                return None
            return masks.unsqueeze(1).expand(*site.distribution.batch_shape, self.entries)

        run = ParticleProgram(self.program, None, (X, self.y)).run(len(masks), draw=draw)
        probability = run.sites["coalition"].log_prob().exp()
        assert probability.sum(0).detach().numpy() == pytest.approx(np.ones(ROWS))
        (misfit,) = [-site.log_prob() for site in run.sites.values() if site.is_penalty]
        return (probability * misfit).sum()

    def sampled(self, samples):
        """The loss as fit has it, less what does not depend on φ."""
        objective = NestedIWAE(1, samples=samples, estimator=ScoreFunction())
        loss = objective.differentiable_loss(self.program, None, X, self.y)
        return loss + self.log_likelihood()


@pytest.mark.complete(but=2)
@pytest.mark.parametrize("case", CASES)
def test_the_loss_is_the_papers_summed_over_all_coalitions(case):
    game = Game(*CASES[case])
    assert float(game.exact().detach()) == pytest.approx(float(game.loss().detach()), abs=1e-12)
    game.surrogate.requires_grad_(False)
    values = torch.stack([game.sampled(20) for _ in range(50)]).detach()[:, None]
    exact = game.loss().detach()[None]
    assert z_scores(values, exact).abs().max() < threshold(1)


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("case", CASES)
def test_the_gradient_is_that_of_the_exact_loss(case):
    """And, as a negative control, not that of a kernel that prefers pairs of players. (Of three
    players a distribution that is symmetric in S and its complement is the Shapley kernel.)"""
    game = Game(*CASES[case])

    def gradient(value):
        return torch.autograd.grad(value, game.network.values)[0].flatten()

    draws = torch.stack([gradient(game.sampled(50)) for _ in range(60)])
    limit = threshold(draws.shape[1])
    assert z_scores(draws, gradient(game.loss())).abs().max() < limit
    if game.entries == 3:
        return
    wrong = gradient(game.loss(weight=lambda s: 20.0 if sum(s) == 2 else 1.0))
    assert z_scores(draws, wrong).abs().max() > 2 * limit


@pytest.mark.smoke
@pytest.mark.parametrize("case", CASES)
def test_its_minimum_holds_the_shapley_values(case):
    game = Game(*CASES[case])
    minimise(game.network, game.exact)
    exact = game.shapley()
    found = game.program.attributions(X).detach()
    assert (found - exact).abs().max() < 1e-7
    gap = game.everything - game.none - exact.sum(-1)
    assert gap.abs().max() < 1e-12
    site = ParticleProgram(game.program, None, (X,)).run().sites["mask"]
    likeliest = game.everything.argmax(-1)
    assert (site.distribution.mean[0] - exact[torch.arange(ROWS), likeliest]).abs().max() < 1e-7


@pytest.mark.parametrize("case", ["one player a feature", "response"])
def test_another_kernel_has_another_minimum(case):
    """Negative controls. With three players any kernel symmetric in S and its complement has the
    Shapley values as its minimum, so that there must be four."""
    game = Game(*CASES[case])
    minimise(game.network, lambda: game.loss(weight=lambda s: 1.0))
    assert (game.phi().detach() - game.shapley()).abs().max() > 1e-3


def test_the_surrogate_is_fitted_to_the_models_output_under_masks_of_any_size():
    with seeded(4):
        model = table_predictor(3, 2, (4,)).double()
    rows, labels = X[:, :3], Y % 2
    system = fastshap(3, classes=2, black_box=model, predictor_hidden=(4,), surrogate_samples=50)
    term = stages_of(system)[0].terms[0]
    assert isinstance(term.model, TeacherTargets)
    assert isinstance(term.model.program, LEX)
    surrogate = term.model.program.predictor
    assert set(term.learns) == {surrogate}
    told = model(rows).probs.detach()
    exact = 0.0
    for s in product((0.0, 1.0), repeat=3):
        probability = 1 / (4 * math.comb(3, int(sum(s))))
        log_q = surrogate.network(rows * torch.tensor(s)).log_softmax(-1)
        exact = exact + probability * kl_div(log_q, told, reduction="sum")
    entropy = -(told * told.log()).sum()
    weights = list(surrogate.parameters())

    def flat(value):
        return torch.cat([g.flatten() for g in torch.autograd.grad(value, weights)])

    losses, gradients = [], []
    for _ in range(60):
        loss = term.objective.differentiable_loss(term.model, None, rows, labels)
        losses.append(loss.detach() - entropy)
        gradients.append(flat(loss))
    assert z_scores(torch.stack(losses)[:, None], exact.detach()[None]).abs() < threshold(1)
    draws = torch.stack(gradients)
    limit = threshold(draws.shape[1])
    assert z_scores(draws, flat(exact)).abs().max() < limit


@pytest.mark.parametrize("classes", [3, None])
def test_what_is_explained_is_the_likeliest_class_and_y_is_the_surrogates(classes):
    x = torch.randn(90, 4, generator=torch.Generator().manual_seed(0))
    y = x[:, 0] if classes is None else (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    with seeded(1):
        model = table_predictor(4, classes, (5,))
    settings = {"features": 4, "classes": classes, "black_box": model}
    settings |= {"grouping": Grouping([0, 0, 1, 2]), "hidden": (6,), "predictor_hidden": (6,)}
    options = {"epochs": 2, "replicates": 2, "batch_size": 30, "progress": False}
    result = fit(system_for("fastshap", settings), (x, y), **options)
    assert result.collapse == [None, None]  # attributions are no selection probabilities
    posterior = explain(result, x[:5], y[:5], draws=3)
    found = posterior["sample_stats"]["attribution"].values
    for chain, program in enumerate(result.models):
        phi = program.attributions(x[:5]).detach()
        likeliest = torch.zeros(5, dtype=torch.long)
        if classes is not None:
            likeliest = program.surrogate(x[:5]).logits.argmax(-1)
        assert np.array_equal(found[chain], phi[torch.arange(5), likeliest].numpy())
        # What is said of y is the surrogate's, and the misfit of φ has no part in it.
        distribution = program.surrogate(x[:5])
        log_likelihood = posterior["sample_stats"]["log_evidence"].values[chain]
        assert log_likelihood == pytest.approx(
            distribution.log_prob(y[:5]).detach().numpy(), abs=1e-6
        )


test_bad_numbers_are_refused_by_the_factory = refusals(
    ({"features": 1}, "at least 2 mask entries; G is 1"),
    ({"grouping": Grouping([0, 0, 0, 0])}, "at least 2 mask entries; G is 1"),
    ({"samples": 0}, "samples must be a whole number of at least 1; it is 0"),
    ({"surrogate": "forest"}, TypeError, "takes an nn.Module; it is given str"),
    ({"black_box": len}, TypeError, "takes an nn.Module; it is given builtin"),
    ({"black_box": nn.Linear(4, 2), "surrogate": nn.Linear(4, 2)}, "give surrogate or black_box"),
    (
        {"imputer": MarginalImputer(torch.zeros(5, 4))},
        TypeError,
        "must be a ConstantImputer.*it is MarginalImputer",
    ),
    of=lambda options: fastshap(**{"features": 4, "classes": 2, **options}),
)


def of_classes(classes):
    with seeded(0):
        return table_predictor(4, classes, (4,))


@pytest.mark.parametrize(
    ("options", "y", "message"),
    [
        ({"classes": 3, "surrogate": of_classes(2)}, Y, "has 2 classes, and classes is 3"),
        ({"classes": 2, "surrogate": of_classes(None)}, Y % 2, "has a response, no classes"),
        ({"classes": None, "surrogate": of_classes(2)}, X[:, 0], "2 classes, and classes is None"),
        ({"classes": 3, "black_box": of_classes(3)}, Y + 2, "labels must be 0 … 2 for classes=3"),
        ({"classes": 3, "black_box": of_classes(3)}, X[:, :2], r"y must .* \(3,\), or \(3, 3\)"),
        ({"classes": 3, "surrogate": of_classes(3)}, Y + 2, "labels must be 0 … 2 for classes=3"),
    ],
)
def test_a_game_or_y_that_does_not_fit_is_refused_before_any_step(options, y, message):
    y = y.float() if y.is_floating_point() else y
    refused_before_any_step(message, fastshap(4, **options), (X.float(), y), valid=None)
