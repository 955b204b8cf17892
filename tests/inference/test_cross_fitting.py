"""Cross-fitting: who learns from whom, what is maximised, what is averaged."""

import math
from functools import partial

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lexppl import load, save
from lexppl.effects import EVERY_SHIFT, FoldShift, mask_particles, penalty
from lexppl.evaluation.prediction import predictive
from lexppl.inference import (
    REBAR,
    LeaveOneOut,
    LossTerm,
    NestedIWAE,
    ReplicateData,
    Stage,
    Unscored,
    fit,
)
from lexppl.inference.batches import training_rows
from lexppl.inference.contexts import seeded
from lexppl.inference.objective.program import ParticleProgram
from lexppl.inference.stages import TrainingModules, shifted
from lexppl.inference.training.cross_fitting import (
    CrossFitted,
    cross_fitted,
    joined_distribution,
    mean_distribution,
)
from lexppl.inference.training.rows import folded
from lexppl.models import (
    LEX,
    MLP,
    CategoricalLikelihood,
    ConstantImputer,
    Grouping,
    MarginalImputer,
    NormalLikelihood,
    Predictor,
    UnmaskedPredictor,
    frozen,
    regime_targets,
)
from lexppl.models.predictor import table_predictor
from lexppl.models.regimes import Frozen
from lexppl.systems import invase, l2x, lex, q_fit, random_mask_predictor, real_x
from tests.refusals import refusals, refused

X = torch.randn(61, 3, generator=torch.Generator().manual_seed(0))
LABELS = (X[:, 0] > 0).long()
RESPONSE = X[:, 0] + 0.1 * X[:, 1]
LOADER = DataLoader(TensorDataset(X, LABELS), 20)
GIVEN = Frozen(table_predictor(3, 2, (4,)))
SMALL = {"hidden": (6,), "predictor_hidden": (6,)}
QUICK = {"epochs": 2, "batch_size": 20, "progress": False}
pytestmark = pytest.mark.usefixtures("local_parameters")


# -- the distribution of y


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (lambda p: dist.Categorical(logits=p), torch.tensor([0, 1, 1, 0, 1])),
        (lambda p: dist.Bernoulli(logits=p[..., 0]), torch.tensor([0.0, 1, 1, 0, 1])),
        (lambda p: dist.Normal(p[..., 0], p[..., 1].exp()), torch.randn(5)),
        (lambda p: dist.Normal(p[..., 0], torch.tensor(2.0)), torch.randn(5)),
        (lambda p: dist.Poisson(p[..., 0].exp()), torch.tensor([0.0, 3, 1, 2, 5])),
    ],
)
def test_laws_are_joined_and_averaged(make, values):
    outputs = torch.randn(2, 4, 5, 2)
    first, second = make(outputs[0]), make(outputs[1])
    averaged = mean_distribution([first, second])
    exact = torch.logsumexp(torch.stack([d.log_prob(values) for d in (first, second)]), 0)
    torch.testing.assert_close(averaged.log_prob(values), exact - math.log(2))
    torch.testing.assert_close(averaged.mean, (first.mean + second.mean) / 2, equal_nan=True)
    joined = joined_distribution([make(outputs[0, :, :2]), make(outputs[1, :, 2:])])
    expected = torch.cat([first.log_prob(values)[:, :2], second.log_prob(values)[:, 2:]], 1)
    torch.testing.assert_close(joined.log_prob(values), expected)


def test_one_predictor_is_refused():
    refused("two predictors or more; 1 given", CrossFitted, [nn.Identity()])


# -- the rows


