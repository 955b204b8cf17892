"""The potential of a program's global latents against Pyro's own, and against sums by hand."""

import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer.mcmc.util import initialize_model
from pyro.nn import PyroModule, PyroSample
from torch.utils._python_dispatch import TorchDispatchMode

from lexppl.distributions import KSubset
from lexppl.distributions.top_k import TopEntries
from lexppl.effects import imputation_particles, mask_particles, penalty
from lexppl.inference.contexts import program_settings
from lexppl.inference.posterior.mcmc import Potential, Recorded
from lexppl.models import GaussianImputer
from tests.gradients.enumeration import threshold
from tests.inference.posterior.mcmc.programs import (
    Discrete,
    Improper,
    Marked,
    NoLatent,
    OfRows,
    Plain,
    Weighted,
    log_likelihood,
    log_likelihood_at_mean,
    rows,
)
from tests.refusals import refusals

X, Y = rows()
PLACES = [-1.5, 0.0, 0.7, 2.0]
pytestmark = pytest.mark.usefixtures("local_parameters")


def number(value):
    return torch.tensor(value, dtype=torch.float64)


@pytest.mark.parametrize("scaled", [True, False])
def test_it_is_pyros_own_where_that_works(scaled):
    """Pyro's own lists a k-subset, and no several Bernoullis in one event."""
    program = Weighted(subset=True, scaled=scaled)
    _, theirs, _, _ = initialize_model(program, (X, Y), max_plate_nesting=3)
    ours = Potential(program, (X, Y))
    for first in PLACES:
        for second in PLACES if scaled else [0.0]:
            place = {"weight": number(first)} | ({"scale": number(second)} if scaled else {})
            assert float(ours(place)) == pytest.approx(float(theirs(place)), rel=1e-9)


@pytest.mark.smoke
@pytest.mark.parametrize("subset", [True, False])
def test_it_is_the_sum_by_hand(subset):
    """With a scale, at u = log of it, the density of u has the factor exp(u)."""
    program = Weighted(subset, scaled=True)
    potential = Potential(program, (X, Y))
    at_mean, without_jacobian = [], []
    for log_scale in PLACES:
        for weight in PLACES:
            scale = number(log_scale).exp()
            prior = dist.HalfNormal(2.0).log_prob(scale)
            prior = prior + dist.Normal(0.0, scale).log_prob(number(weight)) + log_scale
            given = number([weight])
            expected = prior + log_likelihood(program, given, X, Y)[0]
            found = -potential({"weight": number(weight), "scale": number(log_scale)})
            assert float(found) == pytest.approx(float(expected), rel=1e-9)
            at_mean.append(float(log_likelihood_at_mean(program, given, X, Y) + prior - found))
            without_jacobian.append(float(expected - log_scale - found))
    # What is wrong by a constant would be no other density.
    assert max(at_mean) - min(at_mean) > 0.5
    assert max(without_jacobian) - min(without_jacobian) > 3.0


def test_a_penalty_is_a_term_of_it():
    class Costly(Weighted):
        def forward(self, x, y=None):
            weight = self.weight
            with pyro.plate("data", len(x), dim=-1), mask_particles():
                mask = pyro.sample("mask", self.law())
                penalty("size", weight.abs() * mask.sum(-1))
                logits = weight * (mask * x).sum(-1)
                pyro.sample("y", dist.Bernoulli(logits=logits), obs=y)

    place = {"weight": number(1.3)}
    plain, costly = (Potential(kind(subset=False), (X, Y)) for kind in (Weighted, Costly))
    size = float(Weighted().logits.sigmoid().sum())
    added = float(costly(place) - plain(place))
    assert added == pytest.approx(len(X) * 1.3 * size, rel=1e-9)


def test_what_pyro_marks_to_be_summed_out_is():
    place = {"weight": number(1.3)}
    assert torch.equal(Potential(Marked(), (X, Y))(place), Potential(Weighted(), (X, Y))(place))


