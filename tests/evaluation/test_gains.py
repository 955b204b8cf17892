"""Gains against enumeration, and how their tests and intervals do over many tables."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy.stats import binom, kstest, norm, t
from torch import nn

from lexppl.effects import imputation_particles, mask_particles
from lexppl.evaluation import FeatureGains, feature_gains, gain_table, row_gains
from lexppl.inference import FitResult, History
from lexppl.inference.training.cross_fitting import CrossFitted
from lexppl.models import (
    LEX,
    MLP,
    BernoulliLikelihood,
    BernoulliSelector,
    CategoricalLikelihood,
    ConstantImputer,
    GaussianImputer,
    Grouping,
    KSubsetSelector,
    MarginalImputer,
    NormalLikelihood,
    PoissonLikelihood,
    Predictor,
    SizePenalty,
)
from lexppl.models.selectors import SoftMaskSelector

X = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).double()
LABELS = torch.arange(4) % 3
REFERENCE = torch.tensor([[1.0, -1.0, 0.5], [-2.0, 0.3, 1.5]]).double()
COPIES = 400
FAILURE = 1e-6
"""Probability that a right program fails one of the tests of chance here."""


class Fixed(nn.Module):
    """The same logits for every row."""

    def __init__(self, logits):
        super().__init__()
        self.logits = nn.Parameter(torch.as_tensor(logits, dtype=torch.float64))

    def forward(self, x):
        return self.logits.expand(len(x), -1)


class Linear(nn.Module):
    """Logit `w · x` of a Bernoulli response."""

    def __init__(self, *weights):
        super().__init__()
        self.weights = nn.Parameter(torch.tensor(weights, dtype=torch.float64))

    def forward(self, x):
        return (x @ self.weights)[..., None]


def result_of(*models, guides=None, labels=None, event_shape=(3,), names=None):
    replicates = len(models)
    return FitResult(
        models=list(models),
        guides=[None] * replicates if guides is None else guides,
        objective=None,
        history=History(*(np.zeros((0, replicates)) for _ in range(4))),
        best_epoch=np.zeros(replicates, int),
        best_valid=np.zeros(replicates),
        collapse=[None] * replicates,
        interrupted=False,
        event_shape=event_shape,
        labels=labels,
        seed=0,
        entry_names=names,
    )


def model_of(
    logits=(0.3, -0.8, 1.1), likelihood=None, k=None, imputer=None, grouping=None, columns=3
):
    selector = BernoulliSelector(Fixed(logits)) if k is None else KSubsetSelector(Fixed(logits), k)
    network = MLP(columns, 3 if likelihood is None else 1, (8,), "tanh", seed=0)
    predictor = Predictor(network, CategoricalLikelihood() if likelihood is None else likelihood)
    imputer = ConstantImputer(0.3) if imputer is None else imputer
    model = LEX(selector, imputer, predictor, [SizePenalty(0.1)], grouping=grouping)
    return model.double().eval()


def of_rows():
    return model_of(imputer=MarginalImputer(REFERENCE))


def linear_model(weights, imputer=None, logits=None):
    return LEX(
        BernoulliSelector(Fixed([0.0] * len(weights) if logits is None else logits)),
        GaussianImputer() if imputer is None else imputer,
        Predictor(Linear(*weights), BernoulliLikelihood()),
    ).double()


def log_hats(model, x, y, mask, imputations):
    """`E log 1/K Σ_k p(y | x̃_k)` of each row under one mask, all imputations written out."""
    keep = mask if model.grouping is None else model.grouping(mask)
    fills = getattr(model.imputer, "reference", None)
    fills = [torch.tensor(0.3)] if fills is None else list(fills)
    with torch.no_grad():
        each = []
        for fill in fills:
            given = model.predictor(torch.where(keep == 1, x, fill.double()))
            labels = range(y.shape[1]) if y.dim() == 2 else [y]
            each.append(torch.stack([given.log_prob(torch.as_tensor(c).double()) for c in labels]))
    drawn = itertools.product(each, repeat=imputations)
    logs = [torch.logsumexp(torch.stack(some), 0) - math.log(imputations) for some in drawn]
    mean = torch.stack(logs).mean(0)
    return (y.mT * mean).sum(0) if y.dim() == 2 else mean[0]


def enumerated(model, x, y, imputations=1):
    """What an exchange loses, `(N, G)`: all masks' probabilities times the differences."""
    entries = len(model.selector.network.logits)
    own = model.selector(x[:1])
    gains = torch.zeros(len(x), entries).double()
    for bits in itertools.product((0.0, 1.0), repeat=entries):
        mask = torch.tensor(bits).double()
        if isinstance(model.selector, KSubsetSelector) and mask.sum() != own.k:
            continue
        probability = own.log_prob(mask[None]).exp().item()
        for g in range(entries):
            with_it, without = mask.clone(), mask.clone()
            with_it[g], without[g] = 1.0, 0.0
            gains[:, g] += probability * (
                log_hats(model, x, y, with_it, imputations)
                - log_hats(model, x, y, without, imputations)
            )
    return gains


