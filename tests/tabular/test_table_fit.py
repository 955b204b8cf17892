"""The fit of a table: its penalty, its predictors and references, and what is left out."""

import copy
import functools
import math
import warnings
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn

from lexppl import ExplainerClassifier, ExplainerRegressor, explain, fit, load, save
from lexppl.choices.settings import AUTO, AUTO_PREDICTOR, NETWORK, TREES, Regime
from lexppl.evaluation import (
    Folds,
    fit_predictor,
    penalty_path,
    predictive,
    predictive_log_likelihood,
)
from lexppl.evaluation.prediction import is_behind, prediction_scores
from lexppl.explanation import mask_means
from lexppl.inference import CollapseWarning, FitResult, TrainingOptions
from lexppl.inference.training.loop import TrainingLoop
from lexppl.models import (
    BernoulliLikelihood,
    GapImputer,
    Grouping,
    NormalLikelihood,
    PoissonLikelihood,
    Predictor,
)
from lexppl.models.trees.tree_predictor import TreePredictor
from lexppl.systems import lex
from lexppl.systems.fit_plan import NOISE_BITS, PATH, plan_for
from lexppl.tabular import BehindWarning, predictors, table_fit
from lexppl.tabular.encoded_rows import EncodedRows
from lexppl.tabular.predictors import (
    best_full_predictor,
    fit_full_predictor,
    rescale_logits,
    says_more,
    settle_scale,
    trees_where_better,
)
from lexppl.tabular.table_fit import fit_table
from tests.refusals import over, refused


def rows(count, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 10, generator=generator)
    return x, 0.9 * x[:, 4] + 0.44 * torch.randn(count, generator=generator)


def test_the_scale_is_that_of_weighted_residuals():
    predictor = Predictor(nn.Identity(), NormalLikelihood())
    y, weights = torch.tensor([1.0, 2.0, 5.0]), torch.tensor([1.0, 2.0, 0.0])
    settle_scale(predictor, torch.zeros(3, 1), y, weights)
    assert float(predictor.likelihood.log_scale.exp().detach()) ** 2 == pytest.approx((1 + 8) / 3)


@pytest.mark.parametrize("likelihood", [BernoulliLikelihood(), NormalLikelihood(2.0, False)])
def test_what_has_no_scale_to_learn_is_left_alone(likelihood):
    predictor = Predictor(nn.Identity(), likelihood)
    before = {name: value.clone() for name, value in predictor.state_dict().items()}
    settle_scale(predictor, torch.zeros(2, 1), torch.tensor([1.0, 0.0]))
    after = predictor.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_no_residual_leaves_the_scale_and_a_mistake_is_refused():
    predictor = Predictor(nn.Identity(), NormalLikelihood())
    settle_scale(predictor, torch.zeros(2, 1), torch.zeros(2))
    assert float(predictor.likelihood.log_scale) == 0.0
    refused("finite and not all zero", predictor.likelihood.settle, torch.tensor([float("nan")]))


def test_a_given_regressor_s_scale_is_the_noise_that_it_leaves():
    """160 rows, whose network overfits before a scale of 1 has come down to the noise's 0.44."""
    train, valid = rows(160, 0), rows(400, 1)
    data = EncodedRows(train, valid, Grouping(list(range(10))), tuple("abcdefghij"), None)
    plan = plan_for(160, 10, "q_fit", epochs=60)
    full = fit_full_predictor(plan, data).predictor
    with torch.no_grad():
        stated = float(full(valid[0]).stddev[0])
        residual = float((valid[1] - full(valid[0]).mean).square().mean().sqrt())
    assert stated == pytest.approx(residual, rel=1e-4)
    plain = fit_predictor(
        train, valid=valid, hidden=plan.predictor_hidden, epochs=plan.epochs,
        batch_size=plan.batch_size, learning_rate=plan.schedule, training=TrainingOptions(),
        progress=False,
    ).predictor  # fmt: skip
    assert float(plain(valid[0]).stddev[0].detach()) > 1.2 * residual


