"""Rows that count more or less than once: against repeated rows, and as a bootstrap."""

import math
from contextlib import nullcontext
from functools import partial

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import Trace_ELBO, TraceEnum_ELBO, TraceMeanField_ELBO
from pyro.nn import PyroModule
from scipy.stats import chi2, norm
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lexppl.effects import mask_particles
from lexppl.inference import (
    REBAR,
    DisARM,
    Enumerate,
    LeaveOneOut,
    NestedIWAE,
    Objective,
    Pathwise,
    ReplicateData,
    ScoreFunction,
    SelfNormalized,
    StraightThrough,
    TrainingOptions,
    TunedControl,
    fit,
)
from lexppl.inference.batches import training_rows
from lexppl.inference.contexts import (
    MiniBatch,
    RowWeights,
    keep_parameters_local,
    program_settings,
    seeded,
)
from lexppl.inference.training.rows import RowWeighting, folded
from lexppl.models import (
    MLP,
    BernoulliSelector,
    CategoricalLikelihood,
    ConstantImputer,
    KSubsetSelector,
    MarginalImputer,
    Predictor,
    SizePenalty,
    regime_targets,
)
from lexppl.systems import METHODS, system_for
from tests import small_models
from tests.refusals import refusals
from tests.small_models import OneLog, Partial, Point, Taking, WithPrior, quick
from tests.small_models import same_models as same

FAILURE = 1e-6
"""Probability that a right program fails one of the tests of chance here."""
X = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)).double()
Y = torch.tensor([0, 1, 1, 0, 1])
P = torch.softmax(torch.randn(5, 2, generator=torch.Generator().manual_seed(1)), -1).double()
COUNTS = torch.tensor([2, 1, 0, 3, 1])
WEIGHTS = torch.tensor([0.5, 2.0, 0.0, 1.3, 0.2]).double()
TWO_MASKS = NestedIWAE(2, estimator=Enumerate())


def explainer(k=None, imputer=None, seed=0, cost=0.1):
    selector = BernoulliSelector if k is None else partial(KSubsetSelector, k=k)
    penalties = [SizePenalty(cost)] if k is None else []
    imputer = ConstantImputer(0.2) if imputer is None else imputer
    return small_models.explainer(selector, imputer, seed=seed, penalties=penalties).double()


def loss_and_gradient(objective, model, guide, rows, weights=None, seed=0, batch_of=None):
    """Of a batch, or of one that stands for `batch_of` rows."""
    parts = [part for part in (model, guide) if part is not None]
    for part in parts:
        keep_parameters_local(part)
    parameters = [p for part in parts for p in part.parameters()]
    weighing = nullcontext() if weights is None else RowWeights(weights, "data")
    scaled = MiniBatch(batch_of or len(rows[0]), len(rows[0]), "data")
    with seeded(seed), program_settings(validate=True), scaled, weighing:
        loss = objective.differentiable_loss(model, guide, *rows)
    found = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    return torch.cat([loss.detach().reshape(1), *(gradient.flatten() for gradient in found)])


def repeated(*columns):
    return tuple(column.repeat_interleave(COUNTS, 0) for column in columns)


def learned(rows=(X, Y), model=None, **options):
    return quick(explainer() if model is None else model, rows, **options)