def largest_z(result, exact, x, y, copies=COPIES, of="exchanged", **options):
    """Many copies of each row give independent estimates of its gains."""
    gains = feature_gains(result, x.repeat(copies, 1), torch.cat([y] * copies), **options)
    each = getattr(gains, of)[0].reshape(copies, len(x), -1)
    error = each.std(0) / math.sqrt(copies)
    assert bool((error > 0).all())
    return float(((each.mean(0) - exact) / error).abs().max())


def limit(tests):
    return float(norm.isf(FAILURE / tests / 2))


PROBABILITIES = torch.softmax(torch.randn(4, 3, generator=torch.Generator().manual_seed(1)), 1)
CASES = {
    "labels": ({}, LABELS, 1),
    "probabilities": ({}, PROBABILITIES.double(), 1),
    "Bernoulli": ({"likelihood": BernoulliLikelihood()}, LABELS % 2, 1),
    "normal": ({"likelihood": NormalLikelihood(0.5)}, LABELS.double(), 1),
    "counts": ({"likelihood": PoissonLikelihood()}, LABELS.double(), 1),
    "k-subset": ({"k": 2}, LABELS, 1),
    "two imputations": ({"imputer": MarginalImputer(REFERENCE)}, LABELS, 2),
    "probabilities, two imputations": (
        {"imputer": MarginalImputer(REFERENCE)},
        PROBABILITIES.double(),
        2,
    ),
}


@pytest.mark.complete(but=4)
@pytest.mark.parametrize("case", CASES)
def test_an_exchange_is_the_expectation_over_masks(case):
    options, y, imputations = CASES[case]
    model = model_of(**options)
    exact = enumerated(model, X, y, imputations)
    result = result_of(model)
    own = {"reference": getattr(model.imputer, "reference", None)}
    assert largest_z(result, exact, X, y, masks=4, imputations=imputations, **own) < limit(12)
    # Another selector is told apart, and so is another number of imputations.
    other = enumerated(model_of(**{**options, "logits": (0.3, 2.0, -1.5)}), X, y, imputations)
    assert largest_z(result, other, X, y, masks=4, imputations=imputations, **own) > 2 * limit(12)
    if imputations > 1:
        one = enumerated(model, X, y, 1)
        assert largest_z(result, one, X, y, masks=200, imputations=2, **own) > 2 * limit(12)


def test_hidden_values_are_those_of_the_judged_rows():
    model = model_of(imputer=MarginalImputer(REFERENCE))
    of_the_judged = enumerated(model_of(imputer=MarginalImputer(X)), X, LABELS)
    result = result_of(model)
    assert largest_z(result, of_the_judged, X, LABELS, masks=20) < limit(12)
    assert largest_z(result, enumerated(model, X, LABELS), X, LABELS, masks=20) > 2 * limit(12)
    assert torch.equal(model.imputer.reference, REFERENCE)
    own = feature_gains(result, X, LABELS, seed=3, reference=X.numpy()).gains
    assert torch.equal(own, feature_gains(result, X, LABELS, seed=3).gains)


@pytest.mark.complete
def test_noise_gains_exactly_nothing_over_the_orders_of_its_values():
    model = model_of()
    found = {"judged": [], "others": []}
    for order in itertools.permutations(range(4)):
        x = X.clone()
        x[:, 2] = X[list(order), 2]
        for name, rows in (("judged", x), ("others", REFERENCE)):
            model.imputer = MarginalImputer(rows)
            found[name].append(enumerated(model, x, LABELS)[:, 2].mean())
    assert abs(torch.stack(found["judged"]).mean()) < 1e-12
    assert abs(torch.stack(found["others"]).mean()) > 1e-2


@pytest.mark.smoke
def test_an_entry_of_a_grouping_is_its_columns():
    x = torch.cat([X, X[:, :1] + 1.0], 1)
    model = model_of(grouping=Grouping([0, 1, 2, 1], ["a", "b", "c"]), columns=4)
    result = result_of(model, event_shape=(4,))
    assert largest_z(result, enumerated(model, x, LABELS), x, LABELS, masks=4) < limit(12)
    assert feature_gains(result, x, LABELS, masks=1).entry_names == ("a", "b", "c")


def test_masks_that_depend_on_the_row():
    """Of one entry alone there is nothing to draw: the gain is exact, whatever the mask."""
    model = LEX(
        BernoulliSelector(nn.Linear(1, 1)),
        ConstantImputer(0.0),
        Predictor(Linear(2.0), BernoulliLikelihood()),
    ).double()
    x, y = X[:, :1], LABELS % 2
    sign = 2.0 * y - 1.0
    expected = torch.nn.functional.logsigmoid(2.0 * sign * x[:, 0]) - math.log(0.5)
    found = feature_gains(result_of(model, event_shape=(1,)), x, y).gains
    torch.testing.assert_close(found[0, :, 0], expected)


def test_what_a_predictor_does_not_read_gains_exactly_nothing():
    """The same random numbers in both runs: other imputations would differ."""
    for imputer in (GaussianImputer(), MarginalImputer(REFERENCE)):
        result = result_of(linear_model((1.0, 0.0, -2.0), imputer))
        gains = feature_gains(result, X, LABELS % 2, masks=5, imputations=2).gains
        assert bool((gains[..., 1] == 0).all())
        assert bool((gains[..., [0, 2]] != 0).all())
    table = gain_table(FeatureGains(gains, ("a", "none", "c")))
    assert table.loc["none", ["gain", "lower", "upper"]].tolist() == [0.0, 0.0, 0.0]
    assert table.loc["none", "p"] == 0.5 and not table.loc["none", "found"]


