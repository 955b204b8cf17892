"""Pyro's own objectives in a fit, and the library's programs under Pyro's own inference."""

import math
import re
from types import MappingProxyType

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import SVI, JitTrace_ELBO, RenyiELBO, Trace_ELBO, TraceEnum_ELBO, TraceGraph_ELBO
from pyro.infer.autoguide import AutoNormal
from pyro.nn import PyroModule
from torch import nn

from lexppl import explain
from lexppl.distributions import KSubset
from lexppl.effects import imputation_particles, mask_particles
from lexppl.inference import Enumerate, NestedIWAE, Objective, batch_scale
from lexppl.inference.contexts import program_settings
from lexppl.inference.replicates import Replicates
from lexppl.inference.stages import LossTerm, Stage, TrainingModules
from lexppl.models import MLP, GaussianImputer
from tests.gradients.enumeration import threshold
from tests.inference.posterior.mcmc.programs import Marked
from tests.refusals import refusals, refused
from tests.small_models import OwnExplainer, quick

X = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] + X[:, 1] > 0).long()


class AtTheMean(PyroModule):
    """Hidden features at their mean, 0: the imputation is a function of the mask."""

    infer = MappingProxyType({"enumerate": "parallel"})

    def __init__(self):
        super().__init__()
        self.selector, self.predictor = MLP(3, 3, (4,)), MLP(3, 2, (4,))

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", KSubset(self.selector(x), 2), infer=dict(self.infer))
            pyro.sample("y", dist.Categorical(logits=self.predictor(mask * x)), obs=y)


class WithoutEnumeration(AtTheMean):
    infer = MappingProxyType({})


class Covering(nn.Module):
    """A guide of mask and imputation."""

    def __init__(self):
        super().__init__()
        self.selector, self.imputer = MLP(3, 3, (4,)), GaussianImputer()

    def reset_parameters(self):
        for layer in self.selector.layers:
            layer.reset_parameters()

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", KSubset(self.selector(x), 2))
            with imputation_particles():
                pyro.sample("x_imputed", self.imputer(x, mask))


def test_summed_by_traceenum_is_the_likelihood_of_the_bound():
    with pyro.validation_enabled(True):
        model, plain = AtTheMean(), WithoutEnumeration()
        plain.load_state_dict(model.state_dict())
        theirs = TraceEnum_ELBO(max_plate_nesting=3).loss(model, lambda x, y: None, X, Y)
        ours = NestedIWAE(math.inf, estimator=Enumerate()).loss(plain, None, X, Y)
    assert ours == pytest.approx(theirs, rel=1e-6)


@pytest.mark.complete
def test_svi_with_a_guide_of_mask_and_imputation():
    """The single-mask bound is the same under both: their noise apart."""
    draws = {}
    with torch.random.fork_rng(), pyro.settings.context(module_local_params=True):
        torch.manual_seed(0)
        model, guide = OwnExplainer(), Covering()
        for name, elbo in (("theirs", Trace_ELBO()), ("ours", NestedIWAE(1))):
            draws[name] = torch.tensor([elbo.loss(model, guide, X, Y) for _ in range(800)])
        optimizer = pyro.optim.Adam({"lr": 1e-3})
        with pyro.settings.context(module_local_params=False):
            svi = SVI(OwnExplainer(), Covering(), optimizer, Trace_ELBO())
            assert all(math.isfinite(svi.step(X, Y)) for _ in range(3))
            pyro.clear_param_store()
    apart = draws["theirs"].mean() - draws["ours"].mean()
    error = math.sqrt(sum(float(d.var()) / len(d) for d in draws.values()))
    assert abs(float(apart)) < threshold(1) * error


