"""Masks of all rows, of groups and of rows, against sums over all of them by hand."""

import itertools
import math

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy.special import logsumexp, softmax
from scipy.stats import norm

from lexppl import explain
from lexppl.arviz_compatibility import group_of
from lexppl.effects import label_expectation, mask_particles
from lexppl.evaluation import feature_evidence, log_marginal_likelihood, mask_table
from lexppl.inference.predictive import drawing
from lexppl.plots import plot_beeswarm, plot_heatmap
from tests.refusals import refused

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


def test_as_many_groups_as_rows_are_groups():
    x, y = grouped(GROUPS)
    posterior = explain(of_groups("plates first"), torch.tensor(x), torch.tensor(y), draws=2)
    assert group_of(posterior, "posterior")["mask"].dims == ("chain", "draw", "group", "feature")
    assert group_of(posterior, "prior")["mask"].dims == ("chain", "draw", "group", "feature")


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


def test_masks_of_two_groups_of_a_row_are_weighed_together():
    x, y = grouped(10)
    masks = every_mask(6).reshape(-1, 2, 3)
    mean = (x[:, :3] * masks.sum(1)[:, None]).sum(-1)
    joint = norm.logpdf(y, mean, NOISE).sum(-1) + log_prior(masks).sum(-1)
    rows = torch.tensor(x), torch.tensor(y)
    expected = np.einsum("m,mjg->jg", softmax(joint), masks)
    np.testing.assert_allclose(given_y(explain(of_two_groups(2), *rows)), expected, atol=1e-9)
    evidence = log_marginal_likelihood(of_two_groups(2), *rows)
    assert evidence.log == pytest.approx(logsumexp(joint), abs=1e-9)


def test_many_groups_of_a_row_are_refused():
    x, y = grouped(10)
    with pytest.raises(ValueError, match=r"masks \['mask'\] of several groups.* 8\^9"):
        explain(of_two_groups(9), torch.tensor(x), torch.tensor(y))


# Several at once


def at_three_levels(x, y=None):
    """Two entries each: of all rows, of groups given these, of rows given their group's."""
    group = x[:, -1].long()
    with mask_particles():
        s = pyro.sample("of_all", coins(x, 2))
        with pyro.plate("group", 2, dim=-1):
            z = pyro.sample("mask", dist.Bernoulli(0.2 + 0.5 * s).to_event(1))
        with pyro.plate("data", len(x), dim=-1):
            own = z[..., group, :]
            u = pyro.sample("of_row", dist.Bernoulli(0.3 + 0.4 * own).to_event(1))
            mean = (x[:, :2] * (s + own + u) * SLOPES[:2]).sum(-1)
            pyro.sample("y", dist.Normal(mean, NOISE), obs=y)


def by_hand(x, y):
    """log p(y), and the means of all three, one loop inside another."""
    two = every_mask(2)
    coin = lambda z, p: np.where(z, p, 1 - p).prod(-1)  # noqa: E731
    total, of_all, of_groups, of_rows = 0.0, np.zeros(2), np.zeros((2, 2)), np.zeros((len(x), 2))
    for s in two:
        for z in itertools.product(two, repeat=2):
            z = np.array(z)
            own = z[x[:, 2].astype(int)]
            joint = np.stack(
                [
                    coin(u, 0.3 + 0.4 * own)
                    * norm.pdf(y, (x[:, :2] * (s + own + u) * SLOPES[:2].numpy()).sum(-1), NOISE)
                    for u in two
                ]
            )
            weight = coin(s, KEPT) * coin(z, 0.2 + 0.5 * s).prod() * joint.sum(0).prod()
            total += weight
            of_all += weight * s
            of_groups += weight * z
            of_rows += weight * (joint / joint.sum(0)).T @ two
    return math.log(total), of_all / total, of_groups / total, of_rows / total


def test_masks_of_all_rows_groups_and_rows_together():
    x, y = grouped(7, groups=2)
    x = x[:, [0, 1, 3]]
    evidence, *expected = by_hand(x, y)
    rows = torch.tensor(x), torch.tensor(y)
    posterior = explain(at_three_levels, *rows, draws=4000)
    assert log_marginal_likelihood(at_three_levels, *rows).log == pytest.approx(evidence, abs=1e-9)
    drawn = group_of(posterior, "posterior")
    plates = {"of_all": (), "mask": ("group",), "of_row": ("row",)}
    for (site, plate), own in zip(plates.items(), expected, strict=True):
        assert drawn[site].dims == ("chain", "draw", *plate, "feature")
        name = "" if site == "of_all" else f"{site}_"
        found = stats_of(posterior)[f"{name}selection_probability_given_y"].values[0]
        np.testing.assert_allclose(found, own, atol=1e-9)
        z = (drawn[site].values[0].mean(0) - own) / np.sqrt(own * (1 - own) / 4000)
        assert abs(z).max() < 4.5
    # Draws are joint: a group's entry goes with that of all rows.
    both = (drawn["of_all"].values[0][:, 0] * drawn["mask"].values[0][:, 0, 0]).mean()
    apart = drawn["of_all"].values[0][:, 0].mean() * drawn["mask"].values[0][:, 0, 0].mean()
    assert both > 1.5 * apart


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
    x, y = grouped(5, groups=2)
    x = x[:, [0, 1, 3]]
    _, *expected = by_hand(x, y)
    posterior = explain(at_three_levels, torch.tensor(x), torch.tensor(y), draws=100, proposals=300)
    stats = stats_of(posterior)
    for site, own in zip(["", "mask_", "of_row_"], expected, strict=True):
        found = stats[f"{site}selection_probability_given_y"].values[0]
        assert (abs(found - own) / np.sqrt(0.25 / float(stats["weight_ess"].max()))).max() < 4


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
