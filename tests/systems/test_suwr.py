"""SUWR, fitted: its masks do not depend on what they hide; LEX's with a constant imputer do."""

import pytest
import torch

from lexppl.data import synthetic
from lexppl.inference import TrainingOptions, fit
from lexppl.inference.contexts import seeded
from lexppl.inference.objective.objective import Linear
from lexppl.models import ConstantImputer
from lexppl.systems import lex, suwr
from tests.refusals import refused

ROWS = synthetic("S1", rows=300, seed=0)
NEW = synthetic("S1", rows=400, seed=1).x
OTHER = synthetic("S1", rows=400, seed=2).x
SMALL = {"classes": 2, "hidden": (16,), "predictor_hidden": (16,)}


def fitted(name):
    if name == "suwr":
        made = suwr(11, penalty=0.01, **SMALL)
    else:
        made = lex(11, k=4, folds=1, imputer=ConstantImputer(0.0), **SMALL)
    result = fit(made, ROWS, valid=None, epochs=3, batch_size=50, seed=0, progress=False)
    return result.model.eval().selector


def of_masks(law, mask):
    return law.set_log_prob(mask) if hasattr(law, "set_log_prob") else law.log_prob(mask)


def change_of_the_law(selector):
    """Of the log-probability of each row's mask, when the features that it hides are those of
    another row."""
    with torch.no_grad(), seeded(0):
        drawn = selector(NEW).sample()
        mask = drawn.sum(-2) if drawn.dim() > NEW.dim() else drawn
        mixed = torch.where(mask == 1, NEW, OTHER)
        before, after = of_masks(selector(NEW), mask), of_masks(selector(mixed), mask)
    hides, tells = mask.sum(-1) < 11, mask.sum(-1) > 0
    assert int(hides.sum()) > 200
    assert int((hides & tells).sum()) > 100
    return (after - before).abs()[hides]


def test_its_masks_do_not_depend_on_what_they_hide():
    assert float(change_of_the_law(fitted("suwr")).max()) == 0.0


def test_exploring_wears_no_policy_away():
    """Where all is at random the policy learns nothing, and weight decay must not move it."""
    after = []

    def keep(epoch):
        after.append(epoch.snapshot())
        return len(after) == 4

    # Two of forty epochs are at random.
    options = {"epochs": 40, "batch_size": 50, "valid": None, "weight_decay": 0.1}
    options |= {"seed": 0, "progress": False, "training": TrainingOptions(callbacks=[keep])}
    fit(suwr(11, schedule="published", **SMALL), ROWS, **options)

    def moves(part, first, last):
        return [
            not torch.equal(value, after[last][name])
            for name, value in after[first].items()
            if part in name
        ]

    assert len(moves("selector", 0, 1)) == 4
    assert not any(moves("selector", 0, 1))
    assert all(moves("selector", 1, 3))
    assert all(moves("predictor", 0, 1))


def test_its_shares_of_the_fit():
    (stage,) = suwr(11, classes=2, schedule="published").build()
    (term,) = stage.terms
    assert term.objective.penalty == Linear(0.0, 1.0, 0.05, 0.1)
    assert (term.model.selector.explore, term.model.selector.explore_stop) == (0.05, 0.1)
    assert term.objective.at(0.0).spec.entropy == 0.0


def test_the_schedules_are_those_of_its_docstring():
    """Annealed: β and c at shares of the fit, and a predictor that learns from two kinds of
    masks."""
    (stage,) = suwr(11, classes=2).build()
    choose, predict = stage.terms
    assert choose.model.selector.explore is None
    assert predict.learns == [choose.model.predictor]
    assert type(predict.model.selector).__name__ == "RandomSelector"
    found = {
        t: (choose.objective.at(t).spec.entropy, choose.objective.at(t).spec.penalty)
        for t in (0.0, 0.3, 0.45, 0.6, 0.7, 1.0)
    }
    wanted = {
        0.0: (0.05, 0.0),
        0.3: (0.05 - 0.048 * 3 / 7, 0.0),
        0.45: (0.05 - 0.048 * 4.5 / 7, 0.5),
        0.6: (0.05 - 0.048 * 6 / 7, 1.0),
        0.7: (0.002, 1.0),
        1.0: (0.002, 1.0),
    }
    for t, pair in wanted.items():
        assert found[t] == pytest.approx(pair, abs=1e-12)
    assert choose.objective.spec.towards == 0.9
    (alone,) = suwr(11, classes=2, schedule="constant").build()
    (term,) = alone.terms
    assert term.model.selector.explore is None
    assert (term.objective.at(0.0).spec.entropy, term.objective.at(0.0).spec.penalty) == (0.0, 1.0)


def test_an_unknown_schedule_is_refused():
    refused("schedule must be one of", suwr, 11, classes=2, schedule="fast")


@pytest.mark.smoke
def test_those_of_lex_with_a_constant_imputer_do():
    changed = change_of_the_law(fitted("lex"))
    assert float((changed > 1e-3).float().mean()) > 0.9