@pytest.mark.parametrize("rows", [8, 9, 10, 11, 23])
@pytest.mark.parametrize("folds", [2, 3])
@pytest.mark.parametrize("size", [4, 7, 100])
def test_batches_stand_in_the_order_of_their_folds(rows, folds, size):
    """Every row once an epoch, and where `tensor_split` of a batch looks for its fold."""
    x = torch.arange(float(rows)).reshape(-1, 1)
    for given in ((x, x[:, 0]), ReplicateData([(x, x[:, 0]), (x + 100, x[:, 0])])):
        with seeded(0):
            divided = folded(training_rows(given, torch.float32), folds)
            fold_of = [{int(v) for v in block.columns[0].flatten()} for block in divided.blocks]
            seen = []
            for batch in divided.batches(size, shuffle=True):
                row_dim = 1 if divided.by_replicate else 0
                for fold, part in enumerate(torch.tensor_split(batch[0], folds, dim=row_dim)):
                    assert {int(v) for v in part.flatten()} <= fold_of[fold]
                seen += batch[0].flatten().tolist()
        assert len(divided) == rows
        assert sorted(seen) == sorted({v for fold in fold_of for v in fold})
        assert len(seen) == sum(map(len, fold_of))


def test_labels_are_dealt_in_proportion():
    y = torch.cat([torch.zeros(90), torch.ones(10)]).long()
    with seeded(3):
        divided = folded(training_rows((torch.randn(100, 2), y), torch.float32), 2)
    assert [int(block.columns[1].sum()) for block in divided.blocks] == [5, 5]


def test_few_rows_are_refused_with_what_to_do():
    rows = training_rows((torch.randn(3, 2), torch.arange(3) % 2), torch.float32)
    refused("2 folds need 4 rows, not 3: give folds=1", folded, rows, 2)


# -- who learns from whom


def learned_from(y, fold):
    """The predictors of a fit on a response, and the rows of a fold."""
    predictor = Predictor(MLP(3, 1, (6,), seed=0), NormalLikelihood())
    stages = [Stage([random_mask_predictor(predictor, ConstantImputer(), 3)])]
    result = fit(None, (X, y), stages=stages, folds=2, valid=None, seed=4, **QUICK)
    with seeded(4):
        rows = training_rows((X, torch.arange(len(X)).float()), torch.float32)
        block = folded(rows, 2).blocks[fold].columns[1].long()
    return result.model.predictor.predictors, block


@pytest.mark.smoke
@pytest.mark.parametrize("fold", [0, 1])
def test_a_predictor_learns_nothing_from_the_fold_it_judges(fold):
    before, block = learned_from(RESPONSE, fold)
    changed = RESPONSE.clone()
    changed[block] += 10.0
    after, _ = learned_from(changed, fold)
    alike = [
        all(torch.equal(a, b) for a, b in zip(x.parameters(), y.parameters(), strict=True))
        for x, y in zip(before, after, strict=True)
    ]
    assert alike == [one == fold for one in (0, 1)]


def test_the_selector_is_judged_by_the_predictor_that_has_not_seen_the_row():
    """Of three folds: the gains' loss, and what each predictor learns from."""
    system = lex(3, classes=None, penalty=0.1, **SMALL)
    (stage,) = cross_fitted(system.build(), 3)
    gains, *teaching = stage.terms
    assert [term.fold_shift for term in stage.terms] == [0, 1, 2]
    assert [term.weight for term in teaching] == [0.5, 0.5]
    model = gains.model.eval()
    predictors = list(model.predictor.predictors)
    for predictor in predictors[1:]:
        for part in predictor.modules():
            if hasattr(part, "reset_parameters"):
                part.reset_parameters()
    objective = NestedIWAE(4, estimator=Unscored())
    for shift in range(3):
        with seeded(0), torch.no_grad(), FoldShift(shift):
            loss = objective.differentiable_loss(model, None, X, RESPONSE)
        expected = 0.0
        by_fold = torch.tensor_split(torch.arange(len(X)), 3)
        for fold, rows in enumerate(by_fold):
            alone = LEX(model.selector, model.imputer, predictors[(fold + shift) % 3])
            alone.penalties = model.penalties
            expected += bound_of_rows(alone, rows)
        torch.testing.assert_close(loss, expected)


