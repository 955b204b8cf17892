"""Fits that still move are told from those that have come to rest, and from those too noisy."""

from dataclasses import replace

import numpy as np
import pytest
from torch import nn

from lexppl.inference import NotSettledWarning, settled
from lexppl.inference.training.result import History
from tests.evaluation.fitted_by_hand import result_of as by_hand
from tests.refusals import refused


def result_of(losses, rows=100, stage=None):
    losses = np.asarray(losses, dtype=float)
    losses = losses[:, None] if losses.ndim == 1 else losses
    count, replicates = losses.shape
    stage = np.zeros(count, int) if stage is None else stage
    history = History(losses, losses, stage, np.zeros(count))
    return replace(by_hand(*[nn.Identity()] * replicates), history=history, rows=(rows, 0))


NOISE = np.random.default_rng(0).standard_normal(300)


def test_the_fall_is_that_of_a_line():
    with pytest.warns(NotSettledWarning):
        found = settled(result_of(5.0 - 0.01 * np.arange(300)))
    # 100 epochs of .01 nats a row, of 100 rows.
    assert found.fall[0] == pytest.approx(100.0)
    assert found.noise[0] == pytest.approx(0.0, abs=1e-6)


def test_a_quiet_loss_has_settled(recwarn):
    found = settled(result_of(1.0 + 1e-3 * NOISE))
    assert found.settled.all()
    assert found.warning is None
    assert not recwarn


def test_the_noise_is_the_standard_error_of_the_fall():
    generator = np.random.default_rng(1)
    losses = 1.0 + 1e-3 * generator.standard_normal((300, 2000))
    found = settled(result_of(losses))
    z = found.fall / found.noise
    # A t distribution with 98 degrees of freedom: sd 1.01, and its own error 1/√4000.
    assert abs(z.std() - 1.01) < 4 / np.sqrt(4000)
    assert abs(z.mean()) < 4 / np.sqrt(2000)


def test_a_falling_loss_is_named_and_a_noisy_one_too():
    falling = 1.0 - 1e-3 * np.arange(300) + 1e-3 * NOISE
    with pytest.warns(NotSettledWarning, match="1 of 1 replicates still move"):
        settled(result_of(falling))
    with pytest.warns(NotSettledWarning, match="is not known"):
        settled(result_of(1.0 + NOISE))


def test_replicates_and_stages_are_judged_by_themselves():
    quiet, falling = 1.0 + 1e-4 * NOISE, 1.0 - 1e-3 * np.arange(300)
    with pytest.warns(NotSettledWarning, match="1 of 2"):
        found = settled(result_of(np.stack([quiet, falling], 1)))
    assert found.settled.tolist() == [True, False]
    stage = np.repeat([0, 1], 150)
    assert settled(result_of(np.where(stage == 0, falling, quiet), stage=stage)).settled.all()


def test_too_few_epochs_cannot_be_judged():
    with pytest.warns(NotSettledWarning, match="too short"):
        assert not settled(result_of(np.ones(12))).settled.any()
    refused("no history", settled, result_of(np.ones((0, 1))))
