"""A fit that leaves it to the program to speak of collapses."""

import warnings

from lexppl.data import Dataset
from lexppl.evaluation import FittedPredictor
from lexppl.inference import CollapseWarning, FitResult
from lexppl.models import Grouping
from lexppl.tabular.fit_plan import FitPlan
from lexppl.tabular.table_fit import EncodedRows, fit_table


def fit_quietly(
    plan: FitPlan,
    rows: EncodedRows,
    data: Dataset,
    full: FittedPredictor | None = None,
    *,
    progress: bool,
) -> FitResult:
    """Fit a method to rows of a data set, whose collapses the program tells in its own words.

    Args:
        plan: the method and its settings.
        rows: what it is fitted on.
        data: with the names of entries, features and classes.
        full: the predictor that sees everything, if it is there already.
        progress: show bars.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        return fit_table(
            plan,
            rows,
            Grouping(data.groups, data.group_names),
            class_names=data.class_names,
            feature_names=data.feature_names,
            full=full,
            progress=progress,
        )
