"""Masks of all rows, of groups and of rows, given y and given x, against sums over all of them."""

import itertools
import math
import re
from pathlib import Path

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy.special import comb, logsumexp, softmax
from scipy.stats import betabinom, norm, poisson
from torch import nn

from lexppl import explain, prior
from lexppl.arviz_compatibility import group_of
from lexppl.effects import imputation_particles, label_expectation, mask_particles, penalty
from lexppl.evaluation import (
    feature_evidence,
    log_marginal_likelihood,
    mask_table,
    predictive,
    predictive_log_likelihood,
)
from lexppl.explanation import explain_to_zarr, open_posterior, selection_table
from lexppl.inference.predictive import drawing
from lexppl.models import (
    LEX,
    MLP,
    BernoulliSelector,
    CategoricalLikelihood,
    GaussianImputer,
    Predictor,
    observe,
)
from lexppl.plots import plot_beeswarm, plot_heatmap
from tests.evaluation.fitted_by_hand import result_of
from tests.programs.posterior_check import Reference, posterior_program
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
    rows,
    z_scores,
)

KEPT, SLAB, NOISE = 0.3, 1.0, 0.8


def data(rows, features, seed=0):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(rows, features))
    slopes = np.where(np.arange(features) % 3 == 0, 0.6, 0.0)
    return x, x @ slopes + NOISE * draw.normal(size=rows)


def every_mask(features):
    return np.array(list(itertools.product((0.0, 1.0), repeat=features)))


def log_prior(masks):
    size = masks.sum(-1)
    return size * math.log(KEPT) + (masks.shape[-1] - size) * math.log(1 - KEPT)


def coins(like, features):
    return dist.Bernoulli(torch.full((features,), KEPT, dtype=like.dtype)).to_event(1)


def stats_of(posterior):
    return group_of(posterior, "sample_stats")


def given_y(posterior):
    return stats_of(posterior)["selection_probability_given_y"].values[0]


# Slopes integrated out: y is one event of all rows


def collapsed(x, y=None):
    """Spike and slab: y ~ N(0, σ² I + τ² X_z X_zᵀ)."""
    with mask_particles():
        z = pyro.sample("mask", coins(x, x.shape[-1]))
        kept = x * z.unsqueeze(-2)
        covariance = NOISE**2 * torch.eye(len(x), dtype=x.dtype) + SLAB**2 * kept @ kept.mT
        pyro.sample("y", dist.MultivariateNormal(x.new_zeros(len(x)), covariance), obs=y)


def spike_and_slab(x, y):
    """Of every mask log p(z) and log p(y | z), by the normal equations of its own columns."""
    masks = every_mask(x.shape[1])
    found = []
    for mask in masks.astype(bool):
        own = x[:, mask]
        precision = own.T @ own / NOISE**2 + np.eye(own.shape[1]) / SLAB**2
        mean = np.linalg.solve(precision, own.T @ y / NOISE**2)
        found.append(
            norm.logpdf(y, 0, NOISE).sum()
            + 0.5 * mean @ precision @ mean
            - 0.5 * np.linalg.slogdet(precision)[1]
            - mask.sum() * math.log(SLAB)
        )
    return masks, log_prior(masks), np.array(found)


def test_spike_and_slab_of_twelve_features_is_the_sum_over_its_4096_masks():
    x, y = data(25, 12)
    masks, prior, likelihood = spike_and_slab(x, y)
    assert len(masks) == 4096
    posterior = explain(collapsed, torch.tensor(x), torch.tensor(y), draws=400)
    expected = softmax(prior + likelihood) @ masks
    np.testing.assert_allclose(given_y(posterior), expected, atol=1e-9)
    assert ((expected > 0.01) & (expected < 0.99)).sum() >= 8, "probabilities that could be wrong"
    drawn = group_of(posterior, "posterior")["mask"]
    assert drawn.dims == ("chain", "draw", "feature")
    # Systematic draws are off by less than independent ones.
    z = (drawn.values[0].mean(0) - expected) / np.sqrt(expected * (1 - expected) / 400 + 1e-9)
    assert abs(z).max() < 4
    # Negative control: another response has other probabilities.
    other = explain(collapsed, torch.tensor(x), torch.tensor(y[::-1].copy()), draws=2)
    assert abs(given_y(other) - expected).max() > 0.1


