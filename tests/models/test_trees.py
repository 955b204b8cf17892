"""Boosted trees as predictors: the same as scikit-learn's, fitted to other folds, refused where
they have no gradient, saved and loaded."""

import numpy as np
import pyro
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.tree import DecisionTreeRegressor
from torch import Tensor

from lexppl import load, save
from lexppl.effects import FoldShift
from lexppl.evaluation.prediction import predictive, predictive_log_likelihood
from lexppl.inference import REBAR, MarginalStraightThrough, NestedIWAE, Pathwise, fit
from lexppl.inference.batches import TensorRows
from lexppl.inference.contexts import program_settings
from lexppl.inference.training.cross_fitting import CrossFitted
from lexppl.inference.training.rows import folded
from lexppl.models import ConstantImputer, GapImputer, Grouping, tree_predictor
from lexppl.models.trees.boosted_trees import BoostedTrees, column_values, table_columns
from lexppl.models.trees.tree_predictor import TreePredictor, masked_copies
from lexppl.systems import lex
from tests.refusals import refused

LEVELS = 5


def table(rows: int, seed: int, levels: int = LEVELS) -> tuple[Tensor, Tensor, Grouping]:
    """Two numbers, a column of levels, a number of noise; y by the first and by the levels."""
    draw = torch.Generator().manual_seed(seed)
    numbers = torch.randn(rows, 3, generator=draw)
    level = torch.randint(levels, (rows,), generator=draw)
    x = torch.cat(
        [numbers[:, :2], torch.nn.functional.one_hot(level, levels).float(), numbers[:, 2:]], 1
    )
    signal = 2.0 * numbers[:, 0] + 1.5 * (level < 2).float() - 0.75
    y = (torch.rand(rows, generator=draw) < torch.sigmoid(signal)).long()
    return x, y, Grouping([0, 1, *[2] * levels, 3], ["a", "b", "level", "noise"])


def with_gaps(x: Tensor, grouping: Grouping, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    keep = torch.rand(len(x), grouping.entries, generator=draw) < 0.6
    return torch.where(grouping(keep.float()) == 1, x, torch.nan)


# -- a gap


def test_a_gap_equals_a_gap() -> None:
    x = torch.tensor([[1.0, 2.0]])
    with pyro.validation_enabled(True):
        law = GapImputer()(x, torch.tensor([[1.0, 0.0]]))
        values = torch.tensor([[1.0, torch.nan], [1.0, 2.0], [3.0, torch.nan]])
        assert law.log_prob(values).tolist() == [0.0, -np.inf, -np.inf]
        pyro.poutine.trace(lambda: pyro.sample("x", law)).get_trace().compute_log_prob()
        assert law.expand((5, 1)).log_prob(law.expand((5, 1)).sample()).tolist() == [[0.0]] * 5


def test_a_mask_that_is_soft_or_differentiated_is_refused() -> None:
    x, keep = torch.zeros(2, 2), torch.full((2, 2), 0.5)
    with pyro.validation_enabled(True), pytest.raises(ValueError, match="hard"):
        GapImputer()(x, keep)
    refused("LeaveOneOut", GapImputer(), x, torch.ones(2, 2, requires_grad=True))


# -- columns and copies


def test_columns_of_indicators_are_one() -> None:
    x, _, grouping = table(50, 0)
    columns, entries = table_columns(x, grouping)
    assert columns == [[2, 3, 4, 5, 6], [0], [1], [7]]
    assert entries == [2, 0, 1, 3]
    values = column_values(x, columns)
    assert torch.equal(values[:, 0], x[:, 2:7].argmax(1).float())
    assert torch.equal(values[:, 1:], x[:, [0, 1, 7]])


def test_copies_hide_groups_together_at_rates_that_are_uniform() -> None:
    copies = masked_copies(np.ones((500, 3)), [0, 0, 1], copies=16, seed=0)
    gone = np.isnan(copies)
    assert np.array_equal(gone[:, 0], gone[:, 1])
    # P(both kept) = E ρ² = 1/3, P(one alone) = E ρ(1 − ρ) = 1/6 each; se of a share ≤ .0053
    both = (~gone[:, 0] & ~gone[:, 2]).mean()
    alone = (~gone[:, 0] & gone[:, 2]).mean()
    assert abs(both - 1 / 3) < 0.025 and abs(alone - 1 / 6) < 0.02


# -- the trees are scikit-learn's


def grown(columns, rows, y, classes: int = 2, dtype: torch.dtype = torch.float32):
    """Scikit-learn's trees, and the same as tensors."""
    estimator = HistGradientBoostingClassifier(
        max_iter=12, max_leaf_nodes=9, max_depth=5, max_bins=64, categorical_features=[0]
    ).fit(rows, y)
    trees = BoostedTrees(columns, 1 if classes == 2 else classes, 12, 9, 5).to(dtype)
    trees.take([estimator], rows)
    return estimator, trees


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("classes", [2, 4])
def test_probabilities_are_those_of_the_estimator(classes: int, dtype: torch.dtype) -> None:
    x, _, grouping = table(400, 1)
    x = x.to(dtype)
    y = torch.randint(classes, (400,), generator=torch.Generator().manual_seed(0))
    columns, _ = table_columns(x, grouping)
    rows = column_values(with_gaps(x, grouping).double(), columns).numpy()
    estimator, trees = grown(columns, rows, y, classes, dtype)
    new = with_gaps(table(300, 2)[0].to(dtype), grouping, seed=3)
    raw = trees(new)
    log_odds = torch.cat([torch.zeros_like(raw), raw], 1) if classes == 2 else raw
    expected = estimator.predict_proba(column_values(new.double(), columns).numpy())
    assert log_odds.softmax(1).numpy() == pytest.approx(expected, abs=1e-5)
    assert np.ptp(expected[:, 0]) > 0.05


def test_a_level_that_was_not_there_is_missing_as_in_the_estimator() -> None:
    x, y, grouping = table(300, 1)
    columns, _ = table_columns(x, grouping)
    there = x[:, 2:7].argmax(1) != 3
    rows = column_values(x[there].double(), columns).numpy()
    estimator, trees = grown(columns, rows, y[there])
    new = x[~there]
    expected = estimator.decision_function(column_values(new.double(), columns).numpy())
    assert trees(new)[:, 0].numpy() == pytest.approx(expected, abs=1e-4)


def test_trees_that_do_not_fit_in_or_differ_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).normal(size=(200, 1))
    found = HistGradientBoostingRegressor(max_iter=5, max_leaf_nodes=8).fit(rows, rows[:, 0])
    for short in ({"trees": 4}, {"leaves": 3}, {"depth": 1}, {"bins": 8}, {"outputs": 2}):
        settings = {"outputs": 1, "trees": 5, "leaves": 8, "depth": 8, "bins": 255, **short}
        refused("estimator", BoostedTrees([[0]], **settings).take, [found], rows)
    with pytest.raises(TypeError, match="HistGradientBoosting"):
        BoostedTrees([[0]], 1, 5).take([DecisionTreeRegressor().fit(rows, rows[:, 0])], rows)
    monkeypatch.setattr(found, "_baseline_prediction", found._baseline_prediction + 1.0)
    whole = BoostedTrees([[0]], 1, 5, 8, 8, 255)
    whole.take([found], rows)
    monkeypatch.setattr(found, "predict", lambda rows: rows[:, 0] + 5.0)
    refused("differ", whole.take, [found], rows)


