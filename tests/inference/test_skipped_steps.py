"""A step whose loss or gradient is not finite moves nothing, and is counted."""

import math
from functools import partial

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroModule
from torch import nn

from lexppl import fit, load, save
from lexppl.effects import mask_particles
from lexppl.inference import NestedIWAE, TrainingOptions
from lexppl.inference.objective.objective import Geometric
from lexppl.inference.stages import LossTerm
from lexppl.inference.training.step import StepGuard
from lexppl.inference.training.watch import (
    MOST_IN_A_ROW,
    EpochLoss,
    SkippedSteps,
    SkippedStepsWarning,
)
from lexppl.systems import l2x, lex, real_x
from lexppl.tabular import ExplainerClassifier
from tests.refusals import refused

ROWS = 40
X = torch.randn(ROWS, 2, generator=torch.Generator().manual_seed(0))
Y = X @ torch.tensor([1.0, -2.0])
SHORT = {"batch_size": ROWS, "epochs": 6, "progress": False, "valid": None}
SHORT["objective"] = NestedIWAE(1)
HOW = ["nan", "inf", "gradient"]
pytestmark = pytest.mark.filterwarnings(
    "ignore::lexppl.inference.training.watch.SkippedStepsWarning"
)


class Line(PyroModule):
    """A line, whose loss or gradient is spoilt while a test says so, where `spoils` is above 0.

    Args:
        spoils: 1 for a replicate that is, 0 for one that is not.
        how: "nan", "inf", or "gradient" for a finite loss whose gradient is NaN.
    """

    now = False

    def __init__(self, spoils: float = 1.0, how: str = "nan") -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.zeros(2))
        self.spoils, self.how = spoils, how

    def forward(self, x, y=None):
        mean = x @ self.slope
        is_bad = torch.as_tensor(self.spoils * float(Line.now)) > 0
        if self.how == "gradient":
            # The root of 0 has an infinite derivative, and 0 · ∞ is NaN.
            root = torch.sqrt((1.0 + self.slope[0] ** 2) * torch.where(is_bad, 0.0, 1.0))
            spoilt = 0.0 * root
        else:
            spoilt = torch.where(is_bad, -float(self.how), 0.0)
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            scores = -0.5 * (y - mean).square() + spoilt
            pyro.sample("y", dist.Delta(y, log_density=scores), obs=y)


class Spoiling:
    """A callback that spoils some epochs, and keeps the parameters after each."""

    def __init__(self, epochs):
        self.epochs, self.slopes = epochs, []

    def __call__(self, epoch):
        [slope] = epoch.snapshot().values()
        self.slopes.append(slope.clone())
        Line.now = epoch.number + 1 in self.epochs


@pytest.fixture(autouse=True)
def _unspoilt():
    Line.now = False
    yield
    Line.now = False


def fitted(models, epochs=(), **options):
    """A fit of one step an epoch, some of them spoilt, and the slopes after each `(R, 2)`."""
    Line.now, seen = False, Spoiling(epochs)
    result = fit(models, (X, Y), training=TrainingOptions(callbacks=[seen]), **{**SHORT, **options})
    return result, torch.stack(seen.slopes).reshape(len(seen.slopes), -1, 2)


@pytest.mark.smoke
@pytest.mark.parametrize("how", HOW)
def test_a_step_that_is_not_finite_moves_nothing_and_is_counted(how):
    result, slopes = fitted(partial(Line, how=how), epochs=[2, 4])
    moved = (slopes[1:] != slopes[:-1]).any(-1).squeeze(-1)
    assert moved.tolist() == [True, False, True, False, True]
    assert result.skipped_steps.tolist() == [2]
    assert result.ended is None and not result.interrupted
    assert np.isfinite(result.model.slope.detach()).all()


@pytest.mark.parametrize("how", HOW)
def test_the_optimizer_goes_on_as_if_the_step_had_not_been(how):
    """Four steps of which one is skipped are three steps: its moments and its count stay too."""
    skipping, _ = fitted(partial(Line, how=how), epochs=[1], learning_rate=1e-2)
    whole, slopes = fitted(partial(Line, how=how), learning_rate=1e-2)
    # The rows of an epoch are in another order, and so is the rounding.
    torch.testing.assert_close(skipping.model.slope.detach(), slopes[-2].squeeze(0))
    assert (skipping.model.slope - whole.model.slope).abs().max() > 5e-3


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("optimizer", [None, "sgd"])
def test_of_replicates_the_others_step_stands(how, optimizer):
    options = {"seed": 3}
    if optimizer is not None:
        options["optimizer"] = partial(torch.optim.SGD, lr=1e-3, momentum=0.9)
    models = [Line(1.0, how), Line(0.0, how), Line(0.5, how)]
    result, slopes = fitted(models, epochs=[2], **options)
    _, whole = fitted(models, **options)
    moved = (slopes[1:] != slopes[:-1]).any(-1)
    assert moved[:, 0].tolist() == [True, False, True, True, True]
    assert moved[:, 1].all()
    assert result.skipped_steps.tolist() == [1, 0, 1]
    # The one that was spared has the very numbers that it has without any spoiling.
    assert torch.equal(slopes[:, 1], whole[:, 1])
    assert torch.isfinite(slopes).all()
    assert np.isfinite(result.history.train[2][1]) and np.isnan(result.history.train[2][0])


