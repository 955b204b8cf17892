"""Every system, estimator, imputer, likelihood, penalty and network makes its training step where
its rows are, and waits for no number: on fake CUDA tensors, and with gradients on meta ones.

The design covers each of them, but not each with each.
"""

import pytest
import torch
from packaging.version import Version

from lexppl.inference.contexts import seeded
from tests.devices.cases import X, covering
from tests.devices.certified_steps import certify_steps
from tests.devices.value_free import FAKE_CUDA, META
from tests.devices.watched_operations import ElsewhereError

WAYS = ((META, 1), (FAKE_CUDA, 3), (META, 3), (FAKE_CUDA, 1))


def certify(case, kind, replicates):
    options = dict(case.options)
    if replicates > 1:
        options["replicates"] = replicates
    with seeded(0):
        return certify_steps(kind, case.model(), case.train, **options)


def covered():
    for place, (group, name, case) in enumerate(covering()):
        ways = [way for way in WAYS if way[1] in case.replicates]
        for kind, replicates in ways[:2] if group == "trees" else [ways[place % len(ways)]]:
            yield pytest.param(case, kind, replicates, id=f"{group}: {name}, {kind}, {replicates}")


@pytest.mark.complete(but=20)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case, kind, replicates", covered())
def test_a_step_stays_on_its_device_and_waits_for_nothing(case, kind, replicates):
    state = torch.get_rng_state()
    if case.refused is not None:
        with pytest.raises((ElsewhereError, RuntimeError, ValueError, AssertionError)):
            certify(case, kind, replicates)
        return
    try:
        certificate = certify(case, kind, replicates)
    except RuntimeError as error:  # Torch 2.11 lacks some operations of fake tensors.
        lacking = "Meta tensors" in str(error) or "no NVIDIA driver" in str(error)
        if not lacking or Version(torch.__version__) >= Version("2.14"):
            raise
        pytest.skip(f"torch {torch.__version__}: {str(error)[:80]}")
    assert certificate.stages >= 1
    assert certificate.operations > 100
    assert torch.equal(state, torch.get_rng_state())
    assert X.device.type == "cpu"
