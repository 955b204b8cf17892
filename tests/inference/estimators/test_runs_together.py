"""REBAR's three runs as one of three times the masks: the same numbers, but for rounding, and only
of programs that give each mask what they give it without the others."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lexppl.distributions import TopKMask
from lexppl.effects import ParticleCounts, imputation_particles, mask_particles
from lexppl.inference import REBAR, LeaveOneOut, LossTerm, NestedIWAE, Stage, TunedControl, fit
from lexppl.inference.contexts import program_settings, seeded
from lexppl.inference.objective.program import ParticleProgram
from lexppl.inference.runs_together import RunsTogether
from lexppl.inference.stages import TrainingModules
from lexppl.inference.training import loop
from lexppl.inference.training.alike_together import alike_together
from lexppl.models import ConstantImputer, GaussianImputer, penalty
from lexppl.models.lex import observe
from lexppl.systems import base_x, lex, real_x

X = torch.randn(64, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = (X[:, 0] > 0).long()
WIDTHS = {"hidden": (6,), "predictor_hidden": (6,)}


class Counted(TorchDispatchMode):
    """How many matrix products are made: of a run with three times the masks as of one."""

    def __init__(self):
        super().__init__()
        self.products = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.products += func is torch.ops.aten.addmm.default
        return func(*args, **(kwargs or {}))


def zeros_lex(**options):
    with seeded(0), program_settings(validate=False):
        return lex(4, classes=2, folds=1, imputer=ConstantImputer(), **WIDTHS, **options).program()


class TopTwo(torch.nn.Module):
    """Top-k masks of a network, penalised by the draw, and labels of what is kept."""

    def __init__(self):
        super().__init__()
        self.network, self.predictor = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)

    def forward(self, x, y):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", TopKMask(self.network(x), 2))
            penalty("cost", 0.3 * mask[..., 0])
            with imputation_particles():
                kept = pyro.sample("kept", dist.Delta(mask * x, event_dim=1))
                observe("y", dist.Categorical(logits=self.predictor(kept)), y)


def evaluated(program, objective, together, y=Y):
    parameters = [*program.parameters()]
    parameters += [p for part in objective.control_parameters for p in part.parameters()]
    with (
        program_settings(validate=False),
        seeded(1),
        RunsTogether([program] if together else []),
        Counted() as counted,
    ):
        loss = objective.differentiable_loss(program, None, X, y)
    gradients = torch.autograd.grad(loss, parameters, create_graph=True, allow_unused=True)
    present = [g for g in gradients if g is not None]
    tuned = [p for part in objective.control_parameters for p in part.parameters()]
    squares = torch.stack([g.square().sum() for g in present]).sum()
    of_square = torch.autograd.grad(squares, tuned, allow_unused=True) if tuned else ()
    return loss, [*present, *of_square], counted.products


PROGRAMS = {"bernoulli": zeros_lex, "top-k": TopTwo}
OBJECTIVES = {
    "average": (REBAR(0.3), {"masks": 1, "samples": 3}),
    "iwae": (REBAR(0.5, scale=0.7), {"masks": 3, "samples": 2}),
    "straight through": (REBAR(straight_through=True), {"masks": 2}),
    "imputations": (REBAR(0.3), {"masks": 2, "imputations": 2}),
    "tuned": (REBAR(control=TunedControl(0.5).double()), {"masks": 2, "samples": 2}),
}


@pytest.mark.parametrize("labels", ["hard", "soft"])
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_one_run_gives_what_three_give(program, objective, labels):
    estimator, options = OBJECTIVES[objective]
    bound = NestedIWAE(**options, estimator=estimator, penalty=0.5)
    model = PROGRAMS[program]().double()
    y = Y if labels == "hard" else torch.stack([0.3 + 0.4 * Y, 0.7 - 0.4 * Y], -1).double()
    loss, gradients, products = evaluated(model, bound, together=False, y=y)
    one, of_one, fewer = evaluated(model, bound, together=True, y=y)
    assert products == 3 * fewer
    torch.testing.assert_close(one, loss, rtol=1e-10, atol=0)
    assert len(of_one) == len(gradients)
    for ours, theirs in zip(of_one, gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-12)


def test_the_annealing_and_a_warm_up_are_the_same_too():
    model = zeros_lex(penalty=0.1).double()
    for options in ({"entropy": 0.3, "towards": 0.8}, {"random_masks": 0.5}):
        bound = NestedIWAE(2, estimator=REBAR(), **options).at(0.2)
        loss, gradients, _ = evaluated(model, bound, together=False)
        one, of_one, _ = evaluated(model, bound, together=True)
        torch.testing.assert_close(one, loss, rtol=1e-10, atol=0)
        for ours, theirs in zip(of_one, gradients, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-12)


def test_where_pyro_validates_the_program_is_run_three_times():
    model, bound = zeros_lex().double(), NestedIWAE(2, estimator=REBAR())
    with program_settings(validate=True), seeded(0), RunsTogether([model]), Counted() as counted:
        bound.differentiable_loss(model, None, X, Y)
    with program_settings(validate=False), seeded(0), RunsTogether([model]), Counted() as fewer:
        bound.differentiable_loss(model, None, X, Y)
    assert counted.products == 3 * fewer.products


class TwoSites(TopTwo):
    """A second mask, whose distribution depends on the first one."""

    def forward(self, x, y):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            first = pyro.sample("first", dist.Bernoulli(logits=self.network(x)).to_event(1))
            second = pyro.sample("second", dist.Bernoulli(logits=first - 0.5).to_event(1))
            logits = self.predictor(first * second * x)
            pyro.sample("y", dist.Categorical(logits=logits), obs=y)


class Noisy(TopTwo):
    """A reparameterised draw beside the masks."""

    def forward(self, x, y):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", dist.Bernoulli(logits=self.network(x)).to_event(1))
            noise = pyro.sample("noise", dist.Normal(x.new_zeros(4), 1.0).to_event(1))
            logits = self.predictor(mask * x + noise)
            pyro.sample("y", dist.Categorical(logits=logits), obs=y)


class Mixed(TopTwo):
    """A predictor that normalises over all particles."""

    def forward(self, x, y):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", dist.Bernoulli(logits=self.network(x)).to_event(1))
            kept = mask * x
            logits = self.predictor(kept - kept.mean((0, 1), keepdim=True))
            pyro.sample("y", dist.Categorical(logits=logits), obs=y)


class OwnEstimator(TopTwo):
    """Masks that ask for another estimator, before anything is drawn."""

    def forward(self, x, y):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            masks = dist.Bernoulli(logits=self.network(x)).to_event(1)
            mask = pyro.sample("mask", masks, infer={"estimator": LeaveOneOut()})
            pyro.sample("y", dist.Categorical(logits=self.predictor(mask * x)), obs=y)


class Dropping(TopTwo):
    """A predictor with dropout."""

    def __init__(self):
        super().__init__()
        self.predictor = torch.nn.Sequential(torch.nn.Dropout(0.5), self.predictor)


def gaussian_lex():
    imputer = GaussianImputer(torch.zeros(4), torch.ones(4))
    with seeded(0), program_settings(validate=False):
        return lex(4, classes=2, folds=1, imputer=imputer, **WIDTHS).program()


@pytest.mark.parametrize(
    ("build", "alike"),
    [
        (TopTwo, True),
        (zeros_lex, True),
        (TwoSites, False),
        (OwnEstimator, False),
        (Noisy, False),
        (Mixed, False),
        (Dropping, False),
        (gaussian_lex, False),
    ],
)
def test_programs_that_mix_or_draw_are_found(build, alike):
    model = build().double()
    terms = [LossTerm(model, NestedIWAE(2, estimator=REBAR()))]
    template = TrainingModules([Stage(terms)]).train()
    found = alike_together(template, terms, [model], (X, Y), seed=0)
    assert found == ([model] if alike else [])


def test_a_program_that_another_term_has_with_another_estimator_is_left_apart():
    model = TopTwo().double()
    terms = [LossTerm(model, NestedIWAE(2, estimator=e)) for e in (REBAR(), None)]
    template = TrainingModules([Stage(terms)])
    assert alike_together(template, terms, [model], (X, Y), seed=0) == []


def test_a_run_with_other_sites_than_before_is_made_thrice():
    model, bound = TwoSites().double(), NestedIWAE(2, estimator=REBAR())
    _, _, products = evaluated(model, bound, together=True)
    # The run that was given up, and the three.
    assert products == 3 * 2 + 1


def test_a_program_that_was_given_up_is_not_tried_again():
    model, bound = TwoSites().double(), NestedIWAE(2, estimator=REBAR())
    products = []
    with program_settings(validate=False), seeded(0), RunsTogether([model]) as together:
        for _ in range(2):
            with Counted() as counted:
                bound.differentiable_loss(model, None, X, Y)
            products.append(counted.products)
    assert products == [3 * 2 + 1, 3 * 2] and not together


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("options", [{}, {"replicates": 2}, {"compile": "graph"}])
@pytest.mark.parametrize("build", [base_x, real_x])
def test_a_fit_is_the_same(build, options, monkeypatch):
    def fitted():
        system = build(4, classes=2, **WIDTHS).to(torch.float64)
        return fit(system, (X, Y), epochs=2, batch_size=32, progress=False, **options)

    seen = []
    known = loop.alike_together
    monkeypatch.setattr(loop, "alike_together", lambda *args: seen.append(known(*args)) or seen[-1])
    together = fitted()
    assert any(seen)
    monkeypatch.setattr(loop, "alike_together", lambda *args: [])
    apart = fitted()
    torch.testing.assert_close(
        torch.as_tensor(together.history.train),
        torch.as_tensor(apart.history.train),
        rtol=1e-9,
        atol=0,
    )
    for ours, theirs in zip(together.model.parameters(), apart.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-9)


def test_plates_expand_a_distribution_once():
    class Expanded(dist.Normal):
        times = 0

        def expand(self, batch_shape, _instance=None):
            Expanded.times += 1
            return super().expand(batch_shape, _instance)

    def model():
        with pyro.plate("data", 3, dim=-1), mask_particles(), imputation_particles():
            return pyro.sample("x", Expanded(0.0, 1.0))

    with ParticleCounts(4, 2), seeded(0), program_settings(validate=False):
        run = ParticleProgram(model, None).run(4, 2)
    assert run.sites["x"].value.shape == (2, 4, 3)
    assert Expanded.times == 1


def test_a_particle_plate_whose_plate_does_not_hear_of_a_statement_expands_it():
    unheard = pyro.poutine.block(hide_types=["sample"])
    with ParticleCounts(4, 2), seeded(0), mask_particles(), unheard, imputation_particles():
        value = pyro.sample("x", dist.Normal(0.0, 1.0))
    assert value.shape == (2, 1, 1)