def forty():
    """Rows and weights, of which none is near zero."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 3, generator=generator).double()
    return (x, (x[:, 0] > 0).long()), torch.rand(40, generator=generator).double() + 0.2


EXACT = {
    "one mask": NestedIWAE(1, estimator=Enumerate()),
    "two masks, annealed": NestedIWAE(2, entropy=0.3, towards=0.8, estimator=Enumerate()),
    "all masks": NestedIWAE(math.inf, entropy=0.3, estimator=Enumerate()),
}


@pytest.mark.parametrize("objective", EXACT.values(), ids=EXACT)
@pytest.mark.parametrize("y", [Y, P], ids=["labels", "probabilities"])
@pytest.mark.parametrize("k", [None, 2])
@pytest.mark.parametrize("batch_of", [None, 50])
def test_whole_weights_are_repeated_rows(objective, y, k, batch_of):
    model = explainer(k)
    if k is not None and objective.towards != 0.5:
        objective = NestedIWAE(2, entropy=0.3, estimator=Enumerate())
    # N/B of the five rows is 10, and of the seven of theirs too.
    sizes = (None, None) if batch_of is None else (50, 70)
    weighted = loss_and_gradient(objective, model, None, (X, y), COUNTS.double(), batch_of=sizes[0])
    several = loss_and_gradient(objective, model, None, repeated(X, y), batch_of=sizes[1])
    torch.testing.assert_close(weighted, several)
    plain = loss_and_gradient(objective, model, None, (X, y), batch_of=sizes[0])
    assert not torch.allclose(plain, several, rtol=1e-2)


def test_a_prior_is_not_weighted():
    model, guide = WithPrior(), Point()
    objective = TWO_MASKS
    weighted = loss_and_gradient(objective, model, guide, (X, Y.double()), COUNTS.double())
    several = loss_and_gradient(objective, model, guide, repeated(X, Y.double()))
    torch.testing.assert_close(weighted, several)
    double = loss_and_gradient(objective, model, guide, (X, Y.double()), torch.full((5,), 2.0))
    plain = loss_and_gradient(objective, model, guide, (X, Y.double()))
    value = guide.value.detach()
    prior = float(dist.Normal(0.0, 1.0).log_prob(value).sum() - value.square().sum())
    assert float(double[0]) == pytest.approx(2 * float(plain[0]) + prior)


ESTIMATORS = {
    "LeaveOneOut": (LeaveOneOut(), {}),
    "LeaveOneOut, samples": (LeaveOneOut(), {"masks": 1, "samples": 4}),
    "LeaveOneOut, imputations": (LeaveOneOut(), {"imputations": 2, "samples": 2}),
    "ScoreFunction": (ScoreFunction(-0.4), {}),
    "REBAR": (REBAR(), {"samples": 2}),
    "REBAR, tuned": (REBAR(control=TunedControl().double()), {"masks": 1}),
    "SelfNormalized": (SelfNormalized(), {}),
    "DisARM": (DisARM(), {"samples": 2}),
    "Pathwise": (Pathwise(), {}),
    "StraightThrough": (StraightThrough(), {}),
}


@pytest.mark.parametrize("case", ESTIMATORS)
@pytest.mark.parametrize("y", [Y, P], ids=["labels", "probabilities"])
def test_every_estimate_is_the_weighted_sum_of_the_rows(case, y):
    """Given the draws, loss and gradient are linear in the weights, a row's share depends on that
    row alone, and with weights of 1 they are what they are without."""
    estimator, counts = ESTIMATORS[case]
    model = explainer(imputer=None if case == "Pathwise" else MarginalImputer(X.clone()))
    objective = NestedIWAE(**{"masks": 2, "entropy": 0.2, **counts}, estimator=estimator)
    rows = (X, y)
    each = [loss_and_gradient(objective, model, None, rows, row) for row in torch.eye(5).double()]
    weighted = loss_and_gradient(objective, model, None, rows, WEIGHTS)
    combined = (WEIGHTS[:, None] * torch.stack(each)).sum(0)
    torch.testing.assert_close(weighted, combined)
    plain = loss_and_gradient(objective, model, None, rows)
    torch.testing.assert_close(torch.stack(each).sum(0), plain)
    assert not torch.allclose(weighted, plain, rtol=1e-2)
    other = X.clone()
    other[2] += 1.0
    again = loss_and_gradient(objective, model, None, (other, y), WEIGHTS)
    torch.testing.assert_close(again, weighted)
    changed = loss_and_gradient(objective, model, None, (other, y), torch.ones(5).double())
    assert not torch.allclose(changed, plain, rtol=1e-3)


class Rated(PyroModule):
    """A latent of each row that a guide covers, for Pyro's own objectives."""

    def __init__(self):
        super().__init__()
        self.loc = nn.Parameter(torch.tensor(0.4).double())

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1):
            rate = pyro.sample("rate", dist.Normal(self.loc, x.new_ones(())))
            pyro.sample("y", dist.Bernoulli(logits=rate * x[:, 0]), obs=y)


