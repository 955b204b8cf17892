"""After the cross-fitted fit: masks go on, and predictors stay as they are."""

import pytest
import torch

from lexppl.choices.settings import EITHER, NETWORK, TREES
from lexppl.inference import FitResult, System, fit
from lexppl.models import Grouping, tree_predictor
from lexppl.systems import lex, real_x
from lexppl.tabular.encoded_rows import EncodedRows
from lexppl.tabular.fit_plan import plan_for
from lexppl.tabular.settling import with_settling
from lexppl.tabular.table_fit import fit_table

pytestmark = pytest.mark.filterwarnings("ignore::lexppl.inference.CollapseWarning")

X = torch.randn(300, 4, generator=torch.Generator().manual_seed(0))
NOTHING = (torch.rand(300, generator=torch.Generator().manual_seed(1)) < 0.5).long()
SMALL = {"hidden": (16,), "predictor_hidden": (16,)}
TRAINING = {
    "epochs": 60,
    "batch_size": 50,
    "learning_rate": 1e-2,
    "progress": False,
    "seed": 3,
    "replicates": 2,
}


def fitted(system: System, y: torch.Tensor = NOTHING) -> FitResult:
    return fit(system, (X[:150], y[:150]), valid=(X[150:], y[150:]), **TRAINING)


def states(result: FitResult, part: str) -> list[torch.Tensor]:
    return [
        value.clone()
        for model in result.models
        for value in getattr(model, part).state_dict().values()
    ]


def kept(result: FitResult) -> torch.Tensor:
    """Selection probabilities, the mean over replicates and rows, `(G,)`."""
    with torch.no_grad():
        each: list[torch.Tensor] = [model.selector(X).mean for model in result.models]
    return torch.stack(each).mean((0, 1))


@pytest.mark.complete
def test_masks_of_noise_settle_where_one_stage_leaves_them_where_they_began() -> None:
    """Of labels that nothing tells predictors are best early, while the annealing holds masks."""
    system = lex(4, classes=2, penalty=0.02, **SMALL)
    before, after = fitted(system), fitted(with_settling(system))
    assert float(kept(before).min()) > 0.4
    assert float((kept(before) - kept(after)).min()) > 0.2
    for one, other in zip(states(before, "predictor"), states(after, "predictor"), strict=True):
        assert torch.equal(one, other)
    assert after.history.stage.tolist() == [0] * 60 + [1] * 30
    assert (after.best_epoch >= 60).all()


@pytest.mark.complete
def test_what_is_worth_more_than_the_penalty_stays() -> None:
    labels = (X[:, 0] > 0).long()
    found = kept(fitted(with_settling(lex(4, classes=2, penalty=0.02, **SMALL)), labels))
    assert float(found[0]) > 0.9
    assert float(found[1:].max()) < 0.2


def test_the_second_stage_has_the_whole_penalty_and_no_annealing() -> None:
    first, second = with_settling(lex(4, classes=2, penalty=0.02, **SMALL)).build()
    (learned,), (selects,) = first.terms, second.terms
    assert selects.model is learned.model
    assert selects.learns == [learned.model.selector]
    began = learned.objective.at(0.0).spec
    assert (began.entropy, began.penalty) == (0.1, 0.0)
    for progress in (0.0, 0.5):
        goes_on = selects.objective.at(progress).spec
        assert (goes_on.entropy, goes_on.penalty, goes_on.masks) == (0.0, 1.0, began.masks)
    assert selects.objective.estimator is learned.objective.estimator


@pytest.mark.parametrize(
    "system",
    [
        lex(4, classes=2, k=2, **SMALL),
        lex(4, classes=2, penalty=0.02, folds=1, **SMALL),
        real_x(4, classes=2, hidden=(4,)),
        lex(4, classes=2, predictor=tree_predictor(X, 2, trees=2)),
    ],
    ids=["nothing is paid for", "not cross-fitted", "two programs", "trees"],
)
def test_others_are_left_as_they_are(system: System) -> None:
    state = torch.get_rng_state()
    assert with_settling(system) is system
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("predictor", "stages"), [(EITHER, [0, 1]), (NETWORK, [0, 1]), (TREES, [0])]
)
def test_a_table_by_networks_settles(predictor: str, stages: list[int]) -> None:
    names = ("a", "b", "c", "d")
    rows = EncodedRows(
        (X[:150], NOTHING[:150]),
        (X[150:], NOTHING[150:]),
        Grouping([0, 1, 2, 3], names),
        names,
        ("no", "yes"),
    )
    plan = plan_for(150, 4, penalty=0.02, predictor=predictor, epochs=3, hidden=(8,), bootstrap=2)
    result = fit_table(plan, rows, progress=False).result
    assert sorted(set(result.history.stage.tolist())) == stages
