"""Explanations against exact posteriors, and their layout, files and refusals."""

import itertools
import math

import arviz
import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
import xarray as xr
from scipy import stats
from torch import nn

from lexppl import explain, fit
from lexppl.arviz_compatibility import group_names, group_of, posterior_of
from lexppl.distributions import KSubset
from lexppl.effects import imputation_particles, mask_particles
from lexppl.explanation import save_posterior, selection_table
from lexppl.explanation.posterior_arrays import Variable, over_chunks, stored
from lexppl.explanation.reading.masks import kind_of, masks_of
from lexppl.explanation.row_draws import systematic_resampling
from lexppl.inference import FitResult, NestedIWAE
from lexppl.inference.training.result import History
from lexppl.models import (
    LEX,
    MLP,
    BernoulliSelector,
    CategoricalLikelihood,
    ConstantImputer,
    Grouping,
    KSubsetSelector,
    NormalLikelihood,
    Predictor,
    observe,
)
from lexppl.systems import lex as lex_system
from tests.refusals import over, refusals, refused

FAILURE = 1e-6
"""Probability with which a correct implementation fails one test by its z-scores."""


def fitted(*models, guides=None, **named):
    """A fit's result without the fit."""
    empty = np.zeros((0, len(models)))
    return FitResult(
        models=[m.eval() for m in models],
        guides=list(guides or [None] * len(models)),
        objective=NestedIWAE(masks=4),
        history=History(empty, empty, np.zeros(0), np.zeros(0)),
        best_epoch=np.zeros(len(models), dtype=int),
        best_valid=np.full(len(models), np.nan),
        collapse=[None] * len(models),
        interrupted=False,
        **{"event_shape": (3,), "labels": (0, 1), "seed": 0, **named},
    )


def lex(selector=None, likelihood=None, seed=0, outputs=2, **parts):
    selector = selector or BernoulliSelector(MLP(3, 3, (4,), seed=seed))
    network = MLP(3, outputs, (4,), seed=seed + 1)
    return LEX(
        selector, ConstantImputer(), Predictor(network, likelihood or CategoricalLikelihood()),
        **parts,
    )  # fmt: skip


def rows(count, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 3, generator=generator, dtype=torch.float64).to(dtype)
    return x, (x[:, 0] > 0).long()


# Draws against exact enumeration


class Enumerable(nn.Module):
    """Three Bernoulli mask entries, and hidden features filled in by one of two values."""

    FILLS = (-0.7, 0.9)
    SHARE = 0.4

    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.tensor([0.8, -0.5, 0.3], dtype=torch.float64))
        self.weight = nn.Parameter(
            torch.tensor([[1.5, -1.0], [-2.0, 0.4], [0.6, 1.2]], dtype=torch.float64)
        )

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1):
            distribution = dist.Bernoulli(logits=self.slope * x).to_event(1)
            with mask_particles():
                mask = pyro.sample("mask", distribution)
                with imputation_particles():
                    share = torch.tensor(self.SHARE, dtype=torch.float64)
                    which = pyro.sample("fill", dist.Bernoulli(share.expand(len(x))))
                    fill = self.FILLS[0] + which * (self.FILLS[1] - self.FILLS[0])
                    x_imputed = mask * x + (1 - mask) * fill.unsqueeze(-1)
                    return observe("y", dist.Categorical(logits=x_imputed @ self.weight), y)

    def exact(self, x):
        """All masks (8, 3), p(z | x) (8,) and p(y | x, z) (8, 2) for one row."""
        masks = torch.tensor(list(itertools.product((0.0, 1.0), repeat=3)), dtype=torch.float64)
        prior = dist.Bernoulli(logits=self.slope * x).to_event(1).log_prob(masks).exp()
        likelihood = 0.0
        for fill, share in zip(self.FILLS, (1 - self.SHARE, self.SHARE), strict=True):
            logits = (masks * x + (1 - masks) * fill) @ self.weight
            likelihood = likelihood + share * logits.softmax(-1)
        return masks, prior.detach(), likelihood.detach()


def guide(x, y=None):
    """A guide of the masks that looks at y (a label or a probability) and is not the posterior."""
    sign = (2 * y - 1 if y.dim() == 1 else y[:, 1] - y[:, 0]).double()
    with pyro.plate("data", len(x), dim=-1), mask_particles():
        logits = 0.5 * sign.unsqueeze(-1) * x + 0.3
        pyro.sample("mask", dist.Bernoulli(logits=logits).to_event(1))


COPIES = 200
ROW_PAIR = torch.tensor([[1.2, -0.4, 0.9], [-0.8, 1.5, 0.2]], dtype=torch.float64)
LABEL_PAIR = torch.tensor([1, 0])


def copied(values):
    return values.repeat_interleave(COPIES, 0)


