"""After the cross-fitted fit: one predictor of all rows, and the same masks."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from lexppl.evaluation import predictive_log_likelihood
from lexppl.explanation import explain, mask_means
from lexppl.inference import CrossFitted, FitResult, fit
from lexppl.inference.batches import TensorRows
from lexppl.inference.training.rows.row_weights import DIRICHLET, RowWeighting
from lexppl.models import Grouping
from lexppl.systems import lex, real_x
from lexppl.tabular import final_predictor
from lexppl.tabular.encoded_rows import EncodedRows
from lexppl.tabular.final_predictor import with_predictor_of_all_rows
from lexppl.tabular.fit_plan import plan_for

pytestmark = pytest.mark.filterwarnings("ignore::lexppl.inference.CollapseWarning")

TRAINING = {"epochs": 30, "batch_size": 50, "learning_rate": 1e-2, "progress": False, "seed": 3}
PLAN = plan_for(120, 3, penalty=0.01, epochs=30, seed=3)


@pytest.fixture(scope="module")
def rows() -> EncodedRows:
    x = torch.randn(360, 3, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] + 0.5 * x[:, 1] > 0).long()
    names = ("a", "b", "c")
    grouping = Grouping([0, 1, 2], names)
    return EncodedRows((x[:120], y[:120]), (x[120:], y[120:]), grouping, names, ("no", "yes"))


@pytest.fixture(scope="module")
def fitted(rows: EncodedRows) -> FitResult:
    system = lex(3, classes=2, penalty=0.01, hidden=(8,), predictor_hidden=(8,))
    return fit(system, rows.train, valid=rows.valid, replicates=2, bootstrap=2, **TRAINING)


def states(models: list, part: str) -> list:
    return [{n: p.clone() for n, p in getattr(m, part).state_dict().items()} for m in models]


@pytest.mark.complete
def test_the_masks_stay_and_the_prediction_is_better(rows: EncodedRows, fitted: FitResult) -> None:
    result, x = copy.deepcopy(fitted), rows.valid[0]
    before = predictive_log_likelihood(fitted, *rows.valid, seed=1).mean(1)
    found = with_predictor_of_all_rows(result, PLAN, rows, TRAINING)
    assert found is result and not found.interrupted
    for own, other in ((found, fitted), (found.bootstrap, fitted.bootstrap)):
        assert not any(isinstance(model.predictor, CrossFitted) for model in own.models)
        pairs = zip(states(own.models, "selector"), states(other.models, "selector"), strict=True)
        assert all(torch.equal(one[n], two[n]) for one, two in pairs for n in one)
        assert all(p.requires_grad for m in own.models for p in m.selector.parameters())
        assert [type(p).__name__ for p in own.models[0].penalties] == ["SizePenalty"]
    masks = [mask_means(explain(one, x, draws=1, seed=2)).values for one in (found, fitted)]
    np.testing.assert_array_equal(*masks)
    after = predictive_log_likelihood(found, *rows.valid, seed=1).mean(1)
    # Chosen by these rows, of which it has seen twice as many as either that is averaged.
    assert bool((after > before).all())


def test_the_mean_stays_where_validation_rows_say_no_more(
    rows: EncodedRows, fitted: FitResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def no_more(other, one, *valid):
        asked.append((other.models, one.models))
        return False, -0.5, -0.5

    monkeypatch.setattr(final_predictor, "says_more", no_more)
    result = copy.deepcopy(fitted)
    predictors = [m.predictor for m in (*result.models, *result.bootstrap.models)]
    found = with_predictor_of_all_rows(result, PLAN, rows, TRAINING)
    assert found is result and not found.interrupted
    kept = [m.predictor for m in (*found.models, *found.bootstrap.models)]
    assert all(one is two for one, two in zip(kept, predictors, strict=True))
    ((others, own),) = asked
    assert len(others) == len(own) == 2
    assert not any(isinstance(model.predictor, CrossFitted) for model in others)
    monkeypatch.undo()
    none = replace(rows, valid=None)
    assert with_predictor_of_all_rows(result, PLAN, none, TRAINING) is result
    assert all(isinstance(model.predictor, CrossFitted) for model in result.models)


def test_one_mask_a_row_is_enough(
    rows: EncodedRows, fitted: FitResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that draws masks learns, so that no draw is judged by another."""
    monkeypatch.setattr(final_predictor, "says_more", lambda *_: (True, 0.0, 0.0))
    plan, training = replace(PLAN, masks=None), {**TRAINING, "epochs": 1}
    found = with_predictor_of_all_rows(copy.deepcopy(fitted), plan, rows, training)
    assert not any(isinstance(model.predictor, CrossFitted) for model in found.models)