class Noisy(PyroModule):
    """y ~ N(w x̃, 1) where x̃ is x, or with probability ½ hidden and drawn from N(0, 1)."""

    def __init__(self):
        super().__init__()
        self.imputer = GaussianImputer().double()
        self.weight = PyroSample(dist.Normal(number(0.0), 1.0))

    def law(self, x):
        return dist.Bernoulli(x.new_full((1,), 0.5)).to_event(1)

    def forward(self, x, y=None):
        weight, law = self.weight, self.law(x)
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", law)
            with imputation_particles():
                imputed = pyro.sample("x_imputed", self.imputer(x, mask))
                pyro.sample("y", dist.Normal(weight * imputed.sum(-1), 1.0), obs=y)


def test_imputations_that_stay_the_same():
    x, y, weight, draws = X[:4, :1], X[:4, 1], number(0.8), 40_000
    potential = Potential(Noisy(), (x, y), imputations=draws, seed=3)
    before = torch.get_rng_state()
    first = potential({"weight": weight})
    torch.rand(5)
    assert torch.equal(first, potential({"weight": weight}))
    torch.set_rng_state(before)
    potential({"weight": weight})
    assert torch.equal(before, torch.get_rng_state())
    other = Potential(Noisy(), (x, y), imputations=draws, seed=4)({"weight": weight})
    assert not torch.equal(first, other)
    # Hidden entries integrated out: y ~ N(0, 1 + w²).
    kept = dist.Normal(weight * x[:, 0], 1.0).log_prob(y).exp()
    hidden = dist.Normal(0.0, (1 + weight**2).sqrt()).log_prob(y).exp()
    exact = (0.5 * (kept + hidden)).log().sum() + dist.Normal(0.0, 1.0).log_prob(weight)
    # Variance of p(y | w u) over u: ∫ N(y; wu, 1)² N(u; 0, 1) du = N(y; 0, ½ + w²) / (2 √π).
    square = dist.Normal(0.0, (0.5 + weight**2).sqrt()).log_prob(y).exp() / (2 * math.sqrt(math.pi))
    error = (0.25 * (square - hidden**2) / draws / (0.5 * (kept + hidden)) ** 2).sum().sqrt()
    assert abs(float(-first - exact)) < threshold(1) * float(error)


def test_a_start_has_the_type_of_the_rows():
    class Single(Weighted):
        def __init__(self):
            super().__init__()
            self.weight = PyroSample(dist.Normal(0.0, 1.0))

    assert Potential(Single(), (X, Y)).start()["weight"].dtype == torch.float64


def test_no_finite_start_is_refused():
    class Impossible(Weighted):
        def response(self, weight, kept):
            return dist.Uniform(weight + 10.0, weight + 11.0)

    refused = pytest.raises(ValueError, match="zero or infinite at 100 starting values")
    with pyro.validation_enabled(False), refused:
        Potential(Impossible(), (X, Y)).start()


# What is recorded


class Networked(Noisy):
    """A selector's network of x that no prior moves, and imputations that are drawn."""

    def __init__(self):
        super().__init__()
        self.network = torch.nn.Linear(3, 3).double().requires_grad_(False)

    def law(self, x):
        return KSubset(self.network(x), 2)


class Flipped(Noisy):
    """Imputations that are drawn from a distribution of the latent, and are no function of it."""

    def forward(self, x, y=None):
        weight = self.weight
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", self.law(x))
            with imputation_particles():
                noise = pyro.sample("noise", dist.Normal(number(0.0), 1.0))
                flip = pyro.sample("flip", dist.Bernoulli(logits=weight).mask(False))
                mean = weight * (mask * x)[..., 0] + flip + noise
                pyro.sample("y", dist.Normal(mean, 1.0), obs=y)


class Written(Weighted):
    """A latent that is written into a tensor of zeros."""

    def used(self):
        weights = torch.zeros(3, dtype=torch.float64)
        weights[0] += self.weight
        weights[1] += 2 * self.weight
        return weights


