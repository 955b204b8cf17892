"""What `fit` chooses by the rows, where a system leaves it open, is as if it had been given."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lexppl.inference import ReplicateData, TrainingOptions, entropy_unit, fit
from lexppl.models import (
    CopulaImputer,
    GapImputer,
    GaussianImputer,
    Grouping,
    MarginalImputer,
    tree_predictor,
)
from lexppl.models.architectures.base import TableArchitecture
from lexppl.systems import lex
from lexppl.systems.fit_plan import plan_for
from lexppl.tabular.encoded_rows import EncodedRows
from lexppl.tabular.table_fit import fit_table

X = torch.randn(120, 3, generator=torch.Generator().manual_seed(0))
RARE = (X[:, 0] > 1.0).long()
THREE = (X[:, 0] > 0.0).long() + (X[:, 1] > 1.0).long()
SHARES = torch.stack([0.2 + 0.6 * RARE, 0.8 - 0.6 * RARE], 1)
WEIGHTS = torch.rand(120, generator=torch.Generator().manual_seed(1))
QUICK = {"epochs": 2, "progress": False}


def small(classes=2, **options):
    return lex(3, classes=classes, hidden=(4,), predictor_hidden=(4,), **options)


def widths(module):
    return [part.out_features for part in module.modules() if isinstance(part, nn.Linear)]


def are_the_same(one, other):
    pairs = zip(one.models, other.models, strict=True)
    return all(
        torch.equal(value, b.state_dict()[name])
        for a, b in pairs
        for name, value in a.state_dict().items()
    )


@pytest.mark.parametrize("masks", [{}, {"k": 1}, {"penalty": (0.01, 0.1)}], ids=str)
@pytest.mark.parametrize(
    "y, classes", [(RARE, 2), (THREE, 3), (SHARES, 2)], ids=["rare", "three", "shares"]
)
def test_the_unit_is_that_of_the_labels(y, classes, masks):
    unit = entropy_unit(y, classes)
    assert abs(unit - 1.0) > 0.1
    chosen, given, of_one = (
        fit(small(classes, **masks, **unit), (X, y), **QUICK)
        for unit in ({}, {"unit": unit}, {"unit": 1.0})
    )
    assert are_the_same(chosen, given)
    assert not are_the_same(chosen, of_one)


def test_the_unit_is_of_rows_as_often_as_they_stand_in_the_sample():
    unit = entropy_unit(RARE, 2, WEIGHTS)
    several = {**QUICK, "sample_weight": WEIGHTS, "replicates": 2}
    chosen, given = (fit(small(**u), (X, RARE), **several) for u in ({}, {"unit": unit}))
    assert are_the_same(chosen, given)


def test_systems_of_another_type_and_several_choose_too():
    unit = entropy_unit(RARE, 2)
    pairs = [
        [small(**u).to(torch.float64) for u in ({}, {"unit": unit})],
        [[small(penalty=p, **u) for p in (0.01, 0.02)] for u in ({}, {"unit": unit})],
    ]
    for (chosen, given), x in zip(pairs, (X.double(), X), strict=True):
        assert are_the_same(*(fit(one, (x, RARE), **QUICK) for one in (chosen, given)))


def test_data_of_each_replicate_have_the_unit_of_them_all():
    data = ReplicateData([(X, RARE), (X, THREE.clamp(max=1))])
    unit = entropy_unit(torch.cat([RARE, THREE.clamp(max=1)]), 2)
    chosen, given = (fit(small(**u), data, **QUICK) for u in ({}, {"unit": unit}))
    assert are_the_same(chosen, given)


def test_responses_loaders_and_programs_have_the_unit_of_one():
    loader = DataLoader(TensorDataset(X, RARE), 40)
    for data, classes in (((X, X[:, 0]), None), (loader, 2)):
        how = {**QUICK, "valid": None}
        chosen, of_one = (
            fit(small(classes, folds=1, **u), data, **how) for u in ({}, {"unit": 1.0})
        )
        assert are_the_same(chosen, of_one)
    assert float(small().program().penalties[0].weight) == 0.02


NAMED = Grouping(range(3), ["a", "b", "c"])
DEPENDENT = torch.stack([X[:, 0], X[:, 0] + 0.1 * X[:, 1], X[:, 2]], 1)


@pytest.mark.parametrize("x, imputer", [(X, MarginalImputer), (DEPENDENT, CopulaImputer)], ids=str)
@pytest.mark.parametrize("masks", [{}, {"k": 1}], ids=str)
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["alike", "weights"])
def test_a_method_is_the_same_in_python_and_at_the_command_line(x, imputer, masks, weights):
    """The same bits as the plan of a table: λ, widths, imputer, batches, rates, decay, epoch."""
    plan = plan_for(120, 3, unit=entropy_unit(RARE, 2, weights), seed=5, epochs=2, **masks)
    pair = None if weights is None else (weights, None)
    rows = EncodedRows((x, RARE), None, NAMED, NAMED.names, ("no", "yes"), pair)
    planned = fit_table(plan, rows).result
    how = {**QUICK, "seed": 5, "valid": None, "sample_weight": weights}
    chosen = fit(lex(3, classes=2, **masks), (x, RARE), **how)
    assert are_the_same(chosen, planned)
    assert type(chosen.model.imputer) is imputer
    if not masks:
        assert chosen.model.selector.penalty == planned.model.selector.penalty
    np.testing.assert_array_equal(chosen.history.train, planned.history.train)


def test_epochs_batches_and_the_validation_share_are_by_the_rows():
    """Of 120 rows a third a batch; a fifth apart where the best epoch of one λ is chosen, and none
    where one fit is of every λ, which ends with its last epoch."""
    every = fit(
        lex(3, classes=2),
        (X, RARE),
        progress=False,
        training=TrainingOptions(callbacks=[lambda epoch: True]),
    )
    selector = every.model.selector
    assert every.rows == (120, 0) and selector.low < selector.penalty < selector.high
    assert widths(selector) == [64, 64, 9]
    for masks in ({"penalty": 0.02}, {"k": 1}):
        stop = TrainingOptions(callbacks=[lambda epoch: True])
        ended = fit(small(**masks), (X, RARE), progress=False, training=stop)
        assert ended.rows == (96, 24)
        plan = plan_for(96, 3, unit=entropy_unit(RARE, 2), one_penalty=True, **masks)
        assert ended.steps == len(ended.history) * math.ceil(96 / plan.batch_size)


def test_what_is_given_is_never_chosen():
    given = {"hidden": (4,), "predictor_hidden": (5,), "imputer": GaussianImputer(), "penalty": 0.1}
    seen = []
    how = {**QUICK, "batch_size": 17, "valid": (X, RARE)}
    result = fit(
        *(lex(3, classes=2, **given), (X, RARE)),
        **how,
        training=TrainingOptions(callbacks=[lambda epoch: seen.append(epoch.number) or False]),
    )
    assert widths(result.model.selector) == [4, 3]
    assert type(result.model.imputer) is GaussianImputer
    assert float(result.model.penalties[0].weight) == pytest.approx(0.1)
    assert seen == [0, 1] and result.steps == 2 * 8
    of_gaps = fit(lex(3, classes=2, predictor=tree_predictor(X, classes=2)), (X, RARE), **QUICK)
    assert type(of_gaps.model.imputer) is GapImputer


def test_a_range_of_penalties_of_a_user_has_its_best_epoch():
    result = fit(small(penalty=(0.01, 0.1)), (X, RARE), **QUICK)
    assert result.rows == (96, 24)
    assert result.model.selector.penalty == pytest.approx(0.001**0.5)


def test_architectures_and_loaders_are_as_the_factory_states_them():
    loader = DataLoader(TensorDataset(X, RARE), 40)
    networks = lex(TableArchitecture(3, (4,), (4,)), classes=2)
    for system, data in ((small(folds=1), loader), (networks, (X, RARE))):
        result = fit(system, data, valid=None, **QUICK)
        assert type(result.model.imputer) is GaussianImputer
        assert not hasattr(result.model.selector, "low")
