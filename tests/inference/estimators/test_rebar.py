"""REBAR: its temperature and scale, tuned on the gradient's variance, and its random numbers."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lexppl.inference import REBAR, NestedIWAE, TunedControl
from lexppl.inference.contexts import keep_parameters_local, program_settings, seeded
from lexppl.inference.training.step import gradient_of_square
from lexppl.models import GaussianImputer
from lexppl.systems import lex
from tests.refusals import refused
from tests.small_models import explainer, quick, table

X, Y = table(300)


def build():
    return explainer(imputer=GaussianImputer(), hidden=(8,), seed=None)


def gradients(model, control, seed, create_graph=False):
    objective = NestedIWAE(2, estimator=REBAR(control=control))
    x = X.to(next(model.parameters()).dtype)
    with seeded(seed), program_settings(validate=False):
        loss = objective.differentiable_loss(model, None, x, Y) / len(X)
    return torch.autograd.grad(loss, list(model.selector.parameters()), create_graph=create_graph)


def test_the_tuning_gradient_is_that_of_the_squared_gradient():
    with seeded(1):
        model, control = build().double(), TunedControl(0.6, 0.8).double()
    keep_parameters_local(model)
    control_parameters = [control.log_temperature, control.scale]
    found = gradient_of_square(gradients(model, control, 3, create_graph=True), control_parameters)
    for parameter, slope in zip(control_parameters, found, strict=True):
        step, ends = 1e-5, []
        for sign in (1, -1):
            with torch.no_grad():
                parameter.add_(sign * step)
            ends.append(sum(g.square().sum() for g in gradients(model, control, 3)))
            with torch.no_grad():
                parameter.sub_(sign * step)
        numeric = float(ends[0] - ends[1]) / (2 * step)
        assert float(slope) == pytest.approx(numeric, rel=1e-5, abs=1e-12)
        assert abs(numeric) > 1e-9


def variance(model, control):
    every = (gradients(model, control, seed) for seed in range(60))
    drawn = torch.stack([torch.cat([g.flatten() for g in one]) for one in every])
    return float(drawn.var(0).sum())


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("replicates", [1, 2])
def test_a_fit_tunes_a_bad_start_and_leaves_what_it_was_given(replicates):
    given = TunedControl(0.05, 3.0)
    options = {"epochs": 30, "batch_size": 50, "replicates": replicates, "valid": 0.2}
    objective = NestedIWAE(2, estimator=REBAR(control=given))
    result = quick(build, (X, Y), objective=objective, **options)
    assert float(given.scale.detach()) == 3.0
    control_parameters = [r.stages[0].terms[0].objective.estimator.control for r in result.modules]
    assert len({float(c.scale.detach()) for c in control_parameters}) == replicates
    for model, control in zip(result.models, control_parameters, strict=True):
        assert variance(model, control) < 0.5 * variance(model, given)


def test_what_is_not_a_control_is_refused():
    refused("control must be a TunedControl; it is float", REBAR, error=TypeError, control=0.5)
    refused("temperature must be a finite number above 0", TunedControl, 0.0)


class Drawn(TorchDispatchMode):
    """The random numbers of a program, in their order."""

    def __init__(self):
        super().__init__()
        self.numbers = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        value = func(*args, **(kwargs or {}))
        if torch.Tag.nondeterministic_seeded in func.tags:
            self.numbers.append(value.detach().clone().flatten().tolist())
        return value


def drawn_by_a_step(program, x, y):
    with Drawn() as drawn:
        loss = NestedIWAE(masks=2, estimator=REBAR())(program, None)(x, y)
        loss.backward()
    return drawn.numbers


@pytest.mark.smoke
def test_two_steps_share_no_random_numbers():
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    with seeded(0), program_settings(validate=False):
        program = lex(3, classes=2, penalty=0.1, folds=1).program()
        first, second = drawn_by_a_step(program, x, y), drawn_by_a_step(program, x, y)
    # Within a step the runs have the same imputations, so that some are drawn more than once.
    assert len({tuple(one) for one in first}) < len(first)
    assert not {tuple(one) for one in first} & {tuple(one) for one in second}
