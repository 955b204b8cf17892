"""Masks, their means and evidence given y, over every mask there is."""

import itertools
import math

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import nn

from lexppl.arviz_compatibility import group_of
from lexppl.distributions import KSubset
from lexppl.explanation import explain
from lexppl.models import (
    LEX,
    MLP,
    BernoulliSelector,
    CategoricalLikelihood,
    GaussianImputer,
    Predictor,
    imputation_particles,
    mask_particles,
    observe,
)
from tests.refusals import over, refused
from tests.test_explanation import (
    COPIES,
    LABEL_PAIR,
    ROW_PAIR,
    SOFT,
    copied,
    fitted,
    guide,
    limit,
    pattern_frequencies,
    rows,
    z_scores,
)


class Known(nn.Module):
    """Three Bernoulli mask entries; hidden features are 0."""

    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.tensor([0.8, -0.5, 0.3], dtype=torch.float64))
        self.weight = nn.Parameter(
            torch.tensor([[1.5, -1.0], [-2.0, 0.4], [0.6, 1.2]], dtype=torch.float64)
        )

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", dist.Bernoulli(logits=self.slope * x).to_event(1))
            with imputation_particles():
                return observe("y", dist.Categorical(logits=(mask * x) @ self.weight), y)

    def exact(self, x, y):
        """All masks (8, 3), p(z | x, y) (8,), averaged over labels where y has probabilities, and
        log p(y | x)."""
        masks = torch.tensor(list(itertools.product((0.0, 1.0), repeat=3)), dtype=torch.float64)
        prior = dist.Bernoulli(logits=self.slope * x).to_event(1).log_prob(masks).exp()
        joint = (prior.unsqueeze(-1) * ((masks * x) @ self.weight).softmax(-1)).detach()
        weight = y if y.dim() else nn.functional.one_hot(y, 2).double()
        return masks, (weight * joint / joint.sum(0)).sum(-1), float(weight @ joint.sum(0).log())


@pytest.mark.smoke
@pytest.mark.parametrize("y", [LABEL_PAIR, SOFT])
@pytest.mark.parametrize("guided", [False, True])
def test_means_and_evidence_are_exact(y, guided):
    model = Known()
    result = fitted(model, guides=[guide if guided else None])
    posterior = explain(result, ROW_PAIR, y, draws=3, proposals=math.inf)
    stats = group_of(posterior, "sample_stats")
    for row in range(2):
        masks, share, evidence = model.exact(ROW_PAIR[row], y[row])
        found = stats["selection_probability_given_y"].values[0, row]
        np.testing.assert_allclose(found, share @ masks, atol=1e-12)
        assert stats["log_evidence"].values[0, row] == pytest.approx(evidence, abs=1e-12)
    assert "weight_ess" not in stats and "weight_pareto_k" not in stats
    assert "exact, from all 8 masks" in group_of(posterior, "posterior").attrs["draws"]


def largest_z(y_of_the_draws, y):
    """Of mask frequencies over rows and masks, drawn given the one and compared to the other."""
    model = Known()
    posterior = explain(
        fitted(model), copied(ROW_PAIR), copied(y_of_the_draws), draws=50, proposals=math.inf
    )
    mask = group_of(posterior, "posterior")["mask"].values[0]
    largest = 0.0
    for row in range(2):
        frequencies = pattern_frequencies(mask[:, row * COPIES : (row + 1) * COPIES])
        exact = model.exact(ROW_PAIR[row], y[row])[1].numpy()
        largest = max(largest, float(z_scores(frequencies, exact).max()))
    return largest


def test_draws_follow_the_exact_posterior_and_no_other():
    assert largest_z(LABEL_PAIR, LABEL_PAIR) < limit(16)
    assert largest_z(LABEL_PAIR, 1 - LABEL_PAIR) > limit(16)


def test_importance_weights_give_the_same_mean():
    model = Known()
    posterior = explain(fitted(model), copied(ROW_PAIR), copied(LABEL_PAIR), draws=500)
    found = group_of(posterior, "sample_stats")["selection_probability_given_y"].values[0]
    for row in range(2):
        masks, share, _ = model.exact(ROW_PAIR[row], LABEL_PAIR[row])
        by_copy = found[row * COPIES : (row + 1) * COPIES]
        assert z_scores(by_copy, (share @ masks).numpy()).max() < limit(6)
    k = group_of(posterior, "sample_stats")["weight_pareto_k"].values
    assert k.shape == (1, 2 * COPIES) and (k < 0.7).all()


class Subsets(nn.Module):
    """One of a distribution's masks of a row; the response is another number than a label."""

    def __init__(self, distribution, second=False):
        super().__init__()
        self.distribution, self.second = distribution, second

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", self.distribution(x))
            if self.second:
                pyro.sample("other", self.distribution(x))
            with imputation_particles():
                return observe("y", dist.Normal((mask * x).sum(-1), 1.0), y)


def test_two_sites_of_a_row_are_listed_together():
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    program = Subsets(lambda x: KSubset(x, 1), second=True)
    posterior = explain(program, x, x[:, 0], draws=5, proposals=math.inf)
    assert "from all 9 masks" in group_of(posterior, "posterior").attrs["draws"]
    stats = group_of(posterior, "sample_stats")
    # What y does not depend on has its prior.
    np.testing.assert_allclose(
        stats["other_selection_probability_given_y"],
        stats["other_selection_probability"],
        atol=1e-6,
    )
    alone = explain(Subsets(lambda x: KSubset(x, 1)), x, x[:, 0], draws=5, proposals=math.inf)
    expected = group_of(alone, "sample_stats")["selection_probability_given_y"]
    np.testing.assert_allclose(stats["selection_probability_given_y"], expected, atol=1e-6)


def bernoulli(x):
    return dist.Bernoulli(logits=x).to_event(1)


def gaussian():
    predictor = Predictor(MLP(3, 2, (4,), seed=1), CategoricalLikelihood())
    return LEX(BernoulliSelector(MLP(3, 3, (4,), seed=0)), GaussianImputer(), predictor)


WIDE = torch.zeros(2, 13)


@over(
    (Subsets(bernoulli), WIDE, WIDE[:, 0], "8192 masks.*limit = 4096.*proposals=4"),
    (gaussian(), *rows(4), r"\['x_imputed'\] are random.*imputations=K.*proposals=4"),
    (
        Subsets(lambda x: dist.Dirichlet(x.exp())),
        WIDE[:, :3],
        WIDE[:, 0],
        "cannot list its masks",
    ),
)
def test_masks_that_cannot_be_listed_are_refused(program, x, y, told):
    refused(f"(?s)proposals=math.inf.*{told}", explain, program, x, y, proposals=math.inf)