def test_each_fit_has_the_weights_that_it_had(
    rows: EncodedRows, fitted: FitResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def watched(models, train, **settings):
        seen.append(settings["row_weights"])
        return fit(models, train, **settings)

    monkeypatch.setattr(final_predictor, "fit", watched)
    with_predictor_of_all_rows(copy.deepcopy(fitted), PLAN, rows, TRAINING)
    (weights,) = seen
    assert weights.shape == (4, 120)
    assert torch.equal(weights[:2], torch.ones(2, 120))
    drawn = RowWeighting.of(DIRICHLET, TensorRows(rows.train), 4, seed=3, plain=2).weights
    torch.testing.assert_close(
        weights[2:] / weights[2:].sum(1, keepdim=True), drawn[2:] / drawn[2:].sum(1, keepdim=True)
    )
    torch.testing.assert_close(weights.sum(1), torch.full((4,), 120.0))


def test_the_fit_itself_draws_these_weights(
    rows: EncodedRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    settled = RowWeighting.settled

    def watched(self, given):
        found.append(self.weights)
        return settled(self, given)

    monkeypatch.setattr(RowWeighting, "settled", watched)
    system = lex(3, classes=2, penalty=0.01, hidden=(4,), predictor_hidden=(4,))
    result = fit(
        system, rows.train, valid=rows.valid, replicates=2, bootstrap=2, **{**TRAINING, "epochs": 1}
    )
    own = final_predictor.drawn_weights(result, result.bootstrap, rows)
    (drawn,) = found
    torch.testing.assert_close(own, drawn * 120.0 / drawn.sum(1, keepdim=True))


@pytest.mark.parametrize(
    "system",
    [
        lex(3, classes=2, penalty=0.01, folds=1, hidden=(4,), predictor_hidden=(4,)),
        real_x(3, classes=2, hidden=(4,), predictor_hidden=(4,)),
    ],
)
def test_others_stay_as_they_are(rows: EncodedRows, system) -> None:
    folds = {"folds": 2} if len(system.build()) > 1 else {}
    result = fit(system, rows.train, valid=rows.valid, **{**TRAINING, "epochs": 1}, **folds)
    before = list(map(id, (m.predictor for m in result.models)))
    found = with_predictor_of_all_rows(result, PLAN, rows, TRAINING)
    assert list(map(id, (m.predictor for m in found.models))) == before


def test_an_interrupted_fit_stays_as_it_is(rows: EncodedRows, fitted: FitResult) -> None:
    result = copy.deepcopy(fitted)
    result.interrupted = True
    found = with_predictor_of_all_rows(result, PLAN, rows, TRAINING)
    assert all(isinstance(model.predictor, CrossFitted) for model in found.models)


def test_interrupted_meanwhile(
    rows: EncodedRows, fitted: FitResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at_once(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(final_predictor, "fit", at_once)
    found = with_predictor_of_all_rows(copy.deepcopy(fitted), PLAN, rows, TRAINING)
    assert found.interrupted
    assert all(isinstance(model.predictor, CrossFitted) for model in found.models)