def test_evidence_of_features_and_of_the_program():
    x, y = data(20, 5)
    masks, prior, likelihood = spike_and_slab(x, y)
    program, rows = collapsed, (torch.tensor(x), torch.tensor(y))
    assert log_marginal_likelihood(program, *rows).log == pytest.approx(
        logsumexp(prior + likelihood), abs=1e-9
    )
    with drawing(0):
        table = mask_table(program, *rows)
    assert table.masks.shape == (32, 5) and table.log_prior.shape == (32, 1)
    place = [(masks == own).all(1).argmax() for own in table.masks.numpy()]
    np.testing.assert_allclose(table.log_likelihood[:, 0], likelihood[place], atol=1e-9)
    found = feature_evidence(program, *rows)
    for entry in range(5):
        sums = [
            logsumexp((prior + likelihood)[masks[:, entry] == v])
            - logsumexp(prior[masks[:, entry] == v])
            for v in (0, 1)
        ]
        assert found["log_bayes_factor"][entry] == pytest.approx(sums[1] - sums[0], abs=1e-8)
    assert found["gain_error"].isna().all()


def test_new_responses_of_all_rows_have_their_covariance():
    x, y = data(4, 2)
    posterior = explain(collapsed, torch.tensor(x), torch.tensor(y), draws=8000)
    prior = group_of(posterior, "prior_predictive")["y"]
    assert prior.dims == ("chain", "draw", "row")
    masks = every_mask(2)
    weight = np.exp(log_prior(masks))
    covariance = [NOISE**2 * np.eye(4) + (x * m) @ (x * m).T for m in masks]
    expected = np.tensordot(weight, covariance, 1)
    found = np.cov(prior.values[0].T)
    error = np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) * 3 / 8000)
    assert (abs(found - expected) / error).max() < 4
    assert "log_likelihood" not in dir(posterior), "rows have no likelihood of their own"


# Zellner's g-prior, σ² and the mean by Jeffreys


G_PRIOR = 25.0


def zellner(x, y=None):
    with mask_particles():
        z = pyro.sample("mask", coins(x, x.shape[-1]))
        if y is None:
            return
        centred, response = x - x.mean(0), y - y.mean()
        gram, size = centred.mT @ centred, z.sum(-1)
        # No pseudo-inverse: rows must be more than features, already at the first look.
        torch.linalg.inv(gram)
        own = z.unsqueeze(-1) * z.unsqueeze(-2) * gram + torch.diag_embed(1 - z)
        right = z * (centred.mT @ response)
        explained = (right * torch.linalg.solve(own, right)).sum(-1) / response.square().sum()
        rest = len(x) - 1
        pyro.factor(
            "y",
            0.5 * (rest - size) * math.log1p(G_PRIOR)
            - 0.5 * rest * (1 + G_PRIOR * (1 - explained)).log(),
        )


def test_zellners_g_prior_is_its_closed_form():
    x, y = data(30, 6, seed=3)
    masks = every_mask(6)
    factors = []
    for mask in masks.astype(bool):
        design = np.column_stack([np.ones(len(x)), x[:, mask]])
        residual = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
        left = residual @ residual / ((y - y.mean()) ** 2).sum()
        factors.append(
            0.5 * (len(x) - 1 - mask.sum()) * math.log1p(G_PRIOR)
            - 0.5 * (len(x) - 1) * math.log1p(G_PRIOR * left)
        )
    expected = softmax(log_prior(masks) + factors) @ masks
    posterior = explain(zellner, torch.tensor(x), torch.tensor(y), draws=5)
    np.testing.assert_allclose(given_y(posterior), expected, atol=1e-8)
    assert expected.max() > 0.9 and expected.min() < 0.3


# Slopes that were sampled


def sampled(x, y=None):
    features = x.shape[-1]
    slope = pyro.sample("slope", dist.Normal(x.new_zeros(features), SLAB).to_event(1))
    with mask_particles():
        z = pyro.sample("mask", coins(x, features))
        with pyro.plate("data", len(x), dim=-1):
            pyro.sample("y", dist.Normal((x * z * slope).sum(-1), NOISE), obs=y)