class Counted(TorchDispatchMode):
    """The operations that torch is given."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))

    def __enter__(self):
        self.seen = []
        return super().__enter__()

    def of(self, name):
        return sum(name in str(func) for func in self.seen)

    @property
    def random(self):
        return sum(torch.Tag.nondeterministic_seeded in func.tags for func in self.seen)


@pytest.mark.parametrize(("program", "imputations"), [(Weighted, None), (Networked, 4)])
def test_constants_are_computed_once(program, imputations):
    """Imputations and networks of x are in no evaluation; value and gradient stay."""
    potential = Potential(program(), (X, Y), imputations)
    with program_settings(validate=False):
        recorded = Recorded(potential, {"weight": number(0.1)})
        for place in (*PLACES, *PLACES):
            counts, both = [], []
            for energy in (recorded, potential):
                weight = number(place).requires_grad_()
                with Counted() as counted:
                    value = energy({"weight": weight})
                    (slope,) = torch.autograd.grad(value, weight)
                counts.append(counted)
                both.append([float(value), float(slope)])
            assert both[0] == pytest.approx(both[1], rel=1e-10, abs=1e-10)
            assert counts[0].random == counts[0].of("mm") == 0
            assert len(counts[0].seen) < len(counts[1].seen)
        # The program itself does all of it each time.
        assert counts[1].random > 0 and (counts[1].of("mm") > 0) == (program is Networked)


class Deciding(Weighted):
    """Decides by a latent."""

    def used(self):
        return self.weight if self.weight > 0 else 0.1 * self.weight


@pytest.mark.parametrize(
    ("program", "imputations"), [(Deciding, None), (Flipped, 4), (Written, None)]
)
def test_a_program_that_is_no_fixed_graph_is_not_recorded(program, imputations):
    columns = 1 if program is Flipped else 3
    potential = Potential(program(), (X[:, :columns], Y), imputations)
    place = {"weight": number(0.5)}
    with program_settings(validate=False), pytest.raises(RuntimeError):
        Recorded(potential, place)
    assert Recorded.of(potential, [place]) is None


def test_a_recording_that_is_another_is_noticed():
    class Hiding(Weighted):
        """Decides by a latent behind torch's back."""

        def used(self):
            return self.weight if self.bold else 2.0 * self.weight

    program = Hiding()
    program.bold = True
    potential = Potential(program, (X, Y))
    with program_settings(validate=False):
        recorded = Recorded(potential, {"weight": number(0.5)})
        assert recorded.agrees([{"weight": number(0.7)}])
        program.bold = False
        assert not recorded.agrees([{"weight": number(0.7)}])


# What is refused


class Moving(Plain):
    def before(self):
        top = pyro.sample("top", dist.HalfNormal(1.0))
        return pyro.sample("weight", dist.Uniform(0.0, top))


class Soft(Plain):
    def law(self, x):
        return dist.Beta(x.new_ones(x.shape[-1]), 1.0).to_event(1)


class Top(Plain):
    def law(self, x):
        return TopEntries(x.abs(), 1)


class Twice(Plain):
    def forward(self, x, y=None):
        weight = self.before()
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", self.law(x)) * pyro.sample("second", self.law(x))
            pyro.sample("y", dist.Normal(weight * (mask * x).sum(-1), 1.0), obs=y)


class Subsampled(Plain):
    def forward(self, x, y=None):
        weight = self.before()
        with pyro.plate("data", len(x), subsample_size=2, dim=-1) as some, mask_particles():
            mask = pyro.sample("mask", self.law(x))
            pyro.sample("y", dist.Normal(weight * (mask * x[some]).sum(-1), 1.0), obs=y[some])


def wide(count, entries):
    return torch.zeros(count, entries), torch.zeros(count)


test_what_cannot_be_summed_out_is_refused = refusals(
    (NoLatent, (X, Y), "nothing to sample.*give a prior"),
    (Discrete, (X, Y), r"'kept' is discrete \(Categorical\).*write a guide"),
    (Improper, (X, Y), "prior of 'flat' is improper.*Normal"),
    (OfRows, (X, Y), "'shift' is outside mask_particles.*each row has"),
    (Moving, (X, Y), "support of 'weight' depends on another latent"),
    (Soft, (X, Y), "'mask', of Independent, cannot be listed.*use a guide"),
    (Top, (X, Y), "'mask' keeps the largest entries of a relaxation"),
    (Plain, wide(5, 20), "G = 20 has 1048576 masks.*stochastic-gradient MCMC"),
    (Plain, wide(5000, 12), "20,480,000 particles.*4,096 masks of 5,000 rows"),
    (Noisy, (X[:, :1], Y), r"'x_imputed' is drawn at random \(Normal\).*imputations=K"),
    (Subsampled, (X, Y), "plate 'data' draws 2 of its 12 entries"),
    (Plain, (X,), "give y beside x"),
    of=lambda program, data: Potential(program(), data),
)
