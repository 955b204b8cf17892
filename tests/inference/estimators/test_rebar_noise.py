"""REBAR goes back to earlier random numbers within a step, and never leaves the next step there."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lexppl.inference import REBAR, NestedIWAE
from lexppl.inference.contexts import program_settings, seeded
from lexppl.systems import lex


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