def slopes_given_y(x, y, draws, seed=0):
    """Exact draws: of the mask, then of the slopes that it keeps; the others from their prior."""
    masks, prior, likelihood = spike_and_slab(x, y)
    draw = np.random.default_rng(seed)
    found = draw.normal(0, SLAB, (draws, x.shape[1]))
    # Masks on an even grid of their distribution function.
    grid = (np.arange(draws) + draw.uniform()) / draws
    for at, which in enumerate(np.searchsorted(softmax(prior + likelihood).cumsum(), grid)):
        mask = masks[which].astype(bool)
        own = x[:, mask]
        covariance = np.linalg.inv(own.T @ own / NOISE**2 + np.eye(own.shape[1]) / SLAB**2)
        found[at, mask] = draw.multivariate_normal(covariance @ own.T @ y / NOISE**2, covariance)
    return torch.tensor(found), softmax(prior + likelihood) @ masks


def largest_difference(features, draws):
    x, y = data(25, features)
    slopes, expected = slopes_given_y(x, y, draws)
    posterior = explain(
        sampled, torch.tensor(x), torch.tensor(y), samples={"slope": slopes}, draws=draws
    )
    # The probabilities given the slopes vary less than the masks do.
    error = np.sqrt(expected * (1 - expected) / draws)
    difference = given_y(posterior) - expected
    return abs(difference).max(), abs(difference / error).max(), posterior, (x, y)


def test_slopes_that_were_sampled_give_the_same_probabilities():
    _, z, posterior, (x, y) = largest_difference(4, 200)
    assert z < 4
    drawn = group_of(posterior, "posterior")
    mean = (x * (drawn["mask"].values * drawn["slope"].values)[0][:, None]).sum(-1)
    likelihood = group_of(posterior, "log_likelihood")["y"].values[0]
    np.testing.assert_allclose(likelihood, norm.logpdf(y, mean, NOISE), atol=1e-9)


# Masks of groups

GROUPS = 3
SLOPES = torch.tensor([0.8, -0.6, 0.4], dtype=torch.float64)


def of_groups(order):
    """The response by the mask of the row's group, whose number is the last column."""

    def program(x, y=None):
        group = x[:, -1].long()
        groups = pyro.plate("group", GROUPS, dim=-1)
        rows = pyro.plate("data", len(x), dim=-1)
        if order == "particles first":
            with mask_particles():
                with groups:
                    z = pyro.sample("mask", coins(x, 3))
                with rows:
                    mean = (x[:, :3] * z[..., group, :] * SLOPES).sum(-1)
                    pyro.sample("y", dist.Normal(mean, NOISE), obs=y)
            return
        with groups, mask_particles():
            z = pyro.sample("mask", coins(x, 3))
        with rows, mask_particles():
            mean = (x[:, :3] * z[..., group, :] * SLOPES).sum(-1)
            pyro.sample("y", dist.Normal(mean, NOISE), obs=y)

    return program


def grouped(rows, groups=GROUPS, seed=1):
    draw = np.random.default_rng(seed)
    group = draw.permutation(np.arange(rows) % groups)
    x = draw.normal(size=(rows, 3))
    truth = every_mask(3)[[5, 2, 7, 0, 3][:groups]]
    y = (x * truth[group] * SLOPES.numpy()).sum(-1) + NOISE * draw.normal(size=rows)
    return np.column_stack([x, group]), y