def bound_of_rows(model, rows):
    """−ℒ of some rows, all rows being drawn with the same numbers."""
    with seeded(0), torch.no_grad():
        run = ParticleProgram(model, None, (X, RESPONSE)).run(4)
        bound = torch.logsumexp(run.log_weight[0], 0) - math.log(4)
        size = run.sites["SizePenalty"].log_prob().mean(0)
    return -(bound + size)[rows].sum()


def test_what_moves_what():
    (stage,) = cross_fitted(lex(3, classes=2, penalty=0.1, **SMALL).build(), 2)
    modules = TrainingModules([stage])
    gains, teaching = stage.terms
    assert all("selector" in name for name in modules.learned_by(gains))
    assert all("predictors" in name for name in modules.learned_by(teaching))


def terms_of(model_or_system, folds=2, y=LABELS, first=True):
    """The terms of a cross-fitted stage; without a first batch, one for each kind."""
    given = model_or_system
    stages = given.build() if hasattr(given, "build") else [Stage([LossTerm(*given)])]
    (stage,) = cross_fitted(stages, folds, (lambda dtype: (X, y)) if first else None)
    return stage.terms


def gradients_of(terms, y):
    """The sum of the terms' gradients on all rows, by name, each with the same draws."""
    modules, total = TrainingModules([Stage(terms)]), {}
    for term in terms:
        names = modules.learned_by(term)
        moved = [p for n, p in modules.named_parameters() if n in names]
        with seeded(7), shifted(term):
            loss = term.weight * modules(term, term.objective.at(0.7), (X, y))
        for name, gradient in zip(names, torch.autograd.grad(loss, moved), strict=True):
            total[name] = total.get(name, 0.0) + gradient
    return total


@pytest.mark.parametrize("folds", [2, 3])
@pytest.mark.parametrize(
    ("options", "y"),
    [
        ({"classes": 2, "penalty": 0.1}, LABELS),
        ({"classes": 2, "penalty": (0.05, 0.2), "imputations": 2}, LABELS),
        ({"classes": 2, "k": 2, "labels": "averaged"}, LABELS),
        ({"classes": 2, "k": 1}, torch.stack([X[:, 1].sigmoid(), 1 - X[:, 1].sigmoid()], 1)),
        ({"classes": None, "penalty": 0.1}, RESPONSE),
    ],
)
def test_one_run_has_the_gradient_of_a_run_for_each_kind(options, y, folds):
    def system():
        with seeded(2):
            return terms_of(lex(3, **options, **SMALL), folds, y, first)

    found = []
    for first in (True, False):
        terms = system()
        assert [t.fold_shift for t in terms] == ([EVERY_SHIFT] if first else list(range(folds)))
        found.append(gradients_of(terms, y))
    at_once, apart = found
    assert at_once.keys() == apart.keys()
    for name, gradient in apart.items():
        torch.testing.assert_close(at_once[name], gradient, rtol=1e-4, atol=1e-4)


class ReadsMore(LEX):
    """A program that does more with the predictor's distribution than to observe y."""

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            mask = pyro.sample("mask", self.selector(x))
            law = self.predictor(x * mask)
            if self.more == "entropy":
                penalty("confidence", -law.entropy())
            elif self.more == "density":
                penalty("confidence", -law.log_prob(torch.zeros_like(y)))
            elif self.more == "factor":
                return pyro.factor("y", law.log_prob(y))
            return pyro.sample("y", law.mask(x[:, 0] > 0) if self.more == "mask" else law, obs=y)


def reads_more(more):
    (stage,) = lex(3, classes=2, penalty=0.1, **SMALL).build()
    model = stage.terms[0].model
    other = ReadsMore(model.selector, model.imputer, model.predictor)
    other.more = more
    return other


@pytest.mark.parametrize("more", ["entropy", "density", "factor", "mask"])
def test_a_program_that_reads_more_than_the_density_takes_a_run_for_each(more):
    terms = terms_of((reads_more(more), NestedIWAE(3)))
    assert [term.fold_shift for term in terms] == [0, 1]
    assert [t.fold_shift for t in terms_of((reads_more(None), NestedIWAE(3)))] == [EVERY_SHIFT]


