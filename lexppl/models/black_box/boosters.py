"""Boosted trees of XGBoost and LightGBM as black boxes: what their wrappers know of a table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pandas as pd

from lexppl.data.listing import listed

_NUMBERED = re.compile(r"Column_\d+")
"""What LightGBM calls the columns of an array."""
_AS_CATEGORIES = (
    "write the table as Parquet from a frame in which these columns are categories "
    "(astype('category') as in the model's own fit), or give a pipeline that makes them so"
)


def refuse_raw_booster(model: Any) -> None:
    """Refuse a booster without its scikit-learn wrapper, which alone says what it predicts.

    Raises:
        ValueError: a raw booster of XGBoost or LightGBM.
    """
    library = type(model).__module__.split(".", maxsplit=1)[0]
    wrappers = {"xgboost": "XGB", "lightgbm": "LGBM"}
    if type(model).__name__ != "Booster" or library not in wrappers:
        return
    start = wrappers[library]
    raise ValueError(
        f"the black box is a raw Booster of {library}, which takes matrices of its own and does "
        f"not say what it predicts: give the fitted {start}Classifier or {start}Regressor that "
        "holds it, or a class of your own with predict_proba or predict that asks it"
    )


def fitted_names(estimator: Any) -> list[str] | None:
    """Names of the columns that an estimator was fitted on; None where it knows none.

    Example:
        >>> from sklearn.linear_model import LinearRegression
        >>> frame = pd.DataFrame({"dose": [1.0, 2.0]})
        >>> fitted_names(LinearRegression().fit(frame, [1.0, 2.0]))
        ['dose']
    """
    known = getattr(estimator, "feature_names_in_", None)
    if known is None:
        return None
    names = [str(name) for name in known]
    return None if all(_NUMBERED.fullmatch(name) for name in names) else names


def columns_by_name(table: pd.DataFrame, known: Sequence[str], name: str) -> pd.DataFrame:
    """The columns of a table that an estimator was fitted on, under the names that it knows.

    Names that differ in spaces and signs alone are taken for one, as LightGBM writes `blood_type`
    for `blood type`, and as its users take out the signs that it and XGBoost refuse.

    Args:
        table: with these columns and perhaps others.
        known: the names.
        name: of the estimator, in errors.

    Raises:
        ValueError: columns that the table lacks, or has twice but for spaces and signs.

    Example:
        >>> table = pd.DataFrame({"blood type": ["A"], "age": [40]})
        >>> columns_by_name(table, ["age", "blood_type"], "LGBMClassifier").columns.tolist()
        ['age', 'blood_type']
    """
    given = {str(column): column for column in table.columns}
    plain: dict[str, list[str]] = {}
    for column in given:
        plain.setdefault(_plain(column), []).append(column)
    chosen, lacking = [], []
    for wanted in known:
        like = [wanted] if wanted in given else plain.get(_plain(wanted), [])
        if len(like) == 1:
            chosen.append(given[like[0]])
        else:
            lacking.append(wanted)
    if lacking:
        raise ValueError(
            f"the black box {name} was fitted on columns that the table lacks: "
            f"{listed(lacking)}; it has {listed(table.columns)}"
        )
    return table[chosen].set_axis(list(known), axis=1)


def with_categories(estimator: Any, table: pd.DataFrame) -> pd.DataFrame:
    """A table whose columns of categories are as boosted trees of XGBoost or LightGBM saw them.

    LightGBM keeps the categories of each such column, in the order of the columns; XGBoost keeps
    which columns they are and, from 3.1 on, their categories. Other estimators get the table as it
    is.

    Args:
        estimator: fitted.
        table: its columns, in their order.

    Raises:
        ValueError: columns of categories that cannot be told, or levels that are none of them.
    """
    booster = getattr(estimator, "booster_", None)
    kept = getattr(booster, "pandas_categorical", None)
    if kept:
        return _of_lightgbm(type(estimator).__name__, table, kept)
    if hasattr(estimator, "get_booster"):
        return _of_xgboost(type(estimator).__name__, table, estimator.get_booster())
    return table


def _of_lightgbm(name: str, table: pd.DataFrame, kept: Sequence[Sequence[Any]]) -> pd.DataFrame:
    words = [column for column in table.columns if _is_words(table[column])]
    if len(words) != len(kept):
        raise ValueError(
            f"the black box {name} was fitted with {len(kept)} columns of categories, and the "
            f"table has {len(words)} of words ({listed(words)}), so that it cannot be told which "
            f"they are: {_AS_CATEGORIES}"
        )
    found = {}
    for column, categories in zip(words, kept, strict=True):
        cells = table[column]
        known = {str(category): category for category in categories}
        unknown = [str(v) for v in cells.dropna().unique() if str(v) not in known]
        if len(unknown) == cells.nunique():
            raise ValueError(
                f"the black box {name} was fitted with the categories {listed(known)} in its "
                f"column {str(column)!r}, and the table has none of them there, but "
                f"{listed(unknown)}"
            )
        # As in its own prediction, a level that it does not know is missing.
        values = cells.map(lambda v, known=known: known.get(str(v)), na_action="ignore")
        found[column] = pd.Categorical(values, categories=list(categories))
    return table.assign(**found)


def _of_xgboost(name: str, table: pd.DataFrame, booster: Any) -> pd.DataFrame:
    kinds = getattr(booster, "feature_types", None) or []
    coded = [column for column, kind in zip(table.columns, kinds, strict=False) if kind == "c"]
    plain = [c for c in coded if not isinstance(table[c].dtype, pd.CategoricalDtype)]
    if not plain:
        return table
    if not hasattr(booster, "get_categories"):
        raise ValueError(
            f"the black box {name} was fitted with the categories of {listed(plain)}, and XGBoost "
            f"before 3.1 does not keep them: {_AS_CATEGORIES}"
        )
    return table.astype(dict.fromkeys(plain, "category"))


def _is_words(cells: pd.Series) -> bool:
    if isinstance(cells.dtype, pd.CategoricalDtype):
        return True
    return not (
        pd.api.types.is_numeric_dtype(cells.dtype) or pd.api.types.is_bool_dtype(cells.dtype)
    )


def _plain(name: str) -> str:
    """A name without spaces and signs; of signs alone as it is."""
    return re.sub(r"[\W_]+", "", name).casefold() or name
