"""Weight decay leaves alone what the bound itself holds: guides, constraints and priors."""

import warnings

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer.autoguide import AutoNormal
from pyro.nn import PyroModule, PyroParam
from torch import nn
from torch.distributions import constraints

from lexppl.effects import mask_particles
from lexppl.inference import Linear, NestedIWAE
from lexppl.models import MLP
from tests.small_models import quick

X = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).float()


class Location(PyroModule):
    """A normal mean under a normal prior, whose posterior is known; its mask says nothing."""

    def __init__(self, informed=True):
        super().__init__()
        self.informed = informed
        self.bias = nn.Parameter(torch.zeros(()))

    def reset_parameters(self):
        nn.init.zeros_(self.bias)

    def forward(self, x, y=None):
        loc = pyro.sample("loc", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            pyro.sample("mask", dist.Bernoulli(torch.full((1,), 0.5)).to_event(1))
            mean = loc if self.informed else 0.0 * loc
            pyro.sample("y", dist.Normal(mean + 0.0 * self.bias, 1.0), obs=y)


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("informed", [True, False])
def test_an_autonormal_finds_the_posterior(informed):
    """With decay the scale of an uninformed latent, which is its prior's 1, came out as .76."""
    model = Location(informed)
    guide = AutoNormal(pyro.poutine.block(model, hide=["mask"]))
    options = {"objective": NestedIWAE(1, samples=8), "epochs": 600}
    rate = Linear(0.05, 0.001, begin=0.3)
    result = quick(model, (X, Y), guide=guide, learning_rate=rate, **options)
    exact = (1.0 / (1.0 + len(X))) ** 0.5 if informed else 1.0
    assert float(result.guides[0].scales.loc.detach()) == pytest.approx(exact, rel=0.1)


class Held(PyroModule):
    """A network, a constrained number and a weight under a prior."""

    def __init__(self):
        super().__init__()
        self.selector = MLP(2, 2, (4,), seed=0)
        self.temperature = PyroParam(torch.tensor(2.0), constraint=constraints.positive)
        self.weight = nn.Parameter(torch.tensor([1.5, -1.0]))

    def forward(self, x, y=None):
        pyro.sample("prior", dist.Normal(0.0, 10.0).expand([2]).to_event(1), obs=self.weight)
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            logits = self.selector(x) / self.temperature
            mask = pyro.sample("mask", dist.Bernoulli(logits=logits).to_event(1))
            logits = (mask * self.weight * x).sum(-1)
            pyro.sample("y", dist.Bernoulli(logits=logits), obs=y)


def spared_of(model, **options):
    """Names of the parameters that an optimizer of the fit does not decay."""
    made = []

    def optimizer(parameters):
        made.append(torch.optim.Adam(parameters, lr=1e-3, weight_decay=0.1))
        return made[0]

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        quick(model, (X, Y), optimizer=optimizer, **options)
    groups = made[0].param_groups
    kept = [p for g in groups for p in g["params"] if g["weight_decay"] == 0.0]
    decayed = [p for g in groups for p in g["params"] if g["weight_decay"] > 0.0]
    messages = [str(w.message) for w in told if "weight decay leaves out" in str(w.message)]
    return kept, decayed, messages


@pytest.mark.smoke
@pytest.mark.parametrize("replicates", [1, 2])
def test_constrained_ones_and_those_with_a_prior(replicates):
    kept, decayed, messages = spared_of(Held, replicates=replicates)
    shapes = sorted(tuple(p.shape) for p in kept)
    extra = () if replicates == 1 else (2,)
    assert shapes == sorted([extra, (*extra, 2)])
    assert len(decayed) == 4
    assert len(messages) == 1
    assert "temperature" in messages[0] and "weight" in messages[0]


def test_the_fits_own_decay_spares_them_in_silence():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", message="collapse")
        quick(Held, (X, Y))
        with pytest.raises(UserWarning, match=r"the weight decay leaves out .*temperature"):
            quick(Held, (X, Y), weight_decay=0.01)