def test_each_replicate_has_its_own_gains_and_cross_fitted_ones_their_mean():
    models = [linear_model(w, ConstantImputer(0.0)) for w in ((1.0, 0.5, 0.0), (0.0, 1.0, 2.0))]
    x, y = X, LABELS % 2
    both = feature_gains(result_of(*models), x, y).gains
    assert bool((both[0, :, 2] == 0).all()) and bool((both[1, :, 0] == 0).all())
    same = linear_model((1.0, 0.5, 0.0), ConstantImputer(0.0))
    same.predictor = CrossFitted([same.predictor, same.predictor])
    torch.testing.assert_close(feature_gains(result_of(same), x, y).gains, both[:1])
    other = linear_model((1.0, 0.5, 0.0), ConstantImputer(0.0))
    other.predictor = CrossFitted([model.predictor for model in models])
    assert bool((feature_gains(result_of(other), x, y).gains != 0).all())


def test_the_seed_decides_and_global_random_state_is_left():
    result = result_of(model_of(imputer=GaussianImputer()))
    torch.manual_seed(3)
    state, numpys = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = feature_gains(result, X, LABELS, masks=5, seed=1).gains
    assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(np.random.get_state()[1], numpys)  # noqa: NPY002
    assert torch.equal(feature_gains(result, X, LABELS, masks=5, seed=1).gains, first)
    assert not torch.equal(feature_gains(result, X, LABELS, masks=5, seed=2).gains, first)
    # Rows and replicates have draws of their own.
    twice = feature_gains(result_of(*result.models * 2), X[:1].repeat(2, 1), LABELS[:1].repeat(2))
    assert len(set(twice.gains[:, :, 0].flatten().tolist())) == 4


@pytest.mark.parametrize("rows_per_chunk", [1, 3])
def test_chunks_are_put_together(rows_per_chunk):
    result = result_of(model_of(k=3))
    whole = feature_gains(result, X, LABELS).gains
    parts = feature_gains(result, X, LABELS, rows_per_chunk=rows_per_chunk).gains
    torch.testing.assert_close(parts, whole)


def test_arrays_are_taken_and_entries_named():
    result = result_of(model_of(k=3), names=("age", "height", "job"))
    found = feature_gains(result, X.numpy(), LABELS.numpy())
    assert found.entry_names == ("age", "height", "job") and found.gains.dtype == torch.float64
    torch.testing.assert_close(found.gains, feature_gains(result, X, LABELS).gains)


