"""XTab's sets follow their formulas."""

import pytest
import torch

from lexppl.data import ranked_names, ranked_set
from tests.gradients.enumeration import threshold, z_scores

ROWS = 40_000


def log_g(name, x, truth):
    """The formulas once more, by hand, with each row's branch told by its truth mask."""
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


def test_the_ranked_set_has_its_shares():
    data = ranked_set("SynRank", rows=1000)
    assert data.truth.sum(0).tolist() == [350, 200, 0, 0, 0, 450, 0, 0, 0, 0]
    assert float(data.x[:450, 5].mean()) == pytest.approx(-10, abs=0.3)
    assert float(data.x[450:800, 0].mean()) == pytest.approx(10, abs=0.3)


def test_seeds_and_mistakes():
    state = torch.get_rng_state()
    assert torch.equal(ranked_set("XOR", 50, 3).x, ranked_set("XOR", 50, 3).x)
    assert not torch.equal(ranked_set("XOR", 50, 3).x, ranked_set("XOR", 50, 4).x)
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(ValueError, match="there is no set 'Sin'; there are"):
        ranked_set("Sin")
    with pytest.raises(ValueError, match="rows must be a whole number of at least 10; it is 9"):
        ranked_set("XOR", 9)