@pytest.mark.parametrize("replicates", [1, 2])
@pytest.mark.parametrize(
    ("objective", "model", "guide"),
    [
        (Trace_ELBO(), OwnExplainer, Covering),
        (TraceEnum_ELBO(max_plate_nesting=3), AtTheMean, None),
        (TraceEnum_ELBO(), AtTheMean, None),
    ],
    ids=["trace", "enum", "enum guessed"],
)
def test_a_fit_by_pyros_own(objective, model, guide, replicates):
    before = dict(vars(objective))
    options = {"epochs": 5, "batch_size": 5, "replicates": replicates, "valid": 0.2}
    guide = None if guide is None else guide()
    result = quick(model, (X, Y), guide=guide, objective=objective, **options)
    assert vars(objective) == before
    assert result.replicates == replicates
    assert torch.isfinite(torch.as_tensor(result.history.train)).all()
    assert explain(result, X, draws=3)["predictions"]["mask"].shape == (replicates, 3, 12, 3)


def test_each_replicates_loss_is_its_own():
    elbo = TraceEnum_ELBO(max_plate_nesting=3)
    with program_settings(validate=True):
        models = [AtTheMean() for _ in range(3)]
        runner = Replicates([TrainingModules([Stage([LossTerm(m, elbo)])]) for m in models])
        (term,) = runner.template.stages[0].terms
        losses = runner.losses(term, term.objective, (X, Y))
        each = [elbo.differentiable_loss(m, lambda x, y: None, X, Y) for m in models]
        assert torch.allclose(losses, torch.stack(each))
        ours = torch.autograd.grad(losses.sum(), list(runner.parameters.values()))
        for place, (model, loss) in enumerate(zip(models, each, strict=True)):
            names = [f"programs.0.{name}" for name, _ in model.named_parameters()]
            own = torch.autograd.grad(loss, list(model.parameters()))
            matching = dict(zip(names, own, strict=True))
            for name, gradient in zip(runner.parameters, ours, strict=True):
                assert torch.allclose(gradient[place], matching[name], atol=1e-6)


test_what_gives_no_loss_of_any_batch_is_refused = refusals(
    (RenyiELBO(alpha=0), r"NestedIWAE\(masks=L\).*Trace_ELBO, TraceMeanField_ELBO"),
    (TraceGraph_ELBO(), r"NestedIWAE\(masks=L\).*Trace_ELBO, TraceMeanField_ELBO"),
    (JitTrace_ELBO(), "JitTrace_ELBO is compiled for one batch"),
    of=lambda objective: quick(OwnExplainer, (X, Y), guide=Covering(), objective=objective),
    error=TypeError,
)


@pytest.mark.parametrize("objective", [Trace_ELBO(), TraceEnum_ELBO()])
def test_a_latent_that_no_guide_covers_is_refused(objective):
    """Pyro's own objectives would add its log-prior at the draw."""
    with pytest.raises(ValueError, match="counts the prior of 'mask', which no guide covers"):
        quick(OwnExplainer, (X, Y), objective=objective)


def test_enumeration_that_nothing_reads_is_refused():
    refused("counts the prior of 'mask'", quick, AtTheMean, (X, Y), objective=Trace_ELBO())
    refused(r"'mask' is to be summed out", quick, AtTheMean, (X, Y))


def test_weights_of_rows_that_enumeration_does_not_take_are_refused():
    elbo, weights = TraceEnum_ELBO(max_plate_nesting=3), torch.arange(1.0, 13.0)
    with pytest.raises(ValueError, match=r"TraceEnum_ELBO takes no weight of each row.*NestedIWAE"):
        quick(AtTheMean, (X, Y), objective=elbo, sample_weight=weights)


@pytest.mark.smoke
def test_an_automatic_guide_under_trace_elbo():
    """A weight with a prior, the masks enumerated."""

    model = Marked()
    guide = AutoNormal(pyro.poutine.block(model, hide=["mask"]))
    elbo = TraceEnum_ELBO(max_plate_nesting=3)
    result = quick(model, (X.double(), Y.double()), guide=guide, objective=elbo, epochs=3)
    assert result.guides[0].locs.weight.shape == ()