class BayesianExplainer(pyro.nn.PyroModule):
    """A global weight, and a mask that depends on a latent of its own plate."""

    def forward(self, x, y=None):
        weight = pyro.sample("weight", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            shift = pyro.sample("shift", dist.Normal(x.new_zeros(()), 2.0))
            mask = pyro.sample("mask", dist.Bernoulli(logits=shift[..., None] + x).to_event(1))
            with imputation_particles():
                filled = pyro.sample("x_imputed", dist.Delta(mask * x, event_dim=1))
                logits = weight * filled.sum(-1) + filled.prod(-1)
                return pyro.sample("y", dist.Bernoulli(logits=logits), obs=y)


def bayesian_guide(*_):
    pyro.sample("weight", dist.Delta(torch.tensor(1.5).double()))


def test_global_latents_are_drawn_with_the_masks():
    x, y = X[:, :2], (LABELS % 2).double()
    shifts = torch.randn(400_000, generator=torch.Generator().manual_seed(0)).double() * 2
    keep = torch.sigmoid(shifts[:, None, None] + x).mean(0)

    def gain(g):
        """The other entry is kept or not, by the mean of its probability over the shift."""
        sign, other = 2 * y - 1, 1 - g
        both = torch.nn.functional.logsigmoid(sign * (1.5 * x.sum(-1) + x.prod(-1)))
        mine = torch.nn.functional.logsigmoid(sign * 1.5 * x[:, g])
        others = torch.nn.functional.logsigmoid(sign * 1.5 * x[:, other])
        p = keep[:, other]
        return p * (both - others) + (1 - p) * (mine - math.log(0.5))

    exact = torch.stack([gain(0), gain(1)], -1)
    result = result_of(BayesianExplainer(), guides=[bayesian_guide], event_shape=(2,))
    assert largest_z(result, exact, x, y, masks=8) < limit(8)
    assert largest_z(result, exact.flip(1), x, y, masks=8) > 2 * limit(8)


class OfSites(pyro.nn.PyroModule):
    """A level of each of two sites, in a plate of groups that has the rows' dimension."""

    def forward(self, x, y=None):
        with pyro.plate("sites", 2, dim=-1):
            level = pyro.sample("level", dist.Normal(x.new_zeros(()), 1.0))
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", dist.Bernoulli(torch.full_like(x, 0.5)).to_event(1))
            with imputation_particles():
                mean = (mask * x).sum(-1) + level[(x[:, 0] > 0).long()]
                return pyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def guide_of_sites(*_):
    with pyro.plate("sites", 2, dim=-1):
        pyro.sample("level", dist.Delta(torch.tensor([-1.0, 2.0]).double()))


def test_an_effect_of_groups_is_none_of_rows():
    """It was refused as one: a plate of groups may have the rows' dimension."""
    x = X[:, :2]
    level = torch.tensor([-1.0, 2.0]).double()[(x[:, 0] > 0).long()]
    y = level + 0.3

    def squared(kept):
        return (y - level - (torch.tensor(kept).double() * x).sum(-1)).square()

    first = (squared((0, 0)) - squared((1, 0)) + squared((0, 1)) - squared((1, 1))) / 4
    second = (squared((0, 0)) - squared((0, 1)) + squared((1, 0)) - squared((1, 1))) / 4
    exact = torch.stack([first, second], -1)
    result = result_of(OfSites(), guides=[guide_of_sites], event_shape=(2,))
    assert largest_z(result, exact, x, y, masks=8) < limit(8)
    assert largest_z(result, exact.flip(1), x, y, masks=8) > 2 * limit(8)
    # As many rows as groups, which only the plates' names tell apart.
    assert feature_gains(result, x[:2], y[:2]).gains.shape == (1, 2, 2)


def null_tables(tables, rows, imputations, masks=4):
    """Gains of a known law, `y | x ~ Bernoulli(σ(2 x₁))`, under a predictor that reads x₃ too,
    whose hidden features are drawn from their own distribution; and by exchanges, each
    `(tables, rows, 3)`."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(tables * rows, 3, generator=generator).double()
    y = torch.bernoulli(torch.sigmoid(2 * x[:, 0]), generator=generator)
    result = result_of(linear_model((2.0, 0.0, 1.0)))
    found = feature_gains(result, x, y, masks=masks, imputations=imputations)
    return tuple(each[0].reshape(tables, rows, 3) for each in (found.gains, found.exchanged))


def p_values(gains, exchanged=None):
    names = ("true", "unread", "null")
    others = [None] * len(gains) if exchanged is None else exchanged[:, None]
    each = [
        gain_table(FeatureGains(gain[None], names, exchanged=other))
        for gain, other in zip(gains, others, strict=True)
    ]
    return {name: np.array([table.loc[name, "p"] for table in each]) for name in ("true", "null")}


def test_an_exchange_of_a_null_loses_nothing_and_its_p_values_are_uniform():
    gains, exchanged = null_tables(300, 60, imputations=1)
    null = exchanged[..., 2].flatten()
    assert abs(float(null.mean() / (null.std() / math.sqrt(len(null))))) < limit(1)
    p = p_values(exchanged)
    assert kstest(p["null"], "uniform").pvalue > FAILURE
    assert kstest(p["true"], "uniform").pvalue < FAILURE
    assert np.median(p["true"]) < 0.01
    # What was wrongly learned of it averages out where it is hidden.
    null = gains[..., 2].flatten()
    assert float(null.mean() / (null.std() / math.sqrt(len(null)))) < -limit(1)
    table = p_values(gains, exchanged)
    assert kstest(table["null"], "uniform", alternative="greater").pvalue > FAILURE
    assert np.median(table["true"]) < 0.01
    assert np.median(p_values(gains)["true"]) > 5 * np.median(table["true"])


def test_with_more_imputations_a_null_loses_by_exchanges_too():
    gains, exchanged = null_tables(100, 60, imputations=20)
    null = exchanged[..., 2].flatten()
    assert float(null.mean() / (null.std() / math.sqrt(len(null)))) < -limit(1)
    assert float(gains[..., 0].mean()) > 0.05
    p = p_values(gains, exchanged)["null"]
    # Too large rather than too small: super-uniform.
    assert kstest(p, "uniform", alternative="greater").pvalue > FAILURE
    assert p.mean() > 0.55


def test_nothing_is_found_that_gains_nothing():
    """Hiding a may harm, by a wrong value in its place, where its own says nothing."""
    random = torch.Generator().manual_seed(0)
    exchanged = 0.3 + torch.randn(1, 50, 2, generator=random).double()
    gains = torch.stack([exchanged[..., 0] - 0.6, exchanged[..., 1]], -1)
    table = gain_table(FeatureGains(gains, ("a", "b"), exchanged=exchanged), fdr=0.3)
    alone = gain_table(FeatureGains(exchanged, ("a", "b")), fdr=0.3)
    assert alone["found"].all() and table["found"].to_dict() == {"b": True, "a": False}
    assert table.loc["b", "p"] == alone.loc["b", "p"]
    assert table.loc["a", "p"] == gain_table(FeatureGains(gains, ("a", "b"))).loc["a", "p"] > 0.5


def test_of_the_law_itself_a_gain_is_the_mutual_information():
    """I(y; x_g | x_S) by the sum over values, where the mask is sure; by exchanges it is more."""
    coins = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=2))).double()
    law_of_y = Linear(1.2, 1.8)
    one = torch.sigmoid(law_of_y(coins)).detach()
    law = torch.cat([1.0 - one, one], 1)

    def entropy(given):
        return float(torch.special.entr(given).sum(-1).mean())

    whole = entropy(law)
    exact = {
        2: [entropy(torch.stack([law[i::2].mean(0) for i in (0, 1)])) - whole,
            entropy(torch.stack([law[i : i + 2].mean(0) for i in (0, 2)])) - whole],
        1: [math.log(2.0) - entropy(torch.stack([law[i : i + 2].mean(0) for i in (0, 2)])), None],
    }  # fmt: skip
    copies = 6000
    x = coins.repeat(copies, 1)
    y = torch.bernoulli(
        torch.sigmoid(law_of_y(x)).detach()[:, 0], generator=torch.Generator().manual_seed(0)
    )
    for kept, logits in ((2, [40.0, 40.0]), (1, [40.0, -40.0])):
        model = LEX(
            BernoulliSelector(Fixed(logits)),
            MarginalImputer(x),
            Predictor(law_of_y, BernoulliLikelihood()),
        ).double()
        found = feature_gains(result_of(model, event_shape=(2,)), x, y, masks=100)
        for g, value in enumerate(exact[kept]):
            if value is None:
                continue
            mine, other = found.gains[0, :, g], found.exchanged[0, :, g]
            # Of 100 draws the log of a mean is short of its limit by less than half a percent.
            z = (mine.mean() - value) / (mine.std() / math.sqrt(len(mine)))
            assert abs(float(z)) < limit(3)
            assert float((other.mean() - value) / (other.std() / math.sqrt(len(other)))) > 20


def of_pairs(model, x, y):
    """The gains of L = 2 draws, `(N, G)`: the sum over pairs of masks, and of imputed rows."""
    entries = len(model.selector.network.logits)
    own = model.selector(x[:1])
    fills = [*getattr(model.imputer, "reference", torch.tensor([0.3]))]
    draws = []
    for bits, fill in itertools.product(itertools.product((0.0, 1.0), repeat=entries), fills):
        mask = torch.tensor(bits).double()
        probability = own.log_prob(mask[None]).exp().item() / len(fills)
        sides = []
        for side in (1.0, 0.0):
            forced = mask.repeat(entries, 1).fill_diagonal_(side)
            with torch.no_grad():
                filled = torch.where(forced[:, None] == 1, x, fill.double())
                given = model.predictor(filled)
            labels = range(y.shape[1]) if y.dim() == 2 else [y]
            sides.append(torch.stack([given.log_prob(torch.as_tensor(c)).exp() for c in labels]))
        draws.append((probability, sides))
    shares = y.mT[:, None] if y.dim() == 2 else torch.ones(1, 1, 1).double()
    gains = torch.zeros(entries, len(x)).double()
    for (p, one), (q, two) in itertools.product(draws, repeat=2):
        with_it, without = ((a + b).log() for a, b in zip(one, two, strict=True))
        gains += p * q * (shares * (with_it - without)).sum(0)
    return gains.mT


@pytest.mark.parametrize("case", ["labels", "probabilities", "of rows"])
def test_gains_are_of_means_over_draws(case):
    y = PROBABILITIES.double() if case == "probabilities" else LABELS
    model = of_rows() if case == "of rows" else model_of()
    own = {"reference": getattr(model.imputer, "reference", None)}
    exact, result = of_pairs(model, X, y), result_of(model)
    assert largest_z(result, exact, X, y, of="gains", masks=2, **own) < limit(12)
    single = enumerated(model, X, y)
    assert largest_z(result, single, X, y, 4000, of="gains", masks=20, **own) > 2 * limit(12)
    # A single draw is both.
    one = feature_gains(result, X, y, masks=1, **own)
    torch.testing.assert_close(one.gains, one.exchanged)


class Memory(nn.Module):
    """Tells a training row's label by the nearest training row."""

    def __init__(self, x, y):
        super().__init__()
        self.x, self.y = x, y

    def forward(self, x):
        nearest = torch.cdist(x, self.x).argmin(-1)
        return 4.0 * self.y[nearest][..., None] - 2.0


def test_on_rows_that_a_predictor_remembers_noise_is_found():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 2, generator=generator).double()
    y = torch.randint(2, (400,), generator=generator).double()
    memory = Predictor(Memory(x[:200], y[:200]), BernoulliLikelihood())
    model = LEX(BernoulliSelector(Fixed([0.0, 0.0])), GaussianImputer(), memory).double()
    result = result_of(model, event_shape=(2,))
    gains = feature_gains(result, x[:200], y[:200])
    seen = gain_table(gains)
    assert seen["found"].all() and (seen["gain"] > 0.2).all()
    assert bool((gains.exchanged.mean((0, 1)) > 0.3).all())
    held_out = gain_table(feature_gains(result, x[200:], y[200:]))
    assert not held_out["found"].any()