def test_gradients_through_the_judge_take_a_run_for_each():
    relaxed = l2x(3, classes=2, k=1, **SMALL).build()[0].terms[0].model
    for model, estimator in ((reads_more(None), REBAR()), (relaxed, LeaveOneOut())):
        terms = terms_of((model, NestedIWAE(3, estimator=estimator)))
        assert [term.fold_shift for term in terms] == [0, 1]


def test_the_comparison_leaves_statistics_as_they_are():
    model = reads_more(None)
    layers = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    model.predictor = Predictor(layers, CategoricalLikelihood())
    terms = terms_of((model, NestedIWAE(3)))
    assert [term.fold_shift for term in terms] == [EVERY_SHIFT]
    assert int(layers[1].num_batches_tracked) == 0


def test_stages_of_one_program_share_its_predictors():
    """As a selector that goes on after its predictors: every term sees the same F of them."""
    (first,) = lex(3, classes=2, penalty=0.1, **SMALL).build()
    model = first.terms[0].model
    alone = Stage([LossTerm(model, NestedIWAE(2), learns=[model.selector])])
    stages = cross_fitted([first, alone], 2)
    assert [[term.fold_shift for term in stage.terms] for stage in stages] == [[0, 1], [0]]
    assert isinstance(model.predictor, CrossFitted)
    assert not any(isinstance(one, CrossFitted) for one in model.predictor.predictors)
    modules = TrainingModules(stages)
    assert all("selector" in name for name in modules.learned_by(stages[1].terms[0]))


def test_published_systems_have_the_terms_that_their_predictors_need():
    systems = partial(l2x, k=1), real_x, invase
    for system, shifts in zip(systems, ([[0, 1]], [[1], [0]], [[0, 1, 1]]), strict=True):
        stages = cross_fitted(system(3, classes=2, **SMALL).build(), 2)
        assert [[term.fold_shift for term in stage.terms] for stage in stages] == shifts


def test_invase_is_compared_with_a_baseline_that_has_not_seen_the_row():
    (stage,) = cross_fitted(invase(3, classes=2, **SMALL).build(), 2)
    baseline = stage.terms[0].objective.estimator.baseline.predictor
    assert isinstance(baseline, CrossFitted)
    assert baseline is stage.terms[-1].model.predictor


def test_gains_come_from_predictors_as_they_predict():
    """No dropout, and no statistics moved by rows that are judged."""
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
    both = CrossFitted([Predictor(network, NormalLikelihood()) for _ in range(2)]).train()
    with FoldShift(0):
        first, second = both(X).mean, both(X).mean
    assert torch.equal(first, second)
    assert int(network[1].num_batches_tracked) == 0
    assert both.training and network[2].training
    with FoldShift(1):
        both(X)
    assert int(network[1].num_batches_tracked) > 0


# -- a fit


WHOLE = NestedIWAE(1, estimator=Unscored())


def unmasked(seed):
    return UnmaskedPredictor(Predictor(MLP(3, 1, (6,), seed=seed), NormalLikelihood()))


def chosen(**options):
    """A fit with one feature kept, by folds of its default."""
    return fit(lex(3, classes=2, k=1, **SMALL), (X, LABELS), **{**QUICK, **options})


def test_replicates_are_what_each_is_alone():
    """Programs without draws, so that only rounding differs."""
    models = [unmasked(0), unmasked(1)]
    options = {"objective": WHOLE, "folds": 2, "valid": None, **QUICK}
    together = fit(models, (X, RESPONSE), **options).models
    for one, given in zip(together, models, strict=True):
        alone = fit(given, (X, RESPONSE), **options).model
        for a, b in zip(one.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_the_given_model_stays_as_it_is():
    model = unmasked(0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    result = fit(model, (X, RESPONSE), objective=WHOLE, folds=2, **QUICK)
    assert isinstance(model.predictor, Predictor)
    assert isinstance(result.model.predictor, CrossFitted)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_the_same_seed_gives_the_same_bits_and_global_state_is_left():
    state = torch.get_rng_state()
    first, second = (chosen(folds=2, replicates=2, seed=1) for _ in range(2))
    assert torch.equal(state, torch.get_rng_state())
    for a, b in zip(first.models, second.models, strict=True):
        assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))