@pytest.mark.parametrize("order", ["particles first", "plates first"])
def test_masks_of_groups_are_given_their_own_rows(order):
    x, y = grouped(40)
    masks = every_mask(3)
    likelihood = np.array(
        [norm.logpdf(y, (x[:, :3] * m * SLOPES.numpy()).sum(-1), NOISE) for m in masks]
    )
    joint = np.stack([log_prior(masks) + likelihood[:, x[:, 3] == j].sum(1) for j in range(GROUPS)])
    rows = torch.tensor(x), torch.tensor(y)
    posterior = explain(of_groups(order), *rows, draws=3000)
    expected = softmax(joint, 1) @ masks
    np.testing.assert_allclose(given_y(posterior), expected, atol=1e-9)
    assert abs(expected - expected.mean(0)).max() > 0.2, "groups that differ"
    drawn = group_of(posterior, "posterior")["mask"]
    assert drawn.dims == ("chain", "draw", "group", "feature")
    z = (drawn.values[0].mean(0) - expected) / np.sqrt(expected * (1 - expected) / 3000 + 1e-9)
    assert abs(z).max() < 4
    evidence = log_marginal_likelihood(of_groups(order), *rows)
    assert evidence.log == pytest.approx(logsumexp(joint, 1).sum(), abs=1e-9)
    with drawing(0):
        table = mask_table(of_groups(order), *rows)
    np.testing.assert_allclose(table.log_evidence, logsumexp(joint, 1), atol=1e-9)
    # Each draw's likelihood is by the mask of the row's group.
    mean = (x[:, :3] * drawn.values[0][:, x[:, 3].astype(int)] * SLOPES.numpy()).sum(-1)
    found = group_of(posterior, "log_likelihood")["y"].values[0]
    np.testing.assert_allclose(found, norm.logpdf(y, mean, NOISE), atol=1e-9)


def of_two_groups(groups):
    """Each row depends on the masks of the first two groups."""

    def program(x, y=None):
        with mask_particles():
            with pyro.plate("group", groups, dim=-1):
                z = pyro.sample("mask", coins(x, 3))
            with pyro.plate("data", len(x), dim=-1):
                mean = (x[:, :3] * (z[..., :1, :] + z[..., 1:2, :])).sum(-1)
                pyro.sample("y", dist.Normal(mean, NOISE), obs=y)

    return program


def test_many_groups_of_a_row_are_refused():
    x, y = grouped(10)
    with pytest.raises(ValueError, match=r"masks \['mask'\] of several groups.* 8\^9"):
        explain(of_two_groups(9), torch.tensor(x), torch.tensor(y))


# Too many to list


def test_more_masks_than_are_listed_are_weighed_and_judged():
    x, y = data(3, 13)
    rows = torch.tensor(x), torch.tensor(y)
    refused(r"2.13|8192", explain, collapsed, *rows, proposals=math.inf)
    posterior = explain(collapsed, *rows)
    assert (
        "resampled by importance from 4096 proposals"
        in group_of(posterior, "posterior").attrs["draws"]
    )
    masks, prior, likelihood = spike_and_slab(x, y)
    expected = softmax(prior + likelihood) @ masks
    stats = stats_of(posterior)
    assert stats["weight_pareto_k"].dims == ("chain",) and float(stats["weight_pareto_k"][0]) < 0.7
    z = (given_y(posterior) - expected) / np.sqrt(0.25 / float(stats["weight_ess"][0]))
    assert abs(z).max() < 4
    # Negative control: where y says much, the weights of the prior's draws say so themselves.
    x, y = data(12, 13)
    sure = stats_of(explain(collapsed, torch.tensor(x), torch.tensor(20 * y)))
    assert float(sure["weight_pareto_k"][0]) > 0.7


def test_several_plates_are_weighed_together():
    program = posterior_program("all rows, groups and rows", 0)
    reference = Reference(program)
    stats = stats_of(explain(program, program.x, program.y, draws=100, proposals=300))
    means = [v for name, v in stats.items() if name.endswith("selection_probability_given_y")]
    assert len(means) == 3
    for mean in means:
        site = mean.attrs["site"]
        exact = (reference.weights(True) @ reference.coordinates([site])[site]).numpy()
        off = abs(mean.values.ravel() - exact)
        assert (off / np.sqrt(0.25 / float(stats["weight_ess"].max()))).max() < 4


def test_probabilities_of_labels_are_refused():
    def program(x, y=None):
        with mask_particles():
            z = pyro.sample("mask", coins(x, 3))
            with pyro.plate("data", len(x), dim=-1):
                law = dist.Bernoulli(logits=(x * z).sum(-1))
                if y is None or y.dim() == 1:
                    pyro.sample("y", law, obs=y)
                else:
                    with label_expectation(y) as label:
                        pyro.sample("y", law, obs=label.to(x.dtype))

    x = torch.tensor(data(6, 3)[0])
    refused("y must hold labels", explain, program, x, torch.full((6, 2), 0.5, dtype=x.dtype))