class Surest(nn.Module):
    """A Bernoulli logit that is far from 0 at values that were learned, whatever y was there."""

    def __init__(self, learned):
        super().__init__()
        self.register_buffer("learned", learned)

    def forward(self, x):
        near = (x[..., None, :] - self.learned).abs().amin(-2) < 1e-9
        return (torch.sin(50.0 * x) * (0.2 + 2.0 * near)).sum(-1, keepdim=True)


@pytest.mark.complete
def test_values_that_were_learned_do_not_make_noise_gain():
    """Share of nulls with p < .05 in tables of noise, hidden behind values of either kind."""
    generator = torch.Generator().manual_seed(0)
    learned = torch.randn(200, 4, generator=generator).double()
    predictor = Predictor(Surest(learned), BernoulliLikelihood())
    model = LEX(BernoulliSelector(Fixed([0.0] * 4)), MarginalImputer(learned), predictor).double()
    result = result_of(model, event_shape=(4,))
    p = {"judged": [], "learned": []}
    for seed in range(40):
        x = torch.randn(60, 4, generator=generator).double()
        y = torch.randint(2, (60,), generator=generator).double()
        for name, rows in (("judged", None), ("learned", learned)):
            gains = feature_gains(result, x, y, masks=20, seed=seed, reference=rows)
            p[name].extend(gain_table(gains)["p"])
    false = {name: int((np.array(values) < 0.05).sum()) for name, values in p.items()}
    assert binom.sf(false["judged"] - 1, 160, 0.05) > FAILURE
    assert binom.sf(false["learned"] - 1, 160, 0.05) < FAILURE