class RatedGuide(PyroModule):
    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(0.7).double())

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1):
            pyro.sample("rate", dist.Normal(self.slope * x[:, 1], 0.5))


@pytest.mark.parametrize("elbo", [Trace_ELBO, TraceMeanField_ELBO])
def test_pyros_own_objectives(elbo):
    model, guide, rows = Rated(), RatedGuide(), (X, Y.double())
    each = [loss_and_gradient(elbo(), model, guide, rows, row) for row in torch.eye(5).double()]
    weighted = loss_and_gradient(elbo(), model, guide, rows, WEIGHTS)
    torch.testing.assert_close(weighted, (WEIGHTS[:, None] * torch.stack(each)).sum(0))
    plain = loss_and_gradient(elbo(), model, guide, rows)
    torch.testing.assert_close(torch.stack(each).sum(0), plain)
    result = learned(rows, model, guide=guide, objective=elbo(), row_weights=COUNTS)
    assert np.isfinite(result.history.train).all()


# In a fit


def differ(one, other):
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return any(not torch.allclose(a, b, atol=1e-5) for a, b in pairs)


def same_fits(one, other):
    same(one.model, other.model)
    np.testing.assert_allclose(one.history.train, other.history.train)
    np.testing.assert_allclose(one.history.valid, other.history.valid)


@pytest.mark.smoke
@pytest.mark.parametrize("of_a_sample", [False, True])
def test_a_fit_with_whole_weights_is_one_of_repeated_rows(of_a_sample):
    """All rows in a batch and the exact objective, weight decay and clipping among it; with a
    sample's weights the validation loss too, and so the best epoch."""
    options = {"objective": TWO_MASKS, "epochs": 6, "learning_rate": 0.3, "weight_decay": 0.1}
    options |= {"training": TrainingOptions(clip_norm=None if of_a_sample else 0.3)}
    weights = {"sample_weight": (COUNTS, COUNTS)} if of_a_sample else {"row_weights": COUNTS}
    judged = (X.flip(0) + 0.3, Y.flip(0)) if of_a_sample else None
    of_all = repeated(*judged) if of_a_sample else None
    weighted = learned(valid=judged, batch_size=5, **weights, **options)
    several = learned(repeated(X, Y), valid=of_all, batch_size=7, **options)
    same_fits(weighted, several)
    plain = learned(valid=judged, batch_size=5, **options)
    assert differ(plain.model, several.model)
    if of_a_sample:
        assert not np.allclose(plain.history.valid, several.history.valid)
    assert weighted.row_weights == "given" and several.row_weights is plain.row_weights is None


@pytest.mark.parametrize("own_rows", [False, True])
def test_each_replicate_has_its_own_weights(own_rows):
    options = {"objective": EXACT["one mask"], "epochs": 4, "learning_rate": 0.05, "batch_size": 5}
    weights = torch.stack([COUNTS.double(), WEIGHTS])
    sets = [(X, Y), (X + 0.5, Y) if own_rows else (X, Y)]
    models = [explainer(seed=s) for s in (0, 5)]
    train = ReplicateData(sets) if own_rows else sets[0]
    together = learned(train, models, row_weights=weights, **options)
    for model, rows, own, found in zip(models, sets, weights, together.models, strict=True):
        same(learned(rows, model, row_weights=own, **options).model, found)
        assert differ(learned(rows, model, row_weights=weights[0] + 1, **options).model, found)


def test_weights_say_how_many_replicates_there_are():
    assert learned(row_weights=torch.rand(3, 5) + 0.1).replicates == 3
    with pytest.raises(ValueError, match="2 replicates, 3 rows of row_weights"):
        learned(row_weights=torch.rand(3, 5), replicates=2)