def z_scores(by_copy, exact):
    """Of the mean over copies of a row; zero where the copies all equal the exact value."""
    error = by_copy.mean(0) - exact
    spread = by_copy.std(0, ddof=1) / math.sqrt(len(by_copy))
    return np.abs(error / np.where(spread == 0, 1e-12, spread))


def limit(tests):
    return stats.t.isf(FAILURE / 2 / tests, COPIES - 1)


def pattern_frequencies(mask):
    """How often each of the 8 masks was drawn: (copies, 8)."""
    code = (mask.astype(int) * [4, 2, 1]).sum(-1)
    return np.stack([(code == pattern).mean(0) for pattern in range(8)], -1)


def largest_posterior_z(posterior, model, y, group="posterior"):
    """Over rows and masks, of mask frequencies against p(z | x, y), or Σ_c p(c) p(z | x, y=c)."""
    mask = posterior[group]["mask"].values[0]
    largest = 0.0
    for row in range(2):
        _, prior, likelihood = model.exact(ROW_PAIR[row])
        joint = prior.unsqueeze(-1) * likelihood
        weight = y[row] if y.dim() > 1 else nn.functional.one_hot(y[row], 2)
        exact = (weight * joint / joint.sum(0)).sum(-1).numpy()
        copies = slice(row * COPIES, (row + 1) * COPIES)
        scores = z_scores(pattern_frequencies(mask[:, copies]), exact)
        largest = max(largest, float(scores.max()))
    return largest


SOFT = torch.tensor([[0.3, 0.7], [1.0, 0.0]], dtype=torch.float64)


LABELLED = [(k, guided, LABEL_PAIR) for guided in (False, True) for k in (1, 2)]


@pytest.mark.parametrize(
    ("imputations", "guided", "y"), [*LABELLED, (1, False, SOFT), (2, True, SOFT)]
)
def test_masks_given_y_follow_the_exact_posterior(imputations, guided, y):
    model = Enumerable()
    result = fitted(model, guides=[guide if guided else None])
    options = {"draws": 250, "proposals": 16, "imputations": imputations, "seed": 1}
    posterior = explain(result, copied(ROW_PAIR), copied(y), **options)
    assert largest_posterior_z(posterior, model, y) < limit(16)
    evidence = posterior["sample_stats"]["log_evidence"].values[0]
    for row in range(2):
        _, prior, likelihood = model.exact(ROW_PAIR[row])
        exact = (prior @ likelihood).numpy()
        drawn = evidence[row * COPIES : (row + 1) * COPIES]
        if y.dim() == 1:
            assert z_scores(np.exp(drawn), exact[y[row]]) < limit(2)
        else:
            assert z_scores(drawn, y[row].numpy() @ np.log(exact)) < limit(2)


def test_masks_without_y_fail_the_posterior_and_pass_the_prior():
    model = Enumerable()
    posterior = explain(fitted(model), copied(ROW_PAIR), draws=250, seed=1)
    assert largest_posterior_z(posterior, model, LABEL_PAIR, "predictions") > limit(16)
    mask = posterior["predictions"]["mask"].values[0]
    for row in range(2):
        copies = slice(row * COPIES, (row + 1) * COPIES)
        _, prior, _ = model.exact(ROW_PAIR[row])
        assert z_scores(pattern_frequencies(mask[:, copies]), prior.numpy()).max() < limit(16)


@pytest.mark.parametrize("observed", [False, True])
def test_new_responses_follow_their_probabilities(observed):
    """p(y = c | x) without y; Σ p(z, fill | x, y) p(c | x̃) with it, a joint draw of both."""
    model = Enumerable()
    y = copied(LABEL_PAIR) if observed else None
    posterior = explain(
        fitted(model), copied(ROW_PAIR), y, draws=250, proposals=16, imputations=2, seed=2
    )
    predictive = group_of(posterior, "posterior_predictive" if observed else "predictions")
    for row in range(2):
        masks, prior, _ = model.exact(ROW_PAIR[row])
        exact, total = 0.0, 0.0
        for fill, share in zip(model.FILLS, (1 - model.SHARE, model.SHARE), strict=True):
            logits = (masks * ROW_PAIR[row] + (1 - masks) * fill) @ model.weight
            p = logits.softmax(-1).detach()
            weight = share * prior * (p[:, LABEL_PAIR[row]] if observed else 1.0)
            exact, total = exact + weight @ p, total + weight.sum()
        exact = float((exact / total)[1])
        copies = slice(row * COPIES, (row + 1) * COPIES)
        drawn = predictive["y"].values[0, :, copies].mean(0)
        stated = predictive["y_probability"].values[0, copies, 1]
        assert z_scores(drawn, exact) < limit(4)
        assert z_scores(stated, exact) < limit(4)


