"""What the check of steps is for: programs that leave the device or wait for it fail it."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroModule

from lexppl.effects import mask_particles
from lexppl.inference.contexts import seeded
from lexppl.models import MLP, StudentTLikelihood
from tests.devices.cases import LABELS, X
from tests.devices.certified_steps import certify_steps
from tests.devices.value_free import FAKE_CUDA, META
from tests.devices.watched_operations import ElsewhereError
from tests.refusals import refused


class Labels(PyroModule):
    """Labels by a network of what a function makes of the rows."""

    def __init__(self, changed=lambda x: x):
        super().__init__()
        self.network, self.changed = MLP(4, 3, (5,)), changed

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            logits = self.network(self.changed(x))
            return pyro.sample("y", dist.Categorical(logits=logits), obs=y)


NUMBERS = [1.0, 2.0, 3.0, 4.0]
CHANGES = {
    "by entry": lambda x: x * x[0, 0].item(),
    "by branch": lambda x: -x if x.sum() > 0 else x,
    "by booleans": lambda x: x - x[x > 0].mean(),
    "with a CPU tensor": lambda x: x + torch.ones(4),
    "with numbers": lambda x: x * torch.tensor(NUMBERS, device=x.device),
    "with a new tensor": lambda x: x * x.new_tensor(NUMBERS),
    "through the host": lambda x: x + 0.0 * x.mean().cpu(),
    "with an unused CPU tensor": lambda x: (torch.zeros(7), x)[1],
    "with a list of places": lambda x: x[:, [1, 0, 2, 3]],
    "with a CPU generator": lambda x: (
        x + torch.rand(x.shape, generator=torch.Generator(), device=x.device)
    ),
}
WAITS = (RuntimeError, ElsewhereError, AssertionError)


@pytest.mark.complete(but=8)
@pytest.mark.parametrize("kind", [META, FAKE_CUDA])
@pytest.mark.parametrize("change", CHANGES)
def test_a_program_that_waits_or_leaves_is_noticed(kind, change):
    with seeded(0):
        certify_steps(kind, Labels(), (X, LABELS))
        if kind == META and change in ("with a CPU generator", "with a list of places"):
            pytest.skip("torch tells of it on fake CUDA alone")
        with pytest.raises(WAITS):
            certify_steps(kind, Labels(CHANGES[change]), (X, LABELS))


@pytest.mark.parametrize("kind", [META, FAKE_CUDA])
def test_what_stays_behind_when_a_module_moves_is_noticed(kind):
    with seeded(0):
        certify_steps(kind, Scaled(as_buffer=True), (X, LABELS))
        with pytest.raises(WAITS):
            certify_steps(kind, Scaled(as_buffer=False), (X, LABELS))


def test_a_step_that_is_never_reached_certifies_nothing():
    refused("has no rows", certify_steps, META, Labels(), (X[:0], LABELS[:0]))


def test_of_a_refused_likelihood_another_form_passes():
    """So that the exception of Student-t is of torch's distribution, not of the check."""
    with pytest.raises(ElsewhereError, match=r"copies 0\.5 from the host"), seeded(0):
        certify_steps(META, Responses(StudentTLikelihood()), (X, X[:, 0]))
    from lexppl.models import HeteroscedasticLikelihood

    with seeded(0):
        certify_steps(META, Responses(HeteroscedasticLikelihood(), 2), (X, X[:, 0]))


class Scaled(Labels):
    def __init__(self, as_buffer):
        super().__init__()
        scale = torch.tensor(NUMBERS)
        if as_buffer:
            self.register_buffer("scale", scale)
        else:
            self.scale = scale

    def forward(self, x, y=None):
        return super().forward(x * self.scale, y)


class Responses(PyroModule):
    def __init__(self, likelihood, outputs=1):
        super().__init__()
        self.network, self.likelihood = MLP(4, outputs, (5,)), likelihood

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            return pyro.sample("y", self.likelihood(self.network(x)), obs=y)