@pytest.mark.parametrize("folds", [1, 2])
@pytest.mark.parametrize("replicates", [1, 2])
def test_rows_of_weight_zero_teach_nothing(folds, replicates):
    """In batches, with draws and folds: such a row does not matter, another one does."""
    (x, y), weights = forty()
    weights[::4] = 0.0
    options = {"objective": NestedIWAE(4), "epochs": 2, "batch_size": 10, "learning_rate": 0.01}
    options |= {"folds": folds, "replicates": replicates}
    first = learned((x, y), row_weights=weights, **options)
    other = x.clone()
    other[::4] += 3.0
    again = learned((other, y), row_weights=weights, **options)
    unweighted = learned((other, y), **options)
    for one, same_one, another in zip(first.models, again.models, unweighted.models, strict=True):
        same(one, same_one)
        assert differ(one, another)
    plain = learned((x, y), **options)
    doubled = learned((x, y), row_weights=torch.full((40,), 2.0), **options)
    for one, other in zip(plain.models, doubled.models, strict=True):
        same(one, other)


@pytest.mark.parametrize("kind", ["common", "own", "folded", "own, folded"])
def test_batches_carry_each_row_its_weight(kind):
    """A row's first entry tells its place, and its weight is a function of that and of r."""
    places = torch.arange(12.0)
    y = torch.arange(12) % 2
    own = ReplicateData([(places[:, None], y), (places[:, None].flip(0), y)])
    rows = training_rows(own if "own" in kind else (places[:, None], y), torch.float32)
    of = torch.stack([places + 1, 100 + places])
    given = torch.stack([of[0], of[1].flip(0)]) if "own" in kind else of
    weighting = RowWeighting.of(given, rows, 2, 0)
    weighted = weighting.settled(weighting.added(rows))
    weighted = folded(weighted, 3) if "folded" in kind else weighted
    assert weighted.total.tolist() == of.sum(1).tolist()
    seen = 0
    for shuffle in (True, False):
        for (x, _), weights in weighted.weighted_batches(5, shuffle):
            place = x[..., 0] if "own" in kind else x[:, 0].expand(2, -1)
            assert torch.equal(weights, torch.stack([place[0] + 1, 100 + place[1]]))
            seen += weights.shape[1]
    assert seen == 24


HALVES = {"objective": EXACT["one mask"], "epochs": 2, "batch_size": 40}


@pytest.mark.parametrize("kind", ["row_weights", "sample_weight"])
def test_rows_set_apart_take_their_weights_with_them(kind):
    """By a split of its own the same fit; validation rows have weights if they are a sample's."""
    (x, y), weights = forty()
    with seeded(0):
        order = torch.randperm(40)
    result = learned((x, y), valid=0.5, **{kind: weights}, **HALVES)
    kept, apart = order[20:], order[:20]
    halves = weights[kept] if kind == "row_weights" else (weights[kept], weights[apart])
    rows, judged = (x[kept], y[kept]), (x[apart], y[apart])
    same_fits(result, learned(rows, valid=judged, **{kind: halves}, **HALVES))
    plain = learned((x, y), valid=0.5, **HALVES)
    same_fits(learned((x, y), valid=0.5, **{kind: torch.ones(40)}, **HALVES), plain)
    assert differ(result.model, plain.model)


# The bootstrap


class Mean(PyroModule):
    """The mean of a normal."""

    def __init__(self):
        super().__init__()
        self.mean = nn.Parameter(torch.zeros((), dtype=torch.float64))

    def reset_parameters(self):
        nn.init.zeros_(self.mean)

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            pyro.sample("y", dist.Normal(self.mean, 1.0), obs=y)


def means(rows, replicates, **options):
    """A step of length 1 down the loss ½ Σ w (y − μ)² / Σ w ends at the weighted mean."""
    options |= {"batch_size": len(rows), "replicates": replicates, "objective": NestedIWAE(1)}
    options |= {"optimizer": partial(torch.optim.SGD, lr=1.0)}
    result = learned((torch.zeros(len(rows), 1).double(), rows), Mean(), **options)
    return torch.stack([model.mean.detach() for model in result.models])


