"""What SHAP, permutation importance and Boruta say that matters, by their own libraries.

All look at the same boosted trees (`references.boosting`), or at a forest for Boruta, and at the
same rows as `lexppl explain`.

SHAP has no test. A column is found here where its mean |SHAP| (`shap.TreeExplainer`, on the
held-out rows) is above the largest of all *shadows*, copies of the columns whose rows are shuffled,
in each of five fits on columns and shadows together. The trees that it looks at split categories
as codes: of splits by sets of levels its values do not add up to the prediction (shap 0.51: off by
up to 7 in the log-odds). Permutation importance
(`sklearn.inspection.permutation_importance` on the held-out rows, 30 shuffles, of the
log-likelihood or the squared error) has z = mean / standard deviation over shuffles, by which
scikit-learn's guide judges it, and the procedure of Benjamini and Hochberg at the stated rate.
Boruta is `boruta.BorutaPy` on a random forest, its confirmed columns. Conditional importance is
`hidimstat.CFI` of the same trees on the held-out rows, by its defaults, found at the rate;
knockoffs are `hidimstat.ModelXKnockoff` of the rows to fit on, by its defaults (Gaussian ones, the
lasso). The law is no rival but a bound: the test of `lexppl explain` with the law's own gains.
"""

import importlib.util

import numpy as np
import shap
from numpy.typing import NDArray
from planted_tables import gains_by_law
from references import boosting, categories, codes
from scipy.stats import false_discovery_control, norm
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.inspection import permutation_importance

from lexppl.data.divided_table import DividedTable
from lexppl.evaluation import FeatureGroups
from lexppl.evaluation.importance import Importance

SHADOW_FITS = 5
SHUFFLES = 30
EXPLAINED_ROWS = 1000
"""Most held-out rows that SHAP explains; its time grows with them."""


def shap_found(source: DividedTable, seed: int) -> NDArray:
    """Whether each column's mean |SHAP| is above all shadows' in every fit, `(G,)`."""
    x = codes(source, source.table)
    columns = x.shape[1]
    draw = np.random.default_rng(seed)
    above = np.ones(columns, bool)
    for fit in range(SHADOW_FITS):
        both = np.concatenate([x, draw.permuted(x, axis=0)], 1)
        model = boosting(source, both, [], seed + fit)
        rows = both[source.test_rows[:EXPLAINED_ROWS]]
        values = np.abs(shap.TreeExplainer(model).shap_values(rows)).mean(0)
        size = values if values.ndim == 1 else values.sum(-1)
        above &= size[:columns] > size[columns:].max()
    return above


def permutation_found(source: DividedTable, seed: int, fdr: float) -> NDArray:
    """Whether each column's shuffling costs likelihood, by its z at a false discovery rate."""
    x = codes(source, source.table)
    model = boosting(source, x, categories(source), seed)
    labels = source.data.class_names is not None
    importance = permutation_importance(
        model,
        x[source.test_rows],
        source.test.y.numpy(),
        scoring=_log_likelihood if labels else "neg_mean_squared_error",
        n_repeats=SHUFFLES,
        random_state=seed,
    )
    mean, spread = importance.importances_mean, importance.importances_std
    with np.errstate(divide="ignore", invalid="ignore"):
        # A column that no tree asks for has 0/0.
        z = np.where(mean == 0.0, 0.0, mean / spread)
    return false_discovery_control(norm.sf(z)) <= fdr


def _log_likelihood(model, x: NDArray, y: NDArray) -> float:
    chosen = model.predict_proba(x)[np.arange(len(y)), y]
    return float(np.log(np.clip(chosen, 1e-12, None)).mean())


def is_there(library: str) -> bool:
    """Whether a library is installed."""
    return importlib.util.find_spec(library) is not None


def conditional_found(source: DividedTable, seed: int, fdr: float) -> NDArray:
    """The columns of conditional importance at a false discovery rate."""
    from hidimstat import CFI

    x = codes(source, source.table)
    labels = source.data.class_names is not None
    rule = {"method": "predict_proba", "loss": _log_loss} if labels else {}
    judge = CFI(boosting(source, x, [], seed), random_state=seed, **rule)
    rows, y = x[source.test_rows], source.test.y.numpy()
    judge.fit(rows, y)
    judge.importance(rows, y)
    return np.asarray(judge.fdr_selection(fdr)) > 0


def _log_loss(y: NDArray, probabilities: NDArray) -> float:
    chosen = probabilities[np.arange(len(y)), np.asarray(y).astype(int)]
    return -float(np.log(np.clip(chosen, 1e-12, None)).mean())


def knockoffs_found(source: DividedTable, seed: int, fdr: float) -> NDArray:
    """The columns found against Gaussian knockoffs by the lasso."""
    from hidimstat import ModelXKnockoff

    rows = source.train_rows
    x, y = codes(source, source.table)[rows], source.data.y.numpy()[rows].astype(float)
    judge = ModelXKnockoff(random_state=seed)
    judge.fit(x, y)
    judge.importance(x, y)
    return np.asarray(judge.fdr_selection(fdr)) > 0


def boruta_found(source: DividedTable, seed: int) -> NDArray:
    """The columns that Boruta confirms, at its own settings."""
    from boruta import BorutaPy

    labels = source.data.class_names is not None
    forest = (RandomForestClassifier if labels else RandomForestRegressor)(
        max_depth=5, random_state=seed
    )
    rows = source.train_rows
    selector = BorutaPy(forest, n_estimators="auto", random_state=seed)
    selector.fit(codes(source, source.table)[rows], source.data.y.numpy()[rows])
    return np.asarray(selector.support_)


def law_found(name: str, rows: int, seed: int, columns: list[str], fdr: float) -> NDArray:
    """Whether each column is found by the test of `lexppl explain` with the law's own gains, of a
    column that does not matter 0, `(G,)`."""
    gains = np.zeros((rows, len(columns)))
    for unit, each in gains_by_law(name, rows, seed).items():
        gains[:, columns.index(unit[0])] = each
    none, alone = np.zeros(rows), FeatureGroups.alone(columns)
    values = 0.0 * gains, gains, none, none, np.zeros((rows, 1 + len(columns)))
    of_rows = np.arange(rows), np.ones(rows), np.zeros(rows, int)
    table = Importance(tuple(columns), alone, *values, *of_rows).group_table(fdr)
    return table["found"].loc[columns].to_numpy()
