"""Guides by the classes of Pyro's AutoGuide family."""

from functools import partial

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import NUTS
from pyro.infer.autoguide import (
    AutoDelta,
    AutoIAFNormal,
    AutoLaplaceApproximation,
    AutoLowRankMultivariateNormal,
    AutoMultivariateNormal,
    AutoNormal,
)
from pyro.nn import PyroModule, PyroSample

from lexppl import explain, fit
from lexppl.arviz_compatibility import group_of
from lexppl.effects import mask_particles
from lexppl.inference import SGHMC, Linear, NestedIWAE
from lexppl.inference.posterior.global_latents import latents_of
from lexppl.models import ConstantImputer
from lexppl.systems import lex
from tests.inference.posterior.mcmc.programs import Discrete, Improper, NoLatent, OfRows
from tests.refusals import refusals, refused
from tests.small_models import quick

X = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
Y = 1.5 * X[:, 0] - X[:, 1] + 0.5 * torch.randn(60, generator=torch.Generator().manual_seed(1))
ALL = 60


class Line(PyroModule):
    """A linear response in two columns that no mask hides, read inside the plates."""

    def __init__(self):
        super().__init__()
        self.slope = PyroSample(dist.Normal(torch.zeros(2), 1.0).to_event(1))

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            pyro.sample("mask", dist.Bernoulli(torch.full((3,), 0.5)).to_event(1))
            mean = (x[:, :2] * self.slope).sum(-1)
            return pyro.sample("y", dist.Normal(mean, 0.5), obs=y)


class Learning(Line):
    """The same beside a parameter without a prior."""

    def __init__(self):
        super().__init__()
        self.shift = torch.nn.Parameter(torch.zeros(()))

    def reset_parameters(self):
        torch.nn.init.zeros_(self.shift)


def posterior():
    x = X[:, :2]
    covariance = torch.linalg.inv(torch.eye(2) + x.T @ x / 0.25)
    return covariance @ (x.T @ Y) / 0.25, covariance


def fitted(model, guide, epochs=3, **options):
    options = {"objective": NestedIWAE(1, samples=4), "batch_size": ALL, **options}
    return fit(model, (X, Y), valid=None, guide=guide, epochs=epochs, progress=False, **options)


def drawn(guide, count=2000):
    with torch.random.fork_rng(), pyro.settings.context(module_local_params=True), torch.no_grad():
        torch.manual_seed(0)
        return torch.stack([guide(X[:2], Y[:2])["slope"] for _ in range(count)])


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("built", ["class", "partial", "instance"])
def test_a_fit_finds_the_posterior(built):
    model = Line()
    guide = {
        "class": AutoMultivariateNormal,
        "partial": partial(AutoLowRankMultivariateNormal, rank=1),
        "instance": AutoMultivariateNormal(model),
    }[built]
    result = fitted(model, guide, 250, learning_rate=Linear(0.1, 0.002, begin=0.3))
    mean, covariance = posterior()
    draws = drawn(result.guides[0])
    sds = covariance.diagonal().sqrt()
    assert ((draws.mean(0) - mean).abs() < 0.3 * sds).all()
    assert ((draws.std(0) / sds - 1).abs() < 0.25).all()


@pytest.mark.parametrize("kind", [AutoDelta, AutoIAFNormal, partial(AutoNormal, init_scale=0.2)])
def test_classes_of_the_family(kind):
    model = Line()
    result = fitted(model, kind, replicates=1)
    responses = group_of(explain(result, X[:4], draws=3), "predictions")["y"]
    assert responses.shape == (1, 3, 4)
    assert not model._forward_pre_hooks and not model._forward_hooks
    assert not list(pyro.get_param_store().keys())


def test_replicates_and_functions_that_build_models():
    for model in (Learning(), Learning):
        result = fitted(model, AutoNormal, replicates=2)
        places = [guide.locs.slope for guide in result.guides]
        assert places[0].shape == (2,) and not torch.equal(*places)


@pytest.mark.smoke
def test_a_factory_with_priors():
    build = partial(lex, 3, classes=2, k=1, hidden=(), predictor_hidden=())
    system = build(imputer=ConstantImputer(), prior=dist.Normal(0.0, 1.0))
    result = fit(system, (X, (Y > 0).long()), guide=AutoNormal, epochs=2, progress=False)
    assert type(result.guides[0]).__name__ == "AutoNormal"


def test_float64_rows_with_priors_in_float32():
    result = quick(Line(), (X.double(), Y.double()), guide=AutoNormal)
    assert result.guides[0].locs.slope.dtype == torch.float64


class OfSites(PyroModule):
    """An effect of each of two sites, as many as rows that a guide is set up on."""

    def forward(self, x, y=None):
        with pyro.plate("sites", 2, dim=-1):
            effect = pyro.sample("effect", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            pyro.sample("mask", dist.Bernoulli(torch.full((3,), 0.5)).to_event(1))
            pyro.sample("y", dist.Normal(effect[(x[:, 0] > 0).long()], 0.5), obs=y)


def test_a_plate_of_sites_is_no_plate_over_rows():
    found = latents_of(OfSites(), (X[:2],))
    assert set(found.shared) == {"effect"} and not found.of_rows
    assert set(found.in_particles) == {"mask", "y"}
    result = fitted(OfSites(), AutoNormal, 300, learning_rate=Linear(0.05, 0.001, begin=0.3))
    exact = [float((Y[s].sum() / 0.25) / (1 + s.sum() / 0.25)) for s in (X[:, 0] <= 0, X[:, 0] > 0)]
    assert result.guides[0].locs.effect.tolist() == pytest.approx(exact, abs=0.05)


# What is refused


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (NoLatent, "AutoNormal has nothing to cover.*give a prior"),
        (Discrete, r"'kept' is discrete \(Categorical\).*write a guide"),
        (Improper, "prior of 'flat' is improper"),
        (OfRows, "'shift' is a latent that no guide draws, outside mask_particles"),
    ],
)
@pytest.mark.parametrize("instance", [True, False])
def test_programs_that_it_does_not_cover_are_refused(model, words, instance):
    program = model()
    refused(words, fitted, program, AutoNormal(program) if instance else AutoNormal)


BLIND = AutoNormal(pyro.poutine.block(Line(), hide=["slope", "mask"]))


def misspelt(x, y):
    pyro.sample("slop", dist.Normal(torch.zeros(2), 1.0).to_event(1))


test_guides_that_do_not_fit_are_refused = refusals(
    (Line, TypeError, "guide=Line is a class.*give an instance"),
    ("AutoNormal", TypeError, "guide must be a class.*it is 'AutoNormal'"),
    (AutoLaplaceApproximation, "AutoMultivariateNormal"),
    (partial(AutoNormal, print), TypeError, "by name"),
    (NUTS, TypeError, "NUTS samples global latents.*inference=NUTS"),
    (NUTS(potential_fn=lambda z: 0.0), TypeError, "inference=NUTS"),
    (SGHMC, TypeError, "inference=SGHMC"),
    (AutoNormal(OfSites()), "'effect' is a draw of the guide, which the model"),
    (BLIND, "sees none of the program's global latents"),
    (lambda x, y: None, "'slope' is a latent that no guide draws, outside"),
    (misspelt, "'slop' is a draw of the guide, which the model does not.*slope"),
    of=lambda guide: fitted(Learning(), guide),
)