def test_the_spread_of_the_mean_is_known():
    """Of `Σ w_n y_n / N` over Dirichlet weights: mean ȳ and variance `s² / (N + 1)`, s² with the
    divisor N; 400 replicates are nearly normal."""
    rows = 2.0 + 3.0 * torch.randn(60, generator=torch.Generator().manual_seed(0)).double()
    count = 400
    found = means(rows, count, row_weights="dirichlet")
    expected = float(rows.var(unbiased=False)) / 61
    z = float((found.mean() - rows.mean()) / math.sqrt(expected / count))
    assert abs(z) < norm.isf(FAILURE / 2)
    scaled = float(found.var()) * (count - 1) / expected
    least, most = chi2.isf([1 - FAILURE / 2, FAILURE / 2], count - 1)
    assert least < scaled < most
    # Multinomial counts of N/2 rows, or none at all, would have twice the variance, or nothing.
    assert 2 * (count - 1) > most
    assert float(means(rows, 3).std()) < 1e-12


def test_drawn_weights_are_by_seed_and_replicate_and_leave_other_draws_alone():
    rows = torch.randn(30, generator=torch.Generator().manual_seed(0)).double()
    first = means(rows, 3, row_weights="dirichlet", seed=4)
    assert torch.equal(first, means(rows, 3, row_weights="dirichlet", seed=4))
    assert len(set(first.tolist())) == 3
    assert not torch.equal(first, means(rows, 3, row_weights="dirichlet", seed=5))
    columns = training_rows((rows[:, None], rows), torch.float64)
    weighting = RowWeighting.of("dirichlet", columns, 3, 4)
    both = weighting.settled(weighting.added(columns))
    torch.testing.assert_close(both.columns[-1].sum(0), torch.full((3,), 30.0).double())
    expected = (both.columns[-1] * rows[:, None]).mean(0)
    torch.testing.assert_close(first, expected)
    # The validation rows and the initial weights are those of a fit without weights.
    x, y = X.repeat(8, 1), Y.repeat(8)
    options = {"valid": 0.2, "learning_rate": 1e-12, "weight_decay": 0.0, "replicates": 2}
    one = learned((x, y), row_weights="dirichlet", **options)
    other = learned((x, y), **options)
    np.testing.assert_allclose(one.best_valid, other.best_valid, rtol=1e-6)
    assert not np.allclose(one.history.train, other.history.train, rtol=1e-3)


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_can_be_weighted(name):
    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    black_box = Predictor(MLP(3, 2, (4,), seed=0), CategoricalLikelihood())
    k = 2 if METHODS[name].needs("k") else None
    system = system_for(name, dict(features=3, classes=2, k=k, black_box=black_box))
    y = (x[:, 0] > 0).long()
    if METHODS[name].explains_model:
        y = regime_targets("self post-hoc", x, predictor=black_box)
    result = fit(system, (x, y), row_weights="dirichlet", epochs=1, progress=False)
    assert result.row_weights == "dirichlet" and np.isfinite(result.history.train).all()


# What is refused


class Bare(Partial):
    """No plate over rows."""

    def forward(self, x, y=None):
        with mask_particles():
            mask = pyro.sample("mask", dist.Bernoulli(logits=self.selector(x[:1])).to_event(1))
            pyro.sample("y", dist.Normal((mask * x[:1]).sum(-1), 1.0), obs=x.new_zeros(1))


class Unscaled(Objective):
    """Squares of its own, which read no scale."""

    watched = False

    def differentiable_loss(self, model, guide, *args, **kwargs):
        return sum(p.square().sum() for p in model.parameters())


class EnumeratedByPyro(Partial):
    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1):
            law = dist.Bernoulli(logits=self.selector(x)[..., 0])
            kind = pyro.sample("kind", law, infer={"enumerate": "parallel"})
            pyro.sample("y", dist.Bernoulli(logits=kind * x[:, 0]), obs=y.double())


LOADER = DataLoader(TensorDataset(X, Y), 5)
LEFT = {"row_weights": [0, 0, 1, 0, 0], "valid": 0.8, "seed": 1}
ENUMERATION = {"objective": TraceEnum_ELBO(max_plate_nesting=1)}
BOTH = {"sample_weight": (COUNTS, COUNTS)}


def weighted(program, **options):
    """A fit of a program, or of the small explainer, with drawn weights unless others are given."""
    model = explainer() if program is None else program.double()
    usual = {} if "sample_weight" in options else {"row_weights": "dirichlet"}
    rows = options.pop("train", (X, Y))
    return learned(rows, model, batch_size=5, **{**usual, **options})