def test_log_likelihood_sums_the_masks_out():
    """Exactly, where masks do not matter; and of rows with a guide, whose weights stay in it."""
    model = Enumerable()
    model.FILLS = (0.2, 0.2)
    model.weight.data = model.weight.data[:1].expand(3, 2).clone()
    x = torch.full((5, 3), 0.2, dtype=torch.float64)
    y = torch.tensor([0, 1, 1, 0, 1])
    posterior = explain(fitted(model), x, y, draws=50)
    distribution = dist.Categorical(logits=x @ model.weight.detach())
    stated = posterior["log_likelihood"]["y"]
    assert stated.dims == ("chain", "draw", "row")
    np.testing.assert_allclose(stated.values[0], distribution.log_prob(y).expand(50, 5), atol=1e-5)


def test_y_adds_groups_and_changes_none():
    x, y = rows(30)
    result = fitted(lex(seed=0), lex(seed=5))
    alone, given = (explain(result, x, one, draws=10, seed=3) for one in (None, y))
    xr.testing.assert_identical(group_of(alone, "predictions"), group_of(given, "predictions"))
    constants = group_of(alone, "predictions_constant_data"), group_of(given, "constant_data")
    xr.testing.assert_identical(*constants)
    means = [group_of(p, "sample_stats")["selection_probability"] for p in (alone, given)]
    xr.testing.assert_identical(*means)


def test_effective_sample_size_of_even_weights_is_the_number_of_proposals():
    model = Enumerable()
    model.weight.data.zero_()
    posterior = explain(fitted(model), ROW_PAIR, LABEL_PAIR, draws=10, imputations=3)
    np.testing.assert_allclose(posterior["sample_stats"]["weight_ess"], 40.0)
    np.testing.assert_allclose(posterior["sample_stats"]["log_evidence"], math.log(0.5))


# Systematic resampling


def test_systematic_resampling_takes_each_proposal_its_share_of_times():
    generator = torch.Generator().manual_seed(0)
    p = torch.rand(7, 500, generator=generator, dtype=torch.float64) + 0.01
    p[2] = 0.0
    p = p / p.sum(0)
    torch.manual_seed(0)
    drawn = systematic_resampling(p, 20)
    counts = torch.stack([(drawn == proposal).sum(0) for proposal in range(7)])
    assert bool((counts >= (20 * p - 1e-9).floor()).all())
    assert bool((counts <= (20 * p + 1e-9).ceil()).all())
    assert not bool(counts[2].any())


def test_systematic_resampling_is_unbiased_and_exchangeable():
    p = torch.tensor([0.05, 0.31, 0.0, 0.64], dtype=torch.float64)
    torch.manual_seed(0)
    drawn = systematic_resampling(p.unsqueeze(-1).expand(4, 20_000), 3)
    bound = stats.norm.isf(FAILURE / 2 / 12)
    for draw, proposal in itertools.product(range(3), range(4)):
        share = float((drawn[draw] == proposal).double().mean())
        error = math.sqrt(float(p[proposal] * (1 - p[proposal])) / 20_000)
        assert abs(share - float(p[proposal])) <= bound * error


# Any program


