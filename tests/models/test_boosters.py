"""What XGBoost and LightGBM know of a table, by stand-ins with their attributes, and by themselves
where they are installed."""

from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from lexppl.models import black_box
from lexppl.models.black_box.boosters import columns_by_name, fitted_names, with_categories
from lexppl.tabular.asked_model import asked_by_table, said_of_all

TABLE = pd.DataFrame(
    {
        "blood type": ["A", "B", "0", "A", "B", "0"] * 20,
        "age [years]": np.arange(120.0),
        "ward": ["x", "y"] * 60,
    }
)


def raw(library):
    kind = type("Booster", (), {"__module__": f"{library}.core", "predict": lambda self, x: x})
    return kind()


@pytest.mark.parametrize(
    ("library", "wrapper"), [("xgboost", "XGBClassifier"), ("lightgbm", "LGBMClassifier")]
)
def test_a_raw_booster_gets_one_line(library, wrapper):
    for ask in (lambda m: asked_by_table(m, TABLE, classes=["0", "1"]), black_box):
        with pytest.raises(ValueError, match=f"raw Booster of {library}.*fitted {wrapper} or"):
            ask(raw(library))


def test_an_object_that_only_predicts_is_a_regressor_whatever_scikit_learn_knows_of_it():
    model = SimpleNamespace(predict=lambda table: table["age [years]"].to_numpy() * 2)
    box, x = asked_by_table(model, TABLE, classes=None)
    assert torch.equal(box.targets(x), torch.arange(120).double() * 2)


def test_names_without_spaces_and_signs_are_matched():
    found = columns_by_name(TABLE, ["age_years", "blood_type"], "LGBMClassifier")
    assert found.columns.tolist() == ["age_years", "blood_type"]
    assert found["blood_type"].tolist() == TABLE["blood type"].tolist()
    # What is written as it stands goes before what is only like it.
    twice = TABLE.assign(blood_type="C")
    assert columns_by_name(twice, ["blood_type"], "m")["blood_type"].unique().tolist() == ["C"]
    with pytest.raises(ValueError, match="columns that the table lacks: 'bloodtype'"):
        columns_by_name(twice, ["bloodtype"], "m")
    with pytest.raises(ValueError, match="lacks: 'weight'; it has 'blood type'"):
        columns_by_name(TABLE, ["weight"], "m")


def test_lightgbms_numbered_columns_are_no_names():
    assert fitted_names(SimpleNamespace(feature_names_in_=["Column_0", "Column_1"])) is None
    assert fitted_names(SimpleNamespace(feature_names_in_=["Column_0", "age"])) == [
        "Column_0",
        "age",
    ]


def lightgbm_of(categories):
    return SimpleNamespace(booster_=SimpleNamespace(pandas_categorical=categories))


def test_lightgbms_categories_are_those_of_its_fit_in_their_order():
    found = with_categories(lightgbm_of([["B", "A"], ["y", "x"]]), TABLE)
    assert found["blood type"].cat.categories.tolist() == ["B", "A"]
    assert found["blood type"].cat.codes[:3].tolist() == [1, 0, -1]
    assert found["ward"].cat.codes[:2].tolist() == [1, 0]
    assert found["age [years]"].dtype == float
    with pytest.raises(ValueError, match=r"fitted with 1 columns of categories.*has 2 of words"):
        with_categories(lightgbm_of([["A", "B"]]), TABLE)
    with pytest.raises(ValueError, match=r"has none of them there, but 'A', 'B', '0'"):
        with_categories(lightgbm_of([["q"], ["x", "y"]]), TABLE)
    assert with_categories(lightgbm_of([]), TABLE) is TABLE


def xgboost_of(**booster):
    held = SimpleNamespace(feature_types=["c", "float", "c"], **booster)
    return SimpleNamespace(get_booster=lambda: held)


def test_xgboosts_categories_are_told_by_itself_or_not_at_all():
    found = with_categories(xgboost_of(get_categories=None), TABLE)
    assert [str(kind) for kind in found.dtypes] == ["category", "float64", "category"]
    with pytest.raises(ValueError, match=r"'blood type', 'ward', and XGBoost before 3.1 does not"):
        with_categories(xgboost_of(), TABLE)
    typed = TABLE.astype({"blood type": "category", "ward": "category"})
    assert with_categories(xgboost_of(), typed) is typed


def test_a_black_box_that_says_one_thing_is_told():
    same = torch.tensor([[0.3, 0.7]]).expand(5, 2)
    assert "the same of every row" in said_of_all(same, ["no", "yes"])
    assert said_of_all(torch.tensor([[0.3, 0.7], [0.7, 0.3]]), ["no", "yes"]) is None
    assert "the label 'yes'" in said_of_all(torch.tensor([[0.3, 0.7], [0.4, 0.6]]), ["no", "yes"])
    assert said_of_all(torch.tensor([1.0, 2.0]), None) is None


LABELS = (np.arange(120) // 3 % 2).astype(int)
TYPED = TABLE.astype({"blood type": "category", "ward": "category"})


@pytest.mark.skipif(find_spec("lightgbm") is None, reason="lightgbm is not installed")
def test_lightgbm():
    from lightgbm import LGBMClassifier

    frame = TYPED.rename(columns={"age [years]": "age years"})
    model = LGBMClassifier(n_estimators=5, min_child_samples=2, verbose=-1).fit(frame, LABELS)
    words = TABLE.rename(columns={"age [years]": "age years"})
    box, x = asked_by_table(model, words, classes=["0", "1"])
    np.testing.assert_allclose(box.targets(x).numpy(), model.predict_proba(frame), atol=1e-6)
    with pytest.raises(ValueError, match="raw Booster of lightgbm"):
        asked_by_table(model.booster_, words, classes=["0", "1"])


@pytest.mark.skipif(find_spec("xgboost") is None, reason="xgboost is not installed")
def test_xgboost():
    from xgboost import XGBClassifier

    frame = TYPED.rename(columns={"age [years]": "age"})
    model = XGBClassifier(n_estimators=5, enable_categorical=True).fit(frame, LABELS)
    words = TABLE.rename(columns={"age [years]": "age"})
    if hasattr(model.get_booster(), "get_categories"):
        box, x = asked_by_table(model, words, classes=["0", "1"])
        np.testing.assert_allclose(box.targets(x).numpy(), model.predict_proba(frame), atol=1e-6)
    with pytest.raises(ValueError, match="raw Booster of xgboost"):
        asked_by_table(model.get_booster(), words, classes=["0", "1"])
