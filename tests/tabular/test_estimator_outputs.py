"""Given models that are asked about a table: columns by name, responses, one answer for all."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from lexppl.tabular.estimator_outputs import asked_by_table, said_of_all

TABLE = pd.DataFrame({"ward": ["x", "y"] * 60, "age": np.arange(120.0), "dose": 1.0})


def model(names, columns=slice(None)):
    """An object with `predict` alone, the sum of its columns, fitted on columns of these names."""
    return SimpleNamespace(
        predict=lambda table: np.asarray(table)[:, columns].astype(float).sum(1),
        feature_names_in_=names,
    )


def test_an_object_that_only_predicts_is_a_regressor_whatever_scikit_learn_knows_of_it():
    asked = SimpleNamespace(predict=lambda table: table["age"].to_numpy() * 2)
    box, x = asked_by_table(asked, TABLE, classes=None)
    assert torch.equal(box.targets(x), torch.arange(120).double() * 2)
    with pytest.raises(ValueError, match="gives responses, which have no classes"):
        asked_by_table(asked, TABLE, classes=["0", "1"])


def test_columns_are_those_of_the_fit_in_its_order():
    box, x = asked_by_table(model(["dose", "age"], slice(1, None)), TABLE, classes=None)
    assert torch.equal(box.targets(x), torch.arange(120).double())
    with pytest.raises(ValueError, match="lacks: 'weight'; it has 'ward', 'age', 'dose'"):
        asked_by_table(model(["age", "weight"]), TABLE, classes=None)


def test_lightgbms_names_of_an_arrays_columns_are_no_names():
    numbers = TABLE[["age", "dose"]]
    box, x = asked_by_table(model(["Column_0", "Column_1"]), numbers, classes=None)
    assert torch.equal(box.targets(x), torch.arange(120).double() + 1)
    with pytest.raises(ValueError, match="lacks: 'Column_0'; it has 'age', 'dose'"):
        asked_by_table(model(["Column_0", "age"]), numbers, classes=None)


def test_a_black_box_that_says_one_thing_is_told():
    same = torch.tensor([[0.3, 0.7]]).expand(5, 2)
    assert "the same of every row" in said_of_all(same, ["no", "yes"])
    assert said_of_all(torch.tensor([[0.3, 0.7], [0.7, 0.3]]), ["no", "yes"]) is None
    assert "the label 'yes'" in said_of_all(torch.tensor([[0.3, 0.7], [0.4, 0.6]]), ["no", "yes"])
    assert said_of_all(torch.tensor([1.0, 2.0]), None) is None
