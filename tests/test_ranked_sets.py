"""XTab's sets follow their formulas."""

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.gradients.enumeration import threshold, z_scores
from tests.refusals import refused

FOUND = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "ranked_sets.py"))
ranked_names, ranked_set = FOUND["ranked_names"], FOUND["ranked_set"]
ROWS = 40_000


def log_g(name, x, truth):
    """The formulas once more, by hand, with each row's branch by its truth mask."""
    orange = x[:, :4].square().sum(-1) - 4
    first = -100 * torch.sin(2 * x[:, 0]) + 2 * x[:, 1].abs() + x[:, 2] + torch.exp(-x[:, 3])
    fifth = -100 * torch.sin(2 * x[:, 4]) + 2 * x[:, 5].abs() + x[:, 6] + torch.exp(-x[:, 7])
    if name == "SynRank":
        return (x * truth).sum(-1)
    return {
        "XOR": x[:, 0] * x[:, 1],
        "Orange": orange,
        "Additive": first,
        "Switch": torch.where(truth[:, 0] == 1, orange, fifth),
    }[name]


@pytest.mark.parametrize("name", ranked_names())
def test_labels_have_the_stated_probability(name):
    data = ranked_set(name, rows=ROWS, seed=1, dtype=torch.float64)
    p = torch.sigmoid(-log_g(name, data.x, data.truth))
    for share in (p < 0.3, (p >= 0.3) & (p < 0.7), p >= 0.7, torch.ones_like(p) > 0):
        residual = (data.y - p)[share]
        if len(residual) > 100:
            assert z_scores(residual, torch.zeros(())).abs() < threshold(20)
    likely = ranked_set(name, rows=ROWS, seed=1, likeliest=True, dtype=torch.float64)
    assert torch.equal(likely.x, data.x)
    assert torch.equal(likely.y, (p > 0.5).long())


def test_the_switch_is_told_by_f10():
    data = ranked_set("Switch", rows=ROWS, dtype=torch.float64)
    assert set(data.truth.sum(-1).tolist()) == {5.0}
    orange = data.truth[:, 0] == 1
    assert z_scores(data.x[orange, 9], torch.tensor(3.0)).abs() < threshold(2)
    assert z_scores(data.x[~orange, 9], torch.tensor(-3.0)).abs() < threshold(2)
    assert float(data.truth[:, 8].sum()) == 0.0


def numpys_switch(rows, seed):
    """The generator as it circulates: the swap is of views, and the labels come before it."""
    numbers = np.random.default_rng(seed)
    x = numbers.normal(size=(rows, 10))
    half = rows // 2
    x[:half, -1] += 3
    x[half:, -1] -= 3
    first, second = x[:half], x[half:]
    orange = np.square(first[:, :4]).sum(1) - 4
    additive = -100 * np.sin(0.2 * second[:, 0]) + np.abs(second[:, 1]) + second[:, 2]
    additive = additive + np.exp(-second[:, 3]) - 2.4
    second[:, 4:8], second[:, :4] = second[:, :4], second[:, 4:8]
    return first, orange, second, additive


def test_the_copied_switch_is_what_the_circulating_generator_makes():
    data = ranked_set("Switch", ROWS, seed=2, copied=True, likeliest=True, dtype=torch.float64)
    plain = ranked_set("Switch", ROWS, seed=2, dtype=torch.float64)
    orange, _, additive, log_g_there = numpys_switch(1000, 0)
    assert np.array_equal(additive[:, 4:8], additive[:, :4])
    assert not np.array_equal(orange[:, 4:8], orange[:, :4])
    by_hand = -100 * np.sin(0.2 * additive[:, 4]) + np.abs(additive[:, 5]) + additive[:, 6]
    by_hand += np.exp(-additive[:, 7]) - 2.4
    np.testing.assert_allclose(by_hand, log_g_there)

    rows = data.truth[:, 4] == 1
    assert torch.equal(data.x[rows, 4:8], data.x[rows, :4])
    assert torch.equal(data.x[~rows], plain.x[~rows])
    assert torch.equal(data.truth, plain.truth)
    x = data.x[rows]
    log_g = -100 * torch.sin(0.2 * x[:, 4]) + x[:, 5].abs() + x[:, 6] + torch.exp(-x[:, 7]) - 2.4
    assert torch.equal(data.y[rows], (log_g < 0).long())
    log_g = data.x[~rows][:, :4].square().sum(-1) - 4
    assert torch.equal(data.y[~rows], (log_g < 0).long())


def test_additive_with_the_codes_constants():
    options = {"seed": 2, "likeliest": True, "dtype": torch.float64}
    data = ranked_set("Additive", ROWS, constant="q-fit-code", **options)
    x = data.x
    log_g = -100 * torch.sin(0.2 * x[:, 0]) + x[:, 1].abs() + x[:, 2] + torch.exp(-x[:, 3]) - 2.4
    assert torch.equal(data.y, (log_g < 0).long())
    assert torch.equal(x, ranked_set("Additive", ROWS, **options).x)
    plain = ranked_set("Switch", ROWS, constant="q-fit-code", **options)
    copied = ranked_set("Switch", ROWS, copied=True, **options)
    rows = plain.truth[:, 0] == 1
    assert torch.equal(plain.y[rows], copied.y[rows])
    assert not torch.equal(plain.x[~rows, 4:8], plain.x[~rows, :4])


def test_the_ranked_set_has_its_shares():
    data = ranked_set("SynRank", rows=1000)
    assert data.truth.sum(0).tolist() == [350, 200, 0, 0, 0, 450, 0, 0, 0, 0]
    assert float(data.x[:450, 5].mean()) == pytest.approx(-10, abs=0.3)
    assert float(data.x[450:800, 0].mean()) == pytest.approx(10, abs=0.3)


def test_mistakes():
    refused("there is no set 'Sin'; there are", ranked_set, "Sin")
    refused("Additive has no copies", ranked_set, "Additive", 50, copied=True)
    with pytest.raises(ValueError, match="constant is of Additive and Switch; XOR has none"):
        ranked_set("XOR", 50, constant="q-fit-code")
    with pytest.raises(ValueError, match="constant must be 'l2x-paper', 'q-fit-code'; it is 'x'"):
        ranked_set("Switch", 50, constant="x")
    refused("rows must be a whole number of at least 10; it is 9", ranked_set, "XOR", 9)