def simulated(fits, rows, of_rows, of_fits, of_both, features=4000):
    """`μ + a_n + b_r + e_rn` with μ = 0.3, for many features at once."""
    random = np.random.default_rng(0)
    gains = (
        0.3
        + random.normal(0.0, of_rows, (1, rows, features))
        + random.normal(0.0, of_fits, (fits, 1, features))
        + random.normal(0.0, of_both, (fits, rows, features))
    )
    return FeatureGains(torch.as_tensor(gains), tuple(f"x{g}" for g in range(features)))


def coverage(gains):
    table = gain_table(gains)
    return float(((table["lower"] < 0.3) & (table["upper"] > 0.3)).mean())


LEAST = binom.ppf(FAILURE, 4000, 0.95) / 4000
MOST = binom.isf(FAILURE, 4000, 0.95) / 4000


@pytest.mark.parametrize(
    ("fits", "rows", "spreads"),
    [
        (1, 30, (1.0, 0.0, 0.0)),
        (1, 30, (1.0, 0.0, 1.0)),
        (4, 30, (1.0, 0.0, 0.0)),
        (4, 30, (0.0, 1.0, 0.0)),
        (2, 30, (0.0, 1.0, 0.0)),
    ],
)
def test_intervals_of_one_spread_cover_exactly(fits, rows, spreads):
    assert LEAST < coverage(simulated(fits, rows, *spreads)) < MOST