def test_the_loss_of_an_epoch_is_that_of_the_steps_that_were_made():
    """By rows: batches of 3, 3 and 2, of which the second of the first replicate was skipped; half
    of the loss comes from a second term."""
    terms = [LossTerm(Line(), NestedIWAE(1), weight=weight) for weight in (0.5, 0.25)]
    seen = EpochLoss(terms, 8.0)
    assert seen.mean(np.ones((0, 2), dtype=bool)).shape == (0,)
    steps = [[8.0, 16.0], [float("nan"), 24.0], [32.0, 40.0]]
    for losses, size in zip(steps, (3, 3, 2), strict=True):
        seen.add([torch.tensor(losses), 2 * torch.tensor(losses)], size)
    made = np.array([[True, True], [False, True], [True, True]])
    expected = [(1.0 * 3 + 4.0 * 2) / 5, (2.0 * 3 + 3.0 * 3 + 5.0 * 2) / 8]
    assert seen.mean(made).tolist() == pytest.approx(expected)
    made[:, 0] = False
    assert np.isnan(seen.mean(made)[0])


@pytest.mark.parametrize("how", HOW)
def test_a_fit_whose_steps_all_fail_ends_with_its_last_good_state(how):
    seen = Spoiling(range(3, 3 + MOST_IN_A_ROW))
    with pytest.warns(SkippedStepsWarning, match=r"ended at epoch 23, .*best state before") as told:
        build = partial(Line, how=how)
        result = fit(
            build, (X, Y), training=TrainingOptions(callbacks=[seen]), **{**SHORT, "epochs": 50}
        )
    cause = {"nan": "loss is NaN", "inf": "probability zero", "gradient": "the gradient is not"}
    assert cause[how] in str(told[0].message)
    assert "\n" not in str(told[0].message)
    assert cause[how] in result.ended
    assert len(result.history) == 3 + MOST_IN_A_ROW
    assert result.best_epoch.tolist() == [2]
    assert torch.equal(result.model.slope, seen.slopes[-1].squeeze(0))
    assert "ended at epoch 23" in repr(result)


def test_the_first_epoch_without_a_step_is_an_error():
    """There is no good state to go back to, though the first look at a batch found nothing."""

    def spoiling(parameters):
        # An optimizer is made after the first look.
        Line.now = True
        return torch.optim.Adam(parameters)

    with pytest.raises(FloatingPointError, match=r"no step of the first epoch .* loss is NaN"):
        fit(Line, (X, Y), optimizer=spoiling, **SHORT)


SMALL = {"hidden": (4,), "predictor_hidden": (4,)}
LABELS = (X, (X[:, 0] > 0).long())


@pytest.mark.parametrize(
    "options", [{}, {"valid": None}, {"training": TrainingOptions(compile="graph")}], ids=str
)
@pytest.mark.parametrize(
    "build", [partial(lex, 2), partial(lex, 2, k=1), partial(l2x, 2, k=1), partial(real_x, 2)]
)
def test_weights_that_a_step_has_made_too_large_are_an_error_that_names_the_rate(build, options):
    options = {"epochs": 5, "batch_size": 10, "progress": False, **options}
    with pytest.raises(
        FloatingPointError, match=r"no weights .* have a finite loss: .*learning rate .*a lower one"
    ):
        fit(build(classes=2, **SMALL), LABELS, learning_rate=1e30, **options)


