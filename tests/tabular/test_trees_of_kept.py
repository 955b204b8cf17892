"""Boosted trees of what an explainer keeps: taken where validation rows say so, of every fit."""

import copy
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from lexppl.choices.settings import AUTO_PREDICTOR, NETWORK, TREES
from lexppl.evaluation import Folds, predictive_log_likelihood
from lexppl.explanation import explain, mask_means
from lexppl.inference import FitResult, fit
from lexppl.models import GapImputer, Grouping
from lexppl.models.trees.tree_predictor import TreePredictor
from lexppl.systems import lex
from lexppl.systems.fit_plan import plan_for
from lexppl.tabular import predictors
from lexppl.tabular.encoded_rows import EncodedRows
from lexppl.tabular.predictors import says_more, trees_where_better
from lexppl.tabular.table_fit import fit_table

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