@pytest.mark.parametrize("fits", [2, 3, 4, 10])
@pytest.mark.parametrize("rows", [30, 200])
@pytest.mark.parametrize("of_fits", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("of_both", [0.0, 1.0])
def test_intervals_of_both_spreads_cover_at_least_as_often(fits, rows, of_fits, of_both):
    features = 4000 if rows == 30 else 1500
    covered = coverage(simulated(fits, rows, 1.0, of_fits, of_both, features))
    assert covered > binom.ppf(FAILURE, features, 0.95) / features


def weighted_fits(fits, rows, features=4000):
    """Fits to random weights of one sample of rows: `b`, the sample's own share, is common to all,
    and each departs from it by as much again, with some spread of the seeds."""
    random = np.random.default_rng(0)
    gains = (
        0.3
        + random.normal(0.0, 1.0, (1, rows, features))
        + random.normal(0.0, 0.2, (1, 1, features))
        + random.normal(0.0, math.hypot(0.2, 0.05), (fits, 1, features))
    )
    return FeatureGains(torch.as_tensor(gains), tuple(f"x{g}" for g in range(features)))


@pytest.mark.parametrize("fits", [2, 4, 10])
def test_weighted_fits_cover_other_samples_of_rows(fits):
    gains = weighted_fits(fits, 100)
    assert coverage(replace(gains, bootstrapped=True)) > LEAST
    if fits > 2:
        assert coverage(gains) < 0.93


def test_weighted_fits_have_the_interval_of_the_formula():
    values = torch.tensor([[[1.0], [2.0], [6.0]], [[2.0], [2.0], [2.0]]]).double()
    line = gain_table(FeatureGains(values, ("a",), bootstrapped=True)).loc["a"]
    of_rows, of_fits = np.var([1.5, 2.0, 4.0], ddof=1) / 3, np.var([3.0, 2.0], ddof=1) * 1.5
    half = math.sqrt(t.ppf(0.975, 2) ** 2 * of_rows + t.ppf(0.975, 1) ** 2 * of_fits)
    assert (line["upper"] - line["lower"]) / 2 == pytest.approx(half)
    plain = gain_table(FeatureGains(values, ("a",))).loc["a"]
    assert line["p"] == plain["p"] and line["upper"] > plain["upper"]


def test_of_weighted_replicates_gains_know_it():
    result = result_of(model_of(k=2), model_of(k=2))
    assert not feature_gains(result, X, LABELS, masks=1).bootstrapped
    result.row_weights = "dirichlet"
    assert feature_gains(result, X, LABELS, masks=1).bootstrapped
    result.row_weights = "given"
    assert not feature_gains(result, X, LABELS, masks=1).bootstrapped


def test_the_draws_errors_are_what_other_draws_would_change():
    """Of many copies of a row, the spread of the gains and the mean of their squared errors."""
    model = model_of(imputer=MarginalImputer(REFERENCE))
    copies = 3000
    found = feature_gains(
        result_of(model), X.repeat(copies, 1), LABELS.repeat(copies), masks=5, imputations=2
    )
    gains, errors = (v[0].reshape(copies, 4, 3) for v in (found.gains, found.errors))
    squared = errors.square()
    # var(s²) / var from their own spreads over copies
    deviations = (gains - gains.mean(0)).square()
    noise = (squared.var(0) + deviations.var(0)).div(copies).sqrt()
    z = (squared.mean(0) - deviations.sum(0) / (copies - 1)) / noise
    assert float(z.abs().max()) < limit(12)
    assert float(((4 * squared.mean(0) - deviations.mean(0)) / noise).abs().min()) > limit(12)
    single = feature_gains(result_of(model), X, LABELS, masks=1)
    assert bool(single.errors.isnan().all())


def test_the_gains_of_one_row():
    models = [model_of(), model_of(logits=(1.0, 0.0, -1.0))]
    found = feature_gains(result_of(*models, names=("a", "b", "c")), X, LABELS, masks=8)
    table = row_gains(found, 2)
    assert table["gain"].is_monotonic_decreasing and set(table.index) == {"a", "b", "c"}
    for g, name in enumerate("abc"):
        mine = found.gains[:, 2, g]
        assert table.loc[name, "gain"] == pytest.approx(float(mine.mean()))
        assert table.loc[name, "spread"] == pytest.approx(float(mine.std()))
        error = float(found.errors[:, 2, g].square().sum().sqrt()) / 2
        assert table.loc[name, "error"] == pytest.approx(error)
    one = row_gains(FeatureGains(found.gains[:1], found.entry_names), 0)
    assert one[["error", "spread"]].isna().all(axis=None)
    for row in (4, -1):
        with pytest.raises(ValueError, match=r"row must be .*0.*3"):
            row_gains(found, row)


def test_an_interval_over_rows_alone_would_cover_too_little():
    gains = simulated(4, 30, 1.0, 0.5, 0.3)
    assert coverage(gains) > LEAST
    rows_alone = FeatureGains(gains.gains.mean(0, keepdim=True), gains.entry_names)
    assert coverage(rows_alone) < 0.85


def test_false_discoveries_are_as_few_as_said():
    """Of 18 nulls among 20 features: the rate of the procedure is 18/20 of the one asked for."""
    random = np.random.default_rng(0)
    names = tuple(f"x{g}" for g in range(20))
    shares, uncorrected, power = [], [], []
    for _ in range(600):
        gains = random.normal(0.0, 1.0, (1, 25, 20))
        gains[:, :, :2] += 1.0
        table = gain_table(FeatureGains(torch.as_tensor(gains), names), fdr=0.2)
        null = ~table.index.isin(["x0", "x1"])
        for found, into in ((table["found"], shares), (table["p"] < 0.2, uncorrected)):
            into.append((found & null).sum() / max(found.sum(), 1))
        power.append(float(table["found"][~null].mean()))
    error = np.std(shares, ddof=1) / math.sqrt(600)
    assert abs(np.mean(shares) - 0.2 * 18 / 20) < limit(1) * error
    assert np.mean(uncorrected) > 0.2 + 2 * limit(1) * error
    assert np.mean(power) > 0.9


def test_the_table_is_that_of_the_formulas():
    gains = torch.tensor([[[1.0], [2.0], [6.0]], [[2.0], [2.0], [2.0]]]).double()
    line = gain_table(FeatureGains(gains, ("a",))).loc["a"]
    of_rows, of_fits = np.var([1.5, 2.0, 4.0], ddof=1) / 3, np.var([3.0, 2.0], ddof=1) / 2
    half = math.sqrt(t.ppf(0.975, 2) ** 2 * of_rows + t.ppf(0.975, 1) ** 2 * of_fits)
    assert line["gain"] == pytest.approx(2.5)
    assert (line["upper"] - line["lower"]) / 2 == pytest.approx(half)
    assert line["p"] == pytest.approx(t.sf(2.5 / math.sqrt(of_rows), 2))


def test_features_stand_by_their_gain():
    gains = torch.randn(1, 50, 6, generator=torch.Generator().manual_seed(0)).double()
    gains += torch.tensor([0.0, 5.0, -1.0, 2.0, 0.0, 0.0])
    table = gain_table(FeatureGains(gains, tuple("abcdef")))
    assert table["gain"].is_monotonic_decreasing and list(table.index[:2]) == ["b", "d"]
    assert table["found"].tolist()[:2] == [True, True] and not table["found"]["c"]


class Dirichlets(pyro.nn.PyroModule):
    """Shares, in place of selections."""

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", dist.Dirichlet(torch.ones_like(x)))
            with imputation_particles():
                return pyro.sample("y", dist.Categorical(logits=mask * x), obs=y)


class Unstated(pyro.nn.PyroModule):
    """A mask that says nothing of what it holds, nor does its distribution."""

    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            given = dist.Delta(torch.full_like(x, self.value), event_dim=1)
            mask = pyro.sample("mask", given)
            with imputation_particles():
                return pyro.sample("y", dist.Categorical(logits=mask * x), obs=y)


class OfRows(pyro.nn.PyroModule):
    """A latent of each row, which a guide draws that has seen y."""

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1):
            taste = pyro.sample("taste", dist.Normal(x.new_zeros(()), 1.0))
            with mask_particles():
                mask = pyro.sample("mask", dist.Bernoulli(torch.full_like(x, 0.5)).to_event(1))
                with imputation_particles():
                    logits = mask * x + taste[..., None]
                    return pyro.sample("y", dist.Categorical(logits=logits), obs=y)