@pytest.mark.parametrize("options", [{}, {"valid": None}], ids=str)
def test_a_rate_that_rises_too_far_ends_with_the_state_before(options):
    """A rate that rises by a factor of 1e30 after the second epoch."""
    rate = Geometric(1e-3, 1e30, begin=0.4, end=0.4 + 1e-9)
    options = {"epochs": 5, "progress": False, "batch_size": 10, **options}
    system = lex(2, classes=2, penalty=0.02, **SMALL)
    if options.get("valid", True) is None:
        with pytest.raises(FloatingPointError, match=r"no weights .* have a finite loss"):
            fit(system, LABELS, learning_rate=rate, **options)
        return
    with pytest.warns(SkippedStepsWarning, match="try a lower learning rate"):
        result = fit(system, LABELS, learning_rate=rate, **options)
    until_then = TrainingOptions(callbacks=[lambda epoch: epoch.number == 1])
    short = fit(system, LABELS, learning_rate=1e-3, training=until_then, **options)
    assert result.best_epoch.tolist() == short.best_epoch.tolist()
    states = [one.model.state_dict() for one in (result, short)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.parametrize("rate", [math.inf, math.nan, -math.inf, -1e-3])
def test_a_rate_that_is_not_finite_is_refused_by_name(rate):
    system, said = lex(2, classes=2, **SMALL), r"learning_rate must be a finite number.*; it is "
    refused(said + str(rate), fit, system, LABELS, epochs=1, learning_rate=rate, progress=False)
    with pytest.raises(ValueError, match=said + str(rate)):
        late = lambda at: rate if at > 0.5 else 1e-3  # noqa: E731 - a schedule
        fit(system, LABELS, epochs=4, learning_rate=late, progress=False)
    with pytest.raises(ValueError, match="learning_rate"):
        ExplainerClassifier(learning_rate=rate).fit(X.numpy(), LABELS[1].numpy())


@pytest.mark.parametrize("replicates", [1, 3])
@pytest.mark.parametrize("make", [torch.optim.Adam, partial(torch.optim.SGD, lr=0.1, momentum=0.9)])
def test_the_way_without_looking_does_the_same(replicates, make):
    """What is done elsewhere, run on a CPU: four steps of which some are spoilt."""
    drawn = torch.Generator().manual_seed(0)
    start = torch.randn(replicates, 2, generator=drawn)
    weights = [nn.Parameter(start.clone()) for _ in range(2)]
    guards = [StepGuard(replicates, [make([weight])]) for weight in weights]
    for bad in ([], [0], list(range(replicates)), []):
        gradient = torch.randn(replicates, 2, generator=drawn)
        gradient[bad, 1] = torch.nan
        losses = [torch.zeros(replicates)]
        for weight in weights:
            weight.grad = gradient.clone()
        guards[0].step(losses)
        good = weights[1].grad.isfinite().all(1)
        guards[1]._flags.append((guards[1]._steps, good))
        guards[1]._steps += 1
        guards[1]._step_of([weights[1].grad], good)
    torch.testing.assert_close(*weights)
    assert torch.isfinite(weights[0]).all()
    made = [guard.epoch_over(4) for guard in guards]
    assert made[0].tolist() == made[1].tolist()
    assert made[0].sum(0).tolist() == ([2] if replicates == 1 else [2, 3, 3])


def test_many_in_a_row_are_counted_over_epochs():
    """A replicate that is stuck lets the others go on; all of them end the fit."""
    skipped, steps = SkippedSteps(2), MOST_IN_A_ROW // 3

    def add(first, second):
        made = np.tile([first, second], (steps, 1))
        skipped.add(made, lambda: np.full(made.shape, np.nan))
        skipped.end_where_stuck(0)

    for _ in range(6):
        add(False, True)
    assert skipped.in_a_row.tolist() == [6 * steps, 0]
    made = np.zeros((MOST_IN_A_ROW + 1, 2), dtype=bool)
    made[0] = True
    skipped.add(made, lambda: np.full(made.shape, np.nan))
    assert skipped.in_a_row.tolist() == [MOST_IN_A_ROW] * 2
    add(True, False)
    assert skipped.ended is None
    assert skipped.in_a_row.tolist() == [0, MOST_IN_A_ROW + steps]
    for _ in range(4):
        add(False, False)
    assert "ended at epoch 1, after 24 steps in a row" in skipped.ended


def test_counts_are_saved_and_loaded(tmp_path):
    result, _ = fitted([Line(1.0), Line(0.0)], epochs=[2])
    save(result, tmp_path)
    again = load(tmp_path, model=Line)
    assert again.skipped_steps.tolist() == [1, 0]
    assert again.ended is None
    assert again.subset([1]).skipped_steps.tolist() == [0]
    assert "1 step skipped" in repr(again)


@pytest.mark.filterwarnings("ignore::lexppl.inference.training.checkpoint.CheckpointWarning")
def test_counts_go_on_from_a_checkpoint(tmp_path):
    class Stopping(Spoiling):
        def __call__(self, epoch):
            super().__call__(epoch)
            if epoch.number == 3:
                raise KeyboardInterrupt

    options = {**SHORT, "checkpoint": tmp_path / "state"}
    cut = fit(Line, (X, Y), training=TrainingOptions(callbacks=[Stopping([1, 5])]), **options)
    assert cut.skipped_steps.tolist() == [1]
    again = fit(Line, (X, Y), training=TrainingOptions(callbacks=[Spoiling([1, 5])]), **options)
    whole, _ = fitted(Line, epochs=[1, 5])
    assert again.skipped_steps.tolist() == whole.skipped_steps.tolist() == [2]
    assert torch.equal(again.model.slope, whole.model.slope)