def test_a_sample_s_weights_multiply_those_of_the_replicates():
    options = {"objective": EXACT["one mask"], "epochs": 3, "learning_rate": 0.05, "batch_size": 5}
    both = learned(row_weights=WEIGHTS, sample_weight=COUNTS, **options)
    product = learned(row_weights=WEIGHTS * COUNTS, **options)
    same(both.model, product.model)
    rows = training_rows((X, Y), torch.float64)
    drawn = RowWeighting.of("dirichlet", rows, 3, 0)
    weighted = RowWeighting.of("dirichlet", rows, 3, 0, COUNTS)
    torch.testing.assert_close(weighted.weights, drawn.weights * COUNTS)
    settled = weighted.settled(weighted.added(rows))
    # The sample's size, whatever is drawn.
    torch.testing.assert_close(settled.total, torch.full((3,), 7.0).double())
    drawn = {"row_weights": "dirichlet", "sample_weight": COUNTS, "replicates": 2}
    again = learned(**drawn, **options)
    assert again.row_weights == "dirichlet" and differ(*again.models)


def test_a_sample_s_weights_beside_drawn_ones_and_rows_of_their_own():
    (x, y), weights = forty()
    alike = learned((x, y), valid=0.5, sample_weight=weights, **HALVES)
    drawn = {"row_weights": "dirichlet", "sample_weight": weights}
    assert differ(learned((x, y), valid=0.5, **drawn, **HALVES).model, alike.model)
    own, judged = ReplicateData([(x, y), (x.flip(0), y)]), ReplicateData([(x, y)] * 2)
    of_each = learned(own, valid=judged, sample_weight=(weights, weights), **HALVES)
    assert of_each.history.valid.shape == (2, 2)


test_what_cannot_be_weighted_is_refused = refusals(
    (None, {"row_weights": "bootstrap"}, "must be 'dirichlet' or weights"),
    (None, {"row_weights": object()}, TypeError, "must be 'dirichlet' or numbers"),
    (None, {"row_weights": [1.0, 2.0]}, r"must have shape \(5,\).*the shape is \(2,\)"),
    (None, {"row_weights": [1, 1, 1, 1, -1]}, "row_weights must be finite and at least 0"),
    (None, {"row_weights": [1, 1, 1, 1, math.nan]}, "finite and at least 0"),
    (None, {"row_weights": [0] * 5}, "row_weights must not be all zero"),
    (None, {"train": LOADER}, "a loader's have none"),
    (None, LEFT, "zero for all rows that are left to train"),
    (Partial(3), {}, "'partial' observes the whole batch at once"),
    (OneLog(3), {}, "scale of site 'y' differs within its log"),
    (Taking(), {}, "takes 2 of the 5 rows"),
    (Bare(3), {}, "Bare has none"),
    (None, {"objective": Unscaled()}, "Unscaled does not say that it reads"),
    (EnumeratedByPyro(3), ENUMERATION, "TraceEnum_ELBO takes no weight of each row"),
    (None, {"sample_weight": [1.0]}, r"sample_weight must have shape \(5,\)"),
    (None, {"sample_weight": [[1.0] * 5] * 2}, r"shape \(5,\).*the shape is \(2, 5\)"),
    (None, {"sample_weight": (COUNTS, COUNTS, COUNTS)}, "or a pair"),
    (None, {"sample_weight": [-1, 1, 1, 1, 1]}, "sample_weight must be finite"),
    (None, {"sample_weight": [0] * 5}, "sample_weight must not be all zero"),
    (None, {"sample_weight": (None, COUNTS)}, "none of train"),
    (None, BOTH, "there are none"),
    (None, {"sample_weight": COUNTS, "valid": (X, Y)}, "there are none"),
    (None, {"sample_weight": (COUNTS, [1.0]), "valid": (X, Y)}, "there are 1"),
    (None, {"sample_weight": COUNTS, "train": LOADER}, "a loader's have none"),
    of=lambda program, options: weighted(program, **options),
)
