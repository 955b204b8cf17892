"""Mixtures of discretised logistics: masses against scipy's logistic distribution, conditionals
against the enumeration of all images of two pixels, draws by a chi-square test, and a fit."""

import numpy as np
import pytest
import torch
from scipy import stats

from lexppl.inference.contexts import program_settings
from lexppl.models import DiscretizedLogisticMeansImputer, DiscretizedLogisticMixtureImputer
from lexppl.models.imputers.logistics import log_mass
from tests.distributions.goodness_of_fit import FAILURE_RATE, p_value
from tests.refusals import refusals

VALUES = np.arange(256) / 255
WEIGHTS = np.array([0.3, 0.7])
MEANS = np.array([[0.02, 0.6], [0.8, -0.1]])
SCALES = np.array([[0.05, 0.1], [0.2, 0.03]])
KINDS = (DiscretizedLogisticMixtureImputer, DiscretizedLogisticMeansImputer)


def masses(mean, scale):
    """Of the 256 values, by differences of scipy's distribution function, edges included."""
    ends = stats.logistic.cdf((np.arange(255) + 0.5) / 255, mean, scale)
    return np.diff(np.concatenate([[0.0], ends, [1.0]]))


P = np.array([[masses(MEANS[c, d], SCALES[c, d]) for d in range(2)] for c in range(2)])
"""Of each component, pixel and value."""


def imputer(kind=DiscretizedLogisticMixtureImputer, event=(2,)):
    means, scales = (torch.tensor(t).reshape(2, *event) for t in (MEANS, SCALES))
    return kind(torch.tensor(WEIGHTS), means, scales)


@pytest.mark.parametrize("mean,scale", [(0.3, 0.1), (-0.5, 0.02), (1.2, 0.3), (0.5, 5.0)])
def test_masses_are_scipys_with_exact_edges(mean, scale):
    value = torch.from_numpy(VALUES)
    found = log_mass(value, *torch.tensor([mean, scale], dtype=torch.float64)).exp()
    np.testing.assert_allclose(found, masses(mean, scale), rtol=1e-7, atol=1e-15)
    assert float(found.sum()) == pytest.approx(1, abs=1e-12)


def test_masses_far_from_the_mean_keep_their_digits():
    """Where σ(b) − σ(a) rounds to 0: log P = −(|v − μ| − h)/s + log(1 − e^{−1/(255 s)})."""
    scale = torch.tensor(0.001)
    value = torch.tensor([100 / 255, 200 / 255]).requires_grad_()
    for mean in (-2.0, 3.0):
        location = torch.full((2,), mean).requires_grad_()
        found = log_mass(value, location, scale)
        expected = -(abs(value.detach().double() - mean) - 1 / 510) / 0.001
        torch.testing.assert_close(found.double(), expected, rtol=2e-3, atol=0)
        (gradient,) = torch.autograd.grad(found.sum(), location)
        torch.testing.assert_close(gradient.abs(), torch.full((2,), 1000.0), rtol=1e-4, atol=0)


@pytest.mark.parametrize("event", [(2,), (1, 2, 1)])
def test_conditionals_are_those_of_all_images_enumerated(event):
    joint = np.einsum("c,ca,cb->ab", WEIGHTS, P[:, 0], P[:, 1])
    assert joint.sum() == pytest.approx(1, abs=1e-9)
    kept = 40
    x = torch.tensor([VALUES[kept], 0.77], dtype=torch.float64).reshape(1, *event)
    keep = torch.tensor([1.0, 0.0]).reshape(event)
    given = joint[kept] / joint[kept].sum()
    for mask in (keep, keep.bool()):
        distribution = imputer(event=event)(x, mask)
        every = x.expand(256, *event).clone()
        every.flatten(1)[:, 1] = torch.from_numpy(VALUES)
        found = distribution.expand((256,)).log_prob(every).exp()
        np.testing.assert_allclose(found, given, rtol=1e-9, atol=1e-12)
        mean = given @ VALUES
        assert float(distribution.mean.flatten()[1]) == pytest.approx(mean, rel=1e-9)
        variance = given @ VALUES**2 - mean**2
        assert float(distribution.variance.flatten()[1]) == pytest.approx(variance, rel=1e-9)
        means = imputer(DiscretizedLogisticMeansImputer, event)(x, mask).mean.flatten()[1]
        assert float(means) == pytest.approx(mean, rel=1e-9)
    none = imputer(event=event)(x, torch.zeros(event)).log_prob(x)
    nearest = round(0.77 * 255)
    assert float(none) == pytest.approx(np.log(joint[kept, nearest]), rel=1e-9)
    # The control: the hidden pixel must not tell the component.
    assert np.abs(given - joint.sum(0)).max() > 1e-3