# -- the predictor


@pytest.mark.smoke
def test_a_subset_is_predicted_by_what_it_tells() -> None:
    x, y, grouping = table(1500, 0)
    predictor = tree_predictor(x, 2, grouping)
    predictor.fit_rows(x, y)
    new, told, _ = table(1500, 1)
    likelihood = {}
    for name, kept in {"none": [], "noise": [3], "a": [0], "both": [0, 2]}.items():
        keep = torch.zeros(4)
        keep[kept] = 1.0
        row = torch.where(grouping(keep) == 1, new, torch.nan)
        likelihood[name] = float(predictor(row).log_prob(told).mean())
    base = float(
        torch.special.entr(torch.tensor([told.float().mean(), 1 - told.float().mean()])).sum()
    )
    assert likelihood["none"] == pytest.approx(-base, abs=0.01)
    assert likelihood["noise"] < likelihood["none"] + 0.01
    assert likelihood["none"] + 0.1 < likelihood["a"] < likelihood["both"] - 0.02


def test_a_label_that_the_rows_lack_has_a_probability() -> None:
    x, _, _ = table(100, 0)
    predictor = tree_predictor(x, 3)
    predictor.fit_rows(x, torch.arange(100) % 2)
    last = predictor(x).probs[:, 2]
    assert float(last.min()) > 0.0 and float(last.max()) < 0.05


def test_the_spread_of_a_response_is_that_of_rows_not_learned_from() -> None:
    draw = torch.Generator().manual_seed(0)
    x, noise = torch.randn(2000, 2, generator=draw), torch.randn(2000, generator=draw)
    wide = torch.where(x[:, 1] > 0, 1.0, 0.3)
    predictor = tree_predictor(x, None)
    predictor.fit_rows(x, 2.0 * (x[:, 0] > 0) + wide * noise)
    seen = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    assert predictor(seen).stddev.tolist() == pytest.approx([1.0, 0.3], rel=0.25)
    # Hidden: the two means are part of the spread, √(1 + 1²) and √(1 + .3²).
    hidden = torch.tensor([[torch.nan, 1.0], [torch.nan, -1.0]])
    assert predictor(hidden).stddev.tolist() == pytest.approx([2**0.5, 1.09**0.5], rel=0.15)


@pytest.mark.parametrize(
    ("y", "classes"),
    [(torch.zeros(10), 2), (torch.zeros(10).long(), None), (torch.full((10, 3), 1 / 3), 2)],
)
def test_targets_of_another_kind_are_refused(y: Tensor, classes: int | None) -> None:
    predictor = tree_predictor(torch.zeros(10, 2), classes)
    refused("y must hold", predictor.fit_rows, torch.zeros(10, 2), y)
    refused(r"x must have shape \(N, 2\)", predictor.fit_rows, torch.zeros(10, 3), y)


