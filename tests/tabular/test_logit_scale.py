"""Logits of a fit, rescaled to be as sure as judged labels show."""

import copy
import functools
import math

import pytest
import torch

from lexppl import fit
from lexppl.evaluation.folds import Folds
from lexppl.evaluation.prediction import predictive, predictive_log_likelihood
from lexppl.systems import lex
from lexppl.tabular.predictors import rescale_logits

X = torch.randn(120, 2, generator=torch.Generator().manual_seed(0))
CERTAIN = (X[:, 0] > 0).long()
NOISE = torch.arange(120) % 2
SMALL = {"hidden": (4,), "predictor_hidden": (8,)}


SETTINGS = {"epochs": 60, "batch_size": 40, "learning_rate": 1e-2, "valid": None}


@functools.cache
def learned(labels):
    """A fit to labels and its folds; of None a fit to a response, and the response."""
    if labels is None:
        y = X[:, 0] + 0.3 * torch.randn(120, generator=torch.Generator().manual_seed(1))
        system = lex(2, classes=None, penalty=0.0, **SMALL)
        return fit(system, (X, y), progress=False, **SETTINGS), y
    folds = Folds.of(labels, 3)
    system = lex(2, classes=2, penalty=0.01, **SMALL)
    rows = {"row_weights": folds.weights, "weight_decay": 0.02, "progress": False}
    return fit(system, (X, labels), seed=1, **SETTINGS, **rows), folds


def fitted(labels):
    """A copy of what :func:`learned` has, to change."""
    result, rows = learned(labels)
    return copy.deepcopy(result), rows


def logits_of(result):
    return [
        copy.deepcopy(part.network.layers[-1].state_dict())
        for model in result.models
        for part in model.predictor.predictors
    ]


def total(result, folds, y):
    return folds.values(predictive_log_likelihood, result, X, y, masks=10, seed=1).sum()


def test_labels_that_are_certain_sharpen_networks_that_weight_decay_holds_back():
    result, folds = fitted(CERTAIN)
    before, unsure = logits_of(result), total(result, folds, CERTAIN)
    factor = rescale_logits(result, (X, CERTAIN), folds, None, 10)
    assert factor == pytest.approx(4.0)
    for old, new in zip(before, logits_of(result), strict=True):
        assert all(torch.equal(old[name] * factor, new[name]) for name in old)
    assert total(result, folds, CERTAIN) > unsure + 1.0


def test_neither_the_next_factor_nor_the_one_before_is_better():
    y = torch.where(torch.arange(120) % 15 == 0, 1 - CERTAIN, CERTAIN)
    result, folds = fitted(y)
    factor = rescale_logits(result, (X, y), folds, None, 10)
    best = total(result, folds, y)
    assert 1.0 < factor < 3.9
    for step in (2**0.5, 0.5):
        for model in result.models:
            for part in model.predictor.predictors:
                for weight in part.network.layers[-1].parameters():
                    weight.data.mul_(step)
        assert total(result, folds, y) < best


def test_logits_of_noise_stay():
    result, folds = fitted(NOISE)
    before = logits_of(result)
    assert rescale_logits(result, (X, NOISE), folds, None, 10) == 1.0
    for old, new in zip(before, logits_of(result), strict=True):
        assert all(torch.equal(old[name], new[name]) for name in old)


@pytest.mark.parametrize("scale", [0.25, 1.0, 4.0])
def test_the_scale_of_a_response_is_that_of_what_is_missed(scale):
    """To within half a step, √√2, of the most likely scale, and of no other weight."""
    result, y = fitted(None)
    likelihoods = [part.likelihood for part in result.model.predictor.predictors]
    for likelihood in likelihoods:
        likelihood.settle(y - predictive(result, X, masks=200)[0])
    best = rescale_logits(result, (X, y), None, None, 200)
    assert 0.5 <= best <= 2.0
    for likelihood in likelihoods:
        likelihood.log_scale.data += math.log(scale)
    before = logits_of(result)
    factor = rescale_logits(result, (X, y), None, None, 200)
    assert abs(math.log2(factor * scale)) <= 0.6
    for old, new in zip(before, logits_of(result), strict=True):
        assert all(torch.equal(old[name], new[name]) for name in old)


def test_rows_of_weight_0_do_not_count():
    result, folds = fitted(CERTAIN)
    wrong = torch.where(torch.arange(120) < 60, CERTAIN, 1 - CERTAIN)
    weights = (torch.arange(120) < 60).float()
    assert rescale_logits(copy.deepcopy(result), (X, wrong), folds, None, 10) < 1.0
    assert rescale_logits(result, (X, wrong), folds, weights, 10) > 1.0