def test_a_table_of_masks_takes_labels_and_no_probabilities_of_them():
    def program(x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            z = pyro.sample("mask", coins(x, 3))
            with label_expectation(y) as label:
                law = dist.Bernoulli(logits=(x * z).sum(-1))
                pyro.sample("y", law, obs=label.to(x.dtype))

    x = torch.tensor(data(6, 3)[0])
    refused("expects over labels", mask_table, program, x, torch.full((6, 2), 0.5, dtype=x.dtype))


# Refused at the first look


@pytest.mark.parametrize("event", [0, 1])
def test_a_response_of_all_rows_without_a_plate_is_refused(event):
    """As one event its mask plate would be summed over: -203.8 nats in place of -5.2."""

    def program(x, y=None):
        with mask_particles():
            z = pyro.sample("mask", coins(x, x.shape[-1]))
            pyro.sample("y", dist.Normal((z * x).sum(-1), NOISE).to_event(event), obs=y)

    x, y = map(torch.tensor, data(6, 3))
    for call in (explain, log_marginal_likelihood, mask_table):
        refused(r"site 'y' has batch shape .*no plate declares", call, program, x, y)


@pytest.mark.parametrize("plot", [plot_heatmap, plot_beeswarm])
def test_plots_by_row_refuse_masks_that_rows_share(plot):
    x, y = data(6, 3)
    posterior = explain(collapsed, torch.tensor(x), torch.tensor(y), draws=4)
    refused("the mask 'mask' is not a row's", plot, posterior)


# Masks, their means and evidence given y, over every mask there is.


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

    def __init__(self, distribution):
        super().__init__()
        self.distribution = distribution

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", self.distribution(x))
            with imputation_particles():
                return observe("y", dist.Normal((mask * x).sum(-1), 1.0), y)


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


# The page "Priors on how much is kept": its programs, against sums over sixteen masks.


PAGE = Path(__file__).parents[2] / "docs" / "theory" / "priors_on_size.md"
MASKS = np.array(list(itertools.product((0.0, 1.0), repeat=4)))


@pytest.fixture(scope="module")
def page():
    """What the page's programs leave."""
    names: dict = {"__name__": "page"}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE):
        exec(compile(block, PAGE.name, "exec"), names)
    return names


def posterior(page, of_size):
    """E[z | y] under a prior of the masks that their size decides."""
    x, y, slope = (page[name].numpy().astype(float) for name in ("x", "y", "slope"))
    likelihood = [poisson.logpmf(y, np.exp((x * m * slope).sum(-1))).sum() for m in MASKS]
    size = MASKS.sum(-1).astype(int)
    return softmax(np.array(likelihood) + np.log([of_size(k) for k in size])) @ MASKS


def of_rate(page):
    return posterior(page, lambda k: page["RATE"] ** k * (1 - page["RATE"]) ** (4 - k))


def test_a_size_prior_in_the_law(page):
    sizes = page["sizes"].numpy()
    expected = posterior(page, lambda k: sizes[k] / comb(4, k))
    np.testing.assert_allclose(page["in_the_law"], expected, atol=1e-4)
    # Negative control: another prior of sizes.
    assert abs(expected - of_rate(page)).max() > 0.01


def test_a_guide_is_near_the_posterior(page):
    np.testing.assert_allclose(page["exact"], of_rate(page), atol=1e-4)
    np.testing.assert_allclose(page["in_the_model"], page["exact"], atol=0.05)


def test_a_guide_and_a_penalty_with_its_entropy_are_one(page):
    np.testing.assert_allclose(page["as_a_penalty"], page["in_the_model"], atol=2e-3)


def test_without_entropy_one_mask_is_left(page):
    share = page["without_entropy"].numpy()
    assert (np.minimum(share, 1 - share) < 0.1).all()
    uncertain = page["as_a_penalty"].numpy()
    assert np.minimum(uncertain, 1 - uncertain).max() > 0.1