# -- in a fit

SMALL = {"hidden": (8,), "penalty": 0.02}
QUICK = {"epochs": 2, "batch_size": 100, "progress": False}


def grown_fast(x: Tensor, classes: int | None, grouping: Grouping | None = None, **settings):
    return tree_predictor(x, classes, grouping, **{"trees": 8, "copies": 4, **settings})


class Memoriser(TreePredictor):
    """A predictor that can learn rows by heart."""

    def _settings(self, copies, seed):
        free = {"min_samples_leaf": 1, "l2_regularization": 0.0}
        return {**super()._settings(copies, seed), **free}


def test_no_predictor_has_seen_the_rows_that_it_judges() -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(400, 3, generator=draw)
    y = torch.randint(2, (400,), generator=draw)
    by_heart = Memoriser(*table_columns(x), 2, leaves=200, depth=12, copies=16, rate=0.5)
    result = fit(lex(3, classes=2, predictor=by_heart, **SMALL), (x, y), valid=None, **QUICK)
    predictors = result.model.predictor
    assert isinstance(predictors, CrossFitted)
    rows = [(predictor(x).log_prob(y) > -0.1).float() for predictor in predictors.predictors]
    # A row that is whole in a copy is known by heart by one predictor of the two, by the other no
    # better than by chance.
    known = torch.stack(rows).sum(0)
    assert float((known >= 1).float().mean()) > 0.8
    assert float((rows[0] * rows[1]).mean()) < 0.65

    with torch.random.fork_rng():
        torch.manual_seed(0)
        divided = folded(TensorRows((x, y)), 2)
    own, told = divided.columns
    likelihood = {}
    for shift in (0, 1):
        with FoldShift(shift):
            likelihood[shift] = float((predictors(own).probs.argmax(-1) == told).float().mean())
    # Folds are drawn by the fit's own seed, 0.
    assert likelihood[0] < 0.62
    assert likelihood[1] > 0.9


def test_replicates_of_trees_run_as_one_as_they_run_alone() -> None:
    x, y, grouping = table(60, 0)
    networks = []
    for seed in (0, 1):
        predictor = grown_fast(x, 2, grouping)
        predictor.fit_rows(x, y, seed)
        networks.append(predictor.network)
    state = {
        name: torch.stack([dict(n.named_buffers())[name] for n in networks])
        for name, _ in networks[0].named_buffers()
    }
    rows = torch.stack([with_gaps(x, grouping, seed) for seed in (0, 1)])
    both = torch.func.vmap(lambda own, each: torch.func.functional_call(networks[0], own, (each,)))(
        state, rows
    )
    assert torch.equal(both, torch.stack([n(r) for n, r in zip(networks, rows, strict=True)]))


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("kind", ["labels", "response", "probabilities"])
def test_a_fit_and_its_files(kind: str, tmp_path) -> None:
    x, y, grouping = table(200, 0)
    classes = None if kind == "response" else 2
    told = {
        "labels": y,
        "response": x[:, 0],
        "probabilities": torch.stack([1 - 0.8 * y, 0.8 * y], 1),
    }[kind]
    given = {"grouping": grouping, "predictor": grown_fast(x, classes, grouping)}
    system = lex(x.shape[1], classes=classes, **given, **SMALL)
    result = fit(system, (x, told), replicates=2, **QUICK)
    save(result, tmp_path)
    again = load(tmp_path)
    assert torch.equal(predictive(again, x), predictive(result, x))
    assert bool(predictive_log_likelihood(again, x, told).isfinite().all())


@pytest.mark.parametrize(
    "estimator", [Pathwise(), MarginalStraightThrough(), REBAR()], ids=lambda e: type(e).__name__
)
def test_estimators_that_differentiate_are_refused(estimator) -> None:
    x, y, _ = table(100, 0)
    given = {"predictor": grown_fast(x, 2), "objective": NestedIWAE(4, estimator=estimator)}
    system = lex(x.shape[1], classes=2, **given, **SMALL)
    refused(r"LeaveOneOut\(\)", fit, system, (x, y), **QUICK)
    with program_settings(validate=True), pytest.raises(ValueError, match="no gradient in x"):
        predictor = grown_fast(x, 2)
        predictor(x.clone().requires_grad_())


def test_values_in_the_place_of_gaps_are_refused() -> None:
    x, _, _ = table(10, 0)
    with pytest.raises(ValueError, match=r"GapImputer\(\)"):
        lex(x.shape[1], classes=2, predictor=grown_fast(x, 2), imputer=ConstantImputer(), **SMALL)


def test_a_loader_is_refused() -> None:
    x, y, _ = table(100, 0)
    rows = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=50)
    system = lex(x.shape[1], classes=2, folds=1, predictor=grown_fast(x, 2), **SMALL)
    refused("loader", fit, system, rows, valid=None, **QUICK)