def encoded(train: int, valid: int, weighted: bool = False) -> EncodedRows:
    """Rows whose first column is their number, the first row alone of its class."""

    def part(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.randn(count, 3, generator=torch.Generator().manual_seed(count))
        x[:, 0] = torch.arange(count) / count
        y = (x[:, 1] > 0).long()
        y[-1] = 2
        return x, y

    parts = part(train), part(valid)
    weights = tuple(1.0 + x[:, 0] for x, _ in parts) if weighted else None
    names = ("a", "b", "c")
    return EncodedRows(*parts, Grouping((0, 1, 2), names), names, ("no", "yes", "rare"), weights)


def test_some_rows_are_drawn_with_their_weights_and_every_label():
    rows = encoded(3000, 900, weighted=True)
    few = rows.with_valid_at_most(200, seed=1)
    (x, y), weights = few.valid, few.weights[1]
    assert len(x) == len(y) == len(weights) == len(x[:, 0].unique()) == 200
    assert torch.equal(weights, 1.0 + x[:, 0])
    assert (y == 2).sum() == 1
    # Uniform numbers: their mean is within five standard errors of a half.
    assert abs(float(x[:, 0].mean()) - 0.5) < 5 * np.sqrt(1 / 12 / 200)
    assert few.train is rows.train and few.weights[0] is rows.weights[0]
    assert torch.equal(rows.with_valid_at_most(200, seed=1).valid[0], x)
    assert not torch.equal(rows.with_valid_at_most(200, seed=2).valid[0], x)
    assert rows.with_valid_at_most(900, seed=1) is rows
    assert encoded(300, 90).with_valid_at_most(20, seed=0).weights is None


def test_of_many_rows_some_choose_the_penalty(monkeypatch):
    monkeypatch.setattr(table_fit, "PATH_ROWS", 100)
    given, path_of = [], table_fit.penalty_path

    def paths(result, x, y, **settings):
        given.append((len(x), len(y), len(settings["sample_weight"])))
        return path_of(result, x, y, **settings)

    monkeypatch.setattr(table_fit, "penalty_path", paths)
    plan = plan_for(600, 3, penalty=AUTO, epochs=2, hidden=(4,), predictor_hidden=(4,))
    fit_table(plan, encoded(600, 300, weighted=True))
    # And once more where logits were rescaled.
    assert set(given) == {(100, 100, 100)} and len(given) <= 2


LAWS = {
    "a linear model": lambda x: 1.5 * x.sum(1),
    "boosted trees": lambda x: (
        4.0 * ((x[:, 0] > 0) & (x[:, 1] > -0.5)) + 3.0 * (x[:, 2].abs() < 0.7) - 3.0
    ),
}


def drawn(law, kind, count, seed):
    """Rows, and y with its log-density by the law."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 6, generator=generator)
    score = LAWS[law](x).float()
    if kind == "classes":
        y = (torch.rand(count, generator=generator) < score.sigmoid()).long()
        return x, y, torch.distributions.Bernoulli(logits=score).log_prob(y.float())
    if kind == "counts":
        rate = torch.distributions.Poisson((score / 3.0).clamp(max=3.0).exp())
        y = torch.poisson(rate.rate, generator=generator)
        return x, y, rate.log_prob(y)
    y = score + 0.3 * torch.randn(count, generator=generator)
    return x, y, torch.distributions.Normal(score, 0.3).log_prob(y)


def held_out(full, folds, x, y):
    """Log-likelihood of rows by the fits that have not seen them, or by the only one."""
    each = torch.zeros(len(y), dtype=torch.float64)
    with torch.no_grad():
        for number, model in enumerate(full.result.models):
            rows = torch.arange(len(y)) if folds is None else folds.rows(number)
            each[rows] = model.predictor(x[rows]).log_prob(y[rows]).double()
    return each


@pytest.mark.parametrize("in_folds", [True, False])
@pytest.mark.parametrize("kind", ["classes", "numbers", "counts"])
@pytest.mark.parametrize("law", LAWS)
def test_a_reference_is_the_best_of_three(law, kind, in_folds):
    """Against a network that has hardly learned, and the law."""
    x, y, by_law = drawn(law, kind, 900, 0)
    folds = Folds.of(y, 3) if in_folds else None
    names, valid = tuple("abcdef"), None
    train = x, y
    if not in_folds:
        train, valid = (x[:700], y[:700]), (x[700:], y[700:])
    classes = ("no", "yes") if kind == "classes" else None
    rows = EncodedRows(train, valid, Grouping(range(6)), names, classes, folds=folds)
    likelihood = PoissonLikelihood() if kind == "counts" else None
    network = fit_predictor(
        train, valid=None, row_weights=None if folds is None else folds.weights, hidden=(4,),
        epochs=1, likelihood=likelihood, progress=False,
    )  # fmt: skip
    best = best_full_predictor(network, plan_for(900, 6, penalty=AUTO), rows)
    assert best.kind == law
    new = (x, y, by_law) if in_folds else drawn(law, kind, 900, 1)
    found, before = (held_out(one, folds, *new[:2]) for one in (best, network))
    less = (new[2].double() - found).mean()
    assert less < {"classes": 0.3, "numbers": 0.8, "counts": 0.3}[kind]
    assert (found - before).mean() > 0.05


def test_a_network_that_is_as_good_stays_and_no_row_sets_its_own_scale():
    x, y = rows(600, 0)
    folds, names = Folds.of(y, 3), tuple("abcdefghij")
    data = EncodedRows((x, y), None, Grouping(range(10)), names, None, folds=folds)
    plan = plan_for(600, 10, penalty=AUTO, replicates=3, in_folds=True)
    network = torch.nn.Linear(10, 1)
    with torch.no_grad():
        network.weight.copy_(0.9 * (torch.arange(10) == 4).float())
        network.bias.zero_()
    full = fit_predictor(
        (x, y), valid=None, row_weights=folds.weights, network=network, epochs=1,
        learning_rate=1e-12, progress=False,
    )  # fmt: skip
    for model in full.result.models:
        model.predictor.network.load_state_dict(network.state_dict())
    best = best_full_predictor(full, plan, data)
    assert best.kind == "a network"
    with torch.no_grad():
        residual = y - network(x)[:, 0]
        for number, model in enumerate(best.result.models):
            others = residual[folds.part != number].square().mean().sqrt()
            assert float(model.predictor(x[:1]).stddev) == pytest.approx(float(others), rel=1e-4)
    assert float(full.predictor(x[:1]).stddev.detach()) == pytest.approx(float(y.std()), rel=1e-3)


def test_a_reference_reads_gaps_levels_and_weights_and_without_judged_rows_stays():
    x = torch.randn(400, 4, generator=torch.Generator().manual_seed(3))
    x[:, 1:3] = torch.nn.functional.one_hot((x[:, 1] > 0).long(), 2).float()
    x[:, 3] = (torch.arange(400) % 5 == 0).float()
    x[x[:, 3] == 1, 0] = 0.0
    y = ((x[:, 0].abs() < 0.7) & (x[:, 1] > 0)).long()
    wrong = torch.arange(400) % 2 == 1
    y[wrong] = 1 - y[wrong]
    weights = torch.where(wrong, 1e-4, 1.0)
    grouping, names = Grouping([0, 1, 1], ["a", "b"]), ("a", "b=0", "b=1", "a is missing")
    parts = (x[:300], y[:300]), (x[300:], y[300:])
    data = EncodedRows(*parts, grouping, names, ("no", "yes"), (weights[:300], weights[300:]),
                       markers=(3, -1, -1, 3))  # fmt: skip
    network = fit_predictor(parts[0], valid=None, hidden=(4,), epochs=1, progress=False)
    plan = plan_for(300, 2, penalty=AUTO)
    best = best_full_predictor(network, plan, data)
    seen = (x[300:, 3] == 0) & ~wrong[300:]
    assert best.kind == "boosted trees"
    assert best.scores(x[300:][seen], y[300:][seen]).accuracy > 0.95
    alone = EncodedRows(parts[0], None, grouping, names, ("no", "yes"), markers=(3, -1, -1, 3))
    assert best_full_predictor(network, plan, alone) is network


# An explainer that predicts worse than a predictor of all features goes on, and warns.


SMALL = {"hidden": (16,), "predictor_hidden": (32,), "random_state": 0}


def columns(rows, count=3, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, count))


@pytest.mark.smoke
@over(
    (-0.50, -0.40, True),
    (-0.50, -0.499, False),  # not by two standard errors
    (-0.80, -0.70, False),  # the predictor is no better than the base rate
    (-0.01, -0.0002, False),  # a fiftieth of what all features say
)
def test_worse_is_by_two_errors_of_a_predictor_that_has_learned(own, full, behind):
    draws = np.random.default_rng(0)
    noise = 0.02 * draws.normal(size=(2, 400))
    base = np.full(400, -0.69)
    assert is_behind(own + noise[0], full + noise[1], base) == behind
    # Rows in pairs: what both find hard says nothing of the difference.
    hard = draws.exponential(size=400)
    assert is_behind(-0.5 - hard, -0.49 - hard, -0.8 - hard)


def test_too_few_entries_are_said_before_a_collapse_with_both_figures():
    x = columns(600)
    y = (x[:, 0] * x[:, 1] > 0).astype(int)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ExplainerClassifier(k=1, epochs=60, learning_rate=0.01, **SMALL).fit(x, y)
    kinds = [w.category for w in caught if w.category in (BehindWarning, CollapseWarning)]
    assert kinds[0] is BehindWarning
    first = next(str(w.message) for w in caught if w.category is BehindWarning)
    for word in ("worse than", "of all features", "log-likelihood -0.", "accuracy 0."):
        assert word in first


def test_responses_have_their_share_of_variance_in_place_of_accuracy():
    x = columns(600)
    with pytest.warns(
        BehindWarning, match=r"log-likelihood .* against .*R² 0\.\d+ against \d\.\d+"
    ):
        explainer = ExplainerRegressor(k=1, epochs=60, learning_rate=0.01, **SMALL)
        explainer.fit(x, x[:, 0] + x[:, 1])


@pytest.mark.complete(but=2)
@pytest.mark.parametrize(("in_folds", "replicates"), [(False, 2), (True, 2), (False, 1)])
def test_a_fit_that_has_learned_nothing_goes_on_from_full_masks(monkeypatch, in_folds, replicates):
    """The first fit has one epoch; networks of all features learn an exclusive-or."""
    fits, fit_of = [], table_fit.fit

    def first_is_short(system, train, **settings):
        fits.append(system)
        return fit_of(system, train, **{**settings, **({"epochs": 1} if len(fits) == 1 else {})})

    monkeypatch.setattr(table_fit, "fit", first_is_short)
    x = torch.from_numpy(columns(1000)).float()
    y = (x[:, 0] * x[:, 1] > 0).long()
    train, valid = (x[:700], y[:700]), (x[700:], y[700:])
    folds = Folds.of(train[1], 2) if in_folds else None
    names = tuple("abc"), ("no", "yes")
    rows = EncodedRows(train, None if in_folds else valid, Grouping([0, 1, 2]), *names)
    rows = replace(rows, folds=folds)
    settings = {
        "epochs": 60,
        "hidden": (16,),
        "predictor_hidden": (32,),
        "replicates": replicates,
    }
    plan = plan_for(700, 3, penalty=AUTO, in_folds=in_folds, **settings)
    fitted = table_fit.fit_table(plan, rows)
    assert len(fits) == 2 and fitted.plan.regime is Regime.FIXED_IN_SITU
    assert fitted.result.replicates == replicates
    own, full = (
        prediction_scores(predictive(result, valid[0], masks=50)[0], valid[1]).accuracy
        for result in (fitted.result, fit_full_predictor(plan, rows).result)
    )
    assert full > 0.8 and own > full - 0.03


def test_a_given_penalty_stays(monkeypatch):
    """It is behind, and no second fit follows."""
    fits, fit_of = [], table_fit.fit
    monkeypatch.setattr(table_fit, "fit", lambda *a, **how: fits.append(1) or fit_of(*a, **how))
    x = columns(600)
    explainer = ExplainerClassifier(penalty=0.6, epochs=60, learning_rate=0.01, **SMALL)
    with pytest.warns(BehindWarning):
        explainer.fit(x, (x[:, 0] * x[:, 1] > 0).astype(int))
    assert fits == [1] and explainer.penalty_ == 0.6


def test_a_models_responses_have_no_noise_and_are_not_compared():
    """Their log-likelihood has no bound: R² is 1.000 by both, and one is nats ahead."""
    x = columns(300)

    class Model:
        def predict(self, rows):
            return 2.0 * rows[:, 0] + rows[:, 1]

    with warnings.catch_warnings(action="error", category=BehindWarning):
        ExplainerRegressor(model=Model(), epochs=20, **SMALL).fit(x, Model().predict(x))


@pytest.mark.parametrize("regime", [Regime.FIXED_IN_SITU, Regime.SELF_POST_HOC])
def test_no_fold_is_judged_by_a_predictor_that_has_learned_from_it(regime):
    """The best replicate's predictor in all folds has a held-out accuracy of .84 on noise."""
    x, y = torch.randn(60, 3), torch.arange(60) % 2
    folds = Folds.of(y, 2)
    rows = EncodedRows((x, y), None, Grouping(range(3)), tuple("abc"), ("0", "1"), folds=folds)
    plan = plan_for(60, 3, regime=regime, penalty=0.0, in_folds=True, replicates=2, epochs=1)
    refused("learned from rows that other replicates hold out", table_fit.fit_table, plan, rows)


# Boosted trees of what an explainer keeps: taken where validation rows say so, of every fit.


TRAINING = {"epochs": 8, "batch_size": 100, "learning_rate": 1e-2, "progress": False, "seed": 3}
NAMES = ("a", "b", "c")


def rows_of(label) -> EncodedRows:
    x = torch.rand(800, 3, generator=torch.Generator().manual_seed(0))
    y = label(x).long()
    grouping = Grouping([0, 1, 2], NAMES)
    return EncodedRows((x[:400], y[:400]), (x[400:], y[400:]), grouping, NAMES, ("no", "yes"))


@pytest.fixture(scope="module")
def comb() -> EncodedRows:
    """Steps that trees learn at once, and a network in eight epochs does not."""
    return rows_of(lambda x: torch.floor(6 * x[:, 0]) % 2 == 0)


def fitted(rows: EncodedRows) -> FitResult:
    system = lex(3, classes=2, penalty=0.001, hidden=(8,), predictor_hidden=(8,))
    return fit(system, rows.train, valid=rows.valid, replicates=2, **TRAINING)


@pytest.fixture(scope="module")
def networks(comb: EncodedRows) -> FitResult:
    return fitted(comb)


@pytest.mark.complete
def test_trees_are_taken_by_every_fit(comb: EncodedRows, networks: FitResult) -> None:
    result = copy.deepcopy(networks)
    scores = trees_where_better(result, comb)
    assert scores[TREES] > scores[NETWORK] + 0.05
    assert all(isinstance(model.predictor, TreePredictor) for model in result.models)
    assert all(isinstance(model.imputer, GapImputer) for model in result.models)
    assert [type(cost).__name__ for cost in result.models[0].penalties] == ["SizePenalty"]
    said = predictive_log_likelihood(result, *comb.valid, masks=50, seed=3).mean(1)
    assert float(said[result.best]) == pytest.approx(scores[TREES], abs=0.02)
    assert bool((said > scores[NETWORK]).all())
    x = comb.valid[0]
    masks = [mask_means(explain(one, x, draws=1, seed=2)).values for one in (result, networks)]
    np.testing.assert_array_equal(*masks)
    assert not torch.equal(*(model.predictor.network.value for model in result.models))


def test_each_fit_has_trees_of_the_weights_that_it_had(
    comb: EncodedRows, networks: FitResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    fit_copies = TreePredictor.fit_copies

    def watched(self, x, y, seed=0, weights=None):
        seen.append((seed, weights))
        fit_copies(self, x, y, seed, weights)

    monkeypatch.setattr(TreePredictor, "fit_copies", watched)
    folds, given = Folds.of(comb.train[1], 2), torch.linspace(0.5, 1.5, 400)
    trees_where_better(copy.deepcopy(networks), replace(comb, folds=folds, weights=(given, None)))
    weights = {seed - networks.seed: of_rows for seed, of_rows in seen}
    # The best one comes first.
    assert list(weights) == [networks.best, 1 - networks.best]
    for place in (0, 1):
        assert torch.equal(weights[place], folds.weights[place] * given)


def test_networks_stay_where_they_are_as_good(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = torch.Generator().manual_seed(7)
    line = rows_of(lambda x: x.sum(1) + 0.5 * torch.randn(len(x), generator=noise) > 1.5)
    result = fitted(line)
    monkeypatch.setattr(predictors, "says_more", _just_as_good)
    before = [id(model.predictor) for model in result.models]
    assert trees_where_better(result, line) == {NETWORK: -0.5, TREES: -0.5}
    assert [id(model.predictor) for model in result.models] == before


def _just_as_good(*_):
    return False, -0.5, -0.5


@pytest.mark.parametrize("kind", ["responses", "markers", "levels", "no validation"])
def test_others_keep_their_networks(comb: EncodedRows, networks: FitResult, kind: str) -> None:
    many = Grouping([0] * 300, [str(place) for place in range(1)])
    changed = {
        "responses": {"class_names": None},
        "markers": {"markers": (-1, -1, 0)},
        "levels": {"grouping": many},
        "no validation": {"valid": None},
    }
    result = copy.deepcopy(networks)
    assert trees_where_better(result, replace(comb, **changed[kind])) == {}
    assert not any(isinstance(model.predictor, TreePredictor) for model in result.models)


def test_interrupted(
    comb: EncodedRows, networks: FitResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at_once(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(TreePredictor, "fit_copies", at_once)
    result = copy.deepcopy(networks)
    assert trees_where_better(result, comb) == {} and result.interrupted
    assert not any(isinstance(model.predictor, TreePredictor) for model in result.models)


def test_the_plan_says_which(comb: EncodedRows) -> None:
    settings = {"penalty": 0.001, "epochs": 8, "hidden": (8,), "predictor_hidden": (8,)}
    found = fit_table(plan_for(400, 3, predictor=AUTO_PREDICTOR, seed=3, **settings), comb)
    assert (found.plan.predictor_kind, found.plan.imputer) == (TREES, "gap")
    assert set(found.log_likelihood) == {NETWORK, TREES}
    alone = fit_table(plan_for(400, 3, predictor=NETWORK, seed=3, **settings), comb)
    assert alone.plan.predictor_kind == NETWORK and not alone.log_likelihood
    with pytest.raises(ValueError, match="trees read hidden features as missing"):
        plan_for(400, 3, predictor=AUTO_PREDICTOR, imputer="constant")


def test_copies_with_gaps_are_read_as_such() -> None:
    x = torch.rand(300, 2, generator=torch.Generator().manual_seed(1))
    y = (x[:, 0] > 0.5).long()
    trees = TreePredictor([[0], [1]], [0, 1], classes=2, trees=20)
    shown, hidden = x.clone(), x.clone()
    hidden[:, 0] = torch.nan
    trees.fit_copies(torch.stack([shown, hidden]), y)
    sure, unsure = trees(shown).probs[:, 1], trees(hidden).probs[:, 1]
    assert bool(((sure - y).abs() < 0.3).double().mean() > 0.95)
    assert bool(((unsure - y.double().mean()).abs() < 0.25).all())
    with pytest.raises(ValueError, match="copies with gaps teach labels"):
        TreePredictor([[0], [1]], [0, 1], classes=None).fit_copies(shown[None], x[:, 0])


@pytest.mark.parametrize("levels", [False, True])
@pytest.mark.parametrize("way", ["never kept", "kept where no row counts"])
def test_a_column_that_no_mask_keeps_says_nothing(way: str, levels: bool) -> None:
    """Of rows of which nothing is seen of a column, scikit-learn's boosting ends with an error."""
    x = torch.rand(200, 3, generator=torch.Generator().manual_seed(1))
    x[:, 1:] = torch.nn.functional.one_hot((x[:, 1] > 0.5).long(), 2).to(x)
    columns, entries = ([[1, 2], [0]], [0, 1]) if levels else ([[0], [1], [2]], [0, 1, 1])
    y = (x[:, 0] > 0.5).long()
    kept, weights = x.clone(), torch.ones(200)
    kept[:, 1:] = torch.nan
    if way != "never kept":
        kept[:10], weights[:10] = x[:10], 0.0
    trees = TreePredictor(columns, entries, classes=2, trees=20)
    trees.fit_copies(kept[None], y, weights=weights)
    told = trees(kept).probs[:, 1]
    assert bool(((told - y).abs() < 0.3).double().mean() > 0.95)
    # What else is shown in that column changes nothing.
    assert torch.equal(trees(x).probs, trees(kept).probs)


@dataclass(frozen=True)
class Said:
    """A fit of which only is known what it says of the rows, `(R, N)`."""

    each: torch.Tensor
    seed: int = 0


def weighed_rows(count: int, weights: torch.Tensor | None = None) -> EncodedRows:
    part = (torch.zeros(count, 1), torch.zeros(count))
    weighed = None if weights is None else (torch.ones(count), weights)
    return EncodedRows(part, part, Grouping([0], ("a",)), ("a",), ("no", "yes"), weights=weighed)


@pytest.fixture
def by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictors, "predictive_log_likelihood", lambda fit, *_, **__: fit.each)


@pytest.mark.usefixtures("by_rows")
def test_more_is_by_more_than_an_error_of_the_mean_over_replicates() -> None:
    spread = torch.from_numpy(np.random.default_rng(0).normal(size=400))
    # Of a spread of 20 over 400 rows the mean has an error of 1.
    spread = (spread - spread.mean()) / (spread.std() / 20.0)
    one = Said(torch.zeros(2, 400).double())

    def better(mean: float) -> bool:
        other = Said(torch.stack([spread + mean - 7.0, spread + mean + 7.0]))
        found, said, before = says_more(other, one, weighed_rows(400))
        assert said == pytest.approx(mean) and before == 0.0
        return found

    assert better(1.01) and not better(0.99) and not better(-3.0)


@pytest.mark.usefixtures("by_rows")
def test_rows_count_as_often_as_they_weigh() -> None:
    one, other = Said(torch.zeros(1, 4)), Said(torch.tensor([[1.0, 1.1, -3.0, -3.1]]))
    assert not says_more(other, one, weighed_rows(4))[0]
    found, said, _ = says_more(other, one, weighed_rows(4, torch.tensor([5.0, 5.0, 0.0, 0.0])))
    assert found and said == pytest.approx(1.05)


# Entries that the masks of a replicate never keep.


@pytest.fixture(scope="module")
def left_out_fit():
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    rows = EncodedRows((x, y), None, Grouping([0, 1, 2]), ("a", "b", "c"), ("no", "yes"))
    rows = replace(rows, folds=Folds.of(y, 2))
    small = {"epochs": 20, "hidden": (8,), "predictor_hidden": (8,), "replicates": 2}
    plan = plan_for(200, 3, penalty=AUTO, in_folds=True, **small)
    left_out = [[False, True, False], [False, False, True]]
    return fit_table(plan, rows, left_out=left_out).result, x


def test_each_replicate_leaves_its_entries_out_and_is_saved_so(left_out_fit, tmp_path):
    result, x = left_out_fit
    save(result, tmp_path / "explainer")
    for of in (result, load(tmp_path / "explainer")):
        kept = mask_means(explain(of, x, draws=5)).mean("row").values
        assert kept[0, 1] == kept[1, 2] == 0.0
        assert (kept[[0, 0, 1, 1], [0, 2, 0, 1]] > 0.0).all()


def test_at_every_penalty(left_out_fit):
    result, x = left_out_fit
    low = mask_means(explain(result, x, penalty=result.penalty_range[0], draws=2)).values
    assert (low[0, ..., 1] == 0.0).all() and (low[0, ..., 0] > 0.5).any()


# Logits of a fit, rescaled to be as sure as judged labels show.


X = torch.randn(120, 2, generator=torch.Generator().manual_seed(0))
CERTAIN = (X[:, 0] > 0).long()
NOISE = torch.arange(120) % 2
WIDTHS = {"hidden": (4,), "predictor_hidden": (8,)}


SETTINGS = {"epochs": 60, "batch_size": 40, "learning_rate": 1e-2, "valid": None}


@functools.cache
def learned(labels):
    """A fit to labels and its folds; of None a fit to a response, and the response."""
    if labels is None:
        y = X[:, 0] + 0.3 * torch.randn(120, generator=torch.Generator().manual_seed(1))
        system = lex(2, classes=None, penalty=0.0, **WIDTHS)
        return fit(system, (X, y), progress=False, **SETTINGS), y
    folds = Folds.of(labels, 3)
    system = lex(2, classes=2, penalty=0.01, **WIDTHS)
    rows = {"row_weights": folds.weights, "weight_decay": 0.02, "progress": False}
    return fit(system, (X, labels), seed=1, **SETTINGS, **rows), folds


def fit_to_change(labels):
    """A copy of what :func:`learned` has, to change."""
    result, rows = learned(labels)
    return copy.deepcopy(result), rows


def logits_of(result):
    return [
        copy.deepcopy(part.network.layers[-1].state_dict())
        for model in result.models
        for part in model.predictor.predictors
    ]


def total(result, folds, y):
    return folds.values(predictive_log_likelihood, result, X, y, masks=10, seed=1).sum()


def test_labels_that_are_certain_sharpen_networks_that_weight_decay_holds_back():
    result, folds = fit_to_change(CERTAIN)
    before, unsure = logits_of(result), total(result, folds, CERTAIN)
    factor = rescale_logits(result, (X, CERTAIN), folds, None, 10)
    assert factor == pytest.approx(4.0)
    for old, new in zip(before, logits_of(result), strict=True):
        assert all(torch.equal(old[name] * factor, new[name]) for name in old)
    assert total(result, folds, CERTAIN) > unsure + 1.0


def test_neither_the_next_factor_nor_the_one_before_is_better():
    y = torch.where(torch.arange(120) % 15 == 0, 1 - CERTAIN, CERTAIN)
    result, folds = fit_to_change(y)
    factor = rescale_logits(result, (X, y), folds, None, 10)
    best = total(result, folds, y)
    assert 1.0 < factor < 3.9
    for step in (2**0.5, 0.5):
        for model in result.models:
            for part in model.predictor.predictors:
                for weight in part.network.layers[-1].parameters():
                    weight.data.mul_(step)
        assert total(result, folds, y) < best


def test_logits_of_noise_stay():
    result, folds = fit_to_change(NOISE)
    before = logits_of(result)
    assert rescale_logits(result, (X, NOISE), folds, None, 10) == 1.0
    for old, new in zip(before, logits_of(result), strict=True):
        assert all(torch.equal(old[name], new[name]) for name in old)


@pytest.mark.parametrize("scale", [0.25, 1.0, 4.0])
def test_the_scale_of_a_response_is_that_of_what_is_missed(scale):
    """To within half a step, √√2, of the most likely scale, and of no other weight."""
    result, y = fit_to_change(None)
    likelihoods = [part.likelihood for part in result.model.predictor.predictors]
    for likelihood in likelihoods:
        likelihood.settle(y - predictive(result, X, masks=200)[0])
    best = rescale_logits(result, (X, y), None, None, 200)
    assert 0.5 <= best <= 2.0
    for likelihood in likelihoods:
        likelihood.log_scale.data += math.log(scale)
    before = logits_of(result)
    factor = rescale_logits(result, (X, y), None, None, 200)
    assert abs(math.log2(factor * scale)) <= 0.6
    for old, new in zip(before, logits_of(result), strict=True):
        assert all(torch.equal(old[name], new[name]) for name in old)


def test_rows_of_weight_0_do_not_count():
    result, folds = fit_to_change(CERTAIN)
    wrong = torch.where(torch.arange(120) < 60, CERTAIN, 1 - CERTAIN)
    weights = (torch.arange(120) < 60).float()
    assert rescale_logits(copy.deepcopy(result), (X, wrong), folds, None, 10) < 1.0
    assert rescale_logits(result, (X, wrong), folds, weights, 10) > 1.0


# `penalty="auto"`, and constants in units of the base rate's entropy, in the plan and the fit.


FOUR_EPOCHS = {"epochs": 4, "hidden": (6,), "predictor_hidden": (6,), "learning_rate": 1e-2}
FOUR_EPOCHS["random_state"] = 0


@pytest.fixture(scope="module")
def few_rows():
    x = np.random.default_rng(0).normal(size=(120, 3))
    return x, (x[:, 0] > 1.0).astype(int)


def test_plan_in_units():
    plan = plan_for(4000, 5, "lex", unit=0.25)
    assert (plan.penalty, plan.weight_decay, plan.unit) == (0.02 * 0.25, 1e-3 * 0.25, 0.25)
    assert plan.path == tuple(0.02 * 0.25 * share for share in PATH)
    assert plan.penalties == (plan.path[0], plan.usual_penalty, plan.path[-1])
    typed = plan_for(1000, 5, "lex", penalty=0.02, unit=0.25)
    assert (typed.penalty, typed.weight_decay) == (0.02, 2e-3 * 0.25)
    assert plan_for(100, 5, "lex").weight_decay == 0.01
    # Of six predictors a row's loss is a sixth of each one's, where it was half.
    assert plan_for(100, 5, "lex", folds=6).weight_decay == pytest.approx(0.01 / 3.0)
    assert plan_for(100, 5, "lex", folds=1).weight_decay == 0.01
    assert plan_for(100, 5, "lex", k=2).weight_decay == 1e-3
    assert plan_for(1000, 5, "lex", penalty="auto", unit=0.25).penalty == "auto"
    assert plan_for(1000, 5, "lex", k=2, unit=0.25).penalty is None


def test_of_few_labelled_rows_the_path_is_about_a_larger_penalty():
    few, fewer = (plan_for(rows, 5, "lex", unit=0.25) for rows in (200, 50))
    assert few.usual_penalty == pytest.approx(0.25 * 0.02 * (NOISE_BITS / (0.25 * 200)) ** 0.5)
    assert fewer.usual_penalty == pytest.approx(2.0 * few.usual_penalty)
    assert few.path[PATH.index(1.0)] == pytest.approx(few.usual_penalty)
    np.testing.assert_allclose(few.path, np.multiply(few.usual_penalty, PATH))
    many = plan_for(4 * NOISE_BITS, 5, "lex", unit=0.25)
    assert many.path == plan_for(40 * NOISE_BITS, 5, "lex", unit=0.25).path
    # What a model says has no noise of labels, and a penalty of one's own is as it was given.
    said = plan_for(200, 5, "lex", unit=0.25, regime=Regime.SURROGATE_POST_HOC)
    assert said.path == many.path
    assert few.penalty == many.penalty == 0.25 * 0.02
    assert plan_for(200, 5, "lex", penalty=0.03, unit=0.25).penalty == 0.03


def test_published_systems_keep_their_numbers():
    plan = plan_for(1000, 5, "real_x", unit=0.25)
    assert (plan.penalty, plan.weight_decay, plan.unit) == (0.01, 1e-3, 1.0)


def test_lex_in_units():
    def of(**options):
        term = lex(3, classes=2, hidden=(4,), **options).build()[0].terms[0]
        weights = [penalty.weight for penalty in term.model.penalties]
        return weights, term.objective.at(0.0).spec.entropy

    assert of() == ([0.02], 0.1)
    assert of(unit=0.5) == ([0.01], 0.05)
    assert of(unit=0.5, penalty=0.02) == ([0.02], 0.05)
    assert of(unit=0.5, k=1) == ([], 0.05)
    assert of(unit=0.5, penalty=0.0) == ([0.0], 0.05)
    for options in ({"k": 1, "penalty": 0.02}, {"unit": 0.0}, {"unit": float("nan")}):
        refused(r"give either k|unit must be", of, **options)


def test_chosen_penalty(few_rows):
    explainer = ExplainerClassifier(penalty="auto", replicates=2, **FOUR_EPOCHS).fit(*few_rows)
    path = explainer.penalty_path_
    # Of 120 rows 96 are fitted on.
    shares = path["penalty"] / PATH / 0.02
    np.testing.assert_allclose(shares, shares.iloc[0])
    assert 0.5 < shares.iloc[0] ** 2 * 96 / NOISE_BITS < 0.8
    assert explainer.penalty_ == path["penalty"][path["chosen"]].item()
    assert explainer.result_.replicates == 2
    for model in explainer.result_.models:
        assert model.selector.penalty == pytest.approx(explainer.penalty_)
    assert explainer.get_params()["penalty"] == "auto"


def test_the_path_knows_which_of_its_penalties_is_the_usual_one(few_rows, monkeypatch):
    told = {}

    def path_of(*given, rule, **settings):
        told.update(getattr(rule, "keywords", {}), penalties=settings["penalties"])
        return penalty_path(*given, rule=rule, **settings)

    monkeypatch.setattr(table_fit, "penalty_path", path_of)
    ExplainerClassifier(penalty="auto", **{**FOUR_EPOCHS, "epochs": 1}).fit(*few_rows)
    assert told["penalties"].index(pytest.approx(told["usual"])) == PATH.index(1.0)


@pytest.mark.complete
def test_a_chosen_penalty_is_a_given_one(few_rows):
    chosen = ExplainerClassifier(penalty="auto", replicates=3, **FOUR_EPOCHS).fit(*few_rows)
    given = ExplainerClassifier(penalty=chosen.penalty_, replicates=3, **FOUR_EPOCHS).fit(*few_rows)
    np.testing.assert_allclose(chosen.importances(few_rows[0]), given.importances(few_rows[0]))


def test_an_interrupted_fit_has_a_path(few_rows, monkeypatch):
    steps, calls = TrainingLoop._epoch, iter(range(1, 100))

    def interrupted(*given):
        if next(calls) == 3:
            raise KeyboardInterrupt
        return steps(*given)

    monkeypatch.setattr(TrainingLoop, "_epoch", interrupted)
    explainer = ExplainerClassifier(penalty="auto", replicates=3, **FOUR_EPOCHS).fit(*few_rows)
    assert explainer.result_.interrupted and len(explainer.result_.history) == 2
    assert explainer.result_.replicates == 3 and explainer.penalty_path_["chosen"].sum() == 1


def test_a_penalty_of_one_s_own_is_in_nats(few_rows):
    explainer = ExplainerClassifier(penalty=0.02, **FOUR_EPOCHS).fit(*few_rows)
    assert explainer.penalty_ == 0.02 and explainer.penalty_path_ is None
    assert explainer.result_.model.selector.penalty == 0.02


def test_another_penalty_is_named_after_the_fit(few_rows):
    explainer = ExplainerClassifier(penalty=0.02, **FOUR_EPOCHS).fit(*few_rows)
    for penalty in (0.015, 0.1):
        one = explainer.importances(few_rows[0], penalty=penalty)
        other = mask_means(explainer.explain(few_rows[0], draws=0, penalty=penalty)).values[0]
        np.testing.assert_allclose(one, other, rtol=1e-4)
        assert np.abs(one - explainer.importances(few_rows[0])).max() > 1e-5
    refused(r"nats; 9 is outside", explainer.importances, few_rows[0], penalty=9.0)
    with pytest.raises(ValueError, match="fitted for one alone"):
        ExplainerClassifier(k=1, **FOUR_EPOCHS).fit(*few_rows).importances(few_rows[0], penalty=0.1)


def test_responses_have_a_unit_of_one(few_rows):
    explainer = ExplainerRegressor(penalty="auto", **FOUR_EPOCHS).fit(
        few_rows[0], 100.0 * few_rows[0][:, 0]
    )
    path = explainer.penalty_path_["penalty"]
    np.testing.assert_allclose(path, np.multiply(0.02 * (NOISE_BITS / 96) ** 0.5, PATH))


def test_a_given_model_is_counted_by_what_it_says(few_rows):
    class Sure:
        classes_ = np.array([0, 1])

        def predict_proba(self, x):
            p = np.where(np.arange(len(x)) % 2, 0.9, 0.1)
            return np.stack([1.0 - p, p], 1)

    short = {**FOUR_EPOCHS, "epochs": 1}
    explainer = ExplainerClassifier(model=Sure(), **short).fit(*few_rows)
    assert explainer.penalty_ == pytest.approx(0.02, rel=1e-3)
    path = ExplainerClassifier(model=Sure(), penalty="auto", **short).fit(*few_rows).penalty_path_
    np.testing.assert_allclose(path["penalty"], np.multiply(0.02, PATH), rtol=1e-3)


@over(
    ({"method": "real_x", "penalty": "auto"}, "real_x chooses no penalty .*; lex does"),
    ({"method": "l2x", "penalty": "auto"}, "l2x has no penalty"),
    ({"k": 2, "penalty": "auto"}, "give either k=2"),
    ({"penalty": "least"}, "penalty must be nats for each entry kept, or 'auto'"),
    ({"penalty": "auto", "validation_fraction": None}, "chosen on validation rows"),
)
def test_refusals(options, words, few_rows):
    refused(words, ExplainerClassifier(**{**FOUR_EPOCHS, **options}).fit, *few_rows)
