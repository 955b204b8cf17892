"""What a table can be predicted with that explains nothing: boosted trees, and a full network."""

import math

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from lexppl.data.columns import CategoricalColumn
from lexppl.data.divided_table import DividedTable
from lexppl.evaluation.prediction import predictive_log_likelihood
from lexppl.systems.fit_plan import plan_for
from lexppl.tabular.encoded_rows import EncodedRows
from lexppl.tabular.predictors import fit_full_predictor

MOST_LEVELS = 255
"""Of a category of `HistGradientBoosting`; a column of more enters as its codes."""


def codes(source: DividedTable, frame: pd.DataFrame) -> NDArray:
    """A table as numbers `(N, G)`, one column each: categories by the places of their levels."""
    columns = source.data.encoding.columns
    return np.stack([column.numbers(frame[column.name]).astype(float) for column in columns], 1)


def categories(source: DividedTable) -> list[int]:
    """Places of the columns that are categories."""
    return [
        place
        for place, column in enumerate(source.data.encoding.columns)
        if isinstance(column, CategoricalColumn) and len(column.levels) <= MOST_LEVELS
    ]


def boosting(source: DividedTable, x: NDArray, categorical: list[int], seed: int):
    """`HistGradientBoosting` on the rows that an explainer is fitted on, stopped early by those
    that choose its best epoch; at its own settings otherwise.

    Args:
        source: the table.
        x: all its rows as numbers.
        categorical: places of x's columns of codes.
        seed: of the fit.
    """
    labels = source.data.class_names is not None
    model = (HistGradientBoostingClassifier if labels else HistGradientBoostingRegressor)(
        categorical_features=categorical or None,
        early_stopping=source.valid_rows is not None,
        max_iter=1000 if source.valid_rows is not None else 100,
        random_state=seed,
    )
    y = source.data.y.numpy()
    judged = {}
    if source.valid_rows is not None:
        judged = {"X_val": x[source.valid_rows], "y_val": y[source.valid_rows]}
    return model.fit(x[source.train_rows], y[source.train_rows], **judged)


def boosting_likelihood(
    source: DividedTable, new: pd.DataFrame, y: torch.Tensor, seed: int
) -> NDArray:
    """`log p(y | x)` of new rows by boosted trees, `(N,)`: of responses normal about the
    prediction, with the standard deviation of the rows that stopped it.

    Args:
        source: the table.
        new: rows of its columns.
        y: what they observe, encoded.
        seed: of the fit.
    """
    x = codes(source, source.table)
    model = boosting(source, x, categories(source), seed)
    rows = codes(source, new)
    if source.data.class_names is not None:
        probability = model.predict_proba(rows)[np.arange(len(rows)), y.numpy()]
        return np.log(np.clip(probability, 1e-12, None))
    judged = source.train_rows if source.valid_rows is None else source.valid_rows
    residual = source.data.y.numpy()[judged] - model.predict(x[judged])
    spread = math.sqrt(float(np.square(residual).mean()))
    return norm.logpdf(y.numpy(), model.predict(rows), spread) - math.log(source.target_scale)


def network_likelihood(
    source: DividedTable, new: torch.Tensor, y: torch.Tensor, seed: int
) -> NDArray:
    """`log p(y | x)` of new rows by the full network that `lexppl explain` fits, `(N,)`.

    Args:
        source: the table.
        new: encoded rows.
        y: what they observe, encoded.
        seed: of the fit.
    """
    rows = EncodedRows.of(source.data, source.train_rows, source.valid_rows)
    plan = plan_for(len(source.train_rows), source.data.n_entries, seed=seed)
    full = fit_full_predictor(plan, rows).result
    each = predictive_log_likelihood(full, new, y, masks=1)[full.best]
    return each.double().numpy() - math.log(source.target_scale)


def against_others(
    own: NDArray,
    source: DividedTable,
    frame: pd.DataFrame,
    x: torch.Tensor,
    y: torch.Tensor,
    seed: int,
) -> dict[str, float]:
    """Mean log-likelihood of some rows by an explainer and by both references, in nats a row, and
    the standard error over rows of what the explainer has above each (`…_error`).

    `explainer` is the mean over replicates, `averaged` that of their predictions' average, which
    is what is compared.

    Args:
        own: the explainer's, of each replicate and row, `(R, N)`.
        source: the table that all are fitted on.
        frame: the rows.
        x, y: the same, encoded.
        seed: of the fits.
    """
    averaged = logsumexp(own, 0) - math.log(len(own))
    figures = {"explainer": float(own.mean()), "averaged": float(averaged.mean())}
    others = {
        "boosting": boosting_likelihood(source, frame, y, seed),
        "network": network_likelihood(source, x, y, seed),
    }
    for name, each in others.items():
        difference = averaged - each
        figures[name] = float(each.mean())
        figures[f"{name}_error"] = float(difference.std(ddof=1) / math.sqrt(len(difference)))
    return figures