def test_it_is_saved_and_loaded(tmp_path):
    result = chosen(folds=2, replicates=2)
    save(result, tmp_path / "explainer")
    again = load(tmp_path / "explainer")
    torch.testing.assert_close(predictive(result, X), predictive(again, X))


def test_a_cross_fitted_model_is_not_trained_on():
    """Its predictors would learn from the rows that they were kept from."""
    model = chosen().model
    for folds in (None, 1, 2):
        refused("predictors of a cross-fitted fit", fit, model, (X, LABELS), folds=folds, **QUICK)
    given = lex(3, classes=2, k=1, predictor=frozen(model.predictor), hidden=(6,))
    assert isinstance(fit(given, (X, LABELS), **QUICK).model.predictor, Frozen)


def test_the_average_of_the_folds_is_a_black_box():
    model = chosen().model
    told = regime_targets("self post-hoc", X, predictor=model.predictor)
    torch.testing.assert_close(told.float(), model.predictor(X).probs.detach())


def test_predictions_are_the_average_of_the_folds():
    predictor = UnmaskedPredictor(table_predictor(3, 2, (6,)))
    result = fit(predictor, (X, LABELS), objective=WHOLE, folds=3, **QUICK)
    each = [one(X).probs for one in result.model.predictor.predictors]
    assert not torch.allclose(each[0], each[1])
    torch.testing.assert_close(predictive(result, X, masks=1)[0], sum(each) / 3)


LEARNING = lex(3, classes=2, k=1)


test_refused = refusals(
    (LEARNING, (X, LABELS), {"folds": 0}, "folds must be a whole number"),
    (LEARNING, (X[:9], LABELS[:9]), {"folds": 5}, "5 folds need 10 rows, not"),
    (LEARNING, LOADER, {"folds": 2, "valid": None}, "a loader cannot be divided into folds"),
    (lex(3, classes=2, k=1, predictor=GIVEN), (X, LABELS), {"folds": 2}, "no term has one"),
    (q_fit(3, GIVEN), (X, LABELS), {"folds": 2}, "no term has one that learns"),
    of=lambda system, data, options: fit(system, data, epochs=1, progress=False, **options),
)


def planted(seed, rows=1500, levels=50):
    """Two true columns, and one of many levels that lets a predictor memorise."""
    draws = np.random.default_rng(seed)
    true = draws.normal(size=(rows, 2))
    y = draws.random(rows) < 1 / (1 + np.exp(-2.0 * true[:, 0] - 1.5 * true[:, 1]))
    level = np.eye(levels)[draws.integers(0, levels, rows)]
    x = torch.tensor(np.concatenate([true, level], 1), dtype=torch.float32)
    return x, torch.tensor(y).long(), [0, 1] + [2] * levels


@pytest.mark.complete
def test_a_column_to_memorise_by_brings_no_gain():
    """And without folds it does, which is what folds are for."""
    x, y, groups = planted(0)
    kept = {}
    for folds in (1, 2):
        given = {"grouping": Grouping(groups), "imputer": MarginalImputer(x), "penalty": 0.02}
        system = lex(x.shape[1], classes=2, hidden=(64,), predictor_hidden=(64, 64), **given)
        options = {"epochs": 60, "batch_size": 300, "learning_rate": 3e-3, "valid": None}
        result = fit(system, (x, y), folds=folds, progress=False, **options)
        with torch.no_grad():
            kept[folds] = result.model.selector(x).mean.mean(0)
    assert kept[2][:2].min() > 0.5
    assert kept[1][2] > 0.8
    assert kept[2][2] < 0.6
