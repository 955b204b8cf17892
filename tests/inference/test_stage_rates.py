"""What a stage says of its own learning rate, and of the state that it ends with."""

import warnings

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer.autoguide import AutoNormal
from pyro.nn import PyroModule, PyroSample

from lexppl.effects import imputation_particles, mask_particles
from lexppl.inference import Linear, LossTerm, NestedIWAE, Stage, TrainingOptions, fit
from lexppl.inference.contexts import seeded
from lexppl.inference.training.diagnostics import NotSettledWarning
from lexppl.models import UnmaskedPredictor
from lexppl.models.predictor import table_predictor
from lexppl.systems import q_fit

X = torch.randn(80, 3, generator=torch.Generator().manual_seed(0))
ROWS = (X, (X[:, 0] > 0).long())


class Watched(torch.optim.SGD):
    """SGD that keeps the rate of each step."""

    def __init__(self, parameters, seen):
        super().__init__(parameters, lr=7.0)
        self.seen = seen

    def step(self, closure=None):
        self.seen.append(self.param_groups[0]["lr"])
        return super().step(closure)


def program():
    with seeded(0):
        return UnmaskedPredictor(table_predictor(3, 2, (4,)))


def rates(asked=None, **stage):
    """The rates of four steps, by a stage's own optimizer."""
    seen = []
    terms = [LossTerm(program(), NestedIWAE(1))]
    made = Stage(terms, optimizer=lambda p: Watched(p, seen), **stage)
    options = {} if asked is None else {"learning_rate": asked}
    fit(None, ROWS, stages=[made], valid=None, epochs=4, progress=False, **options)
    return seen


def test_a_stage_has_its_own_rate_unless_the_fit_is_given_one():
    own = Linear(0.4, 0.0)
    assert rates(learning_rate=own) == pytest.approx([0.4, 0.3, 0.2, 0.1])
    assert rates(learning_rate=own, asked=0.05) == pytest.approx([0.05] * 4)
    assert rates(learning_rate=own, asked=Linear(0.8, 0.0)) == pytest.approx([0.8, 0.6, 0.4, 0.2])
    # An optimizer without a rate of the stage has its own, whatever the fit is given.
    assert rates() == rates(asked=0.05) == [7.0] * 4


def test_an_optimizer_that_the_fit_is_given_keeps_its_rate():
    seen = []
    made = Stage([LossTerm(program(), NestedIWAE(1))], learning_rate=Linear(0.4, 0.0))
    options = {"valid": None, "epochs": 2, "progress": False}
    fit(None, ROWS, stages=[made], optimizer=lambda p: Watched(p, seen), **options)
    assert seen == [7.0, 7.0]


@pytest.mark.parametrize("keep", ["best", "last"])
def test_a_stage_keeps_the_state_that_it_says(keep):
    """A rate of 20 from half way on throws the weights about: the last epoch is not the best."""
    made = Stage([LossTerm(program(), NestedIWAE(1))], keep=keep)
    states = []
    options = {"learning_rate": lambda t: 0.02 if t < 0.5 else 20.0, "epochs": 12, "batch_size": 20}
    training = TrainingOptions(
        patience=2 if keep == "last" else None,
        callbacks=[lambda epoch: states.append(epoch.valid[0])],
    )
    options |= {"valid": 0.2, "training": training}
    result = fit(None, ROWS, stages=[made], progress=False, **options)
    least = int(np.argmin(states))
    assert len(states) == 12 and least < 11
    assert result.best_epoch[0] == (least if keep == "best" else 11)
    assert result.best_valid[0] == pytest.approx(states[result.best_epoch[0]])


def test_another_state_is_refused():
    with pytest.raises(ValueError, match=r"keep must be one of .*'best', 'last'.; it is 'first'"):
        Stage([LossTerm(program(), NestedIWAE(1))], keep="first")