def test_a_rate_that_is_drawn_and_one_summed_out_agree(page):
    expected = posterior(page, lambda k: betabinom.pmf(k, 4, 1, 3) / comb(4, k))
    np.testing.assert_allclose(page["collapsed"], expected, atol=1e-4)
    # Of 500 draws of the rate from 4,000 weighed ones; given it a probability has an sd below ½.
    assert abs(page["hierarchical"].numpy() - expected).max() < 4 * 0.25 / np.sqrt(400)


def test_a_law_that_does_not_read_x_is_named(page):
    told = group_of(explain(page["by_rate"], page["x"], draws=2), "predictions").attrs["draws"]
    assert "the law of 'mask' is one for all rows" in told


@pytest.mark.parametrize("reads", [False, True])
def test_so_is_one_of_rows_and_no_selector(reads):
    def program(x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            logits = x if reads else torch.zeros(2)
            z = pyro.sample("mask", dist.Bernoulli(logits=logits).to_event(1))
            pyro.sample("y", dist.Normal((x * z).sum(-1), 1.0), obs=y)

    told = group_of(explain(program, torch.randn(3, 2), draws=2), "predictions").attrs["draws"]
    assert ("is one for all rows" in told) == (not reads)


# What is observed without y is given: masks given x, evidence, prior, responses and stores.


X = torch.tensor([[0.1], [3.0], [-8.0], [1.2]]).double()
Y = torch.tensor([0.0, 1.0, 0.3, -0.5]).double()
VALUES = torch.tensor([[0.0], [1.0]]).double()
DRAWS = 4000


def sound(x):
    """Mask of a sound measurement, with what is observed of it besides y."""
    z = pyro.sample("mask", dist.Bernoulli(torch.full((1,), 0.8).double()).to_event(1))
    spread = torch.where(z == 1, 1.0, 5.0).double()
    pyro.sample("x", dist.Normal(0.0, spread).to_event(1), obs=x)
    pyro.factor("field", 0.4 * z[..., 0])
    return z


def program(x, y=None):
    """A mask says that the measurement of x is sound; a price of masks is no part of it."""
    with pyro.plate("data", len(x), dim=-1), mask_particles():
        z = sound(x)
        penalty("price", 3.0 * z[..., 0])
        pyro.sample("y", dist.Normal(z[..., 0], 1.0), obs=y)


def imputing(x, y=None):
    """The same, with a mean that differs between imputations."""
    with pyro.plate("data", len(x), dim=-1), mask_particles():
        z = sound(x)
        with imputation_particles():
            t = pyro.sample("t", dist.Normal(torch.zeros(()).double(), 0.1))
            pyro.sample("y", dist.Normal(z[..., 0] + t, 1.0), obs=y)


LOG_PRIOR = torch.tensor([[math.log(0.2)], [math.log(0.8)]]).double()
BEFORE = (
    LOG_PRIOR
    + 0.4 * VALUES
    + dist.Normal(0.0, torch.tensor([[5.0], [1.0]]).double()).log_prob(X[:, 0])
)
LOG_Y = dist.Normal(VALUES, 1.0).log_prob(Y)
GIVEN_X = BEFORE.softmax(0)[1].numpy()
GIVEN_Y = (BEFORE + LOG_Y).softmax(0)[1].numpy()
EVIDENCE = (BEFORE.log_softmax(0) + LOG_Y).logsumexp(0).numpy()


def stats(found, name):
    return group_of(found, "sample_stats")[name].values[0].ravel()


def require_draws(values, chance):
    error = np.sqrt(chance * (1 - chance) / DRAWS)
    assert (abs(values.mean(0) - chance) <= 4 * error + 1e-9).all()


def test_the_rule_is_no_small_matter():
    assert abs(GIVEN_X - 0.8).max() > 0.5 and abs(GIVEN_X - GIVEN_Y).max() > 0.05


@pytest.mark.parametrize("y", [None, Y], ids=["without y", "with y"])
def test_masks_and_responses_given_x(y):
    found = explain(program, X, y, draws=DRAWS, proposals=math.inf)
    np.testing.assert_allclose(stats(found, "selection_probability"), GIVEN_X, atol=1e-6)
    source = group_of(found, "sample_stats")["selection_probability"].attrs["source"]
    assert source == "mean of p(z | x, field), over all masks"
    table = selection_table(found)
    np.testing.assert_allclose(table["selection_probability"], GIVEN_X.mean(), atol=1e-6)
    drawn = group_of(found, "predictions")
    require_draws(drawn["mask"].values[0, ..., 0], GIVEN_X)
    # Responses are of those masks: their mean is E[z | x], their variance 1 + Var(z | x).
    y_drawn = drawn["y"].values[0]
    error = np.sqrt((1 + GIVEN_X * (1 - GIVEN_X)) / DRAWS)
    assert (abs(y_drawn.mean(0) - GIVEN_X) < 4 * error).all()
    if y is None:
        return
    np.testing.assert_allclose(stats(found, "selection_probability_given_y"), GIVEN_Y, atol=1e-6)
    np.testing.assert_allclose(stats(found, "log_evidence"), EVIDENCE, atol=1e-5)
    likelihood = group_of(found, "log_likelihood")["y"].values[0]
    np.testing.assert_allclose(likelihood.mean(0), EVIDENCE, atol=1e-5)
    require_draws(group_of(found, "posterior")["mask"].values[0, ..., 0], GIVEN_Y)
    require_draws(group_of(found, "prior")["mask"].values[0, ..., 0], GIVEN_X)


def test_by_proposals_it_is_the_same():
    found = explain(program, X, Y, draws=DRAWS, proposals=8)
    for name, wanted in (("", GIVEN_X), ("_given_y", GIVEN_Y)):
        near = stats(found, "selection_probability" + name)
        # Weighted proposals from the prior: the variance of a self-normalised mean.
        assert (abs(near - wanted) < 0.02).all()
    assert (abs(stats(found, "log_evidence") - EVIDENCE) < 0.05).all()


def test_the_prior_is_given_it():
    found = prior(program, X, draws=DRAWS)
    drawn = group_of(found, "prior")["mask"].values[0, ..., 0]
    require_draws(drawn, GIVEN_X)


def test_predictions_are_given_it():
    result = result_of(program, event_shape=(1,))
    mean = predictive(result, X, masks=DRAWS)[0].numpy()
    imputed = predictive(result_of(imputing, event_shape=(1,)), X, masks=DRAWS, imputations=3)
    assert (abs(imputed[0].numpy() - mean) < 0.1).all()
    # Of proposals from the prior, whose effective number is a fourth of DRAWS at least here.
    assert (abs(mean - GIVEN_X) < 4 * np.sqrt(GIVEN_X * (1 - GIVEN_X) * 4 / DRAWS) + 1e-6).all()
    score = predictive_log_likelihood(result, X, Y, masks=DRAWS)[0].numpy()
    assert (abs(score - EVIDENCE) < 0.05).all()
    assert (abs(score - (BEFORE + LOG_Y).logsumexp(0).numpy()) > 0.3).all(), "the control"


def test_a_store_has_it(tmp_path):
    options = {"draws": 5, "proposals": math.inf, "progress": False}
    result = result_of(program, event_shape=(1,))
    explain_to_zarr(result, (X, Y), tmp_path / "store", with_y=True, **options)
    stored = open_posterior(tmp_path / "store")
    np.testing.assert_allclose(stats(stored, "selection_probability"), GIVEN_X, atol=1e-6)
    np.testing.assert_allclose(stats(stored, "selection_probability_given_y"), GIVEN_Y, atol=1e-6)
    np.testing.assert_allclose(stats(stored, "log_evidence"), EVIDENCE, atol=1e-5)


def test_no_draws_have_no_such_mean():
    error = refused("observed without y", explain, program, X, draws=0)
    assert "'x'" in str(error) or "field" in str(error)


def test_a_factor_that_reads_y_is_refused_where_few_masks_show_it():
    def of_y(x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            z = pyro.sample("mask", dist.Bernoulli(torch.full((1,), 1e-3).double()).to_event(1))
            pyro.factor("field", z[..., 0] * (1.0 if y is None else y))
            pyro.sample("y", dist.Normal(z[..., 0], 1.0), obs=y)

    for call in (explain, log_marginal_likelihood, feature_evidence):
        assert "its density changes with y" in str(refused("'field'", call, of_y, X, Y))
