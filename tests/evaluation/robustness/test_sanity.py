"""Sanity checks against SciPy, and explanations that must pass or fail them."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cosine
from scipy.stats import spearmanr
from torch import nn

from lexppl.evaluation.robustness.sanity import (
    data_randomisation,
    model_randomisation,
    randomised,
    sanity_scores,
)
from lexppl.models import MLP, BernoulliSelector

GENERATOR = torch.Generator().manual_seed(0)
FIRST = torch.randn(20, 6, generator=GENERATOR)
SECOND = torch.randint(-3, 4, (20, 6), generator=GENERATOR).float()
X = torch.randn(400, 5, generator=GENERATOR)


@pytest.mark.smoke
@pytest.mark.parametrize("absolute", [False, True])
def test_scores_are_means_of_scipys_by_row(absolute):
    pairs = list(zip(FIRST.numpy(), SECOND.numpy(), strict=True))
    if absolute:
        pairs = [(np.abs(a), np.abs(b)) for a, b in pairs]
    scores = sanity_scores(FIRST, SECOND, absolute=absolute)
    assert scores.cosine == pytest.approx(np.mean([1 - cosine(a, b) for a, b in pairs]), abs=1e-6)
    expected = np.mean([spearmanr(a, b).statistic for a, b in pairs])
    assert scores.spearman == pytest.approx(expected, abs=1e-12)
    assert (scores.cosine_rows, scores.spearman_rows) == (20, 20)


def test_limits():
    same = sanity_scores(FIRST, 1e-30 * FIRST.double())
    assert same.cosine == pytest.approx(1.0) and same.spearman == pytest.approx(1.0)
    assert sanity_scores(FIRST, -FIRST).cosine == pytest.approx(-1.0)
    assert sanity_scores(FIRST, -FIRST, absolute=True).cosine == pytest.approx(1.0)


def test_rows_without_an_order_are_left_out_and_counted():
    first = torch.tensor([[1.0, 2.0], [0.0, 0.0], [1.0, 1.0]])
    second = torch.tensor([[2.0, 1.0], [1.0, 2.0], [1.0, 3.0]])
    scores = sanity_scores(first, second)
    assert (scores.cosine_rows, scores.spearman_rows) == (2, 1)
    assert scores.spearman == -1.0
    assert scores.cosine == pytest.approx((0.8 + 4 / np.sqrt(20)) / 2)
    nothing = sanity_scores(torch.zeros(2, 2), torch.ones(2, 2))
    assert np.isnan([nothing.cosine, nothing.spearman]).all() and nothing.cosine_rows == 0


def test_weights_are_drawn_anew_in_a_copy():
    model = MLP(5, 2, (8, 8), seed=0).double()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(0)
    state = torch.get_rng_state()
    drawn, again, other = (randomised(model, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(state, torch.get_rng_state())
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
        assert not torch.equal(drawn.state_dict()[name], value)
        assert torch.equal(drawn.state_dict()[name], again.state_dict()[name])
        assert not torch.equal(drawn.state_dict()[name], other.state_dict()[name])
        assert drawn.state_dict()[name].dtype == torch.float64


def test_the_last_parts_are_drawn_first_and_alike():
    model = MLP(5, 2, (8, 8), seed=0)
    drawn = {last: randomised(model, last=last) for last in (1, 2, 3)}
    for last, copy in drawn.items():
        for place in range(3):
            kept = torch.equal(copy.layers[place].weight, model.layers[place].weight)
            assert kept is (place < 3 - last)
    assert torch.equal(drawn[1].layers[2].weight, drawn[3].layers[2].weight)
    assert torch.equal(drawn[3].layers[0].weight, randomised(model).layers[0].weight)


def test_frozen_weights_and_running_statistics_are_drawn_anew_too():
    model = nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5)).requires_grad_(False)
    model(X + 3.0)
    drawn = randomised(model)
    assert not torch.equal(drawn[0].weight, model[0].weight)
    assert bool((drawn[1].running_mean == 0).all()) and bool((model[1].running_mean != 0).all())


def test_a_model_does_not_get_its_own_weights_back():
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    assert not torch.equal(randomised(model, seed=0).weight, model.weight)


def input_gradients(model):
    x = X.clone().requires_grad_()
    return torch.autograd.grad(model(x)[:, 0].sum(), x)[0]


@pytest.fixture(scope="module")
def learned():
    """A network whose first output depends on the first two features only."""
    model = MLP(5, 2, (32,), activation="tanh", seed=0)
    with torch.no_grad():
        model.layers[0].weight[:, 2:] = 0.0
    return model


def test_gradients_pass_and_an_edge_detector_fails(learned):
    sane = model_randomisation(input_gradients, learned, absolute=True)
    # Magnitudes are all positive, so that cosines of nothing in common are not 0.
    assert list(sane) == ["all"] and sane["all"].spearman < 0.6
    blind = model_randomisation(lambda model: X.abs(), learned)
    assert blind["all"].spearman == pytest.approx(1.0)
    assert blind["all"].cosine == pytest.approx(1.0)


def test_the_cascade_goes_from_the_output_to_the_input(learned):
    found = model_randomisation(input_gradients, learned, cascading=True, absolute=True)
    assert list(found) == ["layers.1", "layers.0"]
    # The first layer alone still ignores the last three features.
    assert found["layers.1"].spearman > found["layers.0"].spearman + 0.2
    everything = model_randomisation(input_gradients, learned, absolute=True)["all"]
    assert found["layers.0"] == everything


def test_a_selector_of_the_library_can_be_randomised():
    selector = BernoulliSelector(MLP(5, 5, (8,), seed=0))
    found = model_randomisation(lambda s: s(X).mean, selector)
    assert found["all"].spearman < 0.9


def test_data_randomisation_permutes_the_labels():
    given = []
    y = X[:, 0] + 0.1 * X[:, 1]

    def slopes(labels):
        given.append(labels)
        return torch.linalg.lstsq(X, labels[:, None]).solution.T

    scores = data_randomisation(slopes, y, absolute=False)
    assert torch.equal(given[0], y) and not torch.equal(given[1], y)
    assert torch.equal(given[1].sort().values, y.sort().values)
    assert abs(scores.cosine) < 0.95
    blind = data_randomisation(lambda labels: X.abs(), y)
    assert blind.cosine == pytest.approx(1.0)


class Bare(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: sanity_scores(FIRST, SECOND[:5]), r"\(20, 6\) and \(5, 6\)"),
        (lambda: sanity_scores(FIRST[0], SECOND[0]), r"original must have shape \(B, G\)"),
        (lambda: sanity_scores(FIRST[:, :1], SECOND[:, :1]), "G >= 2"),
        (lambda: sanity_scores(FIRST, SECOND / 0), "randomised must be finite"),
        (lambda: randomised(nn.ReLU()), "no weights to draw anew"),
        (lambda: randomised(Bare()), "the module itself.*no reset_parameters"),
        (lambda: randomised(nn.Linear(2, 2), last=2), "from 1 to 1.*it is 2"),
        (lambda: randomised(nn.Linear(2, 2), last=0), "it is 0"),
        (lambda: data_randomisation(lambda y: FIRST, X[:1]), "at least two rows"),
    ],
)
def test_bad_questions_are_refused(ask, words):
    with pytest.raises(ValueError, match=words):
        ask()