def guide_of_rows(x, y=None):
    with pyro.plate("data", len(x), dim=-1):
        pyro.sample("taste", dist.Normal(x.new_zeros(()), 1.0))


class Impossible(nn.Module):
    """Logits that are −∞, or NaN, for the last label, of rows that keep a third feature below 0."""

    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, x):
        last = torch.where(x[..., 2:] < 0, self.value, 0.0)
        return torch.cat([x[..., :2], last], -1)


def impossible(value):
    return LEX(
        BernoulliSelector(Fixed([0.0, 0.0, 0.0])),
        ConstantImputer(),
        Predictor(Impossible(value), CategoricalLikelihood()),
    ).double()


def test_masks_that_are_hard_are_taken_whatever_they_say():
    gains = feature_gains(result_of(Unstated(1.0)), X, LABELS).gains
    assert bool((gains != 0).all())


@pytest.mark.parametrize(
    ("model", "guide", "options", "words"),
    [
        (Dirichlets(), None, {}, "gains are of selections.*'mask' holds a share of importance"),
        (
            LEX(
                SoftMaskSelector(Fixed([0.0] * 3)),
                ConstantImputer(),
                Predictor(MLP(3, 3, (4,), seed=0), CategoricalLikelihood()),
            ).double(),
            None,
            {},
            "holds a mask value",
        ),
        (Unstated(0.5), None, {}, "draws of 'mask' have other values"),
        (OfRows(), guide_of_rows, {}, r"latents \['taste'\] are of single rows"),
        (model_of(), None, {"x": X[:, :2]}, "x must have 3 features"),
        (model_of(), None, {"y": LABELS + 1}, r"labels \[3\] that the model does not have"),
        (model_of(), None, {"y": PROBABILITIES[:, :2]}, "must hold their probabilities"),
        (model_of(), None, {"y": PROBABILITIES[:, :2].softmax(-1)}, "probabilities of 3 classes"),
        (model_of(), None, {"y": None}, "give the rows' y"),
        (model_of(), None, {"masks": 0}, "masks must be a whole number of at least 1"),
        (model_of(), None, {"imputations": 0}, "imputations must be a whole number"),
        (model_of(), None, {"seed": -1}, "seed must be a whole number of at least 0"),
        (model_of(), None, {"entry_names": ["a"]}, "entry_names must be 3 names"),
        (model_of(), None, {"reference": X}, "the programs have none: leave it out"),
        (of_rows(), None, {"reference": X[:, :2]}, r"rows of shape \(3,\), as x; it has shape"),
        (of_rows(), None, {"reference": X[:0]}, r"it has shape \(0, 3\)"),
        (of_rows(), None, {"x": X[:1], "y": LABELS[:1]}, "one row would be its own reference"),
    ],
)
def test_what_has_no_gain_is_refused(model, guide, options, words):
    result = result_of(model, guides=[guide])
    with pytest.raises(ValueError, match=words):
        feature_gains(**{"result": result, "x": X, "y": LABELS, **options})


def test_a_reference_that_is_no_rows_is_refused():
    with pytest.raises(TypeError, match="must be rows, a tensor or an array; it is a str"):
        feature_gains(result_of(of_rows()), X, LABELS, reference="validation")


@pytest.mark.parametrize("value", [-math.inf, math.nan])
def test_what_is_impossible_has_no_gain(value):
    result = result_of(impossible(value))
    x = X.clone()
    x[:, 2] = torch.tensor([1.0, 1.0, -1.0, -1.0])
    bad = 2 if math.isnan(value) else 1
    with pytest.raises(FloatingPointError, match=f"in {bad} of 4 rows"):
        feature_gains(result, x, LABELS)
    # Rows in which it does not happen are as they were.
    assert bool(feature_gains(result, x[:2], LABELS[:2]).gains.isfinite().all())
    if value == -math.inf:
        # A label of probability 0 counts nothing, possible or not.
        y = torch.tensor([[0.4, 0.6, 0.0]]).double().expand(4, 3)
        assert bool(feature_gains(result, x, y).gains.isfinite().all())


@pytest.mark.parametrize(
    ("gains", "fdr", "words"),
    [
        (torch.zeros(1, 1, 2), 0.1, "two rows or more; there are 1"),
        (torch.full((1, 3, 2), math.inf), 0.1, "gains must be finite"),
        (torch.zeros(1, 3, 2), 1.0, r"fdr must be a share in \(0, 1\)"),
        (torch.zeros(1, 3, 2), True, "fdr must be a share"),
    ],
)
def test_bad_tables_are_refused(gains, fdr, words):
    with pytest.raises(ValueError, match=words):
        gain_table(FeatureGains(gains, ("a", "b")), fdr)


def test_refits_that_are_not_finite_are_refused():
    zeros = torch.zeros(1, 4, 1).double()
    with pytest.raises(ValueError, match="must be finite"):
        gain_table(FeatureGains(zeros, ("a",), refits=torch.full((2, 4, 1), math.nan)))
