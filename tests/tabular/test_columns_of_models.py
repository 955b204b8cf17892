"""Columns of a table as other libraries' models know them: by their names and their categories."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV

from lexppl.tabular.given_model import box_of_table
from tests.refusals import over, refused

DRAW = np.random.default_rng(0)
ROWS = 300
NUMBERS = DRAW.normal(size=(ROWS, 2))
ABOVE = (NUMBERS[:, 0] > 0).astype(int)


def lightgbm(**options):
    return pytest.importorskip("lightgbm").LGBMClassifier(
        n_estimators=5, verbose=-1, n_jobs=1, **options
    )


def xgboost(**options):
    return pytest.importorskip("xgboost").XGBClassifier(
        n_estimators=5, n_jobs=1, enable_categorical=True, **options
    )


def catboost(**options):
    return pytest.importorskip("catboost").CatBoostClassifier(
        iterations=5, verbose=0, allow_writing_files=False, thread_count=1, **options
    )


def outputs(model, table):
    box, x = box_of_table(model, table, classes=[0, 1])
    return box.targets(x).numpy()


@over(
    (["mean radius", "worst area"], None),
    (["ä b", "c  d "], None),
    (["a\tb", "x y"], None),
    (["share (%)", "dose [mg]"], ["share____", "dose__mg_"]),
    (['size "big"', "a,b:{c}"], ["size__big_", "a_b__c_"]),
)
def test_lightgbms_names_are_those_of_the_table(names, written):
    table = pd.DataFrame(NUMBERS, columns=names)
    model = lightgbm().fit(table if written is None else table.set_axis(written, axis=1), ABOVE)
    expected = model.predict_proba(NUMBERS)
    for given in (model, model.booster_, FrozenEstimator(model)):
        # The order of the table's columns is not that of the model.
        found = outputs(given, table.assign(other=1.0)[[names[1], "other", names[0]]])
        np.testing.assert_allclose(found, expected, atol=1e-7)


def test_names_that_other_libraries_refuse():
    names = ["mean (mm) [x]", "a<b"]
    table = pd.DataFrame(NUMBERS, columns=names)
    for written in (["mean (mm) _x_", "a_b"], ["mean__mm___x_", "a_b"]):
        model = xgboost().fit(table.set_axis(written, axis=1), ABOVE)
        np.testing.assert_allclose(outputs(model, table), model.predict_proba(NUMBERS), atol=1e-6)


def test_columns_that_would_be_one_are_refused_by_name():
    model = lightgbm().fit(pd.DataFrame(NUMBERS, columns=["a b", "c"]), ABOVE)
    for others in (["a_b"], ["a\tb"]):
        table = pd.DataFrame(NUMBERS, columns=["a b", "c"])
        both = table.assign(**{name: 0.0 for name in others})
        if others == ["a\tb"]:
            # Both are the name of the model by some rule, and neither is its name.
            both = both.rename(columns={"a b": "a-b"})
        refused(r"columns 'a.*b', 'a.*b' are one to the black box LGBM", outputs, model, both)
    with pytest.raises(ValueError, match="lacks: 'a_b'; it has 'a', 'c'"):
        outputs(model, pd.DataFrame(NUMBERS, columns=["a", "c"]))
    # Names that a model tells apart are two columns.
    exact = pd.DataFrame(NUMBERS, columns=["a b", "a_b"])
    own = LogisticRegression().fit(exact, ABOVE)
    np.testing.assert_allclose(outputs(own, exact[["a_b", "a b"]]), own.predict_proba(exact))


def test_catboost_reads_columns_by_name_and_arrays_by_place():
    table = pd.DataFrame(NUMBERS, columns=["a", "b"])
    named, by_place = catboost().fit(table, ABOVE), catboost().fit(NUMBERS, ABOVE)
    np.testing.assert_allclose(outputs(named, table[["b", "a"]]), named.predict_proba(table))
    np.testing.assert_allclose(outputs(by_place, table), by_place.predict_proba(NUMBERS))


def with_categories(values, **options):
    cells = DRAW.choice(np.array(values, dtype=object), ROWS)
    return pd.DataFrame(
        {
            "size": NUMBERS[:, 0],
            "job": pd.Categorical(cells, **options),
            "other": pd.Categorical(DRAW.choice(["u", "v"], ROWS)),
        }
    )


KINDS = {
    "words": (["clerk", "smith", "cook"], {}),
    "numbers": ([10, 20, 5], {}),
    "words that are numbers": (["10", "20", "5"], {}),
    "halves": ([0.5, 1.0, 2.0], {}),
    "ordered": (["low", "high", "mid"], {"categories": ["low", "mid", "high"], "ordered": True}),
    "booleans": ([True, False], {}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [lightgbm, xgboost, HistGradientBoostingClassifier])
def test_a_csv_of_a_models_categories(make, kind, tmp_path):
    if make is xgboost and kind in ("booleans", "halves"):
        pytest.skip("XGBoost is fitted on no such categories")
    values, options = KINDS[kind]
    table = with_categories(values, **options)
    y = ((table["job"] == values[0]) ^ (NUMBERS[:, 0] > 1)).astype(int)
    model = make() if make is not HistGradientBoostingClassifier else make(max_iter=5)
    expected = model.fit(table, y).predict_proba(table)
    assert np.ptp(expected[:, 1]) > 0.05
    table.to_csv(tmp_path / "t.csv", index=False)
    read = pd.read_csv(tmp_path / "t.csv")
    boosters = [getattr(model, "booster_", None), hasattr(model, "get_booster") and model]
    for given in (model, FrozenEstimator(model), *filter(None, boosters)):
        given = given.get_booster() if given is boosters[1] else given
        np.testing.assert_allclose(
            outputs(given, read[["other", "job", "size"]]), expected, atol=1e-6
        )
        np.testing.assert_allclose(outputs(given, table), expected, atol=1e-6)


def test_a_search_has_the_categories_of_its_best_model():
    table = with_categories(["a", "b"])
    y = (table["job"] == "a").astype(int)
    search = GridSearchCV(lightgbm(), {"num_leaves": [3]}, cv=2).fit(table, y)
    words = table.astype({"job": str, "other": str})
    np.testing.assert_allclose(outputs(search, words), search.predict_proba(table))


@pytest.mark.parametrize("make", [lightgbm, xgboost])
def test_words_that_are_no_categories_are_refused_by_column(make):
    table = with_categories(["a", "b"])
    model = make().fit(table, (table["job"] == "a").astype(int))
    words = table.astype({"job": str, "other": str})
    unseen = words.assign(job=["pilot", *words["job"][1:]])
    refused("'job' has category 'pilot', not seen in fit; known are 'a'", outputs, model, unseen)
    codes = table.assign(job=table["job"].cat.codes, other=table["other"].cat.codes)
    for given in (
        make().fit(codes, ABOVE),
        HistGradientBoostingClassifier(max_iter=2).fit(table[["size", "job"]], ABOVE),
    ):
        with pytest.raises(
            ValueError, match=r"no categories of columns '(job|size)'.*hold words: give the codes"
        ):
            outputs(given, words.assign(size="much"))


@pytest.mark.parametrize("values", [["a", "b"], ["1", "2"], [1, 2], [True, False]])
def test_catboost_reads_words_itself(values):
    table = pd.DataFrame({"size": NUMBERS[:, 0], "job": DRAW.choice(values, ROWS)})
    y = (table["job"] == values[0]).astype(int)
    model = catboost(cat_features=["job"]).fit(table, y) if values != [True, False] else None
    if model is None:
        model = catboost(cat_features=["job"]).fit(table.astype({"job": str}), y)
        table = table.astype({"job": str})
    np.testing.assert_allclose(outputs(model, table[["job", "size"]]), model.predict_proba(table))


def test_missing_cells_are_no_categories():
    table = with_categories(["a", "b"])
    model = lightgbm().fit(table, (table["job"] == "a").astype(int))
    words = table.astype({"job": str, "other": str})
    gaps = words.assign(job=words["job"].where(np.arange(ROWS) > 9))
    of_gaps = table.assign(job=table["job"].where(np.arange(ROWS) > 9))
    np.testing.assert_allclose(outputs(model, gaps), model.predict_proba(of_gaps))


def test_a_regressor_of_named_columns_is_asked_by_name():
    table = pd.DataFrame(NUMBERS, columns=["a", "b"])
    model = LinearRegression().fit(table, NUMBERS[:, 0])
    box, x = box_of_table(model, table[["b", "a"]], classes=None)
    np.testing.assert_allclose(box.targets(x), NUMBERS[:, 0], atol=1e-10)
