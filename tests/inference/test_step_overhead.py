"""What a training step does not make anew, and that leaving it out changes nothing."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroModule, PyroParam, PyroSample
from pyro.poutine.messenger import Messenger

from lexppl.effects import mask_particles
from lexppl.inference import LossTerm, NestedIWAE, Stage, fit
from lexppl.inference.batches import TensorRows
from lexppl.inference.contexts import program_settings, seeded
from lexppl.inference.objective.bound import BoundSpec, BoundTerms
from lexppl.inference.objective.program import ParticleProgram, PlainCalls, can_be_called_plainly
from lexppl.inference.objective.site import Site
from lexppl.inference.replicates import Replicates
from lexppl.inference.stages import TrainingModules
from lexppl.inference.training.first_look import runs_alike_plainly
from lexppl.models import GaussianImputer
from lexppl.systems import lex
from tests.small_models import SMALL, explainer, table

X, Y = table()


class Heard(Messenger):
    """The names of the parameters whose statements pass."""

    def __init__(self):
        super().__init__()
        self.names = []

    def _pyro_param(self, msg):
        self.names.append(msg["name"])


class OfParts(PyroModule):
    """A network's logits, with anything else the case brings."""

    def __init__(self, **parts):
        super().__init__()
        self.network = torch.nn.Linear(3, 3)
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            logits = self.network(x)
            mask = pyro.sample("mask", dist.Bernoulli(logits=logits).to_event(1))
            pyro.sample("y", dist.Normal((mask * x).sum(-1), 1.0), obs=y)


class Lifted(OfParts):
    def forward(self, x, y=None):
        lifted = pyro.poutine.lift(super().forward, prior=dist.Normal(0.0, 1.0))
        lifted(x, y)


@pytest.mark.parametrize(
    ("program", "plain"),
    [
        (OfParts(), True),
        (torch.nn.Linear(1, 1), True),
        (OfParts(w=PyroSample(dist.Normal(0.0, 1.0))), False),
        (OfParts(w=PyroParam(torch.tensor(1.0), dist.constraints.positive)), False),
        (lambda x, y: None, False),
    ],
)
def test_programs_of_torch_parameters_alone_can_be_called_plainly(program, plain):
    assert can_be_called_plainly(program) is plain


def test_a_program_that_reads_its_parameters_statements_is_not_called_plainly():
    with program_settings(validate=False):
        args = (X, X.sum(-1))
        assert runs_alike_plainly(OfParts(), args)
        assert not runs_alike_plainly(Lifted(), args)
        assert not runs_alike_plainly(None, args)


def test_a_plain_call_makes_no_parameter_statement_and_the_same_loss():
    with program_settings(validate=False):
        model = lex(3, classes=2, folds=1, **SMALL).program()
        found = []
        for programs in ([], [model]):
            with seeded(0), Heard() as heard, PlainCalls(programs):
                found.append((NestedIWAE(4).differentiable_loss(model, None, X, Y), heard.names))
    (full, statements), (plain, none) = found
    assert torch.equal(full, plain)
    assert len(statements) > 0
    assert none == []


class Statements(NestedIWAE):
    """The bound, counting the parameter statements of each of its runs."""

    counts: list

    def differentiable_loss(self, *args, **kwargs):
        with Heard() as heard:
            loss = super().differentiable_loss(*args, **kwargs)
        self.counts.append(len(heard.names))
        return loss


def test_a_fit_makes_parameter_statements_in_its_first_step_alone():
    bound = Statements(4)
    bound.counts = []
    system = lex(3, classes=2, folds=1, objective=bound, **SMALL)
    fit(system, (X, Y), epochs=2, batch_size=20, progress=False)
    assert bound.counts[0] > 0
    assert len(bound.counts) > 5
    assert set(bound.counts[1:]) == {0}


@pytest.mark.parametrize("size", [1, 7, 60, 100])
def test_batches_are_the_rows_of_an_order(size):
    torch.manual_seed(0)
    batches = list(TensorRows((X, Y)).batches(size, shuffle=True))
    torch.manual_seed(0)
    order = torch.randperm(60)
    # One batch of all rows is in theirs, in which a program may hold more of them.
    expected = order.split(size) if size < 60 else [torch.arange(60)]
    for (x, y), places in zip(batches, expected, strict=True):
        assert torch.equal(x, X[places])
        assert torch.equal(y, Y[places])


def run_of(build, masks=4):
    with program_settings(validate=False):
        return ParticleProgram(build(), None, (X, Y)).run(masks)


def test_the_entropy_of_masks_whose_distributions_differ_stays_by_particle():
    def model(x, y):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            first = pyro.sample("first", dist.Bernoulli(torch.full((3,), 0.5)).to_event(1))
            pyro.sample("second", dist.Bernoulli(logits=first - 0.5).to_event(1))
            pyro.sample("y", dist.Normal(x.sum(-1), 1.0), obs=y.float())

    run = run_of(lambda: model)
    first, second = run.mask_sites
    assert first.before_particles[0].batch_shape == (1, 60)
    assert second.before_particles == (second.distribution, True)
    averages = BoundTerms(run, BoundSpec(masks=4, entropy=1.0)).averages
    assert [average.after for average in averages] == [frozenset(), frozenset({"first"})]


@pytest.mark.parametrize(("names", "scores"), [("predictor", False), ("selector", True)])
def test_a_term_has_its_bits_and_scores_masks_where_it_moves_the_selector(
    monkeypatch, names, scores
):
    asked, score = [], Site.score

    def noted(site):
        found = score(site)
        asked.append((site.name, found.requires_grad))
        return found

    monkeypatch.setattr(Site, "score", noted)
    with program_settings(validate=False):
        model = lex(3, classes=2, folds=1, **SMALL).program()
        runner = Replicates([TrainingModules([Stage([LossTerm(model, NestedIWAE(4))])])])
        term = runner.template.stages[0].terms[0]
        moved = {name for name in runner.parameters if names in name}
        with seeded(0), runner.moving_only(moved):
            loss = runner.losses(term, term.objective, (X, Y))
        assert all(value.requires_grad for value in runner.parameters.values())
        with seeded(0), runner.moving_only(runner.parameters):
            whole = runner.losses(term, term.objective, (X, Y))
        chosen = [runner.parameters[name] for name in sorted(moved)]
        assert torch.equal(loss, whole)
        both = [torch.autograd.grad(one, chosen) for one in (loss, whole)]
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(*both, strict=True))
    assert asked[0] == ("mask", scores)


def fitted_weights(transposed):
    model = explainer(imputer=GaussianImputer(), hidden=(5,))
    if transposed:
        for module in model.modules():
            if isinstance(module, torch.nn.Linear):
                module.weight.data = module.weight.data.T.contiguous().T
    result = fit(model, table(64), epochs=3, batch_size=16, progress=False)
    return torch.cat([w.detach().reshape(-1) for w in result.model.parameters()])


def test_transposed_weights_learn_alike():
    """Fused Adam pairs weights and gradients by place in memory."""
    torch.testing.assert_close(fitted_weights(True), fitted_weights(False), rtol=1e-4, atol=1e-5)