@pytest.mark.smoke
@pytest.mark.parametrize("soft", [False, True])
def test_draws_have_the_conditional_masses(soft):
    """A chi-square test that a right distribution fails with probability 1e-6."""
    joint = np.einsum("c,ca,cb->ab", WEIGHTS, P[:, 0], P[:, 1])
    x = torch.tensor([[VALUES[40], 0.5]], dtype=torch.float64)
    keep = torch.tensor([1.0, 0.0])
    distribution = imputer()(x, keep if soft else keep.bool()).expand((40_000, 1))
    draws = distribution.sample()[:, 0, 1] * 255
    torch.testing.assert_close(draws, draws.round(), rtol=0, atol=1e-9)
    given, alone = (torch.from_numpy(p / p.sum()) for p in (joint[40], joint.sum(0)))
    values = torch.arange(256.0)[:, None]
    assert p_value(draws.round()[:, None], values, given) > FAILURE_RATE
    # The control: told by nothing.
    assert p_value(draws.round()[:, None], values, alone) < FAILURE_RATE


def test_the_fit_finds_the_mixture_that_made_the_rows():
    """Held-out log-likelihood against that of the truth, by a paired z-score."""
    generator = np.random.default_rng(4)
    means, scales = np.array([[0.1] * 6, [0.9] * 3 + [0.3] * 3]), np.array([[0.05] * 6, [0.1] * 6])
    component = generator.choice(2, size=3000, p=WEIGHTS)
    drawn = generator.logistic(means[component], scales[component])
    x = torch.from_numpy((drawn.clip(0, 1) * 255).round() / 255).reshape(-1, 1, 2, 3)
    fitted = KINDS[0].fit(x[:2000], components=2, epochs=40, learning_rate=0.05)
    start = KINDS[0].fit(x[:2000], components=2, epochs=0)
    truth = KINDS[0](WEIGHTS, means.reshape(2, 1, 2, 3), scales.reshape(2, 1, 2, 3))
    none = torch.zeros(1, 2, 3)
    scores = [(i(x[2000:], none).log_prob(x[2000:])).numpy() for i in (fitted, truth, start)]
    lost = scores[1] - scores[0]
    error = lost.std() / np.sqrt(len(lost))
    # 25 parameters of 2,000 rows cost about 25/4,000 = 0.006 nats a row.
    assert lost.mean() < 0.02 + 4 * error
    gained = scores[0] - scores[2]
    assert gained.mean() > 6 * gained.std() / np.sqrt(len(gained))  # the control: k-means alone
    order = fitted.weights.argsort()
    np.testing.assert_allclose(fitted.weights[order], WEIGHTS, atol=0.04)


test_bad_fits = refusals(
    ({"x": 255 * torch.ones(4, 2)}, "pixels must be in .* Divide by 255"),
    ({"x": -torch.ones(4, 2)}, "pixels must be in"),
    ({"epochs": -1}, "epochs must be"),
    ({"learning_rate": 0.0}, "learning_rate must be"),
    ({"least_scale": -0.1}, "least_scale must be"),
    ({"components": 9}, "components must be"),
    of=lambda given: KINDS[0].fit(**{"x": torch.rand(4, 2), "components": 2} | given),
)


def test_pixels_outside_are_refused_where_pyro_validates():
    x = torch.tensor([[0.5, 4.0]], dtype=torch.float64)
    with program_settings(validate=True), pytest.raises(ValueError, match="pixels must be in"):
        imputer()(x, torch.zeros(2))
    with program_settings(validate=False):
        imputer()(x, torch.zeros(2))