def test_an_objective_of_ones_own_follows_the_fit():
    asked = []

    class Scheduled(Objective):
        settled = 0.5

        def __init__(self, progress=0.0):
            super().__init__(max_plate_nesting=3)
            self.progress = progress

        def at(self, progress):
            return Scheduled(progress)

        def differentiable_loss(self, model, guide, *args, **kwargs):
            asked.append(self.progress)
            return NestedIWAE(2).differentiable_loss(model, guide, *args, **kwargs)

    result = quick(OwnExplainer(), (X, Y), objective=Scheduled(), epochs=4)
    assert sorted(set(asked)) == [0.0, 0.25, 0.5, 0.75]
    assert result.objective.progress == 1.0


class ScheduledElsewhere(Trace_ELBO):
    def at(self, progress):
        return self


def test_schedules_that_a_fit_would_not_follow_are_refused():
    with pytest.raises(TypeError, match=r"has \['at'\], which a fit reads of a .*Objective alone"):
        LossTerm(lambda x, y: None, ScheduledElsewhere())


class Slope(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = nn.Linear(3, 1)

    def forward(self, x, y=None):
        return self.network(x).squeeze(-1)


def squares(model, x, y):
    return (model(x) - y).square()


def of_own(loss):
    class Own(Objective):
        watched = False

        def differentiable_loss(self, model, guide, x, y):
            return loss(model, x, y)

    return Own()


RESPONSES = X.double(), X[:, 0].double()


@pytest.mark.parametrize("batch_size", [4, 12])
@pytest.mark.parametrize(
    ("loss", "refused_at"),
    [
        (lambda m, x, y: batch_scale() * squares(m, x, y).sum(), ()),
        (lambda m, x, y: squares(m, x, y).sum(), (4,)),
        (lambda m, x, y: squares(m, x, y).mean(), (4, 12)),
        (lambda m, x, y: sum(p.square().sum() for p in m.parameters()), ()),
        (lambda m, x, y: batch_scale() * (torch.rand(len(x)) * squares(m, x, y)).sum(), ()),
        (lambda m, x, y: (torch.rand(len(x)) * squares(m, x, y)).mean(), (4,)),
    ],
)
def test_a_loss_that_is_not_of_all_rows_is_refused_at_the_first_step(loss, refused_at, batch_size):
    settings = {"objective": of_own(loss), "epochs": 1, "valid": None, "batch_size": batch_size}
    if batch_size in refused_at:
        words = rf"for {batch_size} rows .* for {batch_size // 2} of them.*N .*here 12: .*times N/B"
        refused(words, quick, Slope().double(), RESPONSES, **settings)
    else:
        quick(Slope().double(), RESPONSES, **settings)


def test_the_two_figures_are_those_of_the_batch_and_of_its_first_half():
    model = Slope().double()
    with torch.no_grad():
        figures = [float(squares(model, *(c[:n] for c in RESPONSES)).mean()) for n in (4, 2)]
    words = "gives {:.4g} for 4 rows of a batch and {:.4g} for 2 of them".format(*figures)
    with pytest.raises(ValueError, match=re.escape(words)):
        quick(
            model, RESPONSES, objective=of_own(lambda m, x, y: squares(m, x, y).mean()), epochs=1,
            valid=None, batch_size=4,
        )  # fmt: skip


def test_the_validation_loss_of_an_objective_of_a_users_is_in_nats_a_row():
    """However many rows a step has, here 5, 5 and 2 of 12."""
    objective = of_own(lambda m, x, y: batch_scale() * squares(m, x, y).sum())
    result = quick(
        Slope().double(), RESPONSES, objective=objective, epochs=2, valid=RESPONSES, batch_size=5
    )
    found = float(squares(result.model, *RESPONSES).mean().detach())
    assert float(result.best_valid[0]) == pytest.approx(found, rel=1e-6)
