"""The encode-meter's truth: against quadrature, against enumeration, and none where none is."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

from lexppl.data import synthetic
from lexppl.evaluation import Oracle
from tests.benchmark_modules import benchmark_module
from tests.evaluation.leaks.enumerated import enumerated_encode_meter

encode_oracle = benchmark_module("encode_oracle")
of_function, oracle_encode_meter = (encode_oracle.of_function, encode_oracle.oracle_encode_meter)
DATA = synthetic("Syn1", rows=1500, seed=5, dtype=torch.float64)
ORACLE = Oracle("Syn1")


def one_hot(x, place):
    return torch.zeros_like(x).scatter(1, place[:, None], 1.0)


def by_sign_of_second(x):
    """Keeps x1 where x2 > 0, else x3: of y = sigmoid(−x1 x2) the kept value tells nothing alone."""
    return one_hot(x, torch.where(x[:, 1] > 0, 0, 2))


def divergence_by_quadrature():
    """½ E KL(p(y | x1, x2 > 0) ‖ ½); of the rows that keep x3 nothing is told."""

    def p(value):
        integrand = lambda other: 2 * norm.pdf(other) / (1 + math.exp(value * other))  # noqa: E731
        return quad(integrand, 0, 9)[0]

    grid = np.linspace(-6, 6, 241)
    each = [sum(q * math.log(2 * q) for q in (p(v), 1 - p(v))) for v in grid]
    return 0.5 * float(np.trapezoid(np.array(each) * norm.pdf(grid), grid))


@pytest.mark.complete
def test_it_is_the_quadratures_of_a_choice_that_tells():
    masks = by_sign_of_second(DATA.x)
    found = oracle_encode_meter(
        of_function(by_sign_of_second), masks, ORACLE, DATA.x, DATA.y, least=100
    )
    wanted = divergence_by_quadrature()
    assert wanted > 0.02
    assert abs(found.value - wanted) / found.standard_error < 4.0
    labels = found.log_ratio
    error = float(labels.std()) / math.sqrt(len(labels))
    assert abs(float(labels.mean()) - wanted) / error < 4.0
    assert found.thin == 0.0


@pytest.mark.parametrize("name", ["S1", "S3"])
def test_truth_and_random_masks_tell_nothing(name):
    data, oracle = synthetic(name, rows=300, seed=1), Oracle(name)
    law = oracle.distribution
    truth = oracle_encode_meter(of_function(law.truth), data.truth, oracle, data.x)
    assert abs(truth.value) < 1e-9
    masks = torch.bernoulli(torch.full_like(data.x, 0.5))
    even = oracle_encode_meter(lambda x, _: x.new_ones(len(x)), masks, oracle, data.x, data.y)
    assert abs(even.value) < 4.0 * even.standard_error + 1e-9
    assert even.standard_error < 0.002


def table(seed):
    """A law of three binary features and y, and an explainer that draws of four masks."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.tensor([[a, b, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)]).double()
    weights = torch.rand(8, generator=generator, dtype=torch.float64)
    labels = torch.rand(8, 2, generator=generator, dtype=torch.float64)
    masks = torch.tensor([[1, 0, 0], [0, 1, 0], [0, 1, 1], [0, 0, 0]]).double()
    selection = torch.rand(8, 4, generator=generator, dtype=torch.float64)
    return (
        weights / weights.sum(),
        points,
        labels / labels.sum(1, keepdim=True),
        masks,
        selection / selection.sum(1, keepdim=True),
    )


@pytest.mark.smoke
@pytest.mark.parametrize("seed", range(5))
def test_the_enumerated_one_is_conditional_mutual_information(seed):
    """`Σ_v P(E = v) · E KL`, by four loops over a joint table."""
    weights, points, labels, masks, selection = table(seed)
    total = 0.0
    for v, mask in enumerate(masks):
        for i in range(8):
            same = [j for j in range(8) if bool(((points[i] == points[j]) | (mask == 0)).all())]
            for c in range(2):
                plain = sum(weights[j] * labels[j, c] for j in same) / weights[same].sum()
                chosen = sum(weights[j] * labels[j, c] * selection[j, v] for j in same)
                mass = sum(weights[j] * selection[j, v] for j in same)
                joint = weights[i] * labels[i, c] * selection[i, v]
                total += float(joint * torch.log(chosen / mass / plain))
    assert abs(float(enumerated_encode_meter(*table(seed))) - total) < 1e-12
    assert total > 1e-4


def test_a_choice_by_what_is_kept_tells_nothing():
    weights, points, labels, masks, _ = table(0)
    by_first = torch.stack([points[:, 0], 0 * points[:, 0], 0 * points[:, 0], 1 - points[:, 0]], 1)
    leaks = enumerated_encode_meter(weights, points, labels, masks, by_first)
    # Where x1 = 0 nothing is kept, and that it is 0 is told; where it is 1 it is kept.
    assert float(leaks) > 1e-4
    kept = masks.clone()
    kept[3, 0] = 1.0
    assert abs(float(enumerated_encode_meter(weights, points, labels, kept, by_first))) < 1e-12
