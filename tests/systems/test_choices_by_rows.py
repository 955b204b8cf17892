"""What `fit` chooses by the rows, where a system leaves it open, is as if it had been given."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from lexppl.inference import ReplicateData, entropy_unit, fit
from lexppl.systems import lex

X = torch.randn(120, 3, generator=torch.Generator().manual_seed(0))
RARE = (X[:, 0] > 1.0).long()
THREE = (X[:, 0] > 0.0).long() + (X[:, 1] > 1.0).long()
SHARES = torch.stack([0.2 + 0.6 * RARE, 0.8 - 0.6 * RARE], 1)
WEIGHTS = torch.rand(120, generator=torch.Generator().manual_seed(1))
QUICK = {"epochs": 2, "progress": False}


def small(classes=2, **options):
    return lex(3, classes=classes, hidden=(4,), predictor_hidden=(4,), **options)


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