class Shifted(PyroModule):
    """y ~ N(slope · z x, 1) with a prior on the slope, and a number that may be learned."""

    def __init__(self, learned):
        super().__init__()
        self.slope = PyroSample(dist.Normal(0.0, 1.0))
        self.shift = torch.nn.Parameter(torch.zeros(()), requires_grad=learned)

    def forward(self, x, y=None):
        slope = self.slope
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", dist.Bernoulli(x.new_tensor([0.9])).to_event(1))
            mean = self.shift + slope * mask[..., 0] * x[:, 0]
            with imputation_particles():
                pyro.sample("y", dist.Normal(mean, 1.0), obs=y)


@pytest.mark.parametrize(
    ("learned", "options", "rows", "last"),
    [
        (False, {}, (80, 0), True),
        (False, {"valid": 0.25}, (60, 20), True),
        (True, {}, (64, 16), False),
    ],
)
def test_a_posterior_alone_is_of_all_rows_and_ends_with_its_last_state(
    learned, options, rows, last
):
    options |= {"epochs": 12, "batch_size": 20, "weight_decay": 0.0, "progress": False}
    rate = lambda t: 0.02 if t < 0.5 else 1.0  # noqa: E731
    result = fit(Shifted(learned), (X, X[:, 0]), guide=AutoNormal, learning_rate=rate, **options)
    assert result.rows == rows
    assert bool(result.best_epoch[0] == 11) is last


def test_the_best_state_of_a_posterior_can_be_asked_for():
    model = Shifted(False)
    term = LossTerm(model, NestedIWAE(4), AutoNormal(pyro.poutine.block(model, expose=["slope"])))
    assert Stage([term]).keeps_last
    assert not Stage([term], keep="best").keeps_last
    assert not Stage([LossTerm(model, NestedIWAE(4))]).keeps_last


def located(learned=False, **options):
    """Where a normal guide of the slope ends."""
    result = fit(Shifted(learned), (X, X[:, 0]), guide=AutoNormal, progress=False, **options)
    return float(result.guides[0].locs.slope)


@pytest.mark.filterwarnings("ignore::lexppl.inference.training.diagnostics.NotSettledWarning")
def test_guides_alone_have_a_rate_of_their_own():
    usual, higher = Linear(1e-3, 5e-5, begin=0.5), Linear(1e-2, 5e-4, begin=0.5)
    assert located(epochs=5) == located(epochs=5, learning_rate=higher)
    assert located(epochs=5) != located(epochs=5, learning_rate=usual)
    assert located(True, epochs=5) == located(True, epochs=5, learning_rate=usual)


def test_a_posterior_that_still_moves_is_told():
    with pytest.warns(NotSettledWarning, match="still move"):
        located(epochs=60, learning_rate=1e-3, objective=NestedIWAE(4, samples=50))
    with pytest.warns(NotSettledWarning, match="too short"):
        located(epochs=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotSettledWarning)
        located(epochs=300, learning_rate=Linear(0.1, 1e-3, begin=0.3))
        # A predictor that learns is watched by its validation rows.
        located(True, epochs=5)


def test_labels_of_one_class_leave_a_posterior_its_prior():
    """A posterior alone takes them; a predictor that learns has nothing to learn from them."""
    same = X, torch.ones(80, dtype=torch.long)
    predictor = table_predictor(3, 2, (4,))
    result = fit(q_fit(3, predictor, scope="global"), same, epochs=9, progress=False, batch_size=80)
    assert bool(result.guides[0].distribution.concentration.isfinite().all())
    with pytest.raises(ValueError, match="one class only, 1; a predictor needs two"):
        fit(UnmaskedPredictor(predictor), same, objective=NestedIWAE(1), progress=False)


@pytest.mark.smoke
def test_a_stage_has_its_own_epochs_or_the_fits():
    model = program()
    stages = [Stage([LossTerm(model, NestedIWAE(1))], epochs=epochs) for epochs in (None, 2, 1)]
    result = fit(None, ROWS, stages=stages, valid=None, epochs=4, progress=False)
    assert result.history.stage.tolist() == [0, 0, 0, 0, 1, 1, 2]