class SharedSwitch(nn.Module):
    """All rows keep all entries of a draw, or none: a global latent decides."""

    def __init__(self):
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(()))

    def forward(self, x, y=None):
        switch = pyro.sample("switch", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            logits = (1e4 * switch).sign() * torch.full((len(x), 3), 40.0)
            mask = pyro.sample("mask", dist.Bernoulli(logits=logits).to_event(1))
            with imputation_particles():
                return pyro.sample("y", dist.Normal(mask.sum(-1), 1.0), obs=y)


def switch_guide(x, y=None):
    pyro.sample("switch", dist.Normal(0.5, 1.0))


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("observed", [False, True])
def test_latents_that_rows_share_are_drawn_once_a_draw(observed):
    x = torch.zeros(5, 3)
    y = torch.zeros(5) if observed else None
    result = fitted(SharedSwitch(), guides=[switch_guide], labels=None)
    posterior = explain(result, x, y, draws=300, rows_per_chunk=2, proposals=1 + observed)
    mask = masks_of(posterior, given_y=observed)["mask"].values[0]
    assert (mask == mask[:, :1, :1]).all()
    kept = int(mask[:, 0, 0].sum())
    bounds = stats.binom.ppf([FAILURE / 2, 1 - FAILURE / 2], 300, stats.norm.cdf(0.5))
    assert bounds[0] <= kept <= bounds[1]


class TwoMasks(nn.Module):
    """A subset of columns and soft weights of two blocks, whose distribution states no mean."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            column = pyro.sample("column", dist.Bernoulli(torch.full((3,), 0.5)).to_event(1))
            relaxed = dist.RelaxedBernoulliStraightThrough(torch.tensor(0.5), torch.ones(2) / 2)
            pyro.sample("block", relaxed.to_event(1))
            plain = dist.RelaxedOneHotCategorical(torch.tensor(0.5), torch.ones(2) / 2)
            pyro.sample("soft", plain)
            with imputation_particles():
                outcome = (column * x * self.weight).sum(-1)
                return pyro.sample("y", dist.Normal(outcome, 1.0), obs=y)


def test_program_of_ones_own_with_several_masks():
    x, _ = rows(6)
    posterior = explain(fitted(TwoMasks(), labels=None), x, draws=8)
    draws = group_of(posterior, "predictions")
    assert draws["column"].dims == ("chain", "draw", "row", "feature")
    assert draws["soft"].dims == ("chain", "draw", "row", "soft_feature")
    assert draws["column"].dtype == np.int8
    assert draws["soft"].dtype == np.float32
    assert {"importance", "soft_importance", "block_importance"} <= set(draws.data_vars)
    stats_of = group_of(posterior, "sample_stats")
    assert stats_of["soft_mask_mean"].attrs["source"] == "mean of the draws"
    np.testing.assert_allclose(stats_of["soft_mask_mean"], draws["soft"].mean("draw"), rtol=1e-5)
    predictive = group_of(posterior, "predictions")
    assert predictive["y"].dtype == np.float32
    assert "y_probability" not in predictive


def test_arrays_become_tensors_of_the_models_type():
    x, y = rows(9)
    from_arrays = explain(fitted(lex()), x.numpy().astype(np.float64), y.numpy(), draws=5)
    from_tensors = explain(fitted(lex()), x, y, draws=5)
    xr.testing.assert_identical(
        group_of(from_arrays, "predictions"), group_of(from_tensors, "predictions")
    )


# Layout


def test_layout_of_a_fitted_explainer():
    x, y = rows(60)
    model = lex(KSubsetSelector(MLP(3, 2, (4,), seed=0), k=1), grouping=Grouping([0, 1, 1]))
    result = fit(
        model, (x, y), objective=NestedIWAE(masks=2), epochs=2, replicates=3, progress=False
    )
    result.class_names = ("no", "yes")
    names = [f"patient {i}" for i in range(10)]
    options = {"rows_per_chunk": 4, "coords": {"row": names}, "entry_names": ["age", "colour"]}
    posterior = explain(result, x[:10], y[:10], draws=12, **options)
    assert set(group_names(posterior)) == {
        "predictions", "prior", "prior_predictive", "posterior", "posterior_predictive",
        "sample_stats", "log_likelihood", "observed_data", "constant_data",
    }  # fmt: skip
    draws = group_of(posterior, "posterior")
    assert dict(draws["mask"].sizes) == {"chain": 3, "draw": 12, "row": 10, "feature": 2}
    assert draws["mask"].dtype == np.int8
    assert draws["feature"].values.tolist() == ["age", "colour"]
    assert draws["row"].values.tolist() == names
    np.testing.assert_allclose(draws["importance"], draws["mask"].mean("row"), atol=1e-12)
    assert (draws["size"] == 1).all()
    predictive = group_of(posterior, "posterior_predictive")
    assert predictive["class"].values.tolist() == ["no", "yes"]
    np.testing.assert_allclose(predictive["y_probability"].sum("class"), 1.0, rtol=1e-5)
    assert set(np.unique(predictive["y"])) <= {0, 1}
    table = group_of(posterior, "constant_data")["x"]
    assert table["input"].values.tolist() == ["x1", "x2", "x3"]
    np.testing.assert_array_equal(table, x[:10])
    for name in group_names(posterior):
        group = group_of(posterior, name)
        assert all(v.dtype != object for v in group.variables.values())
        assert group.attrs["objective"] == "NestedIWAE(masks=2, imputations=1)"
    for name, words in (("predictions", "p(z | x)"), ("posterior", "p(z | x, y)")):
        assert words in group_of(posterior, name).attrs["draws"]


def test_names_come_from_the_fit_then_the_grouping():
    grouped = lex(grouping=Grouping([0, 1, 2], names=["a", "b", "c"]))
    named = fitted(grouped, entry_names=("d", "e", "f"))
    for result, expected in (
        (fitted(grouped), ["a", "b", "c"]),
        (named, ["d", "e", "f"]),
        (fitted(lex()), ["x1", "x2", "x3"]),
    ):
        names = group_of(explain(result, rows(4)[0], draws=2), "predictions")["feature"]
        assert names.values.tolist() == expected


def test_counts_that_need_more_bytes_get_them():
    small, large = (stored(torch.tensor(v), np.int8) for v in ([1.0, 2.0], [300.0]))
    assert small.dtype == np.int8
    chunks = [Variable(("row",), values, {}) for values in (small, large)]
    assert over_chunks(chunks).tolist() == [1.0, 2.0, 300.0]


# Chunks and seeds


def test_chains_of_one_model_are_drawn_independently():
    x, _ = rows(30)
    model = lex()
    mask = explain(fitted(model, model), x, draws=10)["predictions"]["mask"].values
    assert not np.array_equal(mask[0], mask[1])


# The ranked table


def posterior_from(mask, probability=None):
    """A posterior with these mask draws (chain, draw, row, feature)."""
    features = [f"x{g + 1}" for g in range(mask.shape[-1])]
    dims = ("chain", "draw", "row", "feature")
    if probability is None:
        probability = mask.mean(1)
    names = {"feature": features}
    importance = ("chain", "draw", "feature"), mask.mean(2)
    stated = ("chain", "row", "feature"), probability, {"site": "mask"}
    groups = {
        "predictions": xr.Dataset({"mask": (dims, mask), "importance": importance}, names),
        "sample_stats": xr.Dataset({"selection_probability": stated}, names),
    }
    return posterior_of(groups, {})


def bernoulli(probability, draws, seed=0):
    """Mask draws from probabilities (chain, row, feature)."""
    shape = (probability.shape[0], draws, *probability.shape[1:])
    uniform = np.random.default_rng(seed).random(shape)
    return (uniform < probability[:, None]).astype(np.int8)


def test_agreement_is_its_formula():
    probability = np.random.default_rng(1).random((3, 1500, 4))
    mask = bernoulli(probability, 20).astype(float)
    within = np.zeros(4)
    between = np.zeros(4)
    for row in range(1500):
        within += np.stack([mask[r, :, row].var(0, ddof=1) for r in range(3)]).mean(0) / 1500
        between += mask[:, :, row].mean(1).var(0, ddof=1) / 1500
    exact = within / (within * 19 / 20 + between)
    assert exact.max() < 1
    table = selection_table(posterior_from(mask.astype(np.int8)))
    np.testing.assert_allclose(table["agreement"][["x1", "x2", "x3", "x4"]], exact, rtol=1e-12)


def test_agreement_of_sure_fits_that_differ_is_zero():
    half = np.zeros((2, 100, 1))
    half[0, :50] = half[1, 50:] = 1.0
    sure = selection_table(posterior_from(bernoulli(half, 10)))
    assert sure["agreement"].iloc[0] == 0.0


def test_agreement_is_one_where_nothing_varies():
    mask = np.zeros((3, 5, 7, 2), np.int8)
    mask[..., 1] = 1
    assert selection_table(posterior_from(mask))["agreement"].tolist() == [1.0, 1.0]
    soft = np.full((3, 5, 7, 1), 0.1)
    assert selection_table(posterior_from(soft))["agreement"].tolist() == [1.0]


def test_table_is_ranked_with_intervals_over_chains():
    probability = np.random.default_rng(0).random((4, 6, 3)) * [0.2, 1.0, 0.6]
    table = selection_table(posterior_from(bernoulli(probability, 10), probability))
    assert list(table.index) == ["x2", "x3", "x1"]
    means = probability.mean(1)[:, 1]
    interval = stats.t.interval(0.95, 3, means.mean(), stats.sem(means))
    np.testing.assert_allclose(table.loc["x2", ["lower", "upper"]], interval, rtol=1e-12)
    np.testing.assert_allclose(table.loc["x2", "selection_probability"], means.mean())


def weighted_posterior(probability):
    posterior = posterior_from(bernoulli(probability, 2), probability)
    posterior["predictions"].attrs["row_weights"] = "dirichlet"
    return posterior


def test_weighted_replicates_have_an_interval_over_rows():
    probability = np.random.default_rng(0).random((4, 6, 3)) * [0.2, 0.4, 0.6]
    table = selection_table(weighted_posterior(probability)).loc[["x1", "x2", "x3"]]
    of_fits = stats.t.ppf(0.975, 3) ** 2 * probability.mean(1).var(0, ddof=1) * (1 + 1 / 4)
    of_rows = stats.t.ppf(0.975, 5) ** 2 * probability.mean(0).var(0, ddof=1) / 6
    upper = probability.mean((0, 1)) + np.sqrt(of_fits + of_rows)
    np.testing.assert_allclose(table["upper"], upper.clip(max=1.0), rtol=1e-12)
    single = selection_table(weighted_posterior(probability[:, :1])).loc[["x1", "x2", "x3"]]
    own = stats.t.ppf(0.975, 3) * probability[:, 0].std(0, ddof=1) * np.sqrt(1.25)
    lower = (probability[:, 0].mean(0) - own).clip(min=0.0)
    np.testing.assert_allclose(single["lower"], lower, rtol=1e-12)


def test_weighted_intervals_cover_new_rows_and_others_do_not():
    """A sample's own departure is common to its fits, each of which departs as far from it."""
    random = np.random.default_rng(0)
    features, rows = 2000, 50
    sample, fits = (random.normal(0, 0.03, (count, 1, features)) for count in (1, 4))
    own = random.normal(0, 0.1, (1, rows, features))
    probability = 0.5 + sample + fits + own
    assert probability.min() > 0.0 and probability.max() < 1.0
    covered = {}
    for name, posterior in (
        ("weighted", weighted_posterior(probability)),
        ("plain", posterior_from(bernoulli(probability, 2), probability)),
    ):
        table = selection_table(posterior)
        covered[name] = ((table["lower"] < 0.5) & (table["upper"] > 0.5)).mean()
    assert covered["weighted"] > stats.binom.ppf(FAILURE, features, 0.95) / features
    assert covered["plain"] < 0.9


def test_the_posterior_says_whether_rows_were_weighted():
    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    system = lex_system(3, classes=2, hidden=(4,), predictor_hidden=(4,))
    widths = {}
    for given in (None, "dirichlet"):
        options = {"row_weights": given, "replicates": 2, "epochs": 1, "progress": False}
        posterior = explain(fit(system, (x, (x[:, 0] > 0).long()), **options), x, draws=2)
        assert group_of(posterior, "predictions").attrs["row_weights"] == (given or "none")
        table = selection_table(posterior)
        widths[given] = (table["upper"] - table["lower"]).mean()
    assert widths["dirichlet"] > 1.2 * widths[None]


def test_one_chain_has_no_interval_and_no_agreement():
    table = selection_table(posterior_from(bernoulli(np.full((1, 5, 2), 0.5), 10)))
    assert table[["lower", "upper", "agreement"]].isna().all(axis=None)


# Files


def test_files_are_refused_before_writing(tmp_path):
    posterior = posterior_of({"observed_data": xr.Dataset({"y": 1.0})}, {})
    with pytest.raises(ValueError, match=r"folder .* is not there"):
        save_posterior(posterior, tmp_path / "missing" / "posterior.nc")
    refused("is a folder", save_posterior, posterior, tmp_path)
    with pytest.raises(TypeError, match="posterior must be"):
        save_posterior({"a": 1}, tmp_path / "posterior.nc")


# Mistakes

X, Y = rows(6)


@over(
    ({"x": X[:, :2]}, "x must have 3 features, as in fit; it has 2"),
    ({"x": X[0]}, r"x must have shape \(B, D\); it has \(3,\): give x\[:1\]"),
    ({"x": (X, Y), "y": Y}, "y is given twice"),
    ({"x": (X, Y, Y), "y": None}, "a pair .x, y.; it is 3 of them"),
    ({"x": X[:0]}, "x has no rows"),
    ({"x": X / 0.0}, "x must be finite"),
    ({"x": X.double()}, "x is torch.float64 and the model torch.float32"),
    ({"y": Y[:3]}, "x has 6 rows and y has 3"),
    ({"y": Y + 1}, "labels must be 0 … 1 for classes=2; y has 2 in row"),
    ({"y": Y + 1.0}, "labels must be 0 … 1 for classes=2; y has 2 in row"),
    (
        {"y": Y + 0.5},
        r"in row 0, and 5 more .* probabilities of labels are y \(N, 2\)",
    ),
    ({"y": torch.full((6,), math.nan)}, "y must be finite"),
    ({"y": torch.tensor(1)}, "one value for each row"),
    (
        {"y": torch.ones(6, 3) / 3},
        r"\(N, 2\), labels, or .* for classes=2; the shape is \(6, 3\)",
    ),
    ({"y": torch.ones(6, 2)}, "sum to 1; 6 of 6"),
    ({"draws": -1}, "draws must be a whole number of at least 0; it is -1"),
    ({"draws": 2.0}, "draws must be"),
    ({"imputations": 0}, "imputations must be"),
    ({"rows_per_chunk": 0}, "rows_per_chunk must be"),
    ({"proposals": True}, "proposals must be"),
    ({"seed": -1}, "seed must be"),
    ({"coords": {"row": ["a"]}}, r"coords\['row'\] must be 6 names; there are 1"),
    ({"coords": {"row": ["a"] * 6}}, r"coords\['row'\] must be 6 different names"),
    ({"entry_names": ["a", "b"]}, "entry_names must be 3 names; there are 2"),
    ({"coords": {"input": ["a", "b"]}}, r"coords\['input'\] must be 3 names; there are 2"),
)
def test_mistakes_are_named_before_any_draw(changes, message):
    arguments = {"x": X, "y": None, **changes}
    refused(message, explain, fitted(lex()), arguments.pop("x"), arguments.pop("y"), **arguments)


def test_program_without_masks_or_response_is_refused():
    class NoMask(nn.Module):
        def forward(self, x, y=None):
            with pyro.plate("data", len(x), dim=-1), mask_particles():
                pyro.sample("y", dist.Normal(x.sum(-1), 1.0), obs=y)

    class NoResponse(nn.Module):
        def forward(self, x, y=None):
            with pyro.plate("data", len(x), dim=-1), mask_particles():
                pyro.sample("mask", dist.Bernoulli(torch.ones(3) / 2).to_event(1))

    class Enclosed(nn.Module):
        def forward(self, x, y=None):
            copies, data = pyro.plate("copies", 2, dim=-4), pyro.plate("data", len(x), dim=-1)
            with copies, data, mask_particles():
                pyro.sample("mask", dist.Bernoulli(torch.ones(3) / 2).to_event(1))

    refused(r"no latent of event shape \(G,\)", explain, fitted(NoMask()), X)
    refused("no site 'y'", explain, fitted(NoResponse()), X, Y)
    refused("in plates over masks and rows alone", explain, fitted(Enclosed()), X)
    assert "y" not in group_of(explain(fitted(NoResponse()), X, draws=2), "predictions")


def test_weights_that_are_not_numbers_are_reported():
    model = lex(likelihood=NormalLikelihood(), outputs=1)
    model.predictor.likelihood.log_scale.data.fill_(math.nan)
    with pytest.raises(FloatingPointError, match="importance weights"):
        explain(fitted(model, labels=None), X, X[:, 0], draws=3)


def test_attributions_are_ranked_by_their_size():
    """Contributions that cancel between rows still matter."""
    values = np.zeros((3, 5, 4, 2))
    values[..., 0] = np.array([3.0, -3.0, 2.0, -2.0])
    values[..., 1] = 0.5
    values += np.array([-0.1, 0.0, 0.1])[:, None, None, None]
    table = selection_table(posterior_from(values, values.mean(1)))
    assert list(table.index) == ["x1", "x2"]
    np.testing.assert_allclose(table["selection_probability"], [2.5, 0.5])
    assert table["upper"].iloc[0] > 1.0
    # Nothing is drawn within a replicate, so that there is nothing to compare them with.
    assert table["agreement"].isna().all()


@over(
    (lambda x: dist.Bernoulli(logits=x).to_event(1), {}, "selection"),
    (lambda x: KSubset(x, 1), {}, "selection"),
    (lambda x: dist.Dirichlet(x.exp()), {}, "share"),
    (lambda x: dist.Delta(x, event_dim=1), {"mask_kind": "attribution"}, "attribution"),
    (lambda x: dist.Delta(x.sigmoid().round(), event_dim=1), {"mask_kind": "share"}, "share"),
    (lambda x: dist.Delta(x.sigmoid(), event_dim=1), {}, None),
)
def test_a_program_says_what_its_mask_holds(distribution, infer, kind):
    """A mask of shares that happen to be 0 and 1 is one of shares still."""

    class Saying(nn.Module):
        def forward(self, x, y=None):
            with pyro.plate("data", len(x), dim=-1), mask_particles():
                mask = pyro.sample("mask", distribution(x), infer=infer)
                pyro.sample("y", dist.Bernoulli(logits=mask.sum(-1)), obs=y)

    posterior = explain(fitted(Saying()), X, draws=3)
    mask = group_of(posterior, "predictions")["mask"]
    assert mask.attrs.get("kind") == kind
    names = {"selection": "probability", None: "strength"}
    assert kind_of(posterior).name == names.get(kind, kind)


def test_an_unknown_kind_is_refused():
    class Saying(nn.Module):
        def forward(self, x, y=None):
            with pyro.plate("data", len(x), dim=-1), mask_particles():
                distribution = dist.Bernoulli(logits=x).to_event(1)
                pyro.sample("mask", distribution, infer={"mask_kind": "saliency"})

    refused(r"mask_kind of 'mask' must be one of .*'saliency'", explain, fitted(Saying()), X)


# E[z | x] as the masks' distribution states it, against draws.


SELECTORS = {
    "bernoulli": lambda seed: BernoulliSelector(MLP(3, 3, (4,), seed=seed)),
    "k-subset": lambda seed: KSubsetSelector(MLP(3, 3, (4,), seed=seed), k=2),
}


def replicates(kind: str):
    return fitted(*(lex(SELECTORS[kind](seed)) for seed in (0, 5, 9)))


@pytest.mark.parametrize("kind", SELECTORS)
def test_stated_means_are_those_of_draws(kind):
    """z-scores of the mean of D draws of each row, entry and replicate, and the least and largest
    of all of them against their number."""
    x, _ = rows(40)
    result, draws = replicates(kind), 2000
    stats_of = group_of(explain(result, x, draws=0), "sample_stats")
    exact = stats_of["selection_probability"].values.astype(float)
    mask = group_of(explain(result, x, draws=draws, seed=3), "predictions")["mask"].values
    z = (mask.mean(1) - exact) / np.sqrt(exact * (1 - exact) / draws)
    assert np.abs(z).max() < stats.norm.isf(FAILURE / 2 / z.size)
    # Negative control: another replicate's means are not these draws'.
    other = (mask.mean(1) - exact[[1, 2, 0]]) / np.sqrt(exact * (1 - exact) / draws)
    assert np.abs(other).max() > 10.0


@pytest.mark.parametrize("kind", SELECTORS)
def test_exact_agreement_is_the_limit_of_that_of_draws(kind):
    """Of the draws, within and between are sums over rows: z-scores of both against what the
    probabilities say."""
    x, _ = rows(400)
    result, draws = replicates(kind), 200
    exact = explain(result, x, draws=0)
    p = group_of(exact, "sample_stats")["selection_probability"].values.astype(float)
    mask = group_of(explain(result, x, draws=draws, seed=3), "predictions")["mask"].values
    within = mask.var(1, ddof=1).mean(0)
    between = mask.mean(1).var(0, ddof=1)
    for found, expected in (
        (within, (p * (1 - p)).mean(0)),
        (between, p.var(0, ddof=1) + (p * (1 - p)).mean(0) / draws),
    ):
        error = found - expected
        z = error.mean(0) / (error.std(0, ddof=1) / math.sqrt(len(x)))
        assert np.abs(z).max() < stats.norm.isf(FAILURE / 2 / (2 * z.size))
    w, v = (p * (1 - p)).mean((0, 1)), p.var(0, ddof=1).mean(0)
    table = selection_table(exact).loc[["x1", "x2", "x3"]]
    np.testing.assert_allclose(table["agreement"], w / (w + v), rtol=1e-6)


def test_the_table_rests_on_no_draws():
    x, _ = rows(30)
    result = replicates("bernoulli")
    tables = [selection_table(explain(result, x, draws=d, seed=d)) for d in (0, 2, 50)]
    for table in tables[1:]:
        np.testing.assert_array_equal(table.values, tables[0].values)
        assert list(table.index) == list(tables[0].index)
    # Given y the same masks are ranked, those given x alone.
    y = (x[:, 0] > 0).long()
    given = [explain(result, x, y, draws=d) for d in (50, 60)]
    for posterior in given:
        assert selection_table(posterior).equals(tables[0])


def test_layout_chunks_and_file(tmp_path):
    x, _ = rows(23)
    result = replicates("k-subset")
    posterior = explain(result, x, draws=0, coords={"row": [f"r{i}" for i in range(23)]})
    by_chunks = explain(result, x, draws=0, rows_per_chunk=4)
    means = [
        group_of(p, "sample_stats")["selection_probability"].values for p in (posterior, by_chunks)
    ]
    np.testing.assert_allclose(*means, rtol=1e-5)
    assert group_of(posterior, "predictions")["mask"].shape == (3, 0, 23, 3)
    assert "y" not in group_of(posterior, "predictions")
    assert group_of(posterior, "predictions").attrs["draws"].startswith("none")
    again = arviz.from_netcdf(save_posterior(posterior, tmp_path / "p.nc"))
    for name in ("predictions", "sample_stats", "predictions_constant_data"):
        xr.testing.assert_identical(group_of(again, name), group_of(posterior, name))
    assert selection_table(again).equals(selection_table(posterior))


def test_nothing_is_imputed_or_predicted(monkeypatch):
    """But for four rows of the first replicate, whether they depend on each other and on each
    other's masks, and for one row, twice: its sites, and whether they stay the same."""
    result = replicates("bernoulli")
    called: list[tuple[int, ...]] = []

    def predicted(x):
        called.append(tuple(x.shape))
        return dist.Categorical(logits=torch.zeros(*x.shape[:-1], 2))

    for model in result.models:
        monkeypatch.setattr(model.predictor, "forward", predicted)
    explain(result, rows(5)[0], draws=0)
    assert [shape[-2] for shape in called[-2:]] == [1, 1]
    assert {shape[-2] for shape in called[:-2]} == {4} and len(called) < 20


class Switched(nn.Module):
    """A mask whose distribution depends on a latent of its particle."""

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            switch = pyro.sample("switch", dist.Bernoulli(torch.full((len(x),), 0.5)))
            rates = 0.1 + 0.8 * switch.unsqueeze(-1).expand(*switch.shape, 3)
            mask = pyro.sample("mask", dist.Bernoulli(rates).to_event(1))
            with imputation_particles():
                return observe("y", dist.Bernoulli(logits=(mask * x).sum(-1)), y)


class Unstated(nn.Module):
    """A mask whose values are neither selections nor shares by its distribution."""

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", dist.Normal(x, 1.0).to_event(1))
            with imputation_particles():
                return observe("y", dist.Bernoulli(logits=(mask * x).sum(-1)), y)


test_what_must_be_drawn_is_refused = refusals(
    (lex, {"y": rows(30)[1]}, "masks given y are draws"),
    (Switched, {}, "which depends on another latent: give draws"),
    (Unstated, {}, r"the distribution of the masks \['mask'\] states no mean of selections"),
    (lex, {"draws": -1}, "draws must be a whole number of at least 0; it is -1"),
    of=lambda model, given: explain(fitted(model()), rows(30)[0], **{"draws": 0, **given}),
)
